package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unsafe"
)

// A reader reads JSON that was checked before: the host's documents, which are
// canonical, and what encoding/json hands to an UnmarshalJSON. It goes over it
// once, because guest code is metered and encoding/json takes some hundred times
// the steps. What is no JSON at all is an error; what is nearly JSON may pass.
//
// Its methods read the value that begins where it stands.
type reader struct {
	data []byte
	text string // the same bytes: what is read of text is a part of it
	i    int
}

// newReader returns a reader of data that nobody changes afterwards: what is read is a part of it.
func newReader(data []byte) *reader {
	r := &reader{data: data, text: unsafe.String(unsafe.SliceData(data), len(data))}
	r.space()
	return r
}

var errJSON = errors.New("unexpected end or character in JSON")

// errEnough ends object and list early, without an error.
var errEnough = errors.New("enough")

func (r *reader) space() {
	for r.i < len(r.text) && (r.text[r.i] == ' ' || r.text[r.i] == '\n' || r.text[r.i] == '\t' || r.text[r.i] == '\r') {
		r.i++
	}
}

// next reports whether c stands here, and goes past it and the blanks behind it.
func (r *reader) next(c byte) bool {
	if r.i == len(r.text) || r.text[r.i] != c {
		return false
	}
	r.i++
	r.space()
	return true
}

// end reports anything that is left.
func (r *reader) end() error {
	if r.space(); r.i != len(r.text) {
		return errJSON
	}
	return nil
}

func (r *reader) wants(what string) error {
	return fmt.Errorf("want %s, got %s", what, clip(r.text[r.i:]))
}

// object calls f for each member, standing at its value, which f reads.
func (r *reader) object(f func(name string) error) error {
	text := r.text
	if !r.next('{') {
		return r.wants("an object")
	}
	if r.next('}') {
		return nil
	}
	for {
		name, err := r.str()
		if err != nil {
			return err
		}
		if r.i+1 < len(text) && text[r.i] == ':' && text[r.i+1] > ' ' {
			r.i++
		} else if r.space(); !r.next(':') {
			return errJSON
		}
		if err := f(name); err != nil {
			return err
		}
		if r.i+1 < len(text) && text[r.i] == ',' && text[r.i+1] == '"' {
			r.i++
			continue
		}
		if r.space(); r.next(',') {
			continue
		}
		if r.next('}') {
			return nil
		}
		return errJSON
	}
}

// list calls f at each element, which f reads.
func (r *reader) list(f func() error) error {
	if !r.next('[') {
		return r.wants("a list")
	}
	if r.next(']') {
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if r.space(); r.next(',') {
			continue
		}
		if r.next(']') {
			return nil
		}
		return errJSON
	}
}

// null reports whether null stands here, and goes past it.
func (r *reader) null() bool {
	if strings.HasPrefix(r.text[r.i:], "null") {
		r.i += len("null")
		return true
	}
	return false
}

// str reads a string.
func (r *reader) str() (string, error) {
	text, start := r.text, r.i
	if start < len(text) && text[start] == '"' {
		if end := r.mark(start + 1); end < len(text) && text[end] == '"' {
			r.i = end + 1
			return text[start+1 : end], nil
		}
	}
	end := r.skipStr(start)
	if end < 0 {
		return "", r.wants("text")
	}
	r.i = end
	return unescaped(r.data[start:end])
}

