package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Native runs handlers and hooks in this process.
var Native Handlers = native{}

type native struct{}

func (native) tool(_ context.Context, spec flow.Spec, t *toolSpec, r *recorder) (flow.Tool, error) {
	if t.Kind == "streaming" {
		return &nativeStream{spec: spec, t: t, rec: r}, nil
	}
	return &nativeTool{spec: spec, do: t.Do, rec: r}, nil
}

type nativeTool struct {
	spec flow.Spec
	do   []map[string]any
	rec  *recorder
}

func (t *nativeTool) Spec() *flow.Spec { return &t.spec }

func (t *nativeTool) Run(ctx *flow.ToolContext, permit flow.Permit) (flow.Outcome, error) {
	args, err := abi.Unmarshal(permit.Args())
	if err != nil {
		return flow.Outcome{}, err
	}
	t.rec.toolCall(t.spec.Name, args, ctx.CallID())
	result, none, err := runToolOps(ctx, t.do, args, noted{t.rec, t.spec.Name})
	if err != nil || none {
		return flow.Outcome{}, err
	}
	data, err := abi.Marshal(result)
	return flow.Outcome{Result: data}, err
}

// noted records the effects of one call as a guest's host calls would show them.
type noted struct {
	rec *recorder
	by  string // the tool, or the point of the hook
}

// effect records an effect, unless it failed, and returns err.
func (n noted) effect(call, detail string, err error) error {
	if err == nil {
		n.rec.effect(Effect{By: n.by, Call: call, Detail: detail, Code: abi.OK})
	}
	return err
}

// setState sets state values.
func (n noted) setState(ctx *flow.CallbackContext, v any) error {
	values := v.(map[string]any)
	var keys []string
	for k := range values {
		keys = append(keys, scoped(k))
	}
	slices.Sort(keys)
	return n.effect("state_set", strings.Join(keys, " "), ctx.SetState(values))
}

// scoped returns a state key as grants write it.
func scoped(key string) string {
	if scope, _ := session.SplitKey(key); scope == session.ScopeSession {
		return "session:" + key
	}
	return key
}

func (n noted) saveArtifact(ctx *flow.CallbackContext, v any) error {
	var a artifactSpec
	if err := remarshal(v, &a); err != nil {
		return err
	}
	_, err := ctx.SaveArtifact(a.Name, a.Part)
	return n.effect("artifact_save", a.Name, err)
}

func runToolOps(ctx *flow.ToolContext, do []map[string]any, args any, note noted) (result any, none bool, err error) {
	for _, op := range do {
		for name, v := range op {
			switch name {
			case "state_set":
				err = note.setState(&ctx.CallbackContext, v)
			case "sleep_ms":
				ms, _ := v.(json.Number).Int64()
				select {
				case <-time.After(time.Duration(ms) * time.Millisecond):
				case <-ctx.Done():
				}
			case "skip_summarization":
				err = note.effect("skip_summary", "", ctx.SkipSummarization())
			case "escalate":
				err = note.effect("escalate", "", ctx.Escalate())
			case "transfer_to":
				err = note.effect("transfer", "", ctx.Transfer(v.(string)))
			case "save_artifact":
				err = note.saveArtifact(&ctx.CallbackContext, v)
			case "ask_confirmation":
				if ctx.Confirmation() == nil {
					m := v.(map[string]any)
					hint, _ := m["hint"].(string)
					if err := note.effect("confirm", "", ctx.RequestConfirmation(hint, m["payload"])); err != nil {
						return nil, false, err
					}
					return m["pending"], false, nil
				}
			case "return":
				return v, false, nil
			case "return_args":
				return map[string]any{"args": args}, false, nil
			case "return_state":
				state := map[string]any{}
				for _, k := range v.([]any) {
					value, ok := ctx.State(k.(string))
					if !ok {
						value = "<missing>"
					}
					_ = note.effect("state_get", scoped(k.(string)), nil)
					state[k.(string)] = value
				}
				return map[string]any{"state": state}, false, nil
			case "return_confirmation":
				c := map[string]any{}
				if got := ctx.Confirmation(); got != nil {
					c["confirmed"] = got.Confirmed
					c["payload"] = got.Payload
				}
				return map[string]any{"confirmation": c}, false, nil
			case "return_error":
				return nil, false, errors.New(v.(string))
			case "panic":
				panic(v)
			case "return_nil":
				return nil, true, nil
			default:
				return nil, false, fmt.Errorf("operation %q: not known to tools", name)
			}
			if err != nil {
				return nil, false, err
			}
		}
	}
	return map[string]any{}, false, nil
}

