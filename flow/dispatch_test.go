package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A tape records the stages that calls go through.
type tape struct {
	mu     sync.Mutex
	stages []string
}

func (p *tape) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stages = append(p.stages, fmt.Sprintf(format, args...))
}

func (p *tape) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.stages)
}

// tapedStore notes what the dispatcher stores about calls.
type tapedStore struct {
	session.Store
	tape *tape
}

func (s tapedStore) BeginCall(ctx context.Context, c session.Call) error {
	s.tape.note("intent stored")
	return s.Store.BeginCall(ctx, c)
}

func (s tapedStore) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	s.tape.note("end stored: %s", end.State)
	return s.Store.EndCall(ctx, key, id, end)
}

func (s tapedStore) Ask(ctx context.Context, q session.Question) error {
	s.tape.note("question stored")
	return s.Store.Ask(ctx, q)
}

func (s tapedStore) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	if len(ev.Responses()) > 0 && ev.Author != "user" {
		s.tape.note("event stored")
	}
	return s.Store.Append(ctx, key, ev)
}

// tapedAudit notes what is audited about calls.
type tapedAudit struct {
	audit.Sink
	tape *tape
}

func (s tapedAudit) Append(ctx context.Context, r audit.Record) error {
	s.tape.note("audit %s", r.Action)
	return s.Sink.Append(ctx, r)
}

func tapedHooks(p *tape) flow.Hooks {
	return flow.Hooks{Name: "hooks",
		BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
			p.note("before hook %v", c.Args["n"])
			if n, ok := c.Args["n"].(json.Number); ok && n == "1" {
				c.Args["n"] = json.Number("2")
			}
			return nil, nil
		},
		OnToolError: func(_ *flow.ToolContext, _ *flow.ToolCall, err error) (map[string]any, error) {
			p.note("on-error hook: %v", err)
			return nil, nil
		},
		AfterTool: func(_ *flow.ToolContext, _ *flow.ToolCall, result map[string]any, err error) (map[string]any, error) {
			if err != nil {
				p.note("after hook: error")
				return nil, nil
			}
			p.note("after hook %v", result["n"])
			result["n"] = json.Number("5")
			return nil, nil
		}}
}

// tapedGuards are a guard that rewrites n to the next number, and one that only looks.
func tapedGuards(p *tape) []flow.Guard {
	both := []abi.Phase{abi.PhaseCall, abi.PhaseResult}
	doc := func(q *abi.Question) json.RawMessage {
		if q.Phase == abi.PhaseResult {
			return q.Result
		}
		return q.Call.Args
	}
	return []flow.Guard{
		&flowtest.Guard{Label: "looks", In: both, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			p.note("guard in %s: %s", q.Phase, doc(q))
			return flowtest.Echo(q, abi.Allow()), nil
		}},
		&flowtest.Guard{Label: "rewrites", In: both, Rewrite: both, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			p.note("mutating guard in %s: %s", q.Phase, doc(q))
			var m struct{ N int }
			if err := json.Unmarshal(doc(q), &m); err != nil || m.N == 0 {
				return flowtest.Echo(q, abi.Allow()), nil
			}
			return flowtest.Echo(q, abi.Rewrite(fmt.Appendf(nil, ` { "n" : %d } `, m.N+1))), nil
		}},
	}
}

// tapedStream is a streaming tool.
type tapedStream struct {
	spec flow.Spec
	tape *tape
}

func (s *tapedStream) Spec() *flow.Spec { return &s.spec }

func (s *tapedStream) Stream(_ *flow.ToolContext, p flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		s.tape.note("handler %s", p.Args())
		_ = yield(flow.Chunk{Text: "a"}, nil) && yield(flow.Chunk{Text: "b"}, nil)
	}
}

