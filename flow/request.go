package flow

//adk:errors what begins "failed to" is the text that the vectors pin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// buildRequest fills a request. The order is ADK's, and later parts depend on
// earlier ones: configuration, list of tools, answers of people and open tasks
// (which run calls), instructions, identity, compaction, contents, output
// schema, transfer,
// display names, then what each tool and toolset adds. It reports whether the run
// now waits for somebody else than the model.
func (s *step) buildRequest(ctx context.Context, req *Request) (waiting bool, err error) {
	if err := s.configure(req); err != nil {
		return false, err
	}
	if err := s.listTools(ctx); err != nil {
		return false, err
	}
	before := len(s.events())
	if waiting, err = s.resume(ctx); !waiting && err == nil && !s.stopped {
		waiting, err = s.resumeTasks(ctx)
	}
	if err == nil {
		err = s.handBack(ctx, before)
	}
	if waiting || err != nil || s.stopped {
		return waiting, err
	}
	cc := s.callbackContext(ctx, s.agent.Name, nil)
	if err := s.instructions(cc, req); err != nil {
		return false, fmt.Errorf("failed to append instructions: %w", err)
	}
	s.identity(req)
	s.compactTail(ctx)
	if req.Contents, err = s.contents(); err != nil {
		return false, err
	}
	if req.edited = s.edited(); req.edited {
		for i, c := range req.Contents {
			req.Contents[i] = session.CloneContent(c)
		}
		req.Config.ResponseJsonSchema = ownSchema(req.Config.ResponseJsonSchema)
	}
	req.by = byFramework
	if err := s.requireStructured(req); err != nil {
		return false, err
	}
	if err := s.offerTransfer(req); err != nil {
		return false, err
	}
	s.removeDisplayNames(req)
	for _, o := range s.tools {
		req.by = o.by
		if err := prepare(cc, req, o.tool); err != nil {
			return false, err
		}
	}
	for _, set := range s.sets {
		if p, ok := set.(RequestProcessor); ok {
			req.by = bySet(set)
			if err := process(p, cc, req); err != nil {
				return false, fmt.Errorf("tool set %q: %w", set.Name(), err)
			}
		}
	}
	req.by = ""
	return false, nil
}

// byFramework is who offers transfer_to_agent and its like.
const byFramework = "the framework"

func bySet(set Toolset) string { return fmt.Sprintf("tool set %q", set.Name()) }

// edited reports whether somebody but the model gets the request, and may change
// contents and schemas that later requests share with it.
func (f *agentRun) edited() bool {
	processes := func(v any) bool { _, ok := v.(RequestProcessor); return ok }
	return slices.ContainsFunc(f.hooks, func(h Hooks) bool { return h.BeforeModel != nil || h.OnModelError != nil }) ||
		slices.ContainsFunc(f.tools, func(o offer) bool { return processes(o.tool) }) ||
		slices.ContainsFunc(f.sets, func(t Toolset) bool { return processes(t) })
}

// configure copies the agent's configuration.
func (f *agentRun) configure(req *Request) (err error) {
	if req.Config, err = cloneConfig(f.agent.GenerateConfig); err != nil {
		return fmt.Errorf("agent %s: generate config: %w", f.agent.Name, err)
	}
	if f.agent.OutputSchema != nil && f.agent.Mode != Task && !f.answersByTool() {
		req.Config.ResponseJsonSchema = f.agent.OutputSchema
		req.Config.ResponseMIMEType = "application/json"
	}
	return nil
}

// prepare lets one tool take part in a request.
func prepare(cc *CallbackContext, req *Request, t Tool) error {
	p, edits := t.(RequestProcessor)
	if executable(t) {
		if err := req.Pack(t); err != nil {
			return err
		}
	} else if !edits {
		return fmt.Errorf("tool %q does not implement RequestProcessor() method", t.Spec().Name)
	}
	if edits {
		if err := process(p, cc, req); err != nil {
			return err
		}
	}
	return nil
}

