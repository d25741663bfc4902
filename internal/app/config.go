package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// FileName is the name of the file that makes a directory an app.
const FileName = "agent.yaml"

// maxFileBytes bounds agent.yaml.
const maxFileBytes = 1 << 20

// A File is agent.yaml. The tags doc and enum are the published schema's.
type File struct {
	Format    int       `yaml:"format" required:"true" doc:"1"`
	Name      string    `yaml:"name" required:"true" doc:"the app's name: a lower-case letter, then a-z 0-9 _ -"`
	Model     Model     `yaml:"model" required:"true" doc:"who answers"`
	Agent     Agent     `yaml:"agent" required:"true" doc:"the agent"`
	Plugins   []Plugin  `yaml:"plugins,omitempty" doc:"modules that offer tools and hooks"`
	Hooks     []string  `yaml:"hooks,omitempty" doc:"names of plugins whose hooks run, in order; the first answer wins"`
	Guards    []Guard   `yaml:"guards,omitempty" doc:"what judges messages, requests, responses, calls and results; the worst verdict counts"`
	Artifacts Artifacts `yaml:"artifacts,omitempty" doc:"files the agent's tools may be granted"`
	Confirm   Confirm   `yaml:"confirm,omitempty" doc:"questions to people"`
	Store     Store     `yaml:"store,omitempty" doc:"what is kept"`
	Ceiling   Lines     `yaml:"ceiling,omitempty" doc:"the most any grant above may give; absent: the grants are the ceiling"`
	Dev       Dev       `yaml:"dev,omitempty" doc:"for sandboxd run only"`

	dir  string
	line map[string]int // of each path in the file
}

// Model says who answers.
type Model struct {
	Use     string `yaml:"use" required:"true" enum:"script,gemini" doc:"script: written replies, offline; gemini: the Gemini API, with the key in GEMINI_API_KEY"`
	Script  string `yaml:"script,omitempty" doc:"script: the file of replies"`
	Name    string `yaml:"name,omitempty" doc:"gemini: the model's name"`
	BaseURL string `yaml:"base_url,omitempty" doc:"gemini: another address of the service; default Google's"`
}

// Agent is an agent of the app: the one that takes messages, or one below it.
type Agent struct {
	Name          string      `yaml:"name" required:"true" doc:"a letter or _, then letters, digits and _; different for every agent"`
	Type          string      `yaml:"type,omitempty" enum:"sequential,parallel,loop" doc:"runs its agents one after the other, at the same time, or again and again until one calls exit_loop; absent: an agent with a model"`
	MaxIterations int         `yaml:"max_iterations,omitempty" doc:"of a loop; default: only the limits of the run"`
	Description   string      `yaml:"description,omitempty" doc:"for the model, and for the models of other agents"`
	Model         Model       `yaml:"model,omitempty" doc:"who answers for this agent; default the app's model"`
	Instruction   Text        `yaml:"instruction,omitempty" doc:"for the model: a text, or {file: NAME}; {key} is filled from state"`
	Tools         []string    `yaml:"tools,omitempty" doc:"names of tools; one that is not listed is not offered and cannot be called; exit_loop and load_artifacts are always there to be listed"`
	OutputKey     string      `yaml:"output_key,omitempty" doc:"state key that keeps the final text"`
	OutputSchema  JSON        `yaml:"output_schema,omitempty" doc:"JSON Schema of the final answer"`
	Agents        []Agent     `yaml:"agents,omitempty" doc:"agents to which this one can hand the conversation, or which it runs"`
	Limits        AgentLimits `yaml:"limits,omitempty" doc:"of one run; only of the first agent"`
}

// each calls f for an agent and all below it, with their places in the file.
func (a *Agent) each(path string, f func(path string, a *Agent)) {
	f(path, a)
	for i := range a.Agents {
		a.Agents[i].each(fmt.Sprintf("%s.agents[%d]", path, i), f)
	}
}

// EachAgent calls f for every agent of the app, from the first down, with their
// places in the file.
func (f *File) EachAgent(visit func(path string, a *Agent)) { f.Agent.each("agent", visit) }

// AllTools returns the names of the tools that any agent of the app lists, sorted.
func (f *File) AllTools() []string {
	var names []string
	f.EachAgent(func(_ string, a *Agent) { names = append(names, a.Tools...) })
	slices.Sort(names)
	return slices.Compact(names)
}

