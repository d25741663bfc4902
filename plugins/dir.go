package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A DirConfig says what an app makes of a folder of plugins. The zero value grants nothing.
type DirConfig struct {
	// Grants are lines of grants for the tools of a plugin, by its name in the manifest. A
	// plugin that is not named is granted nothing; a name that no plugin has is an error.
	Grants map[string][]string
	// HookGrants are those for its hooks, to which nothing is given that is given to tools.
	HookGrants map[string][]string

	// Each is what all plugins have in common, such as the ceiling of all grants. What is one
	// plugin's alone, its Name, Grants, Tools and Hooks.Grants, must be empty.
	Each Config
}

// A Dir is what the modules of a folder offer, in the order of their files. Its slices are
// the caller's.
type Dir struct {
	Plugins []*Plugin
	Tools   []flow.Tool    // of all plugins, for [flow.Agent.Tools]; no two have one name
	Hooks   []flow.Hooks   // of the plugins that have any, for [flow.Agent.Hooks]
	Guards  []*host.Module // those whose manifest lists guards, for policies.New, which takes their settings
}

// A ConflictError names a tool that several plugins of a folder offer. Its code is
// [abi.VersionConflict].
type ConflictError struct {
	Tool    string
	Plugins []string // their names, in the order of the files
}

// Error names the tool, the plugins and what to do.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: tool %s: offered by plugins %s: take one away, or rename it with New", abi.VersionConflict, e.Tool, strings.Join(e.Plugins, " and "))
}

// OpenDir loads every file of a folder whose name ends in ".wasm", in the order of names, and
// makes plugins of them. Folders in it are not looked into, and other files are left alone. One
// that cannot be used refuses the whole: the error joins every reason, among them a
// [*host.RejectError], [*GrantError] or [*ConflictError], with the file or plugin that it is about. Two
// modules that call themselves by one name are refused, too, as grants are given by name.
//
// Whoever may write to the folder says what runs, though not what it may do: digests are pinned
// by who loads modules one by one and calls [New].
func OpenDir(ctx context.Context, engine *host.Engine, dir string, cfg DirConfig) (*Dir, error) {
	if e := cfg.Each; e.Name != "" || len(e.Grants.Lines())+len(e.Hooks.Grants.Lines())+len(e.Tools) > 0 {
		return nil, errors.New("plugins: DirConfig.Each: Name, Grants, Tools and Hooks.Grants are one plugin's: want them empty")
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	d := &Dir{}
	var errs []error
	files := map[string]string{}   // by name of the plugin
	tools := map[string][]string{} // names of plugins, by tool
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) != ".wasm" {
			continue
		}
		module, err := loadFile(ctx, engine, filepath.Join(dir, entry.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		name := module.Manifest().Name
		if other, taken := files[name]; taken {
			errs = append(errs, fmt.Errorf("plugin %s: is %s and %s: want one", name, other, entry.Name()))
			continue
		}
		files[name] = entry.Name()
		p, err := cfg.plugin(module)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.add(p)
		for _, t := range module.Manifest().Tools {
			tools[t.Name] = append(tools[t.Name], name)
		}
	}
	for _, grants := range []map[string][]string{cfg.Grants, cfg.HookGrants} {
		for _, name := range slices.Sorted(maps.Keys(grants)) {
			if files[name] == "" {
				errs = append(errs, fmt.Errorf("plugin %s: has grants and is not in %s, or cannot be used: there are %q", name, dir, slices.Sorted(maps.Keys(files))))
			}
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		if by := tools[tool]; len(by) > 1 {
			errs = append(errs, &ConflictError{tool, by})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return d, nil
}

func loadFile(ctx context.Context, engine *host.Engine, file string) (*host.Module, error) {
	wasm, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	module, err := engine.Load(ctx, wasm)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return module, nil
}

// plugin makes a plugin of a module of the folder.
func (c *DirConfig) plugin(module *host.Module) (*Plugin, error) {
	cfg, name := c.Each, module.Manifest().Name
	var err error
	if cfg.Grants, err = capability.ParseSet(c.Grants[name]); err != nil {
		return nil, fmt.Errorf("plugin %s: grants: %w", name, err)
	}
	if cfg.Hooks.Grants, err = capability.ParseSet(c.HookGrants[name]); err != nil {
		return nil, fmt.Errorf("plugin %s: grants of hooks: %w", name, err)
	}
	return New(module, cfg)
}

// add appends a plugin and what it offers.
func (d *Dir) add(p *Plugin) {
	d.Plugins, d.Tools = append(d.Plugins, p), append(d.Tools, p.Tools()...)
	if len(p.Module().Manifest().Hooks) > 0 {
		d.Hooks = append(d.Hooks, p.Hooks())
	}
	if len(p.Module().Manifest().Guards) > 0 {
		d.Guards = append(d.Guards, p.Module())
	}
}