func TestOrderOfStages(t *testing.T) {
	schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"n": {Type: "integer", Maximum: jsonschema.Ptr(9.0)}}}
	for _, c := range []struct {
		name string
		call *genai.FunctionCall
		want []string
	}{
		{"a handler", call("c1", "works", `{"n":1}`), []string{
			"before hook 1", "mutating guard in call: {\"n\":2}", "guard in call: {\"n\":3}", "audit guard.rewrite", "audit guard.allow",
			"audit call.intent", "intent stored", "handler {\"n\":3}", "end stored: done", "after hook 4",
			"mutating guard in result: {\"n\":5}", "guard in result: {\"n\":6}", "audit guard.rewrite", "audit guard.allow", "audit call.end", "event stored"}},
		{"arguments against the schema", call("c1", "works", `{"n":10}`), []string{
			"before hook 10", "on-error hook: validating root: validating /properties/n: maximum: 10/1 is greater than 9.000000", "after hook: error",
			"mutating guard in result: {\"error\":\"validating root: validating /properties/n: maximum: 10/1 is greater than 9.000000\"}",
			"guard in result: {\"error\":\"validating root: validating /properties/n: maximum: 10/1 is greater than 9.000000\"}",
			"audit guard.allow", "audit guard.allow", "audit call.end", "event stored"}},
		{"a rewrite against the schema", call("c1", "works", `{"n":9}`), []string{
			"before hook 9", "mutating guard in call: {\"n\":9}", "guard in call: {\"n\":9}", "audit guard.deny", "audit guard.allow", "audit call.end", "event stored"}},
		{"a handler that fails", call("c1", "fails", `{}`), []string{
			"before hook <nil>", "mutating guard in call: {}", "guard in call: {}", "audit guard.allow", "audit guard.allow",
			"audit call.intent", "intent stored", "handler {}", "end stored: done", "on-error hook: broken", "after hook: error",
			"mutating guard in result: {\"error\":\"broken\"}", "guard in result: {\"error\":\"broken\"}", "audit guard.allow", "audit guard.allow", "audit call.end", "event stored"}},
		{"a handler that asks a person", call("c1", "asks", `{}`), []string{
			"before hook <nil>", "mutating guard in call: {}", "guard in call: {}", "audit guard.allow", "audit guard.allow",
			"on-error hook: error tool \"asks\" requires confirmation, please approve or reject", "after hook: error",
			"audit call.end", "audit confirmation.asked", "question stored", "event stored"}},
		{"a streaming tool", call("c1", "streams", `{"n":1}`), []string{
			"mutating guard in call: {\"n\":1}", "guard in call: {\"n\":2}", "audit guard.rewrite", "audit guard.allow",
			"audit call.intent", "intent stored", "handler {\"n\":2}", "end stored: done",
			"mutating guard in result: {\"result\":\"ab\"}", "guard in result: {\"result\":\"ab\"}", "audit guard.allow", "audit guard.allow", "audit call.end", "event stored"}},
		{"an unknown tool", call("c1", "nothing", `{"n":1}`), []string{
			"mutating guard in call: {\"n\":1}", "guard in call: {\"n\":2}", "audit guard.rewrite", "audit guard.allow",
			"on-error hook: tool 'nothing' not found.", "mutating guard in result: {\"error\":\"tool 'nothing' not found.",
			"guard in result: {\"error\":\"tool 'nothing' not found.", "audit guard.allow", "audit guard.allow", "audit call.end", "event stored"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p tape
			w := newWorld(t, flowtest.Call(c.call))
			works := handler("works", func(_ *flow.ToolContext, args json.RawMessage) (string, error) {
				p.note("handler %s", args)
				return `{"n":4}`, nil
			})
			works.Describe.Input = schema
			fails := handler("fails", func(_ *flow.ToolContext, args json.RawMessage) (string, error) {
				p.note("handler %s", args)
				return "", errors.New("broken")
			})
			asks := tool("asks")
			asks.Describe.Confirm = true
			w.agent.Tools = []flow.Tool{works, fails, asks, &tapedStream{flow.Spec{Name: "streams"}, &p}}
			w.cfg.Hooks = []flow.Hooks{tapedHooks(&p)}
			w.cfg.Guards = tapedGuards(&p)
			w.cfg.Audit = tapedAudit{w.audit, &p}
			w.store = tapedStore{w.store, &p}
			w.say("go")
			got := p.all()
			same := func(got, want string) bool {
				return got == want || strings.Contains(want, "'nothing' not found.") && strings.HasPrefix(got, want)
			}
			if !slices.EqualFunc(got, c.want, same) {
				t.Errorf("stages:\n got %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestNothingRewritesADenial(t *testing.T) {
	for _, phase := range []abi.Phase{abi.PhaseCall, abi.PhaseResult} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`), call("c2", "unknown", `{}`), call("c3", "streams", `{}`)))
			var p tape
			w.agent.Tools = []flow.Tool{tool("tool"), &tapedStream{flow.Spec{Name: "streams"}, &p}}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "no", In: []abi.Phase{phase}, Answer: flowtest.Always(abi.Deny("no_way", "not today"))}}
			rewrite := func() (map[string]any, error) { return map[string]any{"ok": "rewritten"}, nil }
			if phase == abi.PhaseCall { // a result is denied after these had their say
				w.cfg.Hooks = []flow.Hooks{{
					OnToolError: func(*flow.ToolContext, *flow.ToolCall, error) (map[string]any, error) { return rewrite() },
					AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
						return rewrite()
					},
				}}
			}
			o := w.say("go")
			for _, id := range []string{"c1", "c2", "c3"} {
				if got, want := o.response(id), `{"error":"policy_denied: not today"}`; got != want {
					t.Errorf("response of %s: %s, want %s", id, got, want)
				}
			}
		})
	}
}

func TestUnknownToolTellsWhatThereIs(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "no\u202epe", "")))
	w.agent.Tools = []flow.Tool{tool("zeta"), tool("alpha")}
	got := w.say("go").errorOf("c1")
	if !strings.HasPrefix(got, `tool 'no\u202epe' not found.`) || !strings.Contains(got, "Available tools: alpha, zeta") {
		t.Errorf("the model reads %q", got)
	}
}

// failingStore fails where told to.
type failingStore struct {
	session.Store
	begin, end, ask error
}

func (s failingStore) BeginCall(ctx context.Context, c session.Call) error {
	if s.begin != nil {
		return s.begin
	}
	return s.Store.BeginCall(ctx, c)
}

func (s failingStore) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	if s.end != nil {
		return s.end
	}
	return s.Store.EndCall(ctx, key, id, end)
}

func (s failingStore) Ask(ctx context.Context, q session.Question) error {
	if s.ask != nil {
		return s.ask
	}
	return s.Store.Ask(ctx, q)
}

const notStored = "storage_unavailable: the host could not record or read what the call needs, so it was not made"

func TestStoreFails(t *testing.T) {
	down := errors.New("/var/lib/db: disk full")
	for _, c := range []struct {
		name           string
		store          failingStore
		ran            int
		want1, want2   string
		questions, end int
	}{
		{"nothing fails", failingStore{}, 1, okResponse, `{"error":"error tool \"asks\" requires confirmation, please approve or reject"}`, 1, 1},
		{"begin", failingStore{begin: down}, 0, `{"error":"` + notStored + `"}`, `{"error":"error tool \"asks\" requires confirmation, please approve or reject"}`, 1, 0},
		{"end", failingStore{end: down}, 1, `{"error":"` + notStored + `"}`, `{"error":"error tool \"asks\" requires confirmation, please approve or reject"}`, 1, 0},
		{"ask", failingStore{ask: down}, 1, okResponse, `{"error":"` + notStored + `"}`, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`), call("c2", "asks", `{}`)))
			witness, asks := tool("tool"), tool("asks")
			asks.Describe.Confirm = true
			w.agent.Tools = []flow.Tool{witness, asks}
			c.store.Store = w.store
			w.store = c.store
			hook := flow.Hooks{OnToolError: func(_ *flow.ToolContext, c *flow.ToolCall, err error) (map[string]any, error) { return nil, nil }}
			w.cfg.Hooks = []flow.Hooks{hook}
			o := w.say("go")
			if got := len(witness.Calls()); got != c.ran {
				t.Errorf("the handler ran %d times, want %d", got, c.ran)
			}
			if got := o.response("c1"); got != c.want1 {
				t.Errorf("response: %s, want %s", got, c.want1)
			}
			if got := o.response("c2"); got != c.want2 {
				t.Errorf("response of the sibling: %s, want %s", got, c.want2)
			}
			if got := len(o.questions()); got != c.questions {
				t.Errorf("%d questions were shown, want %d", got, c.questions)
			}
			ended := 0
			for _, call := range w.calls() {
				if call.State != session.CallIntent {
					ended++
				}
			}
			if ended != c.end {
				t.Errorf("%d calls are stored as ended, want %d: %+v", ended, c.end, w.calls())
			}
			if strings.Contains(toJSON(t, o.events), "disk full") {
				t.Error("the store's own text is in an event")
			}
		})
	}
}

