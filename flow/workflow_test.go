package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

// workflow makes the world's root an agent of a type that runs others.
func (w *world) workflow(kind flow.AgentType, agents ...*flow.Agent) {
	w.agent = flow.Agent{Name: "root", Type: kind, Agents: agents}
	w.agent.Model = nil
}

// plain runs a root that has no model.
func (w *world) plain(in flow.Input) outcome {
	w.t.Helper()
	r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return collect(w.t, r, w.t.Context(), in)
}

// Parallel agents write state and artifacts through tools and hooks; everything
// arrives, and one reads what was there before.
func TestParallelState(t *testing.T) {
	const agents, calls = 8, 8
	w := newWorld(t)
	w.cfg.Artifacts = flow.NewMemoryArtifacts()
	w.cfg.Hooks = []flow.Hooks{{AfterTool: func(ctx *flow.ToolContext, c *flow.ToolCall, _ map[string]any, _ error) (map[string]any, error) {
		return nil, ctx.SetState(map[string]any{"hook_" + c.ID: true})
	}}}
	put := handler("put", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		_, err := ctx.SaveArtifact(ctx.CallID(), genai.NewPartFromText("x"))
		return okResponse, errors.Join(err, ctx.SetState(map[string]any{"tool_" + ctx.CallID(): ctx.Agent()}))
	})
	var all []*flow.Agent
	for i := range agents {
		var asked []*genai.FunctionCall
		for j := range calls {
			asked = append(asked, call(fmt.Sprintf("c%d_%d", i, j), "put", `{}`))
		}
		a := kid(fmt.Sprint("p", i), flowtest.Call(asked...), flowtest.Say("done"))
		a.Tools, a.OutputKey = []flow.Tool{put}, fmt.Sprint("out", i)
		all = append(all, a)
	}
	w.workflow(flow.ParallelAgent, all...)
	o := w.plain(flow.Text("go"))
	if len(o.errs) > 0 || len(o.events) != 3*agents {
		t.Fatalf("errors %v, %d events", o.errs, len(o.events))
	}
	state := w.stored().State
	if len(state) != agents*(2*calls+1) {
		t.Errorf("%d state keys: %v", len(state), state)
	}
	for i := range agents {
		for j := range calls {
			if key := fmt.Sprintf("tool_c%d_%d", i, j); state[key] != fmt.Sprint("p", i) {
				t.Errorf("%s is %v", key, state[key])
			}
		}
	}
	for _, ev := range o.events {
		if ev.Branch != "root."+ev.Author {
			t.Errorf("event of %s on branch %q", ev.Author, ev.Branch)
		}
	}
	sameEvents(t, w, o)
}

// Whether a sibling fails or the consumer stops: the other agents are cancelled, one
// error at most is yielded, and nothing is left running (TestMain looks).
func TestParallelEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		stop bool
		kid  *flow.Agent
		want string
	}{
		{"sibling fails", false, kid("p1", []flowtest.Reply{{Err: errors.New("503")}}), "503"},
		{"consumer stops", true, kid("p1", flowtest.Say("hi")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			began := make(chan struct{})
			c.kid.Hooks = []flow.Hooks{{BeforeModel: func(*flow.CallbackContext, *flow.Request) (*session.Response, error) {
				<-began
				return nil, nil
			}}}
			slow := kid("p2", flowtest.Call(call("c1", "wait", `{}`)))
			slow.Tools = []flow.Tool{handler("wait", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				close(began)
				<-ctx.Done()
				return "", ctx.Err()
			})}
			w.workflow(flow.ParallelAgent, c.kid, slow)
			r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
			if err != nil {
				t.Fatal(err)
			}
			var errs []string
			for ev, err := range r.Run(t.Context(), home, flow.Text("go")) {
				if err != nil {
					errs = append(errs, err.Error())
				} else if c.stop && ev.Author == "p1" {
					break
				}
			}
			if got := strings.Join(errs, "; "); got != c.want {
				t.Errorf("errors %q, want %q", got, c.want)
			}
			checkCalls(t, w, session.CallUnknown)
		})
	}
}

// panickyQuestions is a store that panics when it is asked for questions.
type panickyQuestions struct{ session.Store }

