package flow_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

func TestStateScopes(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "write", `{}`)), flowtest.Call(call("c2", "read", `{}`)))
	seen := map[string]any{}
	read := func(ctx *flow.ToolContext) {
		for _, key := range []string{"s", "user:u", "app:a", "temp:t", "null", "gone"} {
			if v, ok := ctx.State(key); ok {
				seen[key] = v
			}
		}
	}
	w.agent.Tools = []flow.Tool{
		handler("write", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
			return okResponse, ctx.SetState(map[string]any{"s": 1, "user:u": []string{"x"}, "app:a": "y", "temp:t": true, "null": nil})
		}),
		handler("read", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) { read(ctx); return okResponse, nil }),
	}
	o := w.say("go")
	const all = `{"app:a":"y","null":null,"s":1,"temp:t":true,"user:u":["x"]}`
	if got := toJSON(t, seen); got != all {
		t.Errorf("a later call of the run reads %s, want %s", got, all)
	}
	if got := toJSON(t, o.events[1].Actions.StateDelta); got != all {
		t.Errorf("the event says %s", got)
	}
	if got, want := toJSON(t, w.stored().State), `{"app:a":"y","null":null,"s":1,"user:u":["x"]}`; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	w.model.Steps[3] = flowtest.Call(call("c3", "read", `{}`))
	clear(seen)
	w.say("again")
	if _, there := seen["temp:t"]; there || len(seen) != 4 {
		t.Errorf("the next run reads %v", seen)
	}
}

func TestSetStateAllOrNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		values map[string]any
	}{
		{"an empty key", map[string]any{"a": 1, "": 2}},
		{"no number", map[string]any{"a": 1, "b": math.NaN()}},
		{"infinity", map[string]any{"a": 1, "b": math.Inf(1)}},
		{"a function", map[string]any{"a": 1, "b": func() {}}},
		{"a bad number", map[string]any{"a": 1, "b": json.Number("01")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			var err error
			w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				err = ctx.SetState(c.values)
				return okResponse, nil
			})}
			w.say("go")
			if err == nil || len(w.stored().State) != 0 {
				t.Errorf("error %v, state %v", err, w.stored().State)
			}
		})
	}
}

// What a handler holds after SetState is its own.
func TestStateIsCopied(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
	w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		list := []any{"a"}
		if err := ctx.SetState(map[string]any{"list": list}); err != nil {
			return "", err
		}
		list[0] = "spoiled"
		read, _ := ctx.State("list")
		read.([]any)[0] = "spoiled, too"
		again, _ := ctx.State("list")
		return toJSON(t, again), nil
	})}
	o := w.say("go")
	if o.response("c1") != `{"result":["a"]}` || toJSON(t, w.stored().State) != `{"list":["a"]}` {
		t.Errorf("read %s, stored %s", o.response("c1"), toJSON(t, w.stored().State))
	}
}

func TestMergedActions(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "one", `{}`), call("c2", "two", `{}`), call("c3", "three", `{}`)))
	w.cfg.Artifacts = flow.NewMemoryArtifacts()
	w.cfg.Limits.Parallel = 1
	acts := func(name string, do func(ctx *flow.ToolContext) error) flow.Tool {
		return handler(name, func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) { return okResponse, do(ctx) })
	}
	w.agent.Tools = []flow.Tool{
		acts("one", func(ctx *flow.ToolContext) error {
			_, err := ctx.SaveArtifact("f", genai.NewPartFromText("1"))
			return errors.Join(err, ctx.Transfer("first"), ctx.Escalate(), ctx.SetState(map[string]any{
				"deep": map[string]any{"a": map[string]any{"x": 1}, "b": 1}, "map": map[string]any{"a": 1}, "text": "one"}))
		}),
		acts("two", func(ctx *flow.ToolContext) error {
			_, err := ctx.SaveArtifact("f", genai.NewPartFromText("2"))
			return errors.Join(err, ctx.Transfer("second"), ctx.SetState(map[string]any{
				"deep": map[string]any{"a": map[string]any{"y": 2}, "b": 2}, "map": "no longer", "text": map[string]any{"two": true}}))
		}),
		acts("three", func(ctx *flow.ToolContext) error { return ctx.SkipSummarization() }),
	}
	w.agent.Agents = []*flow.Agent{{Name: "second", Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("second")}}}}
	o := w.say("go")
	a := o.events[1].Actions
	if got, want := toJSON(t, a), `{"artifactDelta":{"f":2},"escalate":true,"skipSummarization":true,`+
		`"stateDelta":{"deep":{"a":{"x":1,"y":2},"b":2},"map":"no longer","text":{"two":true}},"transferToAgent":"second"}`; got != want {
		t.Errorf("merged:\n got %s\nwant %s", got, want)
	}
	if w.model.Requests() != 1 {
		t.Errorf("%d requests, though the summary was skipped", w.model.Requests())
	}
}

