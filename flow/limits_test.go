package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

func TestStepsPerRun(t *testing.T) {
	for _, c := range []struct{ limit, want int }{{1, 1}, {3, 3}, {0, 50}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			var steps [][]flowtest.Reply
			for i := range c.want + 10 {
				steps = append(steps, flowtest.Call(call(fmt.Sprint("c", i), "tool", `{}`)))
			}
			w := newWorld(t, steps...)
			witness := tool("tool")
			w.agent.Tools = []flow.Tool{witness}
			w.cfg.Limits.Steps = c.limit
			after := 0
			w.agent.Hooks = []flow.Hooks{{AfterAgent: func(*flow.CallbackContext) (*genai.Content, error) { after++; return nil, nil }}}
			o := w.say("go")
			last := o.events[len(o.events)-1]
			if last.ErrorCode != string(abi.BudgetExhausted) || last.ErrorMessage != fmt.Sprintf("the run reached its limit of %d steps", c.want) {
				t.Errorf("the run ends with %+v", last.Response)
			}
			if w.model.Requests() != c.want || len(witness.Calls()) != c.want || after != 1 {
				t.Errorf("%d requests, %d calls, %d after-agent hooks; want %d, %[4]d, 1", w.model.Requests(), len(witness.Calls()), after, c.want)
			}
			sameEvents(t, w, o)
		})
	}
}

// sameEvents checks that what was yielded is what is stored, behind the user's
// message.
func sameEvents(t *testing.T, w *world, o outcome) {
	t.Helper()
	stored := w.stored().Events
	if len(stored) != len(o.events)+1 {
		t.Errorf("%d events are stored, want the message and %d that were shown", len(stored), len(o.events))
		return
	}
	for i, ev := range o.events {
		if toJSON(t, ev) != toJSON(t, stored[i+1]) {
			t.Errorf("event %d:\n shown  %s\nstored %s", i, toJSON(t, ev), toJSON(t, stored[i+1]))
		}
	}
}

func TestCallsPerStep(t *testing.T) {
	for _, c := range []struct{ limit, want int }{{0, 64}, {2, 2}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			var calls []*genai.FunctionCall
			for i := range c.want + 2 {
				calls = append(calls, call(fmt.Sprint("c", i), "tool", fmt.Sprintf(`{"n":%d}`, i)))
			}
			w := newWorld(t, flowtest.Call(calls...))
			witness := tool("tool")
			w.agent.Tools = []flow.Tool{witness}
			w.cfg.Limits.CallsPerStep = c.limit
			o := w.say("go")
			if len(witness.Calls()) != c.want || len(w.calls()) != c.want {
				t.Errorf("%d calls ran, %d are stored, want %d", len(witness.Calls()), len(w.calls()), c.want)
			}
			for i := range calls {
				got := o.response(fmt.Sprint("c", i))
				want := okResponse
				if i >= c.want {
					want = `{"error":"budget_exhausted: the run used up its budget"}`
				}
				if got != want {
					t.Errorf("response of call %d: %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

// Tasks that a step gives count as its calls.
func TestTasksCountAsCalls(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("n", "note", ""), give("d1", `{"request":"x"}`), give("d2", `{"request":"y"}`)))
	kid := worker("kid", flow.Task, finish("f1", `{"result":"1"}`))
	w.agent.Agents = []*flow.Agent{kid}
	w.agent.Tools = []flow.Tool{tool("note")}
	w.cfg.Limits.CallsPerStep = 2
	o := w.say("go")
	if got, want := o.response("d2"), `{"error":"budget_exhausted: the run used up its budget"}`; got != want {
		t.Errorf("the third call got %s, want %s", got, want)
	}
	if got := o.response("d1"); strings.Contains(got, "error") {
		t.Errorf("the second call got %s", got)
	}
}

func TestParallelCalls(t *testing.T) {
	for _, c := range []struct {
		limit, calls, most int
		took               time.Duration
	}{{0, 64, 64, time.Second}, {1, 5, 1, 5 * time.Second}, {3, 10, 3, 4 * time.Second}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []*genai.FunctionCall
				for i := range c.calls {
					calls = append(calls, call(fmt.Sprint("c", i), "tool", `{}`))
				}
				w := newWorld(t, flowtest.Call(calls...))
				var p gauge
				w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) {
					p.add(1)
					defer p.add(-1)
					time.Sleep(time.Second) // of the bubble's clock
					return okResponse, nil
				})}
				w.cfg.Limits.Parallel = c.limit
				began := time.Now()
				w.say("go")
				if p.most != c.most || time.Since(began) != c.took {
					t.Errorf("at most %d ran at once, for %s, want %d, %s", p.most, time.Since(began), c.most, c.took)
				}
			})
		})
	}
}

// A stuckModel answers when its context ends.
type stuckModel struct{}