func process(p RequestProcessor, cc *CallbackContext, req *Request) error {
	_, err := contain("request processor", func() (struct{}, error) { return struct{}{}, p.ProcessRequest(cc, req) })
	return err
}

func executable(t Tool) bool {
	switch t.(type) {
	case Handler, Streamer:
		return true
	}
	return false
}

// listTools collects the agent's tools once per run of the agent.
func (f *agentRun) listTools(ctx context.Context) error {
	if f.tools != nil {
		return nil
	}
	if f.answersByTool() {
		f.own = append(f.own, newAnswerTool(f.agent))
	}
	if len(f.tree.targets(f.agent)) > 0 {
		f.own = append(f.own, newTransferTool(f.tree.targets(f.agent)))
	}
	tools := append([]offer{}, f.agent.ownOffers()...)
	if f.agent.Mode == Task {
		tools = slices.Insert(tools, len(f.agent.Tools), offer{newFinishTool(f.agent, f.task), byFramework})
	}
	rc := &f.callbackContext(ctx, f.agent.Name, nil).Context
	for _, set := range f.agent.Toolsets {
		listed, err := contain("tool set", func() ([]Tool, error) { return set.Tools(rc) })
		if err != nil {
			return fmt.Errorf("failed to extract tools from the tool set %q: %w", set.Name(), err)
		}
		for _, t := range listed {
			tools = append(tools, offer{t, bySet(set)})
		}
		f.sets = append(f.sets, set)
	}
	f.tools = tools
	return nil
}

// table is the table of what can be executed, as it would be packed.
func (f *agentRun) table() *toolTable {
	t := &toolTable{}
	for _, tool := range f.own {
		_, _ = t.add(tool, byFramework) // what cannot be added fails the request that follows
	}
	for _, o := range f.tools {
		if executable(o.tool) {
			_, _ = t.add(o.tool, o.by)
		}
	}
	return t
}

// identity tells the model its name, unless it is to answer a single-turn task.
func (f *agentRun) identity(req *Request) {
	if f.mode() == SingleTurn {
		return
	}
	text := fmt.Sprintf("You are an agent. Your internal name is %q.", f.agent.Name)
	if f.agent.Description != "" {
		text += fmt.Sprintf(" The description about you is %q.", f.agent.Description)
	}
	req.AppendInstructions(text)
}

// removeDisplayNames drops the names of files, which the Gemini API refuses.
func (f *agentRun) removeDisplayNames(req *Request) {
	if b, ok := f.agent.Model.(BackendReporter); !ok || b.Backend() != GeminiAPI {
		return
	}
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if p.InlineData != nil {
				p.InlineData.DisplayName = ""
			}
			if p.FileData != nil {
				p.FileData.DisplayName = ""
			}
		}
	}
}

// cloneConfig returns a deep copy of a configuration, so that a request can be
// edited. Members that JSON does not carry are copied by reference.
func cloneConfig(c *genai.GenerateContentConfig) (*genai.GenerateContentConfig, error) {
	if c == nil {
		return &genai.GenerateContentConfig{}, nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	out := &genai.GenerateContentConfig{}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, err
	}
	out.HTTPOptions = c.HTTPOptions
	out.ResponseJsonSchema = c.ResponseJsonSchema
	return out, nil
}

// canonicalArgs returns the arguments of a call in canonical form. No arguments
// are an empty object; those deeper than [abi.MaxDepth] are an error.
func canonicalArgs(args map[string]any) (json.RawMessage, error) {
	if len(args) == 0 {
		return json.RawMessage("{}"), nil
	}
	return said(args)
}

// said returns what somebody says in canonical form, if it is not too deep.
func said(v any) (json.RawMessage, error) {
	doc, err := abi.Marshal(v)
	if err == nil {
		err = abi.CheckDepth(doc)
	}
	return doc, err
}
