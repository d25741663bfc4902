package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// edits returns a guard that replaces texts, in pairs, in the documents of a phase.
func edits(phase abi.Phase, pairs ...string) *flowtest.Guard {
	return &flowtest.Guard{Label: "g", In: []abi.Phase{phase}, Rewrite: []abi.Phase{phase}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		doc := strings.NewReplacer(pairs...).Replace(textOf(q))
		return flowtest.Echo(q, abi.Rewrite(json.RawMessage(doc))), nil
	}}
}

// A guard can take from what a model is offered, and adds nothing to it.
func TestRequestGuardsOnlyNarrow(t *testing.T) {
	const tools = `"tools":[{"functionDeclarations":[`
	for _, c := range []struct {
		name   string
		guards []flow.Guard
		want   string // what the model was sent; "": the run was refused
	}{
		{"other words", []flow.Guard{edits(abi.PhaseRequest, "be brief", "be kind")}, "be kind"},
		{"another description", []flow.Guard{edits(abi.PhaseRequest, "pays anybody", "pays")}, `"description":"pays"`},
		{"a tool less", []flow.Guard{edits(abi.PhaseRequest, `"googleSearch":{}`, `"functionDeclarations":[]`)}, tools},
		{"a function more", []flow.Guard{edits(abi.PhaseRequest, tools, tools+`{"name":"erase"},`)}, ""},
		{"a function of another name", []flow.Guard{edits(abi.PhaseRequest, `"name":"pay"`, `"name":"erase"`)}, ""},
		{"code execution", []flow.Guard{edits(abi.PhaseRequest, tools, `"tools":[{"codeExecution":{}},{"functionDeclarations":[`)}, ""},
		{"pages of the web, in other letters", []flow.Guard{edits(abi.PhaseRequest, `"googleSearch":{}`, `"URLCONTEXT":{}`)}, ""},
		{"other settings of a tool", []flow.Guard{edits(abi.PhaseRequest, `"googleSearch":{}`, `"googleSearch":{"blockingConfidence":"BLOCK_NONE"}`)}, ""},
		{"what another guard has taken", []flow.Guard{edits(abi.PhaseRequest, `"googleSearch":{}`, `"functionDeclarations":[]`),
			edits(abi.PhaseRequest, `"functionDeclarations":[]`, `"googleSearch":{}`)}, ""},
		{"no safety settings", []flow.Guard{edits(abi.PhaseRequest, `"threshold":"BLOCK_LOW_AND_ABOVE"`, `"threshold":"BLOCK_NONE"`)}, ""},
		{"cached content", []flow.Guard{edits(abi.PhaseRequest, tools, `"cachedContent":"c",`+tools)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			pay := tool("pay")
			pay.Describe.Description = "pays anybody"
			w.agent.Tools, w.agent.Instruction = []flow.Tool{pay}, "be brief"
			w.agent.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
				req.Config.Tools = append(req.Config.Tools, &genai.Tool{GoogleSearch: &genai.GoogleSearch{}})
				req.Config.SafetySettings = []*genai.SafetySetting{{Category: "HARM_CATEGORY_HARASSMENT", Threshold: "BLOCK_LOW_AND_ABOVE"}}
				return nil, nil
			}}}
			sent := ""
			w.model.OnRequest = func(req *flow.Request, _ bool) { sent = toJSON(t, req.Config) }
			w.cfg.Guards = c.guards
			for i, g := range c.guards {
				g.(*flowtest.Guard).Label = fmt.Sprint("g", i)
			}
			o := w.run(flow.Text("go"))
			if c.want == "" {
				refusedBy(t, o, abi.PolicyUnavailable, "a policy could not decide, so the request was refused")
			}
			if (sent == "") != (c.want == "") || !strings.Contains(sent, c.want) {
				t.Errorf("the model was sent %s, want %q in it", sent, c.want)
			}
		})
	}
}

// A guard can take a call out of what a model says, and makes none.
func TestResponseGuardsOnlyNarrow(t *testing.T) {
	const made = `"functionCall":{"args":{"n":1},"id":"c1","name":"pay"}`
	for _, c := range []struct {
		name    string
		guard   flow.Guard
		ran     string
		refused bool
	}{
		{"nothing", edits(abi.PhaseResponse), `{"n":1}`, false},
		{"other words", edits(abi.PhaseResponse, "I pay", "paying"), `{"n":1}`, false},
		{"no call", edits(abi.PhaseResponse, made, `"text":"not paid"`), "", false},
		{"other arguments, which are judged", edits(abi.PhaseResponse, `"n":1`, `"n":2`), `{"n":2}`, false},
		{"a call for words", edits(abi.PhaseResponse, `"text":"I pay"`, `"functionCall":{"name":"pay"}`), "", true},
		{"a call more", edits(abi.PhaseResponse, made, made+`},{`+strings.Replace(made, "c1", "c2", 1)), "", true},
		{"the same call twice", edits(abi.PhaseResponse, made, made+`},{`+made), "", true},
		{"another tool", edits(abi.PhaseResponse, `"name":"pay"`, `"name":"erase"`), "", true},
		{"a call in other letters", edits(abi.PhaseResponse, `"text":"I pay"`, `"FUNCTIONCALL":{"NAME":"pay"}`), "", true},
		{"a response", edits(abi.PhaseResponse, `"text":"I pay"`, `"functionResponse":{"id":"c1","name":"pay","response":{}}`), "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps[0] = []flowtest.Reply{{Response: &session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
				{Text: "I pay"}, {FunctionCall: call("c1", "pay", `{"n":1}`)}}}}}}
			pay, erase := tool("pay"), tool("erase")
			w.agent.Tools = []flow.Tool{pay, erase}
			w.cfg.Guards = []flow.Guard{c.guard}
			o := w.run(flow.Text("go"))
			if c.refused {
				refusedBy(t, o, abi.PolicyUnavailable, "a policy could not decide, so the response was refused")
			}
			if got := strings.Join(pay.Calls(), " "); got != c.ran || len(erase.Calls()) != 0 {
				t.Errorf("pay ran %q, erase %q; want %q", got, erase.Calls(), c.ran)
			}
		})
	}
}