// failingAudit refuses records of one action.
type failingAudit struct {
	audit.Sink
	action string
}

func (a failingAudit) Append(ctx context.Context, r audit.Record) error {
	if r.Action == a.action {
		return errors.New("/var/log/audit: disk full")
	}
	return a.Sink.Append(ctx, r)
}

func TestAuditFails(t *testing.T) {
	for _, c := range []struct {
		action string
		ran    int
		want   string
	}{
		{"nothing", 1, okResponse},
		{"guard.allow", 0, `{"error":"policy_unavailable: a policy could not decide, so the call was refused"}`},
		{"call.intent", 0, `{"error":"` + notStored + `"}`},
		{"call.end", 1, `{"error":"` + notStored + `"}`},
	} {
		t.Run(c.action, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			witness := handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				return okResponse, errors.Join(ctx.SetState(map[string]any{"seen": true}), ctx.Transfer("other"), ctx.Escalate())
			})
			w.agent.Tools = []flow.Tool{witness}
			w.agent.Agents = []*flow.Agent{{Name: "other", Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("other")}}}}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard"}}
			w.cfg.Audit = failingAudit{w.audit, c.action}
			o := w.say("go")
			if got := o.response("c1"); got != c.want {
				t.Errorf("response: %s, want %s", got, c.want)
			}
			if got := len(witness.Calls()); got != c.ran {
				t.Errorf("the handler ran %d times, want %d", got, c.ran)
			}
			if _, seen := w.stored().State["seen"]; seen != (c.want == okResponse) {
				t.Errorf("state of the call counts: %v", seen)
			}
		})
	}
	t.Run("confirmation.asked", func(t *testing.T) {
		w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`), call("c2", "asks", `{}`)))
		asks := tool("asks")
		asks.Describe.Confirm = true
		w.agent.Tools = []flow.Tool{tool("tool"), asks}
		w.cfg.Audit = failingAudit{w.audit, "confirmation.asked"}
		o := w.say("go")
		if got := o.errorOf("c2"); got != notStored || o.response("c1") != okResponse || len(o.questions()) != 0 {
			t.Errorf("asked: %q, sibling %s, %d questions", got, o.response("c1"), len(o.questions()))
		}
		if qs, _ := w.store.Questions(t.Context(), home); len(qs) != 0 {
			t.Errorf("stored %v", qs)
		}
	})
}

func TestResultWithheldIsStored(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`), call("c2", "sibling", `{}`)))
	artifacts := flow.NewMemoryArtifacts()
	w.cfg.Artifacts = artifacts
	w.agent.Tools = []flow.Tool{tool("sibling"), handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		_, err := ctx.SaveArtifact("file", genai.NewPartFromText("x"))
		return `{"secret":1.0}`, errors.Join(err, ctx.SetState(map[string]any{"leak": "secret"}), ctx.SkipSummarization(),
			ctx.Transfer("other"), ctx.Escalate(), ctx.RequestConfirmation("leak", nil))
	})}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "no", In: []abi.Phase{abi.PhaseResult}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if q.Call.Tool == "tool" {
			return flowtest.Echo(q, abi.Deny("secret", "")), nil
		}
		return flowtest.Echo(q, abi.Allow()), nil
	}}}
	o := w.say("go")
	if got := o.errorOf("c1"); got != "policy_denied: a policy refused this call" {
		t.Errorf("the model reads %q", got)
	}
	if o.response("c2") != okResponse {
		t.Errorf("sibling: %s", o.response("c2"))
	}
	for _, c := range w.calls() {
		if c.ID.Call == "c1" && (c.State != session.CallDone || string(c.Result) != `{"secret":1.0}`) {
			t.Errorf("call record %+v with result %s", c, c.Result)
		}
	}
	if all := toJSON(t, w.stored()); strings.Contains(all, "secret") || strings.Contains(all, "leak") {
		t.Errorf("what was withheld is in the session: %s", all)
	}
	for _, ev := range o.events {
		if a := ev.Actions; a.Escalate || a.SkipSummarization || a.TransferToAgent != "" || len(a.ArtifactDelta)+len(a.RequestedConfirmations) > 0 {
			t.Errorf("actions of a withheld result count: %+v", a)
		}
	}
	if o.final() != "done" {
		t.Errorf("the run ends with %q", o.final())
	}
}

