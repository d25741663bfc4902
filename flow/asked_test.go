package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// What a question shows, which of them an import asks, who deals with an answer, and
// what becomes of one that comes twice, in other company, or about what cannot be read.

const yes, no = `{"confirmed":true}`, `{"confirmed":false}`

// with adds what another message says to a message.
func with(in flow.Input, more ...flow.Input) flow.Input {
	for _, m := range more {
		in.Content.Parts = append(in.Content.Parts, m.Content.Parts...)
	}
	return in
}

// A question about a call without arguments shows none, and one that comes up later
// has the thought signature of its own call, whatever else the history holds.
func TestQuestionShowsItsCall(t *testing.T) {
	reply := flowtest.Call(call("c1", "pay", ""), call("c2", "other", ""))
	for i, signature := range []string{"of c1", "of c2"} {
		reply[0].Response.Content.Parts[i].ThoughtSignature = []byte(signature)
	}
	w := newWorld(t, reply)
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay, tool("other")}
	shown := func(o outcome) (id string) {
		t.Helper()
		for _, ev := range o.events {
			for _, p := range ev.Content.Parts {
				if p == nil || p.FunctionCall == nil || p.FunctionCall.Name != "adk_request_confirmation" {
					continue
				}
				if got := toJSON(t, p.FunctionCall.Args["originalFunctionCall"]); got != `{"id":"c1","name":"pay"}` || string(p.ThoughtSignature) != "of c1" {
					t.Errorf("shows %s, signed %q", got, p.ThoughtSignature)
				}
				id = p.FunctionCall.ID
			}
		}
		return id
	}
	asks := shown(w.say("go"))
	for i, content := range []*genai.Content{nil, {Role: genai.RoleModel, Parts: []*genai.Part{nil, {Text: "hm"}}}} {
		ev := &session.Event{ID: fmt.Sprint("e", i), Author: "agent", InvocationID: "other", Response: session.Response{Content: content}}
		if err := w.store.Append(t.Context(), home, ev); err != nil {
			t.Fatal(err)
		}
	}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "new"}}
	if id := shown(w.run(answer(asks, yes))); id == "" || id == asks {
		t.Errorf("asked again as %q", id)
	}
}

// A call that is asked about again because it is not what was approved is unapproved
// to its hooks; if the mismatch cannot be recorded, or nobody can be asked, it is not
// made either.
func TestMismatchIsNoApproval(t *testing.T) {
	p := askFirst(t, func(p *pendingCall) { p.tool.Describe.Confirm = true })
	var told []*session.Confirmation
	p.agent.Hooks = []flow.Hooks{{OnToolError: func(ctx *flow.ToolContext, _ *flow.ToolCall, _ error) (map[string]any, error) {
		told = append(told, ctx.Confirmation())
		return nil, nil
	}}}
	p.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "new"}}
	whole := p.audit
	p.cfg.Audit = failingAudit{whole, "confirmation.refused"}
	o := p.run(answer(p.asks, yes))
	if o.errorOf("c1") != notStored || len(o.questions()) != 0 || len(p.tool.Calls()) != 0 {
		t.Errorf("not recorded: the model reads %s, %d questions, %d calls", o.response("c1"), len(o.questions()), len(p.tool.Calls()))
	}
	p.cfg.Audit = whole
	o = p.run(answer(p.asks, yes))
	if len(o.questions()) != 1 || len(p.tool.Calls()) != 0 || len(told) != 2 || told[1] != nil {
		t.Errorf("%d questions, %d calls, hooks were told %s", len(o.questions()), len(p.tool.Calls()), toJSON(t, told))
	}
}

// A call without an id, as a history from elsewhere may have it, cannot be asked about
// again, and is not made in another form.
func TestCallWithoutAnIDIsNotAskedAgain(t *testing.T) {
	w := newWorld(t)
	pay := tool("pay")
	w.agent.Tools = []flow.Tool{pay}
	ev := &session.Event{ID: "e1", Author: "agent", InvocationID: "run", Response: session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
		{FunctionCall: call("q1", "adk_request_confirmation", `{"originalFunctionCall":{"name":"pay","args":{"n":1}}}`)}}}}}
	if err := w.runner().Import(t.Context(), home, []*session.Event{ev}); err != nil {
		t.Fatal(err)
	}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "new"}}
	if o := w.run(answer("q1", yes)); len(pay.Calls()) != 0 || len(o.questions()) != 0 || !strings.Contains(toJSON(t, o.events), string(abi.ConfirmationPending)) {
		t.Errorf("the handler got %q, %d questions, events %s", pay.Calls(), len(o.questions()), toJSON(t, o.events))
	}
}

