package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A cancelAt store ends the context at one of its methods.
type cancelAt struct {
	session.Store
	method string
	cancel context.CancelFunc
}

func (s cancelAt) at(method string) {
	if s.method == method {
		s.cancel()
	}
}

func (s cancelAt) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	switch {
	case ev.Author == "user":
		s.at("message")
	case len(ev.Calls()) > 0:
		s.at("call event")
	case len(ev.Responses()) > 0:
		s.at("response event")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Append(ctx, key, ev)
}

func (s cancelAt) BeginCall(ctx context.Context, c session.Call) error {
	s.at("begin refused")
	if err := ctx.Err(); err != nil {
		return err
	}
	defer s.at("begun")
	return s.Store.BeginCall(ctx, c)
}

func (s cancelAt) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	s.at("ending")
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.EndCall(ctx, key, id, end)
}

// Wherever a run is cancelled, what it leaves behind makes sense: a call is
// recorded as it ended, is answered if it was looked at, and never runs later.
func TestCancelled(t *testing.T) {
	const cancelled = `{"error":"cancelled: the call was cancelled"}`
	for _, c := range []struct {
		at    string
		ran   int
		want  string // response of c1 in the session; "": there is none
		state session.CallState
	}{
		{"message", 0, "", ""},
		{"model", 0, "", ""},
		{"call event", 0, cancelled, ""},
		{"shown call", 0, cancelled, ""},
		{"before hook", 0, cancelled, ""},
		{"guard of the call", 0, `{"error":"` + unavailable + `"}`, ""},
		{"audit of the intent", 0, `{"error":"` + notStored + `"}`, ""},
		{"begin refused", 0, `{"error":"` + notStored + `"}`, ""},
		{"begun", 0, cancelled, session.CallDenied},
		{"handler", 1, `{"error":"outcome_unknown: the call was interrupted and may or may not have had its effect"}`, session.CallUnknown},
		{"handler that succeeds", 1, okResponse, session.CallDone},
		{"handler that fails by itself", 1, `{"error":"broken"}`, session.CallDone},
		{"ending", 1, okResponse, session.CallDone},
		{"after hook", 1, okResponse, session.CallDone},
		{"guard of the result", 1, okResponse, session.CallDone},
		{"response event", 1, okResponse, session.CallDone},
		{"shown response", 1, okResponse, session.CallDone},
	} {
		t.Run(c.at, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			at := func(where string) {
				if where == c.at {
					cancel()
				}
			}
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			plain := w.store
			w.store = cancelAt{w.store, c.at, cancel}
			w.model.OnRequest = func(*flow.Request, bool) { at("model") }
			witness := handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				at("handler")
				at("handler that succeeds")
				at("handler that fails by itself")
				switch {
				case c.at == "handler that fails by itself":
					return "", errors.New("broken")
				case c.at != "handler that succeeds" && ctx.Err() != nil:
					return "", fmt.Errorf("asking the bank: %w", ctx.Err())
				}
				return okResponse, nil
			})
			w.agent.Tools = []flow.Tool{witness}
			w.agent.Hooks = []flow.Hooks{{
				BeforeTool: func(*flow.ToolContext, *flow.ToolCall) (map[string]any, error) { at("before hook"); return nil, nil },
				AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
					at("after hook")
					return nil, nil
				}}}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: bothPhases, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
				at(map[abi.Phase]string{abi.PhaseCall: "guard of the call", abi.PhaseResult: "guard of the result"}[q.Phase])
				return flowtest.Echo(q, abi.Allow()), nil
			}}}
			w.cfg.Audit = sinkFunc(func(action string) error {
				if action == "call.intent" && c.at == "audit of the intent" {
					cancel()
					return context.Canceled
				}
				return nil
			})
			var errs []error
			for ev, err := range w.runner().Run(ctx, home, flow.Text("go")) {
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if len(ev.Calls()) > 0 {
					at("shown call")
				}
				if len(ev.Responses()) > 0 {
					at("shown response")
				}
			}
			if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
				t.Errorf("errors %v, want one of a cancelled context", errs)
			}
			if n := len(witness.Calls()); n != c.ran {
				t.Errorf("the handler ran %d times, want %d", n, c.ran)
			}
			w.store = plain
			checkCalls(t, w, c.state)
			o := outcome{t: t, events: w.stored().Events}
			if got := o.response("c1"); got != c.want {
				t.Errorf("stored response %s, want %s", got, c.want)
			}
			if w.model.Requests() == 0 {
				return
			}
			w.say("and now?")
			if n := len(witness.Calls()); n != c.ran {
				t.Errorf("the next message ran the call: %d times, want %d", n, c.ran)
			}
		})
	}
}

