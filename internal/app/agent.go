package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/flow/script"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// agent makes an agent and all agents below it. The app's model answers for those
// that have no other.
func (rt *Runtime) agent(ctx context.Context, path string, a *Agent, model flow.Model, o Options) (*flow.Agent, error) {
	f := rt.File
	out := &flow.Agent{Name: a.Name, Type: flow.AgentType(a.Type), MaxIterations: a.MaxIterations, Description: a.Description, Mode: flow.Mode(a.Mode),
		NoTransferToParent: a.NoTransferToParent, NoTransferToPeers: a.NoTransferToPeers, OutputKey: a.OutputKey,
		IncludeContents: flow.IncludeContents(a.IncludeContents)}
	var err error
	switch {
	case a.Model.Use != "": // also of an agent that has no use for one: flow says so
		if out.Model, err = rt.model(ctx, path+".model", a.Model, o); err != nil {
			return nil, err
		}
	case a.Type == "":
		out.Model = model
	}
	if out.Tools, err = rt.tools(ctx, path, a, model, o); err != nil {
		return nil, err
	}
	for _, name := range a.Toolsets {
		out.Toolsets = append(out.Toolsets, rt.servers[name])
	}
	for _, name := range a.Hooks {
		out.Hooks = append(out.Hooks, rt.plugins[name].Hooks())
	}
	if out.GenerateConfig, err = a.Generate.config(); err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path+".generate"), err)
	}
	if out.Instruction, err = f.text(path+".instruction", a.Instruction); err != nil {
		return nil, err
	}
	if out.GlobalInstruction, err = f.text(path+".global_instruction", a.GlobalInstruction); err != nil {
		return nil, err
	}
	if out.InputSchema, err = f.schema(path+".input_schema", a.InputSchema); err != nil {
		return nil, err
	}
	if out.OutputSchema, err = f.schema(path+".output_schema", a.OutputSchema); err != nil {
		return nil, err
	}
	for i := range a.Agents {
		below, err := rt.agent(ctx, fmt.Sprintf("%s.agents[%d]", path, i), &a.Agents[i], model, o)
		if err != nil {
			return nil, err
		}
		out.Agents = append(out.Agents, below)
	}
	return out, nil
}

// text returns a text of the file, or of the file that it names.
func (f *File) text(path string, t Text) (string, error) {
	if t.File == "" {
		return t.Text, nil
	}
	data, err := os.ReadFile(f.path(t.File))
	if err != nil {
		return "", bad(abi.ConfigInvalid, "", "%s: %v", f.at(path), err)
	}
	return string(data), nil
}

// schema returns a schema of the file, or of one beside it; nil if there is none.
func (f *File) schema(path string, s DataSchema) (*jsonschema.Schema, error) {
	doc := s.JSON
	if s.File != "" {
		data, err := os.ReadFile(f.path(s.File))
		if err == nil {
			data, err = abi.Canonical(data)
		}
		if err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %s: %v", f.at(path), s.File, err)
		}
		doc = JSON(data)
	}
	out, err := doc.schema()
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path), err)
	}
	return out, nil
}

// builtins are tools that are there without a plugin.
var builtins = []flow.Tool{flow.ExitLoop(), flow.LoadArtifacts(), flow.LoadMemory(), flow.PreloadMemory(), gemini.GoogleSearch()}

// needsMemory are those of them that search it.
var needsMemory = map[string]bool{"load_memory": true, "preload_memory": true}

// An offer is a tool and the plugins that have one of its name; none for a tool
// that is there without one.
type offer struct {
	tool flow.Tool
	by   []string
}

// offers returns all tools by name, and the names in order.
func (rt *Runtime) offers() (map[string]*offer, []string) {
	offers := map[string]*offer{}
	var names []string
	add := func(t flow.Tool, by ...string) {
		name := t.Spec().Name
		if offers[name] == nil {
			offers[name] = &offer{tool: t}
			names = append(names, name)
		}
		offers[name].by = append(offers[name].by, by...)
	}
	for _, p := range rt.Plugins {
		for _, t := range p.Tools() {
			add(t, p.Name())
		}
	}
	for _, t := range builtins {
		if offers[t.Spec().Name] == nil { // a plugin's own goes first
			add(t)
		}
	}
	return offers, names
}

