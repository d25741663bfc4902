package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Every record about a call names it, its module and what was judged.
func TestRecordsNameTheCall(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "asks", `{"n":1}`), call("c2", "refused", `{"n":2}`)))
	asks, refused := tool("asks"), tool("refused")
	asks.Describe.Confirm, asks.Describe.Module, refused.Describe.Module = true, "sha256:asks", "sha256:refused"
	w.agent.Tools = []flow.Tool{asks, refused}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseCall}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if q.Call.Tool == "refused" {
			return flowtest.Echo(q, abi.Deny("no", "")), nil
		}
		return flowtest.Echo(q, abi.Allow()), nil
	}}}
	w.run(answer(w.say("go").questions()[0].ID, `{"confirmed":true}`))
	check := func(action, id, decision, args string) {
		t.Helper()
		for _, r := range w.records(action) {
			if r.Call == id && r.Decision == decision {
				if want := "sha256:" + r.Target; action != "confirmation.used" && r.Module != want || r.ArgsSHA256 != abi.Digest([]byte(args)) {
					t.Errorf("%s: %+v", action, r)
				}
				return
			}
		}
		t.Errorf("%s of %s: no record with decision %q in %+v", action, id, decision, w.records(action))
	}
	check("call.intent", "c1", "", `{"n":1}`)
	check("confirmation.used", "c1", "", `{"n":1}`)
	check("call.end", "c1", "ran", `{"n":1}`)
	check("call.end", "c2", "not run", `{"n":2}`)
	if r := w.records("confirmation.used"); r[0].Module != "sha256:asks" {
		t.Errorf("%+v", r)
	}
}

// What was judged is named also when the judgement could not be recorded.
func TestRecordOfAnUnrecordedJudgement(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard"}}
	w.cfg.Audit = failingAudit{w.audit, "guard.allow"}
	w.say("go")
	if r := w.records("call.end"); len(r) != 1 || r[0].ArgsSHA256 != abi.Digest([]byte(`{"n":1}`)) {
		t.Errorf("recorded %+v", r)
	}
}

// finished runs one step and returns how its calls ended, by their ids.
func finished(w *world) (map[string]flow.CallResult, outcome) {
	ends := make(chan struct {
		id string
		flow.CallResult
	}, 16)
	w.cfg.Observer.Finished = func(i flow.CallInfo, r flow.CallResult) {
		ends <- struct {
			id string
			flow.CallResult
		}{i.ID, r}
	}
	o := w.say("go")
	close(ends)
	got := map[string]flow.CallResult{}
	for e := range ends {
		got[e.id] = e.CallResult
	}
	return got, o
}

// receiptStream is a streaming tool with a receipt, whose text is of some length.
type receiptStream struct {
	name   string
	length int
}

func (s receiptStream) Spec() *flow.Spec { return &flow.Spec{Name: s.name} }

func (s receiptStream) Stream(*flow.ToolContext, flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		_ = yield(flow.Chunk{Receipt: "of a stream"}, nil) && yield(flow.Chunk{Text: strings.Repeat("x", s.length)}, nil)
	}
}

func TestReceiptsReachTheObserver(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "works", ""), call("c2", "fails", ""), call("c3", "breaks", ""), call("c4", "streams", ""), call("c5", "floods", "")))
	result := func(receipt any, err error) func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
		return func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
			return flow.Outcome{Result: json.RawMessage(okResponse), Receipt: receipt}, err
		}
	}
	w.agent.Tools = []flow.Tool{
		&flowtest.Tool{Describe: flow.Spec{Name: "works"}, Do: result("of an outcome", nil)},
		&flowtest.Tool{Describe: flow.Spec{Name: "fails"}, Do: result(nil, &flow.CallError{Code: abi.GuestTrap, Receipt: "of an error"})},
		&flowtest.Tool{Describe: flow.Spec{Name: "breaks"}, Do: result("of an outcome", &flow.CallError{Code: abi.GuestTrap})},
		receiptStream{"streams", 2}, receiptStream{"floods", flow.MaxResult + 1},
	}
	got, _ := finished(w)
	for id, want := range map[string]struct {
		receipt string
		code    abi.Code
	}{"c1": {"of an outcome", abi.OK}, "c2": {"of an error", abi.GuestTrap}, "c3": {"of an outcome", abi.GuestTrap}, "c4": {"of a stream", abi.OK}, "c5": {"of a stream", abi.GuestOutputTooLarge}} {
		if got[id].Receipt != want.receipt || got[id].Code != want.code {
			t.Errorf("%s ended with receipt %v and code %s, want %q and %s", id, got[id].Receipt, got[id].Code, want.receipt, want.code)
		}
	}
}

