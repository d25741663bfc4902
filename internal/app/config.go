package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// FileName is the name of the file that makes a directory an app.
const FileName = "agent.yaml"

// maxFileBytes bounds agent.yaml.
const maxFileBytes = 1 << 20

// A File is agent.yaml. The tags doc and enum are the published schema's.
type File struct {
	Format    int               `yaml:"format" required:"true" doc:"1"`
	Name      string            `yaml:"name" required:"true" doc:"the app's name: a lower-case letter, then a-z 0-9 _ -"`
	Model     Model             `yaml:"model" required:"true" doc:"who answers"`
	Agent     Agent             `yaml:"agent" required:"true" doc:"the agent"`
	Plugins   []Plugin          `yaml:"plugins,omitempty" doc:"modules that offer tools and hooks"`
	MCP       []MCP             `yaml:"mcp,omitempty" doc:"MCP servers, whose tools agents may be offered"`
	Hooks     []string          `yaml:"hooks,omitempty" doc:"names of plugins whose hooks run, in order; the first answer wins"`
	Guards    []Guard           `yaml:"guards,omitempty" doc:"what judges messages, requests, responses, calls and results; the worst verdict counts"`
	Artifacts Artifacts         `yaml:"artifacts,omitempty" doc:"files the agent's tools may be granted"`
	Secrets   map[string]Secret `yaml:"secrets,omitempty" doc:"what the host may put into requests for plugins that are granted secret use NAME at HOST, by name; no plugin ever reads one"`
	Confirm   Confirm           `yaml:"confirm,omitempty" doc:"questions to people"`
	Store     Store             `yaml:"store,omitempty" doc:"what is kept"`
	Memory    string            `yaml:"memory,omitempty" enum:"words" doc:"what load_memory and preload_memory search; words: the user's other stored sessions, by the words they share with the query; absent: there is none"`
	Compact   Compact           `yaml:"compaction,omitempty" doc:"summarises long histories; absent: they are sent whole"`
	Ceiling   Lines             `yaml:"ceiling,omitempty" doc:"the most any grant above may give; absent: the grants are the ceiling"`
	Dev       Dev               `yaml:"dev,omitempty" doc:"for sandboxd run only"`

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
	Name     string                `yaml:"name" required:"true" doc:"its name in the app"`
	Module   string                `yaml:"module,omitempty" doc:"the module's file, or an Extism manifest in JSON"`
	Source   string                `yaml:"source,omitempty" doc:"instead of module: a folder with the source of a plugin, built when needed"`
	Manifest string                `yaml:"manifest,omitempty" doc:"a file that says what the module offers, in place of what it says itself: for a plain Extism plugin"`
	Digest   string                `yaml:"digest,omitempty" doc:"sha256:… of the module; a module with another digest is refused"`
	Grants   []string              `yaml:"grants,omitempty" doc:"what calls may do, at most what the manifest asks; nothing by default"`
	Tools    map[string]PluginTool `yaml:"tools,omitempty" doc:"narrows or renames single tools"`
	Limits   PluginLimits          `yaml:"limits,omitempty" doc:"of one call of a tool, downwards only"`
	Hooks    PluginHooks           `yaml:"hooks,omitempty" doc:"what its hooks may do and use; what the tools may do is not theirs"`
	Config   map[string]string     `yaml:"config,omitempty" doc:"plain values the guest may read; never secrets"`
}

// PluginTool configures one tool.
type PluginTool struct {
	As      string `yaml:"as,omitempty" doc:"the name the model sees"`
	Grants  Lines  `yaml:"grants,omitempty" doc:"narrows the plugin's grants"`
	Confirm string `yaml:"confirm,omitempty" enum:"guards,always" doc:"who decides whether a person is asked; default guards"`
	Show    bool   `yaml:"show_result,omitempty" doc:"true: a result for which the tool skips the model's summary is shown to the user as text"`
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
	Policy   string   `yaml:"policy,omitempty" doc:"the module's file, or builtin/NAME: a guard that comes with sandboxd"`
	Source   string   `yaml:"source,omitempty" doc:"instead of policy: a folder with the source of a policy, built when needed"`
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
	Policy   string `yaml:"policy,omitempty" doc:"the module's file, or builtin/NAME: a guard that comes with sandboxd"`
	Source   string `yaml:"source,omitempty" doc:"instead of policy: a folder with the source of a policy, built when needed"`
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
	if BuiltinName(m.Policy) != "" && m.Guard != "" {
		add(path+".guard", "leave it out", "policy names the guard")
	}
	if m.Source != "" && m.Digest != "" {
		add(path+".digest", "build the module and name it with policy", "a source has no digest")
	}
}