// remarshal converts between two forms of one JSON document.
func remarshal(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

type nativeStream struct {
	spec flow.Spec
	t    *toolSpec
	rec  *recorder
}

func (t *nativeStream) Spec() *flow.Spec { return &t.spec }

func (t *nativeStream) Stream(ctx *flow.ToolContext, permit flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		args, err := abi.Unmarshal(permit.Args())
		if err != nil {
			yield(flow.Chunk{}, err)
			return
		}
		t.rec.toolCall(t.spec.Name, args, ctx.CallID())
		note := noted{t.rec, t.spec.Name}
		for i, text := range t.t.Chunks {
			if t.t.ErrorAfter != nil && i == *t.t.ErrorAfter {
				break
			}
			if t.t.PanicAfter != nil && i == *t.t.PanicAfter {
				panic(t.t.Panic)
			}
			if !yield(flow.Chunk{Text: text}, nil) {
				return
			}
			_ = note.effect("emit", "", nil)
		}
		if t.t.ErrorAfter != nil {
			yield(flow.Chunk{}, errors.New(t.t.Error))
		}
	}
}

// hooks makes the hooks of one entry of a plugin or agent.
func (native) hook(_ context.Context, h hookSpec, e *hookEntry) (flow.Hooks, error) {
	out := flow.Hooks{Name: e.scope}
	note := noted{e.rec, e.hook}
	do := func() []map[string]any { // the operations of this invocation
		if n := e.count(); h.OnCall != 0 && n != h.OnCall {
			return nil
		}
		return h.Do
	}
	switch h.Hook {
	case "on_user_message":
		out.OnUserMessage = func(ctx *flow.CallbackContext, c *genai.Content) (*genai.Content, error) {
			e.log(ctx, entry{})
			return contentOps(ctx, do(), note)
		}
	case "before_run":
		out.BeforeRun = func(ctx *flow.CallbackContext) (*genai.Content, error) {
			e.log(ctx, entry{})
			return contentOps(ctx, do(), note)
		}
	case "after_run":
		out.AfterRun = func(ctx *flow.CallbackContext) { e.log(ctx, entry{}) }
	case "on_event":
		out.OnEvent = func(ctx *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			e.log(ctx, entry{author: ev.Author})
			return eventOps(do(), ev)
		}
	case "before_agent":
		out.BeforeAgent = func(ctx *flow.CallbackContext) (*genai.Content, error) {
			e.log(ctx, entry{agent: ctx.Agent()})
			return contentOps(ctx, do(), note)
		}
	case "after_agent":
		out.AfterAgent = func(ctx *flow.CallbackContext) (*genai.Content, error) {
			e.log(ctx, entry{agent: ctx.Agent()})
			return contentOps(ctx, do(), note)
		}
	case "before_model":
		out.BeforeModel = func(ctx *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
			e.log(ctx, entry{agent: ctx.Agent()})
			return modelOps(ctx, do(), req, nil, note)
		}
	case "after_model":
		out.AfterModel = func(ctx *flow.CallbackContext, resp *session.Response) (*session.Response, error) {
			e.log(ctx, entry{agent: ctx.Agent(), response: resp})
			return modelOps(ctx, do(), nil, resp, note)
		}
	case "on_model_error":
		out.OnModelError = func(ctx *flow.CallbackContext, req *flow.Request, err error) (*session.Response, error) {
			e.log(ctx, entry{agent: ctx.Agent(), err: err.Error()})
			return modelOps(ctx, do(), req, nil, note)
		}
	case "before_tool":
		out.BeforeTool = func(ctx *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
			if h.Tool != "" && h.Tool != call.Name {
				return nil, nil
			}
			e.log(&ctx.CallbackContext, entry{agent: ctx.Agent(), tool: call.Name, args: call.Args})
			return toolHookOps(ctx, do(), call.Args, nil, note)
		}
	case "after_tool":
		out.AfterTool = func(ctx *flow.ToolContext, call *flow.ToolCall, result map[string]any, err error) (map[string]any, error) {
			if h.Tool != "" && h.Tool != call.Name {
				return nil, nil
			}
			x := entry{agent: ctx.Agent(), tool: call.Name, args: call.Args, result: result}
			if err != nil {
				x.err = err.Error()
			}
			e.log(&ctx.CallbackContext, x)
			return toolHookOps(ctx, do(), nil, result, note)
		}
	case "on_tool_error":
		out.OnToolError = func(ctx *flow.ToolContext, call *flow.ToolCall, err error) (map[string]any, error) {
			if h.Tool != "" && h.Tool != call.Name {
				return nil, nil
			}
			e.log(&ctx.CallbackContext, entry{agent: ctx.Agent(), tool: call.Name, args: call.Args, err: err.Error()})
			return toolHookOps(ctx, do(), nil, nil, note)
		}
	default:
		return out, fmt.Errorf("hook %q: unknown", h.Hook)
	}
	return out, nil
}