// An end that cannot be recorded is not the end that the observer hears of.
func TestObserverHearsOfALostRecord(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Audit = failingAudit{w.audit, "call.end"}
	got, o := finished(w)
	if r := got["c1"]; r.Code != abi.StorageUnavailable || r.Err == nil || toJSON(t, r.Response) != o.response("c1") {
		t.Errorf("the observer hears %+v, the model reads %s", r, o.response("c1"))
	}
}

// Observers hear of phases in which nobody is asked, too, so that they hear the same of every call.
func TestObserverHearsOfNoGuards(t *testing.T) {
	for _, c := range []struct {
		name   string
		guards []flow.Guard
	}{{"none", nil}, {"other phases", []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseMessage}}}}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", ""), call("c2", "nothing", "")))
			w.agent.Tools = []flow.Tool{tool("tool")}
			w.cfg.Guards = c.guards
			var mu sync.Mutex
			heard := map[string][]abi.Phase{}
			w.cfg.Observer.Decided = func(info flow.CallInfo, d *flow.Decision) {
				mu.Lock()
				defer mu.Unlock()
				if info.ID == "" { // not about a call
					return
				}
				if d.Ruling != abi.RulingAllow || len(d.Judgements) > 0 || info.ArgsSHA256 != abi.Digest([]byte("{}")) {
					t.Errorf("call %s: decision %+v about arguments %s", info.ID, d, info.ArgsSHA256)
				}
				heard[info.ID] = append(heard[info.ID], d.Phase)
			}
			w.say("go")
			for _, id := range []string{"c1", "c2"} {
				if !slices.Equal(heard[id], []abi.Phase{abi.PhaseCall, abi.PhaseResult}) {
					t.Errorf("of call %s the observer heard %q", id, heard[id])
				}
			}
		})
	}
}

// Hooks see the call as it is: arguments that are never nil, what the tool says of
// itself if there is one, what guards made of the arguments, and errors as they are.
func TestHooksSeeTheCall(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")), flowtest.Call(call("c2", "nothing", "")))
	fails := handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) {
		return "", &flow.CallError{Code: abi.GuestTrap, Text: "broken"}
	})
	w.agent.Tools = []flow.Tool{fails}
	both := []abi.Phase{abi.PhaseCall}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "rewrites", In: both, Rewrite: both, Answer: flowtest.Always(abi.Rewrite(json.RawMessage(`{"n":2}`)))}}
	var seen []string
	w.cfg.Hooks = []flow.Hooks{{
		BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
			if c.Args == nil || c.Spec == nil || c.Spec.Name != "tool" {
				t.Errorf("before: %+v", c)
			}
			return nil, nil
		},
		OnToolError: func(_ *flow.ToolContext, c *flow.ToolCall, err error) (map[string]any, error) {
			ce, ok := errors.AsType[*flow.CallError](err)
			seen = append(seen, c.Name+" "+toJSON(t, c.Args))
			if !ok || (c.Name == "tool") != (ce.Code == abi.GuestTrap) || (c.Name == "tool") != (c.Spec != nil) {
				t.Errorf("on error: %+v, %v", c, err)
			}
			return nil, nil
		},
	}}
	w.say("go")
	if want := []string{`tool {"n":2}`, `nothing {"n":2}`}; !slices.Equal(seen, want) {
		t.Errorf("hooks saw %q, want %q", seen, want)
	}
}

// Arguments that JSON cannot say are none to the guards.
func TestArgumentsThatCannotBeJudged(t *testing.T) {
	bad := func(id, name string) *genai.FunctionCall {
		return &genai.FunctionCall{ID: id, Name: name, Args: map[string]any{"n": math.NaN()}}
	}
	w := newWorld(t, flowtest.Call(bad("c1", "tool"), bad("c2", "nothing")))
	w.agent.Tools = []flow.Tool{tool("tool")}
	guard := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseCall, abi.PhaseResult}}
	w.cfg.Guards = []flow.Guard{guard}
	for _, err := range w.run(flow.Text("go")).errs {
		t.Log(err) // the event of such a call may not be storable, which is another matter
	}
	for _, q := range guard.Asked() {
		if q.Call != nil && string(q.Call.Args) != "{}" {
			t.Errorf("phase %s of %s: arguments %q", q.Phase, q.Call.Tool, q.Call.Args)
		}
	}
	if len(guard.Asked()) == 0 {
		t.Error("no guard was asked")
	}
}