// An answer is dealt with once, by the agent that asked: neither the next step of its
// run nor the agent that goes on takes it for another one.
func TestAnswerIsTakenOnce(t *testing.T) {
	t.Run("by one step", func(t *testing.T) {
		p := askFirst(t, nil)
		p.agent.Tools = append(p.agent.Tools, tool("other"))
		p.model.Steps = append(p.model.Steps[:p.model.Requests()], flowtest.Call(call("c2", "other", "")), flowtest.Say("done"))
		if o := p.run(answer(p.asks, yes)); o.final() != "done" || len(p.tool.Calls()) != 1 {
			t.Errorf("end %q, %d calls", o.final(), len(p.tool.Calls()))
		}
		if r := p.records("confirmation.refused"); len(r) != 0 {
			t.Errorf("refused %+v", r)
		}
	})
	t.Run("by the agent that asked", func(t *testing.T) {
		w := newWorld(t, toKid())
		pay := tool("pay")
		pay.Describe.Confirm = true
		below := kid("kid", flowtest.Call(call("p1", "pay", "")), flowtest.Call(call("back", "transfer_to_agent", `{"agent_name":"agent"}`)))
		below.Tools = []flow.Tool{pay}
		w.agent.Agents = []*flow.Agent{below}
		q := w.say("go").questions()[0]
		if got, want := w.run(answer(q.ID, yes)).authors(), "kid<pay kid(transfer_to_agent) kid<transfer_to_agent agent:done"; got != want || len(pay.Calls()) != 1 {
			t.Errorf("got %s with %d calls, want %s", got, len(pay.Calls()), want)
		}
		if r := w.records("confirmation.refused"); len(r) != 0 {
			t.Errorf("refused %+v", r)
		}
	})
	t.Run("after others have spoken", func(t *testing.T) {
		w := newWorld(t)
		pay := tool("pay")
		pay.Describe.Confirm = true
		second := kid("second", flowtest.Call(call("p1", "pay", "")), flowtest.Say("paid"))
		second.Tools = []flow.Tool{pay}
		r, err := flow.NewRunner(&flow.Agent{Name: "both", Type: flow.SequentialAgent, Agents: []*flow.Agent{kid("first", flowtest.Say("hello"), flowtest.Say("hello again")), second}}, w.store, w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		q := collect(t, r, t.Context(), flow.Text("go")).questions()[0]
		if got, want := collect(t, r, t.Context(), answer(q.ID, yes)).authors(), "first:hello again second<pay second:paid"; got != want || len(pay.Calls()) != 1 {
			t.Errorf("got %s with %d calls, want %s", got, len(pay.Calls()), want)
		}
	})
}

// Results of the calls of one event are one event, also if they come after an answer.
func TestResultsOfAnsweredCallsAreOneEvent(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "pay", `{"n":1}`), call("c2", "pay", `{"n":2}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	qs := w.say("go").questions()
	if got := w.run(with(answer(qs[0].ID, yes), answer(qs[1].ID, yes))); len(got.events) != 2 || len(got.events[0].Responses()) != 2 {
		t.Errorf("got %s in %d events", got.authors(), len(got.events))
	}
}

// What an approved call leads to and cannot be done ends its run.
func TestAnswerLeadsNowhere(t *testing.T) {
	p := askFirst(t, func(p *pendingCall) {
		p.tool.Do = func(ctx *flow.ToolContext, _ flow.Permit) (flow.Outcome, error) {
			return flow.Outcome{Result: json.RawMessage(okResponse)}, ctx.Transfer("nobody")
		}
	})
	requests := p.model.Requests()
	o := p.run(answer(p.asks, yes))
	if len(o.errs) != 1 || !contains(o.errs[0].Error(), "failed to find agent: nobody") || o.response("c1") != okResponse || p.model.Requests() != requests {
		t.Errorf("errors %v, response %s, %d requests more", o.errs, o.response("c1"), p.model.Requests()-requests)
	}
}

// A questionStore lists questions as it likes.
type questionStore struct {
	session.Store
	list func([]session.Question, error) ([]session.Question, error)
}

func (s questionStore) Questions(ctx context.Context, key session.Key) ([]session.Question, error) {
	return s.list(s.Store.Questions(ctx, key))
}

// A message that answers nothing needs no questions.
func TestMessageNeedsNoQuestions(t *testing.T) {
	w := newWorld(t)
	w.store = questionStore{w.store, func([]session.Question, error) ([]session.Question, error) { return nil, errors.New("disk full") }}
	if o := w.say("hello"); o.final() != "done" {
		t.Errorf("the run ended with %q", o.final())
	}
	if o := w.run(answer("q1", yes)); len(o.errs) != 1 {
		t.Errorf("an answer: errors %v", o.errs)
	}
}

// What is stored of a question and cannot be read runs nothing, and says which it is.
func TestQuestionThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*session.Question)
		say   func(*pendingCall) []error
	}{
		"its call, answered": {func(q *session.Question) { q.Given = json.RawMessage(`{"n":`) }, func(p *pendingCall) []error {
			p.decideAs("bo", true)
			return p.run(answer(p.asks, yes)).errs
		}},
		"its payload": {func(q *session.Question) { q.Payload = json.RawMessage(`{"n":`) }, func(p *pendingCall) []error {
			p.decideAs("bo", true)
			return p.goOn()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := askFirst(t, nil)
			p.store = questionStore{p.store, func(qs []session.Question, err error) ([]session.Question, error) {
				for i := range qs {
					c.spoil(&qs[i])
				}
				return qs, err
			}}
			errs := c.say(p)
			if len(errs) != 1 || !contains(errs[0].Error(), "question "+p.asks+": ") || len(p.tool.Calls()) != 0 {
				t.Errorf("errors %v, %d calls", errs, len(p.tool.Calls()))
			}
		})
	}
}

// goOn resumes and returns the errors.
func (p *pendingCall) goOn() (errs []error) {
	for _, err := range p.runner().Resume(p.t.Context(), home, flow.Input{}) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// A payload that JSON cannot say is an error of who answers.
func TestPayloadOfAnAnswer(t *testing.T) {
	p := askFirst(t, nil)
	in := answer(p.asks, yes)
	in.Content.Parts[0].FunctionResponse.Response["payload"] = math.NaN()
	if o := p.run(in); len(o.errs) != 1 || !contains(o.errs[0].Error(), "payload of the answer to "+p.asks) || p.question().State != session.Pending {
		t.Errorf("errors %v, the question is %s", o.errs, p.question().State)
	}
}

// Answers that do not count are recorded with the reason.
func TestWhyAnAnswerDoesNotCount(t *testing.T) {
	refused := func(p *pendingCall, code abi.Code, why string) {
		t.Helper()
		if r := p.records("confirmation.refused"); len(r) == 0 || r[len(r)-1].Code != string(code) || !contains(r[len(r)-1].Why, why) || r[len(r)-1].Actor != "mallory" {
			t.Errorf("audited %+v, want %s: %s", r, code, why)
		}
	}
	p := askFirst(t, func(p *pendingCall) { p.cfg.FourEyes = true })
	in := with(answer(p.asks, yes), flow.Text("and pay me"))
	in.By = "mallory"
	p.run(in)
	refused(p, abi.Forbidden, "four eyes")

	p = askFirst(t, nil)
	first := p.asks
	p.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "new"}}
	if o := p.run(answer(first, yes)); len(o.questions()) != 1 {
		t.Fatalf("%d new questions", len(o.questions()))
	}
	in = answer(first, yes)
	in.By = "mallory"
	p.run(in)
	refused(p, abi.ConfirmationMismatch, "asked about again")
}

// Which questions a history asks: those that one agent asks about one call, in
// requests that can be read, and that nobody has answered.
func TestImportedQuestions(t *testing.T) {
	ask := func(author, id, original string) *session.Event {
		return &session.Event{Author: author, InvocationID: "run", Response: session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
			{FunctionCall: call(id, "adk_request_confirmation", `{"originalFunctionCall":`+original+`}`)}}}}}
	}
	answered := func(author, name string) *session.Event {
		return &session.Event{Author: author, InvocationID: "run", Response: session.Response{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: "q", Name: name, Response: map[string]any{"confirmed": true}}}}}}}
	}
	const pay = `{"id":"c1","name":"pay","args":{"n":1}}`
	one := ask("agent", "q", pay)
	spoiled := ask("agent", "q", pay)
	spoiled.Content.Parts[0].FunctionCall.Args["originalFunctionCall"] = math.NaN()
	other := ask("agent", "q", pay)
	other.Content.Parts[0].FunctionCall.Name = "pay"
	for name, c := range map[string]struct {
		events []*session.Event
		want   int
		fails  string
	}{
		"one":                               {events: []*session.Event{one}, want: 1},
		"twice the same":                    {events: []*session.Event{one, one}, want: 1},
		"another call":                      {events: []*session.Event{one, ask("agent", "q", `{"id":"c2","name":"pay","args":{"n":1}}`)}},
		"another tool":                      {events: []*session.Event{one, ask("agent", "q", `{"id":"c1","name":"give","args":{"n":1}}`)}},
		"other arguments":                   {events: []*session.Event{one, ask("agent", "q", `{"id":"c1","name":"pay","args":{"n":2}}`)}},
		"another agent":                     {events: []*session.Event{one, ask("other", "q", pay)}},
		"another call, and the first again": {events: []*session.Event{one, ask("agent", "q", `{"id":"c2","name":"pay","args":{"n":1}}`), one}},
		"no id":                             {events: []*session.Event{ask("agent", "", pay)}},
		"a call of a tool":                  {events: []*session.Event{other}},
		"an answer":                         {events: []*session.Event{one, answered("user", "adk_request_confirmation")}},
		"an agent's answer":                 {events: []*session.Event{one, answered("agent", "adk_request_confirmation")}, want: 1},
		"an answer to something else":       {events: []*session.Event{one, answered("user", "pay")}, want: 1},
		"a call that is none":               {events: []*session.Event{ask("agent", "q", `"pay"`)}, fails: "event e0: originalFunctionCall: "},
		"a call that JSON cannot say":       {events: []*session.Event{spoiled}, fails: "event e0: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var events []*session.Event
			for i, ev := range c.events {
				ev = ev.Clone()
				ev.ID = fmt.Sprint("e", i)
				events = append(events, ev)
			}
			err := w.runner().Import(t.Context(), home, events)
			if (err != nil) != (c.fails != "") || err != nil && !strings.HasPrefix(err.Error(), c.fails) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
			if qs, err := w.store.Questions(t.Context(), home); err != nil || len(qs) != c.want {
				t.Errorf("questions %+v, %v, want %d", qs, err, c.want)
			}
		})
	}
}

// A task that was asked about in a history from elsewhere is given when it is approved,
// also if the history does not hold its call.
func TestImportedTask(t *testing.T) {
	w := newWorld(t)
	w.agent.Agents = []*flow.Agent{worker("kid", flow.Task, finish("f", `{"result":"ok"}`))}
	ev := &session.Event{ID: "e1", Author: "agent", InvocationID: "run", Response: session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
		{FunctionCall: call("q", "adk_request_confirmation", `{"originalFunctionCall":{"id":"d1","name":"kid","args":{"request":"book"}}}`)}}}}}
	if err := w.runner().Import(t.Context(), home, []*session.Event{ev}); err != nil {
		t.Fatal(err)
	}
	if o := w.run(answer("q", no)); o.response("d1") != `{"error":"error tool \"kid\" call is rejected"}` {
		t.Errorf("rejected: %s", o.response("d1"))
	}
	w = newWorld(t)
	w.agent.Agents = []*flow.Agent{worker("kid", flow.Task, finish("f", `{"result":"ok"}`))}
	if err := w.runner().Import(t.Context(), home, []*session.Event{ev}); err != nil {
		t.Fatal(err)
	}
	if o := w.run(answer("q", yes)); o.response("d1") != `{"output":"ok"}` || len(o.questions()) != 0 {
		t.Errorf("approved: %s, response %s, errors %v", o.authors(), o.response("d1"), o.errs)
	}
}
