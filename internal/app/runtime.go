package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Options are what a runtime needs beside the file.
type Options struct {
	Modules  Modules
	Egress   func(replay *host.Cassettes) *host.Egress // default [host.NewEgress]
	Getenv   func(string) string                       // for GEMINI_API_KEY, secrets, and what MCP servers are given; nil: nothing is set
	Replay   string                                    // instead of dev.replay
	Observer flow.Observer
	Trace    func(tool, callID string, call host.HostCall)
	Bodies   bool         // Trace is told what host calls carry, too
	Logger   *slog.Logger // nil: silent
}

// A Runtime is an app that can run. It is safe for concurrent use.
type Runtime struct {
	File     *File
	Runner   *flow.Runner
	Store    session.Store
	Plugins  []*plugins.Plugin
	Guards   []flow.Guard // that count
	Monitors []flow.Guard // that are recorded
	// SecretHits finds the app's secrets in the document of a question; nil if it has none.
	SecretHits func(document json.RawMessage) []abi.SecretHit
	artifacts  flow.Artifacts
	builtin    *host.Module               // the first-party guards, once one is asked for
	memory     *memory                    // nil: there is none
	plugins    map[string]*plugins.Plugin // by name
	servers    map[string]flow.Toolset    // by name
	closers    []io.Closer
}

// Open wires an app. Its maker closes it. Errors are [*Error] where the app is
// to blame.
func Open(ctx context.Context, f *File, o Options) (*Runtime, error) {
	rt := &Runtime{File: f, plugins: map[string]*plugins.Plugin{}, servers: map[string]flow.Toolset{}}
	if err := rt.open(ctx, o); err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	return rt, nil
}

