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
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// badGuards are the ways to be no guard, and what the record says of each.
var badGuards = []struct {
	name, cause string
	guest       hosttest.Guest
}{
	{"traps", "guest_trap", hosttest.Guest{Says: allow(), Ends: hosttest.Trap()}},
	{"loops", "guest_fuel", hosttest.Guest{Says: allow(), Ends: hosttest.Spin()}},
	{"allows too late", "guest_fuel", hosttest.Guest{Says: allow(), Ends: hosttest.Work(400e6)}},
	{"no memory", "guest_memory", hosttest.Guest{Says: allow(), Ends: hosttest.Hoard()}},
	{"recurses", "guest_stack", hosttest.Guest{Says: allow(), Ends: hosttest.Recurse()}},
	{"exits 0", "guest_trap", hosttest.Guest{Ends: hosttest.Exit(0)}},
	{"allows and exits 0", "guest_trap", hosttest.Guest{Says: allow(), Ends: hosttest.Exit(0)}},
	{"returns 1", "return code 1", hosttest.Guest{Says: allow(), Ends: hosttest.Return(1)}},
	{"error set", "unsure", hosttest.Guest{Says: allow(), Ends: hosttest.Fail("unsure")}},
	{"silent", "guest_output_invalid", hosttest.Guest{Ends: hosttest.Return(0)}},
	{"null", "null is no object", hosttest.Guest{Says: says(`null`)}},
	{"true", "document", hosttest.Guest{Says: says(`true`)}},
	{"{}", "nonce is not the question's", hosttest.Guest{Says: says(`{}`)}},
	{"garbage", "not JSON", hosttest.Guest{Says: says("not a verdict")}},
	{"bad UTF-8", "not JSON", hosttest.Guest{Says: says("\xff\xfe")}},
	{"allow: \"true\"", `unknown member "allow"`, hosttest.Guest{Says: says(`{"allow":"true"}`)}},
	{"verdict: true", "document", hosttest.Guest{Says: hosttest.Verdict(`"verdict":true`)}},
	{"ALLOW", `"ALLOW" is no verdict`, hosttest.Guest{Says: hosttest.Verdict(`"verdict":"ALLOW"`)}},
	{"extra key", `unknown member "override"`, hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","override":true`)}},
	{"key twice", "duplicate member name", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"deny","verdict":"allow"`)}},
	{"two verdicts", "bytes after the value", hosttest.Guest{Says: join(hosttest.Verdict(`"verdict":"deny"`), allow())}},
	{"a word behind it", "bytes after the value", hosttest.Guest{Says: join(allow(), says(" ok"))}},
	{"too long", "guest_output_too_large", hosttest.Guest{Says: join(allow(), []hosttest.Piece{hosttest.Blanks(1 << 20)})}},
	{"wrong nonce", "nonce is not the question's", hosttest.Guest{Says: echo(zeros[:32], "")}},
	{"empty nonce", "nonce is not the question's", hosttest.Guest{Says: join(says(`{"nonce":"","document_sha256":"`), []hosttest.Piece{hosttest.SHA256()}, says(`","verdict":"allow"}`))}},
	{"no nonce", "nonce is not the question's", hosttest.Guest{Says: join(says(`{"document_sha256":"`), []hosttest.Piece{hosttest.SHA256()}, says(`","verdict":"allow"}`))}},
	{"wrong digest", "document_sha256 is not the question's", hosttest.Guest{Says: echo("", zeros)}},
	{"rewrites", "which its manifest does not list", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"rewrite","document":{}`)}},
	{"widens", "", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"narrow","grants":["http GET *"]`)}},
}

var zeros = strings.Repeat("0", 64)

// echo is a verdict that allows; empty arguments are those of the question.
func echo(nonce, digest string) []hosttest.Piece {
	pieces := []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Text(nonce), hosttest.Text(`","document_sha256":"`), hosttest.Text(digest), hosttest.Text(`","verdict":"allow"}`)}
	if nonce == "" {
		pieces[1] = hosttest.Nonce()
	}
	if digest == "" {
		pieces[3] = hosttest.SHA256()
	}
	return pieces
}

