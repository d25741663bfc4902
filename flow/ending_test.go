package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A longRun is a world whose models ask for many calls.
type longRun struct {
	*world
	models []*flowtest.Model
	write  *flowtest.Tool
	keep   *flowtest.Tool
	watch  *countedStream
	inside gauge // code of the world that runs: models, hooks, handlers
	judge  gauge // and guards, which a run leaves behind when their time is over
	after  int   // after-run hooks
}

// A countedStream is a tool that answers in chunks.
type countedStream struct {
	long *longRun
	mu   sync.Mutex
	n    int
}

func (s *countedStream) Spec() *flow.Spec { return &flow.Spec{Name: "watch"} }

func (s *countedStream) Stream(ctx *flow.ToolContext, _ flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		defer s.long.enter()()
		s.mu.Lock()
		s.n++
		s.mu.Unlock()
		for _, text := range []string{"a", "b"} {
			if !yield(flow.Chunk{Text: text}, nil) {
				return
			}
		}
	}
}

func (l *longRun) enter() (leave func()) {
	l.inside.add(1)
	return func() { l.inside.add(-1) }
}

// ran is how many handlers have run.
func (l *longRun) ran() int {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	return len(l.write.Calls()) + len(l.keep.Calls()) + l.watch.n
}

// steps are answers of a model that ask for parallel calls. In a stream parts come first.
func (l *longRun) steps(prefix string, streamed bool, n int, last ...[]flowtest.Reply) [][]flowtest.Reply {
	var steps [][]flowtest.Reply
	for i := range n {
		var calls []*genai.FunctionCall
		for j, name := range []string{"write", "keep", "watch", "write"} {
			calls = append(calls, call(fmt.Sprint(prefix, i, "-", j), name, `{"request":"r"}`))
		}
		steps = append(steps, flowtest.Call(calls...))
	}
	steps = append(steps, last...)
	if streamed {
		for i, replies := range steps {
			said := func(text string) flowtest.Reply {
				r := flowtest.Say(text)[0]
				r.Response.Partial = true
				return r
			}
			steps[i] = append([]flowtest.Reply{said("well"), said(", then")}, replies...)
		}
	}
	return steps
}

// agent is an agent with the tools of the world.
func (l *longRun) agent(name string, mode flow.Mode, steps ...[]flowtest.Reply) *flow.Agent {
	m := &flowtest.Model{ModelName: name, Steps: steps}
	m.OnRequest = func(*flow.Request, bool) { defer l.enter()() }
	l.models = append(l.models, m)
	return &flow.Agent{Name: name, Mode: mode, Model: m, Tools: []flow.Tool{l.write, l.keep, l.watch}}
}

func newLongRun(t *testing.T, build func(l *longRun, streamed bool), streamed bool) *longRun {
	l := &longRun{world: newWorld(t)}
	l.watch = &countedStream{long: l}
	l.write = handler("write", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		defer l.enter()()
		return okResponse, ctx.SetState(map[string]any{ctx.CallID(): true})
	})
	l.keep = handler("keep", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		defer l.enter()()
		_, err := ctx.SaveArtifact(ctx.CallID(), genai.NewPartFromText("kept"))
		return okResponse, err
	})
	l.cfg.Artifacts = flow.NewMemoryArtifacts()
	l.cfg.Hooks = []flow.Hooks{{
		AfterTool: func(ctx *flow.ToolContext, _ *flow.ToolCall, _ map[string]any, _ error) (map[string]any, error) {
			defer l.enter()()
			return nil, ctx.SetState(map[string]any{"last": ctx.CallID()})
		},
		OnEvent: func(*flow.CallbackContext, *session.Event) (*session.Event, error) {
			defer l.enter()()
			return nil, nil
		},
		AfterRun: func(*flow.CallbackContext) { l.after++ },
	}}
	l.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		l.judge.add(1)
		defer l.judge.add(-1)
		return flowtest.Echo(q, abi.Allow()), nil
	}}}
	build(l, streamed)
	return l
}

