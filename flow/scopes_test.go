package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// nth answers the n-th question about a tool, and allows everything else.
func nth(n int, tool string, v abi.Verdict) *flowtest.Guard {
	asked := 0
	return &flowtest.Guard{Label: "guard", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if q.Call.Tool == tool {
			if asked++; asked == n {
				return flowtest.Echo(q, v), nil
			}
		}
		return flowtest.Echo(q, abi.Allow()), nil
	}}
}

// Whatever ended a task, what the user says next is heard by the agent that gave it,
// and so is what the user said to the task when it ended without a word.
func TestMessageAfterTask(t *testing.T) {
	broken := []flowtest.Reply{{Err: errors.New("503 overloaded")}}
	work := flowtest.Call(call("k1", "tool", `{}`))
	for name, c := range map[string]struct {
		steps  [][]flowtest.Reply
		hooks  flow.Hooks
		below  [][]flowtest.Reply // of an agent to which the task's agent gives a task
		guards []flow.Guard
		before []string // messages until the task is over
		back   []string // of these, the ones that nobody below has said a word about
	}{
		"finished":                   {steps: [][]flowtest.Reply{work, finish("f", `{"result":"ok"}`)}},
		"model failed":               {steps: [][]flowtest.Reply{work, broken}},
		"model failed later":         {steps: [][]flowtest.Reply{work, flowtest.Say("which day?"), broken}, before: []string{"Mon"}, back: []string{"Mon"}},
		"model failed at last":       {steps: [][]flowtest.Reply{work, flowtest.Say("which day?"), flowtest.Say("which hour?"), broken}, before: []string{"Mon", "noon"}, back: []string{"noon"}},
		"model failed in the middle": {steps: [][]flowtest.Reply{work, flowtest.Say("which day?"), flowtest.Call(call("k2", "tool", `{}`)), broken}, before: []string{"Mon"}},
		"hook failed": {steps: [][]flowtest.Reply{work, flowtest.Say("which day?"), flowtest.Say("Monday, then")}, before: []string{"Mon"},
			hooks: flow.Hooks{AfterAgent: func(ctx *flow.CallbackContext) (*genai.Content, error) {
				if flowText(ctx.UserContent()) == "Mon" {
					return nil, errors.New("broken")
				}
				return nil, nil
			}}},
		"denied later": {steps: [][]flowtest.Reply{work, flowtest.Say("which day?")}, guards: []flow.Guard{nth(2, "kid", abi.Deny("no", ""))}, before: []string{"Mon"}, back: []string{"Mon"}},
		"denied at last": {steps: [][]flowtest.Reply{work, flowtest.Say("which day?"), flowtest.Say("which hour?")}, guards: []flow.Guard{nth(3, "kid", abi.Deny("no", ""))},
			before: []string{"Mon", "noon"}, back: []string{"noon"}},
		"denied over an open one": {steps: [][]flowtest.Reply{flowtest.Call(call("d2", "low", `{"request":"x"}`))}, below: [][]flowtest.Reply{flowtest.Say("which day?")},
			guards: []flow.Guard{nth(2, "kid", abi.Deny("no", ""))}, before: []string{"Mon"}, back: []string{"Mon"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(give("d1", `{"request":"book"}`)))
			below := worker("kid", flow.Task, c.steps...)
			below.Tools, below.Hooks = []flow.Tool{tool("tool")}, []flow.Hooks{c.hooks}
			if c.below != nil {
				below.Agents = []*flow.Agent{worker("low", flow.Task, c.below...)}
			}
			w.agent.Agents, w.cfg.Guards = []*flow.Agent{below}, c.guards
			var heard string
			w.model.OnRequest = func(req *flow.Request, _ bool) { heard = strings.Join(shown(req.Contents), " | ") }
			o := w.say("go")
			for _, m := range c.before {
				if o.response("d1") != "" {
					t.Fatalf("the task was over before %q: %s", m, o.authors())
				}
				o = w.say(m)
			}
			if o.response("d1") == "" {
				t.Fatalf("the task is not over: %s", o.authors())
			}
			wantBack := func(when string) {
				t.Helper()
				for _, m := range c.before {
					if n, want := strings.Count(heard, "user "+m), map[bool]int{true: 1}[slices.Contains(c.back, m)]; n != want {
						t.Errorf("%s the agent heard %q %d times, want %d: %s", when, m, n, want, heard)
					}
				}
			}
			wantBack("when the task ended")
			if len(c.back) > 0 && !strings.HasSuffix(heard, "user "+c.back[len(c.back)-1]) {
				t.Errorf("what the user said last is not last: %s", heard)
			}
			for _, m := range []string{"hello", "anybody"} {
				if o := w.say(m); o.authors() != "agent:done" || !strings.Contains(heard, "user "+m) {
					t.Errorf("after %q: %s; the agent heard %s", m, o.authors(), heard)
				}
				wantBack("after " + m)
			}
		})
	}
}

