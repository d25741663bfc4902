package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

// A notingTool and a notingSet say when they take part in a request.
type notingTool struct {
	*flowtest.Tool
	note func(string)
}

func (t notingTool) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	what := "tool without contents"
	if len(req.Contents) > 0 {
		what = "tool"
	}
	t.note(what)
	return nil
}

type notingSet struct{ note func(string) }

func (s notingSet) Name() string { return "set" }

func (s notingSet) Tools(*flow.Context) ([]flow.Tool, error) {
	s.note("list")
	return nil, nil
}

func (s notingSet) ProcessRequest(*flow.CallbackContext, *flow.Request) error {
	s.note("set")
	return nil
}

// A request is built in ADK's order, and hooks see it whole. Tools are listed once.
func TestRequestOrder(t *testing.T) {
	var order []string
	note := func(what string) { order = append(order, what) }
	w := newWorld(t, flowtest.Call(call("p", "pay", `{}`)), flowtest.Call(call("n", "note", `{}`)))
	pay := handler("pay", func(*flow.ToolContext, json.RawMessage) (string, error) {
		note("resume")
		return `{}`, nil
	})
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay, notingTool{tool("note"), note}}
	w.agent.Toolsets = []flow.Toolset{notingSet{note}}
	w.agent.Agents = []*flow.Agent{kid("kid")}
	w.agent.GlobalInstructionProvider = func(*flow.Context) (string, error) {
		note("global instruction")
		return "GLOBAL", nil
	}
	w.agent.InstructionProvider = func(*flow.Context) (string, error) {
		note("instruction")
		return "OWN", nil
	}
	w.cfg.Compaction = &flow.Compaction{TokenThreshold: 1, Retention: 1, Summarizer: &summarizer{do: func([]*session.Event) (flow.Summary, error) {
		note("compaction")
		return flow.Summary{}, nil
	}}}
	w.agent.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
		note("hook")
		text := req.Config.SystemInstruction.Parts[0].Text
		at := -1
		for _, part := range []string{"GLOBAL", "OWN", "You are an agent. Your internal name is", "other agents to transfer to"} {
			next := strings.Index(text, part)
			if next <= at {
				t.Errorf("instruction %q: %q is not in its place", text, part)
			}
			at = next
		}
		return nil, nil
	}}}
	ask := w.say("pay")
	order = nil
	w.run(answer(ask.questions()[0].ID, `{"confirmed":true}`))
	want := []string{"list", "resume", "global instruction", "instruction", "compaction", "tool", "set", "hook",
		"global instruction", "instruction", "compaction", "tool", "set", "hook"}
	if !slices.Equal(order, want) {
		t.Errorf("order %q\nwant  %q", order, want)
	}
}

// An agent that was given a single-turn task is told neither who it is nor to whom it
// may transfer, though it has the tool, and sees its task alone unless it says that
// it wants all.
func TestSingleTurnRequest(t *testing.T) {
	for include, want := range map[flow.IncludeContents]bool{flow.IncludeDefault: false, flow.IncludeAll: true} {
		w := newWorld(t, flowtest.Say("earlier answer"), flowtest.Call(give("d1", `{"request":"sum"}`)))
		below := worker("kid", flow.SingleTurn, flowtest.Say("3"))
		below.IncludeContents = include
		below.Agents = []*flow.Agent{kid("grandkid")}
		var instruction, contents string
		var tools []string
		below.Model.(*flowtest.Model).OnRequest = func(req *flow.Request, _ bool) {
			instruction, contents, tools = toJSON(t, req.Config.SystemInstruction), toJSON(t, req.Contents), req.ExecutableTools()
		}
		w.agent.Agents = []*flow.Agent{below}
		w.say("an earlier question")
		w.say("go")
		if strings.Contains(instruction, "internal name") || strings.Contains(instruction, "transfer to") {
			t.Errorf("%q: instruction %s", include, instruction)
		}
		if !slices.Contains(tools, "transfer_to_agent") {
			t.Errorf("%q: tools %q, want transfer_to_agent", include, tools)
		}
		if !strings.Contains(contents, `sum`) || strings.Contains(contents, "an earlier question") != want {
			t.Errorf("%q: contents %s, want history %t", include, contents, want)
		}
	}
}

// The turn of an agent begins with what it can see.
func TestCurrentTurnIsSeen(t *testing.T) {
	w := newWorld(t)
	w.agent.IncludeContents = flow.IncludeNone
	for i, l := range []line{"user old", "user@b.c begin", "agent@b.c c:1", "agent@b.c r:1=x", "user@other hidden", "user@b.c/T scoped"} {
		if err := w.store.Append(context.Background(), home, l.event(i)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	w.model.OnRequest = func(req *flow.Request, _ bool) { got = shown(req.Contents) }
	w.run(flow.Input{Direct: &flow.Placement{Branch: "b.c"}})
	if want := []string{"user begin", "model c:1", "user r:1=x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Names of files are for people; only the Gemini API refuses them.
func TestDisplayNames(t *testing.T) {
	for backend, want := range map[flow.Backend]bool{flow.GeminiAPI: false, flow.VertexAI: true, "": true} {
		w := newWorld(t)
		w.model.On = backend
		kept := false
		w.model.OnRequest = func(req *flow.Request, _ bool) {
			p := req.Contents[0].Parts
			kept = p[0].InlineData.DisplayName == "a.png" && p[1].FileData.DisplayName == "b.png"
		}
		w.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("x"), DisplayName: "a.png"}},
			{FileData: &genai.FileData{MIMEType: "image/png", FileURI: "gs://b", DisplayName: "b.png"}},
		}}})
		if kept != want {
			t.Errorf("on %q: kept %t, want %t", backend, kept, want)
		}
		if ev := w.stored().Events[0]; ev.Content.Parts[0].InlineData.DisplayName != "a.png" {
			t.Errorf("on %q: the history was changed", backend)
		}
	}
}

