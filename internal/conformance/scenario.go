package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Handlers makes what a scenario's tools and hooks are made of. It is safe for
// concurrent use.
type Handlers interface {
	tool(ctx context.Context, spec flow.Spec, t *toolSpec, r *recorder) (flow.Tool, error)
	hook(ctx context.Context, h hookSpec, e *hookEntry) (flow.Hooks, error)
}

// errNotBuilt marks a scenario that needs something which does not exist yet.
var errNotBuilt = errors.New("not built yet")

func notBuilt(what string) error { return fmt.Errorf("%s: %w", what, errNotBuilt) }

// A scenario is a vector ready to run.
type scenario struct {
	v         *Vector
	handlers  Handlers
	rec       *recorder
	agent     *flow.Agent
	plugins   []flow.Hooks
	store     *session.Memory
	artifacts *flow.MemoryArtifacts
	runner    *flow.Runner
	ids       ids
	closers   []func() error // of MCP connections, clients first
}

// close ends what the scenario started.
func (s *scenario) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func newScenario(ctx context.Context, v *Vector, handlers Handlers, rec *recorder) (s *scenario, err error) {
	s = &scenario{v: v, handlers: handlers, rec: rec, store: session.NewMemory()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.agent, err = s.buildAgent(ctx, v.Agent); err != nil {
		return nil, err
	}
	for _, p := range v.Plugins {
		for _, h := range p.Hooks {
			hooks, err := handlers.hook(ctx, h, &hookEntry{rec: s.rec, scope: "plugin:" + p.Name, hook: h.Hook})
			if err != nil {
				return nil, err
			}
			s.plugins = append(s.plugins, hooks)
		}
	}
	cfg := flow.Config{Hooks: s.plugins, Memory: &scriptedMemory{v.Memory, rec}}
	if c := v.Compaction; c != nil {
		cfg.Compaction = &flow.Compaction{Interval: c.Interval, Overlap: c.Overlap, TokenThreshold: c.TokenThreshold, Retention: c.Retention,
			Summarizer: &scriptedSummarizer{spec: c, rec: rec}}
	}
	if !v.NoArtifactService {
		s.artifacts = flow.NewMemoryArtifacts()
		cfg.Artifacts = s.artifacts
	}
	if s.runner, err = flow.NewRunner(s.agent, s.store, cfg); err != nil {
		return nil, err
	}
	key := sessionKey("", "")
	if _, err := s.store.Create(ctx, key, v.InitialState); err != nil {
		return nil, err
	}
	var seeds []*session.Event
	for i, e := range v.SeedEvents {
		ev := e.event()
		ev.ID, ev.Time = fmt.Sprintf("seed-%d", i), time.Unix(int64(i), 0)
		if e.Summary != "" {
			ev.Actions.Compaction = &session.Compaction{Start: time.Unix(0, 0), End: time.Unix(int64(i-1), 0),
				Content: genai.NewContentFromText(e.Summary, genai.RoleModel)}
		}
		seeds = append(seeds, ev)
	}
	if err := s.runner.Import(ctx, key, seeds); err != nil {
		return nil, err
	}
	for _, a := range v.Artifacts {
		if _, err := s.artifacts.Save(ctx, key, a.Name, a.Part); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func sessionKey(user, id string) session.Key {
	k := session.Key{App: "golden_app", User: "user-1", ID: "session-1"}
	if user != "" {
		k.User = user
	}
	if id != "" {
		k.ID = id
	}
	return k
}

func (s *scenario) buildAgent(ctx context.Context, a *agentSpec) (*flow.Agent, error) {
	if a == nil {
		return nil, errors.New("vector has no agent")
	}
	agent := &flow.Agent{Name: a.Name, Description: a.Description, Instruction: a.Instruction, GlobalInstruction: a.GlobalInstruction,
		Type: flow.AgentType(a.Type), MaxIterations: a.MaxIterations, Mode: flow.Mode(a.Mode),
		NoTransferToParent: a.NoParent, NoTransferToPeers: a.NoPeers,
		GenerateConfig: a.GenerateConfig, OutputKey: a.OutputKey, IncludeContents: flow.IncludeContents(a.IncludeContents)}
	var err error
	if agent.InputSchema, err = schemaOf(a.InputSchema); err != nil {
		return nil, err
	}
	if agent.OutputSchema, err = schemaOf(a.OutputSchema); err != nil {
		return nil, err
	}
	for _, sub := range a.SubAgents {
		b, err := s.buildAgent(ctx, sub)
		if err != nil {
			return nil, err
		}
		agent.Agents = append(agent.Agents, b)
	}
	provider := func(text *string, fail string) func(*flow.Context) (string, error) {
		if text == nil && fail == "" {
			return nil
		}
		return func(*flow.Context) (string, error) {
			if fail != "" {
				return "", errors.New(fail)
			}
			return *text, nil
		}
	}
	agent.InstructionProvider = provider(a.Provider, a.ProviderError)
	agent.GlobalInstructionProvider = provider(a.GlobalProvider, "")
	if !a.NoModel && a.Type == "" {
		agent.Model = s.buildModel(a)
	}
	for _, key := range a.Tools {
		t, err := s.buildTool(ctx, key)
		if err != nil {
			return nil, err
		}
		agent.Tools = append(agent.Tools, t)
	}
	for _, key := range a.Toolsets {
		t, err := s.buildToolset(ctx, key)
		if err != nil {
			return nil, err
		}
		agent.Toolsets = append(agent.Toolsets, t)
	}
	for _, h := range a.Callbacks {
		hooks, err := s.handlers.hook(ctx, h, &hookEntry{rec: s.rec, scope: "agent:" + a.Name, hook: h.Hook, agent: true})
		if err != nil {
			return nil, err
		}
		agent.Hooks = append(agent.Hooks, hooks)
	}
	return agent, nil
}

func (s *scenario) buildModel(a *agentSpec) *flowtest.Model {
	m := &flowtest.Model{ModelName: a.ModelName, On: flow.Backend(a.ModelBackend)}
	m.OnRequest = func(req *flow.Request, stream bool) { s.rec.request(a.Name, req, stream) }
	for _, step := range s.v.Model[a.Name] {
		var replies []flowtest.Reply
		for _, r := range step.Responses {
			if r.Error != nil {
				replies = append(replies, flowtest.Reply{Err: errors.New(*r.Error)})
				continue
			}
			resp := &session.Response{Content: r.Content, Partial: r.Partial, TurnComplete: r.TurnComplete,
				Interrupted: r.Interrupted, ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage}
			if r.PromptTokens > 0 {
				resp.Usage = &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: r.PromptTokens}
			}
			replies = append(replies, flowtest.Reply{Response: resp})
		}
		m.Steps = append(m.Steps, replies)
	}
	return m
}

func (s *scenario) buildTool(ctx context.Context, key string) (flow.Tool, error) {
	t := s.v.Tools[key]
	if t == nil {
		return nil, fmt.Errorf("tool %q: not in the vector", key)
	}
	name := key
	if t.Name != "" {
		name = t.Name
	}
	spec := flow.Spec{Name: name, Description: t.Description, LongRunning: t.LongRunning, Confirm: t.Confirm, Effects: abi.Once}
	spec.ConfirmIf = predicate(t.ConfirmIf)
	switch t.Kind {
	case "", "function", "streaming", "nil_declaration", "deferring":
		var err error
		if spec.Input, err = schemaOf(t.InputSchema); err != nil {
			return nil, err
		}
		if spec.Output, err = schemaOf(t.OutputSchema); err != nil {
			return nil, err
		}
		spec.Undeclared = t.Kind == "nil_declaration"
		spec.Defers = t.Kind == "deferring"
		return s.handlers.tool(ctx, spec, t, s.rec)
	case "google_search":
		return gemini.GoogleSearch(), nil
	case "gemini_native":
		native := &genai.Tool{}
		if err := json.Unmarshal(t.Native, native); err != nil {
			return nil, err
		}
		return requestTool{spec: &spec, edit: func(req *flow.Request) error {
			req.Config.Tools = append(req.Config.Tools, native)
			return nil
		}}, nil
	case "request_only":
		return requestTool{spec: &spec, edit: func(req *flow.Request) error {
			req.AppendInstructions(t.AppendInstruction)
			return nil
		}}, nil
	case "declaration_only":
		tool := requestTool{spec: &spec}
		tool.edit = func(req *flow.Request) error { return req.Pack(tool) }
		return tool, nil
	case "public_only":
		return publicTool{&spec}, nil
	case "agent_tool":
		agent, err := s.buildAgent(ctx, t.Agent)
		if err != nil {
			return nil, err
		}
		return flow.AgentTool(agent, flow.AgentToolOptions{SkipSummarization: t.Skip}), nil
	case "load_artifacts":
		return flow.LoadArtifacts(), nil
	case "load_memory":
		return flow.LoadMemory(), nil
	case "preload_memory":
		return flow.PreloadMemory(), nil
	case "exit_loop":
		return flow.ExitLoop(), nil
	case "example":
		return flow.Examples(t.Examples...), nil
	}
	return nil, notBuilt("tool kind " + t.Kind)
}

func schemaOf(raw json.RawMessage) (*jsonschema.Schema, error) {
	if raw == nil {
		return nil, nil
	}
	s := &jsonschema.Schema{}
	return s, json.Unmarshal(raw, s)
}

func predicate(c *confirmIf) func(map[string]any) bool {
	if c == nil {
		return nil
	}
	return func(args map[string]any) bool {
		switch n := args[c.Arg].(type) {
		case json.Number:
			f, _ := n.Float64()
			return f > c.Over
		case float64:
			return n > c.Over
		}
		return false
	}
}

// A scriptedMemory finds everything, whatever the query.
type scriptedMemory struct {
	entries []memorySpec
	rec     *recorder
}

func (m *scriptedMemory) Search(_ context.Context, _ session.Key, query string) ([]flow.MemoryEntry, error) {
	m.rec.searched(query)
	var found []flow.MemoryEntry
	for _, e := range m.entries {
		found = append(found, flow.MemoryEntry{Author: e.Author, Content: genai.NewContentFromText(e.Text, genai.RoleUser), Time: e.Timestamp})
	}
	return found, nil
}

// A scriptedSummarizer gives one summary after the other.
type scriptedSummarizer struct {
	spec *compactionSpec
	rec  *recorder

	mu sync.Mutex
	n  int
}

func (s *scriptedSummarizer) Summarize(_ context.Context, events []*session.Event) (flow.Summary, error) {
	s.rec.summarized(events)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spec.SummarizerError != "" {
		return flow.Summary{}, errors.New(s.spec.SummarizerError)
	}
	i := min(s.n, len(s.spec.Summaries)-1)
	s.n++
	return flow.Summary{Content: genai.NewContentFromText(s.spec.Summaries[i], genai.RoleModel)}, nil
}

// A requestTool only edits requests.
type requestTool struct {
	spec *flow.Spec
	edit func(*flow.Request) error
}

func (t requestTool) Spec() *flow.Spec { return t.spec }

func (t requestTool) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	return t.edit(req)
}

// A publicTool has nothing but its identity.
type publicTool struct{ spec *flow.Spec }

func (t publicTool) Spec() *flow.Spec { return t.spec }

func (s *scenario) buildToolset(ctx context.Context, key string) (flow.Toolset, error) {
	t := s.v.Toolsets[key]
	if t == nil {
		return nil, fmt.Errorf("toolset %q: not in the vector", key)
	}
	var out flow.Toolset
	var err error
	switch t.Kind {
	case "static":
		out, err = s.staticToolset(ctx, key, t)
	case "mcp":
		out, err = s.mcpToolset(ctx, key, t)
	default:
		return nil, notBuilt("toolset kind " + t.Kind)
	}
	if err != nil {
		return nil, err
	}
	if t.WithConfirmation {
		out = flow.ConfirmToolset(out, t.Confirm, predicate(t.ConfirmIf))
	}
	if t.Filter != nil {
		out = flow.FilterToolset(out, func(spec *flow.Spec) bool { return slices.Contains(t.Filter, spec.Name) })
	}
	return out, nil
}

func (s *scenario) staticToolset(ctx context.Context, key string, t *toolsetSpec) (flow.Toolset, error) {
	lists := t.ToolsPerList
	if lists == nil {
		lists = [][]string{t.Tools}
	}
	set := &staticSet{name: key, spec: t, rec: s.rec}
	for _, list := range lists {
		var tools []flow.Tool
		for _, k := range list {
			tool, err := s.buildTool(ctx, k)
			if err != nil {
				return nil, err
			}
			tools = append(tools, tool)
		}
		set.lists = append(set.lists, tools)
	}
	return set, nil
}

type staticSet struct {
	name  string
	spec  *toolsetSpec
	lists [][]flow.Tool
	rec   *recorder
	n     int
}

func (s *staticSet) Name() string { return s.name }

func (s *staticSet) Tools(*flow.Context) ([]flow.Tool, error) {
	s.rec.listed(s.name)
	if s.spec.ListError != "" {
		return nil, errors.New(s.spec.ListError)
	}
	i := min(s.n, len(s.lists)-1)
	s.n++
	return s.lists[i], nil
}

func (s *staticSet) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	req.AppendInstructions(s.spec.AppendInstruction)
	return nil
}
