package flow_test

import (
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

func (w *world) call(in flow.DirectCall) outcome {
	w.t.Helper()
	o := outcome{t: w.t}
	for ev, err := range w.runner().Call(w.t.Context(), home, in) {
		if err != nil {
			o.errs = append(o.errs, err)
		} else {
			o.events = append(o.events, ev)
		}
	}
	return o
}

// only returns the response of a run with one call.
func (o outcome) only() string {
	for _, ev := range o.events {
		for _, r := range ev.Responses() {
			return toJSON(o.t, r.Response)
		}
	}
	return ""
}

// A direct call goes through the door, and asks no model.
func TestDirectCall(t *testing.T) {
	w := newWorld(t)
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult}}}
	o := w.call(flow.DirectCall{Tool: "tool", Args: map[string]any{"n": 1}})
	if o.only() != okResponse || len(o.errs) > 0 || w.model.Requests() != 0 || strings.Join(witness.Calls(), "") != `{"n":1}` {
		t.Errorf("response %s, errors %v, %d requests, calls %q", o.only(), o.errs, w.model.Requests(), witness.Calls())
	}
	var actions []string
	for _, r := range w.records("guard.", "call.") {
		actions = append(actions, r.Action)
	}
	if got := strings.Join(actions, " "); got != "guard.allow call.intent guard.allow call.end" {
		t.Errorf("recorded %s", got)
	}
	if calls := w.calls(); len(calls) != 1 || calls[0].State != session.CallDone || calls[0].Tool != "tool" {
		t.Errorf("calls %+v", calls)
	}
	if events := w.stored().Events; len(events) != 2 || len(o.events) != 2 || events[0].Author != "agent" {
		t.Errorf("stored %d events, yielded %d", len(events), len(o.events))
	}
}

func TestDirectCallIsRefused(t *testing.T) {
	w := newWorld(t)
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	if got := w.call(flow.DirectCall{Tool: "nothing"}).only(); !strings.Contains(got, "not found") {
		t.Errorf("an unknown tool: %s", got)
	}
	for _, agent := range []string{"nobody", "group"} {
		w.agent.Agents = []*flow.Agent{{Name: "group", Type: flow.SequentialAgent, Agents: []*flow.Agent{{Name: "below"}}}}
		if o := w.call(flow.DirectCall{Agent: agent, Tool: "tool"}); len(o.errs) != 1 || !strings.Contains(o.errs[0].Error(), agent) {
			t.Errorf("agent %s: errors %v", agent, o.errs)
		}
	}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", Answer: flowtest.Always(abi.Deny("", "no"))}}
	if got := w.call(flow.DirectCall{Tool: "tool"}).only(); got != `{"error":"policy_denied: no"}` || len(witness.Calls()) != 0 {
		t.Errorf("denied: %s, %d calls", got, len(witness.Calls()))
	}
}

// A question about a direct call is answered like any other.
func TestDirectCallAsks(t *testing.T) {
	w := newWorld(t)
	witness := tool("tool")
	witness.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{witness}
	o := w.call(flow.DirectCall{Tool: "tool"})
	if len(o.questions()) != 1 || len(witness.Calls()) != 0 {
		t.Fatalf("%d questions, %d calls", len(o.questions()), len(witness.Calls()))
	}
	w.run(answer(o.questions()[0].ID, `{"confirmed":true}`))
	if len(witness.Calls()) != 1 {
		t.Errorf("approved: %d calls", len(witness.Calls()))
	}
}

// A direct call is its maker's: whom it acts for, and who made it, do not decide it
// where two people are wanted.
func TestDirectCallFourEyes(t *testing.T) {
	for by, want := range map[string]string{"cid": "cid", "": "ada"} {
		p := &pendingCall{world: newWorld(t), tool: tool("pay")}
		p.tool.Describe.Confirm = true
		p.agent.Tools = []flow.Tool{p.tool}
		p.cfg.FourEyes = true
		p.asks = p.call(flow.DirectCall{Tool: "pay", By: by}).questions()[0].ID
		if q := p.question(); q.AskedBy != want {
			t.Errorf("made by %q, asked by %q, want %q", by, q.AskedBy, want)
		}
		for _, who := range []string{want, "ada"} {
			d := p.decision(true)
			d.By = who
			_, err := p.decide(d)
			wantCode(t, who+" decides", err, abi.Forbidden)
		}
		if _, err := p.decide(p.decision(true)); err != nil {
			t.Errorf("bo decides: %v", err)
		}
	}
}

// Who makes a direct call decides it only if they may, whatever roles the call had.
func TestDirectCallDeciders(t *testing.T) {
	p := &pendingCall{world: newWorld(t), tool: tool("pay")}
	p.tool.Describe.Confirm = true
	p.agent.Tools = []flow.Tool{p.tool}
	p.cfg.Deciders = approvers()
	p.asks = p.call(flow.DirectCall{Tool: "pay", By: "cid", Roles: []string{"approver"}}).questions()[0].ID
	if o := p.call(flow.DirectCall{Tool: "adk_request_confirmation", Args: map[string]any{"id": p.asks, "confirmed": true}, By: "eva"}); len(p.tool.Calls()) != 0 || p.question().State != session.Pending {
		t.Errorf("a call decided: %s", o.only())
	}
	d := p.decision(true)
	d.By = "cid"
	_, err := p.decide(d)
	wantCode(t, "cid decides", err, abi.Forbidden)
	d.Approve = false
	_, err = p.decide(d)
	wantCode(t, "cid rejects", err, abi.Forbidden)
	in := answer(p.asks, yes)
	in.By = "cid"
	if p.run(in); len(p.tool.Calls()) != 0 {
		t.Errorf("cid answers: %d calls", len(p.tool.Calls()))
	}
	in.By = "eva"
	if p.run(in); len(p.tool.Calls()) != 1 {
		t.Errorf("eva answers: %d calls", len(p.tool.Calls()))
	}
}
