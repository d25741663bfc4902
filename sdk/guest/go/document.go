package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Document is a JSON value that can be read, and changed, without a Go type for
// it. What is not changed keeps its form, numbers keep their text. The zero
// Document is absent.
//
// A path that begins with '/' is a JSON pointer (RFC 6901), such as "/lines/0/sku".
// The empty path is the whole document. Any other path is the name of a member of
// the document, which is an object.
//
// A copy of a Document shares its content.
type Document struct {
	raw     json.RawMessage // as it arrived
	tree    any             // what raw says, once something asked
	parsed  bool
	changed bool
	err     error // the first change that failed
}

// Has reports whether there is a value at path; null is one.
func (d *Document) Has(path string) bool {
	var err error
	if !d.parsed && !d.changed {
		_, err = d.find(path)
	} else {
		_, err = d.at(path)
	}
	return err == nil
}

// Get decodes the value at path into a pointer and reports whether there is one. A
// list is read most cheaply into a []Document, which share its bytes with d.
func (d *Document) Get(path string, into any) (bool, error) {
	data, err := d.bytesAt(path)
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := unmarshal(data, into); err != nil {
		return true, fmt.Errorf("%q: %w", path, err)
	}
	return true, nil
}

// Text returns the text at path. A value that is absent or no text is an error.
func (d *Document) Text(path string) (string, error) {
	v, err := d.at(path)
	if err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%q: not text", path)
	}
	return s, nil
}

// Decimal returns the number at path, exactly. It may be written as text. A value
// that is absent or no number is an error.
func (d *Document) Decimal(path string) (Decimal, error) {
	v, err := d.at(path)
	if err != nil {
		return Decimal{}, err
	}
	var text string
	switch v := v.(type) {
	case json.Number:
		text = string(v)
	case string:
		text = v
	default:
		return Decimal{}, fmt.Errorf("%q: not a number", path)
	}
	n, err := ParseDecimal(text)
	if err != nil {
		return Decimal{}, fmt.Errorf("%q: %w", path, err)
	}
	return n, nil
}

// Set writes value at path: it replaces what is there, adds the member, or with
// "-" as the last step of a pointer appends to a list. What holds it must exist,
// but for the document itself, which becomes an object. A change that cannot be
// made, because there is no such place or JSON cannot say the value, makes the
// hook or guard that returns the document fail.
func (d *Document) Set(path string, value any) {
	d.change(path, func() (any, bool, error) {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, false, err
		}
		v, err := generic(data)
		return v, true, err
	})
}

// Delete removes the value at path, if there is one.
func (d *Document) Delete(path string) {
	if d.Has(path) {
		d.change(path, func() (any, bool, error) { return nil, false, nil })
	}
}

// MarshalJSON returns the document; one that is absent is null.
func (d Document) MarshalJSON() ([]byte, error) {
	switch {
	case d.err != nil:
		return nil, d.err
	case d.changed:
		return json.Marshal(d.tree)
	case d.raw == nil:
		return []byte("null"), nil
	}
	return bytes.Clone(d.raw), nil // parts of it may be text that somebody has
}

// UnmarshalJSON makes d the document that data holds.
func (d *Document) UnmarshalJSON(data []byte) error {
	*d = Document{raw: bytes.Clone(data)}
	return nil
}

var errAbsent = errors.New("absent")

func (d *Document) parse() error {
	if d.parsed || d.raw == nil {
		return nil
	}
	tree, err := generic(d.raw)
	if err != nil {
		return err
	}
	d.tree, d.parsed = tree, true
	return nil
}

// at returns the value at path, or an error that matches errAbsent.
func (d *Document) at(path string) (any, error) {
	if !d.parsed && !d.changed { // nothing will be changed, as a rule: what is asked for is read where it lies
		r, err := d.find(path)
		if err != nil {
			return nil, err
		}
		return r.value()
	}
	v := d.tree
	for _, step := range steps(path) {
		var ok bool
		switch in := v.(type) {
		case map[string]any:
			v, ok = in[step]
		case []any:
			if i, err := index(step, len(in)); err == nil {
				v, ok = in[i], true
			}
		}
		if !ok {
			return nil, fmt.Errorf("%q: %w", path, errAbsent)
		}
	}
	return v, nil
}

// find returns a reader at path of a document that was not changed, or an error
// that matches errAbsent.
func (d *Document) find(path string) (*reader, error) {
	if d.raw == nil {
		return nil, fmt.Errorf("%q: %w", path, errAbsent)
	}
	r := newReader(d.raw)
	found, err := r.find(steps(path))
	if err == nil && !found {
		err = fmt.Errorf("%q: %w", path, errAbsent)
	}
	return r, err
}

// bytesAt returns the value at path as JSON, or an error that matches errAbsent.
func (d *Document) bytesAt(path string) ([]byte, error) {
	if !d.parsed && !d.changed {
		r, err := d.find(path)
		if err != nil {
			return nil, err
		}
		return r.raw()
	}
	v, err := d.at(path)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// change puts what value returns at path, or removes what is there if it returns
// false. The first error is kept.
func (d *Document) change(path string, value func() (any, bool, error)) {
	err := d.parse()
	var v any
	keep := false
	if err == nil {
		v, keep, err = value()
	}
	if err == nil {
		if d.tree == nil && !d.parsed && !d.changed {
			d.tree = map[string]any{}
		}
		d.tree, err = put(d.tree, steps(path), v, keep)
	}
	if err != nil {
		if d.err == nil {
			d.err = fmt.Errorf("set %q: %w", path, err)
		}
		return
	}
	d.changed = true
}

// put returns in with v at the place that steps lead to.
func put(in any, steps []string, v any, keep bool) (any, error) {
	if len(steps) == 0 {
		return v, nil
	}
	step := steps[0]
	switch in := in.(type) {
	case map[string]any:
		inner, ok := in[step]
		switch {
		case len(steps) == 1 && !keep:
			delete(in, step)
			return in, nil
		case len(steps) > 1 && !ok:
			return nil, errAbsent
		}
		out, err := put(inner, steps[1:], v, keep)
		if err != nil {
			return nil, err
		}
		in[step] = out
		return in, nil
	case []any:
		if step == "-" && len(steps) == 1 && keep {
			return append(in, v), nil
		}
		i, err := index(step, len(in))
		if err != nil {
			return nil, err
		}
		if len(steps) == 1 && !keep {
			return append(in[:i:i], in[i+1:]...), nil
		}
		out, err := put(in[i], steps[1:], v, keep)
		if err != nil {
			return nil, err
		}
		in[i] = out
		return in, nil
	}
	return nil, errAbsent
}

// steps splits a path.
func steps(path string) []string {
	if path == "" {
		return nil
	}
	rest, pointer := strings.CutPrefix(path, "/")
	if !pointer {
		return []string{path}
	}
	out := strings.Split(rest, "/")
	for i, s := range out {
		out[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return out
}

// index reads a step into a list of n elements.
func index(step string, n int) (int, error) {
	if !allDigits(step) || len(step) > 1 && step[0] == '0' {
		return 0, errAbsent
	}
	i, err := strconv.Atoi(step)
	if err != nil || i >= n {
		return 0, errAbsent
	}
	return i, nil
}
