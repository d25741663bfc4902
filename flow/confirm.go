package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Confirmation is ADK's protocol of two ids and two turns on the outside: the
// call ends with an error and a requested confirmation, a call of
// adk_request_confirmation follows, and the user's next message answers that
// call. On the inside the session's [session.Question] is the authority: a
// message can answer one that is pending, and nothing in any event makes one.

// gate lets a call pass that needs no person, or has an approval for exactly
// this call, which handle then spends.
func (c *call) gate(args json.RawMessage, d *Decision) error {
	var judged map[string]any
	if c.spec.ConfirmIf != nil {
		if err := abi.Decode(args, &judged); err != nil {
			return &CallError{Code: abi.ArgsInvalid, Err: err}
		}
	}
	needed := d.Ruling == abi.RulingConfirm || c.spec.asks(judged)
	ap := c.approval
	if ap == nil {
		if needed {
			return c.ask(d)
		}
		return nil
	}
	if !ap.answer.Confirmed {
		return &CallError{Code: abi.ConfirmationRejected, Text: fmt.Sprintf("error tool %q call is rejected", c.fc.Name)}
	}
	q := ap.question
	if !ap.covers(c, args) {
		c.tc.confirmation = nil
		c.cfg.Logger.Warn("approval is for another form of the call", "tool", c.fc.Name, "question", q.ID)
		if needed {
			return c.ask(d)
		}
		return nil // the tool asked by itself, and will ask again
	}
	c.spends = q.ID
	return nil
}

// covers reports whether the approval is for exactly this form of the call.
func (a *approval) covers(c *call, args json.RawMessage) bool {
	q := a.question
	return q.ArgsSHA256 == abi.Digest(args) && q.Module == c.spec.Module && q.Policy == c.policy && q.Tool == c.fc.Name
}

// ask requests a confirmation, as ADK's tools do.
func (c *call) ask(d *Decision) error {
	hint := d.hints()
	if hint == "" {
		hint = fmt.Sprintf("Please approve or reject the tool call %s() by responding with a FunctionResponse with an expected ToolConfirmation payload.", c.fc.Name)
	}
	if err := c.tc.RequestConfirmation(hint, nil); err != nil {
		return &CallError{Code: abi.ConfirmationPending, Err: err}
	}
	return &CallError{Code: abi.ConfirmationPending, Text: fmt.Sprintf("error tool %q requires confirmation, please approve or reject", c.fc.Name)}
}

// questionEvent asks the client: one call of adk_request_confirmation for each question.
func (s *step) questionEvent(asked []asked) *session.Event {
	ev := s.newEvent(s.agent.Name)
	ev.Content = &genai.Content{Role: genai.RoleModel}
	for _, a := range asked {
		q := a.question
		var args map[string]any
		if v, err := abi.Unmarshal(q.Args); err == nil {
			args, _ = v.(map[string]any)
		}
		original := map[string]any{"id": q.Call, "name": q.Tool}
		if len(args) > 0 {
			original["args"] = args
		}
		ev.Content.Parts = append(ev.Content.Parts, &genai.Part{
			FunctionCall: &genai.FunctionCall{ID: q.ID, Name: confirmationCall, Args: map[string]any{
				"originalFunctionCall": original,
				"toolConfirmation":     map[string]any{"hint": a.confirmation.Hint, "confirmed": false, "payload": session.CloneValue(a.confirmation.Payload)},
			}},
			ThoughtSignature: s.signatureOf(q.Call),
		})
		ev.LongRunningToolIDs = append(ev.LongRunningToolIDs, q.ID)
	}
	return ev
}

// signatureOf returns the thought signature that came with a call.
func (s *step) signatureOf(callID string) []byte {
	for _, e := range slices.Backward(s.events()) {
		if e.Content == nil {
			continue
		}
		for _, p := range e.Content.Parts {
			if p != nil && p.FunctionCall != nil && p.FunctionCall.ID == callID {
				return slices.Clone(p.ThoughtSignature)
			}
		}
	}
	return nil
}

// An answer is what a user's message says about a question.
type answer struct {
	id       string
	decision session.Decision
	payload  any
}

