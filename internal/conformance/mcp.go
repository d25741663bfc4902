package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxd/sandboxd/flow"
	flowmcp "github.com/sandboxd/sandboxd/flow/mcp"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An mcpToolSpec is a tool of an MCP server and what it answers, always.
type mcpToolSpec struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema"`
	Text         []string        `json:"text"`
	Structured   json.RawMessage `json:"structured"`
	IsError      bool            `json:"is_error"`
	CallError    string          `json:"call_error"`
}

// mcpToolset starts a server in this process and returns a toolset over it. What
// the tools of a vector are made of makes no difference to it: the server is no
// guest. It says itself what it received.
func (s *scenario) mcpToolset(ctx context.Context, key string, t *toolsetSpec) (flow.Toolset, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: key, Version: "1"}, nil)
	for _, tool := range t.MCPTools {
		listed := &mcp.Tool{Name: tool.Name, Description: tool.Description, InputSchema: json.RawMessage(`{"type":"object"}`)}
		if tool.InputSchema != nil {
			listed.InputSchema = tool.InputSchema
		}
		if tool.OutputSchema != nil {
			listed.OutputSchema = tool.OutputSchema
		}
		server.AddTool(listed, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			args, err := abi.Unmarshal(req.Params.Arguments)
			if err != nil {
				return nil, err
			}
			s.rec.serverCall(req.Params.Name, args)
			return tool.answer()
		})
	}
	here, there := net.Pipe()
	served, err := server.Connect(ctx, &mcp.IOTransport{Reader: there, Writer: there}, nil)
	if err != nil {
		return nil, err
	}
	set := flowmcp.New(key, flowmcp.Stream(here), flowmcp.Config{Confirm: t.Confirm && !t.WithConfirmation, ConfirmIf: t.mcpPredicate()})
	s.closers = append(s.closers, set.Close, served.Close, here.Close)
	return set, nil
}

// mcpPredicate is the predicate of the toolset itself, not of what wraps it.
func (t *toolsetSpec) mcpPredicate() func(string, map[string]any) bool {
	if t.WithConfirmation || t.ConfirmIf == nil {
		return nil
	}
	ask := predicate(t.ConfirmIf)
	return func(_ string, args map[string]any) bool { return ask(args) }
}

func (t *mcpToolSpec) answer() (*mcp.CallToolResult, error) {
	if t.CallError != "" {
		return nil, errors.New(t.CallError)
	}
	res := &mcp.CallToolResult{IsError: t.IsError}
	for _, text := range t.Text {
		res.Content = append(res.Content, &mcp.TextContent{Text: text})
	}
	if t.Structured != nil {
		res.StructuredContent = t.Structured
	}
	return res, nil
}