// A tool's context has no verb of the run, and tells which session and agent it works
// for and no more; what edits requests has no verb of a call.
func TestVerbsOfContexts(t *testing.T) {
	has := func(v any, name string) bool {
		_, ok := reflect.TypeOf(v).MethodByName(name)
		return ok
	}
	for _, name := range []string{"RunConfig", "InvocationContext", "EndInvocation", "End", "Ended", "WithBranch", "WithAgentTimeout", "WithContext"} {
		if has(&flow.ToolContext{}, name) {
			t.Errorf("a tool can call %s", name)
		}
	}
	for _, name := range []string{"CallID", "Confirmation", "RequestConfirmation", "Transfer", "SkipSummarization", "Escalate"} {
		if has(&flow.CallbackContext{}, name) || has(&flow.Context{}, name) {
			t.Errorf("what edits requests can call %s", name)
		}
		if !has(&flow.ToolContext{}, name) {
			t.Errorf("a tool cannot call %s", name)
		}
	}
	var _ func(*flow.ToolContext) session.Key = (*flow.ToolContext).Session
	var _ func(*flow.ToolContext) string = (*flow.ToolContext).Agent
	if has(&flow.Context{}, "SetState") {
		t.Error("a provider or toolset can write state")
	}
}

// An editingTool changes the schemas that it finds in a request.
type editingTool struct{ *flowtest.Tool }

func (t editingTool) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	editSchemas(req)
	return nil
}

func editSchemas(req *flow.Request) {
	edit := func(v any) {
		switch s := v.(type) {
		case *jsonschema.Schema:
			s.Description = "edited"
			s.Required[0] = "edited"
			s.Enum[0].(map[string]any)["a"] = "edited"
			s.Properties["a"].Type = "edited"
			*s.MinProperties = 7
		case map[string]any:
			s["required"].([]any)[0] = "edited"
		}
	}
	edit(req.Config.ResponseJsonSchema)
	for _, t := range req.Config.Tools {
		for _, d := range t.FunctionDeclarations {
			edit(d.ParametersJsonSchema)
			edit(d.ResponseJsonSchema)
		}
	}
}

// What somebody does to the schemas of a request is for this request alone, even deep
// inside them.
func TestEditedSchemas(t *testing.T) {
	const text = `{"type":"object","description":"d","required":["a"],"enum":[{"a":"x"}],"minProperties":1,"properties":{"a":{"type":"string"}}}`
	for name, edit := range map[string]func(w *world){
		"a hook before the model": func(w *world) {
			w.cfg.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
				editSchemas(req)
				return nil, nil
			}}}
		},
		"a hook on an error": func(w *world) {
			w.model.Steps = [][]flowtest.Reply{{{Err: errors.New("503")}}, flowtest.Say("done"), flowtest.Say("done")}
			w.cfg.Hooks = []flow.Hooks{{OnModelError: func(_ *flow.CallbackContext, req *flow.Request, _ error) (*session.Response, error) {
				editSchemas(req)
				return &session.Response{Content: genai.NewContentFromText("sorry", genai.RoleModel)}, nil
			}}}
		},
		"a tool": func(w *world) { w.agent.Tools = append(w.agent.Tools, editingTool{tool("editor")}) },
	} {
		for kind, response := range map[string]any{"a schema": schemaOf(t, text), "a map": map[string]any{"type": "object", "required": []any{"a"}}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				w := newWorld(t)
				pay := tool("pay")
				pay.Describe.Input, pay.Describe.Output = schemaOf(t, text), schemaOf(t, text)
				w.agent.Tools = []flow.Tool{pay}
				w.agent.GenerateConfig = &genai.GenerateContentConfig{ResponseJsonSchema: response}
				edit(w)
				before := toJSON(t, []any{pay.Describe.Input, pay.Describe.Output, response})
				w.run(flow.Text("go"))
				w.run(flow.Text("go"))
				if after := toJSON(t, []any{pay.Describe.Input, pay.Describe.Output, response}); after != before {
					t.Errorf("schemas are now\n%s\nand were\n%s", after, before)
				}
			})
		}
	}
	t.Run("of an answer", func(t *testing.T) {
		w := newWorld(t)
		w.agent.OutputSchema = schemaOf(t, text)
		w.cfg.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
			editSchemas(req)
			return nil, nil
		}}}
		before := toJSON(t, w.agent.OutputSchema)
		w.run(flow.Text("go"))
		if after := toJSON(t, w.agent.OutputSchema); after != before {
			t.Errorf("schema is now\n%s\nand was\n%s", after, before)
		}
	})
}