// What was said to a task within a task goes back to the agent that gave it, and no
// further; answers to questions stay where they are.
func TestMessageGoesBackOneTask(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"book"}`)))
	below := worker("kid", flow.Task, flowtest.Call(call("d2", "low", `{"request":"ask"}`)), finish("f", `{"result":"ok"}`))
	below.Agents = []*flow.Agent{worker("low", flow.Task, flowtest.Say("which day?"))}
	w.agent.Agents, w.cfg.Guards = []*flow.Agent{below}, []flow.Guard{nth(2, "low", abi.Deny("no", ""))}
	heard := map[string]string{}
	for name, m := range map[string]*flowtest.Model{"agent": w.model, "kid": below.Model.(*flowtest.Model)} {
		m.OnRequest = func(req *flow.Request, _ bool) { heard[name] = strings.Join(shown(req.Contents), " | ") }
	}
	w.say("go")
	if o := w.say("Mon"); o.authors() != "kid<low kid(finish_task) kid<finish_task user<kid agent:done" {
		t.Errorf("got %s", o.authors())
	}
	if !strings.HasSuffix(heard["kid"], "user Mon") || strings.Contains(heard["agent"], "Mon") {
		t.Errorf("heard %q", heard)
	}
	var said []string
	for _, ev := range w.stored().Events {
		if ev.Author == "user" && ev.Text() != "" {
			said = append(said, ev.IsolationScope+":"+ev.Text())
		}
	}
	if got, want := strings.Join(said, " "), ":go d2:Mon d1:Mon"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

func flowText(c *genai.Content) string { return (&session.Response{Content: c}).Text() }

// A task about whose call a person is asked first may ask the user afterwards, and
// a person may be asked about it again: nothing that is said to it is lost.
func TestApprovedTaskTalks(t *testing.T) {
	for name, c := range map[string]struct {
		again   bool // a person is asked at each turn
		approve bool // the second time
		end     string
		heard   string // by the task's agent, last
		back    int    // how often the agent above hears what was said to the task
	}{
		"asked once":       {end: "kid(finish_task) kid<finish_task user<kid agent:done", heard: `user {"request":"book"} | model which_day? | user Mon`},
		"asked each time":  {again: true, approve: true, end: "kid(finish_task) kid<finish_task user<kid agent:done", heard: `user {"request":"book"} | model which_day? | user Mon`},
		"rejected at last": {again: true, end: "agent<kid agent:done", heard: `user {"request":"book"}`, back: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(give("d1", `{"request":"book"}`)))
			below := worker("kid", flow.Task, flowtest.Say("which day?"), finish("f", `{"result":"Monday"}`))
			var heard string
			below.Model.(*flowtest.Model).OnRequest = func(req *flow.Request, _ bool) { heard = strings.Join(shown(req.Contents), " | ") }
			w.agent.Agents = []*flow.Agent{below}
			n := 0
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "ask", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
				if q.Call.Tool != "kid" || q.Facts.Approved != nil {
					return flowtest.Echo(q, abi.Allow()), nil
				}
				if n++; n > 1 && !c.again {
					return flowtest.Echo(q, abi.Allow()), nil
				}
				return flowtest.Echo(q, abi.Confirm("sure", "sure?")), nil
			}}}
			o := w.say("go")
			if o = w.run(answer(o.questions()[0].ID, `{"confirmed":true}`)); o.authors() != "kid:which day?" {
				t.Fatalf("after the approval: %s, errors %v", o.authors(), o.errs)
			}
			o = w.say("Mon")
			if c.again {
				if len(o.questions()) != 1 {
					t.Fatalf("nobody is asked again: %s", o.authors())
				}
				o = w.run(answer(o.questions()[0].ID, `{"confirmed":`+map[bool]string{true: "true", false: "false"}[c.approve]+`}`))
			}
			if o.authors() != c.end || heard != c.heard {
				t.Errorf("got %s, want %s; the agent heard %s, want %s", o.authors(), c.end, heard, c.heard)
			}
			var above string
			w.model.OnRequest = func(req *flow.Request, _ bool) { above = strings.Join(shown(req.Contents), " | ") }
			if o := w.say("hello"); o.authors() != "agent:done" {
				t.Errorf("after the task: %s", o.authors())
			}
			if n := strings.Count(above, "user Mon"); n != c.back {
				t.Errorf("the agent above heard what was said to the task %d times, want %d: %s", n, c.back, above)
			}
		})
	}
}

// A run that ends within a task leaves the task open, however it ends: the next
// message goes there, and to the agent that gave the task when it is done.
func TestInterruptedTask(t *testing.T) {
	for name, c := range map[string]struct {
		second bool // it is interrupted at its second turn
		end    string
	}{
		"handler":         {end: "context canceled"},
		"handler, later":  {second: true, end: "context canceled"},
		"model":           {end: "context canceled"},
		"model, later":    {second: true, end: "context canceled"},
		"guard, later":    {second: true, end: "context canceled"},
		"time":            {end: "the run reached its limit of 10m0s"},
		"time, later":     {second: true, end: "the run reached its limit of 10m0s"},
		"steps":           {end: "the run reached its limit of 2 steps"},
		"consumer":        {},
		"consumer, later": {second: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, flowtest.Call(give("d1", `{"request":"book"}`)))
				at := "" // where the run ends
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ends := func(where string) {
					if where == at {
						cancel()
					}
				}
				work := func(id string) []flowtest.Reply { return flowtest.Call(call(id, "tool", `{}`)) }
				below := worker("kid", flow.Task, work("k1"), flowtest.Say("which day?"), work("k2"), finish("f", `{"result":"ok"}`))
				below.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
					ends("handler")
					if at == "time" {
						<-ctx.Done()
					}
					return okResponse, nil
				})}
				model := below.Model.(*flowtest.Model)
				var heard, above string
				model.OnRequest = func(req *flow.Request, _ bool) {
					heard = strings.Join(shown(req.Contents), " | ")
					ends("model")
				}
				w.model.OnRequest = func(req *flow.Request, _ bool) { above = strings.Join(shown(req.Contents), " | ") }
				w.agent.Agents = []*flow.Agent{below}
				w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
					if q.Call.Tool == "kid" {
						ends("guard")
					}
					return flowtest.Echo(q, abi.Allow()), nil
				}}}
				said := "go"
				if c.second {
					w.say(said)
					said = "Mon"
				}
				if at, _, _ = strings.Cut(name, ","); at == "steps" {
					w.cfg.Limits.Steps = 2
				}
				var ended []string
				for ev, err := range w.runner().Run(ctx, home, flow.Text(said)) {
					switch {
					case err != nil:
						ended = append(ended, err.Error())
					case ev.ErrorCode != "":
						ended = append(ended, ev.ErrorMessage)
					}
					if at == "consumer" && err == nil && ev.Author == "kid" {
						break
					}
				}
				if got := strings.Join(ended, ", "); got != c.end {
					t.Errorf("the run ended with %q, want %q", got, c.end)
				}
				at, w.cfg.Limits = "", flow.Limits{}
				model.Steps = append(model.Steps[:model.Requests()], finish("f", `{"result":"ok"}`))
				o := w.say("on")
				if want := "kid(finish_task) kid<finish_task user<kid agent:done"; o.authors() != want || o.response("d1") != `{"output":"ok"}` {
					t.Errorf("got %s, want %s", o.authors(), want)
				}
				if c.second && !strings.Contains(heard, "user Mon") {
					t.Errorf("the task's agent heard %s", heard)
				}
				if w.say("hello"); !strings.Contains(above, "user hello") {
					t.Errorf("nobody hears what follows: %s", above)
				}
			})
		})
	}
}
