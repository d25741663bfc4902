package conformance

import (
	"context"
	"sync"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A recorder keeps what a scenario does, in the form of a vector's expect.
type recorder struct {
	mu        sync.Mutex
	requests  []any
	calls     []any
	hooks     []any
	listCalls map[string]any
	queries   []any
	inputs    []any // of the summarizer
	effects   []Effect
	served    int   // of calls, those that an MCP server received
	bad       error // what a guest said and nobody could read
}

// An Effect is one thing that a handler or hook asked of its host: a state value
// read or written, an artifact, an action, a chunk of a stream.
type Effect struct {
	By     string   `json:"by"`               // the tool, or the point of the hook
	Call   string   `json:"call"`             // as in abi.HostFunctions
	Detail string   `json:"detail,omitempty"` // state keys, the name of an artifact
	Code   abi.Code `json:"code"`             // ok, or why it had no effect
}

func (r *recorder) effect(e Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = append(r.effects, e)
}

// ran returns how many calls of handlers and hooks were recorded. Those that an
// MCP server received are not among them: no handler of the scenario ran.
func (r *recorder) ran() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls) + len(r.hooks) - r.served
}

// serverCall records a call by what the MCP server received: no call id, which the
// protocol does not carry.
func (r *recorder) serverCall(tool string, args any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, object("tool", tool, "args", args))
	r.served++
}

func (r *recorder) toolCall(tool string, args any, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, object("tool", tool, "args", args, "call_id", id))
}

func (r *recorder) hook(m map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks = append(r.hooks, m)
}

func (r *recorder) listed(set string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listCalls == nil {
		r.listCalls = map[string]any{}
	}
	n, _ := r.listCalls[set].(int)
	r.listCalls[set] = n + 1
}

func (r *recorder) searched(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queries = append(r.queries, query)
}

func (r *recorder) summarized(events []*session.Event) {
	var form []any
	for _, e := range events {
		form = append(form, object("author", e.Author, "content", generic(e.Content)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inputs = append(r.inputs, form)
}

// A hookEntry is one entry of a plugin's or agent's list of hooks.
type hookEntry struct {
	rec   *recorder
	scope string // "plugin:NAME" or "agent:NAME"
	hook  string
	agent bool // the scope is an agent

	mu sync.Mutex
	n  int
}

// count returns the number of this invocation, from 1.
func (e *hookEntry) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	return e.n
}

// An entry is what a hook received.
type entry struct {
	agent    string
	tool     string
	args     map[string]any
	result   map[string]any
	err      string
	response *session.Response
	author   string
}

func (e *hookEntry) log(_ context.Context, x entry) {
	if e.agent {
		x.agent = ""
	}
	m := object("scope", e.scope, "hook", e.hook, "agent", x.agent, "tool", x.tool, "args", generic(x.args),
		"result", generic(x.result), "error", x.err, "event_author", x.author)
	if x.response != nil {
		shown := map[string]any{}
		if x.response.Content != nil {
			shown["content"] = generic(x.response.Content)
		}
		if x.response.Partial {
			shown["partial"] = true
		}
		m["response"] = shown
	}
	e.rec.hook(m)
}

func (r *recorder) request(agent string, req *flow.Request, stream bool) {
	m := object("agent", agent, "model", req.Model)
	m["contents"] = generic(req.Contents)
	if stream {
		m["stream"] = true
	}
	config := generic(req.Config).(map[string]any)
	if si := req.Config.SystemInstruction; si != nil {
		text := ""
		for _, p := range si.Parts {
			text += p.Text
		}
		m["system_instruction"] = text
		delete(config, "systemInstruction")
	}
	delete(config, "tools")
	if schema, ok := config["responseJsonSchema"]; ok { // the other way to send one
		delete(config, "responseJsonSchema")
		config["responseSchema"] = schema
	}
	var declarations, natives []any
	for _, t := range req.Config.Tools {
		for _, d := range t.FunctionDeclarations {
			form := object("name", d.Name, "parameters", schemaForm(firstOf(d.ParametersJsonSchema, d.Parameters)),
				"response", schemaForm(firstOf(d.ResponseJsonSchema, d.Response)))
			form["description"] = d.Description // also an empty one
			declarations = append(declarations, form)
		}
		rest := *t
		rest.FunctionDeclarations = nil
		if g := generic(&rest).(map[string]any); len(g) > 0 {
			natives = append(natives, g)
		}
	}
	set(m, "function_declarations", declarations)
	set(m, "native_tools", natives)
	if len(config) > 0 {
		m["config"] = lowerTypes(config)
	}
	var names []any
	for _, n := range req.ExecutableTools() {
		names = append(names, n)
	}
	set(m, "executable_tools", names)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, m)
}

func firstOf(a any, b *genai.Schema) any {
	if a != nil {
		return a
	}
	if b != nil {
		return b
	}
	return nil
}
