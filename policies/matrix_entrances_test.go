package policies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/flow/mcp"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// An entrance is a way to a tool, or to a model.
type entrance struct {
	name   string
	agent  string // who passes it
	tool   string // that is called
	phases []abi.Phase
	goes   func(c *cell)
}

var (
	allPhases  = []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult}
	noMessage  = allPhases[1:]                                                                       // the message came to another agent
	noCall     = []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseResult} // it was made before
	ofTheOuter = "agent"
	ofTheInner = "below"
)

var entrances = []entrance{
	{"run", ofTheOuter, "tool", allPhases, func(c *cell) { c.steps(bothCalls("tool")); c.run(flow.Text("go")) }},
	{"streamed run", ofTheOuter, "tool", allPhases, func(c *cell) {
		c.steps(append([]flowtest.Reply{{Response: &session.Response{Partial: true, Content: genai.NewContentFromText("I call", genai.RoleModel)}}}, bothCalls("tool")...))
		in := flow.Text("go")
		in.Stream = true
		c.run(in)
	}},
	{"streaming tool", ofTheOuter, "tool", allPhases, func(c *cell) {
		c.agent.Tools[0] = streamer{c.tool}
		c.steps(bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"resume", ofTheOuter, "tool", allPhases, func(c *cell) {
		q := c.question()
		c.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: q.ID, Name: "adk_request_confirmation", Response: map[string]any{"confirmed": true}}}}}})
	}},
	{"decided apart", ofTheOuter, "tool", allPhases, func(c *cell) {
		q := c.question()
		r := c.runner()
		if _, err := r.Decide(c.t.Context(), home, q.ID, session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: q.ArgsSHA256}); err != nil {
			c.t.Fatal(err)
		}
		c.events(r.Resume(c.t.Context(), home, flow.Input{}))
	}},
	{"completion", ofTheOuter, "tool", noCall, func(c *cell) {
		c.tool.Describe.LongRunning = true
		c.steps(bothCalls("tool"))
		c.armed.Store(false)
		c.run(flow.Text("go"))
		c.arm()
		c.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "tool", Response: map[string]any{"ok": true}}}}}})
	}},
	{"sub-agent", ofTheInner, "tool", noMessage, func(c *cell) {
		c.inner(flow.Chat, "transfer_to_agent", `{"agent_name":"below"}`)
		c.run(flow.Text("go"))
	}},
	{"sub-agent's message", ofTheInner, "tool", allPhases, func(c *cell) {
		c.inner(flow.Chat, "transfer_to_agent", `{"agent_name":"below"}`, flowtest.Say("with what?"))
		c.armed.Store(false)
		c.run(flow.Text("go"))
		c.arm()
		c.run(flow.Text("with this"))
	}},
	{"single turn", ofTheInner, "tool", noMessage, func(c *cell) {
		c.inner(flow.SingleTurn, "below", `{"request":"work"}`)
		c.run(flow.Text("go"))
	}},
	{"task", ofTheInner, "tool", noMessage, func(c *cell) {
		c.inner(flow.Task, "below", `{"request":"work"}`)
		c.run(flow.Text("go"))
	}},
	{"task's message", ofTheInner, "tool", allPhases, func(c *cell) {
		c.inner(flow.Task, "below", `{"request":"work"}`, flowtest.Say("with what?"))
		c.armed.Store(false)
		c.run(flow.Text("go"))
		c.arm()
		c.run(flow.Text("with this"))
	}},
	{"transfer", ofTheOuter, "transfer_to_agent", allPhases, func(c *cell) {
		c.agent.Agents = []*flow.Agent{{Name: ofTheInner, Model: c.as(ofTheInner)}}
		c.steps(flowtest.Call(call("c1", "transfer_to_agent", `{"agent_name":"below"}`), call("c2", "sibling", `{}`)))
		c.run(flow.Text("go"))
	}},
	{"agent as tool", ofTheInner, "tool", allPhases, func(c *cell) {
		c.inner("", "below", `{"request":"work"}`)
		c.run(flow.Text("go"))
	}},
	{"MCP tool", ofTheOuter, "tool", allPhases, func(c *cell) {
		c.agent.Tools = c.agent.Tools[1:]
		c.agent.Toolsets = []flow.Toolset{c.server()}
		c.steps(bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"direct call", ofTheOuter, "tool", both, func(c *cell) {
		c.events(c.runner().Call(c.t.Context(), home, flow.DirectCall{Tool: "tool"}))
	}},
	{"unknown tool", ofTheOuter, "nothing", allPhases, func(c *cell) { c.steps(bothCalls("nothing")); c.run(flow.Text("go")) }},
}

// bothCalls is a step that calls a tool and its sibling.
func bothCalls(tool string) []flowtest.Reply {
	return flowtest.Call(call("c1", tool, `{"n":1}`), call("c2", "sibling", `{}`))
}

// A cell is one entrance with guards in place.
type cell struct {
	t      *testing.T
	guards []flow.Guard
	armed  *atomic.Bool // guards are bad from now on
	store  session.Store
	audit  *audit.Memory
	from   int // records before that are of the way to the question
	since  int // and events
	model  *flowtest.Model
	agent  *flow.Agent
	tool   *flowtest.Tool
	beside map[string]*flowtest.Tool // siblings, by the id of their call

	ran   atomic.Int64 // handler
	seen  []*session.Event
	asked map[string]int                     // requests, by agent, once armed
	shown map[string]*genai.FunctionResponse // to models, by the id of its call, once armed
}

func newCell(t *testing.T, armed *atomic.Bool, guards ...flow.Guard) *cell {
	c := &cell{t: t, guards: guards, armed: armed, store: session.NewMemory(), audit: audit.NewMemory(),
		asked: map[string]int{}, shown: map[string]*genai.FunctionResponse{}, beside: map[string]*flowtest.Tool{}}
	armed.Store(true)
	c.tool = &flowtest.Tool{Describe: flow.Spec{Name: "tool"}, Do: func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
		c.ran.Add(1)
		if c.tool.Describe.LongRunning { // what is judged is what completes it
			return flow.Outcome{Result: json.RawMessage(`{"interim":true}`)}, nil
		}
		return flow.Outcome{Result: json.RawMessage(`{"ok":true}`)}, nil
	}}
	c.model = &flowtest.Model{}
	c.agent = &flow.Agent{Name: ofTheOuter, Model: c.as(ofTheOuter), Tools: []flow.Tool{c.tool, c.sibling("c2")}}
	if _, err := c.store.Create(t.Context(), home, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// sibling is a tool that is called beside another one.
func (c *cell) sibling(id string) flow.Tool {
	c.beside[id] = &flowtest.Tool{Describe: flow.Spec{Name: "sibling"}}
	return c.beside[id]
}

// A heard model is the cell's as one agent asks it.
type heard struct {
	*flowtest.Model
	c     *cell
	agent string
}

func (c *cell) as(agent string) flow.Model { return heard{c.model, c, agent} }

func (m heard) Generate(ctx context.Context, req *flow.Request, stream bool) iter.Seq2[*session.Response, error] {
	if m.c.armed.Load() {
		m.c.asked[m.agent]++
		for _, content := range req.Contents {
			for _, p := range content.Parts {
				if p.FunctionResponse != nil {
					m.c.shown[p.FunctionResponse.ID] = p.FunctionResponse
				}
			}
		}
	}
	return m.Model.Generate(ctx, req, stream)
}

func (c *cell) steps(steps ...[]flowtest.Reply) {
	c.model.Steps = append(steps, flowtest.Say("done"), flowtest.Say("done"), flowtest.Say("done"))
}

// inner puts the tools into an agent below, of a mode or, without one, as a tool,
// which is reached by a call beside another one, and first says something.
func (c *cell) inner(mode flow.Mode, by, args string, first ...[]flowtest.Reply) {
	below := &flow.Agent{Name: ofTheInner, Mode: mode, Model: c.as(ofTheInner), Tools: c.agent.Tools}
	c.agent.Tools = []flow.Tool{c.sibling("t2")}
	if mode == "" {
		c.agent.Tools = append(c.agent.Tools, flow.AgentTool(below, flow.AgentToolOptions{}))
	} else {
		c.agent.Agents = []*flow.Agent{below}
	}
	c.steps(slices.Concat([][]flowtest.Reply{flowtest.Call(call("t1", by, args), call("t2", "sibling", `{}`))}, first, [][]flowtest.Reply{bothCalls("tool")})...)
}

// question runs until a person is asked about the call, and arms the guard.
func (c *cell) question() session.Question {
	c.tool.Describe.Confirm = true
	c.steps(bothCalls("tool"))
	c.armed.Store(false)
	c.run(flow.Text("go"))
	c.arm()
	questions, err := c.store.Questions(c.t.Context(), home)
	if err != nil || len(questions) != 1 {
		c.t.Fatalf("questions %+v, %v", questions, err)
	}
	return questions[0]
}

// arm makes the bad guard bad.
func (c *cell) arm() {
	c.armed.Store(true)
	c.from, c.since = len(c.audit.Records()), len(c.seen)
	c.ran.Store(0)
}

func (c *cell) runner() *flow.Runner {
	r, err := flow.NewRunner(c.agent, c.store, flow.Config{Guards: c.guards, Audit: c.audit, Limits: flow.Limits{Guard: time.Minute}})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *cell) run(in flow.Input) []*session.Event {
	return c.events(c.runner().Run(c.t.Context(), home, in))
}

func (c *cell) events(seq iter.Seq2[*session.Event, error]) []*session.Event {
	for ev, err := range seq {
		if err != nil {
			c.t.Fatal(err)
		}
		c.seen = append(c.seen, ev)
	}
	return c.seen
}

// server is an MCP server with the tool.
func (c *cell) server() flow.Toolset {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "tool", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		c.ran.Add(1)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "ok"}}}, nil
	})
	here, there := net.Pipe()
	served, err := s.Connect(context.Background(), &sdk.IOTransport{Reader: there, Writer: there}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	set := mcp.New("test", mcp.Stream(here), mcp.Config{})
	c.t.Cleanup(func() { _, _, _ = set.Close(), served.Close(), here.Close() })
	return set
}