// AgentLimits bound one run.
type AgentLimits struct {
	Steps         int      `yaml:"steps,omitempty" doc:"model calls; default 50"`
	ParallelCalls int      `yaml:"parallel_calls,omitempty" doc:"tool calls at the same time; default 64"`
	Wall          Duration `yaml:"wall,omitempty" doc:"the whole run; default 10m"`
}

// outputSchema returns the schema of the agent's answer, nil if it has none.
func (a *Agent) outputSchema() (*jsonschema.Schema, error) {
	if a.OutputSchema == nil {
		return nil, nil
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(a.OutputSchema, s); err != nil {
		return nil, err
	}
	_, err := s.Resolve(nil)
	return s, err
}

// check finds what has no meaning for a model.
func (m *Model) check(path string, add func(path, hint, format string, args ...any)) {
	switch m.Use {
	case "script":
		if m.Script == "" {
			add(path, "add script: replies.yaml", "script is missing")
		}
		if m.Name != "" || m.BaseURL != "" {
			add(path, "", "name and base_url have no meaning for use: script")
		}
	case "gemini":
		if m.Name == "" {
			add(path, "add name: MODEL", "name is missing")
		}
		if m.Script != "" {
			add(path+".script", "", "has no meaning for use: gemini")
		}
	}
}

// Plugin is one plugin of the app.
type Plugin struct {
	Name   string                `yaml:"name" required:"true" doc:"its name in the app"`
	Module string                `yaml:"module,omitempty" doc:"the module's file"`
	Source string                `yaml:"source,omitempty" doc:"instead of module: a folder with a Go plugin, built when needed"`
	Digest string                `yaml:"digest,omitempty" doc:"sha256:… of the module; a module with another digest is refused"`
	Grants []string              `yaml:"grants,omitempty" doc:"what calls may do, at most what the manifest asks; nothing by default"`
	Tools  map[string]PluginTool `yaml:"tools,omitempty" doc:"narrows or renames single tools"`
	Limits PluginLimits          `yaml:"limits,omitempty" doc:"of one call of a tool, downwards only"`
	Hooks  PluginHooks           `yaml:"hooks,omitempty" doc:"what its hooks may do and use; what the tools may do is not theirs"`
	Config map[string]string     `yaml:"config,omitempty" doc:"plain values the guest may read; never secrets"`
}

// PluginTool configures one tool.
type PluginTool struct {
	As      string `yaml:"as,omitempty" doc:"the name the model sees"`
	Grants  Lines  `yaml:"grants,omitempty" doc:"narrows the plugin's grants"`
	Confirm string `yaml:"confirm,omitempty" enum:"guards,always" doc:"who decides whether a person is asked; default guards"`
}

// PluginHooks configures the hooks of a plugin.
type PluginHooks struct {
	Grants []string   `yaml:"grants,omitempty" doc:"what calls of hooks may do, at most what the manifest asks; nothing by default; never http, secret, emit, transfer or escalate"`
	Limits HookLimits `yaml:"limits,omitempty" doc:"of one call of a hook, downwards only"`
}

// HookLimits bound one call of a hook.
type HookLimits struct {
	Wall      Duration `yaml:"wall,omitempty" doc:"default and most 50ms"`
	Memory    Bytes    `yaml:"memory,omitempty" doc:"default and most 16MiB"`
	Fuel      Count    `yaml:"fuel,omitempty" doc:"guest work, default and most 20M"`
	HostCalls int      `yaml:"host_calls,omitempty" doc:"default and most 1000"`
	Output    Bytes    `yaml:"output,omitempty" doc:"default and most 1MiB"`
}

// PluginLimits bound one call of a tool.
type PluginLimits struct {
	Wall      Duration `yaml:"wall,omitempty" doc:"default and most 5s"`
	Memory    Bytes    `yaml:"memory,omitempty" doc:"default and most 64MiB"`
	Fuel      Count    `yaml:"fuel,omitempty" doc:"guest work, default and most 2G"`
	HostCalls int      `yaml:"host_calls,omitempty" doc:"default and most 1000"`
	Output    Bytes    `yaml:"output,omitempty" doc:"default and most 1MiB"`
}

// Guard is one guard of the app, or a group of them.
type Guard struct {
	Name     string   `yaml:"name" required:"true" doc:"its name in the app"`
	Policy   string   `yaml:"policy,omitempty" doc:"the module's file"`
	Source   string   `yaml:"source,omitempty" doc:"instead of policy: a folder with a Go guard, built when needed"`
	Digest   string   `yaml:"digest,omitempty" doc:"sha256:… of the module; a module with another digest is refused"`
	Guard    string   `yaml:"guard,omitempty" doc:"the guard's name in a module with several"`
	Settings JSON     `yaml:"settings,omitempty" doc:"what the guard's own schema allows"`
	Mode     string   `yaml:"mode,omitempty" enum:"enforce,monitor" doc:"monitor: what it says is recorded and changes nothing; default enforce"`
	AllOf    []Member `yaml:"all_of,omitempty" doc:"instead of policy: guards all of which must let pass"`
	AnyOf    []Member `yaml:"any_of,omitempty" doc:"instead of policy: guards one of which must let pass"`
	AtLeast  int      `yaml:"at_least,omitempty" doc:"instead of policy: how many of the guards under of must let pass"`
	Of       []Member `yaml:"of,omitempty" doc:"the guards of at_least"`
}

// Member is a guard in a group.
type Member struct {
	Name     string `yaml:"name,omitempty" doc:"its name in the group; default the guard's own"`
	Policy   string `yaml:"policy,omitempty" doc:"the module's file"`
	Source   string `yaml:"source,omitempty" doc:"instead of policy: a folder with a Go guard, built when needed"`
	Digest   string `yaml:"digest,omitempty" doc:"sha256:… of the module; a module with another digest is refused"`
	Guard    string `yaml:"guard,omitempty" doc:"the guard's name in a module with several"`
	Settings JSON   `yaml:"settings,omitempty" doc:"what the guard's own schema allows"`
}

// group returns the members of a group, where they stand, and how many of them
// must let pass; nothing if the guard is none.
func (g *Guard) group() (members []Member, path string, least int) {
	switch {
	case g.AllOf != nil:
		return g.AllOf, "all_of", len(g.AllOf)
	case g.AnyOf != nil:
		return g.AnyOf, "any_of", 1
	case g.Of != nil || g.AtLeast != 0:
		return g.Of, "of", g.AtLeast
	}
	return nil, "", 0
}

// module returns what a guard that is no group is made of.
func (g *Guard) module() Member {
	return Member{Name: g.Name, Policy: g.Policy, Source: g.Source, Digest: g.Digest, Guard: g.Guard, Settings: g.Settings}
}

// check finds what the types cannot say.
func (g *Guard) check(path string, add func(path, hint, format string, args ...any)) {
	kinds := 0
	for _, there := range []bool{g.Policy != "" || g.Source != "", g.AllOf != nil, g.AnyOf != nil, g.Of != nil || g.AtLeast != 0} {
		if there {
			kinds++
		}
	}
	members, where, least := g.group()
	switch {
	case kinds != 1:
		add(path, "", "want one of policy, source, all_of, any_of and at_least")
		return
	case where == "":
		m := g.module()
		m.check(path, add)
		return
	}
	if g.Digest != "" || g.Guard != "" || g.Settings != nil {
		add(path, "write them at each member", "digest, guard and settings have no meaning for a group")
	}
	if least < 1 || least > len(members) {
		add(path, "", "%d of %d guards: want 1 to %d", least, len(members), len(members))
	}
	for i := range members {
		members[i].check(fmt.Sprintf("%s.%s[%d]", path, where, i), add)
	}
}

func (m *Member) check(path string, add func(path, hint, format string, args ...any)) {
	if (m.Policy == "") == (m.Source == "") {
		add(path, "", "want one of policy and source")
	}
	if m.Source != "" && m.Digest != "" {
		add(path+".digest", "build the module and name it with policy", "a source has no digest")
	}
}

// Artifacts are files offered to tools.
type Artifacts struct {
	Dir string `yaml:"dir,omitempty" doc:"a folder whose files are copied in, never written back"`
}

// Confirm configures questions to people.
type Confirm struct {
	Expires Duration `yaml:"expires,omitempty" doc:"how long a question stays open; default 24h"`
}

// Store says where things are kept.
type Store struct {
	Sessions string `yaml:"sessions,omitempty" enum:"memory,sqlite" doc:"memory: they end with the process, the default; sqlite: they are kept in a file"`
	Path     string `yaml:"path,omitempty" doc:"sqlite: the file; default .sandboxd/sessions.db in the app"`
	Audit    string `yaml:"audit,omitempty" doc:"the audit log; default .sandboxd/audit.log in the app"`
}

// Dev is for development.
type Dev struct {
	Replay    string   `yaml:"replay,omitempty" doc:"recorded answers (a file or folder) instead of the network; egress rules still apply"`
	GuardWall Duration `yaml:"guard_wall,omitempty" doc:"what a guard or hook may take on a slow machine; default 50ms"`
	Now       string   `yaml:"now,omitempty" doc:"the time of the run, RFC 3339; default the clock"`
}

// An Error is a mistake in an app.
type Error struct {
	Code abi.Code
	Text string // what, value and bound; begins with the place
	Hint string // what to do; may be empty
}

func (e *Error) Error() string { return e.Text }

func bad(code abi.Code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Hint: hint, Text: fmt.Sprintf(format, args...)}
}

