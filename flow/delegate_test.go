package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// ended checks that calls were begun, and that all of them are in a state.
func ended(t *testing.T, w *world, want session.CallState) {
	t.Helper()
	for _, c := range w.calls() {
		if c.State != want {
			t.Errorf("call %s of %s is %q, want %q", c.ID.Call, c.Tool, c.State, want)
		}
	}
	if len(w.calls()) == 0 {
		t.Error("no call was begun")
	}
}

// worker is an agent that takes tasks.
func worker(name string, mode flow.Mode, steps ...[]flowtest.Reply) *flow.Agent {
	a := kid(name, steps...)
	a.Mode = mode
	return a
}

func give(id, args string) *genai.FunctionCall { return call(id, "kid", args) }

func finish(id, args string) []flowtest.Reply { return flowtest.Call(call(id, "finish_task", args)) }

// The id of a task's call names where the task works, so not every id will do.
func TestTaskIDs(t *testing.T) {
	for id, fits := range map[string]bool{"12345": false, "a/b": false, "a@b": false, "d1": true, "adk-1": true, "ü": true} {
		w := newWorld(t, flowtest.Call(give(id, `{"request":"x"}`)))
		w.agent.Agents = []*flow.Agent{worker("kid", flow.Task, finish("f", `{"result":"ok"}`))}
		o := w.run(flow.Text("go"))
		if failed := len(o.errs) > 0; failed == fits || failed && !strings.HasPrefix(o.errs[0].Error(), "task kid: call id ") {
			t.Errorf("%s: errors %v, want them: %t", id, o.errs, !fits)
		}
		if fits && o.response(id) != `{"output":"ok"}` {
			t.Errorf("%s: %s", id, o.response(id))
		}
	}
}

// A task whose agent asks the user stays open; the user's next message goes to it.
func TestTaskStaysOpen(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"book"}`)))
	below := worker("kid", flow.Task, flowtest.Say("which day?"), finish("f1", `{"result":"Monday"}`))
	var seen []string
	below.Model.(*flowtest.Model).OnRequest = func(req *flow.Request, _ bool) {
		seen = append(seen, strings.Join(shown(req.Contents), " | "))
	}
	w.agent.Agents = []*flow.Agent{below}
	g := &flowtest.Guard{Label: "guard"}
	w.cfg.Guards = []flow.Guard{g}
	first := w.say("book a table")
	if got, want := first.authors(), "agent(kid) kid:which day?"; got != want || w.model.Requests() != 1 {
		t.Fatalf("got %s with %d requests, want %s", got, w.model.Requests(), want)
	}
	second := w.say("Mon")
	if got, want := second.authors(), "kid(finish_task) kid<finish_task user<kid agent:done"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := second.response("d1"); got != `{"output":"Monday"}` {
		t.Errorf("outcome %s", got)
	}
	if want := `user {"request":"book"} | model which_day? | user Mon`; len(seen) != 2 || seen[1] != want {
		t.Errorf("the agent saw %q, want %s", seen, want)
	}
	for _, ev := range append(first.events, second.events...) {
		if want := map[bool]string{true: "d1"}[ev.Author == "kid"]; ev.IsolationScope != want {
			t.Errorf("event of %s in scope %q", ev.Author, ev.IsolationScope)
		}
	}
	var judged []string
	for _, q := range g.Asked() {
		judged = append(judged, q.Agent+" "+q.Call.Tool)
	}
	if got, want := strings.Join(judged, ", "), "agent kid, agent kid, kid finish_task"; got != want {
		t.Errorf("guards judged %s, want %s", got, want)
	}
	if n := len(w.calls()); n != 3 {
		t.Errorf("%d records of calls", n)
	}
}

// What hooks and guards leave of finish_task decides whether a task is done.
func TestFinishTask(t *testing.T) {
	schema := `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	for _, c := range []struct {
		name, schema string
		steps        [][]flowtest.Reply
		guards       []flow.Guard
		want, result string
	}{
		{"object", schema, [][]flowtest.Reply{finish("f", `{"n":9007199254740993}`)}, nil,
			"kid(finish_task) kid<finish_task user<kid agent:done", `{"n":9007199254740993}`},
		{"again", schema, [][]flowtest.Reply{finish("f", `{}`), finish("g", `{"n":1}`)}, nil,
			"kid(finish_task) kid<finish_task kid(finish_task) kid<finish_task user<kid agent:done", `{"n":1}`},
		{"text", "", [][]flowtest.Reply{finish("f", `{"result":"ok"}`)}, nil,
			"kid(finish_task) kid<finish_task user<kid agent:done", `{"output":"ok"}`},
		{"denied", "", [][]flowtest.Reply{finish("f", `{"result":"ok"}`), flowtest.Say("may I not?")},
			[]flow.Guard{guardFor("finish_task", abi.Deny("no", "no"))}, "kid(finish_task) kid<finish_task kid:may I not?", ""},
		{"task denied", "", nil, []flow.Guard{guardFor("kid", abi.Deny("no", "no"))}, "agent<kid agent:done", `{"error":"policy_denied: no"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`)))
			below := worker("kid", flow.Task, c.steps...)
			if c.schema != "" {
				below.OutputSchema = schemaOf(t, c.schema)
			}
			w.agent.Agents, w.cfg.Guards = []*flow.Agent{below}, c.guards
			o := w.say("go")
			if got, want := o.authors(), "agent(kid) "+c.want; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := o.response("d1"); got != c.result {
				t.Errorf("result %s, want %s", got, c.result)
			}
		})
	}
}