func (stuckModel) Name() string { return "stuck" }

func (stuckModel) Generate(ctx context.Context, _ *flow.Request, _ bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		<-ctx.Done()
		yield(nil, ctx.Err())
	}
}

// slowGuard is a guard that decides when its time is over.
func slowGuard(in abi.Phase) *flowtest.Guard {
	return &flowtest.Guard{Label: "g", In: []abi.Phase{in}, Answer: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
		<-ctx.Done()
		return flowtest.Echo(q, abi.Allow()), nil
	}}
}

func TestWallOfARun(t *testing.T) {
	for _, c := range []struct {
		name  string
		stuck func(w *world)
		want  string // of call c1
		state session.CallState
	}{
		{"in the model", func(w *world) { w.agent.Model = stuckModel{} }, "", ""},
		{"in a handler", func(w *world) {
			w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})}
		}, "outcome_unknown: the call was interrupted and may or may not have had its effect", session.CallUnknown},
		{"in a handler that ends well", func(w *world) {
			w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				<-ctx.Done()
				return okResponse, nil
			})}
		}, "", session.CallDone},
		{"in a hook", func(w *world) {
			w.agent.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
				<-ctx.Done()
				return nil, nil
			}}}
		}, "budget_exhausted: the run used up its budget", ""},
		{"in a guard", func(w *world) {
			w.cfg.Guards = []flow.Guard{slowGuard(abi.PhaseCall)}
		}, unavailable, ""},
		{"in a guard of the request", func(w *world) { w.cfg.Guards = []flow.Guard{slowGuard(abi.PhaseRequest)} }, "", ""},
		{"in a guard of the response", func(w *world) { w.cfg.Guards = []flow.Guard{slowGuard(abi.PhaseResponse)} }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
				w.agent.Tools = []flow.Tool{tool("tool")}
				w.cfg.Limits.Wall, w.cfg.Limits.Guard = 7*time.Second, time.Hour
				c.stuck(w)
				began := time.Now()
				o := w.say("go")
				if took := time.Since(began); took != 7*time.Second {
					t.Errorf("the run took %s", took)
				}
				last := o.events[len(o.events)-1]
				if last.ErrorCode != string(abi.BudgetExhausted) || last.ErrorMessage != "the run reached its limit of 7s" {
					t.Errorf("the run ends with %+v", last.Response)
				}
				if got := o.errorOf("c1"); got != c.want {
					t.Errorf("the model reads %q, want %q", got, c.want)
				}
				checkCalls(t, w, c.state)
				sameEvents(t, w, o)
			})
		})
	}
}

// checkCalls checks that one call was begun and is in the state, or that none was.
func checkCalls(t *testing.T, w *world, want session.CallState) {
	t.Helper()
	calls := w.calls()
	if want == "" && len(calls) == 0 || want != "" && len(calls) == 1 && calls[0].State == want {
		return
	}
	t.Errorf("calls %+v, want one that is %q", calls, want)
}

func TestLimitsThatCannotBe(t *testing.T) {
	for _, l := range []flow.Limits{{Steps: -1}, {Depth: -1}, {CallsPerStep: -1}, {Parallel: -1}, {Wall: -1}, {Guard: -1}} {
		if _, err := flow.NewRunner(&flow.Agent{Name: "a"}, session.NewMemory(), flow.Config{Limits: l}); err == nil {
			t.Errorf("limits %+v were taken", l)
		}
	}
	if _, err := flow.NewRunner(&flow.Agent{Name: "a"}, session.NewMemory(), flow.Config{Expires: -1}); err == nil {
		t.Error("a negative expiry was taken")
	}
}

// A hook that would never be called is refused.
func TestAgentsThatCannotBe(t *testing.T) {
	for name, a := range map[string]*flow.Agent{
		"no agent":       nil,
		"no name":        {},
		"a bad name":     {Name: "my agent"},
		"the user's":     {Name: "user"},
		"bad contents":   {Name: "a", IncludeContents: "all"},
		"a message hook": {Name: "a", Hooks: []flow.Hooks{{OnUserMessage: func(*flow.CallbackContext, *genai.Content) (*genai.Content, error) { return nil, nil }}}},
		"a run hook":     {Name: "a", Hooks: []flow.Hooks{{BeforeRun: func(*flow.CallbackContext) (*genai.Content, error) { return nil, nil }}}},
		"an end hook":    {Name: "a", Hooks: []flow.Hooks{{AfterRun: func(*flow.CallbackContext) {}}}},
		"an event hook":  {Name: "a", Hooks: []flow.Hooks{{OnEvent: func(*flow.CallbackContext, *session.Event) (*session.Event, error) { return nil, nil }}}},
	} {
		if _, err := flow.NewRunner(a, session.NewMemory(), flow.Config{}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
