package plugins

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Config says what an app makes of a plugin. The zero value grants nothing.
type Config struct {
	Name string // in the app; default the manifest's

	// Grants are what the app gives; each must be covered by what the manifest
	// asks. Ceiling is the most the operator lets any app give; zero is nothing.
	Grants  capability.Set
	Ceiling capability.Set

	// Tools configures single tools, by their name in the manifest. An unknown
	// name is an error.
	Tools map[string]ToolConfig

	Limits host.Limits       // of tool calls; a zero field: what the manifest asks, at most the default
	Hooks  HookConfig        // what hook calls may do and use
	Values map[string]string // plain values the guest may read, over those of the manifest; never secrets

	Egress  *host.Egress  // for http; nil: every request is refused
	Secrets *host.Secrets // that requests may use as far as they are granted; all are taken out of every answer
	KV      host.KVStore  // keeps values apart for every tenant, app and plugin; nil: kv is refused
	Audit   audit.Sink    // gets refused host calls; nil: nothing is recorded
	Logger  *slog.Logger  // gets what guests log; nil: silent

	// Now is what a guest takes for the time at the start of its call; nil: the
	// clock.
	Now func() time.Time

	// Seed makes the randomness of guests repeat, for tests; nil: it is fit for
	// secrets.
	Seed []byte

	// Trace is told of every host call. It must not block.
	Trace func(tool, callID string, call host.HostCall)
	// TraceBodies tells Trace what host calls carry, too.
	TraceBodies bool
	// Chunk is told what a streaming tool says, piece by piece, as the model reads
	// it. It must not block.
	Chunk func(tool, callID, text string)
}

// A HookConfig is what an app makes of a plugin's hooks. Nothing that is given to
// its tools is given to them. The zero value grants nothing.
type HookConfig struct {
	// Grants are what hook calls may do: each covered by what the manifest asks and
	// by the ceiling, and of a kind that a hook may have. A hook sees every message
	// and every request, so it may not have http, secret or emit, and it does not
	// decide who goes on, so neither transfer nor escalate.
	Grants capability.Set
	Limits host.Limits // a zero field: what the manifest asks, at most the default, which is that of guards
}

// hookKinds are the kinds of access that hooks may have.
var hookKinds = []string{"state", "artifact", "memory", "kv", "clock", "random", "log", "confirm", "skip-summary"}

// A ToolConfig is what an app makes of one tool.
type ToolConfig struct {
	As         string          // the name the model sees; default the manifest's
	Grants     *capability.Set // narrows the plugin's grants; nil: does not
	Confirm    bool            // a person decides before every call
	ShowResult bool            // a result for which the guest skips the model's summary is shown to the user as text
}

// A Plugin is a guest as the flow sees it. It is safe for concurrent use.
type Plugin struct {
	module *host.Module
	cfg    Config
	grants capability.Set // of tool calls
	hooks  capability.Set // of hook calls
	tools  []flow.Tool
}

// New makes a plugin of a module.
func New(module *host.Module, cfg Config) (*Plugin, error) {
	m := module.Manifest()
	cfg.Name = cmp.Or(cfg.Name, m.Name)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	values := maps.Clone(m.Config)
	if values == nil {
		values = map[string]string{}
	}
	maps.Copy(values, cfg.Values)
	cfg.Values = values
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Limits = cfg.Limits.Or(host.DefaultLimits(abi.KindTool).Narrow(host.Asked(m.Limits)))
	cfg.Hooks.Limits = cfg.Hooks.Limits.Or(host.DefaultLimits(abi.KindHook).Narrow(host.Asked(m.Limits)))
	requests, err := capability.ParseSet(m.Requests)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: manifest: %w", cfg.Name, err)
	}
	if err := coveredBy(cfg.Name, cfg.Grants, requests, cfg.Ceiling); err != nil {
		return nil, err
	}
	if err := coveredBy(cfg.Name, cfg.Hooks.Grants, requests, cfg.Ceiling); err != nil {
		return nil, err
	}
	for _, c := range cfg.Hooks.Grants.Capabilities() {
		if !slices.Contains(hookKinds, c.Kind()) {
			return nil, &GrantError{Plugin: cfg.Name, Grant: c.String(), Hook: true}
		}
	}
	p := &Plugin{module: module, cfg: cfg, grants: capability.Effective(requests, cfg.Ceiling, cfg.Grants),
		hooks: capability.Effective(requests, cfg.Ceiling, cfg.Hooks.Grants)}
	left := maps.Clone(cfg.Tools)
	for _, t := range m.Tools {
		tool, err := p.tool(t, cfg.Tools[t.Name])
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", cfg.Name, err)
		}
		p.tools = append(p.tools, tool)
		delete(left, t.Name)
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("plugin %s: no tool %q: it has %s", cfg.Name, slices.Sorted(maps.Keys(left))[0], toolNames(m))
	}
	return p, nil
}

