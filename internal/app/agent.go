package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/flow/script"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// agent makes an agent and all agents below it. The app's model answers for those
// that have no other.
func (rt *Runtime) agent(ctx context.Context, path string, a *Agent, model flow.Model, o Options) (*flow.Agent, error) {
	f := rt.File
	out := &flow.Agent{Name: a.Name, Type: flow.AgentType(a.Type), MaxIterations: a.MaxIterations, Description: a.Description, OutputKey: a.OutputKey}
	var err error
	switch {
	case a.Model.Use != "": // also of an agent that has no use for one: flow says so
		if out.Model, err = rt.model(ctx, path+".model", a.Model, o); err != nil {
			return nil, err
		}
	case a.Type == "":
		out.Model = model
	}
	if out.Tools, err = rt.tools(path, a); err != nil {
		return nil, err
	}
	out.Instruction = a.Instruction.Text
	if name := a.Instruction.File; name != "" {
		data, err := os.ReadFile(f.path(name))
		if err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path+".instruction"), err)
		}
		out.Instruction = string(data)
	}
	if out.OutputSchema, err = a.outputSchema(); err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path+".output_schema"), err)
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

// builtins are tools that are there without a plugin.
var builtins = []flow.Tool{flow.ExitLoop(), flow.LoadArtifacts()}

// tools picks an agent's tools, in its order, from all plugins.
func (rt *Runtime) tools(path string, a *Agent) ([]flow.Tool, error) {
	f := rt.File
	type offer struct {
		tool flow.Tool
		by   []string
	}
	offers := map[string]*offer{}
	var names []string
	add := func(t flow.Tool, by string) {
		name := t.Spec().Name
		if offers[name] == nil {
			offers[name] = &offer{tool: t}
			names = append(names, name)
		}
		offers[name].by = append(offers[name].by, by)
	}
	for _, p := range rt.Plugins {
		for _, t := range p.Tools() {
			add(t, p.Name())
		}
	}
	offered := strings.Join(names, ", ")
	for _, t := range builtins {
		if offers[t.Spec().Name] == nil { // a plugin's own goes first
			add(t, "")
		}
	}
	var tools []flow.Tool
	seen := map[string]bool{}
	for i, name := range a.Tools {
		path := fmt.Sprintf("%s.tools[%d]", path, i)
		of := offers[name]
		switch {
		case of == nil:
			hint := "plugins offer: " + cmp.Or(offered, "nothing")
			if near := Nearest(name, names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, bad(abi.ConfigInvalid, hint, "%s: no plugin offers tool %q", f.at(path), name)
		case len(of.by) > 1:
			return nil, bad(abi.VersionConflict, fmt.Sprintf("rename one: tools: {%s: {as: %s_%s}}", name, of.by[1], name),
				"tool %s: offered by plugins %s", name, strings.Join(of.by, " and "))
		case seen[name]:
			return nil, bad(abi.ConfigInvalid, "", "%s: %q is there twice", f.at(path), name)
		}
		seen[name] = true
		tools = append(tools, of.tool)
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
	key := ""
	if o.Getenv != nil {
		key = o.Getenv("GEMINI_API_KEY")
	}
	if key == "" {
		return nil, bad(abi.ConfigInvalid, "export GEMINI_API_KEY=…, or use: script", "model: variable GEMINI_API_KEY is not set")
	}
	opened, err := gemini.New(ctx, gemini.Config{Name: m.Name, APIKey: key, BaseURL: m.BaseURL})
	if err != nil {
		return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path), err)
	}
	return opened, nil
}
