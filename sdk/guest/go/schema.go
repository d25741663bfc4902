package guest

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A shape is what is known of a Go type as JSON: the schema for the manifest, and
// what decode has to do beyond encoding/json.
type shape struct {
	schema map[string]any

	integer  bool              // whole numbers may be written 3.0
	members  map[string]*shape // of a struct
	each     *shape            // of a list or map
	fixed    bool              // the number of members is not for tags to bound
	pointer  bool              // null is a value, so an absent one is not an empty one
	fallback any               // generic value of a member that is absent
	defaults bool              // there is a fallback here
	work     bool              // there is something to do here or below

	plain        bool            // assign knows the type; of a struct or list, perhaps not what is in it
	index        int             // of the field whose shape it is
	fallbackText json.RawMessage // fallback as JSON; nil if there is none
}

// shapeOf returns the shape of t.
func shapeOf(t reflect.Type) (*shape, error) { return makeShape(t, nil) }

// objectSchema returns the schema of something that must be an object: nil if any
// object will do.
func (s *shape) objectSchema() (json.RawMessage, error) {
	if len(s.schema) == 0 {
		return nil, nil
	}
	if s.base() != "object" {
		return nil, errors.New("want a struct or a map")
	}
	s.schema["type"] = "object" // a document is never null
	return abi.Marshal(s.schema)
}

// base returns the one type besides null that the schema allows, or "".
func (s *shape) base() string {
	switch t := s.schema["type"].(type) {
	case string:
		return t
	case []string:
		if len(t) == 2 && t[0] == "null" {
			return t[1]
		}
	}
	return ""
}

func (s *shape) nullable() bool {
	t, _ := s.schema["type"].([]string)
	return slices.Contains(t, "null")
}

func (s *shape) allowNull() {
	if t := s.base(); t != "" {
		s.schema["type"] = []string{"null", t}
	} else if t, ok := s.schema["type"].([]string); ok && !s.nullable() {
		s.schema["type"] = append([]string{"null"}, t...)
	}
}

// decimalPattern is the form of a Decimal that is written as text.
const decimalPattern = `^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`

func makeShape(t reflect.Type, above []reflect.Type) (*shape, error) {
	if t.Kind() == reflect.Pointer {
		s, err := makeShape(t.Elem(), above)
		if err != nil {
			return nil, err
		}
		s.allowNull()
		s.pointer, s.plain = true, false
		return s, nil
	}
	if t.Name() != "" && slices.Contains(above, t) {
		return nil, fmt.Errorf("type %s contains itself", t)
	}
	above = append(slices.Clip(above), t)
	typed := func(name string) *shape { return &shape{schema: map[string]any{"type": name}} }
	switch t {
	case reflect.TypeFor[Decimal]():
		return &shape{schema: map[string]any{"type": []string{"number", "string"}, "pattern": decimalPattern}, plain: true}, nil
	case reflect.TypeFor[json.Number]():
		return typed("number"), nil
	case reflect.TypeFor[time.Time]():
		s := typed("string")
		s.schema["format"] = "date-time"
		return s, nil
	case reflect.TypeFor[[]byte]():
		return &shape{schema: map[string]any{"type": []string{"null", "string"}, "contentEncoding": "base64"}}, nil
	}
	switch {
	case implements[json.Marshaler](t) || implements[json.Unmarshaler](t):
		return &shape{schema: map[string]any{}}, nil
	case implements[encoding.TextMarshaler](t) && implements[encoding.TextUnmarshaler](t):
		return typed("string"), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		s := typed("boolean")
		s.plain = true
		return s, nil
	case reflect.String:
		s := typed("string")
		s.plain = true
		return s, nil
	case reflect.Float32, reflect.Float64:
		return typed("number"), nil
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8,
		reflect.Uint, reflect.Uint64, reflect.Uintptr, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		s := typed("integer")
		s.integer, s.work = true, true
		s.plain = t.Kind() <= reflect.Int64
		if r, ok := ranges[t.Kind()]; ok {
			s.schema["minimum"] = r[0]
			if r[1] != 0 {
				s.schema["maximum"] = r[1]
			}
		}
		return s, nil
	case reflect.Interface:
		return &shape{schema: map[string]any{}}, nil
	case reflect.Map:
		if t.Key().Kind() != reflect.String && !t.Key().Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return nil, fmt.Errorf("type %s: keys are no text", t)
		}
		each, err := makeShape(t.Elem(), above)
		if err != nil {
			return nil, err
		}
		return &shape{schema: map[string]any{"type": []string{"null", "object"}, "additionalProperties": each.schema}, each: each, work: each.work}, nil
	case reflect.Slice, reflect.Array:
		each, err := makeShape(t.Elem(), above)
		if err != nil {
			return nil, err
		}
		s := &shape{schema: map[string]any{"type": []string{"null", "array"}, "items": each.schema}, each: each, work: each.work, plain: t.Kind() == reflect.Slice}
		if t.Kind() == reflect.Array {
			s.schema["type"], s.schema["minItems"], s.schema["maxItems"] = "array", t.Len(), t.Len()
			s.fixed = true
		}
		return s, nil
	case reflect.Struct:
		return structShape(t, above)
	}
	return nil, fmt.Errorf("type %s has no JSON form", t)
}

