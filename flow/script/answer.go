package script

import (
	"errors"
	"fmt"

	"google.golang.org/genai"
)

// answer returns the content that the rules give for a request with contents.
func (m *Model) answer(contents []*genai.Content) (*genai.Content, error) {
	t := newTurn(contents)
	r, match, err := m.choose(t)
	if err != nil {
		return nil, err
	}
	n := t.step
	if r.after != "" {
		n = 0
	}
	if n >= len(r.steps) {
		return nil, fmt.Errorf("%s:%d: rule ends with step %d, request is for step %d", m.file, r.line, len(r.steps), n+1)
	}
	v, err := m.variant(t, r.steps[n])
	if err != nil {
		return nil, err
	}
	return m.say(v, scope{turn: t, match: match})
}

// choose returns the first rule that holds, and where its groups are in the text.
func (m *Model) choose(t *turn) (*rule, []int, error) {
	for i := range m.rules {
		r := &m.rules[i]
		if r.after != "" && !t.newestIs(r.after) {
			continue
		}
		if r.text == nil {
			return r, nil, nil
		}
		if match := r.text.FindStringSubmatchIndex(t.text); match != nil {
			return r, match, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: no rule for %.200q", m.file, t.text)
}

func (m *Model) variant(t *turn, s step) (*variant, error) {
	for i := range s.variants {
		v := &s.variants[i]
		if v.ifError == "" {
			return v, nil
		}
		c, err := t.result(v.ifError)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: if_error: %w", m.file, v.line, err)
		}
		if c.failed() {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%s:%d: step has no variant that holds", m.file, s.line)
}

func (m *Model) say(v *variant, s scope) (*genai.Content, error) {
	if v.fail != nil {
		text, err := v.fail.text(s)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", m.file, v.line, err)
		}
		return nil, errors.New(text)
	}
	content := &genai.Content{Role: genai.RoleModel}
	for _, t := range []*template{v.think, v.say} {
		if t == nil {
			continue
		}
		text, err := t.text(s)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", m.file, v.line, err)
		}
		content.Parts = append(content.Parts, &genai.Part{Text: text, Thought: t == v.think})
	}
	for i, c := range v.calls {
		args, err := expand(c.args, s)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", m.file, c.line, err)
		}
		id := fmt.Sprintf("call-%d", s.turn.made+i+1)
		if c.id != "" {
			id += "-" + c.id
		}
		content.Parts = append(content.Parts, &genai.Part{
			FunctionCall: &genai.FunctionCall{ID: id, Name: c.tool, Args: args.(map[string]any)},
		})
	}
	return content, nil
}
