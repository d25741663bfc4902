package guesttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Tool calls a tool of the plugin, under the name that its manifest has, with arguments
// in JSON, as a model sends them. The call has the id "call-1". A tool that is not there fails the test; whatever
// else can happen to a call is in the [Result].
func (h *Host) Tool(t *testing.T, name, args string) Result {
	t.Helper()
	module, m := served(t)
	var tool *abi.Tool
	for i := range m.Tools {
		if m.Tools[i].Name == name {
			tool = &m.Tools[i]
		}
	}
	if tool == nil {
		t.Fatalf("guesttest: plugin %s has no tool %q", m.Name, name)
	}
	grants := h.granted(t, m)
	var res Result
	arguments, err := objectOf(args)
	if err != nil {
		res.fail(abi.ArgsInvalid, fmt.Sprintf("%s: %v", abi.ArgsInvalid, err), "")
		return res
	}
	if err := validate(t, tool.Input, arguments); err != nil {
		res.fail(abi.ArgsInvalid, err.Error(), "")
		return res
	}
	switch c := h.Confirmation; {
	case !tool.Confirm || c != nil && c.Confirmed:
	case c == nil:
		res.fail(abi.ConfirmationPending, fmt.Sprintf("error tool %q requires confirmation, please approve or reject", name), "")
		res.SkipSummary, res.Asked = true, &guest.Confirmation{Hint: fmt.Sprintf(
			"Please approve or reject the tool call %s() by responding with a FunctionResponse with an expected ToolConfirmation payload.", name)}
		return res
	default:
		res.fail(abi.ConfirmationRejected, fmt.Sprintf("error tool %q call is rejected", name), "")
		return res
	}
	in := abi.ToolCall{Format: abi.Version, Kind: abi.KindTool, Tool: name, ID: callID, Args: arguments, Config: h.config(m),
		Now: h.now().UTC().Format(time.RFC3339Nano), Confirmation: h.Confirmation}
	input, err := abi.Marshal(in)
	if err != nil {
		res.fail(abi.ToolError, err.Error(), "")
		return res
	}
	a := h.open(t, "plugin "+m.Name, h.now(), &res)
	egress, cassettes := h.egress(t)
	c := &host.Call{Kind: abi.KindTool, Input: input, Grants: grants, Limits: h.limits(m, abi.KindTool), Now: h.now(), Seed: h.seed(),
		Access: host.Access{State: a, Artifacts: a, KV: a.kv, Memory: a, Actions: a.actions(callID), Egress: egress, Secrets: h.secrets(t)}}
	if tool.Streaming {
		c.Access.Emit = res.emit
	}
	res.witness(c)
	reply, err := call(t, module, c)
	res.end(t, name, tool, reply, err)
	a.close()
	if left := cassettes.Unplayed(); len(left) > 0 {
		t.Errorf("guesttest: cassette %s: never asked for: %s", h.Cassette, strings.Join(left, ", "))
	}
	return res
}

// callID is the id of every call.
const callID = "call-1"

// objectOf reads an object as the flow does.
func objectOf(text string) (json.RawMessage, error) {
	document, err := abi.Canonical([]byte(text))
	if err == nil && document[0] != '{' {
		err = errors.New("not an object")
	}
	if err == nil {
		err = abi.CheckDepth(document)
	}
	return document, err
}

// end reads what the guest answered.
func (res *Result) end(t *testing.T, name string, tool *abi.Tool, reply *host.Reply, err error) {
	t.Helper()
	if failed, ok := errors.AsType[*host.GuestError](err); ok {
		res.stopped(name, failed)
		return
	}
	res.receipt(reply.Receipt)
	answer, err := abi.ParseToolResult(reply.Output)
	if err != nil {
		res.fail(abi.GuestOutputInvalid, "", err.Error())
		return
	}
	if f := answer.Fail; f != nil {
		res.Fail = f.Code
		res.fail(abi.GuestError, cmp.Or(f.Message, f.Code), "")
		return
	}
	res.Code = abi.OK
	if string(answer.Result) == "null" {
		return
	}
	if answer.Result != nil && tool.Output != nil {
		if err := validate(t, tool.Output, answer.Result); err != nil {
			res.fail(abi.GuestOutputInvalid, err.Error(), "")
			return
		}
	}
	shown := answer.Result // as a model is
	if len(shown) > 0 && shown[0] != '{' {
		shown = fmt.Appendf(nil, `{"result":%s}`, shown)
	}
	if err := abi.CheckDepth(shown); err != nil {
		res.fail(abi.GuestOutputInvalid, "", err.Error())
		return
	}
	res.Value = answer.Result
}

// stopped makes res the end of a call of the tool or hook of that name whose guest did
// not answer. The model reads what it panicked with.
func (res *Result) stopped(name string, failed *host.GuestError) {
	res.receipt(failed.Receipt)
	message := ""
	if text, ok := strings.CutPrefix(failed.Detail, "panic: "); ok {
		text, _, _ = strings.Cut(text, "\n")
		message = fmt.Sprintf("panic in tool %q: %s", name, text)
	}
	res.fail(failed.Code, message, failed.Detail)
}