// An entrance is a way to a tool, or to a model.
type entrance struct {
	name   string
	tool   string // what the bad guard is asked about
	phases []abi.Phase
	goes   func(c *cell)
}

var allPhases = []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult}

var entrances = []entrance{
	{"run", "tool", allPhases, func(c *cell) { c.steps(bothCalls("tool")); c.run(flow.Text("go")) }},
	{"streamed run", "tool", allPhases, func(c *cell) {
		c.steps(append([]flowtest.Reply{{Response: &session.Response{Partial: true, Content: genai.NewContentFromText("I call", genai.RoleModel)}}}, bothCalls("tool")...))
		in := flow.Text("go")
		in.Stream = true
		c.run(in)
	}},
	{"streaming tool", "tool", allPhases, func(c *cell) {
		c.agent.Tools[0] = streamer{c.tool}
		c.steps(bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"resume", "tool", []abi.Phase{abi.PhaseMessage, abi.PhaseCall, abi.PhaseResult}, func(c *cell) {
		c.tool.Describe.Confirm = true
		c.steps(bothCalls("tool"))
		c.armed.Store(false)
		events := c.run(flow.Text("go"))
		c.arm()
		q := events[len(events)-1].Calls()[0]
		c.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: q.ID, Name: q.Name, Response: map[string]any{"confirmed": true}}}}}})
	}},
	{"completion", "tool", []abi.Phase{abi.PhaseMessage, abi.PhaseResult}, func(c *cell) {
		c.tool.Describe.LongRunning = true
		c.steps(bothCalls("tool"))
		c.armed.Store(false)
		c.run(flow.Text("go"))
		c.arm()
		c.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "tool", Response: map[string]any{"ok": true}}}}}})
	}},
	{"sub-agent", "tool", both, func(c *cell) {
		c.agent.Agents = []*flow.Agent{{Name: "below", Model: c.model, Tools: c.agent.Tools}}
		c.agent.Tools = nil
		c.steps(flowtest.Call(call("t1", "transfer_to_agent", `{"agent_name":"below"}`)), bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"single turn", "tool", both, func(c *cell) {
		c.agent.Agents = []*flow.Agent{{Name: "below", Mode: flow.SingleTurn, Model: c.model, Tools: c.agent.Tools}}
		c.agent.Tools = nil
		c.steps(flowtest.Call(call("t1", "below", `{"request":"go"}`)), bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"task", "tool", both, func(c *cell) {
		c.agent.Agents = []*flow.Agent{{Name: "below", Mode: flow.Task, Model: c.model, Tools: c.agent.Tools}}
		c.agent.Tools = nil
		c.steps(flowtest.Call(call("t1", "below", `{"request":"go"}`)), bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"transfer", "transfer_to_agent", both, func(c *cell) {
		c.agent.Agents = []*flow.Agent{{Name: "below", Model: c.model}}
		c.steps(flowtest.Call(call("c1", "transfer_to_agent", `{"agent_name":"below"}`), call("c2", "sibling", `{}`)))
		c.run(flow.Text("go"))
	}},
	{"agent as tool", "tool", both, func(c *cell) {
		inner := &flow.Agent{Name: "below", Model: c.model, Tools: c.agent.Tools}
		c.agent.Tools = []flow.Tool{flow.AgentTool(inner, flow.AgentToolOptions{})}
		c.steps(flowtest.Call(call("t1", "below", `{"request":"go"}`)), bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"MCP tool", "tool", allPhases, func(c *cell) {
		c.agent.Tools = c.agent.Tools[1:]
		c.agent.Toolsets = []flow.Toolset{c.server()}
		c.steps(bothCalls("tool"))
		c.run(flow.Text("go"))
	}},
	{"direct call", "tool", both, func(c *cell) {
		c.events(c.runner().Call(c.t.Context(), home, flow.DirectCall{Tool: "tool"}))
	}},
	{"unknown tool", "nothing", both, func(c *cell) { c.steps(bothCalls("nothing")); c.run(flow.Text("go")) }},
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
	model  *flowtest.Model
	agent  *flow.Agent
	tool   *flowtest.Tool

	ran      atomic.Int64 // handler
	asked    int          // requests, once armed
	seen     []*session.Event
	complete bool // a model was shown the result of the call
}

func newCell(t *testing.T, armed *atomic.Bool, guards ...flow.Guard) *cell {
	c := &cell{t: t, guards: guards, armed: armed, store: session.NewMemory(), audit: audit.NewMemory()}
	armed.Store(true)
	c.tool = &flowtest.Tool{Describe: flow.Spec{Name: "tool"}, Do: func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
		c.ran.Add(1)
		return flow.Outcome{Result: json.RawMessage(`{"ok":true}`)}, nil
	}}
	c.model = &flowtest.Model{OnRequest: func(req *flow.Request, _ bool) {
		if c.armed.Load() {
			c.asked++
		}
		for _, content := range req.Contents {
			for _, p := range content.Parts {
				if p.FunctionResponse != nil && p.FunctionResponse.ID == "c1" {
					_, refused := p.FunctionResponse.Response["error"]
					c.complete = !refused || strings.Contains(fmt.Sprint(p.FunctionResponse.Response), "not found")
				}
			}
		}
	}}
	c.agent = &flow.Agent{Name: "agent", Model: c.model, Tools: []flow.Tool{c.tool, &flowtest.Tool{Describe: flow.Spec{Name: "sibling"}}}}
	if _, err := c.store.Create(t.Context(), home, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cell) steps(steps ...[]flowtest.Reply) {
	c.model.Steps = append(steps, flowtest.Say("done"), flowtest.Say("done"), flowtest.Say("done"))
}

// arm makes the bad guard bad.
func (c *cell) arm() {
	c.armed.Store(true)
	c.from = len(c.audit.Records())
	c.complete = false
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

// witness counts what the guard of a phase stands before: 0 or 1.
func (c *cell) witness(e *entrance, phase abi.Phase) int64 {
	switch {
	case phase == abi.PhaseMessage || phase == abi.PhaseRequest:
		return int64(min(c.asked, 1))
	case phase == abi.PhaseResult || e.tool != "tool":
		for _, ev := range c.seen {
			for _, r := range ev.Responses() {
				_, failed := r.Response["error"]
				if r.ID == "c1" && e.name != "completion" && (!failed || strings.Contains(fmt.Sprint(r.Response), "not found")) {
					return 1
				}
				if e.name == "direct call" && !failed {
					return 1
				}
			}
		}
		if c.complete {
			return 1
		}
		return 0
	}
	return c.ran.Load()
}

// siblings is how often the sibling's result was kept, if it was called.
func (c *cell) siblings() (kept, called int) {
	for _, ev := range c.seen {
		for _, f := range ev.Calls() {
			if f.ID == "c2" && !ev.Partial {
				called++
			}
		}
		for _, r := range ev.Responses() {
			if _, failed := r.Response["error"]; r.ID == "c2" && !failed {
				kept++
			}
		}
	}
	return kept, called
}

// asBad is a guard of one phase that is as it is about one tool once it is armed,
// and else allows.
type asBad struct {
	flow.Guard
	tool  string
	armed *atomic.Bool
}

func (asBad) Name() string { return "bad" }

func (g asBad) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	if !g.armed.Load() || q.Call != nil && q.Call.Tool != g.tool {
		return flowtest.Echo(q, abi.Allow()), nil
	}
	return g.Guard.Judge(ctx, q)
}

// Every kind of bad guard, at every entrance, in the phases that it passes, as
// first, middle and last of three: what it stands before does not happen, it has
// one record that says why, each other guard has one of its own, and the other
// calls of the step are kept. With a good guard in its place it happens once.
func TestMatrix(t *testing.T) {
	var armed atomic.Bool
	module := func(guest hosttest.Guest) func(abi.Phase) flow.Guard {
		m := &abi.Manifest{ABI: abi.Version, Name: "policy", Version: "1"}
		for _, p := range allPhases {
			m.Guards = append(m.Guards, abi.Guard{Name: string(p), Phases: []abi.Phase{p}})
		}
		guest.Good = allow()
		loaded := load(t, m, guest)
		guards := map[abi.Phase]flow.Guard{}
		for _, p := range allPhases {
			g, err := policies.New(t.Context(), loaded, policies.Config{Guard: string(p), Limits: patient})
			if err != nil {
				t.Fatal(err)
			}
			guards[p] = g
		}
		return func(p abi.Phase) flow.Guard { return guards[p] }
	}
	chain := func(e *entrance, phase abi.Phase, position int, g flow.Guard) []flow.Guard {
		guards := []flow.Guard{policies.Func("good1", allowAll, phase), policies.Func("good2", allowAll, phase)}
		return slices.Insert(guards, position, flow.Guard(asBad{g, e.tool, &armed}))
	}
	good := module(hosttest.Guest{Says: allow()})
	var names []string // of the rows: one for each entrance and phase
	cells := 0
	for i := range entrances {
		e := &entrances[i]
		for _, phase := range e.phases {
			names = append(names, e.name+", "+string(phase))
			for position := range 3 {
				c := newCell(t, &armed, chain(e, phase, position, good(phase))...)
				e.goes(c)
				if got := c.witness(e, phase); got != 1 {
					t.Errorf("%s, %s, position %d, good guard: witness %d, want 1", e.name, phase, position, got)
				}
				cells++
			}
		}
	}
	rows := make([]string, len(names))
	head, legend := strings.Repeat(" ", 25), ""
	for n, kind := range badGuards {
		head += fmt.Sprintf(" %3d", n+1)
		legend += fmt.Sprintf("%d %s; ", n+1, kind.name)
		bad := module(kind.guest)
		row := 0
		for i := range entrances {
			e := &entrances[i]
			for _, phase := range e.phases {
				marks := ""
				for position := range 3 {
					c := newCell(t, &armed, chain(e, phase, position, bad(phase))...)
					e.goes(c)
					mark := "0"
					if why := c.wrong(e, phase, bad(phase), kind.cause); why != "" {
						t.Errorf("%s at %s, %s, position %d: %s", kind.name, e.name, phase, position, why)
						mark = "X"
					}
					marks += mark
					cells++
				}
				rows[row] += " " + marks
				row++
			}
		}
	}
	for i := range rows {
		rows[i] = fmt.Sprintf("%-25s%s", names[i], rows[i])
	}
	t.Logf("witness of what a bad guard stands before, as first, middle and last of three\n%s\n%s\n%s\n%d cells, those with good guards included",
		legend, head, strings.Join(rows, "\n"), cells)
}

// wrong says what a bad guard did not prevent, or how it was not recorded.
func (c *cell) wrong(e *entrance, phase abi.Phase, bad flow.Guard, cause string) string {
	if got := c.witness(e, phase); got != 0 {
		return fmt.Sprintf("witness %d", got)
	}
	var denied *audit.Record
	records := c.audit.Records()[c.from:]
	for i := range records {
		if records[i].Action == "guard.deny" {
			if denied != nil {
				return fmt.Sprintf("two denials: %+v and %+v", *denied, records[i])
			}
			denied = &records[i]
		}
	}
	if denied == nil || denied.Target != "bad" || denied.Code != string(abi.PolicyUnavailable) || denied.Why == "" || !strings.Contains(denied.Why, cause) ||
		denied.Module != bad.Version() || !strings.HasPrefix(denied.Module, "sha256:") || len(denied.ArgsSHA256) != 64 {
		return fmt.Sprintf("denial %+v", denied)
	}
	for _, name := range []string{"good1", "good2", "bad"} {
		n := 0
		for _, r := range records {
			if r.Target == name && strings.HasPrefix(r.Action, "guard.") && r.Call == denied.Call && r.ArgsSHA256 == denied.ArgsSHA256 && (name == "bad" || r.Action == "guard.allow") {
				n++
			}
		}
		if n != 1 {
			return fmt.Sprintf("%s has %d records", name, n)
		}
	}
	for _, r := range records {
		if r.Action == "call.intent" && r.Call == denied.Call && phase == abi.PhaseCall {
			return "an intent was recorded"
		}
	}
	if kept, called := c.siblings(); kept < min(called, 1) && (phase == abi.PhaseCall || phase == abi.PhaseResult) {
		return fmt.Sprintf("the sibling was called %d times and kept %d times", called, kept)
	}
	return ""
}