// mark returns the index of the first quote or backslash from i on, or the length. It looks at
// eight bytes at a time: strings are most of a document.
func (r *reader) mark(i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	data := r.data
	for ; i+8 <= len(data); i += 8 {
		word := binary.LittleEndian.Uint64(data[i:])
		quote, slash := word^('"'*ones), word^('\\'*ones)
		if found := ((quote-ones)&^quote | (slash-ones)&^slash) & tops; found != 0 { // the lowest bit is that of the first
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(data) && data[i] != '"' && data[i] != '\\' {
		i++
	}
	return i
}

// unescaped is apart from str, which would have to put s on the heap for it.
func unescaped(quoted []byte) (s string, err error) {
	err = json.Unmarshal(quoted, &s)
	return s, err
}

// skipStr returns the index behind a string that begins at start, or -1.
func (r *reader) skipStr(start int) int {
	text := r.text
	if start >= len(text) || text[start] != '"' {
		return -1
	}
	for i := start + 1; ; i += 2 {
		if i = r.mark(min(i, len(text))); i == len(text) {
			return -1
		}
		if text[i] == '"' {
			return i + 1
		}
	}
}

// word reads a number, true, false or null as text.
func (r *reader) word() (string, error) {
	text, start, i := r.text, r.i, r.i
	for i < len(text) && inWord(text[i]) {
		i++
	}
	if i == start {
		return "", errJSON
	}
	r.i = i
	return text[start:i], nil
}

func inWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func (r *reader) integer() (int, error) {
	word, err := r.word()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(word)
}

func (r *reader) flag() (bool, error) {
	switch word, err := r.word(); {
	case err == nil && (word == "true" || word == "false"):
		return word == "true", nil
	default:
		return false, errors.New("want true or false")
	}
}

// strs reads a list of strings; null says nothing.
func (r *reader) strs() ([]string, error) {
	if r.null() {
		return nil, nil
	}
	out := []string{}
	err := r.list(func() error {
		s, err := r.str()
		out = append(out, s)
		return err
	})
	return out, err
}

// raw goes past a value and returns its bytes, which are a part of the data.
func (r *reader) raw() (json.RawMessage, error) {
	text, i, depth := r.text, r.i, 0
	for i < len(text) {
		switch c := text[i]; c {
		case '"':
			if i = r.skipStr(i); i < 0 {
				return nil, errJSON
			}
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return nil, errJSON
			}
			i++
			continue
		default:
			start := i
			for i < len(text) && inWord(text[i]) {
				i++
			}
			if i == start {
				return nil, errJSON
			}
		}
		if depth < 0 {
			return nil, errJSON
		}
		if depth == 0 {
			start := r.i
			r.i = i
			return json.RawMessage(r.data[start:i:i]), nil
		}
	}
	return nil, errJSON
}

// value reads a value as generic ones and keeps the text of numbers.
func (r *reader) value() (any, error) {
	if r.i == len(r.text) {
		return nil, errJSON
	}
	switch r.text[r.i] {
	case '{':
		m := map[string]any{}
		err := r.object(func(name string) (err error) {
			m[name], err = r.value()
			return err
		})
		return m, err
	case '[':
		list := []any{}
		err := r.list(func() error {
			v, err := r.value()
			list = append(list, v)
			return err
		})
		return list, err
	case '"':
		return r.str()
	}
	word, err := r.word()
	switch {
	case err != nil:
		return nil, err
	case word == "null":
		return nil, nil
	case word == "true" || word == "false":
		return word == "true", nil
	case word[0] >= 'a' && word[0] <= 'z':
		return nil, errJSON
	}
	return json.Number(word), nil
}

// generic decodes JSON into generic values and keeps the text of numbers.
func generic(data []byte) (any, error) {
	r := newReader(bytes.Clone(data))
	v, err := r.value()
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// find goes to the value that steps lead to, from the one that stands here, and
// reports whether there is one.
func (r *reader) find(steps []string) (bool, error) {
	for _, step := range steps {
		found := false
		var err error
		switch {
		case r.i == len(r.text):
			return false, errJSON
		case r.text[r.i] == '{':
			err = r.object(func(name string) error {
				if name == step {
					found = true
					return errEnough
				}
				_, err := r.raw()
				return err
			})
		case r.text[r.i] == '[':
			at, indexErr := index(step, len(r.text))
			if indexErr != nil {
				return false, nil
			}
			err = r.list(func() error {
				if at == 0 {
					found = true
					return errEnough
				}
				at--
				_, err := r.raw()
				return err
			})
		}
		if err != nil && err != errEnough {
			return false, err
		}
		if !found {
			return false, nil
		}
	}
	return true, nil
}

// readText reads a string into a type of its own.
func readText[T ~string](r *reader, into *T) error {
	s, err := r.str()
	*into = T(s)
	return err
}

// unmarshal is [json.Unmarshal] that keeps the text of numbers.
func unmarshal(data []byte, into any) error {
	switch v := into.(type) {
	case *any:
		if v == nil {
			break
		}
		tree, err := generic(data)
		if err == nil {
			*v = tree
		}
		return err
	case *[]Document: // whose elements are read when they are asked for something
		if v == nil {
			break
		}
		return elements(data, v)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// elements makes a list of what data says, of which the list keeps parts. As with
// encoding/json, null is no list.
func elements(data []byte, into *[]Document) error {
	r := newReader(data)
	if r.null() {
		*into = nil
		return r.end()
	}
	list := []Document{}
	err := r.list(func() error {
		raw, err := r.raw()
		list = append(list, Document{raw: raw[:len(raw):len(raw)]})
		return err
	})
	if err == nil {
		err = r.end()
	}
	if err == nil {
		*into = list
	}
	return err
}
