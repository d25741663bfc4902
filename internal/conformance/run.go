package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/session"
)

// observe runs a vector and returns what it did, in the form of expect. What
// handlers and hooks did is in rec as well.
func observe(ctx context.Context, v *Vector, handlers Handlers, rec *recorder) (seen map[string]any, err error) {
	if v.Kind == "stream_aggregation" {
		return aggregate(v), nil
	}
	if v.Kind != "" {
		return nil, notBuilt("kind " + v.Kind)
	}
	s, err := newScenario(ctx, v, handlers, rec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var turns []any
	for _, t := range v.Turns {
		turns = append(turns, s.turn(ctx, t))
	}
	if rec.bad != nil {
		return nil, rec.bad
	}
	out := object("turns", turns)
	out["model_requests"] = list(s.rec.requests)
	out["tool_calls"] = list(s.rec.calls)
	set(out, "hook_log", s.rec.hooks)
	set(out, "toolset_list_calls", s.rec.listCalls)
	set(out, "memory_queries", s.rec.queries)
	set(out, "summarizer_inputs", s.rec.inputs)
	key := sessionKey("", "")
	sess, err := s.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	out["state"] = generic(sess.State)
	var stored []any
	for _, e := range sess.Events {
		stored = append(stored, sessionEventForm(e))
	}
	out["session_events"] = list(stored)
	if err := s.others(ctx, out); err != nil {
		return nil, err
	}
	if s.artifacts != nil {
		names, err := s.artifacts.List(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			out["artifacts"] = generic(names)
		}
	}
	return s.ids.replace(out).(map[string]any), nil
}

func list(v []any) []any {
	if v == nil {
		return []any{}
	}
	return v
}

// others adds the state of the other sessions that turns used.
func (s *scenario) others(ctx context.Context, out map[string]any) error {
	var others []any
	for _, t := range s.v.Turns {
		if t.Session == "" && t.User == "" {
			continue
		}
		key := sessionKey(t.User, t.Session)
		sess, err := s.store.Get(ctx, key)
		if err != nil {
			return err
		}
		others = append(others, map[string]any{"user": key.User, "session": key.ID, "state": generic(sess.State)})
	}
	set(out, "other_sessions", others)
	return nil
}

func (s *scenario) turn(ctx context.Context, t turnSpec) map[string]any {
	key := sessionKey(t.User, t.Session)
	if key != sessionKey("", "") {
		_, _ = s.store.Create(ctx, key, nil) // may exist from an earlier turn
	}
	in := flow.Input{Content: s.fillIDs(t.Message), StateDelta: t.StateDelta, SaveBlobs: t.RunConfig.SaveBlobs,
		Stream: t.RunConfig.StreamingMode == "sse"}
	if at := s.v.Invocation; at != nil {
		in.Direct = &flow.Placement{Branch: at.Branch, IsolationScope: at.IsolationScope}
	}
	events, errs := []any{}, []any(nil)
	n := 0
	for ev, err := range s.runner.Run(ctx, key, in) {
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		n++
		s.ids.learn(ev)
		if form := eventForm(ev); form != nil {
			events = append(events, form)
		}
		if t.StopAfter > 0 && n >= t.StopAfter {
			break
		}
	}
	out := map[string]any{"events": events}
	set(out, "errors", errs)
	return out
}

// fillIDs puts generated ids in place of $confirm[i] and $call[i] in a message.
func (s *scenario) fillIDs(c *genai.Content) *genai.Content {
	if c == nil {
		return nil
	}
	c = session.CloneContent(c)
	for _, p := range c.Parts {
		if p.FunctionResponse != nil && strings.HasPrefix(p.FunctionResponse.ID, "$") {
			p.FunctionResponse.ID = s.ids.find(p.FunctionResponse.ID)
		}
		if p.FunctionCall != nil && strings.HasPrefix(p.FunctionCall.ID, "$") {
			p.FunctionCall.ID = s.ids.find(p.FunctionCall.ID)
		}
	}
	return c
}

// aggregate feeds raw stream chunks to the aggregator of flow/gemini.
func aggregate(v *Vector) map[string]any {
	var out []any
	add := func(after any, r *session.Response) {
		if r == nil {
			return
		}
		m := responseForm(r)
		m["after_chunk"] = after
		set(m, "finish_reason", string(r.FinishReason))
		if r.Usage != nil {
			m["usage"] = generic(r.Usage)
		}
		out = append(out, m)
	}
	var a gemini.Aggregator
	for i, chunk := range v.Chunks {
		add(json.Number(itoa(i)), a.Add(chunk))
	}
	add("close", a.Close())
	return map[string]any{"responses": list(out)}
}

func itoa(i int) string { data, _ := json.Marshal(i); return string(data) }
