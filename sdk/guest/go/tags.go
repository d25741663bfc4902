package guest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// readTags adds to the shape of a field what its struct tags say.
func (s *shape) readTags(f reflect.StructField) error {
	if doc, ok := f.Tag.Lookup("doc"); ok {
		s.schema["description"] = doc
	}
	for _, tag := range []string{"min", "max"} {
		if text, ok := f.Tag.Lookup(tag); ok {
			if err := s.bound(tag, text, f.Type); err != nil {
				return err
			}
		}
	}
	value := s // enum and pattern of a list speak of its elements
	if s.base() == "array" {
		value = s.each
	}
	if text, ok := f.Tag.Lookup("pattern"); ok {
		if value.base() != "string" {
			return fmt.Errorf("pattern does not apply to %s", f.Type)
		}
		value.schema["pattern"] = text
	}
	if text, ok := f.Tag.Lookup("enum"); ok {
		var values []any
		for one := range strings.SplitSeq(text, ",") {
			v, err := value.literal(one)
			if err != nil {
				return fmt.Errorf("enum %q: %w", one, err)
			}
			values = append(values, v)
		}
		if value.nullable() {
			values = append(values, nil)
		}
		value.schema["enum"] = values
	}
	if text, ok := f.Tag.Lookup("default"); ok {
		var v any
		var err error
		if s.base() == "string" || f.Type == reflect.TypeFor[Decimal]() {
			v = text
		} else if v, err = abi.Unmarshal([]byte(text)); err != nil {
			return fmt.Errorf("default %q: %w", text, err)
		}
		data, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(data, reflect.New(f.Type).Interface())
		}
		if err != nil {
			return fmt.Errorf("default %q: %w", text, err)
		}
		s.schema["default"], s.fallback, s.fallbackText, s.defaults = v, v, data, true
	}
	return nil
}

// bound adds what the tag min or max says of a value of type t.
func (s *shape) bound(tag, text string, t reflect.Type) error {
	keyword := map[string]string{
		"min string": "minLength", "min array": "minItems", "min object": "minProperties", "min integer": "minimum", "min number": "minimum",
		"max string": "maxLength", "max array": "maxItems", "max object": "maxProperties", "max integer": "maximum", "max number": "maximum",
	}[tag+" "+s.base()]
	if keyword == "" || s.fixed {
		return fmt.Errorf("%s does not apply to %s", tag, t)
	}
	switch s.base() {
	case "integer", "number":
		v, err := s.literal(text)
		if err != nil {
			return fmt.Errorf("%s %q: %w", tag, text, err)
		}
		s.schema[keyword] = v
	default:
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return fmt.Errorf("%s %q: want a count", tag, text)
		}
		s.schema[keyword] = n
	}
	return nil
}

// literal reads a value of the shape's type from a tag.
func (s *shape) literal(text string) (any, error) {
	switch s.base() {
	case "string":
		return text, nil
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fmt.Errorf("not an integer")
		}
		return json.Number(text), nil
	case "number":
		if _, err := ParseDecimal(text); err != nil {
			return nil, err
		}
		return json.Number(text), nil
	}
	return nil, fmt.Errorf("want text, an integer or a number")
}

// decode decodes JSON into a pointer to the shape's type, with defaults for what
// is absent.
func (s *shape) decode(data json.RawMessage, into any) error {
	v := reflect.ValueOf(into).Elem()
	if r := newReader(data); s.assign(r, v) && r.end() == nil {
		return nil
	}
	v.SetZero()
	if s.work {
		tree, err := generic(data)
		if err != nil {
			return err
		}
		if data, err = json.Marshal(s.fill(tree)); err != nil {
			return err
		}
	}
	return unmarshal(data, into)
}

// fill returns v with defaults added and whole numbers in plain form.
func (s *shape) fill(v any) any {
	if !s.work {
		return v
	}
	switch v := v.(type) {
	case json.Number:
		if s.integer {
			return json.Number(plainInteger(string(v)))
		}
	case []any:
		if s.each != nil {
			for i := range v {
				v[i] = s.each.fill(v[i])
			}
		}
	case map[string]any:
		if s.each != nil {
			for name := range v {
				v[name] = s.each.fill(v[name])
			}
		}
		for name, m := range s.members {
			value, there := v[name]
			switch {
			case there:
				v[name] = m.fill(value)
			case m.defaults:
				v[name] = m.fallback
			case m.members != nil && m.work && !m.pointer:
				v[name] = m.fill(map[string]any{})
			}
		}
	}
	return v
}
