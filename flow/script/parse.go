package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const maxArgDepth = 64 // of lists and objects in args

// Parse reads a file of replies; the package comment has its format. name stands
// for the file in errors, which read NAME:LINE: what is wrong.
func Parse(data []byte, name string) (*Model, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s: file exceeds limit %d bytes", name, maxFileBytes)
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: file is empty", name)
	}
	if err == nil {
		if err = d.Decode(&second); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			return nil, fmt.Errorf("%s:%d: file has a second document", name, second.Line)
		}
	}
	if err != nil {
		if text, ok := strings.CutPrefix(err.Error(), "yaml: line "); ok {
			return nil, fmt.Errorf("%s:%s", name, text)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &parser{name: name, ids: map[string]bool{}}
	rules := p.file(doc.Content[0])
	for _, r := range p.idUses {
		if p.err == nil && !p.ids[r.from] {
			p.fail(r.node, "%s is the id of no call", r.from)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return &Model{file: name, rules: rules}, nil
}

// A parser turns nodes into rules. Its methods return the zero value once err is
// set; the first error stays.
type parser struct {
	name   string
	err    error
	ids    map[string]bool // of calls
	idUses []idUse

	groups []string // of the rule's expression; nil without one
}

// An idUse is a place that names a call by its id.
type idUse struct {
	node *yaml.Node
	from string
}

var idForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s:%d: %s", p.name, n.Line, fmt.Sprintf(format, args...))
	}
}

func (p *parser) file(n *yaml.Node) []rule {
	keys := p.mapping(n, "file", "format", "rules")
	if p.err != nil {
		return nil
	}
	if f := keys["format"]; f == nil {
		p.fail(n, "format is missing, want 1")
	} else if f.Value != "1" || f.ShortTag() != "!!int" {
		p.fail(f, "format is %q, want 1", f.Value)
	}
	var rules []rule
	for _, r := range p.list(n, keys, "rules") {
		if k := len(rules); k > 0 && rules[k-1].text == nil && rules[k-1].after == "" {
			p.fail(r, "rule is never used: the one before it, without when, always holds")
		}
		rules = append(rules, p.rule(r))
	}
	return rules
}

func (p *parser) rule(n *yaml.Node) rule {
	r := rule{line: n.Line}
	keys := p.mapping(n, "rule", "when", "reply")
	p.groups = nil
	if when := keys["when"]; when != nil {
		conditions := p.mapping(when, "when", "contains", "matches", "after")
		if p.err == nil && len(conditions) == 0 {
			p.fail(when, "when has no condition; leave it out for a rule that always holds")
		}
		contains, matches := conditions["contains"], conditions["matches"]
		if contains != nil && matches != nil {
			p.fail(matches, "when has contains and matches, want one")
		}
		if contains != nil {
			r.text = p.expression(contains, regexp.QuoteMeta(p.text(contains, "contains")))
		}
		if matches != nil {
			r.text = p.expression(matches, p.text(matches, "matches"))
		}
		if after := conditions["after"]; after != nil {
			r.after = p.text(after, "after")
		}
	}
	for _, s := range p.list(n, keys, "reply") {
		if r.after != "" && len(r.steps) == 1 {
			p.fail(s, "rule has a second step, want one because it has after")
		}
		r.steps = append(r.steps, p.step(s))
	}
	return r
}

func (p *parser) expression(n *yaml.Node, text string) *regexp.Regexp {
	re, err := regexp.Compile("(?i)" + text)
	if err != nil {
		p.fail(n, "matches: %v", err)
		return nil
	}
	p.groups = re.SubexpNames()
	return re
}

func (p *parser) step(n *yaml.Node) step {
	s := step{line: n.Line}
	keys := p.mapping(n, "step", "think", "say", "call", "error", "either")
	if keys["either"] == nil {
		s.variants = []variant{p.variant(n, keys)}
		return s
	}
	if len(keys) > 1 {
		p.fail(n, "step has either and other keys")
	}
	for _, v := range p.list(n, keys, "either") {
		if k := len(s.variants); k > 0 && s.variants[k-1].ifError == "" {
			p.fail(v, "variant is never used: the one before it, without if_error, always holds")
		}
		s.variants = append(s.variants, p.variant(v, p.mapping(v, "variant", "if_error", "think", "say", "call", "error")))
	}
	return s
}

func (p *parser) variant(n *yaml.Node, keys map[string]*yaml.Node) variant {
	v := variant{line: n.Line}
	if on := keys["if_error"]; on != nil {
		v.ifError = p.text(on, "if_error")
		if form := referenceForm.FindStringSubmatch(v.ifError); p.err == nil && (form == nil || form[2] != "" || form[1] == "match") {
			p.fail(on, "if_error is %q, want call-N or the id of a call", v.ifError)
		}
		p.use(on, v.ifError)
	}
	v.think = p.template(keys["think"], "think")
	v.say = p.template(keys["say"], "say")
	v.fail = p.template(keys["error"], "error")
	if keys["call"] != nil {
		for _, c := range p.list(n, keys, "call") {
			parsed := p.call(c)
			if parsed.id != "" && slices.ContainsFunc(v.calls, func(c call) bool { return c.id == parsed.id }) {
				p.fail(c, "id %q is given twice in one step", parsed.id)
			}
			v.calls = append(v.calls, parsed)
		}
	}
	says := v.think != nil || v.say != nil || v.calls != nil
	switch {
	case p.err != nil:
	case v.fail != nil && says:
		p.fail(n, "step has error and something to say")
	case v.fail == nil && !says:
		p.fail(n, "step has none of think, say, call, error")
	}
	return v
}

func (p *parser) call(n *yaml.Node) call {
	c := call{line: n.Line, args: map[string]any{}}
	keys := p.mapping(n, "call", "tool", "id", "args")
	if p.err != nil {
		return c
	}
	if keys["tool"] == nil {
		p.fail(n, "call has no tool")
		return c
	}
	c.tool = p.text(keys["tool"], "tool")
	if id := keys["id"]; id != nil {
		c.id = p.text(id, "id")
		if p.err == nil && (!idForm.MatchString(c.id) || c.id == "match") {
			p.fail(id, "id is %q, want lower case letters, digits and _, and not match", c.id)
		}
		p.ids[c.id] = true
	}
	if args := keys["args"]; args != nil {
		if value, ok := p.arg(args, 1).(map[string]any); ok {
			c.args = value
		} else {
			p.fail(args, "args is no object")
		}
	}
	return c
}

// use notes that a place names a call, unless it does so by number.
func (p *parser) use(n *yaml.Node, from string) {
	if !strings.HasPrefix(from, "call-") {
		p.idUses = append(p.idUses, idUse{n, from})
	}
}
