package conformance

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// hook makes two plugins of an entry that speaks at one call only: one with the
// script, and one that has nothing to do.
func (g *Guests) hook(ctx context.Context, h hookSpec, e *hookEntry) (flow.Hooks, error) {
	hooks, err := g.scripted(ctx, h.Do, e)
	if err != nil || h.OnCall == 0 && h.Tool == "" {
		return hooks, err
	}
	idle := hooks
	if h.OnCall != 0 {
		if idle, err = g.scripted(ctx, nil, e); err != nil {
			return hooks, err
		}
	}
	now := func() flow.Hooks { // the hooks of this invocation
		if n := e.count(); h.OnCall != 0 && n != h.OnCall {
			return idle
		}
		return hooks
	}
	return chosen(h.Hook, h.Tool, now), nil
}

// scripted makes the hooks of one entry with a script.
func (g *Guests) scripted(ctx context.Context, do []map[string]any, e *hookEntry) (flow.Hooks, error) {
	p, err := g.plugin(ctx, &abi.Manifest{Hooks: []abi.HookPoint{abi.HookPoint(e.hook)}}, do, e.rec, func(said []byte) error {
		x, err := received(said)
		if err == nil {
			e.log(ctx, x)
		}
		return err
	})
	if err != nil {
		return flow.Hooks{}, fmt.Errorf("hook %s of %s: %w", e.hook, e.scope, err)
	}
	return p.Hooks(), nil
}

// received reads what a hook says it received, as vectors show it.
func received(said []byte) (entry, error) {
	var call abi.HookCall
	if err := abi.Decode(said, &call); err != nil {
		return entry{}, err
	}
	x := entry{agent: call.Agent, tool: call.Tool, err: call.Error}
	switch call.Hook {
	case abi.OnUserMessage, abi.BeforeRun, abi.AfterRun, abi.OnEvent:
		x.agent = "" // the hook belongs to the run
	}
	for _, m := range []struct {
		from json.RawMessage
		to   any
	}{{call.Args, &x.args}, {call.Result, &x.result}} {
		if m.from == nil {
			continue
		}
		if err := abi.Decode(m.from, m.to); err != nil {
			return entry{}, err
		}
	}
	if call.Response != nil {
		x.response = &session.Response{}
		if err := json.Unmarshal(call.Response, x.response); err != nil {
			return entry{}, err
		}
	}
	if call.Event != nil {
		var ev session.Event
		if err := json.Unmarshal(call.Event, &ev); err != nil {
			return entry{}, err
		}
		x.author = ev.Author
	}
	return x, nil
}

// chosen makes hooks that ask at each invocation which hooks to run. Calls of tools
// other than tool, unless that is empty, are none of their business.
func chosen(point, tool string, now func() flow.Hooks) flow.Hooks {
	out := flow.Hooks{}
	other := func(call *flow.ToolCall) bool { return tool != "" && tool != call.Name }
	switch abi.HookPoint(point) {
	case abi.OnUserMessage:
		out.OnUserMessage = func(cc *flow.CallbackContext, c *genai.Content) (*genai.Content, error) {
			return now().OnUserMessage(cc, c)
		}
	case abi.BeforeRun:
		out.BeforeRun = func(cc *flow.CallbackContext) (*genai.Content, error) { return now().BeforeRun(cc) }
	case abi.AfterRun:
		out.AfterRun = func(cc *flow.CallbackContext) { now().AfterRun(cc) }
	case abi.OnEvent:
		out.OnEvent = func(cc *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			return now().OnEvent(cc, ev)
		}
	case abi.BeforeAgent:
		out.BeforeAgent = func(cc *flow.CallbackContext) (*genai.Content, error) { return now().BeforeAgent(cc) }
	case abi.AfterAgent:
		out.AfterAgent = func(cc *flow.CallbackContext) (*genai.Content, error) { return now().AfterAgent(cc) }
	case abi.BeforeModel:
		out.BeforeModel = func(cc *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
			return now().BeforeModel(cc, req)
		}
	case abi.AfterModel:
		out.AfterModel = func(cc *flow.CallbackContext, resp *session.Response) (*session.Response, error) {
			return now().AfterModel(cc, resp)
		}
	case abi.OnModelError:
		out.OnModelError = func(cc *flow.CallbackContext, req *flow.Request, cause error) (*session.Response, error) {
			return now().OnModelError(cc, req, cause)
		}
	case abi.BeforeTool:
		out.BeforeTool = func(tc *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
			if other(call) {
				return nil, nil
			}
			return now().BeforeTool(tc, call)
		}
	case abi.AfterTool:
		out.AfterTool = func(tc *flow.ToolContext, call *flow.ToolCall, result map[string]any, cause error) (map[string]any, error) {
			if other(call) {
				return nil, nil
			}
			return now().AfterTool(tc, call, result, cause)
		}
	case abi.OnToolError:
		out.OnToolError = func(tc *flow.ToolContext, call *flow.ToolCall, cause error) (map[string]any, error) {
			if other(call) {
				return nil, nil
			}
			return now().OnToolError(tc, call, cause)
		}
	}
	return out
}