// Compact says when histories are summarised, by the model of the first agent.
type Compact struct {
	Interval       int `yaml:"interval,omitempty" doc:"after a run: so many new runs are summarised at a time"`
	Overlap        int `yaml:"overlap,omitempty" doc:"and so many earlier ones are told again"`
	TokenThreshold int `yaml:"token_threshold,omitempty" doc:"before a model call: from a request of so many tokens"`
	Retention      int `yaml:"retention,omitempty" doc:"so many of the newest events stay as they are; needed with token_threshold"`
}

// flow returns the compaction of a runner, nil if there is none.
func (c Compact) flow() (*flow.Compaction, error) {
	if c == (Compact{}) {
		return nil, nil
	}
	out := &flow.Compaction{Interval: c.Interval, Overlap: c.Overlap, TokenThreshold: c.TokenThreshold, Retention: c.Retention}
	switch {
	case c.Interval == 0 && c.TokenThreshold == 0:
		return nil, errors.New("want an interval, a token_threshold or both")
	case c.Overlap > 0 && c.Interval == 0:
		return nil, errors.New("overlap without an interval")
	case (c.TokenThreshold > 0) != (c.Retention > 0):
		return nil, errors.New("want token_threshold and retention, or neither")
	}
	return out, nil
}

// Artifacts are files offered to tools.
type Artifacts struct {
	Dir       string `yaml:"dir,omitempty" doc:"a folder whose files are copied in, never written back"`
	SaveFiles bool   `yaml:"save_files,omitempty" doc:"true: files that come with a message are kept as artifacts, and the model is told their names instead"`
}

// Secret says where a secret comes from: one of the two.
type Secret struct {
	Env  string `yaml:"env,omitempty" doc:"the variable that holds it"`
	File string `yaml:"file,omitempty" doc:"the file that holds it; a line break at its end does not count"`
}

// Confirm configures questions to people.
type Confirm struct {
	Expires  Duration  `yaml:"expires,omitempty" doc:"how long a question stays open; default 24h"`
	Deciders []Decider `yaml:"deciders,omitempty" doc:"who may decide them, each role:NAME or user:NAME; absent: anybody"`
	FourEyes bool      `yaml:"four_eyes,omitempty" doc:"true: neither who started a run nor whom it runs for decides its questions; default false"`
}

// Store says where things are kept.
type Store struct {
	Sessions string `yaml:"sessions,omitempty" enum:"memory,sqlite" doc:"memory: they, their artifacts and what guests keep in kv end with the process, the default; sqlite: all are kept in a file"`
	Path     string `yaml:"path,omitempty" doc:"sqlite: the file; default .sandboxd/sessions.db in the app"`
	Audit    string `yaml:"audit,omitempty" doc:"the audit log; default .sandboxd/audit.log in the app"`
}

// Dev is for development.
type Dev struct {
	Replay    string   `yaml:"replay,omitempty" doc:"recorded answers (a file or folder) instead of the network; egress rules still apply, and MCP servers are reached all the same"`
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
	for name, s := range f.Secrets {
		if (s.Env == "") == (s.File == "") {
			add("secrets."+name, "write {env: "+name+"}", "want one of env and file")
		}
	}
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
	hooks := func(path string, names []string) {
		for i, h := range names {
			if !plugins[h] {
				add(fmt.Sprintf("%s[%d]", path, i), "", "%q is no plugin of this app", h)
			}
		}
	}
	hooks("hooks", f.Hooks)
	servers := f.checkMCP(add)
	f.Agent.each("agent", func(path string, a *Agent) {
		a.check(path, add)
		hooks(join(path, "hooks"), a.Hooks)
		for i, name := range a.Toolsets {
			if !servers[name] {
				add(fmt.Sprintf("%s.toolsets[%d]", path, i), "name one of mcp", "%q is no MCP server of this app", name)
			}
		}
	})
	guards := map[string]bool{}
	for i, g := range f.Guards {
		path := fmt.Sprintf("guards[%d]", i)
		if guards[g.Name] {
			add(path+".name", "", "%q is the name of two guards", g.Name)
		}
		guards[g.Name] = true
		g.check(path, add)
	}
	if f.Confirm.Deciders != nil && len(f.Confirm.Deciders) == 0 {
		add("confirm.deciders", "name them, or leave it out for anybody", "an empty list: nobody could decide")
	}
	if f.Memory != "" && !f.KeepsSessions() {
		add("memory", "add store: {sessions: sqlite}", "there are no stored sessions to search")
	}
	if c := f.Compact; c != (Compact{}) {
		if _, err := c.flow(); err != nil {
			add("compaction", "", "%v", err)
		}
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
