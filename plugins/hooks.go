package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Hooks returns the hooks that the manifest lists. Their calls have the grants and
// limits of [Config.Hooks], and no network. A hook that fails is a hook
// that returned an error: what follows is ADK's behaviour at that point.
func (p *Plugin) Hooks() flow.Hooks {
	h := flow.Hooks{Name: p.cfg.Name}
	has := func(point abi.HookPoint) bool { return slices.Contains(p.module.Manifest().Hooks, point) }
	content := func(point abi.HookPoint) func(*flow.CallbackContext) (*genai.Content, error) {
		return func(cc *flow.CallbackContext) (*genai.Content, error) {
			a, err := p.hook(cc, nil, abi.HookCall{Hook: point})
			if err != nil {
				return nil, err
			}
			return decodeAnswer[genai.Content](a.Answer)
		}
	}
	if has(abi.BeforeRun) {
		h.BeforeRun = content(abi.BeforeRun)
	}
	if has(abi.BeforeAgent) {
		h.BeforeAgent = content(abi.BeforeAgent)
	}
	if has(abi.AfterAgent) {
		h.AfterAgent = content(abi.AfterAgent)
	}
	if has(abi.OnUserMessage) {
		h.OnUserMessage = p.onUserMessage
	}
	if has(abi.AfterRun) {
		h.AfterRun = func(cc *flow.CallbackContext) {
			if _, err := p.hook(cc, nil, abi.HookCall{Hook: abi.AfterRun}); err != nil {
				p.cfg.Logger.Error("hook failed", "plugin", p.cfg.Name, "hook", abi.AfterRun, "err", err)
			}
		}
	}
	if has(abi.OnEvent) {
		h.OnEvent = p.onEvent
	}
	if has(abi.BeforeModel) {
		h.BeforeModel = p.beforeModel
	}
	if has(abi.AfterModel) {
		h.AfterModel = p.afterModel
	}
	if has(abi.OnModelError) {
		h.OnModelError = p.onModelError
	}
	if has(abi.BeforeTool) {
		h.BeforeTool = p.beforeTool
	}
	if has(abi.AfterTool) {
		h.AfterTool = p.afterTool
	}
	if has(abi.OnToolError) {
		h.OnToolError = p.onToolError
	}
	return h
}

// hook calls the guest at one point. ctx is nil where there is no tool call.
func (p *Plugin) hook(cc *flow.CallbackContext, ctx *flow.ToolContext, call abi.HookCall) (abi.HookAnswer, error) {
	call.Format, call.Kind, call.Config = abi.Version, abi.KindHook, p.cfg.Values
	call.Agent = cc.Agent()
	input, err := abi.Marshal(call)
	if err != nil {
		return abi.HookAnswer{}, err
	}
	access := host.Access{State: stateOf{cc}, Artifacts: &artifactsOf{ctx: cc}}
	if ctx != nil {
		access.Actions = actionsOf{ctx}
	}
	output, _, err := p.run(cc, &host.Call{Kind: abi.KindHook, Export: abi.ExportCall, Input: input,
		Grants: p.hooks, Limits: p.cfg.Hooks.Limits, Access: access}, string(call.Hook), call.CallID)
	if err != nil {
		return abi.HookAnswer{}, err
	}
	answer, err := abi.ParseHookAnswer(output, call.Hook)
	if err != nil {
		return abi.HookAnswer{}, &flow.CallError{Code: abi.GuestOutputInvalid, Err: err}
	}
	if answer.Error != "" {
		return abi.HookAnswer{}, errors.New(answer.Error)
	}
	return answer, nil
}

func (p *Plugin) onUserMessage(cc *flow.CallbackContext, c *genai.Content) (*genai.Content, error) {
	doc, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	a, err := p.hook(cc, nil, abi.HookCall{Hook: abi.OnUserMessage, Content: doc})
	if err != nil {
		return nil, err
	}
	if a.Content != nil { // changed in place: the chain goes on with it
		edited, err := decodeAnswer[genai.Content](a.Content)
		if err != nil {
			return nil, err
		}
		*c = *edited
	}
	return decodeAnswer[genai.Content](a.Answer)
}

func (p *Plugin) onEvent(cc *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
	doc, err := json.Marshal(ev)
	if err != nil {
		return nil, err
	}
	a, err := p.hook(cc, nil, abi.HookCall{Hook: abi.OnEvent, Event: doc})
	if err != nil {
		return nil, err
	}
	if a.Event != nil {
		edited, err := decodeAnswer[session.Event](a.Event)
		if err != nil {
			return nil, err
		}
		edited.Partial = ev.Partial
		ev.Response = edited.Response // what it says; whose it is and what it does stays
	}
	replaced, err := decodeAnswer[session.Event](a.Answer)
	if replaced != nil {
		replaced.Actions, replaced.LongRunningToolIDs = ev.Actions, ev.LongRunningToolIDs
	}
	return replaced, err
}

