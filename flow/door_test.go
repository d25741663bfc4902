package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// What goes wrong on the way through the door: at its ends, between its parts, and
// when its run is over.

// A hook that answers in the place of a call that could not be recorded is what the
// model reads; the call's approval is as it was.
func TestHookAnswersForACallThatIsNotRecorded(t *testing.T) {
	p := askFirst(t, nil)
	hooks := []flow.Hooks{{OnToolError: func(*flow.ToolContext, *flow.ToolCall, error) (map[string]any, error) {
		return map[string]any{"later": true}, nil
	}}}
	p.agent.Hooks, p.cfg.Audit = hooks, failingAudit{p.audit, "call.intent"}
	o := p.run(answer(p.asks, `{"confirmed":true}`))
	if o.response("c1") != `{"later":true}` || len(p.tool.Calls()) != 0 || p.question().State != session.Approved {
		t.Errorf("response %s, %d calls, the question is %s", o.response("c1"), len(p.tool.Calls()), p.question().State)
	}
	p.cfg.Audit = p.audit
	if o := p.resume(); o.response("c1") != okResponse || len(p.tool.Calls()) != 1 {
		t.Errorf("response %s, %d calls", o.response("c1"), len(p.tool.Calls()))
	}
}

// What a hook did to a call that it answered does not count if that answer cannot be
// recorded as the approval's end.
func TestHookAnswersAndIsNotRecorded(t *testing.T) {
	for name, fail := range map[string]func(*pendingCall){
		"no beginning": func(p *pendingCall) { p.store = beginless{p.store} },
		"no end":       func(p *pendingCall) { p.store = failingStore{Store: p.store, end: errors.New("disk full")} },
		"no record":    func(p *pendingCall) { p.cfg.Audit = failingAudit{p.audit, "confirmation.used"} },
	} {
		t.Run(name, func(t *testing.T) {
			p := askFirst(t, nil)
			p.agent.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
				return map[string]any{"paid": "by a hook"}, ctx.SetState(map[string]any{"paid": true})
			}}}
			fail(p)
			if o := p.run(answer(p.asks, `{"confirmed":true}`)); o.errorOf("c1") != notStored {
				t.Errorf("the model reads %s", o.response("c1"))
			}
			if v, there := p.stored().State["paid"]; there || len(p.tool.Calls()) != 0 {
				t.Errorf("state has %v, %d calls", v, len(p.tool.Calls()))
			}
		})
	}
}

// An approved call that nobody could be told of is not made, and its model is told so,
// also if that end is lost.
func TestApprovalAndEndAreLost(t *testing.T) {
	p := askFirst(t, nil)
	p.store = failingStore{Store: p.store, end: errors.New("disk full")}
	p.cfg.Audit = failingAudit{p.audit, "confirmation.used"}
	if o := p.run(answer(p.asks, `{"confirmed":true}`)); o.errorOf("c1") != notStored || len(p.tool.Calls()) != 0 {
		t.Errorf("the model reads %s, %d calls", o.response("c1"), len(p.tool.Calls()))
	}
}

// A call that another run makes passes no more hooks here, and asks nobody.
func TestCallOfAnotherRunPassesNoHooks(t *testing.T) {
	p := askFirst(t, nil)
	p.agent.Hooks = []flow.Hooks{{
		BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
			return nil, ctx.RequestConfirmation("and this?", nil)
		},
		AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
			t.Error("a hook after the call")
			return nil, nil
		},
	}}
	p.store = overtaken{p.store}
	o := p.run(answer(p.asks, `{"confirmed":true}`))
	if len(o.errs) > 0 || o.response("c1") != "" || len(o.questions()) != 0 || len(p.records("confirmation.asked")) != 1 {
		t.Errorf("errors %v, response %q, %d questions, asked %+v", o.errs, o.response("c1"), len(o.questions()), p.records("confirmation.asked"))
	}
}