// Load reads dir/agent.yaml. The error joins every mistake found, each an [*Error].
func Load(dir string) (*File, error) {
	name := filepath.Join(dir, FileName)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return nil, bad(abi.Usage, "an APP is a folder with "+FileName, "%s: not a folder", dir)
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bad(abi.Usage, "an APP is a folder with "+FileName, "%s: no such file", name)
	}
	if err != nil {
		return nil, bad(abi.Usage, "", "%v", err)
	}
	f := &File{dir: dir}
	if err := parse(data, f); err != nil {
		return nil, err
	}
	return f, f.check()
}

// Dir returns the app's folder.
func (f *File) Dir() string { return f.dir }

// at names a place in the file for errors.
func (f *File) at(path string) string {
	if n := f.line[path]; n > 0 {
		return fmt.Sprintf("%s:%d: %s", FileName, n, path)
	}
	return FileName + ": " + path
}

// path returns a file of the app. Paths are relative to the app's folder.
func (f *File) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(f.dir, name)
}

// check finds what the types cannot say.
func (f *File) check() error {
	var errs []error
	add := func(path, hint, format string, args ...any) {
		errs = append(errs, bad(abi.ConfigInvalid, hint, "%s: %s", f.at(path), fmt.Sprintf(format, args...)))
	}
	if f.Format != 1 {
		add("format", "write format: 1", "%d: want 1", f.Format)
	}
	if err := abi.ValidName(f.Name); err != nil {
		add("name", "", "%v", err)
	}
	f.Model.check("model", add)
	f.EachAgent(func(path string, a *Agent) {
		a.Model.check(path+".model", add)
		if path != "agent" && a.Limits != (AgentLimits{}) {
			add(path+".limits", "move them to agent.limits", "limits are those of the run")
		}
		if a.OutputSchema == nil {
			return
		}
		if _, err := a.outputSchema(); err != nil {
			add(path+".output_schema", "", "%v", err)
		}
	})
	plugins := map[string]bool{}
	for i, p := range f.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if plugins[p.Name] {
			add(path+".name", "", "%q is the name of two plugins", p.Name)
		}
		plugins[p.Name] = true
		if (p.Module == "") == (p.Source == "") {
			add(path, "", "want one of module and source")
		}
		if p.Source != "" && p.Digest != "" {
			add(path+".digest", "build the module and name it with module", "a source has no digest")
		}
	}
	for i, h := range f.Hooks {
		if !plugins[h] {
			add(fmt.Sprintf("hooks[%d]", i), "", "%q is no plugin of this app", h)
		}
	}
	guards := map[string]bool{}
	for i, g := range f.Guards {
		path := fmt.Sprintf("guards[%d]", i)
		if guards[g.Name] {
			add(path+".name", "", "%q is the name of two guards", g.Name)
		}
		guards[g.Name] = true
		g.check(path, add)
	}
	if f.Store.Path != "" && !f.KeepsSessions() {
		add("store.path", "add sessions: sqlite", "has no meaning for sessions: memory")
	}
	if f.Dev.Now != "" {
		if _, err := time.Parse(time.RFC3339, f.Dev.Now); err != nil {
			add("dev.now", "such as 2026-03-02T09:00:00Z", "%q: want RFC 3339", f.Dev.Now)
		}
	}
	return errors.Join(errs...)
}
