package flow_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// kid is an agent whose model does these steps and no more.
func kid(name string, steps ...[]flowtest.Reply) *flow.Agent {
	return &flow.Agent{Name: name, Model: &flowtest.Model{ModelName: name, Steps: steps}}
}

func toKid() []flowtest.Reply {
	return flowtest.Call(call("t1", "transfer_to_agent", `{"agent_name":"kid"}`))
}

// guardFor answers questions about one tool; it allows everything else.
func guardFor(tool string, v abi.Verdict) *flowtest.Guard {
	return &flowtest.Guard{Label: "guard", In: bothPhases, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if q.Call.Tool == tool && q.Phase == abi.PhaseCall {
			return flowtest.Echo(q, v), nil
		}
		return flowtest.Echo(q, abi.Allow()), nil
	}}
}

// authors lists who yielded what, as NAME:TEXT, NAME(TOOL) and NAME<TOOL.
func (o outcome) authors() string {
	var out []string
	for _, ev := range o.events {
		for _, c := range ev.Calls() {
			out = append(out, ev.Author+"("+c.Name+")")
		}
		for _, r := range ev.Responses() {
			out = append(out, ev.Author+"<"+r.Name)
		}
		if text := ev.Text(); text != "" {
			out = append(out, ev.Author+":"+text)
		}
		if ev.ErrorCode != "" {
			out = append(out, ev.Author+"!"+ev.ErrorCode)
		}
	}
	return strings.Join(out, " ")
}

func TestTransferPassesTheDoor(t *testing.T) {
	w := newWorld(t, toKid())
	w.agent.Agents = []*flow.Agent{kid("kid", flowtest.Say("hi"))}
	g := &flowtest.Guard{Label: "guard", In: bothPhases}
	w.cfg.Guards = []flow.Guard{g}
	var hooked []string
	w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
		hooked = append(hooked, c.Name)
		return nil, nil
	}}}
	o := w.say("go")
	if got, want := o.authors(), "agent(transfer_to_agent) agent<transfer_to_agent kid:hi"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !slices.Equal(hooked, []string{"transfer_to_agent"}) || len(g.Asked()) != 2 {
		t.Errorf("hooks saw %v, guards were asked %d times", hooked, len(g.Asked()))
	}
	calls := w.calls()
	if len(calls) != 1 || calls[0].Tool != "transfer_to_agent" || calls[0].State != session.CallDone {
		t.Errorf("records of calls: %+v", calls)
	}
	if len(w.records("call.intent")) != 1 || len(w.records("call.end")) != 1 {
		t.Errorf("audit: %+v", w.audit.Records())
	}
}

// A transfer that a guard denies does not happen, and the model is told why.
func TestTransferDenied(t *testing.T) {
	w := newWorld(t, toKid())
	below := kid("kid", flowtest.Say("hi"))
	w.agent.Agents = []*flow.Agent{below}
	w.cfg.Guards = []flow.Guard{guardFor("transfer_to_agent", abi.Deny("no", "stay here"))}
	o := w.say("go")
	if got, want := o.authors(), "agent(transfer_to_agent) agent<transfer_to_agent agent:done"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := o.errorOf("t1"); got != "policy_denied: stay here" {
		t.Errorf("error %q", got)
	}
	if len(w.calls()) != 0 || below.Model.(*flowtest.Model).Requests() != 0 || o.events[1].Actions.TransferToAgent != "" {
		t.Errorf("calls %+v, event %s", w.calls(), toJSON(t, o.events[1]))
	}
}

// A guard may ask a person about a transfer; approval makes it happen, once.
func TestTransferConfirmed(t *testing.T) {
	for approve, want := range map[string]string{
		`{"confirmed":true}`:  "agent<transfer_to_agent kid:hi",
		`{"confirmed":false}`: "agent<transfer_to_agent agent:done",
	} {
		w := newWorld(t, toKid())
		w.agent.Agents = []*flow.Agent{kid("kid", flowtest.Say("hi"))}
		w.cfg.Guards = []flow.Guard{guardFor("transfer_to_agent", abi.Confirm("ask", "sure?"))}
		asked := w.say("go").questions()
		if len(asked) != 1 {
			t.Fatalf("%d questions", len(asked))
		}
		if got := w.run(answer(asked[0].ID, approve)).authors(); got != want {
			t.Errorf("%s: got %s, want %s", approve, got, want)
		}
	}
}

