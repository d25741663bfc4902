package app

import (
	"cmp"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Where an app keeps what it keeps, below its folder.
const (
	defaultAudit    = ".sandboxd/audit.log"
	defaultSessions = ".sandboxd/sessions.db"
)

// limits are those of a run, as far as the file says.
func (f *File) limits() flow.Limits {
	l := f.Agent.Limits
	limits := flow.Limits{Steps: l.Steps, Depth: l.Depth, CallsPerStep: l.CallsPerStep, Parallel: l.ParallelCalls, Wall: time.Duration(l.Wall)}
	if wall := time.Duration(f.Dev.GuardWall); wall > 0 { // a judgement is more than the guest's own time
		limits.Guard = wall + host.DefaultLimits(abi.KindGuard).Startup
	}
	return limits
}

// WithDefaults returns the file with every default that is in force written out.
// The receiver is not changed.
func (f *File) WithDefaults() *File {
	out := *f
	run := f.limits().WithDefaults()
	out.Agent.Limits = AgentLimits{Steps: run.Steps, Depth: run.Depth, CallsPerStep: run.CallsPerStep, ParallelCalls: run.Parallel, Wall: Duration(run.Wall)}
	out.Confirm.Expires = cmp.Or(f.Confirm.Expires, Duration(flow.DefaultExpires))
	out.Store.Audit = cmp.Or(f.Store.Audit, defaultAudit)
	out.Store.Sessions = cmp.Or(f.Store.Sessions, "memory")
	if f.KeepsSessions() {
		out.Store.Path = cmp.Or(f.Store.Path, defaultSessions)
	}
	most := host.DefaultLimits(abi.KindTool)
	out.Plugins = nil
	for _, p := range f.Plugins {
		p.Limits.Wall = cmp.Or(p.Limits.Wall, Duration(most.Wall))
		p.Limits.Memory = cmp.Or(p.Limits.Memory, Bytes(most.MemoryBytes))
		p.Limits.Fuel = cmp.Or(p.Limits.Fuel, Count(most.Fuel))
		p.Limits.HostCalls = cmp.Or(p.Limits.HostCalls, most.HostCalls)
		p.Limits.Output = cmp.Or(p.Limits.Output, Bytes(most.OutputBytes))
		if slices.Contains(f.Hooks, p.Name) {
			p.Hooks.Limits = f.hookDefaults(p.Hooks.Limits)
		}
		tools := map[string]PluginTool{}
		for name, t := range p.Tools {
			t.Confirm = cmp.Or(t.Confirm, "guards")
			tools[name] = t
		}
		if len(tools) > 0 {
			p.Tools = tools
		}
		out.Plugins = append(out.Plugins, p)
	}
	if f.Ceiling == nil {
		for _, p := range f.Plugins {
			out.Ceiling = append(out.Ceiling, p.Grants...)
			out.Ceiling = append(out.Ceiling, p.Hooks.Grants...)
		}
	}
	out.Guards = nil
	for _, g := range f.Guards {
		g.Mode = cmp.Or(g.Mode, "enforce")
		out.Guards = append(out.Guards, g)
	}
	return &out
}

// hookDefaults fills in the limits of hooks. A time that dev.guard_wall sets is no
// limit that could be written.
func (f *File) hookDefaults(l HookLimits) HookLimits {
	most := host.DefaultLimits(abi.KindHook)
	if f.Dev.GuardWall == 0 {
		l.Wall = cmp.Or(l.Wall, Duration(most.Wall))
	}
	l.Memory = cmp.Or(l.Memory, Bytes(most.MemoryBytes))
	l.Fuel = cmp.Or(l.Fuel, Count(most.Fuel))
	l.HostCalls = cmp.Or(l.HostCalls, most.HostCalls)
	l.Output = cmp.Or(l.Output, Bytes(most.OutputBytes))
	return l
}
