package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// An argument is one argument of a tool in plain words.
type argument struct {
	name, what, need, doc string
}

// arguments describes the members of an input schema, those that are needed
// first. A schema that says nothing of members has none.
func arguments(raw json.RawMessage) []argument {
	s, ok := readSchema(raw)
	if !ok {
		return nil
	}
	var all []argument
	for _, name := range members(s) {
		p := s.Properties[name]
		a := argument{name: name, what: words(p), need: "optional", doc: p.Description}
		switch {
		case len(p.Default) > 0:
			a.need = "default " + string(p.Default)
		case slices.Contains(s.Required, name):
			a.need = "needed"
		}
		all = append(all, a)
	}
	return all
}

// returns describes an output schema: its members, and those of the lists and
// objects in it.
func returns(raw json.RawMessage) string {
	s, ok := readSchema(raw)
	if !ok {
		return "anything"
	}
	return outline(s, 3)
}

func readSchema(raw json.RawMessage) (*jsonschema.Schema, bool) {
	s := &jsonschema.Schema{}
	if len(raw) == 0 || json.Unmarshal(raw, s) != nil {
		return nil, false
	}
	return s, true
}

// members returns the names of a schema's properties, the required ones first.
func members(s *jsonschema.Schema) []string {
	var names []string
	for name := range s.Properties {
		if s.Properties[name] != nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if r, q := slices.Contains(s.Required, a), slices.Contains(s.Required, b); r != q {
			if r {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

// outline names the members of an object down to a depth: "place, days[] of date".
func outline(s *jsonschema.Schema, depth int) string {
	if len(s.Properties) == 0 || depth == 0 {
		return words(s)
	}
	var parts []string
	for _, name := range members(s) {
		p := s.Properties[name]
		if p.Items != nil {
			name += "[]"
			p = p.Items
		}
		if len(p.Properties) > 0 && depth > 1 {
			name += " of " + outline(p, depth-1)
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
}

// words says what a schema allows, as far as a line can: "text, 1 to 80
// characters". What it cannot say it does not promise: the schema is checked
// whole when a tool is called.
func words(s *jsonschema.Schema) string {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if len(s.Enum) > 0 {
		return "one of " + values(s.Enum)
	}
	if s.Const != nil {
		return "always " + values([]any{*s.Const})
	}
	if len(types) == 0 {
		return "anything"
	}
	var kinds []string
	for _, t := range types {
		kinds = append(kinds, typeWords(t, s))
	}
	text := strings.Join(kinds, " or ")
	if s.Pattern != "" {
		text += ", like " + s.Pattern
	}
	if s.Format != "" {
		text += ", " + s.Format
	}
	return text
}

func typeWords(t string, s *jsonschema.Schema) string {
	switch t {
	case "string":
		return "text" + between(number(s.MinLength), number(s.MaxLength), " characters")
	case "integer":
		return "whole number" + between(bound(s.Minimum, s.ExclusiveMinimum), bound(s.Maximum, s.ExclusiveMaximum), "")
	case "number":
		return "number" + between(bound(s.Minimum, s.ExclusiveMinimum), bound(s.Maximum, s.ExclusiveMaximum), "")
	case "boolean":
		return "yes or no"
	case "null":
		return "nothing"
	case "array":
		of := ""
		if s.Items != nil {
			of = " of " + words(s.Items)
		}
		return "list" + of + between(number(s.MinItems), number(s.MaxItems), " entries")
	case "object":
		if len(s.Properties) > 0 {
			return "object of " + outline(s, 1)
		}
		return "object"
	}
	return t
}

// between says a range, of which either end may be missing.
func between(low, high, unit string) string {
	switch {
	case low != "" && high != "" && low == high:
		return ", " + low + unit
	case low != "" && high != "":
		return ", " + low + " to " + high + unit
	case low != "":
		return ", at least " + low + unit
	case high != "":
		return ", at most " + high + unit
	}
	return ""
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// bound is a bound of a number; an exclusive one is named as such.
func bound(with, without *float64) string {
	switch {
	case with != nil:
		return decimal(*with)
	case without != nil:
		return decimal(*without) + " (itself not)"
	}
	return ""
}

// decimal writes a number without an exponent where people would.
func decimal(f float64) string {
	if math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// values lists values of an enum as JSON, texts without quotes.
func values(all []any) string {
	var out []string
	for _, v := range all {
		if s, ok := v.(string); ok {
			out = append(out, s)
			continue
		}
		data, err := json.Marshal(v)
		if err != nil {
			data = fmt.Append(nil, v)
		}
		out = append(out, string(data))
	}
	return strings.Join(out, ", ")
}