func (panickyQuestions) Questions(context.Context, session.Key) ([]session.Question, error) {
	panic("lost it")
}

func TestParallelPanics(t *testing.T) {
	w := newWorld(t)
	w.store = panickyQuestions{w.store}
	w.workflow(flow.ParallelAgent, kid("p1", flowtest.Say("hi")), kid("p2", flowtest.Say("hi")))
	o := w.plain(answer("q", `{"confirmed":true}`))
	if len(o.errs) != 1 || !strings.HasSuffix(o.errs[0].Error(), ": panic: lost it") || !strings.HasPrefix(o.errs[0].Error(), "agent p") {
		t.Errorf("errors %v", o.errs)
	}
}

// A consumer's panic goes on after the agents have ended.
func TestParallelConsumerPanics(t *testing.T) {
	w := newWorld(t)
	w.workflow(flow.ParallelAgent, kid("p1", flowtest.Say("hi")), kid("p2", flowtest.Say("hi")))
	r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("recovered %v", p)
		}
	}()
	for range r.Run(t.Context(), home, flow.Text("go")) {
		panic("mine")
	}
}

func TestLoopEnds(t *testing.T) {
	escalate := func(n int) *flow.Agent { // escalates in its n-th turn
		var steps [][]flowtest.Reply
		for range n - 1 {
			steps = append(steps, flowtest.Say("round"))
		}
		a := kid("w", append(steps, flowtest.Call(call("x", "exit_loop", `{}`)))...)
		a.Tools = []flow.Tool{flow.ExitLoop()}
		return a
	}
	silent := kid("w") // never asks its model
	silent.Hooks = []flow.Hooks{{BeforeAgent: func(*flow.CallbackContext) (*genai.Content, error) {
		return genai.NewContentFromText("no", genai.RoleModel), nil
	}}}
	after := kid("after", flowtest.Say("after"), flowtest.Say("after"))
	for _, c := range []struct {
		name string
		root *flow.Agent
		want string
	}{
		{"iterations", &flow.Agent{Name: "l", Type: flow.LoopAgent, MaxIterations: 2, Agents: []*flow.Agent{kid("w", flowtest.Say("a"), flowtest.Say("b"))}}, "w:a w:b"},
		{"escalation skips the rest of the round", &flow.Agent{Name: "l", Type: flow.LoopAgent, Agents: []*flow.Agent{escalate(2), after}},
			"w:round after:after w(exit_loop) w<exit_loop"},
		{"a loop in a sequence", &flow.Agent{Name: "s", Type: flow.SequentialAgent, Agents: []*flow.Agent{
			{Name: "l", Type: flow.LoopAgent, Agents: []*flow.Agent{escalate(1)}}, kid("z", flowtest.Say("z"))}}, "w(exit_loop) w<exit_loop z:z"},
		{"steps", &flow.Agent{Name: "l", Type: flow.LoopAgent, Agents: []*flow.Agent{kid("w", flowtest.Say("a"), flowtest.Say("b"), flowtest.Say("c"), flowtest.Say("d"))}},
			"w:a w:b w:c w!budget_exhausted"},
		{"rounds without a model", &flow.Agent{Name: "l", Type: flow.LoopAgent, Agents: []*flow.Agent{silent}}, "w:no w:no w:no w:no l!budget_exhausted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.agent, w.cfg.Limits.Steps = *c.root, 3
			o := w.plain(flow.Text("go"))
			if got := o.authors(); len(o.errs) > 0 || got != c.want {
				t.Errorf("got %s (%v), want %s", got, o.errs, c.want)
			}
		})
	}
}

// The step limit ends all agents of a run with one event.
func TestParallelBudget(t *testing.T) {
	for range 200 { // which agent meets the limit first, and who sees it, is chance
		w := newWorld(t)
		w.cfg.Limits.Steps = 2
		busy := func(name string) *flow.Agent {
			a := kid(name, flowtest.Call(call("c", "tool", `{}`)), flowtest.Call(call("d", "tool", `{}`)), flowtest.Say("done"))
			a.Tools = []flow.Tool{tool("tool")}
			return a
		}
		w.agent = flow.Agent{Name: "s", Type: flow.SequentialAgent, Agents: []*flow.Agent{
			{Name: "par", Type: flow.ParallelAgent, Agents: []*flow.Agent{busy("p1"), busy("p2"), busy("p3")}}, kid("never", flowtest.Say("x"))}}
		o := w.plain(flow.Text("go"))
		if n := strings.Count(o.authors(), "budget_exhausted"); n != 1 || len(o.errs) > 0 || strings.Contains(o.authors(), "never") {
			t.Fatalf("%s, errors %v", o.authors(), o.errs)
		}
	}
}