func contentOps(ctx *flow.CallbackContext, do []map[string]any, note noted) (*genai.Content, error) {
	for _, op := range do {
		for name, v := range op {
			switch name {
			case "state_set":
				if err := note.setState(ctx, v); err != nil {
					return nil, err
				}
			case "save_artifact":
				if err := note.saveArtifact(ctx, v); err != nil {
					return nil, err
				}
			case "return_content":
				c := &genai.Content{}
				return c, remarshal(v, c)
			case "return_error":
				return nil, errors.New(v.(string))
			default:
				return nil, fmt.Errorf("operation %q: not known to this hook", name)
			}
		}
	}
	return nil, nil
}

func eventOps(do []map[string]any, ev *session.Event) (*session.Event, error) {
	text := func() string {
		if ev.Content == nil || len(ev.Content.Parts) == 0 {
			return ""
		}
		return ev.Content.Parts[0].Text
	}
	for _, op := range do {
		for name, v := range op {
			switch name {
			case "if_text":
				if text() != v {
					return nil, nil
				}
			case "return_error":
				return nil, errors.New(v.(string))
			case "replace_event_text":
				if text() == "" {
					return nil, nil
				}
				c := ev.Clone()
				c.Content.Parts[0].Text = v.(string)
				return c, nil
			default:
				return nil, fmt.Errorf("operation %q: not known to on_event", name)
			}
		}
	}
	return nil, nil
}

func modelOps(ctx *flow.CallbackContext, do []map[string]any, req *flow.Request, resp *session.Response, note noted) (*session.Response, error) {
	for _, op := range do {
		for name, v := range op {
			switch name {
			case "state_set":
				if err := note.setState(ctx, v); err != nil {
					return nil, err
				}
			case "save_artifact":
				if err := note.saveArtifact(ctx, v); err != nil {
					return nil, err
				}
			case "return_response":
				return responseOf(v)
			case "return_error":
				return nil, errors.New(v.(string))
			case "append_instruction":
				req.AppendInstructions(v.(string))
			case "append_content":
				c := &genai.Content{}
				if err := remarshal(v, c); err != nil {
					return nil, err
				}
				req.Contents = append(req.Contents, c)
			case "set_temperature":
				f, _ := v.(json.Number).Float64()
				t := float32(f)
				req.Config.Temperature = &t
			case "remove_function_declarations":
				for _, t := range req.Config.Tools {
					t.FunctionDeclarations = nil
				}
			case "append_text":
				for _, p := range resp.Content.Parts {
					if p.Text != "" {
						p.Text += v.(string)
						break
					}
				}
			default:
				return nil, fmt.Errorf("operation %q: not known to model hooks", name)
			}
		}
	}
	return nil, nil
}

func responseOf(v any) (*session.Response, error) {
	m, _ := v.(map[string]any)
	resp := &session.Response{}
	if c := m["content"]; c != nil {
		resp.Content = &genai.Content{}
		if err := remarshal(c, resp.Content); err != nil {
			return nil, err
		}
	}
	resp.Partial, _ = m["partial"].(bool)
	resp.TurnComplete, _ = m["turn_complete"].(bool)
	resp.Interrupted, _ = m["interrupted"].(bool)
	resp.ErrorCode, _ = m["error_code"].(string)
	resp.ErrorMessage, _ = m["error_message"].(string)
	return resp, nil
}

func toolHookOps(ctx *flow.ToolContext, do []map[string]any, args, result map[string]any, note noted) (map[string]any, error) {
	for _, op := range do {
		for name, v := range op {
			switch name {
			case "state_set":
				if err := note.setState(&ctx.CallbackContext, v); err != nil {
					return nil, err
				}
			case "save_artifact":
				if err := note.saveArtifact(&ctx.CallbackContext, v); err != nil {
					return nil, err
				}
			case "skip_summarization":
				if err := note.effect("skip_summary", "", ctx.SkipSummarization()); err != nil {
					return nil, err
				}
			case "set_arg":
				for k, x := range v.(map[string]any) {
					args[k] = x
				}
			case "set_result":
				for k, x := range v.(map[string]any) {
					result[k] = x
				}
			case "return":
				return v.(map[string]any), nil
			case "return_error":
				return nil, errors.New(v.(string))
			default:
				return nil, fmt.Errorf("operation %q: not known to tool hooks", name)
			}
		}
	}
	return nil, nil
}