// Likewise if hooks made them so: the call is refused, and shown as the model made it.
func TestHookMakesArgumentsThatCannotBe(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	guard := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseResult}}
	w.cfg.Guards = []flow.Guard{guard}
	w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
		c.Args["n"] = math.NaN()
		return nil, nil
	}}}
	o := w.say("go")
	if len(witness.Calls()) != 0 || !strings.HasPrefix(o.errorOf("c1"), string(abi.ArgsInvalid)) {
		t.Errorf("%d calls, the model reads %q", len(witness.Calls()), o.errorOf("c1"))
	}
	if q := guard.Asked(); len(q) != 1 || string(q[0].Call.Args) != "{}" {
		t.Errorf("the guard was asked %+v", q)
	}
	for _, ev := range w.stored().Events {
		for _, c := range ev.Calls() {
			if toJSON(t, c.Args) != `{"n":1}` {
				t.Errorf("stored as %v", c.Args)
			}
		}
	}
}

// What hooks make of a question that waits is a result, and is judged; the refusal
// that asks is none.
func TestResultsInPlaceOfAQuestionAreJudged(t *testing.T) {
	answers := func(*flow.ToolContext, *flow.ToolCall, error) (map[string]any, error) {
		return map[string]any{"by": "a hook"}, nil
	}
	idle := func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
		return nil, nil
	}
	after := func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
		return map[string]any{"by": "a hook"}, nil
	}
	for name, c := range map[string]struct {
		hooks flow.Hooks
		asked int
	}{"no hook": {flow.Hooks{}, 0}, "a hook that does nothing": {flow.Hooks{AfterTool: idle}, 0}, "on error": {flow.Hooks{OnToolError: answers}, 1},
		"on error, and one that does nothing": {flow.Hooks{OnToolError: answers, AfterTool: idle}, 1}, "after": {flow.Hooks{AfterTool: after}, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "asks", "")))
			asks := tool("asks")
			asks.Describe.Confirm = true
			w.agent.Tools = []flow.Tool{asks}
			w.cfg.Hooks = []flow.Hooks{c.hooks}
			guard := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseResult}}
			w.cfg.Guards = []flow.Guard{guard}
			w.say("go")
			if got := len(guard.Asked()); got != c.asked {
				t.Errorf("the guard was asked about %d results, want %d", got, c.asked)
			}
		})
	}
}

// A result of Go code becomes what its JSON says, and too much of it is none.
func TestResultOfAHookIsJSON(t *testing.T) {
	for _, c := range []struct {
		result map[string]any
		want   string
	}{
		{map[string]any{"n": 1, "list": []string{"a"}}, `{"list":["a"],"n":1}`},
		{map[string]any{"text": strings.Repeat("x", flow.MaxResult)}, ""},
	} {
		w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
		w.agent.Tools = []flow.Tool{tool("tool")}
		w.cfg.Hooks = []flow.Hooks{{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
			return c.result, nil
		}}}
		got, o := finished(w)
		response := got["c1"].Response
		if c.want == "" {
			if got["c1"].Code != abi.GuestOutputTooLarge || !strings.Contains(o.errorOf("c1"), string(abi.GuestOutputTooLarge)) {
				t.Errorf("too much: %s, the model reads %q", got["c1"].Code, o.errorOf("c1"))
			}
			continue
		}
		if _, ok := response["list"].([]any); !ok || response["n"] != json.Number("1") || o.response("c1") != c.want {
			t.Errorf("got %#v, %s", response, o.response("c1"))
		}
	}
}

// onlyResult refuses what guards of results say.
type onlyResult struct {
	audit.Sink
	left int // records of guards that are taken
}

func (a *onlyResult) Append(ctx context.Context, r audit.Record) error {
	if strings.HasPrefix(r.Action, "guard.") {
		if a.left--; a.left < 0 {
			return errors.New("disk full")
		}
	}
	return a.Sink.Append(ctx, r)
}

