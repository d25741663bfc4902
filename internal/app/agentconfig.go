package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
)

// Agent is an agent of the app: the one that takes messages, or one below it.
type Agent struct {
	Name               string      `yaml:"name" required:"true" doc:"a letter or _, then letters, digits and _; different for every agent"`
	Type               string      `yaml:"type,omitempty" enum:"sequential,parallel,loop" doc:"runs its agents one after the other, at the same time, or again and again until one calls exit_loop; absent: an agent with a model"`
	MaxIterations      int         `yaml:"max_iterations,omitempty" doc:"of a loop; default: only the limits of the run"`
	Description        string      `yaml:"description,omitempty" doc:"for the model, and for the models of other agents"`
	Mode               string      `yaml:"mode,omitempty" enum:"chat,task,single_turn" doc:"how the agent above uses this one: it hands the conversation over, the default; gives a task, about which the agent may ask the user; or gives a task that is answered at once"`
	NoTransferToParent bool        `yaml:"disallow_transfer_to_parent,omitempty" doc:"true: the conversation does not go back to the agent above, and the next message goes to the first agent"`
	NoTransferToPeers  bool        `yaml:"disallow_transfer_to_peers,omitempty" doc:"true: nor to the others below that one"`
	Model              Model       `yaml:"model,omitempty" doc:"who answers for this agent; default the app's model"`
	Generate           Generate    `yaml:"generate,omitempty" doc:"what the model is told about how to answer"`
	Instruction        Text        `yaml:"instruction,omitempty" doc:"for the model: a text, or {file: NAME}; {key} is filled from state"`
	GlobalInstruction  Text        `yaml:"global_instruction,omitempty" doc:"for the models of all agents, before their own; only of the first agent"`
	IncludeContents    string      `yaml:"include_contents,omitempty" enum:"default,none" doc:"history that the model sees; none: the current turn; default: all, also in a single turn; absent: all, but of a single turn the task"`
	Tools              []string    `yaml:"tools,omitempty" doc:"names of tools; one that is not listed is not offered and cannot be called; exit_loop, load_artifacts, load_memory, preload_memory and, for Gemini, google_search are always there to be listed"`
	Toolsets           []string    `yaml:"toolsets,omitempty" doc:"names of MCP servers whose tools are offered, after the tools"`
	AgentTools         []AgentTool `yaml:"agent_tools,omitempty" doc:"agents that are offered as tools of their names, after the tools"`
	Examples           []Example   `yaml:"examples,omitempty" doc:"shown to the model with every message that begins with text"`
	Hooks              []string    `yaml:"hooks,omitempty" doc:"names of plugins whose hooks run for this agent, after the app's"`
	OutputKey          string      `yaml:"output_key,omitempty" doc:"state key that keeps the final text"`
	InputSchema        DataSchema  `yaml:"input_schema,omitempty" doc:"JSON Schema of a task that other agents give, or the name of a file with one; default a text named request"`
	OutputSchema       DataSchema  `yaml:"output_schema,omitempty" doc:"JSON Schema of the final answer, or the name of a file with one; null: none"`
	Agents             []Agent     `yaml:"agents,omitempty" doc:"agents to which this one can hand the conversation, or which it runs"`
	Limits             AgentLimits `yaml:"limits,omitempty" doc:"of one run; only of the first agent"`
}

// AgentTool is an agent that another one calls as a tool. It works in a session of
// its own.
type AgentTool struct {
	Agent             Agent `yaml:"agent" required:"true" doc:"the agent; its name is the tool's"`
	SkipSummarization bool  `yaml:"skip_summarization,omitempty" doc:"true: its answer is the last word, and the calling model is not asked again"`
	ShowResult        bool  `yaml:"show_result,omitempty" doc:"true: and is shown to the user as text"`
}

// Generate is what a model is told about how to answer. What is absent is the
// provider's default.
type Generate struct {
	Temperature     Number   `yaml:"temperature,omitempty" doc:"how freely words are chosen, from 0"`
	TopP            Number   `yaml:"top_p,omitempty" doc:"words are chosen among the likeliest that make up this share"`
	TopK            Number   `yaml:"top_k,omitempty" doc:"words are chosen among so many"`
	MaxOutputTokens int      `yaml:"max_output_tokens,omitempty" doc:"of one answer"`
	Seed            Number   `yaml:"seed,omitempty" doc:"a whole number; for answers that repeat"`
	StopSequences   []string `yaml:"stop_sequences,omitempty" doc:"texts at which an answer ends"`
}

// Example is a message and what the model should make of it.
type Example struct {
	Input  string          `yaml:"input" required:"true" doc:"what the user says"`
	Output []ExampleOutput `yaml:"output" required:"true" doc:"what the model does about it, in order"`
}

// ExampleOutput is a text or a call, which is shown and never made.
type ExampleOutput struct {
	Say  string `yaml:"say,omitempty" doc:"a text"`
	Call string `yaml:"call,omitempty" doc:"instead: the name of a tool"`
	Args JSON   `yaml:"args,omitempty" doc:"of the call: an object"`
}

