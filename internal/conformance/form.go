package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/session"
)

// object makes a JSON object of names and values; what is empty is left out.
func object(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		set(m, pairs[i].(string), pairs[i+1])
	}
	return m
}

func set(m map[string]any, name string, v any) {
	switch v := v.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case map[string]any:
		if len(v) == 0 && name != "args" && name != "result" {
			return
		}
		if v == nil {
			return
		}
	case []any:
		if len(v) == 0 {
			return
		}
	}
	m[name] = v
}

// generic turns a value into generic JSON.
func generic(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("cannot be encoded: %v", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return fmt.Sprintf("cannot be decoded: %v", err)
	}
	if m, ok := out.(map[string]any); ok && m == nil {
		return nil
	}
	return out
}

func schemaForm(schema any) any {
	if schema == nil {
		return nil
	}
	return lowerTypes(generic(schema))
}

// lowerTypes writes schema types in lower case.
func lowerTypes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok && k == "type" {
				v[k] = strings.ToLower(s)
			} else {
				v[k] = lowerTypes(e)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = lowerTypes(e)
		}
	}
	return v
}

func responseForm(r *session.Response) map[string]any {
	m := map[string]any{}
	if r.Content != nil {
		m["content"] = generic(r.Content)
	}
	for name, on := range map[string]bool{"partial": r.Partial, "turn_complete": r.TurnComplete, "interrupted": r.Interrupted} {
		if on {
			m[name] = true
		}
	}
	set(m, "error_code", r.ErrorCode)
	set(m, "error_message", r.ErrorMessage)
	return m
}

// eventForm is an event as a vector shows it, or nil if it carries nothing.
func eventForm(e *session.Event) map[string]any {
	m := responseForm(&e.Response)
	if len(e.LongRunningToolIDs) > 0 {
		m["long_running_tool_ids"] = generic(e.LongRunningToolIDs)
	}
	if !e.Partial {
		a := object("state_delta", generic(e.Actions.StateDelta), "artifact_delta", generic(e.Actions.ArtifactDelta),
			"transfer_to_agent", e.Actions.TransferToAgent)
		if len(e.Actions.RequestedConfirmations) > 0 {
			a["requested_tool_confirmations"] = generic(e.Actions.RequestedConfirmations)
		}
		if e.Actions.SkipSummarization {
			a["skip_summarization"] = true
		}
		if e.Actions.Escalate {
			a["escalate"] = true
		}
		if len(a) > 0 {
			m["actions"] = a
		}
	}
	if len(m) == 0 {
		return nil
	}
	m["author"], m["invocation"], m["final"] = e.Author, e.InvocationID, e.Final()
	set(m, "branch", e.Branch)
	set(m, "isolation_scope", e.IsolationScope)
	return m
}

// sessionEventForm is the shape of a stored event.
func sessionEventForm(e *session.Event) map[string]any {
	m := object("author", e.Author)
	if e.Actions.Compaction != nil {
		m["parts"] = []any{"compaction"}
		return m
	}
	if e.Content == nil {
		return m
	}
	m["role"] = e.Content.Role
	var kinds []any
	for _, p := range e.Content.Parts {
		switch {
		case p == nil:
		case p.FunctionCall != nil:
			kinds = append(kinds, "call:"+p.FunctionCall.Name)
		case p.FunctionResponse != nil:
			kinds = append(kinds, "response:"+p.FunctionResponse.Name)
		case p.Thought:
			kinds = append(kinds, "thought")
		case p.Text != "":
			kinds = append(kinds, "text")
		default:
			kinds = append(kinds, "other")
		}
	}
	set(m, "parts", kinds)
	return m
}

// ids gives generated ids the names that vectors use, by first appearance in the
// events.
type ids struct {
	names map[string]string
	count map[string]int
}

var generated = regexp.MustCompile(`(adk-|cnf-|e-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (n *ids) learn(e *session.Event) {
	for _, c := range e.Calls() {
		if c.Name == "adk_request_confirmation" {
			n.name(c.ID, "confirm")
		} else {
			n.name(c.ID, "call")
		}
	}
	n.name(e.InvocationID, "inv")
}

func (n *ids) name(id, kind string) {
	if n.names == nil {
		n.names, n.count = map[string]string{}, map[string]int{}
	}
	if _, ok := n.names[id]; ok || !generated.MatchString(id) {
		return
	}
	n.names[id] = fmt.Sprintf("$%s[%d]", kind, n.count[kind])
	n.count[kind]++
}

// replace puts the names in place of the ids, also inside texts and keys.
func (n *ids) replace(v any) any {
	switch v := v.(type) {
	case string:
		return generated.ReplaceAllStringFunc(v, func(id string) string {
			if _, ok := n.names[id]; !ok {
				n.name(id, "id")
			}
			return n.names[id]
		})
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(mapKeys(v)) {
			e := n.replace(v[k])
			if l, ok := e.([]any); ok && k == "long_running_tool_ids" {
				slices.SortFunc(l, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			}
			out[n.replace(k).(string)] = e
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = n.replace(e)
		}
		return out
	}
	return v
}

// find returns the id that has a name, such as "$confirm[0]".
func (n *ids) find(name string) string {
	for id, given := range n.names {
		if given == name {
			return id
		}
	}
	return name
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