func (p *Plugin) beforeModel(cc *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
	doc, err := req.Document()
	if err != nil {
		return nil, err
	}
	a, err := p.hook(cc, nil, abi.HookCall{Hook: abi.BeforeModel, Request: doc})
	if err != nil {
		return nil, err
	}
	if a.Request != nil {
		if err := req.SetDocument(a.Request); err != nil {
			return nil, &flow.CallError{Code: abi.GuestOutputInvalid, Err: fmt.Errorf("hook answer: %w", err)}
		}
	}
	return decodeAnswer[session.Response](a.Answer)
}

func (p *Plugin) afterModel(cc *flow.CallbackContext, resp *session.Response) (*session.Response, error) {
	doc, err := json.Marshal(resp)
	if err != nil {
		return nil, err
	}
	a, err := p.hook(cc, nil, abi.HookCall{Hook: abi.AfterModel, Response: doc})
	if err != nil {
		return nil, err
	}
	if a.Response != nil {
		edited, err := decodeAnswer[session.Response](a.Response)
		if err != nil {
			return nil, err
		}
		edited.Partial = resp.Partial
		*resp = *edited
	}
	return decodeAnswer[session.Response](a.Answer)
}

func (p *Plugin) onModelError(cc *flow.CallbackContext, req *flow.Request, cause error) (*session.Response, error) {
	doc, err := req.Document()
	if err != nil {
		return nil, err
	}
	a, err := p.hook(cc, nil, abi.HookCall{Hook: abi.OnModelError, Request: doc, Error: cause.Error()})
	if err != nil {
		return nil, err
	}
	return decodeAnswer[session.Response](a.Answer)
}

func (p *Plugin) beforeTool(ctx *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
	a, err := p.toolHook(ctx, abi.BeforeTool, call, nil, nil)
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (p *Plugin) afterTool(ctx *flow.ToolContext, call *flow.ToolCall, result map[string]any, cause error) (map[string]any, error) {
	return p.toolHook(ctx, abi.AfterTool, call, result, cause)
}

func (p *Plugin) onToolError(ctx *flow.ToolContext, call *flow.ToolCall, cause error) (map[string]any, error) {
	return p.toolHook(ctx, abi.OnToolError, call, nil, cause)
}

// toolHook runs a tool hook. Edits replace the members of the maps that the
// dispatcher holds.
func (p *Plugin) toolHook(ctx *flow.ToolContext, point abi.HookPoint, call *flow.ToolCall, result map[string]any, cause error) (map[string]any, error) {
	hc := abi.HookCall{Hook: point, Tool: call.Name, CallID: call.ID}
	var err error
	if hc.Args, err = abi.Marshal(call.Args); err != nil {
		return nil, &flow.CallError{Code: abi.ArgsInvalid, Text: string(abi.ArgsInvalid) + ": " + err.Error()}
	}
	if result != nil {
		if hc.Result, err = abi.Marshal(result); err != nil {
			return nil, err
		}
	}
	if cause != nil {
		hc.Error = cause.Error()
	}
	a, err := p.hook(&ctx.CallbackContext, ctx, hc)
	if err != nil {
		return nil, err
	}
	for _, edit := range []struct {
		doc  json.RawMessage
		into map[string]any
	}{{a.Args, call.Args}, {a.Result, result}} {
		if edit.doc == nil || edit.into == nil {
			continue
		}
		v, err := abi.Unmarshal(edit.doc)
		if err != nil {
			return nil, err
		}
		clear(edit.into)
		maps.Copy(edit.into, v.(map[string]any)) // an object: ParseHookAnswer checked
	}
	if a.Answer == nil {
		return nil, nil
	}
	v, err := abi.Unmarshal(a.Answer)
	if err != nil {
		return nil, err
	}
	return v.(map[string]any), nil
}

// decodeAnswer decodes what a guest returned; nothing stays nil.
func decodeAnswer[T any](raw json.RawMessage) (*T, error) {
	if raw == nil {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v := new(T)
	if err := d.Decode(v); err != nil {
		return nil, &flow.CallError{Code: abi.GuestOutputInvalid, Err: fmt.Errorf("hook answer: %w", err)}
	}
	return v, nil
}