// A limit that is met inside a call is told, even if an agent beside it ends the run
// before the agent that made the call can say so.
func TestParallelBudgetInsideCall(t *testing.T) {
	w := newWorld(t)
	w.cfg.Limits.Steps = 3
	done, met := make(chan struct{}), make(chan struct{})
	w.cfg.Hooks = []flow.Hooks{{AfterAgent: func(ctx *flow.CallbackContext) (*genai.Content, error) {
		switch ctx.Agent() {
		case "p1":
			close(done)
			<-met
		case "kid":
			close(met)
			<-ctx.Done()
		}
		return nil, nil
	}}}
	below := worker("kid", flow.SingleTurn, flowtest.Call(call("c", "tool", `{}`)), flowtest.Say("never"))
	below.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) {
		<-done
		return okResponse, nil
	})}
	p2 := kid("p2", flowtest.Call(give("d", `{"request":"x"}`)))
	p2.Agents = []*flow.Agent{below}
	w.workflow(flow.ParallelAgent, kid("p1", flowtest.Say("done")), p2)
	if o := w.plain(flow.Text("go")); strings.Count(o.authors(), "budget_exhausted") != 1 || len(o.errs) > 0 {
		t.Errorf("%s, errors %v", o.authors(), o.errs)
	}
}

// Of agents that fail at the same time one error ends the run. What the others failed
// with, or panicked, goes to the operator; that they were cancelled is no news.
func TestParallelFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(ctx context.Context) error
		logs  string
	}{
		"fails, too":   {func(context.Context) error { return errors.New("second") }, "second"},
		"panics":       {func(context.Context) error { panic("lost it") }, "lost it"},
		"is cancelled": {func(ctx context.Context) error { return ctx.Err() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var log strings.Builder
			w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			inside := make(chan struct{})
			first, second := kid("p1", []flowtest.Reply{{Err: errors.New("first")}}), kid("p2", flowtest.Say("never"))
			first.Model.(*flowtest.Model).OnRequest = func(*flow.Request, bool) { <-inside }
			second.Hooks = []flow.Hooks{{BeforeModel: func(ctx *flow.CallbackContext, _ *flow.Request) (*session.Response, error) {
				close(inside)
				<-ctx.Done()
				return nil, c.fails(ctx)
			}}}
			w.workflow(flow.ParallelAgent, first, second)
			o := w.plain(flow.Text("go"))
			if len(o.errs) != 1 || o.errs[0].Error() != "first" {
				t.Errorf("errors %v, want the first alone", o.errs)
			}
			if got := log.String(); !strings.Contains(got, c.logs) || (got == "") != (c.logs == "") {
				t.Errorf("logged %q, want %q", got, c.logs)
			}
		})
	}
}

// A limit that is met inside a call is told, even if the turn of the agent that made
// the call ends with it: here because a person is asked about another call.
func TestBudgetInsideCallOfTheLastStep(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d", `{"request":"x"}`), call("p", "pay", `{}`)))
	w.cfg.Limits.Steps = 2
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	below := worker("kid", flow.SingleTurn, flowtest.Call(call("c", "tool", `{}`)), flowtest.Say("never"))
	below.Tools = []flow.Tool{tool("tool")}
	w.agent.Agents = []*flow.Agent{below}
	o := w.say("go")
	if got, want := o.authors(), "agent(kid) agent(pay) kid(tool) kid<tool agent<kid agent<pay agent(adk_request_confirmation) agent!budget_exhausted"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if o := w.run(answer(o.questions()[0].ID, `{"confirmed":true}`)); o.response("p") != okResponse {
		t.Errorf("the approved call got %s", o.response("p"))
	}
}