// Close frees what Open took, in the opposite order.
func (rt *Runtime) Close() error {
	var errs []error
	for _, c := range slices.Backward(rt.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (rt *Runtime) open(ctx context.Context, o Options) error {
	f := rt.File
	log, err := rt.auditLog()
	if err != nil {
		return err
	}
	now, err := f.clock()
	if err != nil {
		return err
	}
	kv, err := rt.openStore(now)
	if err != nil {
		return err
	}
	egress, err := rt.egress(o)
	if err != nil {
		return err
	}
	ceiling, err := f.ceiling()
	if err != nil {
		return err
	}
	secrets, err := f.secrets(o.Getenv)
	if err != nil {
		return err
	}
	var hooks []flow.Hooks
	for i, p := range f.Plugins {
		plugin, err := rt.plugin(ctx, i, p, o, plugins.Config{Ceiling: ceiling, Egress: egress, Secrets: secrets, KV: kv, Audit: log,
			Logger: o.Logger, Now: now, Trace: o.Trace, TraceBodies: o.Bodies})
		if err != nil {
			return err
		}
		rt.Plugins = append(rt.Plugins, plugin)
		rt.plugins[p.Name] = plugin
	}
	for _, name := range f.Hooks {
		hooks = append(hooks, rt.plugins[name].Hooks())
	}
	for i, m := range f.MCP {
		if rt.servers[m.Name], err = rt.server(i, m, o); err != nil {
			return err
		}
	}
	for i, g := range f.Guards {
		guard, err := rt.guard(ctx, i, g, o, policies.Config{KV: kv, Audit: log, Logger: o.Logger})
		if err != nil {
			return err
		}
		if g.Mode == "monitor" {
			rt.Monitors = append(rt.Monitors, guard)
		} else {
			rt.Guards = append(rt.Guards, guard)
		}
	}
	model, err := rt.model(ctx, "model", f.Model, o)
	if err != nil {
		return err
	}
	agent, err := rt.agent(ctx, "agent", &f.Agent, model, o)
	if err != nil {
		return err
	}
	cfg := flow.Config{
		Hooks: hooks, Guards: rt.Guards, Monitors: rt.Monitors, Artifacts: rt.artifacts, Audit: log, Observer: o.Observer, Logger: o.Logger,
		Limits: f.limits(), Expires: time.Duration(f.Confirm.Expires), FourEyes: f.Confirm.FourEyes, Now: now,
	}
	for _, d := range f.Confirm.Deciders {
		cfg.Deciders = append(cfg.Deciders, flow.Decider(d))
	}
	if secrets != nil {
		rt.SecretHits = secrets.Find
	}
	cfg.SecretHits = rt.SecretHits
	if rt.memory != nil {
		cfg.Memory = rt.memory
	}
	if cfg.Compaction, err = f.Compact.flow(); err != nil {
		return bad(abi.ConfigInvalid, "", "%s: %v", f.at("compaction"), err)
	}
	rt.Runner, err = flow.NewRunner(agent, rt.Store, cfg)
	if err != nil {
		place := "agent"
		if strings.HasPrefix(err.Error(), "guard ") {
			place = "guards"
		}
		return bad(abi.ConfigInvalid, "", "%s: %v", f.at(place), err)
	}
	return nil
}

// clock returns the clock that the app runs by, nil for the real one. It goes on
// from dev.now.
func (f *File) clock() (func() time.Time, error) {
	if f.Dev.Now == "" {
		return nil, nil
	}
	now, err := time.Parse(time.RFC3339, f.Dev.Now)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	return func() time.Time { return now.Add(time.Since(began)) }, nil
}

// SessionsPath returns where the app's sessions are, if it keeps them.
func (f *File) SessionsPath() string {
	return f.path(cmp.Or(f.Store.Path, filepath.FromSlash(defaultSessions)))
}

// AuditPath returns where the app's audit log is.
func (f *File) AuditPath() string {
	return f.path(cmp.Or(f.Store.Audit, filepath.FromSlash(defaultAudit)))
}

func (rt *Runtime) auditLog() (*audit.Log, error) {
	path := rt.File.AuditPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, bad(abi.StorageUnavailable, "name a file that can be written in store.audit", "audit log: %v", err)
	}
	log, err := audit.Open(path)
	if err != nil {
		return nil, bad(abi.StorageUnavailable, "sandboxd audit verify "+path, "audit log: %v", err)
	}
	rt.closers = append(rt.closers, log)
	return log, nil
}

func (rt *Runtime) egress(o Options) (*host.Egress, error) {
	var replay *host.Cassettes
	if path := cmp.Or(o.Replay, rt.File.Dev.Replay); path != "" {
		if o.Replay == "" {
			path = rt.File.path(path)
		}
		var err error
		if replay, err = host.OpenCassettes(path); err != nil {
			return nil, bad(abi.ConfigInvalid, "", "%s: %v", rt.File.at("dev.replay"), err)
		}
	}
	if o.Egress != nil {
		return o.Egress(replay), nil
	}
	return host.NewEgress(replay), nil
}

// ceiling is the most that grants may give: what the file says, or else the
// grants themselves.
func (f *File) ceiling() (capability.Set, error) {
	lines, path := f.Ceiling, "ceiling"
	if f.Ceiling == nil {
		for _, p := range f.Plugins {
			lines = append(lines, p.Grants...)
			lines = append(lines, p.Hooks.Grants...)
		}
		path = "plugins"
	}
	set, err := capability.ParseSet(lines)
	if err != nil && f.Ceiling != nil {
		return set, f.capabilityError(path, lines, err)
	}
	if err != nil { // the plugin with the bad line names it better
		return capability.Set{}, nil
	}
	return set, nil
}

// capabilityError says what is wrong with lines of a list. At a comma YAML ends a text
// of a list in brackets: if that is all, the hint is the whole line in quotes.
func (f *File) capabilityError(path string, lines []string, err error) *Error {
	hint := "sandboxd help grants"
	if whole := cutAtCommas(lines); whole != "" {
		hint = fmt.Sprintf("a comma ends a text between [ and ]: quote it, %q", whole)
	}
	return bad(abi.CapabilityInvalid, hint, "%s: %v", f.at(path), err)
}

// cutAtCommas returns the first capability that stands in several lines, which were
// cut at its commas; "" if there is none.
func cutAtCommas(lines []string) string {
	const most = 9 // as many methods as HTTP has
	for i := range lines {
		if _, err := capability.Parse(lines[i]); err == nil {
			continue
		}
		for n := i + 2; n <= min(len(lines), i+most); n++ {
			whole := strings.Join(lines[i:n], ",")
			if _, err := capability.Parse(whole); err == nil {
				return whole
			}
		}
	}
	return ""
}

func (f *File) grants(path string, lines []string) (capability.Set, error) {
	for i, line := range lines {
		if _, err := capability.Parse(line); err != nil {
			return capability.Set{}, f.capabilityError(fmt.Sprintf("%s[%d]", path, i), lines[i:], err)
		}
	}
	return capability.ParseSet(lines)
}

func (rt *Runtime) plugin(ctx context.Context, i int, p Plugin, o Options, cfg plugins.Config) (*plugins.Plugin, error) {
	f, path := rt.File, fmt.Sprintf("plugins[%d]", i)
	module, err := rt.module(ctx, "plugin "+p.Name, p.Module, p.Source, p.Manifest, p.Digest, o)
	if err != nil {
		return nil, err
	}
	cfg.Name, cfg.Values = p.Name, p.Config
	if cfg.Grants, err = f.grants(path+".grants", p.Grants); err != nil {
		return nil, err
	}
	if err := f.grantedSecrets(path+".grants", p.Grants); err != nil {
		return nil, err
	}
	if cfg.Limits, err = f.pluginLimits(path+".limits", p.Limits, abi.KindTool); err != nil {
		return nil, err
	}
	if cfg.Hooks.Grants, err = f.grants(path+".hooks.grants", p.Hooks.Grants); err != nil {
		return nil, err
	}
	if cfg.Hooks.Limits, err = f.pluginLimits(path+".hooks.limits", PluginLimits(p.Hooks.Limits), abi.KindHook); err != nil {
		return nil, err
	}
	if cfg.Hooks.Limits.Wall == 0 {
		cfg.Hooks.Limits.Wall = time.Duration(f.Dev.GuardWall)
	}
	cfg.Tools = map[string]plugins.ToolConfig{}
	for name, t := range p.Tools {
		tc := plugins.ToolConfig{As: t.As, Confirm: t.Confirm == "always", ShowResult: t.Show}
		if t.Grants != nil {
			set, err := f.grants(fmt.Sprintf("%s.tools.%s.grants", path, name), t.Grants)
			if err != nil {
				return nil, err
			}
			tc.Grants = &set
		}
		cfg.Tools[name] = tc
	}
	plugin, err := plugins.New(module, cfg)
	if err == nil {
		return plugin, nil
	}
	if ge, ok := errors.AsType[*plugins.GrantError](err); ok {
		hint := "a grant cannot add; ask the author, or drop the line"
		switch {
		case ge.Ceiling:
			hint = fmt.Sprintf("%s allows %q: raise it, or drop the line; sandboxd config print %s shows both", f.at("ceiling"), f.Ceiling, f.dir)
		case ge.Hook:
			hint = "do it in a tool"
		}
		return nil, bad(abi.CapabilityDenied, hint, "%v", err)
	}
	return nil, bad(abi.ConfigInvalid, "", "%s: %v", f.at(path), err)
}

// pluginLimits lowers the default limits of a kind of calls; raising them is an
// error.
func (f *File) pluginLimits(path string, l PluginLimits, kind abi.Kind) (host.Limits, error) {
	most := host.DefaultLimits(kind)
	for _, x := range []struct {
		name       string
		value, max int64
		text       string
	}{
		{"wall", int64(l.Wall), int64(most.Wall), time.Duration(l.Wall).String() + " exceeds " + most.Wall.String()},
		{"memory", int64(l.Memory), most.MemoryBytes, fmt.Sprintf("%d bytes exceed %d", l.Memory, most.MemoryBytes)},
		{"fuel", int64(l.Fuel), most.Fuel, fmt.Sprintf("%d exceeds %d", l.Fuel, most.Fuel)},
		{"host_calls", int64(l.HostCalls), int64(most.HostCalls), fmt.Sprintf("%d exceeds %d", l.HostCalls, most.HostCalls)},
		{"output", int64(l.Output), most.OutputBytes, fmt.Sprintf("%d bytes exceed %d", l.Output, most.OutputBytes)},
	} {
		if x.value > x.max {
			return host.Limits{}, bad(abi.ConfigInvalid, "limits in "+FileName+" only go down", "%s: %s", f.at(path+"."+x.name), x.text)
		}
	}
	return host.Limits{Wall: time.Duration(l.Wall), MemoryBytes: int64(l.Memory), Fuel: int64(l.Fuel), HostCalls: l.HostCalls,
		OutputBytes: int64(l.Output)}, nil
}

func (rt *Runtime) guard(ctx context.Context, i int, g Guard, o Options, cfg policies.Config) (flow.Guard, error) {
	path := fmt.Sprintf("guards[%d]", i)
	members, where, least := g.group()
	if where == "" {
		return rt.judge(ctx, path, g.Name, g.module(), o, cfg)
	}
	group := &flow.Group{Label: g.Name, AtLeast: least}
	cfg.KV = groupKV{cfg.KV, g.Name}
	for i, m := range members {
		guard, err := rt.judge(ctx, fmt.Sprintf("%s.%s[%d]", path, where, i), g.Name, m, o, cfg)
		if err != nil {
			return nil, err
		}
		group.Guards = append(group.Guards, guard)
	}
	return group, nil
}

// A groupKV keeps what members of a group store apart from what other guards of
// their names do.
type groupKV struct {
	host.KVStore
	group string
}

// Scope implements [host.KVStore].
func (k groupKV) Scope(s host.KVScope) host.KV {
	s.Owner = "group " + k.group + "/" + s.Owner
	return k.KVStore.Scope(s)
}

// judge makes a guard of a module. name is what errors call it.
func (rt *Runtime) judge(ctx context.Context, path, name string, g Member, o Options, cfg policies.Config) (flow.Guard, error) {
	f := rt.File
	module, err := rt.policy(ctx, name, &g, o)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Code == abi.NotFound {
			return nil, bad(abi.PolicyUnavailable, "fix the path; there is no setting that skips a guard", "%s; every call would be denied", e.Text)
		}
		return nil, err
	}
	cfg.Name, cfg.Guard, cfg.Settings = g.Name, g.Guard, json.RawMessage(g.Settings)
	cfg.Limits = host.Limits{Wall: time.Duration(f.Dev.GuardWall)}
	guard, err := policies.New(ctx, module, cfg)
	if err == nil {
		return guard, nil
	}
	if se, ok := errors.AsType[*policies.SettingsError](err); ok {
		return nil, bad(abi.ConfigInvalid, settingHint(se), "guard %s: %s", name, f.at(path+".settings")+": "+se.Err.Error())
	}
	if ge, ok := errors.AsType[*host.GuestError](err); ok && ge.Code == abi.GuestTimeout {
		return nil, bad(abi.PolicyUnavailable, "sandboxd policy bench says what it takes; dev: {guard_wall: 1s} gives it more on a slow machine; no setting skips a guard", "%v", err)
	}
	return nil, bad(abi.PolicyUnavailable, "there is no setting that skips a guard", "%v", err)
}

// settingHint says how to write a setting that is no text and should be one, or which name is
// near one that is not known.
func settingHint(err error) string {
	m, ok := errors.AsType[*flow.MismatchError](err)
	if ok && m.Unknown {
		if near := Nearest(m.Name, m.Known); near != "" {
			return "did you mean " + near + "?"
		}
		return "settings: " + strings.Join(m.Known, ", ")
	}
	if !ok || m.Want != "text" {
		return ""
	}
	value := strings.TrimPrefix(m.Have, "number ")
	if value == m.Have && value != "true" && value != "false" {
		return ""
	}
	return fmt.Sprintf("quote it: %s: %q", m.At[strings.LastIndex(m.At, "/")+1:], value)
}