func TestHandlerGetsWhatTheLastGuardSaw(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"b":1.0,"a":"<&>","n":9007199254740993}`)))
	var permit flow.Permit
	witness := &flowtest.Tool{Describe: flow.Spec{Name: "tool"}, Do: func(_ *flow.ToolContext, p flow.Permit) (flow.Outcome, error) {
		permit = p
		return flow.Outcome{Result: json.RawMessage(`{}`)}, nil
	}}
	last := &flowtest.Guard{Label: "last"}
	first := &flowtest.Guard{Label: "first", Rewrite: []abi.Phase{abi.PhaseCall}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		return flowtest.Echo(q, abi.Rewrite(json.RawMessage("{ \"z\" : 1E2,\n \"a\":\"<&>\" }"))), nil
	}}
	second := &flowtest.Guard{Label: "second", Rewrite: []abi.Phase{abi.PhaseCall}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(q.Call.Args, &m); err != nil {
			return abi.Verdict{}, err
		}
		m["second"] = json.RawMessage(`true`)
		doc, err := json.Marshal(m)
		return flowtest.Echo(q, abi.Rewrite(doc)), err
	}}
	var kept map[string]any
	w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
		kept = c.Args
		return nil, nil
	}}}
	w.cfg.Guards = []flow.Guard{last, first, second}
	w.agent.Tools = []flow.Tool{witness}
	last.Answer = func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		kept["late"] = true // a hook that holds on to the map changes nothing
		return flowtest.Echo(q, abi.Allow()), nil
	}
	w.say("go")
	const want = `{"a":"<&>","second":true,"z":1E2}`
	q := last.Asked()[0]
	if string(permit.Args()) != want || string(q.Call.Args) != want {
		t.Errorf("handler got %s, guard saw %s, want %s", permit.Args(), q.Call.Args, want)
	}
	if d := abi.Digest([]byte(want)); permit.ArgsSHA256() != d || q.DocumentSHA256 != d || w.calls()[0].ArgsSHA256 != d {
		t.Errorf("digests: permit %s, question %s, record %s, want %s", permit.ArgsSHA256(), q.DocumentSHA256, w.calls()[0].ArgsSHA256, d)
	}
	if got := second.Asked()[0].Call.Args; string(got) != `{"a":"<&>","z":1E2}` {
		t.Errorf("the second mutating guard saw %s", got)
	}
}

func TestNarrowOnlyNarrows(t *testing.T) {
	grants := func(lines ...string) capability.Set {
		set, err := capability.ParseSet(lines)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	for _, c := range []struct {
		name   string
		guards [][]string // what each guard narrows to; nil allows
		want   []string
	}{
		{"nobody narrows", [][]string{nil}, []string{"http GET api.example.com/v1/*", "state read session:*"}},
		{"one takes away", [][]string{{"state read session:*"}}, []string{"state read session:*"}},
		{"to a part", [][]string{{"state read session:cart.*"}}, []string{"state read session:cart.*"}},
		{"to nothing", [][]string{{}}, nil},
		{"two that share nothing", [][]string{{"state read session:*"}, {"http GET api.example.com/v1/*"}}, nil},
		{"wider stays", [][]string{{"http GET,POST **", "state read,write session:*", "log"}}, []string{"http GET api.example.com/v1/*", "state read session:*"}},
		{"something else", [][]string{{"secret use KEY at api.example.com"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			var got []string
			w.agent.Tools = []flow.Tool{&flowtest.Tool{Describe: flow.Spec{Name: "tool", Grants: grants("http GET api.example.com/v1/*", "state read session:*")},
				Do: func(_ *flow.ToolContext, p flow.Permit) (flow.Outcome, error) {
					got = p.Grants().Lines()
					return flow.Outcome{}, nil
				}}}
			for i, lines := range c.guards {
				v := abi.Allow()
				if lines != nil {
					v = abi.Narrow(lines...)
				}
				w.cfg.Guards = append(w.cfg.Guards, &flowtest.Guard{Label: fmt.Sprint("guard", i), Answer: flowtest.Always(v)})
			}
			w.say("go")
			if !slices.Equal(got, c.want) {
				t.Errorf("the call was granted %q, want %q", got, c.want)
			}
		})
	}
}

func TestToolNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		tools []string
		want  string // "": works
	}{
		{"two", []string{"one", "two"}, ""},
		{"of ADK's users", []string{"getWeather", "Get_Weather"}, ""},
		{"the same", []string{"one", "two", "one"}, `duplicate tool: "one": offered twice by agent "agent"`},
		{"none", []string{""}, `tool "": the name is reserved: offered by agent "agent", and the framework's own`},
		{"the confirmation", []string{"adk_request_confirmation"}, `tool "adk_request_confirmation": the name is reserved: offered by agent "agent", and the framework's own`},
		{"another of ADK's", []string{"adk_other"}, `tool "adk_other": the name is reserved: offered by agent "agent", and the framework's own`},
		{"ours", []string{"sandboxd_x"}, `tool "sandboxd_x": the name is reserved: offered by agent "agent", and the framework's own`},
		{"transfer", []string{"transfer_to_agent"}, `tool "transfer_to_agent": the name is reserved: offered by agent "agent", and the framework's own`},
		{"structured output", []string{"set_model_response"}, `tool "set_model_response": the name is reserved: offered by agent "agent", and the framework's own`},
		{"tasks", []string{"finish_task"}, `tool "finish_task": the name is reserved: offered by agent "agent", and the framework's own`},
		{"streams", []string{"stop_streaming"}, `tool "stop_streaming": the name is reserved: offered by agent "agent", and the framework's own`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range c.tools {
				w.agent.Tools = append(w.agent.Tools, tool(name))
			}
			o := w.run(flow.Text("go"))
			var got string
			if len(o.errs) > 0 {
				got = o.errs[0].Error()
			}
			if got != c.want || c.want != "" && w.model.Requests() != 0 {
				t.Errorf("error %q after %d requests, want %q", got, w.model.Requests(), c.want)
			}
		})
	}
}