// resume deals with answers in the user's newest message: it runs the calls that
// were approved, and tells of those that were rejected. It reports whether the
// run now waits for a person again.
func (s *step) resume(ctx context.Context) (waiting bool, err error) {
	ev := s.newestUserEvent()
	if ev == nil || !s.firstToResume(ev) {
		return false, nil
	}
	answers, err := s.answers(ev)
	if err != nil || len(answers) == 0 {
		return false, err
	}
	questions, err := s.store.Questions(ctx, s.key)
	if err != nil {
		return false, err
	}
	var calls []*genai.FunctionCall
	approvals := map[string]*approval{}
	for _, q := range questions {
		i := slices.IndexFunc(answers, func(a answer) bool { return a.id == q.ID })
		if i < 0 {
			continue
		}
		a := answers[i]
		answers = slices.Delete(answers, i, i+1)
		if q.Agent != s.agent.Name {
			continue // the agent that asked deals with it
		}
		decided, err := s.decide(ctx, q, a)
		if err != nil {
			return false, err
		}
		if decided == nil || approvals[q.Call] != nil {
			continue
		}
		given, err := abi.Unmarshal(q.Given)
		if err != nil {
			return false, fmt.Errorf("question %s: %w", q.ID, err)
		}
		args, _ := given.(map[string]any)
		approvals[q.Call] = &approval{question: *decided, answer: session.Confirmation{Hint: q.Hint, Confirmed: a.decision.Approve, Payload: a.payload}}
		calls = append(calls, &genai.FunctionCall{ID: q.Call, Name: q.Tool, Args: args})
	}
	for _, a := range answers {
		if err := s.audit(ctx, s.refused(a.id, abi.ConfirmationNotFound, "no such question")); err != nil {
			return false, err
		}
	}
	if len(calls) == 0 {
		return false, nil
	}
	return s.settle(s.dispatch(ctx, s.table(), calls, approvals))
}

// firstToResume reports whether the agent has not yet looked at a user's event
// in this run.
func (s *step) firstToResume(ev *session.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.agent.Name + " " + ev.ID
	first := !s.resumed[key]
	s.resumed[key] = true
	return first
}

// decide records a person's decision. It returns nil if the question can no
// longer be answered, which is audited and otherwise ignored. An approval that no
// call has spent, because its run ended before, may be given again.
func (s *step) decide(ctx context.Context, q session.Question, a answer) (*session.Question, error) {
	if q.State == session.Approved && a.repeats(q) {
		return &q, s.audit(ctx, s.decisionRecord(q))
	}
	decided, err := s.store.Decide(ctx, s.key, q.ID, a.decision)
	var code abi.Code
	switch {
	case err == nil:
		return &decided, s.audit(ctx, s.decisionRecord(decided))
	case errors.Is(err, session.ErrDecided):
		code = abi.ConfirmationDecided
	case errors.Is(err, session.ErrExpired):
		code = abi.ConfirmationExpired
	case errors.Is(err, session.ErrMismatch):
		code = abi.ConfirmationMismatch
	default:
		return nil, err
	}
	return nil, s.audit(ctx, s.refused(q.ID, code, err.Error()))
}

// repeats reports whether an answer says once more what a question was decided by.
func (a answer) repeats(q session.Question) bool {
	d := a.decision
	return d.Approve && d.By == q.By && bytes.Equal(d.Payload, q.Payload) && (q.Expires.IsZero() || !d.At.After(q.Expires))
}

func (s *step) decisionRecord(q session.Question) audit.Record {
	rec := s.record("confirmation."+string(q.State), q.ID)
	rec.Call, rec.Module, rec.ArgsSHA256 = q.Call, q.Module, q.ArgsSHA256
	return rec
}

func (s *step) refused(id string, code abi.Code, why string) audit.Record {
	rec := s.record("confirmation.refused", id)
	rec.Code, rec.Why = string(code), why
	return rec
}

func (s *step) newestUserEvent() *session.Event {
	for _, e := range slices.Backward(s.events()) {
		if e.Author == userAuthor && !isRecord(e) {
			return e
		}
	}
	return nil
}

