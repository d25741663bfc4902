package flow

import (
	"bytes"
	"cmp"
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
	needed, err := c.needsPerson(args)
	if err != nil {
		return &CallError{Code: abi.ArgsInvalid, Err: err}
	}
	needed = needed || d.Ruling == abi.RulingConfirm
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
	if differs := ap.differs(c, args); differs != "" {
		c.tc.confirmation = nil
		c.cfg.Logger.Warn("approval is for another form of the call", "tool", c.fc.Name, "question", q.ID, "differs", differs)
		if err := c.audit(c.past, refusalRecord(q, q.By, abi.ConfirmationMismatch, "not what was approved: "+differs)); err != nil {
			return &CallError{Code: abi.StorageUnavailable, Err: err}
		}
		return c.ask(d) // even if nobody would ask now: what was decided was another call
	}
	c.spends = q.ID
	return nil
}

// needsPerson reports whether the tool itself wants a person asked about this call.
func (c *call) needsPerson(args json.RawMessage) (bool, error) {
	if c.spec.ConfirmIf == nil {
		return c.spec.Confirm, nil
	}
	var judged map[string]any
	if err := abi.Decode(args, &judged); err != nil {
		return false, err
	}
	return c.spec.asks(judged), nil
}

// differs says what of this form of the call the approval is not for; nothing if
// it is for exactly this one.
func (a *approval) differs(c *call, args json.RawMessage) string {
	q := a.question
	switch {
	case q.Tool != c.fc.Name:
		return "tool"
	case q.ArgsSHA256 != abi.Digest(args):
		return "arguments"
	case q.Module != c.spec.Module:
		return "module"
	case q.Policy != c.policy:
		return "guards"
	case !c.MayDecide(q, q.By, q.ByRoles):
		return "who may decide"
	}
	return ""
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

// mayComeAgain reports whether the error that kept an approved call from being made
// says nothing about the call: it could not be recorded, or its run came to an end.
// Its approval is as good as before.
func mayComeAgain(err error) bool {
	denied, ok := errors.AsType[*denial](err)
	if ok {
		err = denied.err
	}
	return isCode(err, abi.StorageUnavailable) || isCode(err, abi.Cancelled) || isCode(err, abi.BudgetExhausted)
}

// spendUnmade spends the approval of a call that has come to its end without having
// been made, because a guard denied it or a hook answered: what the model is told of
// it is its end, and nothing may make it later. If that cannot be recorded, or if
// another run was faster, the error is the call's.
func (c *call) spendUnmade(response map[string]any, cause error) *CallError {
	ap := c.approval
	if ap == nil || !ap.answer.Confirmed || ap.ended != nil || c.begun || c.asked != nil || c.again || mayComeAgain(cause) || isCode(cause, abi.ConfirmationDecided) {
		return nil
	}
	ctx := c.past
	end := session.CallEnd{State: session.CallDenied, Code: string(codeOf(cause)), Ended: c.cfg.Now()}
	if cause == nil { // a hook has answered
		data, err := abi.Marshal(response)
		if err != nil {
			return &CallError{Code: abi.GuestOutputInvalid, Err: err}
		}
		end.State, end.Result = session.CallDone, data
	}
	id := session.CallID{Run: c.id, Call: c.fc.ID, Attempt: c.attempt(c.fc.ID)}
	err := c.store.BeginCall(ctx, session.Call{Session: c.key, ID: id, Agent: c.agent.Name, Tool: c.fc.Name,
		Module: c.spec.Module, ArgsSHA256: c.info.ArgsSHA256, Approval: ap.question.ID, Began: c.cfg.Now()})
	if errors.Is(err, session.ErrUsed) || errors.Is(err, session.ErrExists) {
		denied, _ := errors.AsType[*denial](c.spentElsewhere(err))
		return denied.err
	}
	if err == nil {
		err = c.store.EndCall(ctx, c.key, id, end)
	}
	if err == nil {
		rec := questionRecord("confirmation.used", ap.question, ap.question.By)
		rec.Code, rec.Why = end.Code, "the call was not made"
		err = c.audit(ctx, rec)
	}
	if err != nil {
		return &CallError{Code: abi.StorageUnavailable, Err: err}
	}
	return nil
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
// were approved, and tells of those that were rejected. Approved tasks are left to
// resumeTasks, which gives them in their turn. It reports whether the run now waits
// for a person again.
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
	alone, table := onlyAnswers(ev.Content), s.table()
	var groups []*answeredCalls
	events := s.events()
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
		ap, err := s.approval(ctx, questions, q, a, alone)
		if err != nil {
			return false, err
		}
		if ap == nil {
			continue
		}
		s.goesOnFor(q)
		if _, spec := table.lookup(q.Tool); spec != nil && spec.task && ap.answer.Confirmed && ap.ended == nil {
			s.approved = append(s.approved, ap)
			continue
		}
		call, err := askedCall(q)
		if err != nil {
			return false, err
		}
		groups = addAnswered(groups, eventOfCall(events, q.Call), ap, call)
	}
	for _, a := range answers {
		if err := s.audit(ctx, refusalRecord(session.Question{ID: a.id, Session: s.key, Run: s.id}, s.by, abi.ConfirmationNotFound, "no such question")); err != nil {
			return false, err
		}
	}
	for _, g := range groups {
		waits, err := s.settle(ctx, s.dispatch(ctx, table, g.calls, g.approvals))
		if err != nil || s.stopped {
			return true, err
		}
		waiting = waiting || waits
	}
	if waiting && s.next == nil {
		s.ended = true // somebody is asked, whatever came after the question
	}
	return waiting, nil
}

