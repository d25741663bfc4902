package script

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mapping returns the values of an object by key. what names it in errors.
func (p *parser) mapping(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	if p.err != nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s is %s, want an object with %s", what, kind(n), strings.Join(known, ", "))
		return nil
	}
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value) {
			p.fail(key, "%s has unknown key %q, want %s", what, key.Value, strings.Join(known, ", "))
			return nil
		}
		if values[key.Value] != nil {
			p.fail(key, "%s has %s twice", what, key.Value)
			return nil
		}
		values[key.Value] = n.Content[i+1]
	}
	return values
}

// list returns the elements of the list under key, of which there must be one.
func (p *parser) list(parent *yaml.Node, keys map[string]*yaml.Node, key string) []*yaml.Node {
	n := keys[key]
	switch {
	case p.err != nil:
	case n == nil:
		p.fail(parent, "%s is missing", key)
	case n.Kind != yaml.SequenceNode:
		p.fail(n, "%s is %s, want a list", key, kind(n))
	case len(n.Content) == 0:
		p.fail(n, "%s is empty", key)
	default:
		return n.Content
	}
	return nil
}

// text returns a text that is not empty.
func (p *parser) text(n *yaml.Node, what string) string {
	switch {
	case p.err != nil:
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		p.fail(n, "%s is %s, want a text", what, kind(n))
	case n.Value == "":
		p.fail(n, "%s is empty", what)
	default:
		return n.Value
	}
	return ""
}

func (p *parser) template(n *yaml.Node, what string) *template {
	if n == nil {
		return nil
	}
	t := p.references(n, p.text(n, what))
	if t != nil {
		for _, r := range t.references {
			if r.verb == "number" {
				p.fail(n, "reference {{%s}} makes a number, which only a whole argument can be", r.text)
			}
		}
	}
	return t
}

// references parses text and checks what can be known of its references now.
func (p *parser) references(n *yaml.Node, text string) *template {
	if p.err != nil {
		return nil
	}
	t, err := parseTemplate(text)
	if err != nil {
		p.fail(n, "%v", err)
		return nil
	}
	for i := range t.references {
		r := &t.references[i]
		if r.from != "match" {
			p.use(n, r.from)
			continue
		}
		r.group = -1
		if len(r.path) == 1 {
			r.group = group(r.path[0], p.groups)
		}
		if r.group < 0 {
			p.fail(n, "reference {{%s}} is to no group that the rule's when has", r.text)
		}
	}
	return t
}

// arg returns a value in args: generic JSON, but for strings, which are templates.
func (p *parser) arg(n *yaml.Node, depth int) any {
	if p.err != nil {
		return nil
	}
	if depth > maxArgDepth {
		p.fail(n, "args are nested deeper than limit %d", maxArgDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				p.fail(key, "args have %s as a key, want a text", kind(key))
				return nil
			}
			if _, ok := out[key.Value]; ok {
				p.fail(key, "args have %q twice", key.Value)
				return nil
			}
			out[key.Value] = p.arg(n.Content[i+1], depth+1)
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, e := range n.Content {
			out[i] = p.arg(e, depth+1)
		}
		return out
	case yaml.ScalarNode:
		return p.scalar(n)
	}
	p.fail(n, "args have %s", kind(n))
	return nil
}

func (p *parser) scalar(n *yaml.Node) any {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if !isNumber(n.Value) {
			p.fail(n, "number %q is not written as in JSON", n.Value)
		}
		return json.Number(n.Value)
	case "!!str", "!!timestamp": // a date without quotes
		t := p.references(n, n.Value)
		if t != nil && !t.sole() {
			for _, r := range t.references {
				if r.verb == "number" {
					p.fail(n, "reference {{%s}} makes a number, but is not the whole argument", r.text)
				}
			}
		}
		return t
	default:
		p.fail(n, "args have a value with tag %s", tag)
		return nil
	}
}

// kind names what n is, for errors.
func kind(n *yaml.Node) string {
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
		return "a text"
	case "!!int", "!!float":
		return "a number (quote it)"
	case "!!bool":
		return "true or false (quote it)"
	}
	return "a value with tag " + n.ShortTag()
}
