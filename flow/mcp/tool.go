package mcp

//adk:errors how a call failed is told as the vectors have it

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A tool is one tool of a server, over the connection that listed it.
type tool struct {
	spec     flow.Spec
	output   any // as listed: the schema of the structured content, not of the result; nil: unknown
	resolved *jsonschema.Resolved
	set      *Toolset
	session  *sdk.ClientSession
}

// Spec implements [flow.Tool].
func (t *tool) Spec() *flow.Spec { return &t.spec }

// ProcessRequest declares the schema of the structured content. It cannot be the
// spec's, which is one of the whole result.
func (t *tool) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	if t.output == nil {
		return nil
	}
	own, err := schema(t.output) // which hooks may change
	if err != nil {
		return err
	}
	for _, tools := range req.Config.Tools {
		if tools == nil {
			continue
		}
		for _, d := range tools.FunctionDeclarations {
			if d.Name == t.spec.Name {
				d.ResponseJsonSchema = own
			}
		}
	}
	return nil
}

// Run calls the tool on the server. It implements [flow.Handler].
func (t *tool) Run(ctx *flow.ToolContext, permit flow.Permit) (flow.Outcome, error) {
	both, done := t.set.until(ctx)
	defer done()
	res, err := t.session.CallTool(both, &sdk.CallToolParams{Name: t.spec.Name, Arguments: permit.Args()})
	if err != nil {
		return flow.Outcome{}, fmt.Errorf("failed to call MCP tool %q with err: %w", t.spec.Name, err) // ADK's text
	}
	if res.NeedsInput() {
		return flow.Outcome{}, fmt.Errorf("MCP tool %q asks for input, which it is not given", t.spec.Name)
	}
	text := format(res.Content)
	if res.IsError {
		details := "Tool execution failed." // ADK's text
		if text != "" {
			details += " Details: " + text
		}
		return flow.Outcome{}, errors.New(details)
	}
	var output any = text
	if res.StructuredContent != nil {
		if output, err = t.structured(res.StructuredContent); err != nil {
			return flow.Outcome{}, err
		}
	}
	data, err := abi.Marshal(map[string]any{"output": output})
	if err != nil {
		return flow.Outcome{}, &flow.CallError{Code: abi.GuestOutputInvalid, Err: err}
	}
	return flow.Outcome{Result: data}, nil
}

// structured checks structured content, which is a string of JSON here.
func (t *tool) structured(content any) (json.RawMessage, error) {
	invalid := func(err error) error {
		return &flow.CallError{Code: abi.GuestOutputInvalid, Err: fmt.Errorf("structured content of MCP tool %s: %w", t.spec.Name, err)}
	}
	text, ok := content.(string)
	if !ok {
		return nil, invalid(errors.New("its numbers may have lost digits"))
	}
	data, err := abi.Canonical([]byte(text))
	if err != nil {
		return nil, invalid(err)
	}
	if t.resolved != nil {
		if err := flow.Validate(t.resolved, data); err != nil {
			return nil, invalid(err)
		}
	}
	return data, nil
}
