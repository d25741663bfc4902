package authortest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A source is a file of tests while it is read. It collects every mistake.
type source struct {
	name string
	errs []error
}

// fail notes a mistake at a node.
func (s *source) fail(n *yaml.Node, hint, format string, args ...any) {
	s.errs = append(s.errs, &app.Error{Code: abi.ConfigInvalid, Hint: hint, Text: fmt.Sprintf("%s:%d: %s", s.name, n.Line, fmt.Sprintf(format, args...))})
}

// read returns the one document of a file, in JSON if its name ends so, else in
// YAML.
func (s *source) read(data []byte) *yaml.Node {
	top := &yaml.Node{Line: 1}
	if strings.HasSuffix(s.name, ".json") {
		if _, err := abi.Canonical(data); err != nil {
			s.fail(top, "", "%v", err)
			return nil
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		n, err := fromTokens(d, data)
		if err != nil {
			s.fail(top, "", "%v", err)
			return nil
		}
		return n
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		s.fail(top, "", "empty")
		return nil
	} else if err != nil {
		s.fail(top, "", "%v", err)
		return nil
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		s.fail(top, "", "there is a second document")
		return nil
	}
	return doc.Content[0]
}

// fromTokens reads a JSON value as nodes that know their lines.
func fromTokens(d *json.Decoder, data []byte) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: 1 + bytes.Count(data[:d.InputOffset()], []byte("\n"))}
	switch v := t.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for d.More() {
			c, err := fromTokens(d, data)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		_, err = d.Token()
		return n, err
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// object returns the members of an object that may have the known keys.
func (s *source) object(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		s.fail(n, "", "%s: want an object", what)
		return nil
	}
	members := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case members[k.Value] != nil:
			s.fail(k, "", "%s: key %q is there twice", what, k.Value)
		case !slices.Contains(known, k.Value):
			hint := "known keys: " + strings.Join(known, ", ")
			if near := app.Nearest(k.Value, known); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			s.fail(k, hint, "%s: %s: unknown key", what, k.Value)
		}
		members[k.Value] = n.Content[i+1]
	}
	return members
}

// value returns a node as generic JSON.
func (s *source) value(n *yaml.Node, what string) any {
	if n == nil {
		return nil
	}
	v, err := app.FromYAML(n)
	if err != nil {
		s.fail(n, "", "%s: %v", what, err)
	}
	return v
}

// json returns a node as a canonical document; nil for no node.
func (s *source) json(n *yaml.Node, what string) json.RawMessage {
	if n == nil {
		return nil
	}
	doc, err := abi.Marshal(s.value(n, what))
	if err != nil {
		s.fail(n, "", "%s: %v", what, err)
	}
	return doc
}

// text returns a node that is a text; "" for no node.
func (s *source) text(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		s.fail(n, "", "%s: want text", what)
	}
	return n.Value
}

// texts returns a node that is a list of texts; nil for no node, and not nil for an
// empty list.
func (s *source) texts(n *yaml.Node, what string) []string {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		s.fail(n, "", "%s: want a list", what)
		return nil
	}
	list := []string{}
	for _, e := range n.Content {
		list = append(list, s.text(e, what))
	}
	return list
}

// whole returns a node that is a whole number of at least least; 0 for no node.
func (s *source) whole(n *yaml.Node, what string, least int64) int64 {
	if n == nil {
		return 0
	}
	v, ok := s.value(n, what).(json.Number)
	i, err := v.Int64()
	if !ok || err != nil || i < least {
		s.fail(n, "", "%s: want a whole number from %d", what, least)
	}
	return i
}

// yes returns a node that is true or false; nil for no node.
func (s *source) yes(n *yaml.Node, what string) *bool {
	if n == nil {
		return nil
	}
	b, ok := s.value(n, what).(bool)
	if !ok {
		s.fail(n, "", "%s: want true or false", what)
	}
	return &b
}

// pattern returns a node that is a regular expression; nil for no node.
func (s *source) pattern(n *yaml.Node, what string) *regexp.Regexp {
	if n == nil {
		return nil
	}
	re, err := regexp.Compile(s.text(n, what))
	if err != nil {
		s.fail(n, "", "%s: %v", what, err)
	}
	return re
}

// err joins the mistakes.
func (s *source) err() error { return errors.Join(s.errs...) }
