package app

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Text is a text in the file, or the content of a file beside it.
type Text struct {
	Text string
	File string
}

// A Value is a plain text, or where a secret one is found: in a variable of the
// process or in a file.
type Value struct {
	Text string
	Env  string
	File string
}

// A Number is a number with the text that it has in JSON; empty if absent.
type Number string

// A Duration is a time span such as 2s or 120s.
type Duration time.Duration

// Bytes is a size such as 32MiB.
type Bytes int64

// Count is a number such as 500M, in thousands.
type Count int64

// A Decider is who may decide questions to people: role:NAME or user:NAME.
type Decider flow.Decider

// JSON is any value, kept as JSON with the text of its numbers.
type JSON json.RawMessage

// A DataSchema is a JSON Schema in the file, or the name of a file beside it with one.
type DataSchema struct {
	JSON JSON
	File string
}

// Lines are capabilities for which an empty list, which gives nothing, differs
// from an absent one.
type Lines []string

// IsZero reports whether the list is absent.
func (l Lines) IsZero() bool { return l == nil }

// scalar types read themselves; the error is the end of a sentence that begins
// with the place.
type scalar interface {
	fromYAML(n *yaml.Node) error
}

// MarshalYAML writes the text, or where it is.
func (t Text) MarshalYAML() (any, error) {
	if t.File != "" {
		return map[string]string{"file": t.File}, nil
	}
	return t.Text, nil
}

// IsZero reports whether nothing was written.
func (t Text) IsZero() bool { return t == Text{} }

// MarshalYAML writes the text, or where it is found.
func (v Value) MarshalYAML() (any, error) {
	switch {
	case v.Env != "":
		return map[string]string{"env": v.Env}, nil
	case v.File != "":
		return map[string]string{"file": v.File}, nil
	}
	return v.Text, nil
}

// MarshalYAML writes a number as it is read.
func (x Number) MarshalYAML() (any, error) {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: string(x)}, nil
}

// MarshalYAML writes a span as it is read.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// MarshalYAML writes a size as it is read.
func (b Bytes) MarshalYAML() (any, error) {
	for _, u := range []struct {
		suffix string
		unit   Bytes
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b%u.unit == 0 && b > 0 {
			return fmt.Sprintf("%d%s", b/u.unit, u.suffix), nil
		}
	}
	return fmt.Sprintf("%dB", b), nil
}

// MarshalYAML writes a number as it is read.
func (c Count) MarshalYAML() (any, error) {
	for _, u := range []struct {
		suffix string
		unit   Count
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if c%u.unit == 0 && c > 0 {
			return fmt.Sprintf("%d%s", c/u.unit, u.suffix), nil
		}
	}
	return int64(c), nil
}

// MarshalYAML writes a decider as it is read.
func (d Decider) MarshalYAML() (any, error) { return flow.Decider(d).String(), nil }

// MarshalYAML writes the schema, or where it is.
func (s DataSchema) MarshalYAML() (any, error) {
	if s.File != "" {
		return s.File, nil
	}
	return s.JSON.MarshalYAML()
}

// IsZero reports whether there is none.
func (s DataSchema) IsZero() bool { return s.JSON == nil && s.File == "" }

// MarshalYAML writes the value.
func (j JSON) MarshalYAML() (any, error) {
	if len(j) == 0 {
		return nil, nil
	}
	var n yaml.Node
	if err := yaml.Unmarshal(j, &n); err != nil { // JSON is YAML
		return nil, err
	}
	plain(&n)
	return n.Content[0], nil
}

// plain makes a node that was read from JSON look like YAML.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

func (t *Text) fromYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		t.Text = n.Value
		return nil
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "file" && n.Content[1].ShortTag() == "!!str" {
		t.File = n.Content[1].Value
		return nil
	}
	return fmt.Errorf("want a text or {file: NAME}, have %s", kindOf(n))
}

func (v *Value) fromYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		v.Text = n.Value
		return nil
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[1].ShortTag() == "!!str" && n.Content[1].Value != "" {
		switch n.Content[0].Value {
		case "env":
			v.Env = n.Content[1].Value
			return nil
		case "file":
			v.File = n.Content[1].Value
			return nil
		}
	}
	return fmt.Errorf("want a text, {env: VARIABLE} or {file: NAME}, have %s", kindOf(n))
}

