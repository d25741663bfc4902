package abi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of what somebody says: arguments of a call, a result
// as a model is shown it, a state value. An object of plain members is 1 deep.
const MaxDepth = 64

// MaxNesting is the deepest nesting of any document. Above [MaxDepth] it leaves room
// for what a document holds that is as deep as may be: a tool call, a request to a
// model with calls in its history, a question about that request.
const MaxNesting = MaxDepth + 16

// ErrDuplicate matches the error for a document with a repeated member name.
var ErrDuplicate = errors.New("duplicate member name")

// Canonical returns data in the one form that is digested, judged and handed
// over: one JSON value, members sorted by name (bytewise), no blanks, strings
// with only the escapes that RFC 8259 requires, numbers with the text they had.
// Duplicate names, bad UTF-8, lone surrogates, numbers that no float64 comes near
// (1e400), nesting beyond [MaxNesting] and trailing bytes are errors. Canonical(Canonical(x)) equals Canonical(x).
func Canonical(data []byte) ([]byte, error) {
	p := parser{in: data}
	out, err := p.value(make([]byte, 0, len(data)), 1)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos != len(data) {
		return nil, p.fail("bytes after the value")
	}
	return out, nil
}

// CheckDepth returns an error if JSON nests deeper than [MaxDepth].
func CheckDepth(doc []byte) error {
	if bytes.Count(doc, []byte{'{'})+bytes.Count(doc, []byte{'['}) <= MaxDepth {
		return nil
	}
	depth, text := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case c == '"':
			text = !text
		case text && c == '\\':
			i++
		case text:
		case c == '{', c == '[':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("document: nesting exceeds %d at byte %d", MaxDepth, i)
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return nil
}

// Digest returns the lower-case hexadecimal SHA-256 of canonical bytes.
func Digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	var text [2 * len(sum)]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// Decode decodes one strict document into v: the rules of [Canonical] hold,
// members that v does not have are errors, and names are compared exactly. A
// document for a struct must be an object: null is refused. Numbers that land in
// an interface become [json.Number].
func Decode(data []byte, v any) error { return decode(data, v, false) }

// DecodeKnown decodes as [Decode] does, but leaves out members that v does not have.
// A name that is one of v's in other letters, which encoding/json would take for it,
// is an error: whoever looked at the document before may have read another member.
func DecodeKnown(data []byte, v any) error { return decode(data, v, true) }

func decode(data []byte, v any, open bool) error {
	canonical, err := Canonical(data)
	if err != nil {
		return err
	}
	t := reflect.TypeOf(v)
	if string(canonical) == "null" && t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		return errors.New("document: null is no object")
	}
	if _, err := exactNames(t, canonical, open); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(canonical))
	if !open {
		d.DisallowUnknownFields()
	}
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("document: %w", err)
	}
	return nil
}

// Unmarshal decodes strict JSON into generic values: map[string]any, []any,
// string, bool, nil and [json.Number].
func Unmarshal(data []byte) (any, error) {
	canonical, err := Canonical(data)
	if err != nil {
		return nil, err
	}
	p := parser{in: canonical}
	return p.generic(), nil
}