// A task that a run gave and did not begin, or that it ended in, is open: its call has
// no response, nobody is asked, and the next run goes on with it.
func TestTaskOfARunThatEnds(t *testing.T) {
	for name, c := range map[string]struct {
		limits flow.Limits
		before []string // tools that the model calls with the task
		asks   bool     // a hook asks a person about the task
		end    string   // of the task's call, as it is audited
	}{
		"at its beginning":            {end: "cancelled"},
		"at its beginning, and asked": {asks: true, end: "cancelled"},
		"and which was one too many":  {limits: flow.Limits{CallsPerStep: 1}, before: []string{"tool"}, end: "budget_exhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := flowtest.Call(give("d1", `{"request":"book"}`))
			if len(c.before) > 0 {
				calls = flowtest.Call(call("c1", c.before[0], ""), give("d1", `{"request":"book"}`))
			}
			w := newWorld(t, calls)
			w.cfg.Limits = c.limits
			w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) {
				cancel()
				return okResponse, nil
			})}
			w.agent.Agents = []*flow.Agent{worker("kid", flow.Task, finish("f", `{"result":"ok"}`))}
			w.agent.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
				if call.Name != "kid" || ctx.Err() != nil || len(c.before) > 0 {
					return nil, nil
				}
				cancel()
				if c.asks {
					return nil, ctx.RequestConfirmation("book?", nil)
				}
				return nil, nil
			}}}
			o := w.runIn(ctx, flow.Text("go"))
			if o.response("d1") != "" || len(o.questions()) != 0 {
				t.Errorf("response %s, %d questions", o.response("d1"), len(o.questions()))
			}
			if r := w.records("call.end"); len(r) != 1+len(c.before) || r[len(c.before)].Call != "d1" || r[len(c.before)].Code != c.end {
				t.Errorf("recorded %+v, want code %s", r, c.end)
			}
			w.agent.Hooks, w.cfg.Limits = nil, flow.Limits{}
			if o := w.say("go on"); o.response("d1") != `{"output":"ok"}` {
				t.Errorf("the next run: %s, response %s", o.authors(), o.response("d1"))
			}
		})
	}
}

// A call that waits for others when its run ends is not made, and its model is told so.
func TestCallThatWaitsWhenItsRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWorld(t, flowtest.Call(call("c1", "tool", ""), call("c2", "waits", "")))
		w.cfg.Limits.Parallel = 1
		waits := tool("waits")
		w.agent.Tools = []flow.Tool{waits, handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) {
			cancel()
			synctest.Wait() // nobody waits for the end of this one any more
			return okResponse, nil
		})}
		o := w.runIn(ctx, flow.Text("go"))
		if o.response("c1") != okResponse || !strings.HasPrefix(o.errorOf("c2"), string(abi.Cancelled)) || len(waits.Calls()) != 0 {
			t.Errorf("c1 %s, c2 %s, %d calls", o.response("c1"), o.response("c2"), len(waits.Calls()))
		}
	})
}

// A result whose judgement could not be recorded is not shown; its operator reads why.
func TestWhyAResultIsNotShown(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseResult}}}
	w.cfg.Audit = failingAudit{w.audit, "guard.allow"}
	got, o := finished(w)
	if got["c1"].Code != abi.PolicyUnavailable || !contains(got["c1"].Err.Error(), "disk full") || contains(o.errorOf("c1"), "disk") {
		t.Errorf("ended with %s, %v; the model reads %s", got["c1"].Code, got["c1"].Err, o.response("c1"))
	}
}

// A result that JSON cannot say is none.
func TestResultThatIsNoJSON(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Hooks = []flow.Hooks{{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
		return map[string]any{"n": math.NaN()}, nil
	}}}
	got, o := finished(w)
	if got["c1"].Code != abi.GuestOutputInvalid || !strings.HasPrefix(o.errorOf("c1"), string(abi.GuestOutputInvalid)) {
		t.Errorf("ended with %s, the model reads %s", got["c1"].Code, o.response("c1"))
	}
}

// A brokenStream is a streaming tool that fails after its first word.
type brokenStream struct{}

func (brokenStream) Spec() *flow.Spec { return &flow.Spec{Name: "streams"} }

func (brokenStream) Stream(*flow.ToolContext, flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		_ = yield(flow.Chunk{Text: "half of"}, nil) && yield(flow.Chunk{}, &flow.CallError{Code: abi.GuestTrap, Text: "broke off"})
	}
}

