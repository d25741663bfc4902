package flow

import (
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// An agent with an output schema is held to it in one of three ways. A task gives
// its outcome to finish_task. A Gemini model that cannot have both a response
// schema and tools answers through the tool set_model_response, whose arguments
// become the agent's last event. Every other model is sent the schema.

const answerInstruction = "IMPORTANT: You have access to other tools, but you must provide your final response using the set_model_response tool " +
	"with the required structured format. After using any other tools needed to complete the task, always call set_model_response " +
	"with your final answer in the specified schema format."

// answersByTool reports whether the agent answers through set_model_response.
func (f *agentRun) answersByTool() bool {
	a := f.agent
	return a.OutputSchema != nil && a.Mode != Task && len(a.Tools)+len(a.Toolsets) > 0 && schemaOrTools(a.Model)
}

// schemaOrTools reports whether a model takes a response schema or tools, but not
// both: Gemini through the Gemini API, and before version 2 through Vertex AI. A
// model that does not say where it runs is taken to have no such rule.
func schemaOrTools(m Model) bool {
	b, ok := m.(BackendReporter)
	if !ok || b.Backend() == "" {
		return false
	}
	name := m.Name()
	name = name[strings.LastIndexByte(name, '/')+1:]
	version, ok := strings.CutPrefix(name, "gemini-")
	if !ok {
		return false
	}
	return b.Backend() == GeminiAPI || strings.HasPrefix(version, "1.") || strings.HasPrefix(version, "1-") || version == "1"
}

// asObject returns a schema for arguments: the schema itself if it is of objects,
// else one of an object with the only member result.
func asObject(s *jsonschema.Schema) (object *jsonschema.Schema, wrapped bool) {
	if s.Type == "object" {
		return s, false
	}
	return &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"result": s}, Required: []string{"result"}}, true
}

// unwrapped returns the member result if asObject has put it there.
func unwrapped(v map[string]any, wrapped bool) any {
	if result, ok := v["result"]; ok && wrapped {
		return result
	}
	return v
}

// An answerTool is set_model_response: its result is its arguments.
type answerTool struct{ spec Spec }

func newAnswerTool(a *Agent) *answerTool {
	schema, _ := asObject(a.OutputSchema)
	return &answerTool{Spec{Name: setModelResponse, Input: schema, Effects: abi.None,
		Description: "Set your final response using the required output schema. Use this tool to provide your final structured answer instead of outputting text directly."}}
}

func (t *answerTool) framework()  {}
func (t *answerTool) Spec() *Spec { return &t.spec }

func (t *answerTool) Run(_ *ToolContext, permit Permit) (Outcome, error) {
	return Outcome{Result: permit.Args()}, nil
}

// requireStructured offers set_model_response if the agent answers through it.
func (f *agentRun) requireStructured(req *Request) error {
	for _, t := range f.own {
		if t, ok := t.(*answerTool); ok {
			req.AppendInstructions(answerInstruction)
			return req.Pack(t)
		}
	}
	return nil
}

// structuredAnswer makes the agent's last event of the first response of
// set_model_response, even if that is an error. It returns nil if there is none.
func (f *agentRun) structuredAnswer(ev *session.Event) *session.Event {
	for _, r := range ev.Responses() {
		if r.Name != setModelResponse || !f.answersByTool() {
			continue
		}
		_, wrapped := asObject(f.agent.OutputSchema)
		text, err := abi.Marshal(unwrapped(r.Response, wrapped))
		if err != nil {
			text = json.RawMessage("{}")
		}
		out := f.newEvent(f.agent.Name)
		out.Content = genai.NewContentFromText(string(text), genai.RoleModel)
		return out
	}
	return nil
}