func TestResultWhoseJudgementIsNotRecorded(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseCall, abi.PhaseResult}}}
	w.cfg.Audit = &onlyResult{w.audit, 1}
	if got := w.say("go").errorOf("c1"); !strings.HasPrefix(got, string(abi.PolicyUnavailable)) {
		t.Errorf("the model reads %q", got)
	}
	// Likewise if it is a member of a group whose judgement is lost, and the group's is not.
	w = newWorld(t, flowtest.Call(call("c1", "tool", "")))
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	w.cfg.Guards = []flow.Guard{&flow.Group{Label: "group", AtLeast: 1, Guards: []flow.Guard{&flowtest.Guard{Label: "member"}}}}
	w.cfg.Audit = failingAudit{w.audit, "guard.member.allow"}
	if w.say("go"); len(witness.Calls()) != 0 {
		t.Error("the handler ran")
	}
}

// A guard of a result knows that a person approved the call.
func TestApprovedFactInResults(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "asks", `{"n":1}`)))
	asks := tool("asks")
	asks.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{asks}
	guard := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseResult}}
	w.cfg.Guards = []flow.Guard{guard}
	w.run(answer(w.say("go").questions()[0].ID, `{"confirmed":true}`))
	if q := guard.Asked(); len(q) != 1 || q[0].Facts.Approved == nil || q[0].Facts.Approved.By != "ada" {
		t.Errorf("asked %+v", q)
	}
}

// A run that ends between the guards and the handler leaves no intent.
func TestRunEndsBeforeTheIntent(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	ctx, cancel := context.WithCancel(t.Context())
	witness := tool("tool")
	witness.Describe.ConfirmIf = func(map[string]any) bool { cancel(); return false }
	w.agent.Tools = []flow.Tool{witness}
	w.runIn(ctx, flow.Text("go"))
	r := w.records("call.end")
	if len(w.records("call.intent")) != 0 || len(witness.Calls()) != 0 || len(r) != 1 || r[0].Code != string(abi.Cancelled) {
		t.Errorf("%d intents, %d calls, ends %+v", len(w.records("call.intent")), len(witness.Calls()), r)
	}
}

// declared is a tool that a model knows and nobody can call.
type declared struct{ spec flow.Spec }

func (d declared) Spec() *flow.Spec { return &d.spec }

func (d declared) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	return req.Pack(d)
}

func TestToolThatCannotBeCalled(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "search", "")))
	w.agent.Tools = []flow.Tool{declared{flow.Spec{Name: "search"}}}
	guard := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseCall}}
	w.cfg.Guards = []flow.Guard{guard}
	if got := w.say("go").errorOf("c1"); !strings.HasPrefix(got, "tool 'search' not found.") || guard.Asked()[0].Call.Known {
		t.Errorf("the model reads %q", got)
	}
}