// longRuns are runs in which all kinds of agents make calls.
var longRuns = map[string]func(l *longRun, streamed bool){
	"one agent": func(l *longRun, streamed bool) {
		l.world.agent = *l.agent("agent", "", l.steps("c", streamed, 5, flowtest.Say("done"))...)
	},
	"single turns": func(l *longRun, streamed bool) {
		l.world.agent = *l.agent("agent", "", l.steps("c", streamed, 1, flowtest.Call(call("w", "write", `{}`), call("k", "kid", `{"request":"r"}`), call("v", "keep", `{}`)), flowtest.Say("done"))...)
		l.world.agent.Agents = []*flow.Agent{l.agent("kid", flow.SingleTurn, l.steps("k", streamed, 2, flowtest.Say("kid is done"))...)}
	},
	"two single turns, one within": func(l *longRun, streamed bool) {
		l.world.agent = *l.agent("agent", "", l.steps("c", streamed, 0, flowtest.Call(call("w", "write", `{}`), call("k", "kid", `{"request":"r"}`), call("o", "other", `{"request":"r"}`)), flowtest.Say("done"))...)
		mid := l.agent("kid", flow.SingleTurn, l.steps("k", streamed, 0, flowtest.Call(call("x", "keep", `{}`), call("l", "low", `{"request":"r"}`)), flowtest.Say("kid is done"))...)
		mid.Agents = []*flow.Agent{l.agent("low", flow.SingleTurn, l.steps("l", streamed, 1, flowtest.Say("low is done"))...)}
		l.world.agent.Agents = []*flow.Agent{mid, l.agent("other", flow.SingleTurn, l.steps("o", streamed, 1, flowtest.Say("other is done"))...)}
	},
	"tasks": func(l *longRun, streamed bool) {
		l.world.agent = *l.agent("agent", "", l.steps("c", streamed, 1, flowtest.Call(call("t1", "kid", `{"request":"r"}`), call("w", "write", `{}`), call("t2", "kid", `{"request":"r"}`)), flowtest.Say("done"))...)
		l.world.agent.Agents = []*flow.Agent{l.agent("kid", flow.Task, append(l.steps("k", streamed, 1, finish("f1", `{"result":"ok"}`)), l.steps("m", streamed, 1, finish("f2", `{"result":"ok"}`))...)...)}
	},
	"a transfer": func(l *longRun, streamed bool) {
		l.world.agent = *l.agent("agent", "", l.steps("c", streamed, 1, flowtest.Call(call("w", "write", `{}`), call("t", "transfer_to_agent", `{"agent_name":"kid"}`)))...)
		l.world.agent.Agents = []*flow.Agent{l.agent("kid", "", l.steps("k", streamed, 2, flowtest.Say("kid is done"))...)}
	},
	"agents as tools": func(l *longRun, streamed bool) {
		l.world.agent = *l.agent("agent", "", l.steps("c", streamed, 1, flowtest.Call(call("w", "write", `{}`), call("k", "kid", `{"request":"r"}`), call("o", "other", `{"request":"r"}`)), flowtest.Say("done"))...)
		other := l.agent("other", flow.SingleTurn, l.steps("o", streamed, 1, flowtest.Say("other is done"))...)
		l.world.agent.Agents = []*flow.Agent{other}
		l.world.agent.Tools = append(l.world.agent.Tools, flow.AgentTool(l.agent("kid", "", l.steps("k", streamed, 2, flowtest.Say("kid is done"))...), flow.AgentToolOptions{}))
	},
	"a sequence": func(l *longRun, streamed bool) {
		l.world.agent = flow.Agent{Name: "agent", Type: flow.SequentialAgent, Agents: []*flow.Agent{
			l.agent("one", "", l.steps("c", streamed, 2, flowtest.Say("one is done"))...), l.agent("two", "", l.steps("k", streamed, 2, flowtest.Say("two is done"))...)}}
	},
	"a loop": func(l *longRun, streamed bool) {
		l.world.agent = flow.Agent{Name: "agent", Type: flow.LoopAgent, MaxIterations: 2, Agents: []*flow.Agent{
			l.agent("one", "", append(l.steps("c", streamed, 1, flowtest.Say("once")), l.steps("k", streamed, 1, flowtest.Say("twice"))...)...)}}
	},
	"in parallel": func(l *longRun, streamed bool) {
		l.world.agent = flow.Agent{Name: "agent", Type: flow.ParallelAgent, Agents: []*flow.Agent{
			l.agent("one", "", l.steps("c", streamed, 2, flowtest.Say("one is done"))...), l.agent("two", "", l.steps("k", streamed, 2, flowtest.Say("two is done"))...)}}
	},
}

