package plugins_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// named is a module that calls itself by a name and has tools.
func named(t *testing.T, name string, requests []string, tools ...string) []byte {
	t.Helper()
	m := hosttest.Manifest(tools...)
	m.Name, m.Requests = name, requests
	return hosttest.Build(t, m, answering(tools...))
}

func answering(exports ...string) map[string]hosttest.Guest {
	guests := map[string]hosttest.Guest{}
	for _, e := range exports {
		guests[e] = hosttest.Guest{Says: []hosttest.Piece{hosttest.Text(`{"result":1}`)}}
	}
	return guests
}

// opened opens a folder of files.
func opened(t *testing.T, cfg plugins.DirConfig, files map[string][]byte) (*plugins.Dir, error) {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return plugins.OpenDir(t.Context(), engine, dir, cfg)
}

// What a folder holds is loaded in the order of the files; what is not named is granted nothing.
func TestOpenDir(t *testing.T) {
	hooks := hosttest.Manifest("late")
	hooks.Name, hooks.Requests, hooks.Hooks = "hooks", []string{"log"}, []abi.HookPoint{abi.BeforeRun}
	judge := hosttest.Manifest()
	judge.Name, judge.Guards = "judge", []abi.Guard{{Name: "all", Phases: []abi.Phase{abi.PhaseCall}}}
	d, err := opened(t, plugins.DirConfig{Grants: map[string][]string{"web": {"http GET a.example/*"}}, HookGrants: map[string][]string{"hooks": {"log"}},
		Each: plugins.Config{Ceiling: set(t, "http GET a.example/*", "log")}}, map[string][]byte{
		"b.wasm":         named(t, "web", []string{"http GET a.example/*", "log"}, "fetch", "find"),
		"a.wasm":         hosttest.Build(t, hooks, answering("late", abi.ExportCall)),
		"c.wasm":         named(t, "quiet", []string{"log"}, "hush"),
		"judge.wasm":     hosttest.Build(t, judge, answering(abi.ExportCall)),
		"README.md":      []byte("no module"),
		"wasm":           []byte("no module"),
		"old/d.wasm":     []byte("no module"),
		"e.wasm/ignored": []byte("no module"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range d.Plugins {
		got = append(got, p.Name()+": "+strings.Join(p.Grants().Lines(), ", ")+"; "+strings.Join(p.HookGrants().Lines(), ", "))
	}
	if want := []string{"hooks: ; log", "web: http GET a.example/*; ", "quiet: ; ", "judge: ; "}; !slices.Equal(got, want) {
		t.Errorf("plugins %q, want %q", got, want)
	}
	got = nil
	for _, tool := range d.Tools {
		got = append(got, tool.Spec().Name)
	}
	if want := []string{"late", "fetch", "find", "hush"}; !slices.Equal(got, want) {
		t.Errorf("tools %q, want %q", got, want)
	}
	if len(d.Hooks) != 1 || d.Hooks[0].Name != "hooks" || d.Hooks[0].BeforeRun == nil {
		t.Errorf("hooks %+v, want those of one plugin", d.Hooks)
	}
	if len(d.Guards) != 1 || d.Guards[0] != d.Plugins[3].Module() {
		t.Errorf("guards %v, want the module of the last plugin", d.Guards)
	}
}

// An empty folder offers nothing; one that is not there is an error.
func TestOpenDirEmpty(t *testing.T) {
	d, err := opened(t, plugins.DirConfig{}, nil)
	if err != nil || len(d.Plugins)+len(d.Tools)+len(d.Hooks)+len(d.Guards) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := plugins.OpenDir(t.Context(), nil, filepath.Join(t.TempDir(), "plugins"), plugins.DirConfig{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestOpenDirRefuses(t *testing.T) {
	ceiling := plugins.Config{Ceiling: set(t, "log")}
	web, docs := named(t, "web", []string{"log"}, "search", "fetch"), named(t, "docs", nil, "search", "read")
	cases := []struct {
		name  string
		cfg   plugins.DirConfig
		files map[string][]byte
		want  []string // all of it
	}{
		{"every broken file, with every reason", plugins.DirConfig{Each: ceiling}, map[string][]byte{"a.wasm": []byte("x"), "b.wasm": web, "c.wasm": []byte("\x00asm\x0d\x00\x01\x00")},
			[]string{"a.wasm: ", string(abi.ModuleMalformed), "c.wasm: ", "component"}},
		{"a grant for what is not there", plugins.DirConfig{Grants: map[string][]string{"wab": {"log"}}, Each: ceiling}, map[string][]byte{"a.wasm": web},
			[]string{"plugin wab: has grants and is not in ", `["web"]`}},
		{"a grant for hooks that are not there", plugins.DirConfig{HookGrants: map[string][]string{"wab": {"log"}}, Each: ceiling}, map[string][]byte{"a.wasm": web},
			[]string{"plugin wab: has grants and is not in "}},
		{"grants that are none, not asked for, and too much", plugins.DirConfig{Grants: map[string][]string{"web": {"log"}, "docs": {"http GET *.com"}}, HookGrants: map[string][]string{"more": {"clock"}}},
			map[string][]byte{"a.wasm": web, "b.wasm": docs, "c.wasm": named(t, "more", nil, "more")},
			[]string{"plugin web: log exceeds the ceiling", "plugin docs: grants: ", "plugin more: grant clock was not requested"}},
		{"one name twice", plugins.DirConfig{}, map[string][]byte{"a.wasm": web, "b.wasm": named(t, "web", nil, "other")}, []string{"plugin web: is a.wasm and b.wasm"}},
		{"a tool twice", plugins.DirConfig{}, map[string][]byte{"a.wasm": docs, "b.wasm": web}, []string{"version_conflict: tool search: offered by plugins docs and web"}},
		{"a name for all", plugins.DirConfig{Each: plugins.Config{Name: "x"}}, nil, []string{"DirConfig.Each"}},
		{"grants for all", plugins.DirConfig{Each: plugins.Config{Grants: set(t, "log")}}, nil, []string{"DirConfig.Each"}},
		{"grants of hooks for all", plugins.DirConfig{Each: plugins.Config{Hooks: plugins.HookConfig{Grants: set(t, "log")}}}, nil, []string{"DirConfig.Each"}},
		{"tools for all", plugins.DirConfig{Each: plugins.Config{Tools: map[string]plugins.ToolConfig{"x": {}}}}, nil, []string{"DirConfig.Each"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, err := opened(t, c.cfg, c.files)
			if err == nil || d != nil {
				t.Fatalf("%v, %v: want an error and nothing else", d, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q", err, want)
				}
			}
		})
	}
	_, err := opened(t, plugins.DirConfig{}, map[string][]byte{"a.wasm": docs, "b.wasm": web, "c.wasm": []byte("x")})
	conflict, ok := errors.AsType[*plugins.ConflictError](err)
	if !ok || conflict.Tool != "search" || !slices.Equal(conflict.Plugins, []string{"docs", "web"}) {
		t.Errorf("%v: want a conflict", err)
	}
	if _, ok := errors.AsType[*host.RejectError](err); !ok {
		t.Errorf("%v: want a module that is refused", err)
	}
}
