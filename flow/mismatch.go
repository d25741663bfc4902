package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A MismatchError says for people where a document does not fit its schema: which
// value is of another type than the schema wants, which one it needs is missing, or which one
// it does not know.
type MismatchError struct {
	At   string // JSON Pointer of the value; empty: the document itself
	Want string // such as "text"; empty: any value
	Have string // such as "number 1000", at most 60 characters of it; empty: it is missing

	Unknown bool     // the schema has no member of this name, and allows no other than it has
	Name    string   // of an unknown one, at most 60 characters of it
	Known   []string // the names that there are instead, in order
}

// Error says it on one line, such as "/days: missing".
func (e *MismatchError) Error() string {
	at := e.At
	if at != "" {
		at += ": "
	}
	if e.Unknown {
		return at + "not known"
	}
	if e.Have == "" {
		return at + "missing"
	}
	return fmt.Sprintf("%swant %s, have %s", at, e.Want, e.Have)
}

// FindMismatch looks for the first value of a document that its schema does not know, that is
// missing or of another type than the schema wants, through properties and items. It returns nil if it finds
// none: the document may still not fit, which [Validate] decides.
func FindMismatch(schema *jsonschema.Resolved, document json.RawMessage) *MismatchError {
	v, err := abi.Unmarshal(document)
	if err != nil {
		return nil
	}
	return mismatch(schema.Schema(), abi.Numbers(v), "")
}

func mismatch(s *jsonschema.Schema, v any, at string) *MismatchError {
	if s == nil {
		return nil
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isType(v, t) }) {
		var want []string
		for _, t := range types {
			want = append(want, typeText(t))
		}
		return &MismatchError{At: at, Want: strings.Join(want, " or "), Have: valueText(v)}
	}
	switch v := v.(type) {
	case map[string]any:
		if found := unknown(s, v, at); found != nil {
			return found
		}
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				return &MismatchError{At: at + "/" + pointer(name)}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if found := mismatch(s.Properties[name], v[name], at+"/"+pointer(name)); found != nil {
				return found
			}
		}
	case []any:
		for i, e := range v {
			if found := mismatch(s.Items, e, at+"/"+strconv.Itoa(i)); found != nil {
				return found
			}
		}
	}
	return nil
}

// unknown returns the first member, by name, that a closed schema does not have; nil if there is
// none.
func unknown(s *jsonschema.Schema, v map[string]any, at string) *MismatchError {
	if s.AdditionalProperties == nil || s.AdditionalProperties.Not == nil || len(s.PatternProperties) > 0 {
		return nil
	}
	if data, err := json.Marshal(s.AdditionalProperties); err != nil || string(data) != "false" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if s.Properties[name] == nil {
			have := valueText(v[name])
			name = cut(name)
			return &MismatchError{At: at + "/" + pointer(name), Have: have, Unknown: true, Name: name, Known: slices.Sorted(maps.Keys(s.Properties))}
		}
	}
	return nil
}

// cut returns the first 60 characters of a text.
func cut(text string) string {
	if r := []rune(text); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return text
}

// pointer escapes a name as RFC 6901 does.
func pointer(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// isType reports whether a value is of a schema's type. A whole number is one however
// it is written.
func isType(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case map[string]any:
		return t == "object"
	case []any:
		return t == "array"
	case float64:
		return t == "number" || t == "integer" && v == math.Trunc(v)
	}
	return t == "number" || t == "integer" // int64 or uint64
}

func typeText(t string) string {
	switch t {
	case "string":
		return "text"
	case "integer":
		return "a whole number"
	case "number":
		return "a number"
	case "boolean":
		return "true or false"
	case "object":
		return "an object"
	case "array":
		return "a list"
	}
	return "nothing" // null
}

func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return fmt.Sprintf("text %q", cut(v))
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("number %s", jsonText(v))
}