// Tasks of one step run one after the other; an id that cannot name a task fails
// the run before anything happens.
func TestTasksInOrder(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`), call("n", "note", `{}`), give("d2", `{"request":"y"}`)))
	w.agent.Agents = []*flow.Agent{worker("kid", flow.Task, finish("f1", `{"result":"1"}`), flowtest.Say("wait"), finish("f2", `{"result":"2"}`))}
	w.agent.Tools = []flow.Tool{tool("note")}
	if got, want := w.say("go").authors(), "agent(kid) agent(note) agent(kid) agent<note kid(finish_task) kid<finish_task user<kid kid:wait"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := w.say("on").authors(), "kid(finish_task) kid<finish_task user<kid agent:done"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, id := range []string{"12345", "a/b", "a@1"} {
		w := newWorld(t, flowtest.Call(give(id, `{"request":"x"}`)))
		w.agent.Agents = []*flow.Agent{worker("kid", flow.Task)}
		if o := w.run(flow.Text("go")); len(o.errs) != 1 || len(w.calls()) != 0 {
			t.Errorf("id %s: errors %v, calls %+v", id, o.errs, w.calls())
		}
	}
}

// Tasks that a person has approved, one message or several, run in the order of their
// calls and one at a time, as tasks do that nobody is asked about. One whose turn has not come keeps its
// approval while an earlier one is open.
func TestApprovedTasksInOrder(t *testing.T) {
	type turn struct {
		say    string // a message; "": the answers
		yes    []int  // of the questions, in the order in which they are answered
		no     []int
		want   string
		resume bool // by Runner.Resume after Runner.Decide
	}
	first, second := finish("f1", `{"result":"1"}`), finish("f2", `{"result":"2"}`)
	one, two := "kid(finish_task) kid<finish_task user<kid", "kid(finish_task) kid<finish_task user<kid"
	for name, c := range map[string]struct {
		steps  [][]flowtest.Reply
		turns  []turn
		told   map[string]string
		expire bool // before the last turn
	}{
		"both":                      {steps: [][]flowtest.Reply{first, second}, turns: []turn{{yes: []int{0, 1}, want: one + " " + two + " agent:done"}}},
		"answered in another order": {steps: [][]flowtest.Reply{first, second}, turns: []turn{{yes: []int{1, 0}, want: one + " " + two + " agent:done"}}},
		"decided apart":             {steps: [][]flowtest.Reply{first, second}, turns: []turn{{yes: []int{1, 0}, resume: true, want: one + " " + two + " agent:done"}}},
		"the first asks": {steps: [][]flowtest.Reply{flowtest.Say("which day?"), first, second}, turns: []turn{
			{yes: []int{1, 0}, want: "kid:which day?"}, {say: "Mon", want: one + " " + two + " agent:done"}}},
		"both ask": {steps: [][]flowtest.Reply{flowtest.Say("which day?"), first, flowtest.Say("which hour?"), second}, turns: []turn{
			{yes: []int{0, 1}, want: "kid:which day?"}, {say: "Mon", want: one + " kid:which hour?"}, {say: "noon", want: two + " agent:done"}}},
		"the first is rejected": {steps: [][]flowtest.Reply{second}, turns: []turn{{no: []int{0}, yes: []int{1}, want: "agent<kid " + two + " agent:done"}},
			told: map[string]string{"d1": `{"error":"error tool \"kid\" call is rejected"}`, "d2": `{"output":"2"}`}},
		"the second is rejected": {steps: [][]flowtest.Reply{flowtest.Say("which day?"), first}, turns: []turn{{no: []int{1}, yes: []int{0}, want: "agent<kid kid:which day?"}, {say: "Mon", want: one + " agent:done"}},
			told: map[string]string{"d1": `{"output":"1"}`, "d2": `{"error":"error tool \"kid\" call is rejected"}`}},
		"the second alone": {steps: [][]flowtest.Reply{second, first}, turns: []turn{{yes: []int{1}, want: two + " agent:done"}, {yes: []int{0}, want: one + " agent:done"}},
			told: map[string]string{"d1": `{"output":"1"}`, "d2": `{"output":"2"}`}},
		"the approval of the second expires": {steps: [][]flowtest.Reply{flowtest.Say("which day?"), first}, expire: true, turns: []turn{
			{yes: []int{0, 1}, want: "kid:which day?"}, {say: "Mon", want: one + " agent:done"}},
			told: map[string]string{"d1": `{"output":"1"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`), give("d2", `{"request":"y"}`)))
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			w.cfg.Now = func() time.Time { return now }
			below := worker("kid", flow.Task, c.steps...)
			running := &gauge{}
			below.Hooks = []flow.Hooks{{
				BeforeAgent: func(*flow.CallbackContext) (*genai.Content, error) { running.add(1); return nil, nil },
				AfterAgent:  func(*flow.CallbackContext) (*genai.Content, error) { running.add(-1); return nil, nil },
			}}
			var tasks []string
			below.Model.(*flowtest.Model).OnRequest = func(req *flow.Request, _ bool) { tasks = append(tasks, shown(req.Contents)[0]) }
			w.agent.Agents = []*flow.Agent{below}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "ask", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
				if q.Call.Tool != "kid" || q.Facts.Approved != nil || q.Session == home.ID && w.begun(q.Call.ID) {
					return flowtest.Echo(q, abi.Allow()), nil
				}
				return flowtest.Echo(q, abi.Confirm("sure", "sure?")), nil
			}}}
			questions := append(w.say("go").questions(), w.say("and?").questions()...)
			if len(questions) != 2 {
				t.Fatalf("%d questions", len(questions))
			}
			for i, turn := range c.turns {
				if c.expire && i == len(c.turns)-1 {
					now = now.Add(365 * 24 * time.Hour)
				}
				var o outcome
				in := flow.Text(turn.say)
				if turn.say == "" {
					in.Content.Parts = nil
					for says, list := range map[string][]int{"true": turn.yes, "false": turn.no} {
						for _, n := range list {
							in.Content.Parts = append(in.Content.Parts, answer(questions[n].ID, `{"confirmed":`+says+`}`).Content.Parts...)
						}
					}
				}
				if turn.resume {
					w.approveAll(questions)
					o = w.resume()
				} else {
					o = w.run(in)
				}
				if len(o.errs) > 0 || o.authors() != turn.want {
					t.Errorf("turn %d: got %s, want %s (errors %v)", i, o.authors(), turn.want, o.errs)
				}
			}
			if running.most != 1 {
				t.Errorf("%d tasks ran at the same time", running.most)
			}
			if c.told == nil {
				c.told = map[string]string{"d1": `{"output":"1"}`, "d2": `{"output":"2"}`}
			}
			if !sort.StringsAreSorted(tasks) && name != "the second alone" {
				t.Errorf("the agent was given %q", tasks)
			}
			for id, want := range c.told {
				last := ""
				for _, ev := range w.stored().Events {
					if r := (outcome{t: t, events: []*session.Event{ev}}).response(id); r != "" {
						last = r
					}
				}
				if last != want {
					t.Errorf("%s: the model was told %s last, want %s", id, last, want)
				}
			}
			spent := map[string]int{}
			for _, call := range w.calls() {
				if call.Approval != "" {
					spent[call.Approval]++
				}
			}
			for id, n := range spent {
				if n != 1 {
					t.Errorf("approval %s was spent %d times", id, n)
				}
			}
		})
	}
}

// begun reports whether a call has been begun.
func (w *world) begun(id string) bool {
	return slices.ContainsFunc(w.calls(), func(c session.Call) bool { return c.ID.Call == id })
}

// approveAll decides questions apart from any message.
func (w *world) approveAll(asked []*genai.FunctionCall) {
	w.t.Helper()
	questions, err := w.store.Questions(w.t.Context(), home)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, q := range questions {
		if slices.ContainsFunc(asked, func(c *genai.FunctionCall) bool { return c.ID == q.ID }) {
			if _, err := w.runner().Decide(w.t.Context(), home, q.ID, session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: q.ArgsSHA256}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// A consumer may stop at any event of an agent inside a call. What runs ends, and
// the next message goes on where it stopped.
func TestConsumerStopsInTask(t *testing.T) {
	build := func() *world {
		w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`)))
		below := worker("kid", flow.Task, flowtest.Call(call("c", "tool", `{}`)), finish("f", `{"result":"1"}`), finish("g", `{"result":"2"}`))
		below.Tools = []flow.Tool{tool("tool")}
		w.agent.Agents = []*flow.Agent{below}
		return w
	}
	whole := build().say("go")
	for n := 1; n <= len(whole.events); n++ {
		w := build()
		seen := 0
		for range w.runner().Run(t.Context(), home, flow.Text("go")) {
			if seen++; seen == n {
				break
			}
		}
		if got := len(w.stored().Events); got != n+1 {
			t.Errorf("stopped at %d: %d events are stored", n, got)
		}
		if n > 1 { // at the first event nothing was begun
			ended(t, w, session.CallDone)
		} else if len(w.calls()) > 0 {
			t.Errorf("calls %+v", w.calls())
		}
		o := w.run(flow.Text("and now?"))
		if len(o.errs) > 0 || n < 6 && o.response("d1") == "" {
			t.Errorf("stopped at %d, then %s, errors %v", n, o.authors(), o.errs)
		}
	}
}

