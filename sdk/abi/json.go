package abi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// MaxDepth is the deepest nesting a document may have.
const MaxDepth = 64

// ErrDuplicate matches the error for a document with a repeated member name.
var ErrDuplicate = errors.New("duplicate member name")

// Canonical returns data in the one form that is digested, judged and handed
// over: one JSON value, members sorted by name (bytewise), no blanks, strings
// with only the escapes that RFC 8259 requires, numbers with the text they had.
// Duplicate names, bad UTF-8, lone surrogates, numbers that no float64 comes near
// (1e400), nesting beyond [MaxDepth] and trailing bytes are errors. Canonical(Canonical(x)) equals Canonical(x).
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

// Digest returns the lower-case hexadecimal SHA-256 of canonical bytes.
func Digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// Decode decodes one strict document into v: the rules of [Canonical] hold,
// members that v does not have are errors, and names are compared exactly. A
// document for a struct must be an object: null is refused. Numbers that land in
// an interface become [json.Number].
func Decode(data []byte, v any) error {
	canonical, err := Canonical(data)
	if err != nil {
		return err
	}
	tree, err := generic(canonical)
	if err != nil {
		return err
	}
	t := reflect.TypeOf(v)
	if tree == nil && t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		return errors.New("document: null is no object")
	}
	if err := exactNames(t, tree); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.DisallowUnknownFields()
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
	return generic(canonical)
}

// generic decodes what Canonical has made.
func generic(canonical []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("document: %w", err)
	}
	return v, nil
}

// Marshal encodes v in canonical form. It fails for what JSON cannot say, such
// as NaN, and for what Canonical refuses. Bytes of a Go string that are no UTF-8
// become U+FFFD, as encoding/json has it.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return Canonical(buf.Bytes())
}

// exactNames refuses member names that encoding/json would match to a field of
// type t by ignoring case, at any depth.
func exactNames(t reflect.Type, v any) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		for _, e := range v {
			if err := exactNames(t.Elem(), e); err != nil {
				return err
			}
		}
	case map[string]any:
		switch t.Kind() {
		case reflect.Map:
			for _, e := range v {
				if err := exactNames(t.Elem(), e); err != nil {
					return err
				}
			}
		case reflect.Struct:
			fields := map[string]reflect.Type{}
			memberTypes(t, fields)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				field, ok := fields[name]
				if !ok {
					return fmt.Errorf("document: unknown member %q", clip(name, 60))
				}
				if err := exactNames(field, v[name]); err != nil {
					return err
				}
			}
		}
	}
	return nil
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