// A question of an agent below the root is answered to that agent.
func TestQuestionOfSubAgent(t *testing.T) {
	w := newWorld(t, toKid())
	pay := tool("pay")
	pay.Describe.Confirm = true
	below := kid("kid", flowtest.Call(call("p1", "pay", `{}`)), flowtest.Say("paid"))
	below.Tools = []flow.Tool{pay}
	w.agent.Agents = []*flow.Agent{below}
	q := w.say("go").questions()[0]
	if got, want := w.run(answer(q.ID, `{"confirmed":true}`)).authors(), "kid<pay kid:paid"; got != want || len(pay.Calls()) != 1 {
		t.Errorf("got %s with %d calls, want %s", got, len(pay.Calls()), want)
	}
}

func TestTreeErrors(t *testing.T) {
	twice := kid("a")
	for _, c := range []struct {
		name  string
		agent *flow.Agent
		want  string
	}{
		{"two of a name", &flow.Agent{Name: "r", Agents: []*flow.Agent{kid("a"), kid("a")}}, "agent a: there are two of that name"},
		{"root's name below", &flow.Agent{Name: "r", Agents: []*flow.Agent{kid("r")}}, "agent r: there are two of that name"},
		{"one twice", &flow.Agent{Name: "r", Agents: []*flow.Agent{twice, {Name: "b", Agents: []*flow.Agent{twice}}}}, "agent a: stands twice in the tree"},
		{"nil", &flow.Agent{Name: "r", Agents: []*flow.Agent{nil}}, "agent r: an agent below it is nil"},
		{"type", &flow.Agent{Name: "r", Type: "graph"}, `agent r: type "graph": want "sequential", "parallel", "loop" or nothing`},
		{"empty sequence", &flow.Agent{Name: "r", Type: flow.SequentialAgent}, `agent r: type "sequential": has no agents to run`},
		{"sequence with tools", &flow.Agent{Name: "r", Type: flow.SequentialAgent, Agents: []*flow.Agent{kid("a")}, Tools: []flow.Tool{tool("t")}},
			`agent r: type "sequential": only model agents have a model, instructions, tools, schemas, a mode and an output key`},
		{"iterations", &flow.Agent{Name: "r", MaxIterations: 2}, "agent r: max iterations 2: only of a loop, and at least 1"},
		{"mode", &flow.Agent{Name: "r", Mode: "boss"}, `agent r: mode "boss": want "chat", "task" or "single_turn"`},
		{"contents", &flow.Agent{Name: "r", IncludeContents: "some"}, `agent r: include contents "some": want "default", "none" or nothing`},
		{"schema", &flow.Agent{Name: "r", OutputSchema: &jsonschema.Schema{Pattern: "("}}, "agent r: output schema: "},
		{"agent tool", &flow.Agent{Name: "r", Tools: []flow.Tool{flow.AgentTool(&flow.Agent{Name: "1"}, flow.AgentToolOptions{})}}, `tool 1: agent "1": name: `},
	} {
		_, err := flow.NewRunner(c.agent, session.NewMemory(), flow.Config{})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// A name of the framework is refused to other tools, also while the framework's own
// tool is there.
func TestFrameworkNames(t *testing.T) {
	for _, name := range []string{"transfer_to_agent", "set_model_response", "finish_task", "stop_streaming"} {
		w := newWorld(t)
		w.agent.Agents = []*flow.Agent{kid("kid")}
		w.agent.Tools = []flow.Tool{tool(name)}
		if o := w.run(flow.Text("go")); len(o.errs) != 1 || o.errs[0].Error() != `tool "`+name+`": the name is reserved: offered by agent "agent", and the framework's own` {
			t.Errorf("%s: %v", name, o.errs)
		}
		w = newWorld(t)
		below := kid(name)
		below.Mode = flow.SingleTurn
		w.agent.Agents = []*flow.Agent{below}
		if o := w.run(flow.Text("go")); len(o.errs) != 1 {
			t.Errorf("agent %s as a tool: %v", name, o.errs)
		}
	}
}

// A set is a toolset of fixed tools.
type set struct {
	name  string
	tools []flow.Tool
}

func (s set) Name() string                             { return s.name }
func (s set) Tools(*flow.Context) ([]flow.Tool, error) { return s.tools, nil }

// A packer packs another tool into each request.
type packer struct {
	*flowtest.Tool
	other flow.Tool
}

func (p packer) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	return req.Pack(p.other)
}

// Both who offer a tool of one name are named, wherever the tools come from, and
// before anything is asked of the model.
func TestOwnersOfNames(t *testing.T) {
	one, other := set{"one", []flow.Tool{tool("same")}}, set{"other", []flow.Tool{tool("same")}}
	for _, c := range []struct {
		name string
		set  func(a *flow.Agent)
		want string
	}{
		{"two sets", func(a *flow.Agent) { a.Toolsets = []flow.Toolset{one, other} }, `duplicate tool: "same": offered by tool set "one" and by tool set "other"`},
		{"a set twice", func(a *flow.Agent) { a.Toolsets = []flow.Toolset{one, one} }, `duplicate tool: "same": offered twice by tool set "one"`},
		{"an own tool and a set", func(a *flow.Agent) { a.Tools, a.Toolsets = []flow.Tool{tool("same")}, []flow.Toolset{one} },
			`duplicate tool: "same": offered by agent "agent" and by tool set "one"`},
		{"a wrapped set", func(a *flow.Agent) {
			a.Tools, a.Toolsets = []flow.Tool{tool("same")}, []flow.Toolset{flow.ConfirmToolset(one, true, nil)}
		},
			`duplicate tool: "same": offered by agent "agent" and by tool set "one"`},
		{"an agent as a tool and a set", func(a *flow.Agent) {
			a.Tools, a.Toolsets = []flow.Tool{flow.AgentTool(kid("same"), flow.AgentToolOptions{})}, []flow.Toolset{one}
		}, `duplicate tool: "same": offered by agent "agent" and by tool set "one"`},
		{"an agent below and a set", func(a *flow.Agent) {
			a.Agents, a.Toolsets = []*flow.Agent{{Name: "same", Mode: flow.Task, Model: &flowtest.Model{}}}, []flow.Toolset{one}
		}, `duplicate tool: "same": offered by the agent "same" below it and by tool set "one"`},
		{"the framework's name in a set", func(a *flow.Agent) { a.Toolsets = []flow.Toolset{set{"one", []flow.Tool{tool("finish_task")}}} },
			`tool "finish_task": the name is reserved: offered by tool set "one", and the framework's own`},
		{"a tool that packs another", func(a *flow.Agent) {
			a.Toolsets = []flow.Toolset{one, set{"other", []flow.Tool{packer{tool("packer"), tool("same")}}}}
		},
			`duplicate tool: "same": offered by tool set "one" and by tool set "other"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.set(&w.agent)
			if o := w.run(flow.Text("go")); len(o.errs) != 1 || o.errs[0].Error() != c.want || w.model.Requests() != 0 {
				t.Errorf("errors %v after %d requests, want %s", o.errs, w.model.Requests(), c.want)
			}
		})
	}
	t.Run("a hook that packs", func(t *testing.T) {
		w := newWorld(t)
		w.agent.Tools = []flow.Tool{tool("same")}
		w.cfg.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
			return nil, req.Pack(tool("same"))
		}}}
		const want = `duplicate tool: "same": offered by agent "agent" and by a hook`
		if o := w.run(flow.Text("go")); len(o.errs) != 1 || !strings.Contains(o.errs[0].Error(), want) {
			t.Errorf("errors %v, want %s", o.errs, want)
		}
	})
	// What needs no run to be known is found without one.
	for _, mode := range []flow.Mode{flow.Task, flow.SingleTurn} {
		root := &flow.Agent{Name: "r", Model: &flowtest.Model{}, Tools: []flow.Tool{tool("same")}, Agents: []*flow.Agent{{Name: "same", Mode: mode, Model: &flowtest.Model{}}}}
		const want = `agent r: duplicate tool: "same": offered by agent "r" and by the agent "same" below it`
		if _, err := flow.NewRunner(root, session.NewMemory(), flow.Config{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", mode, err, want)
		}
	}
	chat := &flow.Agent{Name: "r", Model: &flowtest.Model{}, Tools: []flow.Tool{tool("same")}, Agents: []*flow.Agent{kid("same")}}
	if _, err := flow.NewRunner(chat, session.NewMemory(), flow.Config{}); err != nil {
		t.Errorf("an agent that is no tool: %v", err)
	}
}

// The root must be one that can be talked to.
func TestRootMode(t *testing.T) {
	w := newWorld(t)
	w.agent.Mode = flow.Task
	o := w.run(flow.Text("go"))
	if len(o.errs) != 1 || o.errs[0].Error() != "root agent agent must be a chat LlmAgent, but has mode task" || len(w.stored().Events) != 0 {
		t.Errorf("errors %v, %d events", o.errs, len(w.stored().Events))
	}
}

func TestSchemaOrTools(t *testing.T) {
	for _, c := range []struct {
		model   string
		backend flow.Backend
		byTool  bool
	}{
		{"gemini-2.5-flash", flow.GeminiAPI, true},
		{"models/gemini-3-pro", flow.GeminiAPI, true},
		{"gemini-2.5-flash", flow.VertexAI, false},
		{"projects/p/locations/l/publishers/google/models/gemini-1.5-pro", flow.VertexAI, true},
		{"gemini-2.5-flash", "", false},
		{"gemma-3", flow.GeminiAPI, false},
	} {
		w := newWorld(t, flowtest.Say(`{"n":1}`))
		w.agent.OutputSchema = schemaOf(t, `{"type":"object"}`)
		w.agent.Tools = []flow.Tool{tool("tool")}
		byTool, direct := false, false
		w.agent.Model = &flowtest.Model{ModelName: c.model, On: c.backend, Steps: w.model.Steps, OnRequest: func(req *flow.Request, _ bool) {
			byTool = slices.Contains(req.ExecutableTools(), "set_model_response")
			direct = req.Config.ResponseJsonSchema != nil && req.Config.ResponseMIMEType == "application/json"
		}}
		w.say("go")
		if byTool != c.byTool || direct == c.byTool {
			t.Errorf("%s on %q: by tool %t, direct %t", c.model, c.backend, byTool, direct)
		}
	}
}

// What a guard denies is no answer, and a schema of no object is wrapped.
func TestAnswerByTool(t *testing.T) {
	for _, c := range []struct {
		name, schema, args, want string
		guards                   []flow.Guard
	}{
		{"object", `{"type":"object"}`, `{"n":9007199254740993}`, `{"n":9007199254740993}`, nil},
		{"list", `{"type":"array","items":{"type":"integer"}}`, `{"result":[1,2]}`, `[1,2]`, nil},
		{"wrong list", `{"type":"array","items":{"type":"integer"}}`, `{"result":["a"]}`, `{"error":`, nil},
		{"denied", `{"type":"object"}`, `{}`, `{"error":"policy_denied: no"}`, []flow.Guard{guardFor("set_model_response", abi.Deny("no", "no"))}},
	} {
		w := newWorld(t)
		w.agent.OutputSchema = schemaOf(t, c.schema)
		w.agent.Tools = []flow.Tool{tool("tool")}
		w.agent.Model = &flowtest.Model{ModelName: "gemini-2.5-flash", On: flow.GeminiAPI, Steps: [][]flowtest.Reply{flowtest.Call(call("a1", "set_model_response", c.args))}}
		w.cfg.Guards = c.guards
		if got := w.say("go").final(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestWhoTakesTheMessage: whoever asked for what the message answers, else whoever
// spoke last and can hand back, else the root; the root itself if it gives tasks or
// has no model.
func TestWhoTakesTheMessage(t *testing.T) {
	agents := func() *flow.Agent {
		leaf, closed, inner := kid("leaf", flowtest.Say("hi")), kid("closed", flowtest.Say("hi")), kid("inner", flowtest.Say("hi"))
		closed.NoTransferToParent = true
		below := kid("below", flowtest.Say("hi"))
		closed.Agents = []*flow.Agent{below}
		line := &flow.Agent{Name: "line", Type: flow.SequentialAgent, Agents: []*flow.Agent{inner}}
		root := kid("root", flowtest.Say("hi"))
		root.Agents = []*flow.Agent{leaf, closed, line}
		return root
	}
	for _, c := range []struct {
		name    string
		history []line
		answers string // id of a call
		edit    func(root *flow.Agent)
		want    string // who speaks first
	}{
		{"nobody spoke", nil, "", nil, "root"},
		{"the last one", []line{"user a", "root b", "leaf c", "user d"}, "", nil, "leaf"},
		{"one that nobody knows", []line{"leaf c", "gone d"}, "", nil, "leaf"},
		{"one that may not hand back", []line{"leaf c", "closed d"}, "", nil, "leaf"},
		{"one below such a one", []line{"below d"}, "", nil, "root"},
		{"one in a sequence", []line{"inner d"}, "", nil, "root"},
		{"who asked, wherever it is", []line{"closed c:1", "leaf c"}, "1", nil, "closed"},
		{"an answer to nothing", []line{"leaf c"}, "9", nil, "leaf"},
		{"the root gives tasks", []line{"leaf c"}, "", func(root *flow.Agent) { root.Agents[1].Mode = flow.Task }, "root"},
		{"the root has no model", []line{"leaf c"}, "", func(root *flow.Agent) {
			*root = flow.Agent{Name: "root", Type: flow.SequentialAgent, Agents: []*flow.Agent{kid("first", flowtest.Say("hi")), kid("leaf", flowtest.Say("hi"))}}
		}, "first"},
	} {
		w := newWorld(t)
		w.agent = *agents()
		if c.edit != nil {
			c.edit(&w.agent)
		}
		for i, l := range c.history {
			if err := w.store.Append(t.Context(), home, l.event(i)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		in := flow.Text("hello")
		if c.answers != "" {
			in = answer(c.answers, `{}`)
			in.Content.Parts[0].FunctionResponse.Name = "f"
		}
		o := collect(t, r, t.Context(), in)
		if len(o.errs) > 0 || len(o.events) == 0 || o.events[0].Author != c.want {
			t.Errorf("%s: %s %v, want %s", c.name, o.authors(), o.errs, c.want)
		}
	}
}