// sinkFunc is an audit sink that keeps nothing.
type sinkFunc func(action string) error

func (f sinkFunc) Append(_ context.Context, r audit.Record) error { return f(r.Action) }

// A consumer may stop at any event. Nothing is yielded afterwards, nothing that
// was shown is lost, and no call that was not begun runs later.
func TestConsumerStops(t *testing.T) {
	build := func(t *testing.T) (*world, *flowtest.Tool, *int) {
		partial := func(text string) flowtest.Reply {
			return flowtest.Reply{Response: &session.Response{Partial: true, Content: genai.NewContentFromText(text, genai.RoleModel)}}
		}
		first := append([]flowtest.Reply{partial("let "), partial("me")}, flowtest.Call(call("c1", "tool", `{}`), call("c2", "asks", `{}`))...)
		w := newWorld(t, flowtest.Call(call("c0", "tool", `{}`)), first)
		witness, asks := tool("tool"), tool("asks")
		asks.Describe.Confirm = true
		w.agent.Tools = []flow.Tool{witness, asks}
		after := new(int)
		w.cfg.Hooks = []flow.Hooks{{Name: "h",
			AfterRun: func(*flow.CallbackContext) { *after++ },
			BeforeAgent: func(ctx *flow.CallbackContext) (*genai.Content, error) {
				return nil, ctx.SetState(map[string]any{"began": true})
			}}}
		return w, witness, after
	}
	w, _, _ := build(t)
	whole := w.say("go")
	if len(whole.events) != 8 { // state, call, response, two partial, calls, responses, question
		t.Fatalf("%d events: %s", len(whole.events), toJSON(t, whole.events))
	}
	for n := 1; n <= len(whole.events); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w, witness, after := build(t)
			var seen []*session.Event
			for ev, err := range w.runner().Run(t.Context(), home, flow.Text("go")) {
				if err != nil {
					t.Fatal(err)
				}
				if seen = append(seen, ev); len(seen) == n {
					break
				}
			}
			var complete []*session.Event
			ran := 0
			for i, ev := range seen {
				if !ev.Partial {
					complete = append(complete, ev)
				}
				if want := whole.events[i]; ev.Text() != want.Text() || len(ev.Calls()) != len(want.Calls()) || len(ev.Responses()) != len(want.Responses()) {
					t.Errorf("event %d is %s, want %s", i, toJSON(t, ev), toJSON(t, want))
				}
				ran += len((&outcome{t: t, events: []*session.Event{ev}}).response("c0")) / len(okResponse)
				ran += len((&outcome{t: t, events: []*session.Event{ev}}).response("c1")) / len(okResponse)
			}
			sameEvents(t, w, outcome{t: t, events: complete})
			if *after != 1 {
				t.Errorf("after-run hooks ran %d times", *after)
			}
			if len(witness.Calls()) != ran {
				t.Errorf("%d calls ran, %d responses were shown", len(witness.Calls()), ran)
			}
			for _, c := range w.calls() {
				if c.State != session.CallDone {
					t.Errorf("call %+v", c)
				}
			}
			w.cfg.Hooks = nil
			w.say("and now?")
			for _, c := range w.calls() {
				if !shownBefore(seen, c.ID.Call) && c.ID.Run == seen[0].InvocationID {
					t.Errorf("call %+v ran after the consumer had stopped", c)
				}
			}
		})
	}
}

func shownBefore(events []*session.Event, id string) bool {
	return (&outcome{events: events}).hasResponse(id)
}

func (o *outcome) hasResponse(id string) bool {
	for _, ev := range o.events {
		for _, r := range ev.Responses() {
			if r.ID == id {
				return true
			}
		}
	}
	return false
}