// ErrNotRequested matches the error for a grant that the manifest does not ask
// for or that exceeds the ceiling.
var ErrNotRequested = errors.New("capability denied")

// A GrantError names a grant that cannot be given.
type GrantError struct {
	Plugin  string
	Grant   string   // the line of the app
	Asks    []string // what the manifest asks, if that is the bound
	Ceiling bool     // the operator's ceiling is the bound
	Hook    bool     // hooks may not have grants of this kind
}

// Error names the grant and the bound.
func (e *GrantError) Error() string {
	if e.Ceiling {
		return fmt.Sprintf("plugin %s: %s exceeds the ceiling", e.Plugin, e.Grant)
	}
	if e.Hook {
		return fmt.Sprintf("plugin %s: hooks: grant %s: a hook may have %s", e.Plugin, e.Grant, strings.Join(hookKinds, ", "))
	}
	asks := "nothing"
	if len(e.Asks) > 0 {
		asks = strings.Join(e.Asks, ", ")
	}
	return fmt.Sprintf("plugin %s: grant %s was not requested: manifest asks %s", e.Plugin, e.Grant, asks)
}

// Is makes [errors.Is] match [ErrNotRequested].
func (e *GrantError) Is(target error) bool { return target == ErrNotRequested }

func coveredBy(name string, grants, requests, ceiling capability.Set) error {
	for _, line := range grants.Lines() {
		c, err := capability.Parse(line)
		if err != nil {
			return fmt.Errorf("plugin %s: grant: %w", name, err)
		}
		if !requests.Covers(c) {
			return &GrantError{Plugin: name, Grant: line, Asks: requests.Lines()}
		}
		if !ceiling.Covers(c) {
			return &GrantError{Plugin: name, Grant: line, Ceiling: true}
		}
	}
	return nil
}

// Name returns the plugin's name in the app.
func (p *Plugin) Name() string { return p.cfg.Name }

// Module returns the module.
func (p *Plugin) Module() *host.Module { return p.module }

// Grants returns what calls of the plugin's tools are granted at most.
func (p *Plugin) Grants() capability.Set { return p.grants }

// HookGrants returns what calls of the plugin's hooks are granted.
func (p *Plugin) HookGrants() capability.Set { return p.hooks }

// Tools returns the plugin's tools in the order of the manifest. The slice is the
// caller's.
func (p *Plugin) Tools() []flow.Tool { return slices.Clone(p.tools) }

func (p *Plugin) tool(t abi.Tool, cfg ToolConfig) (flow.Tool, error) {
	spec := flow.Spec{Name: cmp.Or(cfg.As, t.Name), Description: t.Description, Effects: t.Effects, LongRunning: t.LongRunning,
		Confirm: t.Confirm || cfg.Confirm, ShowResult: cfg.ShowResult, Module: p.module.Digest().String(), Grants: p.grants}
	if cfg.As != "" {
		if err := abi.ValidName(cfg.As); err != nil {
			return nil, fmt.Errorf("tool %s: as: %w", t.Name, err)
		}
	}
	if cfg.Grants != nil {
		if err := coveredBy(p.cfg.Name, *cfg.Grants, p.grants, p.cfg.Ceiling); err != nil {
			return nil, err
		}
		spec.Grants = p.grants.Intersect(*cfg.Grants)
	}
	var err error
	if spec.Input, err = schema(t.Input); err != nil {
		return nil, fmt.Errorf("tool %s: input schema: %w", t.Name, err)
	}
	if spec.Output, err = schema(t.Output); err != nil {
		return nil, fmt.Errorf("tool %s: output schema: %w", t.Name, err)
	}
	if err := spec.Resolve(); err != nil {
		return nil, err
	}
	g := guestTool{plugin: p, tool: t, spec: &spec}
	if t.Streaming {
		return &guestStream{g}, nil
	}
	return &guestHandler{g}, nil
}

func schema(raw json.RawMessage) (*jsonschema.Schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	s := &jsonschema.Schema{}
	return s, json.Unmarshal(raw, s)
}

func toolNames(m *abi.Manifest) string {
	var names []string
	for _, t := range m.Tools {
		names = append(names, t.Name)
	}
	return fmt.Sprintf("%q", names)
}