// Marshal encodes v in canonical form. It fails for what JSON cannot say, such
// as NaN, and for what Canonical refuses. Bytes of a Go string that are no UTF-8
// become U+FFFD, as encoding/json has it.
func Marshal(v any) ([]byte, error) {
	if out, ok := appendGeneric(make([]byte, 0, 64), v, 1); ok {
		return out, nil
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return Canonical(buf.Bytes())
}

// appendGeneric appends a value as Unmarshal returns it, or a question, in canonical form. It is false for any
// other, and for what Canonical refuses or encoding/json replaces.
func appendGeneric(out []byte, v any, depth int) (_ []byte, ok bool) {
	if depth > MaxNesting+1 { // a value that holds itself, too
		return nil, false
	}
	switch v := v.(type) {
	case nil:
		return append(out, "null"...), true
	case bool:
		return strconv.AppendBool(out, v), true
	case string:
		return appendText(out, v), utf8.ValidString(v)
	case json.Number:
		from := len(out)
		p := parser{in: append(out, v...)[from:]}
		if v == "" || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
			return nil, false
		}
		out, err := p.number(out) // over itself
		return out, err == nil && p.pos == len(p.in)
	case []any:
		if v == nil {
			return append(out, "null"...), true
		}
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			if out, ok = appendGeneric(out, e, depth+1); !ok {
				return nil, false
			}
		}
		return append(out, ']'), depth <= MaxNesting
	case map[string]any:
		if v == nil {
			return append(out, "null"...), true
		}
		var room [8]string
		names := room[:0]
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		out = append(out, '{')
		for i, name := range names {
			if !utf8.ValidString(name) {
				return nil, false
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendText(out, name), ':')
			if out, ok = appendGeneric(out, v[name], depth+1); !ok {
				return nil, false
			}
		}
		return append(out, '}'), depth <= MaxNesting
	case *Question:
		return v.appendTo(out)
	}
	return nil, false
}

// exactNames refuses member names that encoding/json would match to a field of
// type t by ignoring case, at any depth of a canonical value, and, unless open is
// set, those that match none. It returns what is behind the value.
func exactNames(t reflect.Type, canonical []byte, open bool) ([]byte, error) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var fields map[string]reflect.Type
	var each reflect.Type
	switch {
	case t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
	case t.Kind() == reflect.Struct:
		fields = fieldsOf(t)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		each = t.Elem()
	}
	switch c := canonical[0]; c {
	case '"':
		return canonical[textEnd(canonical):], nil
	case '{', '[':
		rest := canonical[1:]
		for rest[0] != '}' && rest[0] != ']' {
			member := each
			if c == '{' {
				if t != nil && t.Kind() != reflect.Map {
					member = nil
				}
				end := textEnd(rest)
				if fields != nil {
					field, ok := fields[string(rest[1:end-1])]
					if !ok {
						name := unescaped(rest[:end])
						if field, ok = fields[name]; !ok && !(open && foldsTo(fields, name) == "") {
							return nil, fmt.Errorf("document: unknown member %q", clip(name, 60))
						}
					}
					member = field
				}
				rest = rest[end+1:]
			} else if t != nil && t.Kind() == reflect.Map {
				member = nil
			}
			var err error
			if rest, err = exactNames(member, rest, open); err != nil {
				return nil, err
			}
			if rest[0] == ',' {
				rest = rest[1:]
			}
		}
		return rest[1:], nil
	}
	for i, c := range canonical {
		if c == ',' || c == ']' || c == '}' {
			return canonical[i:], nil
		}
	}
	return nil, nil
}

// foldsTo returns the member that a name is in other letters; "" if there is none.
func foldsTo(fields map[string]reflect.Type, name string) string {
	for field := range fields {
		if strings.EqualFold(field, name) {
			return field
		}
	}
	return ""
}

// textEnd returns the index behind the string that canonical JSON begins with.
func textEnd(canonical []byte) int {
	for i := 1; ; i++ {
		switch canonical[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// unescaped returns what a string in canonical JSON says.
func unescaped(canonical []byte) string {
	p := parser{in: canonical}
	s, _ := p.text() // it was read before
	return s
}

// known are the members of struct types: a map[string]reflect.Type for each.
var known sync.Map

// fieldsOf returns the JSON members of a struct type.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if fields, ok := known.Load(t); ok {
		return fields.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	memberTypes(t, fields)
	known.Store(t, fields)
	return fields
}

// memberTypes adds the JSON members of struct type t to fields, those of embedded
// structs included; a member nearer to the surface hides a deeper one.
func memberTypes(t reflect.Type, fields map[string]reflect.Type) {
	var embedded []reflect.Type
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" {
			e := f.Type
			if e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			if e.Kind() == reflect.Struct {
				embedded = append(embedded, e)
				continue
			}
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, hidden := fields[name]; !hidden {
			fields[name] = f.Type
		}
	}
	for _, e := range embedded {
		memberTypes(e, fields)
	}
}