// A consumer that panics takes its panic along; the run ends as if it had stopped.
func TestConsumerPanics(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	after := 0
	w.cfg.Hooks = []flow.Hooks{{AfterRun: func(*flow.CallbackContext) { after++ }}}
	got := func() (p any) {
		defer func() { p = recover() }()
		for range w.runner().Run(t.Context(), home, flow.Text("go")) {
			panic("mine")
		}
		return nil
	}()
	if got != "mine" || len(witness.Calls()) != 0 || after != 1 || len(w.stored().Events) != 2 {
		t.Errorf("recovered %v, %d calls, %d after-run hooks, %d events", got, len(witness.Calls()), after, len(w.stored().Events))
	}
}

// Nothing happens before the run is ranged over.
func TestRunIsLazy(t *testing.T) {
	w := newWorld(t)
	_ = w.runner().Run(t.Context(), home, flow.Text("go"))
	if len(w.stored().Events) != 0 || w.model.Requests() != 0 {
		t.Error("a run began before it was ranged over")
	}
}

func TestNoSession(t *testing.T) {
	w := newWorld(t)
	key := home
	key.Tenant = "evil"
	for ev, err := range w.runner().Run(t.Context(), key, flow.Text("go")) {
		if ev != nil || !errors.Is(err, session.ErrNotFound) {
			t.Errorf("got %v, %v", ev, err)
		}
	}
	if w.model.Requests() != 0 {
		t.Error("the model was asked")
	}
}

// A consumer that has stopped is not called again, not even when the end of the
// run fails.
func TestStoppedConsumerIsNotCalled(t *testing.T) {
	w := newWorld(t)
	w.cfg.Hooks = []flow.Hooks{{AfterRun: func(*flow.CallbackContext) { panic("lost it") }}}
	n := 0
	w.cfg.Logger = slog.New(brokenLog{slog.DiscardHandler, &n})
	seen := 0
	for range w.runner().Run(t.Context(), home, flow.Text("go")) {
		seen++
		break
	}
	if seen != 1 || n != 2 {
		t.Errorf("called %d times, %d lines were logged: want 1, and 2 for the hook and the run", seen, n)
	}
}

// brokenLog panics at its first line.
type brokenLog struct {
	slog.Handler
	lines *int
}

func (brokenLog) Enabled(context.Context, slog.Level) bool { return true }

func (l brokenLog) Handle(context.Context, slog.Record) error {
	if *l.lines++; *l.lines == 1 {
		panic("lost it, too")
	}
	return nil
}

// A run that ends before its question is stored asks nothing, and nothing of it can be
// approved. A question that is stored waits for a person, whatever became of the run.
func TestCancelledAsItAsks(t *testing.T) {
	for _, c := range []struct {
		at      string
		pending int
	}{{"guard", 0}, {"asked", 1}} {
		t.Run(c.at, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := newWorld(t, flowtest.Call(call("c1", "pay", `{"n":1}`)))
			pay := tool("pay")
			pay.Describe.Confirm = true
			w.agent.Tools = []flow.Tool{pay}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseCall}}}
			w.cfg.Observer = flow.Observer{
				Decided: func(flow.CallInfo, *flow.Decision) {
					if c.at == "guard" {
						cancel()
					}
				},
				Asked: func(session.Question) { cancel() },
			}
			w.runIn(ctx, flow.Text("pay"))
			qs, err := w.store.Questions(t.Context(), home)
			if err != nil || len(qs) != c.pending || len(w.records("confirmation.asked")) != c.pending {
				t.Fatalf("%d questions, %v, audited %+v; want %d", len(qs), err, w.records("confirmation.asked"), c.pending)
			}
			w.cfg.Observer = flow.Observer{}
			for _, q := range qs {
				if _, err := w.runner().Decide(t.Context(), home, q.ID, session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: q.ArgsSHA256}); err != nil {
					t.Error(err)
				}
			}
			w.resume()
			if ran := len(pay.Calls()); ran != c.pending {
				t.Errorf("the handler ran %d times, want %d", ran, c.pending)
			}
		})
	}
}
