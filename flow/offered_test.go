package flow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// What is offered is what a request declares and guards are told: tools of the agent and
// of its sets, agents as tools with theirs, and the framework's own.
func TestOffered(t *testing.T) {
	object := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"n": {Type: "integer"}}}
	model := &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("done")}}
	deep := &flow.Agent{Name: "deep", Model: model, Tools: []flow.Tool{tool("below"), flow.PreloadMemory()}}
	deep.Tools = append(deep.Tools, flow.AgentTool(deep, flow.AgentToolOptions{})) // an agent may use itself
	w := newWorld(t)
	w.agent.Tools = []flow.Tool{tool("own"), flow.LoadMemory(), flow.AgentTool(deep, flow.AgentToolOptions{})}
	w.agent.Toolsets = []flow.Toolset{set{"set", []flow.Tool{tool("listed")}}}
	w.agent.Agents = []*flow.Agent{
		{Name: "peer", Model: model, Description: "A peer.", Tools: []flow.Tool{tool("own")}},
		{Name: "worker", Model: model, Mode: flow.Task, OutputSchema: object, Tools: []flow.Tool{tool("work")}},
		{Name: "pipeline", Type: flow.SequentialAgent, Agents: []*flow.Agent{{Name: "stage", Model: model, Tools: []flow.Tool{tool("stagework")}}}},
	}
	offered, err := w.runner().Offered(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	told := map[string]string{}
	for _, o := range offered {
		got = append(got, o.Agent+"/"+o.Spec.Name)
		if told[o.Agent+"/"+o.Spec.Name], err = o.Spec.Definition(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	want := []string{"agent/deep", "agent/listed", "agent/load_memory", "agent/own", "agent/transfer_to_agent", "agent/worker",
		"deep/below", "deep/deep", "peer/own", "peer/transfer_to_agent", "stage/stagework", "worker/finish_task", "worker/transfer_to_agent", "worker/work"}
	if !slices.Equal(got, want) {
		t.Errorf("offered\n%s\nwant\n%s", got, want)
	}
	if told["agent/transfer_to_agent"] == told["peer/transfer_to_agent"] {
		t.Error("transfers to others have one definition")
	}

	// The root's request declares just these.
	var declared []string
	w.model.OnRequest = func(req *flow.Request, _ bool) {
		for _, tools := range req.Config.Tools {
			for _, d := range tools.FunctionDeclarations {
				declared = append(declared, "agent/"+d.Name)
				digest, err := abi.Definition(d.Name, d.Description, rawSchema(t, d.ParametersJsonSchema), rawSchema(t, d.ResponseJsonSchema))
				if err != nil || digest != told["agent/"+d.Name] {
					t.Errorf("%s: declared %s, offered %s: %v", d.Name, digest, told["agent/"+d.Name], err)
				}
			}
		}
	}
	if o := w.say("go"); len(o.errs) > 0 {
		t.Fatal(o.errs)
	}
	slices.Sort(declared)
	if !slices.Equal(declared, want[:6]) {
		t.Errorf("declared %s, want %s", declared, want[:6])
	}
}

func rawSchema(t *testing.T, v any) []byte {
	if v == nil {
		return nil
	}
	return []byte(toJSON(t, v))
}

// A set that cannot be listed, and a name that two offer, are errors that say whose.
func TestOfferedFails(t *testing.T) {
	for want, toolset := range map[string]flow.Toolset{
		`agent agent: failed to extract tools from the tool set "set": `:                       brokenSet{"tools"},
		`agent agent: duplicate tool: "own": offered by agent "agent" and by tool set "other"`: set{"other", []flow.Tool{tool("own")}},
	} {
		w := newWorld(t)
		w.agent.Tools, w.agent.Toolsets = []flow.Tool{tool("own")}, []flow.Toolset{toolset}
		if offered, err := w.runner().Offered(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || offered != nil {
			t.Errorf("%v, error %v, want %s", offered, err, want)
		}
	}
}
