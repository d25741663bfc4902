package outputshape

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// parse reads one strict JSON document, or returns a code.
func parse(text string) (doc any, code string) {
	if !utf8.ValidString(text) || strings.TrimSpace(text) == "" {
		return nil, "not_json"
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	doc, err := value(d, 0)
	if errors.Is(err, errDuplicate) {
		return nil, "duplicate_key"
	}
	if err != nil {
		return nil, "not_json"
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, "not_json"
	}
	return doc, ""
}

var errDuplicate = errors.New("duplicate name")

// maxDepth is the deepest nesting of a document, and of a schema.
const maxDepth = 64

// value reads a value token by token, because the decoder lets duplicate names pass.
func value(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == maxDepth {
		return nil, errors.New("nested too deeply")
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			v, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	object := map[string]any{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := name.(string)
		if _, there := object[key]; there {
			return nil, errDuplicate
		}
		if object[key], err = value(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return object, err
}

// normal returns a schema with numbers as text.
func normal(s map[string]any) (any, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	err = d.Decode(&v)
	return v, err
}

// A schema is a JSON Schema of which every keyword is enforced.
type schema struct{ root any }

// ignored are keywords that say nothing about a document.
var ignored = []string{"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly", "$defs", "definitions"}

var types = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// check says what in a schema cannot be enforced.
func (s *schema) check(v any, at string, depth int) error {
	if _, ok := v.(bool); ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok || depth > maxDepth {
		return fmt.Errorf("schema%s: want an object or a boolean, not nested too deeply", at)
	}
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("schema%s/%s: "+format, append([]any{at, key}, args...)...))
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		inner := m[key]
		switch key {
		case "type":
			for _, t := range listOf(inner) {
				if name, ok := t.(string); !ok || !slices.Contains(types, name) {
					bad(key, "%v is no type", t)
				}
			}
		case "enum", "const":
			if _, ok := inner.([]any); !ok && key == "enum" {
				bad(key, "want a list")
			}
		case "required":
			for _, name := range listOf(inner) {
				if _, ok := name.(string); !ok {
					bad(key, "want a list of names")
				}
			}
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
			if _, ok := decimal(inner); !ok {
				bad(key, "want a number")
			}
		case "uniqueItems":
			if _, ok := inner.(bool); !ok {
				bad(key, "want true or false")
			}
		case "pattern":
			text, ok := inner.(string)
			if _, err := regexp.Compile(text); err != nil || !ok {
				bad(key, "want a regular expression: %v", err)
			}
		case "properties", "$defs", "definitions":
			members, ok := inner.(map[string]any)
			if !ok {
				bad(key, "want an object")
			}
			for _, name := range slices.Sorted(maps.Keys(members)) {
				errs = append(errs, s.check(members[name], at+"/"+key+"/"+name, depth+1))
			}
		case "additionalProperties", "items", "not":
			errs = append(errs, s.check(inner, at+"/"+key, depth+1))
		case "anyOf", "oneOf", "allOf":
			list, ok := inner.([]any)
			if !ok || len(list) == 0 {
				bad(key, "want a list of schemas")
			}
			for i, e := range list {
				errs = append(errs, s.check(e, fmt.Sprintf("%s/%s/%d", at, key, i), depth+1))
			}
		case "$ref":
			if text, _ := inner.(string); s.resolve(text) == nil {
				bad(key, "%v: want a place in this schema, such as #/$defs/item", inner)
			}
		default:
			if !slices.Contains(ignored, key) {
				bad(key, "that keyword is not known, so it could not be enforced")
			}
		}
	}
	return errors.Join(errs...)
}

func (s *schema) resolve(ref string) any {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	v := s.root
	for step := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		if rest == "" {
			break
		}
		m, _ := v.(map[string]any)
		v = m[strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")]
	}
	return v
}

func listOf(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}

func decimal(v any) (guest.Decimal, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return guest.Decimal{}, false
	}
	d, err := guest.ParseDecimal(string(n))
	return d, err == nil
}

// fits returns the keyword that a value breaks and where, or "".
func (s *schema) fits(v, doc any, at string, depth int) (where, keyword string) {
	if b, ok := v.(bool); ok {
		if b {
			return "", ""
		}
		return at, "false"
	}
	m, ok := v.(map[string]any)
	if !ok || depth > maxDepth {
		return at, "depth"
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if where, keyword := s.keyword(m, key, doc, at, depth); keyword != "" {
			return where, keyword
		}
	}
	return "", ""
}

func (s *schema) keyword(m map[string]any, key string, doc any, at string, depth int) (where, keyword string) {
	want := m[key]
	fits := func(inner, doc any, at string) bool {
		_, wrong := s.fits(inner, doc, at, depth+1)
		return wrong == ""
	}
	fail := func(failed bool) (string, string) {
		if failed {
			return at, key
		}
		return "", ""
	}
	object, isObject := doc.(map[string]any)
	list, isList := doc.([]any)
	text, isText := doc.(string)
	number, isNumber := decimal(doc)
	switch key {
	case "type":
		return fail(!slices.ContainsFunc(listOf(want), func(t any) bool { return isType(doc, t) }))
	case "const":
		return fail(!equal(want, doc))
	case "enum":
		return fail(!slices.ContainsFunc(listOf(want), func(e any) bool { return equal(e, doc) }))
	case "required":
		return fail(isObject && slices.ContainsFunc(listOf(want), func(name any) bool {
			_, there := object[name.(string)]
			return !there
		}))
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		bound, _ := decimal(want)
		c := number.Cmp(bound)
		return fail(isNumber && (key == "minimum" && c < 0 || key == "maximum" && c > 0 || key == "exclusiveMinimum" && c <= 0 || key == "exclusiveMaximum" && c >= 0))
	case "minLength", "maxLength":
		return fail(isText && outside(want, utf8.RuneCountInString(text), key == "minLength"))
	case "minItems", "maxItems":
		return fail(isList && outside(want, len(list), key == "minItems"))
	case "minProperties", "maxProperties":
		return fail(isObject && outside(want, len(object), key == "minProperties"))
	case "uniqueItems":
		if want == true && isList {
			for i := range list {
				if slices.ContainsFunc(list[:i], func(e any) bool { return equal(e, list[i]) }) {
					return at, key
				}
			}
		}
	case "pattern":
		return fail(isText && !regexp.MustCompile(want.(string)).MatchString(text)) // check has compiled it
	case "properties":
		members := want.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if inner, there := object[name]; there {
				if where, keyword := s.fits(members[name], inner, at+"/"+views.Escape(name), depth+1); keyword != "" {
					return where, keyword
				}
			}
		}
	case "additionalProperties":
		members, _ := m["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if _, known := members[name]; !known && !fits(want, object[name], at) {
				return at + "/" + views.Escape(name), key
			}
		}
	case "items":
		for i, e := range list {
			if where, keyword := s.fits(want, e, fmt.Sprintf("%s/%d", at, i), depth+1); keyword != "" {
				return where, keyword
			}
		}
	case "not":
		return fail(fits(want, doc, at))
	case "anyOf", "oneOf", "allOf":
		n := 0
		for _, inner := range listOf(want) {
			if fits(inner, doc, at) {
				n++
			}
		}
		return fail(key == "anyOf" && n == 0 || key == "oneOf" && n != 1 || key == "allOf" && n != len(listOf(want)))
	case "$ref":
		return s.fits(s.resolve(want.(string)), doc, at, depth+1)
	}
	return "", ""
}

// outside reports whether a count is below or above a bound.
func outside(bound any, n int, low bool) bool {
	b, _ := decimal(bound)
	d, _ := decimal(json.Number(fmt.Sprint(n)))
	if low {
		return d.Cmp(b) < 0
	}
	return d.Cmp(b) > 0
}

func isType(doc, name any) bool {
	switch doc.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	n, isNumber := doc.(json.Number)
	return isNumber && (name == "number" || name == "integer" && whole(n))
}

// whole reports whether a number is an integer, written with digits alone: readers
// disagree about 1e2 and 1.0.
func whole(n json.Number) bool { return !strings.ContainsAny(string(n), ".eE") }

// equal compares as JSON Schema does: numbers by value.
func equal(a, b any) bool {
	x, isNumber := decimal(a)
	y, both := decimal(b)
	if isNumber && both {
		return x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, equal)
	case map[string]any:
		m, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, m, equal)
	}
	return reflect.DeepEqual(a, b)
}
