package guesttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// hookKinds are the kinds of access that hooks may have.
var hookKinds = []string{"state", "artifact", "memory", "kv", "clock", "random", "log", "confirm", "skip-summary"}

// Hook calls the plugin at one point of a run. in has the point as its Hook, and what the
// point has: Args, Result, Request and so on, in JSON; an agent "agent", and at the
// points of tools a tool "tool", are filled in. A point at which the plugin has no hook
// fails the test. An error that the hook returns is the code tool_error.
func (h *Host) Hook(t *testing.T, in abi.HookCall) Result {
	t.Helper()
	module, m := served(t)
	if !slices.Contains(m.Hooks, in.Hook) {
		t.Fatalf("guesttest: plugin %s has no hook at %q", m.Name, in.Hook)
	}
	grants := h.granted(t, m)
	for _, c := range grants.Capabilities() {
		if !slices.Contains(hookKinds, c.Kind()) {
			t.Fatalf("guesttest: grant %s: a hook may have %v", c, hookKinds)
		}
	}
	in.Format, in.Kind, in.Config, in.Agent = abi.Version, abi.KindHook, h.config(m), cmp.Or(in.Agent, "agent")
	ofTool := in.Hook == abi.BeforeTool || in.Hook == abi.AfterTool || in.Hook == abi.OnToolError
	if ofTool {
		in.Tool, in.CallID = cmp.Or(in.Tool, "tool"), cmp.Or(in.CallID, callID)
		if in.Args == nil {
			in.Args = json.RawMessage("{}")
		}
	}
	input, err := abi.Marshal(in)
	if err != nil {
		t.Fatalf("guesttest: hook call: %v", err)
	}
	var res Result
	a := h.open(t, "plugin "+m.Name, h.now(), &res)
	// Where nothing is part of an event that follows, nothing can be changed.
	a.readOnly = slices.Contains([]abi.HookPoint{abi.OnUserMessage, abi.BeforeRun, abi.AfterRun, abi.OnEvent}, in.Hook)
	c := &host.Call{Kind: abi.KindHook, Input: input, Grants: grants, Limits: h.limits(m, abi.KindHook), Now: h.now(), Seed: h.seed(),
		Access: host.Access{State: a, Artifacts: a, KV: a.kv, Memory: a, Secrets: h.secrets(t)}}
	if ofTool {
		c.Access.Actions = a.actions(in.CallID)
	}
	res.witness(c)
	reply, err := call(t, module, c)
	res.answer(in.Hook, reply, err)
	a.close()
	return res
}

// answer reads what a hook answered.
func (res *Result) answer(point abi.HookPoint, reply *host.Reply, err error) {
	if failed, ok := errors.AsType[*host.GuestError](err); ok {
		res.stopped(string(point), failed)
		return
	}
	res.receipt(reply.Receipt)
	answer, err := abi.ParseHookAnswer(reply.Output, point)
	switch {
	case err != nil:
		res.fail(abi.GuestOutputInvalid, "", err.Error())
	case answer.Error != "":
		res.fail(abi.ToolError, answer.Error, "")
	default:
		res.Code, res.Value = abi.OK, answer.Answer
		for _, document := range []json.RawMessage{answer.Args, answer.Result, answer.Request, answer.Response, answer.Content, answer.Event} {
			if document != nil { // there is one at most
				res.Changed = document
			}
		}
	}
}