func TestSingleTurn(t *testing.T) {
	schema := `{"type":"object","required":["n"]}`
	for _, c := range []struct {
		name, schema, said, result string
	}{
		{"text", "", "four", `{"result":"four"}`},
		{"object", schema, `{"n":4}`, `{"result":{"n":4}}`},
		{"wrong object", schema, `{"m":4}`, ""},
		{"no object", schema, `four`, ""},
	} {
		w := newWorld(t, flowtest.Call(give("d1", `{"request":"2+2"}`)))
		below := worker("kid", flow.SingleTurn, flowtest.Say(c.said))
		if c.schema != "" {
			below.OutputSchema = schemaOf(t, c.schema)
		}
		w.agent.Agents = []*flow.Agent{below}
		o := w.say("go")
		if got := o.response("d1"); c.result != "" && got != c.result ||
			c.result == "" && !strings.HasPrefix(o.errorOf("d1"), `LlmAgent "kid" output validation failed: `) {
			t.Errorf("%s: %s, want %s", c.name, got, c.result)
		}
	}
}

// Single-turn tasks of one step run at the same time, each on a branch of its own,
// and see nothing of each other.
func TestSingleTurnsInParallel(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`), give("d2", `{"request":"x"}`)))
	below := worker("kid", flow.SingleTurn, flowtest.Say("a"), flowtest.Say("a"))
	below.Model.(*flowtest.Model).OnRequest = func(req *flow.Request, _ bool) {
		if got := strings.Join(shown(req.Contents), " | "); got != `user {"request":"x"}` {
			t.Errorf("the agent saw %s", got)
		}
	}
	w.agent.Agents = []*flow.Agent{below}
	o := w.say("go")
	branches := map[string]bool{}
	for _, ev := range o.events {
		branches[ev.Branch] = true
	}
	if len(branches) != 3 || !branches["kid@1"] || !branches["kid@2"] || o.response("d1") != `{"result":"a"}` || o.response("d2") != `{"result":"a"}` {
		t.Errorf("branches %v, events %s", branches, o.authors())
	}
	sameEvents(t, w, o)
}

// A person who is asked by an agent inside a call answers that agent.
func TestSingleTurnAsks(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	below := worker("kid", flow.SingleTurn, flowtest.Call(call("p", "pay", `{}`)), flowtest.Say("paid"))
	below.Tools = []flow.Tool{pay}
	w.agent.Agents = []*flow.Agent{below}
	o := w.say("go")
	if got, want := o.authors(), "agent(kid) kid(pay) kid<pay kid(adk_request_confirmation) agent<kid"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if got := o.errorOf("d1"); got != "confirmation_pending: the call waits for a person" {
		t.Errorf("error %q", got)
	}
	o = w.run(answer(o.questions()[0].ID, `{"confirmed":true}`))
	if got, want := o.authors(), "kid<pay kid:paid"; got != want || len(pay.Calls()) != 1 {
		t.Errorf("got %s with %d calls, want %s", got, len(pay.Calls()), want)
	}
}

// Agents inside calls nest no deeper than the limit.
func TestDelegationDepth(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`)))
	w.cfg.Limits.Depth = 1
	second := worker("kid2", flow.SingleTurn, flowtest.Say("never"))
	first := worker("kid", flow.SingleTurn, flowtest.Call(call("d2", "kid2", `{"request":"y"}`)), flowtest.Say("ok"))
	first.Agents = []*flow.Agent{second}
	w.agent.Agents = []*flow.Agent{first}
	o := w.say("go")
	if got := o.errorOf("d2"); got != "budget_exhausted: the run used up its budget" || second.Model.(*flowtest.Model).Requests() != 0 {
		t.Errorf("error %q", got)
	}
	if o.response("d1") != `{"result":"ok"}` {
		t.Errorf("got %s", o.response("d1"))
	}
}