// askedCall is the call of a question as the model made it.
func askedCall(q session.Question) (*genai.FunctionCall, error) {
	given, err := abi.Unmarshal(q.Given)
	if err != nil {
		return nil, fmt.Errorf("question %s: %w", q.ID, err)
	}
	args, _ := given.(map[string]any)
	return &genai.FunctionCall{ID: q.Call, Name: q.Tool, Args: args}, nil
}

// The answeredCalls are the calls of one event about which a message decides. Their results
// become one event, as the model has to get the results of one event's calls.
type answeredCalls struct {
	event     *session.Event // nil if it is not in the history
	calls     []*genai.FunctionCall
	approvals map[string]*approval
}

// addAnswered puts a call to the others of its event. A call that is there already
// is not made twice.
func addAnswered(groups []*answeredCalls, ev *session.Event, ap *approval, call *genai.FunctionCall) []*answeredCalls {
	i := slices.IndexFunc(groups, func(g *answeredCalls) bool { return g.event == ev })
	if i < 0 {
		i = len(groups)
		groups = append(groups, &answeredCalls{event: ev, approvals: map[string]*approval{}})
	}
	if g := groups[i]; g.approvals[call.ID] == nil {
		g.approvals[call.ID] = ap
		g.calls = append(g.calls, call)
	}
	return groups
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

// approval takes an answer to a question and returns what the question's call is to
// be dispatched with. It returns nil if the answer does not count, which is audited
// and otherwise ignored. What was decided before may be said again as long as its
// call has not been made, or told of: a run may have ended in between. alone says
// that its message holds nothing but answers.
func (s *step) approval(ctx context.Context, questions []session.Question, q session.Question, a answer, alone bool) (*approval, error) {
	ap := &approval{question: q, answer: session.Confirmation{Hint: q.Hint, Confirmed: a.decision.Approve, Payload: a.payload}}
	switch {
	case s.cfg.FourEyes && !alone:
		return nil, s.audit(ctx, refusalRecord(q, s.by, abi.Forbidden, "four eyes: an answer comes in a message of its own"))
	case superseded(questions, q):
		return nil, s.audit(ctx, refusalRecord(q, s.by, abi.ConfirmationMismatch, "the call was asked about again"))
	case q.State == session.Approved && a.repeats(q), q.State == session.Rejected && !a.decision.Approve && s.answeredOnce(q.ID):
		return ap, s.audit(ctx, resumedRecord(q, s.by))
	case q.State == session.Used && a.decision.Approve:
		calls, err := s.store.Calls(ctx, s.key)
		if err != nil {
			return nil, err
		}
		if ap.ended = s.leftBehind(s.events(), calls, q); ap.ended != nil {
			if err := s.giveUp(ctx, ap.ended); err != nil {
				return nil, err
			}
			return ap, s.audit(ctx, resumedRecord(q, s.by))
		}
	}
	decided, err := s.decide(ctx, q, a.decision)
	if _, refused := errors.AsType[*DecisionError](err); refused {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ap.question = decided
	return ap, nil
}

// onlyAnswers reports whether a message holds answers to questions and nothing else.
func onlyAnswers(c *genai.Content) bool {
	return !slices.ContainsFunc(parts(c), func(p *genai.Part) bool {
		return p != nil && (p.FunctionResponse == nil || p.FunctionResponse.Name != confirmationCall)
	})
}

// goesOnFor makes whoever started the run that asked the one who asks what comes up
// next: an answer that counts does not start a run. One that does not count, and one
// that comes with other words where four eyes are wanted, does, and its sender asks.
func (r *run) goesOnFor(q session.Question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asker = cmp.Or(q.AskedBy, r.asker)
}

// repeats reports whether an answer says once more what a question was decided by.
func (a answer) repeats(q session.Question) bool {
	d := a.decision
	return d.Approve && bytes.Equal(d.Payload, q.Payload) && (q.Expires.IsZero() || !d.At.After(q.Expires))
}

// answeredOnce reports whether no event but the newest of the user's answers a question.
func (s *step) answeredOnce(id string) bool {
	events := s.events()
	at := answeredAt(events, id)
	return at >= 0 && !answered(events[at+1:], id)
}

func resumedRecord(q session.Question, who string) audit.Record {
	rec := questionRecord("confirmation.resumed", q, who)
	rec.Why = string(q.State) + " by " + q.By
	return rec
}

// answers reads the answers to questions in a user's event. Only the literal true
// approves, only the literal false rejects, and anything else, nothing included, is
// no answer.
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
		if !isBool {
			s.cfg.Logger.Warn("answer to a question is neither true nor false", "question", r.ID)
			continue
		}
		a := answer{id: r.ID, payload: m["payload"], decision: session.Decision{Approve: confirmed, By: s.by, Roles: s.byRoles, At: s.cfg.Now(), Via: viaMessage}}
		if a.payload != nil {
			payload, err := said(a.payload)
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
		Args: args, Given: args, ArgsSHA256: abi.Digest(args), Policy: r.policy, Asked: ev.Time, AskedBy: key.User, Expires: r.cfg.Now().Add(r.cfg.Expires)}
	if spec := r.specOf(ev.Author, q.Tool); spec != nil {
		q.Module = spec.Module
	}
	if tc, ok := request.Args["toolConfirmation"].(map[string]any); ok {
		q.Hint, _ = tc["hint"].(string)
	}
	return q, nil
}
