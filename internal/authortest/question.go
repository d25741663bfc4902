package authortest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// merged are the members of a question whose own members an overlay replaces one
// by one.
var merged = []string{"user", "call", "facts"}

// over returns what o says over what base says.
func (o overlay) over(base overlay) overlay {
	out := overlay{members: maps.Clone(base.members), raw: base.raw, chunks: base.chunks}
	if out.members == nil {
		out.members = map[string]any{}
	}
	if o.raw != nil {
		out.raw = o.raw
	}
	if o.chunks != nil {
		out.chunks = o.chunks
	}
	for key, value := range o.members {
		below, ok := out.members[key].(map[string]any)
		over, both := value.(map[string]any)
		if !slices.Contains(merged, key) || !ok || !both {
			out.members[key] = value
			continue
		}
		joined := maps.Clone(below)
		maps.Copy(joined, over)
		out.members[key] = joined
	}
	return out
}

// An invalidArgs error says that arguments are such that no guard is ever asked.
type invalidArgs struct{ error }

// question makes the question that an overlay describes. What it does not say is
// what the simplest call or conversation has.
func (o overlay) question(g flow.Guard) (abi.Question, error) {
	m := maps.Clone(o.members)
	fill := func(m map[string]any, key string, value any) {
		if _, ok := m[key]; !ok {
			m[key] = value
		}
	}
	if phases := g.Phases(); len(phases) == 1 {
		fill(m, "phase", string(phases[0]))
	}
	name, _ := m["phase"].(string)
	phase := abi.Phase(name)
	if !abi.ValidPhase(phase) {
		var names []string
		for _, p := range g.Phases() {
			names = append(names, string(p))
		}
		problem := fmt.Sprintf("phase %q", name)
		if name == "" {
			problem = "phase: missing, and the guard has several"
		}
		return abi.Question{}, fmt.Errorf("%s: want one of %s", problem, strings.Join(names, ", "))
	}
	fill(m, "now", "2026-01-01T12:00:00Z")
	fill(m, "agent", "agent")
	fill(m, "user", map[string]any{})
	if user, ok := m["user"].(map[string]any); ok {
		user = maps.Clone(user)
		fill(user, "id", "u-1")
		m["user"] = user
	}
	fill(m, "session", "s-1")
	fill(m, "run", "r-1")
	fill(m, "step", json.Number("1"))
	if err := o.document(m, phase); err != nil {
		return abi.Question{}, err
	}
	if call, ok := m["call"].(map[string]any); ok {
		call = maps.Clone(call)
		fill(call, "id", "call-1")
		fill(call, "tool", "tool")
		fill(call, "known", true)
		fill(call, "effects", string(abi.Once))
		fill(call, "args", map[string]any{})
		m["call"] = call
	}
	m["format"], m["kind"] = abi.Version, string(abi.KindGuard)
	m["guard"], m["nonce"], m["document_sha256"] = g.Name(), "", ""
	data, err := abi.Marshal(m)
	if err != nil {
		return abi.Question{}, err
	}
	var q abi.Question
	if err := abi.Decode(data, &q); err != nil {
		return abi.Question{}, err
	}
	if o.raw != nil {
		if q.Call == nil {
			return abi.Question{}, fmt.Errorf("args_text: has no place in phase %s", phase)
		}
		if q.Call.Args, err = abi.Canonical([]byte(*o.raw)); err != nil {
			return abi.Question{}, invalidArgs{err}
		}
	}
	q.DocumentSHA256 = abi.Digest(judged(&q))
	return q, nil
}

// document keeps of the documents in m the one that is judged in a phase, which "text"
// may stand for, and fills it in if it is missing.
func (o overlay) document(m map[string]any, phase abi.Phase) error {
	for _, key := range []string{"message", "request", "response", "result"} {
		if key != string(phase) {
			delete(m, key)
		}
	}
	about := phase == abi.PhaseCall || phase == abi.PhaseResult
	if !about {
		delete(m, "call")
	} else if m["call"] == nil {
		m["call"] = map[string]any{}
	}
	text, has := m["text"]
	delete(m, "text")
	if phase != abi.PhaseCall && m[string(phase)] == nil {
		m[string(phase)] = map[string]any{}
	}
	if !has {
		return nil
	}
	document, ok := m[string(phase)].(map[string]any)
	if about || !ok {
		return fmt.Errorf("text: has no place in phase %s", phase)
	}
	document = maps.Clone(document)
	parts := []any{map[string]any{"text": text}}
	switch phase {
	case abi.PhaseMessage:
		document["role"], document["parts"] = "user", parts
	case abi.PhaseRequest:
		document["contents"] = []any{map[string]any{"role": "user", "parts": parts}}
	case abi.PhaseResponse:
		document["content"] = map[string]any{"role": "model", "parts": parts}
	}
	m[string(phase)] = document
	return nil
}

// judged returns the document that a question is about.
func judged(q *abi.Question) json.RawMessage {
	switch q.Phase {
	case abi.PhaseMessage:
		return q.Message
	case abi.PhaseRequest:
		return q.Request
	case abi.PhaseResponse:
		return q.Response
	case abi.PhaseCall:
		return q.Call.Args
	}
	return q.Result
}