// The first verdict that denies is the one the model reads, before guards that failed.
func TestFirstDenialIsRead(t *testing.T) {
	deny := func(label string) flow.Guard {
		return &flowtest.Guard{Label: label, In: []abi.Phase{abi.PhaseCall}, Answer: flowtest.Always(abi.Deny("no", label))}
	}
	fail := func(label string) flow.Guard {
		return &flowtest.Guard{Label: label, In: []abi.Phase{abi.PhaseCall}, Answer: func(context.Context, *abi.Question) (abi.Verdict, error) {
			return abi.Verdict{}, errors.New(label)
		}}
	}
	for _, c := range []struct {
		guards []flow.Guard
		want   string // in the operator's error
	}{
		{[]flow.Guard{deny("a"), deny("b")}, "guard a: no"}, {[]flow.Guard{fail("a"), deny("b"), deny("c")}, "guard b: no"},
		{[]flow.Guard{deny("a"), fail("b")}, "guard a: no"}, {[]flow.Guard{fail("a"), fail("b")}, "guard a: a"},
	} {
		w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
		w.agent.Tools = []flow.Tool{tool("tool")}
		w.cfg.Guards = c.guards
		got, _ := finished(w)
		if err := got["c1"].Err; err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// What a monitor would have asked a person, or what a guard that does not ask says
// beside it, is not in the question.
func TestHintsAreOfGuardsThatAsk(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	w.agent.Tools = []flow.Tool{tool("tool")}
	asks := func(label string) flow.Guard {
		return &flowtest.Guard{Label: label, In: []abi.Phase{abi.PhaseCall}, Answer: flowtest.Always(abi.Confirm("", label+"?"))}
	}
	w.cfg.Guards = []flow.Guard{asks("guard"), asks("other")}
	w.cfg.Monitors = []flow.Guard{asks("monitor")}
	q := w.say("go").questions()
	if got := toJSON(t, q[0].Args["toolConfirmation"]); !strings.Contains(got, `"hint":"guard? other?"`) {
		t.Errorf("asked %s", got)
	}
}

// What members of a group leave is what the call gets, and guards see what it would be granted.
func TestGroupNarrows(t *testing.T) {
	set, err := capability.ParseSet([]string{"log", "clock"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	var got []string
	w.agent.Tools = []flow.Tool{&flowtest.Tool{Describe: flow.Spec{Name: "tool", Grants: set}, Do: func(_ *flow.ToolContext, p flow.Permit) (flow.Outcome, error) {
		got = p.Grants().Lines()
		return flow.Outcome{Result: json.RawMessage(okResponse)}, nil
	}}}
	member := &flowtest.Guard{Label: "member", In: []abi.Phase{abi.PhaseCall}, Answer: flowtest.Always(abi.Narrow("log"))}
	w.cfg.Guards = []flow.Guard{&flow.Group{Label: "group", AtLeast: 1, Guards: []flow.Guard{member}}}
	var took int64 = -1
	w.cfg.Observer.Decided = func(_ flow.CallInfo, d *flow.Decision) {
		if d.Phase == abi.PhaseCall {
			took = int64(d.Judgements[0].Took)
		}
	}
	w.say("go")
	if !slices.Equal(got, []string{"log"}) {
		t.Errorf("granted %q", got)
	}
	if q := member.Asked(); len(q) != 1 || !slices.Equal(q[0].Grants, set.Lines()) {
		t.Errorf("the guard saw %q", q[0].Grants)
	}
	if took <= 0 {
		t.Errorf("the judgement took %d ns", took)
	}
}

// A silent call changes nothing: another run makes it, and tells of it.
func TestSilentCallChangesNothing(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "asks", "")))
	asks := tool("asks")
	asks.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{asks}
	q := w.say("go").questions()[0]
	w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
		return nil, ctx.SetState(map[string]any{"seen": true})
	}}}
	w.store = failingStore{Store: w.store, begin: session.ErrUsed}
	w.run(answer(q.ID, `{"confirmed":true}`))
	if v, there := w.stored().State["seen"]; there {
		t.Errorf("state has %v", v)
	}
	w.cfg.Audit = failingAudit{w.audit, "confirmation.refused"}
	o := w.run(answer(q.ID, `{"confirmed":true}`))
	if got := o.errorOf("c1"); !strings.HasPrefix(got, string(abi.StorageUnavailable)) {
		t.Errorf("a refusal that is not recorded: the model reads %q, errors %v", got, o.errs)
	}
}

// The record of a judgement says what was judged and what the verdict rests on.
func TestRecordOfAJudgement(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseCall},
		Answer: flowtest.Always(abi.Deny("no", "", abi.Why{Rule: "r1", At: "/n", Saw: "1"}, abi.Why{Rule: "r2"}))}}
	w.say("go")
	r := w.records("guard.deny")
	if len(r) != 1 || r[0].ArgsSHA256 != abi.Digest([]byte(`{"n":1}`)) || !strings.Contains(r[0].Why, "r1 /n 1; r2") || r[0].Code != "no" {
		t.Errorf("recorded %+v", r)
	}
}

// Of a part of a stream that passes, nothing is recorded but what a monitor would
// have refused.
func TestRecordsOfAStream(t *testing.T) {
	part := flowtest.Reply{Response: &session.Response{Partial: true, Content: genai.NewContentFromText("a", genai.RoleModel)}}
	w := newWorld(t, append([]flowtest.Reply{part}, flowtest.Say("ab")...))
	phases := []abi.Phase{abi.PhaseResponse}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard", In: phases}}
	w.cfg.Monitors = []flow.Guard{&flowtest.Guard{Label: "quiet", In: phases}, &flowtest.Guard{Label: "strict", In: phases, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if q.Partial {
			return flowtest.Echo(q, abi.Deny("no", "")), nil
		}
		return flowtest.Echo(q, abi.Allow()), nil
	}}}
	in := flow.Text("go")
	in.Stream = true
	if o := w.run(in); o.final() != "ab" {
		t.Fatalf("errors %v, end %q", o.errs, o.final())
	}
	var got []string
	for _, r := range w.records("guard.", "monitor.") {
		got = append(got, r.Target+" "+r.Action)
	}
	want := []string{"strict monitor.deny", "guard guard.allow", "quiet monitor.allow", "strict monitor.allow"}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}
