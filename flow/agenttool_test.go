package flow_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// helperWorld has a root that asks the agent helper, once, which calls pay.
func helperWorld(t *testing.T) (*world, *flow.Agent, *flowtest.Tool) {
	w := newWorld(t, flowtest.Call(call("c1", "helper", `{"request":"x"}`)))
	pay := tool("pay")
	helper := kid("helper", flowtest.Call(call("p1", "pay", `{"n":1}`)), flowtest.Say("paid"))
	helper.Tools = []flow.Tool{pay}
	w.agent.Tools = []flow.Tool{flow.AgentTool(helper, flow.AgentToolOptions{})}
	return w, helper, pay
}

// Guards, audit and records of calls hold inside an agent that is a tool; they name
// the session of the caller. Guards are told the caller's run, records have their own.
func TestAgentToolPassesTheDoor(t *testing.T) {
	w, _, pay := helperWorld(t)
	var recorded []string
	g := &flowtest.Guard{Label: "guard", In: bothPhases, Answer: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
		recorded = append(recorded, flow.RecordedRun(ctx, q))
		return flowtest.Echo(q, abi.Allow()), nil
	}}
	w.cfg.Guards = []flow.Guard{g}
	w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
		if ev.Author == "helper" {
			t.Error("a hook of the runner saw inside")
		}
		return nil, nil
	}}}
	o := w.say("go")
	if got := o.response("c1"); got != `{"result":"paid"}` || len(pay.Calls()) != 1 {
		t.Fatalf("result %s, %d calls", got, len(pay.Calls()))
	}
	var asked []string
	for _, q := range g.Asked() {
		asked = append(asked, string(q.Phase)+" "+q.Agent+" "+q.Call.Tool)
		if q.Session != home.ID || q.Tenant != home.Tenant || q.Run != o.events[0].InvocationID {
			t.Errorf("question about run %s of session %s of tenant %s", q.Run, q.Session, q.Tenant)
		}
	}
	if got, want := strings.Join(asked, ", "), "call agent helper, call helper pay, result helper pay, result agent helper"; got != want {
		t.Errorf("guards were asked %s, want %s", got, want)
	}
	calls := w.calls()
	if len(calls) != 2 || calls[1].Tool != "pay" || calls[1].Agent != "helper" || calls[1].Session != home || calls[0].ID.Run == calls[1].ID.Run {
		t.Errorf("records of calls: %+v", calls)
	}
	if got := len(w.records("call.intent")); got != 2 {
		t.Errorf("%d intents are audited", got)
	}
	judged := w.records("guard.allow")
	if len(judged) != 4 || len(calls) != 2 {
		t.Fatalf("%d judgements, %d calls", len(judged), len(calls))
	}
	for i, call := range []int{0, 1, 1, 0} {
		if judged[i].Run != calls[call].ID.Run || recorded[i] != judged[i].Run {
			t.Errorf("judgement %d is recorded in run %s, the guard's own in run %s, the call in run %s", i, judged[i].Run, recorded[i], calls[call].ID.Run)
		}
	}
	ended(t, w, session.CallDone)
	for _, ev := range w.stored().Events {
		if ev.Author == "helper" {
			t.Errorf("event of the inner session in the outer: %s", toJSON(t, ev))
		}
	}
}

func TestAgentToolDenied(t *testing.T) {
	w, _, pay := helperWorld(t)
	w.cfg.Guards = []flow.Guard{guardFor("pay", abi.Deny("no", "no"))}
	if got := w.say("go").response("c1"); got != `{"result":"paid"}` || len(pay.Calls()) != 0 { // what the model says about it
		t.Errorf("result %s, %d calls", got, len(pay.Calls()))
	}
	w, helper, _ := helperWorld(t)
	w.cfg.Guards = []flow.Guard{guardFor("helper", abi.Deny("no", "no"))}
	if got := w.say("go").errorOf("c1"); got != "policy_denied: no" || helper.Model.(*flowtest.Model).Requests() != 0 {
		t.Errorf("error %q", got)
	}
}

