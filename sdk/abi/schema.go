package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// validSchema refuses what is no JSON Schema as far as that can be told without a
// validator, which is too large for a guest: the host makes one of every schema
// before a call can wait for it.
func validSchema(s json.RawMessage) error {
	if len(s) == 0 {
		return nil
	}
	if s := bytes.TrimSpace(s); len(s) == 0 || s[0] != '{' {
		return errors.New("schema: want an object")
	}
	v, err := Unmarshal(s)
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	if ref, ok := outside(v); ok {
		return fmt.Errorf("schema: reference %q leaves the document: want #…", clip(ref, 80))
	}
	if err := validTypes(v, ""); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	return nil
}

// outside finds a reference of a schema to something that is not in the schema:
// nothing is ever fetched (threats MU-18).
func outside(v any) (string, bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch name {
			case "const", "enum", "default", "examples": // data
				continue
			case "$ref", "$dynamicRef", "$recursiveRef":
				if ref, ok := v[name].(string); ok && !strings.HasPrefix(ref, "#") {
					return ref, true
				}
			}
			if ref, ok := outside(v[name]); ok {
				return ref, true
			}
		}
	case []any:
		for _, e := range v {
			if ref, ok := outside(e); ok {
				return ref, true
			}
		}
	}
	return "", false
}

// The keywords of JSON Schema that hold schemas: one or a list of them, or an object
// of them. What other keywords hold is data.
var (
	holdsSchemas = []string{"additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if",
		"items", "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
	namesSchemas = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
	schemaTypes  = []string{"array", "boolean", "integer", "null", "number", "object", "string"}
)

// validTypes refuses a type that no value has, in a schema or in one inside it.
// Validators differ in what they make of one; ours would find that nothing fits. at
// is where v is, as a JSON pointer without the indices of lists.
func validTypes(v any, at string) error {
	s, ok := v.(map[string]any)
	if !ok {
		return nil // true, false, or the list of names that "dependencies" may have
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		inside, at := s[key], at+"/"+key
		switch {
		case key == "type":
			if err := validType(inside); err != nil {
				return fmt.Errorf("%q: %w", clip(at, 200), err)
			}
		case slices.Contains(holdsSchemas, key):
			list, ok := inside.([]any)
			if !ok {
				list = []any{inside}
			}
			for _, e := range list {
				if err := validTypes(e, at); err != nil {
					return err
				}
			}
		case slices.Contains(namesSchemas, key):
			named, _ := inside.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(named)) {
				if err := validTypes(named[name], at+"/"+name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// validType refuses what "type" may not hold: it is a type, or a list of some.
func validType(v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	if len(list) == 0 {
		return errors.New("an empty list: nothing would fit")
	}
	for i, t := range list {
		if name, ok := t.(string); !ok || !slices.Contains(schemaTypes, name) {
			return fmt.Errorf("%q: want one of %s", clip(fmt.Sprint(t), 80), strings.Join(schemaTypes, ", "))
		}
		if slices.Contains(list[:i], t) {
			return fmt.Errorf("%q is there twice", t)
		}
	}
	return nil
}