func (x *Number) fromYAML(n *yaml.Node) error {
	if tag := n.ShortTag(); n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float") {
		if _, err := abi.Canonical([]byte(n.Value)); err == nil {
			*x = Number(n.Value)
			return nil
		}
	}
	return fmt.Errorf("want a number, written as in JSON, have %s", kindOf(n))
}

func (d *Duration) fromYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v <= 0 {
		return fmt.Errorf("want a time span such as 2s, have %s", kindOf(n))
	}
	*d = Duration(v)
	return nil
}

func (b *Bytes) fromYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		for _, u := range []struct {
			suffix string
			unit   int64
		}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}} {
			digits, ok := strings.CutSuffix(n.Value, u.suffix)
			if !ok {
				continue
			}
			v, err := strconv.ParseInt(digits, 10, 64)
			if err == nil && v > 0 && v < 1<<40/u.unit {
				*b = Bytes(v * u.unit)
				return nil
			}
		}
	}
	return fmt.Errorf("want a size such as 32MiB, have %s", kindOf(n))
}

func (c *Count) fromYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		v, err := ParseCount(n.Value)
		if err == nil {
			*c = Count(v)
			return nil
		}
	}
	return fmt.Errorf("want a number such as 500M, have %s", kindOf(n))
}

// ParseCount reads a positive number, which may end in k, M or G.
func ParseCount(s string) (int64, error) {
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		unit   int64
	}{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = digits, u.unit
			break
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v <= 0 || v > 1e15/unit {
		return 0, fmt.Errorf("number %q: want one such as 500M", s)
	}
	return v * unit, nil
}

func (s *DataSchema) fromYAML(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value != "":
		s.File = n.Value
		return nil
	case n.Kind == yaml.MappingNode, n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool":
		return s.JSON.fromYAML(n)
	}
	return fmt.Errorf("want a JSON Schema or the name of a file with one, have %s", kindOf(n))
}

func (d *Decider) fromYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return fmt.Errorf("want role:NAME or user:NAME, have %s", kindOf(n))
	}
	v, err := flow.ParseDecider(n.Value)
	*d = Decider(v)
	return err
}

func (j *JSON) fromYAML(n *yaml.Node) error {
	v, err := toJSON(n, 1)
	if err != nil {
		return err
	}
	doc, err := abi.Marshal(v)
	*j = JSON(doc)
	return err
}

// FromYAML turns a node of YAML into generic JSON: map[string]any, []any, string,
// bool, nil and [json.Number]. Numbers keep their text. Keys that are there twice
// or are no text, numbers that JSON writes otherwise, aliases and nesting beyond
// [abi.MaxDepth] are errors.
func FromYAML(n *yaml.Node) (any, error) { return toJSON(n, 1) }

// toJSON turns a node into generic JSON. Numbers keep their text, and must be
// written as JSON writes them.
func toJSON(n *yaml.Node, depth int) (any, error) {
	if depth > abi.MaxDepth {
		return nil, fmt.Errorf("nesting exceeds %d", abi.MaxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
				return nil, fmt.Errorf("line %d: want a text as key, have %s", k.Line, kindOf(k))
			}
			if _, ok := m[k.Value]; ok {
				return nil, fmt.Errorf("line %d: key %q is there twice", k.Line, k.Value)
			}
			v, err := toJSON(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			m[k.Value] = v
		}
		return m, nil
	case yaml.SequenceNode:
		l := make([]any, len(n.Content))
		for i, e := range n.Content {
			v, err := toJSON(e, depth+1)
			if err != nil {
				return nil, err
			}
			l[i] = v
		}
		return l, nil
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return nil, nil
		case "!!bool":
			return strings.EqualFold(n.Value, "true"), nil
		case "!!int", "!!float":
			if _, err := abi.Canonical([]byte(n.Value)); err != nil {
				return nil, fmt.Errorf("line %d: number %q is not written as in JSON", n.Line, n.Value)
			}
			return json.Number(n.Value), nil
		}
		return n.Value, nil
	}
	return nil, fmt.Errorf("line %d: %s is not allowed", n.Line, kindOf(n))
}

// kindOf names what a node is, for errors.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return fmt.Sprintf("text %q", n.Value)
	case "!!int", "!!float":
		return "number " + n.Value
	case "!!bool":
		return n.Value
	}
	return fmt.Sprintf("%q", n.Value)
}