func TestRepeatedCallIDs(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("same", "tool", `{"n":1}`), call("same", "tool", `{"n":2}`), call("", "tool", `{"n":3}`), call("", "tool", `{"n":4}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	o := w.say("go")
	seen := map[string]bool{}
	for i, c := range o.events[0].Calls() {
		r := o.events[1].Responses()[i]
		if c.ID == "" || seen[c.ID] || r.ID != c.ID {
			t.Errorf("call %d has id %q, its response %q", i, c.ID, r.ID)
		}
		seen[c.ID] = true
	}
	if o.events[0].Calls()[0].ID != "same" || len(w.calls()) != 4 {
		t.Errorf("first id %q, %d calls", o.events[0].Calls()[0].ID, len(w.calls()))
	}
}

// Also over steps, runs and agents a call has an id of its own, so that each result
// stands at its call. The operator is told once of each that was renamed.
func TestCallIDsOfASession(t *testing.T) {
	same := func(n string) []flowtest.Reply { return flowtest.Call(call("call_0", "tool", `{"n":`+n+`}`)) }
	var log strings.Builder
	w := newWorld(t, same("1"), same("2"), flowtest.Say("done"), same("3"), flowtest.Call(give("call_0", `{"request":"x"}`)))
	w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	echo := handler("tool", func(_ *flow.ToolContext, args json.RawMessage) (string, error) { return string(args), nil })
	below := worker("kid", flow.SingleTurn, same("4"), flowtest.Say("ok"))
	below.Tools = []flow.Tool{echo}
	w.agent.Tools, w.agent.Agents = []flow.Tool{echo}, []*flow.Agent{below}
	events := append(w.say("go").events, w.say("and again").events...)
	seen := map[string]string{}
	for _, ev := range events {
		for _, c := range ev.Calls() {
			if _, again := seen[c.ID]; again || c.ID == "" {
				t.Errorf("id %q is there twice", c.ID)
			}
			seen[c.ID] = toJSON(t, c.Args)
		}
		for _, r := range ev.Responses() {
			if got := toJSON(t, r.Response); r.Name == "tool" && got != seen[r.ID] {
				t.Errorf("call %s with %s has the response %s", r.ID, seen[r.ID], got)
			}
		}
	}
	if len(seen) != 5 || seen["call_0"] != `{"n":1}` {
		t.Errorf("calls %v", seen)
	}
	if n := strings.Count(log.String(), "renamed"); n != 4 {
		t.Errorf("%d lines about renamed calls: %s", n, log.String())
	}
}

// What a person says about one of two calls that a model gave the same id is said
// about that one.
func TestAnswerToARepeatedCallID(t *testing.T) {
	for i, want := range []string{`[{"n":1}]`, `[{"n":2}]`} {
		w := newWorld(t, flowtest.Call(call("call_0", "pay", `{"n":1}`)), flowtest.Call(call("call_0", "pay", `{"n":2}`)))
		pay := tool("pay")
		pay.Describe.Confirm = true
		w.agent.Tools = []flow.Tool{pay}
		asked := append(w.say("go").questions(), w.say("go on").questions()...)
		o := w.run(answer(asked[i].ID, `{"confirmed":true}`))
		if got := fmt.Sprint(pay.Calls()); got != want || len(o.errs) > 0 {
			t.Fatalf("ran %s, want %s (errors %v)", got, want, o.errs)
		}
		var heard string
		w.model.OnRequest = func(req *flow.Request, _ bool) { heard = toJSON(t, req.Contents) }
		w.say("so?")
		if strings.Count(heard, `"response":{"ok":true}`) != 1 || strings.Count(heard, `requires confirmation`) != 1 {
			t.Errorf("the model reads %s", heard)
		}
		questions, err := w.store.Questions(t.Context(), home)
		if err != nil || questions[i].State != session.Used || questions[1-i].State != session.Pending {
			t.Errorf("questions %+v (%v)", questions, err)
		}
	}
}
