package flow_test

import (
	"context"
	"encoding/json"
	"iter"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A brokenModel panics after some answers.
type brokenModel struct{ answers []flowtest.Reply }

func (*brokenModel) Name() string { return "broken" }

func (m *brokenModel) Generate(_ context.Context, _ *flow.Request, _ bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		for _, a := range m.answers {
			if !yield(a.Response, a.Err) {
				return
			}
		}
		panic("lost it")
	}
}

// A brokenStore panics in one method.
type brokenStore struct {
	session.Store
	method string
}

func (s brokenStore) BeginCall(ctx context.Context, c session.Call) error {
	if s.method == "begin" {
		panic("lost it")
	}
	return s.Store.BeginCall(ctx, c)
}

func (s brokenStore) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	if s.method == "end" {
		panic("lost it")
	}
	return s.Store.EndCall(ctx, key, id, end)
}

func (s brokenStore) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	if s.method == "append" && len(ev.Responses()) > 0 {
		panic("lost it")
	}
	return s.Store.Append(ctx, key, ev)
}

type brokenSet struct{ where string }

func (s brokenSet) Name() string { return "set" }

func (s brokenSet) Tools(*flow.Context) ([]flow.Tool, error) {
	if s.where == "tools" {
		panic("lost it")
	}
	return nil, nil
}

func (s brokenSet) ProcessRequest(*flow.CallbackContext, *flow.Request) error { panic("lost it") }

type brokenProcessor struct{ *flowtest.Tool }

func (brokenProcessor) ProcessRequest(*flow.CallbackContext, *flow.Request) error { panic("lost it") }

type brokenSink struct {
	audit.Sink
	action string
}

func (s brokenSink) Append(ctx context.Context, r audit.Record) error {
	if r.Action == s.action {
		panic("lost it")
	}
	return s.Sink.Append(ctx, r)
}