// An agent that has done its work inside a call has its result, even if another one
// has met the run's limit meanwhile.
func TestBudgetOfASiblingInsideCall(t *testing.T) {
	for _, mode := range []flow.Mode{flow.SingleTurn, flow.Task} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Limits.Steps = 4 // of p, of q, of kid, of kid2
			asked, met, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			w.cfg.Hooks = []flow.Hooks{{AfterAgent: func(ctx *flow.CallbackContext) (*genai.Content, error) {
				if ctx.Agent() == "kid" {
					close(met)
				}
				return nil, nil
			}}}
			first := worker("kid", flow.SingleTurn, flowtest.Call(call("c", "tool", `{}`)), flowtest.Say("never"))
			first.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) {
				<-asked
				return okResponse, nil
			})}
			last, want := flowtest.Say("ready"), `{"result":"ready"}`
			if mode == flow.Task {
				last, want = finish("f", `{"result":"ready"}`), `{"output":"ready"}`
			}
			second := worker("kid2", mode, last)
			second.Model.(*flowtest.Model).OnRequest = func(*flow.Request, bool) { close(asked); <-met }
			p, q := kid("p", flowtest.Call(give("d1", `{"request":"x"}`), call("h", "hold", `{}`))), kid("q", flowtest.Call(call("d2", "kid2", `{"request":"y"}`)))
			p.Agents, q.Agents = []*flow.Agent{first}, []*flow.Agent{second}
			p.Tools = []flow.Tool{handler("hold", func(*flow.ToolContext, json.RawMessage) (string, error) { // p does not end the run before
				<-done
				return okResponse, nil
			})}
			w.cfg.Observer.Finished = func(info flow.CallInfo, _ flow.CallResult) {
				if info.ID == "d2" {
					close(done)
				}
			}
			w.workflow(flow.ParallelAgent, p, q)
			o := w.plain(flow.Text("go"))
			if got := o.response("d2"); got != want {
				t.Errorf("kid2's result is %s, want %s (%s)", got, want, o.authors())
			}
			if n := strings.Count(o.authors(), "budget_exhausted"); n != 1 || len(o.errs) > 0 {
				t.Errorf("%s, errors %v", o.authors(), o.errs)
			}
		})
	}
}

// A consumer that stops has no call begun after it: a place that is free by then is
// taken by nobody.
func TestNothingBeginsAfterTheConsumerStopped(t *testing.T) {
	calls := []*genai.FunctionCall{give("d", `{"request":"x"}`)}
	for i := range 20 {
		calls = append(calls, call(fmt.Sprint("c", i), "tool", `{}`))
	}
	for range 20 { // what ends first is chance
		w := newWorld(t, flowtest.Call(calls...))
		w.cfg.Limits.Parallel = 1
		witness := tool("tool")
		w.agent.Tools, w.agent.Agents = []flow.Tool{witness}, []*flow.Agent{worker("kid", flow.SingleTurn, flowtest.Say("hi"))}
		for ev := range w.runner().Run(t.Context(), home, flow.Text("go")) {
			if ev.Author == "kid" {
				break
			}
		}
		if n := len(witness.Calls()); n > 0 {
			t.Fatalf("%d calls were begun", n)
		}
	}
}

// After an error the run has ended: a limit that another agent meets at that moment is
// no part of its history.
func TestNoLimitAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Limits.Steps = 2
		shown := make(chan struct{})
		first, second := kid("p1", []flowtest.Reply{{Err: errors.New("broken")}}), kid("p2", flowtest.Call(call("c", "tool", `{}`)))
		first.Model.(*flowtest.Model).OnRequest = func(*flow.Request, bool) { <-shown }
		second.Tools = []flow.Tool{tool("tool")}
		w.workflow(flow.ParallelAgent, first, second)
		r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range r.Run(t.Context(), home, flow.Text("go")) {
			if err == nil && len(ev.Responses()) > 0 {
				close(shown)
			}
			synctest.Wait() // p1 waits to say that it failed; then p2, that it may not go on
		}
		for _, ev := range w.stored().Events {
			if ev.ErrorCode != "" {
				t.Errorf("stored %s behind an error", toJSON(t, ev))
			}
		}
	})
}