// A run's limit that is met inside a call is told once, by the agent that made it.
func TestBudgetInsideCall(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`)))
	w.cfg.Limits.Steps = 2
	below := worker("kid", flow.SingleTurn, flowtest.Call(call("c", "tool", `{}`)), flowtest.Say("never"))
	below.Tools = []flow.Tool{tool("tool")}
	w.agent.Agents = []*flow.Agent{below}
	o := w.say("go")
	if got, want := o.authors(), "agent(kid) kid(tool) kid<tool agent<kid agent!budget_exhausted"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := o.errorOf("d1"); got != "budget_exhausted: the run used up its budget" {
		t.Errorf("the model reads %q of the call", got)
	}
	ended(t, w, session.CallDone)
}

// A consumer that stops inside a call is not asked about another call of the step.
func TestStopInsideCallAsksNobody(t *testing.T) {
	w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`), call("p", "pay", `{}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	w.agent.Agents = []*flow.Agent{worker("kid", flow.SingleTurn, flowtest.Say("hi"))}
	for ev := range w.runner().Run(t.Context(), home, flow.Text("go")) {
		if ev.Author == "kid" {
			break
		}
	}
	questions, err := w.store.Questions(t.Context(), home)
	if err != nil || len(questions) != 0 || len(pay.Calls()) != 0 {
		t.Errorf("questions %+v (%v), %d calls", questions, err, len(pay.Calls()))
	}
	for _, ev := range w.stored().Events {
		if len(ev.Actions.RequestedConfirmations) > 0 {
			t.Errorf("an event says that somebody is asked: %s", toJSON(t, ev))
		}
	}
	if got := (outcome{t: t, events: w.stored().Events}).errorOf("p"); got != "cancelled: the call was cancelled" {
		t.Errorf("the model reads %q", got)
	}
}

// An agent that is given a task, and those that work for it in its scope, get the
// arguments that were judged last and, if a person was asked, approved: at the first
// turn and at those that follow.
func TestTaskGetsWhatWasJudged(t *testing.T) {
	without := func(args string) func(context.Context, *abi.Question) (abi.Verdict, error) {
		return func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			if q.Call.Tool != "kid" {
				return flowtest.Echo(q, abi.Allow()), nil
			}
			return flowtest.Echo(q, abi.Rewrite(json.RawMessage(args))), nil
		}
	}
	rewriting := func(args string) flow.Guard {
		return &flowtest.Guard{Label: "rewrites", Rewrite: []abi.Phase{abi.PhaseCall}, Answer: without(args)}
	}
	for name, c := range map[string]struct {
		guards []flow.Guard
		hook   string
		given  string
		want   string // what the agent is told
	}{
		"as it was said":   {given: `{"request":"secret"}`, want: `{"request":"secret"}`},
		"by a hook":        {given: `{"request":"secret"}`, hook: "public", want: `{"request":"public"}`},
		"by a guard":       {given: `{"request":"secret"}`, guards: []flow.Guard{rewriting(`{"request":"public"}`)}, want: `{"request":"public"}`},
		"by both":          {given: `{"request":"x"}`, hook: "secret", guards: []flow.Guard{rewriting(`{"request":"public"}`)}, want: `{"request":"public"}`},
		"all taken out":    {given: `{"request":"secret"}`, guards: []flow.Guard{rewriting(`{}`)}, want: "go"},
		"added by a guard": {given: ``, guards: []flow.Guard{rewriting(`{"request":"public"}`)}, want: `{"request":"public"}`},
		"approved":         {given: `{"request":"secret"}`, guards: []flow.Guard{rewriting(`{"request":"public"}`)}, want: `{"request":"public"}`},
	} {
		for _, mode := range []flow.Mode{flow.Task, flow.SingleTurn} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				w := newWorld(t, flowtest.Call(give("d1", c.given)))
				below := worker("kid", flow.Task, flowtest.Say("which day?"), finish("f", `{"result":"ok"}`))
				heard := below.Model.(*flowtest.Model)
				if mode == flow.SingleTurn { // an agent below it, which sees the scope's history
					low := worker("low", mode, flowtest.Say("Monday"), flowtest.Say("Tuesday"))
					low.IncludeContents = flow.IncludeAll
					heard.Steps = [][]flowtest.Reply{flowtest.Call(call("l1", "low", `{"request":"y"}`)), flowtest.Say("which day?"), flowtest.Call(call("l2", "low", `{"request":"y"}`)), finish("f", `{"result":"ok"}`)}
					below.Agents, heard = []*flow.Agent{low}, low.Model.(*flowtest.Model)
				}
				below.InputSchema = schemaOf(t, `{"type":"object"}`)
				heard.OnRequest = func(req *flow.Request, _ bool) {
					if got := req.Contents[0].Parts[0].Text; got != c.want {
						t.Errorf("request %d: the agent is told %s, want %s", heard.Requests(), got, c.want)
					}
				}
				w.agent.Agents, w.cfg.Guards = []*flow.Agent{below}, c.guards
				if name == "approved" {
					w.cfg.Guards = append(slices.Clone(c.guards), nth(1, "kid", abi.Confirm("sure", "sure?")))
				}
				if c.hook != "" {
					w.agent.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
						call.Args["request"] = c.hook
						return nil, nil
					}}}
				}
				o := w.say("go")
				if name == "approved" {
					if q := o.questions(); len(q) != 1 || toJSON(t, q[0].Args["originalFunctionCall"]) != `{"args":`+c.want+`,"id":"d1","name":"kid"}` {
						t.Fatalf("the person is asked %s", toJSON(t, q))
					}
					w.run(answer(o.questions()[0].ID, `{"confirmed":true}`))
				}
				if c.want != "go" { // the user's message, if there are no arguments
					w.say("Mon")
				}
				if heard.Requests() == 0 {
					t.Error("the agent was never asked")
				}
				for _, begun := range w.calls() {
					if begun.Tool == "kid" && c.want != "go" && begun.ArgsSHA256 != abi.Digest([]byte(c.want)) {
						t.Errorf("call %s is recorded with other arguments", begun.ID.Call)
					}
				}
			})
		}
	}
}

// What ran beside the agent at which a consumer stops or panics, or a run fails, is in the
// history all the same, wherever it ran: the model has to learn of it. Nothing more
// is yielded.
func TestResultsOutliveTheConsumer(t *testing.T) {
	pair := func() [][]flowtest.Reply {
		return [][]flowtest.Reply{flowtest.Call(call("p1", "pay", `{}`), give("k1", `{"request":"r"}`)), flowtest.Say("done")}
	}
	for name, build := range map[string]func(a, talker *flow.Agent, pay flow.Tool){
		"beside a single turn": func(a, talker *flow.Agent, pay flow.Tool) {
			a.Model.(*flowtest.Model).Steps = pair()
			a.Tools, a.Agents = []flow.Tool{pay}, []*flow.Agent{talker}
		},
		"in a single turn": func(a, talker *flow.Agent, pay flow.Tool) {
			mid := worker("mid", flow.SingleTurn, pair()...)
			mid.Tools, mid.Agents = []flow.Tool{pay}, []*flow.Agent{talker}
			a.Model.(*flowtest.Model).Steps = [][]flowtest.Reply{flowtest.Call(call("m1", "mid", `{"request":"r"}`)), flowtest.Say("done")}
			a.Agents = []*flow.Agent{mid}
		},
		"in a task": func(a, talker *flow.Agent, pay flow.Tool) {
			mid := worker("mid", flow.Task, pair()...)
			mid.Tools, mid.Agents = []flow.Tool{pay}, []*flow.Agent{talker}
			a.Model.(*flowtest.Model).Steps = [][]flowtest.Reply{flowtest.Call(call("m1", "mid", `{"request":"r"}`)), flowtest.Say("done")}
			a.Agents = []*flow.Agent{mid}
		},
		"in parallel": func(a, talker *flow.Agent, pay flow.Tool) {
			payer := kid("payer", flowtest.Call(call("p1", "pay", `{}`)), flowtest.Say("done"))
			payer.Tools = []flow.Tool{pay}
			talker.Mode = ""
			a.Type, a.Model, a.Agents = flow.ParallelAgent, nil, []*flow.Agent{payer, talker}
		},
		"a call of a single turn beside another": func(a, talker *flow.Agent, pay flow.Tool) {
			mid := worker("mid", flow.SingleTurn, flowtest.Call(call("p1", "pay", `{}`)), flowtest.Say("done"))
			mid.Tools = []flow.Tool{pay}
			a.Model.(*flowtest.Model).Steps = [][]flowtest.Reply{flowtest.Call(call("m1", "mid", `{"request":"r"}`), give("k1", `{"request":"r"}`)), flowtest.Say("done")}
			a.Agents = []*flow.Agent{mid, talker}
		},
	} {
		for _, end := range []string{"stops", "fails", "panics", "ends its goroutine"} {
			t.Run(name+", "+end, func(t *testing.T) {
				w := newWorld(t)
				began, stopped := make(chan struct{}), make(chan struct{})
				pay := handler("pay", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
					close(began)
					<-stopped // what was paid is paid, whoever listens
					return okResponse, nil
				})
				talker := worker("kid", flow.SingleTurn, flowtest.Say("hi"))
				talker.Model.(*flowtest.Model).OnRequest = func(*flow.Request, bool) { <-began }
				w.agent.Model = w.model
				build(&w.agent, talker, pay)
				plain := w.store
				if end == "fails" {
					w.store = failAt{w.store, "kid", func() { close(stopped) }}
				}
				after := 0
				w.cfg.Hooks = []flow.Hooks{{AfterRun: func(*flow.CallbackContext) { after++ }}}
				r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
				if err != nil {
					t.Fatal(err)
				}
				over := false
				consume := func() {
					for ev, err := range r.Run(t.Context(), home, flow.Text("go")) {
						if over {
							t.Errorf("after the end: %s, %v", toJSON(t, ev), err)
						}
						if over = err != nil; err != nil || ev.Author != "kid" {
							continue
						}
						over = true
						close(stopped)
						switch end {
						case "panics":
							panic("mine")
						case "ends its goroutine":
							runtime.Goexit()
						}
						break
					}
				}
				var got any
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { got = recover() }()
					consume()
				})
				wg.Wait()
				if want := map[string]any{"panics": "mine"}[end]; got != want {
					t.Errorf("recovered %v, want %v", got, want)
				}
				if after != 1 {
					t.Errorf("after-run hooks ran %d times", after)
				}
				w.store = plain
				o := outcome{t: t, events: w.stored().Events}
				if o.response("p1") != okResponse {
					t.Errorf("the response is %q: %s", o.response("p1"), o.authors())
				}
				ended(t, w, session.CallDone)
				for _, ev := range o.events {
					if tells := (&outcome{events: []*session.Event{ev}}).hasResponse("p1"); tells && name == "in a task" && ev.IsolationScope != "m1" {
						t.Errorf("the response is in scope %q", ev.IsolationScope)
					}
				}
			})
		}
	}
}

// A failAt store cannot store what an agent says.
type failAt struct {
	session.Store
	author string
	then   func()
}

func (s failAt) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	if ev.Author == s.author {
		s.then()
		return errors.New("the disk is full")
	}
	return s.Store.Append(ctx, key, ev)
}