// streamer is a tool that answers in pieces.
type streamer struct{ tool *flowtest.Tool }

func (s streamer) Spec() *flow.Spec { return s.tool.Spec() }

func (s streamer) Stream(ctx *flow.ToolContext, permit flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		_, err := s.tool.Do(ctx, permit)
		_ = yield(flow.Chunk{Text: "o"}, err) && yield(flow.Chunk{Text: "k"}, nil)
	}
}

// witness counts what the guard of a phase stands before: 0 or 1. That is a request
// for the message and the request itself, the handler for the response and the call
// in it, and for a result that somebody is shown it.
func (c *cell) witness(e *entrance, phase abi.Phase) int64 {
	answers := slices.Equal(e.phases, noCall) || c.tool.Describe.Confirm // of what was called before
	switch {
	case phase == abi.PhaseMessage || phase == abi.PhaseRequest:
		return int64(min(c.asked[e.agent], 1))
	case phase == abi.PhaseResponse && answers:
		for _, ev := range c.seen[c.since:] {
			if ev.Text() == "done" {
				return 1
			}
		}
		return 0
	case phase == abi.PhaseResult || e.tool != "tool":
		if r := c.shown["c1"]; r != nil && tells(r) {
			return 1
		}
		for _, ev := range c.seen[c.since:] {
			for _, r := range ev.Responses() {
				if ev.Author != "user" && (r.ID == "c1" || e.name == "direct call") && tells(r) {
					return 1
				}
			}
		}
		return 0
	}
	return c.ran.Load()
}

// tells reports whether a response is what a call led to: for a tool that there is
// not, that there is none.
func tells(r *genai.FunctionResponse) bool {
	_, failed := r.Response["error"]
	_, interim := r.Response["interim"]
	return !failed && !interim || strings.Contains(fmt.Sprint(r.Response), "not found")
}

// lost says which sibling's result nobody has seen although it was called, or had to
// be: beside what passes the entrance whatever happens to that, and beside the call
// if it is that call or its result which guards refuse.
func (c *cell) lost(e *entrance, phase abi.Phase) string {
	for id, tool := range c.beside {
		kept := c.shown[id] != nil && tells(c.shown[id])
		for _, ev := range c.seen {
			kept = kept || slices.ContainsFunc(ev.Responses(), func(r *genai.FunctionResponse) bool { return r.ID == id && tells(r) })
		}
		wanted := len(tool.Calls()) > 0 || id == "t2" || (phase == abi.PhaseCall || phase == abi.PhaseResult) && e.name != "direct call"
		if wanted && !kept {
			return fmt.Sprintf("the result of %s is lost", id)
		}
	}
	return ""
}