// AgentLimits bound one run.
type AgentLimits struct {
	Steps         int      `yaml:"steps,omitempty" doc:"model calls, those of agents that are tools included; default 50"`
	Depth         int      `yaml:"depth,omitempty" doc:"agents that run inside calls, one inside the other; default 5"`
	CallsPerStep  int      `yaml:"calls_per_step,omitempty" doc:"tool calls of one model answer that are looked at; default 64"`
	ParallelCalls int      `yaml:"parallel_calls,omitempty" doc:"tool calls at the same time; default 64"`
	Wall          Duration `yaml:"wall,omitempty" doc:"the whole run; default 10m"`
}

// each calls f for an agent, all below it and those it calls, with their places in
// the file.
func (a *Agent) each(path string, f func(path string, a *Agent)) {
	f(path, a)
	for i := range a.AgentTools {
		a.AgentTools[i].Agent.each(fmt.Sprintf("%s.agent_tools[%d].agent", path, i), f)
	}
	for i := range a.Agents {
		a.Agents[i].each(fmt.Sprintf("%s.agents[%d]", path, i), f)
	}
}

// EachAgent calls visit for every agent of the app, from the first down, with their
// places in the file.
func (f *File) EachAgent(visit func(path string, a *Agent)) { f.Agent.each("agent", visit) }

// AllTools returns the names of the tools that any agent of the app lists, sorted.
func (f *File) AllTools() []string {
	var names []string
	f.EachAgent(func(_ string, a *Agent) { names = append(names, a.Tools...) })
	slices.Sort(names)
	return slices.Compact(names)
}

// check finds what has no meaning for an agent.
func (a *Agent) check(path string, add func(path, hint, format string, args ...any)) {
	a.Model.check(path+".model", add)
	if path != "agent" && a.Limits != (AgentLimits{}) {
		add(path+".limits", "move them to agent.limits", "limits are those of the run")
	}
	if path != "agent" && !a.GlobalInstruction.IsZero() {
		add(path+".global_instruction", "move it to agent.global_instruction", "is of the first agent")
	}
	for _, s := range []struct {
		name string
		doc  DataSchema
	}{{"input_schema", a.InputSchema}, {"output_schema", a.OutputSchema}} {
		if _, err := s.doc.JSON.schema(); err != nil {
			add(path+"."+s.name, "", "%v", err)
		}
	}
	if _, err := a.Generate.config(); err != nil {
		add(path+".generate", "", "%v", err)
	}
	for i, e := range a.Examples {
		if _, err := e.flow(); err != nil {
			add(fmt.Sprintf("%s.examples[%d]", path, i), "", "%v", err)
		}
	}
}

// schema returns a JSON Schema, nil if there is none.
func (j JSON) schema() (*jsonschema.Schema, error) {
	if j == nil {
		return nil, nil
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(j, s); err != nil {
		return nil, err
	}
	_, err := s.Resolve(nil)
	return s, err
}

// config returns what the flow is told, nil if there is nothing.
func (g Generate) config() (*genai.GenerateContentConfig, error) {
	c := &genai.GenerateContentConfig{MaxOutputTokens: int32(g.MaxOutputTokens), StopSequences: g.StopSequences}
	some := g.MaxOutputTokens > 0 || g.StopSequences != nil
	for _, x := range []struct {
		name string
		from Number
		to   **float32
	}{{"temperature", g.Temperature, &c.Temperature}, {"top_p", g.TopP, &c.TopP}, {"top_k", g.TopK, &c.TopK}} {
		if x.from == "" {
			continue
		}
		v, err := strconv.ParseFloat(string(x.from), 32)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%s: %s: want a number from 0", x.name, x.from)
		}
		*x.to, some = genai.Ptr(float32(v)), true
	}
	if g.Seed != "" {
		v, err := strconv.ParseInt(string(g.Seed), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("seed: %s: want a whole number of 32 bits", g.Seed)
		}
		c.Seed, some = genai.Ptr(int32(v)), true
	}
	if !some {
		return nil, nil
	}
	return c, nil
}

// flow returns the example as the flow's.
func (e Example) flow() (flow.Example, error) {
	out := flow.Example{Input: genai.NewContentFromText(e.Input, genai.RoleUser)}
	for i, o := range e.Output {
		switch {
		case (o.Say == "") == (o.Call == ""):
			return out, fmt.Errorf("output[%d]: want one of say and call", i)
		case o.Call == "" && o.Args != nil:
			return out, fmt.Errorf("output[%d].args: there is no call", i)
		case o.Call == "":
			out.Output = append(out.Output, genai.NewContentFromText(o.Say, genai.RoleModel))
			continue
		}
		args := map[string]any{}
		if o.Args != nil {
			if err := json.Unmarshal(o.Args, &args); err != nil {
				return out, fmt.Errorf("output[%d].args: want an object", i)
			}
		}
		out.Output = append(out.Output, genai.NewContentFromParts([]*genai.Part{genai.NewPartFromFunctionCall(o.Call, args)}, genai.RoleModel))
	}
	if len(e.Output) == 0 {
		return out, fmt.Errorf("output: empty")
	}
	return out, nil
}
