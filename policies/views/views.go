// Package views reads documents as the first-party guards do: every text and
// every key, in every form in which something may hide. A rule that forbids hits
// if any view hits; a rule that allows needs every view to pass.
package views

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// ErrEncoding reports a text that is encoded more often than guards look: more than
// three times in percent signs, or in so many ways at once that it has more than 64
// views. A guard denies it.
var ErrEncoding = errors.New("encoded too often")

// Bounds of looking.
const (
	maxPercent = 3  // rounds of percent-decoding
	maxNested  = 2  // JSON text inside text, and base64 or hexadecimal inside each other
	maxViews   = 64 // of one text
)

// A Leaf is a text, a key or a number of a document.
type Leaf struct {
	At     string // JSON pointer; of a key, that of its value
	Text   string // as it stands in the document
	Key    bool   // a member's name
	Number bool
}

// Tree returns a document as generic values, in which numbers keep their text: nil
// for an absent one. It panics, which denies, on what is no JSON: the host never asks
// about that.
func Tree(d guest.Document) any {
	raw, err := d.MarshalJSON()
	if err != nil {
		panic(err)
	}
	v, err := decode(raw)
	if err != nil {
		panic(err)
	}
	return v
}

func decode(raw []byte) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

// Leaves calls f for every text, key and number of a generic value, members in the
// order of their names, until f returns false.
func Leaves(v any, f func(Leaf) bool) bool { return leaves(v, "", f) }

func leaves(v any, at string, f func(Leaf) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			here := at + "/" + Escape(k)
			if !f(Leaf{At: here, Text: k, Key: true}) || !leaves(v[k], here, f) {
				return false
			}
		}
	case []any:
		for i, e := range v {
			if !leaves(e, fmt.Sprintf("%s/%d", at, i), f) {
				return false
			}
		}
	case string:
		return f(Leaf{At: at, Text: v})
	case json.Number:
		return f(Leaf{At: at, Text: string(v), Number: true})
	}
	return true
}

// Escape writes a member's name as a step of a JSON pointer.
func Escape(step string) string {
	return strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1")
}

// Each calls f for every view of every leaf of a generic value, until f returns
// false. Of texts that are JSON themselves it looks at the leaves, too. The error is
// [ErrEncoding] or nil. at is the place where f returned false or the error is, if
// there is one.
func Each(v any, f func(Leaf, View) bool) (at string, err error) {
	Leaves(v, func(l Leaf) bool {
		var goOn bool
		goOn, err = Texts(l.Text, func(view View) bool { return f(l, view) })
		if !goOn || err != nil {
			at = l.At
			return false
		}
		return true
	})
	return at, err
}

// Texts calls f for every view of one text, the text itself first, until f returns
// false, which it reports. The error is [ErrEncoding] or nil.
func Texts(text string, f func(View) bool) (bool, error) {
	seen := map[string]bool{text: true}
	todo := []step{{view: View{Text: text}}}
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		if !f(s.view) {
			return false, nil
		}
		more, err := s.next()
		if err != nil {
			return true, err
		}
		for _, n := range more {
			if n.view.Text == "" || seen[n.view.Text] {
				continue
			}
			if seen[n.view.Text] = true; len(seen) > maxViews {
				return true, ErrEncoding
			}
			todo = append(todo, n)
		}
	}
	return true, nil
}

// A step is a view and how it came to be.
type step struct {
	view                   View
	percent, coded, nested int
}

// next returns the views that one more transformation shows.
func (s step) next() ([]step, error) {
	var out []step
	same := func(v View, ok bool) {
		if ok {
			out = append(out, step{v, s.percent, s.coded, s.nested})
		}
	}
	same(s.view.Fold())
	same(s.view.entities())
	same(s.view.escapes())
	if v, ok := s.view.Percent(); ok {
		if s.percent == maxPercent {
			return nil, ErrEncoding
		}
		out = append(out, step{v, s.percent + 1, s.coded, s.nested})
	}
	if s.coded < maxNested {
		for _, v := range s.view.runs() {
			out = append(out, step{v, s.percent, s.coded + 1, s.nested})
		}
	}
	if s.nested < maxNested {
		if inner, ok := Nested(s.view.Text); ok {
			all := s.view.whole()
			Leaves(inner, func(l Leaf) bool {
				out = append(out, step{all(l.Text), s.percent, s.coded, s.nested + 1})
				return len(out) <= maxViews
			})
		}
	}
	return out, nil
}

// Nested returns the JSON value that a text is: an object, a list or a text.
func Nested(text string) (any, bool) {
	t := strings.TrimSpace(text)
	if len(t) < 2 || !strings.ContainsAny(t[:1], `{["`) {
		return nil, false
	}
	v, err := decode([]byte(t))
	return v, err == nil
}