// ranges are the bounds of integers that have any beside those of int64; an upper
// bound of zero is none.
var ranges = map[reflect.Kind][2]int64{
	reflect.Int8: {math.MinInt8, math.MaxInt8}, reflect.Int16: {math.MinInt16, math.MaxInt16}, reflect.Int32: {math.MinInt32, math.MaxInt32},
	reflect.Uint8: {0, math.MaxUint8}, reflect.Uint16: {0, math.MaxUint16}, reflect.Uint32: {0, math.MaxUint32},
	reflect.Uint: {}, reflect.Uint64: {}, reflect.Uintptr: {},
}

func implements[I any](t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}

func structShape(t reflect.Type, above []reflect.Type) (*shape, error) {
	s := &shape{members: map[string]*shape{}, fixed: true, plain: true}
	properties := map[string]any{}
	required := []string{}
	members, err := jsonMembers(t, false)
	if err != nil {
		return nil, err
	}
	for f := range t.Fields() {
		s.plain = s.plain && !f.Anonymous // what an embedded struct has is found elsewhere
	}
	for _, m := range members {
		f, err := makeShape(m.Type, above)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, m.Name, err)
		}
		if err := f.readTags(m.StructField); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, m.Name, err)
		}
		// An absent struct has the defaults of its members.
		f.work = f.work || f.defaults
		f.index = m.Index[0]
		s.work = s.work || f.work
		s.members[m.name] = f
		properties[m.name] = f.schema
		if !m.optional && !f.defaults && m.Type.Kind() != reflect.Pointer {
			required = append(required, m.name)
		}
	}
	s.schema = map[string]any{"type": "object", "additionalProperties": false}
	if len(properties) > 0 {
		s.schema["properties"] = properties
	}
	if len(required) > 0 {
		s.schema["required"] = required
	}
	return s, nil
}

// A jsonMember is a struct field that encoding/json writes as a member.
type jsonMember struct {
	reflect.StructField
	name     string
	optional bool
}

// jsonMembers returns the members of struct type t, those of embedded structs
// included: the nearer to the surface hides the deeper one. optional marks all of
// them, because what embeds t may be nil.
func jsonMembers(t reflect.Type, optional bool) ([]jsonMember, error) {
	var out, deeper []jsonMember
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" {
			e := f.Type
			if e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			if e.Kind() == reflect.Struct && !implements[json.Marshaler](e) && !implements[encoding.TextMarshaler](e) {
				if e == t {
					return nil, fmt.Errorf("type %s contains itself", t)
				}
				inner, err := jsonMembers(e, optional || f.Type.Kind() == reflect.Pointer)
				if err != nil {
					return nil, err
				}
				deeper = append(deeper, inner...)
				continue
			}
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		settings := strings.Split(options, ",")
		if slices.Contains(settings, "string") {
			return nil, fmt.Errorf("%s.%s: json option string has no schema", t, f.Name)
		}
		out = append(out, jsonMember{f, name, optional || slices.Contains(settings, "omitempty") || slices.Contains(settings, "omitzero")})
	}
	surface := len(out)
	for _, m := range deeper {
		switch i := slices.IndexFunc(out, func(o jsonMember) bool { return o.name == m.name }); {
		case i >= surface:
			return nil, fmt.Errorf("%s: member %q comes from two embedded structs", t, m.name)
		case i < 0:
			out = append(out, m)
		}
	}
	return out, nil
}