// A panic anywhere is an error of the run or of one call; the process, the
// siblings and what was stored before stay.
func TestPanics(t *testing.T) {
	const lost = `panic in hook "h": lost it`
	type panics struct {
		name  string
		spoil func(w *world)
		err   string // of the run; "" if it goes on
		call  string // error that the model reads for c1; "" for the result
		ran   int
	}
	hook := func(h flow.Hooks) func(*world) {
		h.Name = "h"
		return func(w *world) { w.agent.Hooks = []flow.Hooks{h} }
	}
	runHook := func(h flow.Hooks) func(*world) {
		h.Name = "h"
		return func(w *world) { w.cfg.Hooks = []flow.Hooks{h} }
	}
	tests := []panics{
		{"on user message", runHook(flow.Hooks{OnUserMessage: func(*flow.CallbackContext, *genai.Content) (*genai.Content, error) { panic("lost it") }}),
			"error running on run user message callback : " + lost, "", 0},
		{"before run", runHook(flow.Hooks{BeforeRun: func(*flow.CallbackContext) (*genai.Content, error) { panic("lost it") }}), lost, "", 0},
		{"after run", runHook(flow.Hooks{AfterRun: func(*flow.CallbackContext) { panic("lost it") }}), "", "", 1},
		{"before agent", hook(flow.Hooks{BeforeAgent: func(*flow.CallbackContext) (*genai.Content, error) { panic("lost it") }}), "failed to run before agent callback: " + lost, "", 0},
		{"after agent", hook(flow.Hooks{AfterAgent: func(*flow.CallbackContext) (*genai.Content, error) { panic("lost it") }}), "failed to run after agent callback: " + lost, "", 1},
		{"before model", hook(flow.Hooks{BeforeModel: func(*flow.CallbackContext, *flow.Request) (*session.Response, error) { panic("lost it") }}), lost, "", 0},
		{"after model", hook(flow.Hooks{AfterModel: func(*flow.CallbackContext, *session.Response) (*session.Response, error) { panic("lost it") }}), lost, "", 0},
		{"on model error", func(w *world) {
			hook(flow.Hooks{OnModelError: func(*flow.CallbackContext, *flow.Request, error) (*session.Response, error) { panic("lost it") }})(w)
			w.agent.Model = &brokenModel{}
		}, lost, "", 0},
		{"before tool", hook(flow.Hooks{BeforeTool: func(*flow.ToolContext, *flow.ToolCall) (map[string]any, error) { panic("lost it") }}), "", lost, 0},
		{"after tool", hook(flow.Hooks{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
			panic("lost it")
		}}), "", lost, 1},
		{"on tool error", func(w *world) {
			hook(flow.Hooks{OnToolError: func(*flow.ToolContext, *flow.ToolCall, error) (map[string]any, error) { panic("lost it") }})(w)
			w.agent.Tools = w.agent.Tools[1:]
		}, "", lost, 0},
		{"handler", func(w *world) {
			w.agent.Tools[0].(*flowtest.Tool).Do = func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) { panic("lost it\n") }
		}, "", `panic in tool "tool": lost it`, 1},
		{"handler, with nil", func(w *world) {
			w.agent.Tools[0].(*flowtest.Tool).Do = func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) { panic(nil) }
		}, "", `panic in tool "tool": panic called with nil argument`, 1},
		{"handler that ends its goroutine", func(w *world) {
			w.agent.Tools[0].(*flowtest.Tool).Do = func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
				runtime.Goexit()
				return flow.Outcome{}, nil
			}
		}, "", "tool_error: the call failed", 1},
		{"streaming tool", func(w *world) { w.agent.Tools[0] = &panickyStream{flow.Spec{Name: "tool"}} }, "", `panic in tool "tool": lost it`, 0},
		{"guard", func(w *world) {
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
				if q.Call.ID == "c1" {
					panic("lost it")
				}
				return flowtest.Echo(q, abi.Allow()), nil
			}}}
		}, "", unavailable, 0},
		{"tool set", func(w *world) { w.agent.Toolsets = []flow.Toolset{brokenSet{"tools"}} }, `failed to extract tools from the tool set "set": panic in tool set: lost it`, "", 0},
		{"tool set, request", func(w *world) { w.agent.Toolsets = []flow.Toolset{brokenSet{"request"}} }, `tool set "set": panic in request processor: lost it`, "", 0},
		{"tool, request", func(w *world) { w.agent.Tools[0] = brokenProcessor{w.agent.Tools[0].(*flowtest.Tool)} }, "panic in request processor: lost it", "", 0},
		{"instruction provider", func(w *world) { w.agent.InstructionProvider = func(*flow.Context) (string, error) { panic("lost it") } },
			"failed to append instructions: failed to evaluate instruction provider: panic in instruction provider: lost it", "", 0},
		{"global instruction provider", func(w *world) {
			w.agent.GlobalInstructionProvider = func(*flow.Context) (string, error) { panic("lost it") }
		},
			"failed to append instructions: failed to evaluate global instruction provider: panic in global instruction provider: lost it", "", 0},
		{"model", func(w *world) { w.agent.Model = &brokenModel{} }, "model broken: panic: lost it", "", 0},
		{"model, after an answer", func(w *world) { w.agent.Model = &brokenModel{flowtest.Say("hi")} }, "model broken: panic: lost it", "", 0},
		{"observer of decisions", func(w *world) { w.cfg.Observer.Decided = func(flow.CallInfo, *flow.Decision) { panic("lost it") } }, "", "", 1},
		{"observer of ends", func(w *world) { w.cfg.Observer.Finished = func(flow.CallInfo, flow.CallResult) { panic("lost it") } }, "", "", 1},
		{"observer of ends, of a call that is not run", func(w *world) {
			w.cfg.Observer.Finished = func(flow.CallInfo, flow.CallResult) { panic("lost it") }
			w.cfg.Limits.CallsPerStep = 1
			w.model.Steps[0] = append(w.model.Steps[0][:0:0], flowtest.Call(call("c2", "sibling", `{}`), call("c1", "tool", `{}`))...)
		}, "", "budget_exhausted: the run used up its budget", 0},
		{"observer of questions", func(w *world) {
			w.agent.Tools[0].(*flowtest.Tool).Describe.Confirm = true
			w.cfg.Observer.Asked = func(session.Question) { panic("lost it") }
		}, "", `error tool "tool" requires confirmation, please approve or reject`, 0},
		{"store, begin", func(w *world) { w.store = brokenStore{w.store, "begin"} }, "", "tool_error: the call failed", 0},
		{"store, end", func(w *world) { w.store = brokenStore{w.store, "end"} }, "", "tool_error: the call failed", 1},
		{"store, append", func(w *world) { w.store = brokenStore{w.store, "append"} }, "run: panic: lost it", "", 1},
		{"audit", func(w *world) { w.cfg.Audit = brokenSink{w.audit, "call.intent"} }, "", "storage_unavailable: the host could not record or read what the call needs", 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`), call("c2", "sibling", `{}`)))
			witness, sibling := tool("tool"), tool("sibling")
			w.agent.Tools = []flow.Tool{witness, sibling}
			c.spoil(w)
			o := w.run(flow.Text("go"))
			var got string
			if len(o.errs) > 0 {
				got = o.errs[0].Error()
			}
			if got != c.err || len(o.errs) > 1 {
				t.Errorf("errors %q, want %q", o.errs, c.err)
			}
			if len(witness.Calls()) != c.ran {
				t.Errorf("the handler ran %d times, want %d", len(witness.Calls()), c.ran)
			}
			if got := o.errorOf("c1"); !strings.HasPrefix(got, c.call) || (got == "") != (c.call == "") {
				t.Errorf("the model reads %q, want %q", got, c.call)
			}
			if c.err == "" && !strings.HasPrefix(c.name, "store") && c.name != "audit" && o.response("c2") != okResponse && c.name != "after tool" && c.name != "before tool" {
				t.Errorf("sibling: %s", o.response("c2"))
			}
			if len(w.stored().Events) == 0 && c.name != "on user message" {
				t.Error("the message was lost")
			}
		})
	}
}

type panickyStream struct{ spec flow.Spec }

func (s *panickyStream) Spec() *flow.Spec { return &s.spec }

func (s *panickyStream) Stream(*flow.ToolContext, flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		yield(flow.Chunk{Text: "a"}, nil)
		panic("lost it")
	}
}

// What a model says after the loop over its answers has ended is not heard.
func TestModelThatDoesNotStop(t *testing.T) {
	w := newWorld(t)
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.agent.Model = &deafModel{}
	o := w.run(flow.Text("go"))
	if len(o.errs) > 0 || len(o.events) == 0 {
		t.Errorf("events %s, errors %v", toJSON(t, o.events), o.errs)
	}
	if n := strings.Count(toJSON(t, o.events), "never heard"); n != 0 {
		t.Errorf("heard %d times", n)
	}
}

// A deafModel goes on after its consumer has stopped.
type deafModel struct{ n int }

func (*deafModel) Name() string { return "deaf" }

func (m *deafModel) Generate(_ context.Context, _ *flow.Request, _ bool) iter.Seq2[*session.Response, error] {
	m.n++
	n := m.n
	return func(yield func(*session.Response, error) bool) {
		if n > 1 {
			yield(flowtest.Say("done")[0].Response, nil)
			return
		}
		yield(flowtest.Call(call("c1", "tool", `{}`))[0].Response, nil)
		yield(flowtest.Say("never heard")[0].Response, nil)
	}
}

// A context that outlives its call changes nothing.
func TestContextsEnd(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
	w.cfg.Artifacts = flow.NewMemoryArtifacts()
	var kept *flow.ToolContext
	var callbacks []*flow.CallbackContext
	w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		kept = ctx
		return okResponse, nil
	})}
	keep := func(c *flow.CallbackContext) { callbacks = append(callbacks, c) }
	w.agent.Hooks = []flow.Hooks{{
		BeforeAgent: func(c *flow.CallbackContext) (*genai.Content, error) { keep(c); return nil, nil },
		BeforeModel: func(c *flow.CallbackContext, _ *flow.Request) (*session.Response, error) { keep(c); return nil, nil },
		AfterTool: func(c *flow.ToolContext, _ *flow.ToolCall, _ map[string]any, _ error) (map[string]any, error) {
			keep(&c.CallbackContext)
			return nil, nil
		},
	}}
	w.say("go")
	before := toJSON(t, w.stored())
	for what, err := range map[string]error{
		"state": kept.SetState(map[string]any{"a": 1}), "confirmation": kept.RequestConfirmation("x", nil), "transfer": kept.Transfer("x"),
		"escalate": kept.Escalate(), "skip": kept.SkipSummarization(),
	} {
		if err != flow.ErrEnded {
			t.Errorf("%s after the call: %v", what, err)
		}
	}
	if _, err := kept.SaveArtifact("a", genai.NewPartFromText("x")); err != flow.ErrEnded {
		t.Errorf("artifact after the call: %v", err)
	}
	if names, err := kept.Artifacts(); err != nil || len(names) != 0 {
		t.Errorf("artifacts %v, %v", names, err)
	}
	for i, c := range callbacks {
		if err := c.SetState(map[string]any{"a": 1}); err != flow.ErrEnded {
			t.Errorf("context %d after its hook: %v", i, err)
		}
	}
	if toJSON(t, w.stored()) != before {
		t.Error("the session changed")
	}
}

// Points that cannot change state or artifacts say so.
func TestReadOnlyContexts(t *testing.T) {
	w := newWorld(t)
	w.cfg.Artifacts = flow.NewMemoryArtifacts()
	got := map[string]error{}
	try := func(where string, c *flow.CallbackContext) {
		got[where] = c.SetState(map[string]any{"a": 1})
		if _, err := c.SaveArtifact("a", genai.NewPartFromText("x")); err != flow.ErrReadOnly {
			got[where+", artifact"] = err
		}
	}
	w.cfg.Hooks = []flow.Hooks{{
		OnUserMessage: func(c *flow.CallbackContext, _ *genai.Content) (*genai.Content, error) {
			try("message", c)
			return nil, nil
		},
		BeforeRun: func(c *flow.CallbackContext) (*genai.Content, error) { try("before run", c); return nil, nil },
		AfterRun:  func(c *flow.CallbackContext) { try("after run", c) },
		OnEvent: func(c *flow.CallbackContext, _ *session.Event) (*session.Event, error) {
			try("event", c)
			return nil, nil
		},
	}}
	w.say("go")
	if len(got) != 4 {
		t.Errorf("tried %v", got)
	}
	for where, err := range got {
		if err != flow.ErrReadOnly {
			t.Errorf("%s: %v", where, err)
		}
	}
}
