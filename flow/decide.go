package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// viaMessage is the way of a decision that a user's message carries.
const viaMessage = "message"

// A DecisionError reports a decision that does not count. The question is as it was.
type DecisionError struct {
	Code     abi.Code         // confirmation_not_found, _decided, _expired or _mismatch, or forbidden
	Question session.Question // as it is stored; zero if there is none
	Err      error            // for the operator
}

func (e *DecisionError) Error() string { return e.Err.Error() }
func (e *DecisionError) Unwrap() error { return e.Err }

// Decide records a person's decision about a pending question of a session, and
// audits it. It runs nothing: [Runner.Resume] goes on with what was decided, in
// this process or another one, now or later.
//
// d.By, who decides, and d.Via, which way the decision came, are required, and an
// approval has to name the digest of the arguments that the person saw. d.Roles are
// those of d.By, where [Config].Deciders asks for one; both are kept. The payload
// is JSON for the tool, or nothing; d.At is the runner's time. Of many decisions one
// counts. A decision that does not is a [*DecisionError] and audited, too; any other
// error leaves open whether it counts, and it may be given again.
func (r *Runner) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	switch {
	case d.By == "":
		return session.Question{}, errors.New("decision: by: want who decides")
	case d.Via == "":
		return session.Question{}, errors.New("decision: via: want which way it came")
	case d.Approve && d.ArgsSHA256 == "":
		return session.Question{}, errors.New("decision: args_sha256: an approval names what the person saw")
	}
	if d.Payload != nil {
		payload, err := abi.Canonical(d.Payload)
		if err == nil {
			err = abi.CheckDepth(payload)
		}
		if err != nil {
			return session.Question{}, fmt.Errorf("decision: payload: %w", err)
		}
		d.Payload = payload
	}
	d.At = r.cfg.Now()
	questions, err := r.store.Questions(ctx, key)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return session.Question{}, err
	}
	q := session.Question{ID: id, Session: key}
	if i := slices.IndexFunc(questions, func(q session.Question) bool { return q.ID == id }); i >= 0 {
		q = questions[i]
	}
	return r.decide(ctx, q, d)
}

// decide moves a question by a decision and audits it. The order is store, then
// audit: a decision that could not be audited has to be audited before its call
// runs, which [step.resume] sees to.
func (r *Runner) decide(ctx context.Context, q session.Question, d session.Decision) (session.Question, error) {
	var decided session.Question
	var err error
	if q.State == session.Pending {
		err = r.mayDecide(q, d.By, d.Roles)
	}
	if err == nil {
		decided, err = r.store.Decide(ctx, q.Session, q.ID, d)
	}
	if err == nil {
		return decided, r.audit(ctx, decisionRecord(decided))
	}
	var code abi.Code
	for _, known := range []struct {
		is   error
		code abi.Code
	}{
		{errMayNotDecide, abi.Forbidden},
		{session.ErrNotFound, abi.ConfirmationNotFound},
		{session.ErrDecided, abi.ConfirmationDecided},
		{session.ErrExpired, abi.ConfirmationExpired},
		{session.ErrMismatch, abi.ConfirmationMismatch},
	} {
		if errors.Is(err, known.is) {
			code = known.code
		}
	}
	if code == "" {
		return session.Question{}, err
	}
	if code == abi.ConfirmationDecided { // since it was read, perhaps: say by whom
		if now, err := r.store.Questions(ctx, q.Session); err == nil {
			if i := slices.IndexFunc(now, func(other session.Question) bool { return other.ID == q.ID }); i >= 0 {
				q = now[i]
			}
		}
	}
	if auditing := r.audit(ctx, refusalRecord(q, d.By, code, err.Error())); auditing != nil {
		return session.Question{}, auditing
	}
	if code == abi.ConfirmationNotFound {
		q = session.Question{}
	}
	return session.Question{}, &DecisionError{Code: code, Question: q, Err: err}
}

func decisionRecord(q session.Question) audit.Record {
	rec := questionRecord("confirmation."+string(q.State), q, q.By)
	rec.Why = "via " + q.Via
	if q.Reason != "" {
		rec.Why += ": " + q.Reason
	}
	return rec
}

func refusalRecord(q session.Question, who string, code abi.Code, why string) audit.Record {
	rec := questionRecord("confirmation.refused", q, who)
	rec.Code, rec.Why = string(code), why
	return rec
}

// questionRecord is an audit record about a question by whoever deals with it.
func questionRecord(action string, q session.Question, who string) audit.Record {
	return audit.Record{Tenant: q.Session.Tenant, Session: q.Session.ID, Run: q.Run, Actor: who, Action: action, Target: q.ID,
		Call: q.Call, Module: q.Module, ArgsSHA256: q.ArgsSHA256}
}