// What a stream said before it failed is no result.
func TestStreamThatFails(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "streams", "")))
	w.agent.Tools = []flow.Tool{brokenStream{}}
	got, o := finished(w)
	if got["c1"].Code != abi.GuestTrap || o.response("c1") != `{"error":"broke off"}` || w.calls()[0].Code != string(abi.GuestTrap) {
		t.Errorf("ended with %s, the model reads %s, stored %+v", got["c1"].Code, o.response("c1"), w.calls())
	}
}

// A panicAudit panics at one action.
type panicAudit struct {
	audit.Sink
	action string
}

func (a panicAudit) Append(ctx context.Context, r audit.Record) error {
	if r.Action == a.action {
		panic("lost the log")
	}
	return a.Sink.Append(ctx, r)
}

// An audit log that panics when a call has ended takes nothing but that call with it.
func TestAuditPanicsAtTheEnd(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", ""), call("c2", "tool", "")))
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	w.cfg.Audit = panicAudit{w.audit, "call.end"}
	o := w.say("go")
	if o.final() != "done" || len(witness.Calls()) != 2 {
		t.Errorf("the run ended with %q after %d calls", o.final(), len(witness.Calls()))
	}
	for _, id := range []string{"c1", "c2"} {
		if got := o.response(id); !strings.Contains(got, string(abi.StorageUnavailable)) {
			t.Errorf("%s shows %s, though nobody could record its end", id, got)
		}
	}
}

// Arguments that hooks made such that JSON cannot say them are shown to nobody.
func TestArgumentsThatCannotBeAreNotShown(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.agent.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
		call.Args["n"] = math.NaN()
		return nil, nil
	}}}
	var shown []any
	w.model.OnRequest = func(req *flow.Request, _ bool) {
		for _, content := range req.Contents {
			for _, p := range content.Parts {
				if p.FunctionCall != nil {
					shown = append(shown, p.FunctionCall.Args["n"])
				}
			}
		}
	}
	w.say("go")
	if len(shown) != 1 || shown[0] != json.Number("1") {
		t.Errorf("the model is shown %v, want its own 1", shown)
	}
}

// Who asks one guard by hand and names no limit gets the limit of a run.
func TestAskWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for late, want := range map[time.Duration]abi.Ruling{-1: abi.RulingAllow, +1: abi.RulingDeny} {
			g := &flowtest.Guard{Label: "g", Answer: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
				select {
				case <-time.After(time.Second + late):
				case <-ctx.Done():
				}
				return flowtest.Echo(q, abi.Allow()), nil
			}}
			q := abi.Question{Phase: abi.PhaseCall, Call: &abi.CallFacts{Tool: "tool"}}
			q.SetDocument(json.RawMessage("{}"))
			if j := flow.Ask(t.Context(), g, q, 0); j.Verdict.Ruling != want {
				t.Errorf("after %s: %s, %v, want %s", time.Second+late, j.Verdict.Ruling, j.Err, want)
			}
		}
	})
}

// A slowlyNamed guard takes its time to say its version when it is asked.
type slowlyNamed struct {
	*flowtest.Guard
	pause func()
}

func (g slowlyNamed) Version() string {
	g.pause()
	return g.Guard.Version()
}

// A verdict that came too late is none, also if nobody had looked for it before.
func TestLateVerdictThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
		witness := tool("tool")
		w.agent.Tools = []flow.Tool{witness}
		late := &flowtest.Guard{Label: "late", Answer: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
			<-ctx.Done()
			return flowtest.Echo(q, abi.Allow()), nil
		}}
		w.cfg.Limits.Guard = 0 // the default
		w.cfg.Guards = []flow.Guard{late, slowlyNamed{&flowtest.Guard{Label: "slow"}, func() { time.Sleep(2 * time.Second) }}}
		got, _ := finished(w)
		if got["c1"].Code != abi.PolicyUnavailable || len(witness.Calls()) != 0 || !contains(got["c1"].Err.Error(), "guard late: no verdict: 1s passed") {
			t.Errorf("ended with %s, %v, after %d calls", got["c1"].Code, got["c1"].Err, len(witness.Calls()))
		}
	})
}