// However long a run is and whoever works in it, streamed or not: when its consumer
// stops or panics after any event, or its context ends there, nothing of it runs on, every call
// that ran has its end on record and one response in the history, and no call runs
// later.
func TestRunsEndAtAnyEvent(t *testing.T) {
	for name, build := range longRuns {
		for _, streamed := range []bool{false, true} {
			in := flow.Text("go")
			in.Stream = streamed
			whole := newLongRun(t, build, streamed)
			o := whole.run(in)
			if len(o.errs) > 0 || len(o.events) < 6 || streamed && len(o.events) < 14 {
				t.Fatalf("%s, streamed %t: %d events, errors %v: %s", name, streamed, len(o.events), o.errs, o.authors())
			}
			whole.complete(t, o.events)
			ends := []string{"stops", "panics", "cancels"}
			if !streamed {
				ends = ends[:1]
			}
			for _, end := range ends {
				t.Run(fmt.Sprint(name, ", streamed ", streamed, ", ", end), func(t *testing.T) {
					for n := 1; n <= len(o.events); n++ {
						l := newLongRun(t, build, streamed)
						events := l.endAt(t, n, end, in)
						l.complete(t, events)
						if t.Failed() {
							t.Fatalf("it ended at event %d: %s", n, (&outcome{events: events}).authors())
						}
						before := l.ran()
						for _, m := range l.models { // whoever goes on, nothing new is asked for
							m.Steps = m.Steps[:m.Requests():m.Requests()]
							for range 10 {
								m.Steps = append(m.Steps, flowtest.Say("later"))
							}
						}
						if l.say("and now?"); l.ran() != before {
							t.Fatalf("it ended at event %d, and the next message ran %d calls", n, l.ran()-before)
						}
					}
				})
			}
		}
	}
}

// endAt runs until the nth event and ends there. It returns what was yielded.
func (l *longRun) endAt(t *testing.T, n int, end string, in flow.Input) (events []*session.Event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer func() {
		if p := recover(); p != nil && (p != "mine" || end != "panics") {
			panic(p)
		}
	}()
	for ev, err := range l.runner().Run(ctx, home, in) {
		if err != nil {
			if end != "cancels" || !errors.Is(err, context.Canceled) {
				t.Errorf("the run failed: %v", err)
			}
			continue
		}
		if events = append(events, ev); len(events) != n {
			continue
		}
		switch end {
		case "panics":
			panic("mine")
		case "cancels":
			cancel()
			continue
		}
		break
	}
	return events
}

// complete checks what is left of a run.
func (l *longRun) complete(t *testing.T, yielded []*session.Event) {
	t.Helper()
	if n := l.inside.count(); n != 0 {
		t.Errorf("%d pieces of the run outlive it", n)
	}
	for l.judge.count() != 0 {
		runtime.Gosched()
	}
	if l.after != 1 {
		t.Errorf("after-run hooks ran %d times", l.after)
	}
	stored := l.stored().Events
	told := map[string]int{}
	for _, ev := range stored {
		for _, r := range ev.Responses() {
			told[r.ID]++
		}
	}
	done := 0
	for _, c := range l.calls() {
		if c.State == session.CallIntent {
			t.Errorf("call %s has no end", c.ID.Call)
		}
		task := false // it may be open
		for _, a := range l.world.agent.Agents {
			task = task || a.Name == c.Tool && a.Mode == flow.Task
		}
		if inner := c.ID.Run != stored[0].InvocationID; inner { // told in a session that is gone
			if told[c.ID.Call] != 0 {
				t.Errorf("call %s of another run is told of %d times", c.ID.Call, told[c.ID.Call])
			}
		} else if n := told[c.ID.Call]; n > 1 || n == 0 && !task {
			t.Errorf("%d responses to call %s are stored", n, c.ID.Call)
		}
		if slices.Contains([]string{"write", "keep", "watch"}, c.Tool) && c.State == session.CallDone {
			done++
		}
	}
	if ran := l.ran(); done != ran {
		t.Errorf("%d calls ran, %d are recorded", ran, done)
	}
	at := 1 // after the message, events are stored in the order in which they were yielded
	for _, ev := range yielded {
		if ev.Partial {
			continue
		}
		i := slices.IndexFunc(stored[at:], func(s *session.Event) bool { return s.ID == ev.ID })
		if i < 0 {
			t.Fatalf("event %s was yielded and not stored, or in another order", toJSON(t, ev))
		}
		at += i + 1
	}
	for _, ev := range stored[at:] {
		if len(ev.Responses()) == 0 {
			t.Errorf("event %s was stored and not yielded", toJSON(t, ev))
		}
	}
}