// Nobody can be asked inside: the handler does not run, and no question is left.
func TestAgentToolAsks(t *testing.T) {
	w, _, pay := helperWorld(t)
	pay.Describe.Confirm = true
	o := w.say("go")
	questions, err := w.store.Questions(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.errorOf("c1"); got != "confirmation_pending: the call waits for a person" || len(pay.Calls()) != 0 || len(questions) != 0 || len(o.questions()) != 0 {
		t.Errorf("error %q, %d calls, questions %+v", got, len(pay.Calls()), questions)
	}
}

// An agent may use itself, but only so deep.
func TestAgentToolDepth(t *testing.T) {
	for limit, want := range map[int]int{0: 6, 1: 2, 3: 4} { // agents that run, the root included
		self := kid("self")
		m := self.Model.(*flowtest.Model)
		for range want {
			m.Steps = append(m.Steps, flowtest.Call(call("c", "self", `{"request":"deeper"}`)))
		}
		for range want {
			m.Steps = append(m.Steps, flowtest.Say("up"))
		}
		var refused []string
		m.OnRequest = func(req *flow.Request, _ bool) {
			for _, r := range (&session.Response{Content: req.Contents[len(req.Contents)-1]}).Responses() {
				if text, ok := r.Response["error"].(string); ok {
					refused = append(refused, text)
				}
			}
		}
		self.Tools = []flow.Tool{flow.AgentTool(self, flow.AgentToolOptions{})}
		w := newWorld(t)
		w.agent, w.cfg.Limits.Depth = *self, limit
		o := w.say("go")
		if o.final() != "up" || m.Requests() != 2*want || strings.Join(refused, "; ") != "budget_exhausted: the run used up its budget" {
			t.Errorf("depth %d: %d requests, want %d; refused %q", limit, m.Requests(), 2*want, refused)
		}
	}
}

// Steps inside count towards the run's limit, which ends it all.
func TestAgentToolBudget(t *testing.T) {
	w, helper, _ := helperWorld(t)
	w.cfg.Limits.Steps = 2
	o := w.say("go")
	if got, want := o.authors(), "agent(helper) agent<helper agent!budget_exhausted"; got != want || helper.Model.(*flowtest.Model).Requests() != 1 {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAgentToolCancelled(t *testing.T) {
	w, helper, _ := helperWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	helper.Tools = []flow.Tool{handler("pay", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		cancel()
		<-ctx.Done()
		return "", ctx.Err()
	})}
	if o := w.runIn(ctx, flow.Text("go")); len(o.errs) != 1 {
		t.Errorf("errors %v", o.errs)
	}
	ended(t, w, session.CallUnknown)
}

// The state of the caller is copied in, what the call itself wrote included; nothing
// comes back, and artifacts and memory are others.
func TestAgentToolState(t *testing.T) {
	w, helper, _ := helperWorld(t)
	w.cfg.Artifacts, w.cfg.Memory = flow.NewMemoryArtifacts(), flow.NewWordMemory()
	helper.Tools = []flow.Tool{handler("pay", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		for key, want := range map[string]any{"app:a": "1", "user:u": "2", "s": "3", "temp:t": "4", "h": "5"} {
			if got, _ := ctx.State(key); got != want {
				t.Errorf("%s is %v inside, want %v", key, got, want)
			}
		}
		if _, err := ctx.SaveArtifact("f", genai.NewPartFromText("x")); err != nil {
			t.Error(err)
		}
		return okResponse, ctx.SetState(map[string]any{"s": "inner", "app:a": "inner", "temp:t": "inner"})
	})}
	w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
		return nil, ctx.SetState(map[string]any{"h": "5"})
	}}}
	o := w.run(flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser),
		StateDelta: map[string]any{"app:a": "1", "user:u": "2", "s": "3", "temp:t": "4"}})
	if len(o.errs) > 0 {
		t.Fatal(o.errs)
	}
	if got, want := toJSON(t, w.stored().State), `{"app:a":"1","h":"5","s":"3","user:u":"2"}`; got != want {
		t.Errorf("state %s, want %s", got, want)
	}
	if names, _ := w.cfg.Artifacts.List(t.Context(), home); len(names) != 0 {
		t.Errorf("artifacts %v", names)
	}
}

// A result that skips the model's summary is shown if the tool wants that.
func TestShowResult(t *testing.T) {
	for _, c := range []struct {
		result     string
		skip, show bool
		want       string
	}{
		{`"four"`, true, true, "four"},
		{`{"result":"four"}`, true, true, "four"},
		{`{"result":4,"unit":"<m>"}`, true, true, `{"result":4,"unit":"<m>"}`},
		{`{"result":[4]}`, true, true, `{"result":[4]}`},
		{`{"result":null}`, true, true, ""},
		{`{"result":""}`, true, true, ""},
		{`{}`, true, true, ""},
		{`{"error":"no"}`, true, true, ""},
		{`"four"`, true, false, ""},
		{`"four"`, false, true, ""},
	} {
		w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
		sum := handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
			if c.skip {
				return c.result, ctx.SkipSummarization()
			}
			return c.result, nil
		})
		sum.Describe.ShowResult = c.show
		w.agent.Tools, w.agent.OutputKey = []flow.Tool{sum}, "answer"
		o := w.say("go")
		if got := o.events[1].Text(); got != c.want {
			t.Errorf("%+v: shown %q", c, got)
		}
		if kept, ok := w.stored().State["answer"]; c.skip && (ok != (c.want != "") || ok && kept != c.want) {
			t.Errorf("%+v: output key holds %v", c, kept)
		}
	}
}
