package flow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

var errOutage = errors.New("outage")

// An outage is a store and an audit log of which one operation fails.
type outage struct {
	session.Store
	audit.Sink
	at, done atomic.Int64 // the operation that fails, from 1; those done
	failed   string       // its name
}

func (o *outage) fails(name string) error {
	if o.done.Add(1) == o.at.Load() {
		o.failed = name
		return errOutage
	}
	return nil
}

func (o *outage) Get(ctx context.Context, key session.Key) (*session.Session, error) {
	if err := o.fails("get"); err != nil {
		return nil, err
	}
	return o.Store.Get(ctx, key)
}

func (o *outage) BeginCall(ctx context.Context, c session.Call) error {
	if err := o.fails("begin call"); err != nil {
		return err
	}
	return o.Store.BeginCall(ctx, c)
}

func (o *outage) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	if err := o.fails("end call"); err != nil {
		return err
	}
	return o.Store.EndCall(ctx, key, id, end)
}

func (o *outage) Calls(ctx context.Context, key session.Key) ([]session.Call, error) {
	if err := o.fails("calls"); err != nil {
		return nil, err
	}
	return o.Store.Calls(ctx, key)
}

func (o *outage) Ask(ctx context.Context, q session.Question) error {
	if err := o.fails("ask"); err != nil {
		return err
	}
	return o.Store.Ask(ctx, q)
}

func (o *outage) Questions(ctx context.Context, key session.Key) ([]session.Question, error) {
	if err := o.fails("questions"); err != nil {
		return nil, err
	}
	return o.Store.Questions(ctx, key)
}

func (o *outage) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	if err := o.fails("decide"); err != nil {
		return session.Question{}, err
	}
	return o.Store.Decide(ctx, key, id, d)
}

// Append has one name in a store and in an audit log.
type outageStore struct{ *outage }

func (o outageStore) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	if err := o.fails("append"); err != nil {
		return err
	}
	return o.Store.Append(ctx, key, ev)
}

type outageAudit struct{ *outage }

func (o outageAudit) Append(ctx context.Context, r audit.Record) error {
	if err := o.fails("audit " + r.Action); err != nil {
		return err
	}
	return o.Sink.Append(ctx, r)
}

// Whatever of the store or the audit log fails on the way of a question, somebody
// is told: the caller by an error, or the model by one. No call runs twice for it,
// and none runs that nobody approved.
func TestOutageIsToldOf(t *testing.T) {
	began := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	approve := func(p *pendingCall, o *outage) []error {
		_, err := p.runner().Decide(t.Context(), home, p.asks, session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: abi.Digest([]byte(`{"amount":1.0,"to":"eve"}`))})
		if err != nil {
			return []error{err}
		}
		return resumed(p)
	}
	for name, c := range map[string]struct {
		prepare func(p *pendingCall)
		do      func(p *pendingCall, o *outage) []error
		runs    int // of the handler, if nothing fails
	}{
		"decided at a desk": {nil, approve, 1},
		"rejected at a desk": {nil, func(p *pendingCall, o *outage) []error {
			if _, err := p.runner().Decide(t.Context(), home, p.asks, session.Decision{By: "bo", Via: "desk"}); err != nil {
				return []error{err}
			}
			return resumed(p)
		}, 0},
		"answered in a message": {nil, func(p *pendingCall, o *outage) []error { return toldBy(p.run(answer(p.asks, `{"confirmed":true}`))) }, 1},
		"answered twice": {nil, func(p *pendingCall, o *outage) []error {
			return append(toldBy(p.run(answer(p.asks, `{"confirmed":true}`))), toldBy(p.run(answer(p.asks, `{"confirmed":true}`)))...)
		}, 1},
		"answered too late": {func(p *pendingCall) {
			if _, err := p.decide(p.decision(false)); err != nil {
				t.Fatal(err)
			}
		}, approve, 0},
		"answer to nothing": {nil, func(p *pendingCall, o *outage) []error { return toldBy(p.run(answer("other", `{"confirmed":true}`))) }, 0},
		"left behind": {func(p *pendingCall) {
			if _, err := p.decide(p.decision(true)); err != nil {
				t.Fatal(err)
			}
			q := p.question()
			reply := &session.Event{ID: "reply", Author: "user", InvocationID: q.Run, Time: began, Response: session.Response{Content: answer(p.asks, `{"confirmed":true}`).Content}}
			if err := errors.Join(p.store.Append(t.Context(), home, reply),
				p.store.BeginCall(t.Context(), session.Call{Session: home, ID: session.CallID{Run: q.Run, Call: "c1"}, Tool: "pay", Approval: p.asks, Began: began.Add(-time.Hour)})); err != nil {
				t.Fatal(err)
			}
		}, func(p *pendingCall, o *outage) []error { return resumed(p) }, 0},
		"imported": {nil, func(p *pendingCall, o *outage) []error {
			ev := &session.Event{ID: "imported", Author: "agent", InvocationID: "run", Response: session.Response{Content: &genai.Content{Role: genai.RoleModel,
				Parts: []*genai.Part{{FunctionCall: call("q1", "adk_request_confirmation", `{"originalFunctionCall":{"id":"c9","name":"pay","args":{}},"toolConfirmation":{"hint":"sure?"}}`)}}}}}
			if err := p.runner().Import(t.Context(), home, []*session.Event{ev}); err != nil {
				return []error{err}
			}
			return nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(0); ; at++ {
				p := askFirst(t, func(p *pendingCall) {
					p.cfg.Now = func() time.Time { return began }
					p.cfg.Limits.Wall = time.Minute
				})
				if c.prepare != nil {
					c.prepare(p)
				}
				o := &outage{Store: p.store, Sink: p.audit}
				o.at.Store(at)
				p.store, p.cfg.Audit = outageStore{o}, outageAudit{o}
				errs := c.do(p, o)
				runs := len(p.tool.Calls())
				p.store = o.Store
				switch {
				case at == 0 && runs != c.runs:
					t.Fatalf("the handler ran %d times, want %d: %v", runs, c.runs, errs)
				case runs > c.runs:
					t.Errorf("operation %d, %s: the handler ran %d times", at, o.failed, runs)
				case o.failed == "questions" && len(p.records("confirmation.refused")) > 0:
					// It was read again only to say who was first.
				case at > 0 && o.failed != "" && !slices.ContainsFunc(errs, isOutage):
					t.Errorf("operation %d, %s: nobody is told: %v", at, o.failed, errs)
				}
				if at > 0 && o.failed == "" {
					if at < 3 {
						t.Errorf("only %d operations", at)
					}
					return
				}
			}
		})
	}
}

// isOutage reports whether an error tells of an outage, to the caller or the model.
func isOutage(err error) bool {
	return errors.Is(err, errOutage) || strings.HasPrefix(err.Error(), "the model reads storage_unavailable") || strings.HasPrefix(err.Error(), "the model reads policy_unavailable")
}

// toldBy returns the errors of a run, those that the model reads among them.
func toldBy(o outcome) []error {
	errs := o.errs
	for _, ev := range o.events {
		for _, r := range ev.Responses() {
			if text, ok := r.Response["error"].(string); ok {
				errs = append(errs, fmt.Errorf("the model reads %s", text))
			}
		}
	}
	return errs
}

func resumed(p *pendingCall) []error {
	o := outcome{t: p.t}
	for ev, err := range p.runner().Resume(p.t.Context(), home, flow.Input{}) {
		if err != nil {
			o.errs = append(o.errs, err)
			continue
		}
		o.events = append(o.events, ev)
	}
	return toldBy(o)
}
