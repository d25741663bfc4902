package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/session"
)

// A template is a text with references: literal i stands before reference i, and
// the last literal after all of them.
type template struct {
	literals   []string
	references []reference
}

type reference struct {
	text  string // as written, without braces
	from  string // "match", or the label or id of a call
	path  []string
	group int    // of a match
	verb  string // "", "number", or a format
}

// A scope is what references can refer to.
type scope struct {
	turn  *turn
	match []int // start and end of each group in the turn's text; -1 is none
}

var (
	referenceForm = regexp.MustCompile(`^(match|call-[1-9][0-9]{0,8}|[a-z][a-z0-9_]*)((?:\.[^.|{}]+)*)$`)
	verbForm      = regexp.MustCompile(`^(number|%\.[0-9]f)$`)
)

func parseTemplate(text string) (*template, error) {
	t := &template{}
	for {
		literal, rest, found := strings.Cut(text, "{{")
		t.literals = append(t.literals, literal)
		if !found {
			return t, nil
		}
		inner, rest, found := strings.Cut(rest, "}}")
		if !found {
			return nil, fmt.Errorf("reference {{%s has no }}", inner)
		}
		path, verb, hasVerb := strings.Cut(strings.TrimSpace(inner), "|")
		form := referenceForm.FindStringSubmatch(path)
		if form == nil {
			return nil, fmt.Errorf("reference {{%s}} is none of match.GROUP, call-N.PATH, ID.PATH", inner)
		}
		if hasVerb && !verbForm.MatchString(verb) {
			return nil, fmt.Errorf("reference {{%s}} has %q, want number or %%.0f to %%.9f", inner, verb)
		}
		r := reference{text: inner, from: form[1], verb: verb}
		if form[2] != "" {
			r.path = strings.Split(form[2][1:], ".")
		}
		t.references = append(t.references, r)
		text = rest
	}
}

// sole reports whether the template is one reference and nothing else.
func (t *template) sole() bool {
	return len(t.references) == 1 && t.literals[0] == "" && t.literals[1] == ""
}

func (t *template) text(s scope) (string, error) {
	var b strings.Builder
	for i, r := range t.references {
		b.WriteString(t.literals[i])
		value, err := r.value(s)
		if err != nil {
			return "", err
		}
		if text, ok := value.(string); ok {
			b.WriteString(text)
			continue
		}
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(value); err != nil {
			return "", fmt.Errorf("{{%s}}: %w", r.text, err)
		}
		b.Write(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
	}
	b.WriteString(t.literals[len(t.references)])
	return b.String(), nil
}

// expand returns a copy of an argument with its templates filled in.
func expand(v any, s scope) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) { // the first error is always the same
			if out[k], err = expand(v[k], s); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			if out[i], err = expand(v[i], s); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *template:
		if v.sole() {
			return v.references[0].value(s)
		}
		return v.text(s)
	}
	return v, nil
}

// value returns what r refers to: generic JSON that the caller owns.
func (r reference) value(s scope) (any, error) {
	value, err := r.find(s)
	if err != nil {
		return nil, fmt.Errorf("{{%s}}: %w", r.text, err)
	}
	if r.verb == "" {
		return session.CloneValue(value), nil
	}
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	}
	if !isNumber(text) {
		return nil, fmt.Errorf("{{%s}}: %.100q is no number", r.text, fmt.Sprint(value))
	}
	if r.verb == "number" {
		return json.Number(text), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("{{%s}}: %w", r.text, err)
	}
	return fmt.Sprintf(r.verb, f), nil
}

func (r reference) find(s scope) (any, error) {
	if r.from == "match" {
		from, to := s.match[2*r.group], s.match[2*r.group+1]
		if from < 0 {
			return nil, errors.New("the group matched nothing")
		}
		return s.turn.text[from:to], nil
	}
	c, err := s.turn.result(r.from)
	if err != nil {
		return nil, err
	}
	if c.failed() && (len(r.path) == 0 || r.path[0] != "error") {
		return nil, fmt.Errorf("%s (%s) failed: %.200q", r.from, c.tool, fmt.Sprint(c.result["error"]))
	}
	var at any = c.result
	for i, name := range r.path {
		here := strings.Join(append([]string{r.from}, r.path[:i]...), ".")
		switch v := at.(type) {
		case map[string]any:
			inner, ok := v[name]
			if !ok {
				return nil, fmt.Errorf("%s (%s) has no %q, only %.200q", here, c.tool, name, slices.Sorted(maps.Keys(v)))
			}
			at = inner
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(v) {
				return nil, fmt.Errorf("%s (%s) has no %q, only 0 to %d", here, c.tool, name, len(v)-1)
			}
			at = v[n]
		default:
			return nil, fmt.Errorf("%s (%s) is no object or list, so has no %q", here, c.tool, name)
		}
	}
	return at, nil
}

// group returns the index of a group that is named or numbered so, or -1.
func group(name string, names []string) int {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 0 || n >= len(names) {
			return -1
		}
		return n
	}
	return slices.Index(names, name)
}

// isNumber reports whether s is the text of a JSON number.
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && s == strings.TrimSpace(s) && json.Valid([]byte(s))
}