// answers reads the answers to questions in a user's event. Only the literal
// true approves, false or nothing rejects, and anything else is no answer.
func (s *step) answers(ev *session.Event) ([]answer, error) {
	var out []answer
	for _, r := range ev.Responses() {
		if r.Name != confirmationCall {
			continue
		}
		m := r.Response
		if wrapped, ok := m["response"]; ok && len(m) == 1 {
			text, ok := wrapped.(string)
			if !ok {
				return nil, fmt.Errorf("error 'response' key found but value is not a string for confirmation function response for event id %q", r.ID)
			}
			var inner map[string]any
			if err := abi.Decode([]byte(text), &inner); err != nil {
				return nil, fmt.Errorf("error 'response' key found but failed unmarshalling confirmation function response for event id %q: %w", r.ID, err)
			}
			m = inner
		}
		confirmed, isBool := m["confirmed"].(bool)
		if _, there := m["confirmed"]; there && !isBool {
			s.cfg.Logger.Warn("answer to a question is neither true nor false", "question", r.ID)
			continue
		}
		a := answer{id: r.ID, payload: m["payload"], decision: session.Decision{Approve: confirmed, By: s.key.User, At: s.cfg.Now()}}
		if a.payload != nil {
			payload, err := abi.Marshal(a.payload)
			if err != nil {
				return nil, fmt.Errorf("payload of the answer to %s: %w", r.ID, err)
			}
			a.decision.Payload = payload
		}
		out = append(out, a)
	}
	return out, nil
}

// Import appends events from elsewhere to an existing session and makes the
// questions pending that the events ask and do not answer. It is the operator's
// door for histories, and the only way in which an event leads to a question:
// nothing a run, a client or a guest does comes here. A question that is stored
// with two different calls is not made. The import is audited.
func (r *Runner) Import(ctx context.Context, key session.Key, events []*session.Event) error {
	if r.cfg.Audit != nil {
		rec := audit.Record{Tenant: key.Tenant, Session: key.ID, Actor: key.User,
			Action: "session.import", Target: key.ID, Why: fmt.Sprintf("%d events", len(events))}
		if err := r.cfg.Audit.Append(ctx, rec); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	questions := map[string]*session.Question{}
	var order []string
	answered := map[string]bool{}
	for _, ev := range events {
		if err := r.store.Append(ctx, key, ev); err != nil {
			return err
		}
		for _, a := range ev.Responses() {
			if ev.Author == userAuthor && a.Name == confirmationCall {
				answered[a.ID] = true
			}
		}
		for _, call := range ev.Calls() {
			if call.Name != confirmationCall || call.ID == "" || ev.Author == userAuthor {
				continue
			}
			q, err := r.questionOf(key, ev, call)
			if err != nil {
				return fmt.Errorf("event %s: %w", ev.ID, err)
			}
			before, seen := questions[call.ID]
			switch {
			case !seen:
				questions[call.ID] = q
				order = append(order, call.ID)
			case before != nil && (before.Call != q.Call || before.Tool != q.Tool || before.ArgsSHA256 != q.ArgsSHA256 || before.Agent != q.Agent):
				questions[call.ID] = nil
			}
		}
	}
	for _, id := range order {
		if q := questions[id]; q != nil && !answered[id] {
			if err := r.store.Ask(ctx, *q); err != nil {
				return err
			}
		}
	}
	return nil
}

// questionOf reads the question that a stored request asks.
func (r *Runner) questionOf(key session.Key, ev *session.Event, request *genai.FunctionCall) (*session.Question, error) {
	data, err := abi.Marshal(request.Args["originalFunctionCall"])
	if err != nil {
		return nil, err
	}
	var original struct {
		ID   string         `json:"id"`
		Name string         `json:"name"`
		Args map[string]any `json:"args"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&original); err != nil {
		return nil, fmt.Errorf("originalFunctionCall: %w", err)
	}
	args, err := canonicalArgs(original.Args)
	if err != nil {
		return nil, fmt.Errorf("originalFunctionCall: %w", err)
	}
	q := &session.Question{ID: request.ID, Session: key, Run: ev.InvocationID, Agent: ev.Author, Call: original.ID, Tool: original.Name,
		Args: args, Given: args, ArgsSHA256: abi.Digest(args), Policy: r.policy, Asked: ev.Time, Expires: r.cfg.Now().Add(r.cfg.Expires)}
	if spec := r.specOf(ev.Author, q.Tool); spec != nil {
		q.Module = spec.Module
	}
	if tc, ok := request.Args["toolConfirmation"].(map[string]any); ok {
		q.Hint, _ = tc["hint"].(string)
	}
	return q, nil
}