// What a model reads of an error is bounded and hides nothing.
func TestErrorTexts(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, c := range []struct {
		name, text string
		check      func(string) bool
	}{
		{"plain", "no such account", func(s string) bool { return s == "no such account" }},
		{"as long as may be", strings.Repeat("x", flow.MaxErrorText), func(s string) bool { return s == strings.Repeat("x", flow.MaxErrorText) }},
		{"one more", strings.Repeat("x", flow.MaxErrorText+1), func(s string) bool { return s == strings.Repeat("x", flow.MaxErrorText-3)+"…" }},
		{"long", long, func(s string) bool {
			return len(s) > flow.MaxErrorText-8 && strings.HasSuffix(s, "é…")
		}},
		{"hidden", "a\u202eb\u200bc\x00d\U000e0041e\x1b[31m", func(s string) bool { return s == `a\u202eb\u200bc\u0000d\U000e0041e\u001b[31m` }},
		{"hidden and long", strings.Repeat("\u202e", 5000), func(s string) bool { return strings.HasSuffix(s, `\u202e…`) }},
		{"lines stay", "a\n\tb", func(s string) bool { return s == "a\n\tb" }},
		{"no UTF-8", "a\xffb", func(s string) bool { return s == `a\ufffdb` }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`), call("c2", "panics", `{}`)))
			w.agent.Tools = []flow.Tool{
				handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return "", errors.New(c.text) }),
				handler("panics", func(*flow.ToolContext, json.RawMessage) (string, error) { panic(c.text) })}
			o := w.say("go")
			got, panicked := o.errorOf("c1"), o.errorOf("c2")
			if !c.check(got) || len(got) > flow.MaxErrorText {
				t.Errorf("the model reads %d bytes: %q", len(got), got)
			}
			if len(panicked) > flow.MaxErrorText || strings.ContainsAny(panicked, "\u202e\x00\x1b") {
				t.Errorf("the model reads %d bytes of a panic: %q", len(panicked), panicked)
			}
		})
	}
}

// An error with a code says to the model no more than it may read.
func TestCodedErrors(t *testing.T) {
	internal := errors.New("/srv/db.go:12: password hunter2")
	for _, c := range []struct {
		err  *flow.CallError
		want string
	}{
		{&flow.CallError{Code: "guest_timeout", Err: internal}, "guest_timeout: the tool did not finish in time"},
		{&flow.CallError{Code: "guest_error", Text: "no such city", Err: internal}, "no such city"},
		{&flow.CallError{Code: "something_new", Err: internal}, "something_new: the call failed"},
	} {
		w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
		w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return "", c.err })}
		var ended flow.CallResult
		w.cfg.Observer.Finished = func(_ flow.CallInfo, r flow.CallResult) { ended = r }
		o := w.say("go")
		if got := o.errorOf("c1"); got != c.want {
			t.Errorf("%s: the model reads %q, want %q", c.err.Code, got, c.want)
		}
		if ended.Code != c.err.Code || !errors.Is(ended.Err, internal) || w.calls()[0].Code != string(c.err.Code) {
			t.Errorf("%s: the operator reads %s: %v, stored %+v", c.err.Code, ended.Code, ended.Err, w.calls()[0])
		}
		if strings.Contains(toJSON(t, w.stored().Events), "hunter2") {
			t.Errorf("%s: what is internal is in the session", c.err.Code)
		}
		if r := w.records("call.end"); len(r) != 1 || !strings.Contains(r[0].Why, "hunter2") || r[0].Decision != "ran" {
			t.Errorf("%s: audited %+v", c.err.Code, r)
		}
	}
}

// Results are what the handler's JSON says.
func TestResults(t *testing.T) {
	for _, c := range []struct{ result, want string }{
		{`{"a":1}`, `{"a":1}`},
		{` {"b":1, "a":1} `, `{"a":1,"b":1}`},
		{`[1.0]`, `{"result":[1.0]}`},
		{`"text"`, `{"result":"text"}`},
		{`false`, `{"result":false}`},
		{`null`, `null`},
		{``, `null`},
		{`{"a":1,"a":2}`, `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`},
		{`{"a":1} `, `{"a":1}`},
		{`{"a":1}{}`, `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`},
		{`{`, `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`},
		{`NaN`, `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`},
		{`{"actions":{"stateDelta":{"app:x":1}},"id":"c9","name":"other","longRunningToolIds":["c1"],"transferToAgent":"x"}`,
			`{"actions":{"stateDelta":{"app:x":1}},"id":"c9","longRunningToolIds":["c1"],"name":"other","transferToAgent":"x"}`},
	} {
		t.Run(c.result, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return c.result, nil })}
			o := w.say("go")
			ev := o.events[1]
			r := ev.Responses()[0]
			if toJSON(t, r.Response) != c.want || r.ID != "c1" || r.Name != "tool" {
				t.Errorf("response %s of %s %s, want %s", toJSON(t, r.Response), r.ID, r.Name, c.want)
			}
			if toJSON(t, ev.Actions) != "{}" || len(ev.LongRunningToolIDs) != 0 || len(w.stored().State) != 0 {
				t.Errorf("actions %s, state %v", toJSON(t, ev.Actions), w.stored().State)
			}
		})
	}
}

// The first hook with an answer ends its chain, the runner's before the agent's.
func TestHookChains(t *testing.T) {
	var order []string
	hook := func(name string, answers bool) flow.Hooks {
		return flow.Hooks{Name: name, BeforeModel: func(*flow.CallbackContext, *flow.Request) (*session.Response, error) {
			order = append(order, name)
			if !answers {
				return nil, nil
			}
			return &session.Response{Content: genai.NewContentFromText(name, genai.RoleModel)}, nil
		}}
	}
	w := newWorld(t)
	w.cfg.Hooks = []flow.Hooks{hook("r1", false), {Name: "none"}, hook("r2", false)}
	w.agent.Hooks = []flow.Hooks{hook("a1", true), hook("a2", true)}
	o := w.say("go")
	if !slices.Equal(order, []string{"r1", "r2", "a1"}) || o.final() != "a1" || w.model.Requests() != 0 {
		t.Errorf("order %q, end %q, %d requests", order, o.final(), w.model.Requests())
	}
}

// A hook on events may change what an event says, not whose or when it is.
func TestReplacedEvents(t *testing.T) {
	w := newWorld(t)
	w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
		return &session.Event{ID: "forged", Author: "user", InvocationID: "forged", Branch: "b", IsolationScope: "s",
			Response: session.Response{Partial: true, Content: genai.NewContentFromText("changed", genai.RoleModel)}}, nil
	}}}
	ev := w.say("go").events[0]
	if ev.Text() != "changed" || ev.ID == "forged" || ev.Author != "agent" || ev.InvocationID == "forged" || ev.Branch != "" || ev.IsolationScope != "" || ev.Partial || ev.Time.IsZero() {
		t.Errorf("event %s", toJSON(t, ev))
	}
	if n := len(w.stored().Events); n != 2 {
		t.Errorf("%d events are stored", n)
	}
}
