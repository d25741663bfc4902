package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genai"
)

// A turn is what a request's contents say of the newest message of the user and
// of what came after it.
type turn struct {
	text   string  // the user's
	step   int     // model contents since
	calls  []*past // made since, in order
	newest []*past // those whose results came last
	made   int     // highest number in the id of a call of the request
}

// A past is a call that was made in a turn.
type past struct {
	label  string // call-N
	wire   string // its id; may be empty if another model made it
	id     string // the script's own; may be empty
	tool   string
	result map[string]any // generic JSON, numbers as json.Number; nil is none yet
}

var wireID = regexp.MustCompile(`^call-([0-9]{1,9})(?:-(.*))?$`)

func newTurn(contents []*genai.Content) *turn {
	t := &turn{}
	start := 0
	for i, c := range contents {
		if c == nil {
			continue
		}
		for _, p := range c.Parts {
			if p != nil && p.FunctionCall != nil {
				if m := wireID.FindStringSubmatch(p.FunctionCall.ID); m != nil {
					n, _ := strconv.Atoi(m[1])
					t.made = max(t.made, n)
				}
			}
		}
		if text, ok := fromUser(c); ok {
			start, t.text = i+1, text
		}
	}
	for _, c := range contents[start:] {
		if c != nil && len(c.Parts) > 0 {
			t.add(c)
		}
	}
	return t
}

func (t *turn) add(c *genai.Content) {
	if c.Role == genai.RoleModel {
		t.step++
		t.newest = nil
	} else if slices.ContainsFunc(c.Parts, func(p *genai.Part) bool { return p != nil && p.FunctionResponse != nil }) {
		t.newest = nil
	} // else it is flow's: what came before is still the newest
	for _, p := range c.Parts {
		switch {
		case p == nil:
		case p.FunctionCall != nil:
			made := &past{
				label: fmt.Sprintf("call-%d", len(t.calls)+1),
				wire:  p.FunctionCall.ID,
				tool:  p.FunctionCall.Name,
			}
			if m := wireID.FindStringSubmatch(made.wire); m != nil {
				made.id = m[2]
			}
			t.calls = append(t.calls, made)
		case p.FunctionResponse != nil:
			if answered := t.answered(p.FunctionResponse); answered != nil {
				answered.result = generic(p.FunctionResponse.Response)
				t.newest = append(t.newest, answered)
			}
		}
	}
}

// answered returns the call that r answers: the one with its id or, if it has
// none, the first call of that tool without a result.
func (t *turn) answered(r *genai.FunctionResponse) *past {
	for _, c := range t.calls {
		if c.wire == r.ID && (r.ID != "" || c.tool == r.Name && c.result == nil) {
			return c
		}
	}
	return nil
}

func (t *turn) newestIs(after string) bool {
	for _, c := range t.newest {
		if after == c.tool || after == c.label || after == c.id {
			return true
		}
	}
	return false
}

// result returns the call that name, a label or an id, stands for. It is an
// error if that call has no result.
func (t *turn) result(name string) (*past, error) {
	for i := len(t.calls) - 1; i >= 0; i-- {
		c := t.calls[i]
		if name != c.label && name != c.id {
			continue
		}
		if c.result == nil {
			return nil, fmt.Errorf("%s (%s) has no result", name, c.tool)
		}
		return c, nil
	}
	return nil, fmt.Errorf("%s was not called in this turn of %d calls", name, len(t.calls))
}

func (c *past) failed() bool { return c.result["error"] != nil }

// fromUser reports whether c is a message of the user, and its text, which a
// message of other parts has not. Results are none, nor what flow adds under the
// user's role.
func fromUser(c *genai.Content) (string, bool) {
	if c.Role != genai.RoleUser && c.Role != "" {
		return "", false
	}
	var texts []string
	other := false
	for _, p := range c.Parts {
		switch {
		case p == nil || p.FunctionResponse != nil:
		case p.Text != "" && !p.Thought:
			texts = append(texts, p.Text)
		default:
			other = true
		}
	}
	if len(texts) == 0 {
		return "", other
	}
	switch first := texts[0]; {
	case first == "For context:", // what another agent said
		strings.HasPrefix(first, "Continue processing previous requests as instructed."),
		strings.HasPrefix(first, "Artifact ") && strings.HasSuffix(first, " is:"):
		return "", false
	}
	return strings.Join(texts, "\n"), true
}

// generic returns response as JSON would bring it back. What cannot be encoded
// is an empty result: references into it will say so.
func generic(response map[string]any) map[string]any {
	out := map[string]any{}
	data, err := json.Marshal(response)
	if err != nil {
		return out
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&out); err != nil || out == nil {
		return map[string]any{}
	}
	return out
}