// Resume goes on with what was decided about a session's questions and has not come
// to its end: it runs approved calls, and tells of rejected ones. Each run that asked
// goes on once, in the order of its first question; the sequence is like that of
// [Runner.Run], and empty if there is nothing to do. It is how a run goes on after
// [Runner.Decide], and after a process that ended in between.
//
// A call that had begun when its process ended is not made again. Once no run can
// still be making it, which is [Limits].Wall after it began, the model is told what
// is stored of it: its result, or outcome_unknown if it has none.
//
// Of in, the content and the state have no meaning here.
func (r *Runner) Resume(ctx context.Context, key session.Key, in Input) iter.Seq2[*session.Event, error] {
	return func(yield func(*session.Event, error) bool) {
		gone := map[string]bool{} // runs that went on
		for {
			content, err := r.decided(ctx, key, gone)
			if err != nil {
				yield(nil, err)
				return
			}
			if content == nil {
				return
			}
			in.Content, in.StateDelta = content, nil
			for ev, err := range r.Run(ctx, key, in) {
				if !yield(ev, err) {
					return
				}
			}
		}
	}
}

// decided returns the message that says what was decided about the questions of the
// first run that can go on and is not in gone, to which it is added; nil if there is
// none. It says nothing that the questions do not: they are looked at again when it
// arrives.
func (r *Runner) decided(ctx context.Context, key session.Key, gone map[string]bool) (*genai.Content, error) {
	sess, err := r.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	questions, err := r.store.Questions(ctx, key)
	if err != nil {
		return nil, err
	}
	calls, err := r.store.Calls(ctx, key)
	if err != nil {
		return nil, err
	}
	now := r.cfg.Now()
	var content *genai.Content
	run := ""
	for _, q := range questions {
		switch {
		case superseded(questions, q), content == nil && gone[q.Run], content != nil && q.Run != run:
			continue
		case q.State == session.Approved && (q.Expires.IsZero() || !now.After(q.Expires)):
		case q.State == session.Rejected && !answered(sess.Events, q.ID):
		case q.State == session.Used && r.leftBehind(sess.Events, calls, q) != nil:
		default:
			continue
		}
		response := map[string]any{"confirmed": q.State != session.Rejected}
		if q.Payload != nil {
			payload, err := abi.Unmarshal(q.Payload)
			if err != nil {
				return nil, fmt.Errorf("question %s: payload: %w", q.ID, err)
			}
			response["payload"] = payload
		}
		if content == nil {
			content, run = &genai.Content{Role: genai.RoleUser}, q.Run
			gone[run] = true
		}
		content.Parts = append(content.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: q.ID, Name: confirmationCall, Response: response}})
	}
	return content, nil
}

// superseded reports whether the same call was asked about again, so that what was
// said about this form of it has no meaning any more.
func superseded(questions []session.Question, q session.Question) bool {
	newer := false
	for _, other := range questions {
		if other.ID == q.ID {
			newer = true
		} else if newer && other.Run == q.Run && other.Call == q.Call {
			return true
		}
	}
	return false
}

// answered reports whether a user's event holds an answer to a question.
func answered(events []*session.Event, id string) bool { return answeredAt(events, id) >= 0 }

func answeredAt(events []*session.Event, id string) int {
	return slices.IndexFunc(events, func(ev *session.Event) bool {
		return ev.Author == userAuthor && slices.ContainsFunc(ev.Responses(), func(r *genai.FunctionResponse) bool { return r.ID == id && r.Name == confirmationCall })
	})
}

// leftBehind returns the call that spent an approval, if the run that made it is
// over and never told of it; else nil.
func (r *Runner) leftBehind(events []*session.Event, calls []session.Call, q session.Question) *session.Call {
	i := slices.IndexFunc(calls, func(c session.Call) bool { return c.Approval == q.ID })
	if i < 0 || !r.cfg.Now().After(calls[i].Began.Add(r.cfg.Limits.Wall)) {
		return nil
	}
	from := answeredAt(events, q.ID)
	if from < 0 {
		return nil // nothing spends an approval without a message
	}
	for _, ev := range events[from+1:] {
		if ev.InvocationID == q.Run && slices.ContainsFunc(ev.Responses(), func(r *genai.FunctionResponse) bool { return r.ID == q.Call }) {
			return nil
		}
	}
	return &calls[i]
}

// giveUp records that nobody knows what a call that was left behind has done.
func (r *Runner) giveUp(ctx context.Context, c *session.Call) error {
	if c.State != session.CallIntent {
		return nil
	}
	end := session.CallEnd{State: session.CallUnknown, Code: string(abi.OutcomeUnknown), Ended: r.cfg.Now()}
	rec := audit.Record{Tenant: c.Session.Tenant, Session: c.Session.ID, Run: c.ID.Run, Actor: c.Session.User, Action: "call.unknown", Target: c.Tool,
		Call: c.ID.Call, Module: c.Module, ArgsSHA256: c.ArgsSHA256, Code: end.Code, Why: "began " + c.Began.UTC().Format(time.RFC3339) + " and has no end"}
	if err := r.audit(ctx, rec); err != nil {
		return err
	}
	if err := r.store.EndCall(ctx, c.Session, c.ID, end); err != nil {
		return err
	}
	c.CallEnd = end
	return nil
}

// left is the result of a call that another run made and did not tell of.
func (c *call) left(end session.CallEnd) (map[string]any, error) {
	code := abi.Code(end.Code)
	if end.State != session.CallDone {
		code = cmp.Or(code, abi.OutcomeUnknown)
	}
	if code != "" && code != abi.OK {
		return nil, &CallError{Code: code, Err: fmt.Errorf("as an earlier run recorded at %s", end.Ended.UTC().Format(time.RFC3339))}
	}
	return c.checkResult(end.Result)
}
