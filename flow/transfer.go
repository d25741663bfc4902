package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A transfer is a tool call like any other: hooks and guards see it, and its
// intent is recorded. The step that made it then hands the conversation over.

// A transferTool is transfer_to_agent. Whether the target is a right one is found
// out when the step is over, as in ADK.
type transferTool struct{ spec Spec }

func newTransferTool(targets []*Agent) *transferTool {
	var names []any
	for _, a := range targets {
		names = append(names, a.Name)
	}
	return &transferTool{Spec{Name: transferToAgent, Effects: abi.None,
		Description: "Transfer the question to another agent.\nThis tool hands off control to another agent when it's more suitable to answer " +
			"the user's question according to the agent's description.",
		declared: &jsonschema.Schema{Type: "object", Required: []string{"agent_name"}, Properties: map[string]*jsonschema.Schema{
			"agent_name": {Type: "string", Description: "the agent name to transfer to", Enum: names}}}}}
}

func (t *transferTool) framework()  {}
func (t *transferTool) Spec() *Spec { return &t.spec }

func (t *transferTool) Run(ctx *ToolContext, permit Permit) (Outcome, error) {
	var args map[string]any
	if err := abi.Decode(permit.Args(), &args); err != nil {
		return Outcome{}, err
	}
	name, _ := args["agent_name"].(string)
	if name == "" {
		return Outcome{}, fmt.Errorf("empty agent_name: %v", args)
	}
	return Outcome{Result: json.RawMessage("{}")}, ctx.Transfer(name)
}

// target returns the agent of that name to which this one may hand over, or nil.
func (f *agentRun) target(name string) *Agent {
	for _, a := range f.tree.targets(f.agent) {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// offerTransfer declares transfer_to_agent and tells a chat agent when to use it.
func (f *agentRun) offerTransfer(req *Request) error {
	i := slices.IndexFunc(f.own, func(t Tool) bool { _, ok := t.(*transferTool); return ok })
	if i < 0 {
		return nil
	}
	text := ""
	if f.mode() == Chat {
		text = f.transferInstruction()
	}
	req.joinInstruction(text) // also the empty one, as in ADK
	return req.Pack(f.own[i])
}

func (f *agentRun) transferInstruction() string {
	var b strings.Builder
	b.WriteString("\nYou have a list of other agents to transfer to:\n\n")
	var names []string
	for _, a := range f.tree.targets(f.agent) {
		fmt.Fprintf(&b, "\nAgent name: %s\nAgent description: %s\n\n", a.Name, a.Description)
		names = append(names, "`"+a.Name+"`")
	}
	slices.Sort(names)
	fmt.Fprintf(&b, `
If you are the best to answer the question according to your description,
you can answer it.

If another agent is better for answering the question according to its
description, call `+"`transfer_to_agent`"+` function to transfer the question to that
agent. When transferring, do not generate any text other than the function
call.

**NOTE**: the only available agents for `+"`transfer_to_agent`"+` function are
%s.
`, strings.Join(names, ", "))
	if parent := f.tree.parent[f.agent]; parent != nil && parent.Type == ModelAgent && !f.agent.NoTransferToParent {
		fmt.Fprintf(&b, "\nIf neither you nor the other agents are best for the question, transfer to your parent agent %s.\n", parent.Name)
	}
	return b.String()
}