// tools picks an agent's tools, in its order, from all plugins; the agents that it
// calls and its examples follow.
func (rt *Runtime) tools(ctx context.Context, path string, a *Agent, model flow.Model, o Options) ([]flow.Tool, error) {
	f := rt.File
	offers, names := rt.offers()
	var tools []flow.Tool
	by := map[string]string{} // who offers a name to the agent
	claim := func(path, name, who string) error {
		if other, taken := by[name]; taken {
			return bad(abi.VersionConflict, "rename one", "%s: tool %s: offered by %s and %s", f.at(path), name, other, who)
		}
		by[name] = who
		return nil
	}
	for i, name := range a.Tools {
		path := fmt.Sprintf("%s.tools[%d]", path, i)
		of := offers[name]
		switch {
		case of == nil:
			hint := "there are: " + strings.Join(names, ", ")
			if near := Nearest(name, names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, bad(abi.ConfigInvalid, hint, "%s: no plugin offers tool %q", f.at(path), name)
		case len(of.by) > 1:
			return nil, bad(abi.VersionConflict, fmt.Sprintf("rename one: tools: {%s: {as: %s_%s}}", name, of.by[1], name),
				"tool %s: offered by plugins %s", name, strings.Join(of.by, " and "))
		case len(of.by) == 0 && needsMemory[name] && f.Memory == "":
			return nil, bad(abi.ConfigInvalid, "add memory: words", "%s: %s: the app has no memory", f.at(path), name)
		case len(of.by) == 0 && name == "google_search" && cmp.Or(a.Model.Use, f.Model.Use) != "gemini":
			return nil, bad(abi.ConfigInvalid, "use: gemini", "%s: %s: only Gemini searches by itself", f.at(path), name)
		case by[name] != "":
			return nil, bad(abi.ConfigInvalid, "", "%s: %q is there twice", f.at(path), name)
		}
		by[name] = "sandboxd itself"
		if len(of.by) > 0 {
			by[name] = "plugin " + of.by[0]
		}
		tools = append(tools, of.tool)
	}
	for i := range a.AgentTools {
		t := &a.AgentTools[i]
		path := fmt.Sprintf("%s.agent_tools[%d]", path, i)
		if err := claim(path, t.Agent.Name, "agent "+t.Agent.Name); err != nil {
			return nil, err
		}
		agent, err := rt.agent(ctx, path+".agent", &t.Agent, model, o)
		if err != nil {
			return nil, err
		}
		tools = append(tools, flow.AgentTool(agent, flow.AgentToolOptions{SkipSummarization: t.SkipSummarization, ShowResult: t.ShowResult}))
	}
	for i, below := range a.Agents {
		if m := flow.Mode(below.Mode); below.Type == "" && (m == flow.Task || m == flow.SingleTurn) {
			if err := claim(fmt.Sprintf("%s.agents[%d]", path, i), below.Name, "agent "+below.Name); err != nil {
				return nil, err
			}
		}
	}
	for i, name := range a.Toolsets { // what a server lists by itself is seen when a run lists it
		server := f.MCP[slices.IndexFunc(f.MCP, func(m MCP) bool { return m.Name == name })]
		for _, tool := range server.Tools {
			if tool == allTools {
				continue
			}
			if err := claim(fmt.Sprintf("%s.toolsets[%d]", path, i), tool, "MCP server "+name); err != nil {
				return nil, err
			}
		}
	}
	var examples []flow.Example
	for i, e := range a.Examples {
		example, err := e.flow()
		if err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(fmt.Sprintf("%s.examples[%d]", path, i)), err)
		}
		examples = append(examples, example)
	}
	if examples != nil {
		tools = append(tools, flow.Examples(examples...))
	}
	return tools, nil
}

// model opens who answers.
func (rt *Runtime) model(ctx context.Context, path string, m Model, o Options) (flow.Model, error) {
	f := rt.File
	if m.Use == "script" {
		opened, err := script.Open(f.path(m.Script))
		if err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path+".script"), err)
		}
		return opened, nil
	}
	key := o.getenv("GEMINI_API_KEY")
	if key == "" {
		return nil, bad(abi.ConfigInvalid, "export GEMINI_API_KEY=…, or use: script", "model: variable GEMINI_API_KEY is not set")
	}
	opened, err := gemini.New(ctx, gemini.Config{Name: m.Name, APIKey: key, BaseURL: m.BaseURL})
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path), err)
	}
	return opened, nil
}
