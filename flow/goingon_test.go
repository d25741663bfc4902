package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// What becomes of decisions that are gone on with late, one after the other, or
// beside somebody else's.

// An approval that was decided in time and is said again too late runs nothing,
// whichever way.
func TestApprovalExpires(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		late time.Duration
		ran  int
	}{"in time": {flow.DefaultExpires, 1}, "too late": {flow.DefaultExpires + 1, 0}} {
		for way, again := range map[string]func(*pendingCall){"a message": func(p *pendingCall) { p.run(answer(p.asks, yes)) }, "resumed": func(p *pendingCall) { p.resume() }} {
			t.Run(name+", "+way, func(t *testing.T) {
				at := now
				p := askFirst(t, func(p *pendingCall) { p.cfg.Now = func() time.Time { return at } })
				p.decideAs("bo", true)
				at = now.Add(c.late)
				requests := p.model.Requests()
				again(p)
				if len(p.tool.Calls()) != c.ran {
					t.Errorf("%d calls, want %d", len(p.tool.Calls()), c.ran)
				}
				if way == "resumed" && p.model.Requests()-requests != c.ran {
					t.Errorf("%d requests", p.model.Requests()-requests)
				}
			})
		}
	}
}

// What is told of one rejection says nothing about another one.
func TestRejectionsAreToldOneByOne(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "pay", `{"n":1}`)), flowtest.Call(call("c2", "pay", `{"n":2}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	var asked []string
	for _, said := range []string{"go", "go on"} {
		p := pendingCall{world: w, tool: pay, asks: w.say(said).questions()[0].ID}
		p.decideAs("bo", false)
		asked = append(asked, p.asks)
	}
	const rejected = `error tool "pay" call is rejected`
	if got := w.run(answer(asked[0], no)).errorOf("c1"); got != rejected {
		t.Errorf("of the first the model reads %q", got)
	}
	if got := w.resume(); got.errorOf("c2") != rejected || got.response("c1") != "" {
		t.Errorf("of the second the model reads %q, of the first %s", got.errorOf("c2"), got.response("c1"))
	}
}

// Who stops at one run that goes on gets no other.
func TestConsumerStopsAsRunsGoOn(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "pay", `{"n":1}`)), flowtest.Call(call("c2", "pay", `{"n":2}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	for _, said := range []string{"go", "go on"} {
		p := pendingCall{world: w, tool: pay, asks: w.say(said).questions()[0].ID}
		p.decideAs("bo", true)
	}
	for ev, err := range w.runner().Resume(t.Context(), home, flow.Input{}) {
		if err != nil || len(ev.Responses()) != 1 {
			t.Errorf("event %s, error %v", toJSON(t, ev), err)
		}
		break
	}
	if got := pay.Calls(); !slices.Equal(got, []string{`{"n":1}`}) {
		t.Errorf("ran %q", got)
	}
	if o := w.resume(); o.response("c2") != okResponse {
		t.Errorf("the other: %s", o.response("c2"))
	}
}

// A decider is a store in which somebody else decides first.
type decider struct {
	session.Store
	first session.Decision
}

func (s decider) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	if _, err := s.Store.Decide(ctx, key, id, s.first); err != nil {
		return session.Question{}, err
	}
	return s.Store.Decide(ctx, key, id, d)
}

// Who decides too late is told who was faster.
func TestWhoWasFaster(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "pay", `{"n":1}`), call("c2", "pay", `{"n":2}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	store := w.store
	for i, q := range w.say("go").questions() {
		p := pendingCall{world: w, tool: pay, asks: q.ID}
		d := p.decision(true)
		first := d
		first.By = fmt.Sprint("cid", i)
		w.store = decider{store, first}
		_, err := p.decide(d)
		refused := wantCode(t, "late", err, abi.ConfirmationDecided)
		if got := refused.Question; got.ID != q.ID || got.By != first.By || got.State != session.Approved || !errors.Is(err, session.ErrDecided) {
			t.Errorf("%v; the error knows %+v", err, got)
		}
		w.store = store
	}
}

// A no to a call that was left behind does not bring it back, a yes is recorded, and
// whoever reads of the call reads since when it has been over.
func TestAnswerToWhatWasLeftBehind(t *testing.T) {
	began := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		end  *session.CallEnd
		code abi.Code
		want string // of the response, or of the error that the operator reads
	}{
		"no end":                 {nil, abi.OutcomeUnknown, "as an earlier run recorded at 2026-03-02T09:01:01Z"},
		"an end without a code":  {&session.CallEnd{State: session.CallUnknown, Ended: began}, abi.OutcomeUnknown, "as an earlier run recorded at 2026-03-02T09:00:00Z"},
		"done, and no code":      {&session.CallEnd{State: session.CallDone, Result: json.RawMessage(okResponse)}, abi.OK, okResponse},
		"done, and its own code": {&session.CallEnd{State: session.CallDone, Code: "ok", Result: json.RawMessage(okResponse)}, abi.OK, okResponse},
	} {
		t.Run(name, func(t *testing.T) {
			now := began
			p := askFirst(t, func(p *pendingCall) {
				p.cfg.Now = func() time.Time { return now }
				p.cfg.Limits.Wall = time.Minute
			})
			p.decideAs("bo", true)
			q := p.question()
			reply := &session.Event{ID: "reply", Author: "user", InvocationID: q.Run, Time: now, Response: session.Response{Content: answer(p.asks, yes).Content}}
			id := session.CallID{Run: q.Run, Call: "c1"}
			if err := errors.Join(p.store.Append(t.Context(), home, reply),
				p.store.BeginCall(t.Context(), session.Call{Session: home, ID: id, Tool: "pay", Approval: p.asks, Began: now})); err != nil {
				t.Fatal(err)
			}
			if c.end != nil {
				if err := p.store.EndCall(t.Context(), home, id, *c.end); err != nil {
					t.Fatal(err)
				}
			}
			now = began.Add(time.Minute + time.Second)
			if o := p.run(answer(p.asks, no)); o.response("c1") != "" || len(p.records("confirmation.refused")) != 1 {
				t.Errorf("after a no: response %s, audited %+v", o.response("c1"), p.records("confirmation."))
			}
			var ended flow.CallResult
			p.cfg.Observer.Finished = func(_ flow.CallInfo, r flow.CallResult) { ended = r }
			o := p.run(answer(p.asks, yes))
			got := o.response("c1")
			if c.code != abi.OK {
				got = fmt.Sprint(ended.Err)
			}
			if ended.Code != c.code || !contains(got, c.want) || len(p.tool.Calls()) != 0 {
				t.Errorf("ended with %s: %s, want %s: %s; %d calls", ended.Code, got, c.code, c.want, len(p.tool.Calls()))
			}
			if r := p.records("confirmation.resumed"); len(r) != 1 || r[0].Why != "used by bo" {
				t.Errorf("audited %+v", r)
			}
		})
	}
}
