package guestlang

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/regobuild"
	"github.com/sandboxd/sandboxd/sdk"
)

// A Language is one that guests are written in. Only this package makes one.
type Language struct {
	Name    string // as after --lang, such as "c"
	Title   string // for people, such as "C"
	Plugins bool   // plugins can be written in it; policies always can
	First   string // a command in a new folder, before anything is built; may be empty
	SDK     string // the file of the SDK that lies beside a guest; a folder in Go

	// suffix is the end of the file that a guest is built from: of tool.c in a plugin,
	// of policy.c in a policy. Empty in Go and Rego, where it is any file of the
	// language.
	suffix string
	copy   func(path, name string) error
	find   func(dir string) error                                               // what is missing to build
	build  func(ctx context.Context, s Source, cacheDir string) (Result, error) // nil: as the recipe says
	recipe func(dir string) recipe
}

// Offline reports whether a new folder builds without a network, given the compiler.
func (l *Language) Offline() bool { return l.Plugins && l.First == "" }

// The files that hold the manifest of a plugin and of a policy, beside their source.
// A guest in Go says itself what it is.
const (
	PluginManifest = "plugin.yaml"
	PolicyManifest = "policy.yaml"
)

// languages are all of them, in the order in which people read of them.
var languages = []*Language{
	{Name: "go", Title: "Go", Plugins: true, SDK: "sdk", copy: copyGo, build: buildGo},
	{Name: "c", Title: "C", Plugins: true, suffix: ".c", SDK: "sandboxd.h", copy: one(sdk.C), find: findC, recipe: recipeC},
	{Name: "rust", Title: "Rust", Plugins: true, suffix: ".rs", SDK: "sandboxd.rs", copy: one(sdk.Rust), find: findRust, recipe: recipeRust},
	{Name: "assemblyscript", Title: "AssemblyScript", Plugins: true, First: "npm ci", suffix: ".ts", SDK: "sandboxd.ts", copy: one(sdk.AssemblyScript), find: findAS, recipe: recipeAS},
	{Name: "rego", Title: "Rego", SDK: "sandboxd.rego", copy: one(sdk.Rego), build: buildRego},
}

// Named returns the language of that name, nil if there is none.
func Named(name string) *Language {
	for _, l := range languages {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// Known returns the names of the languages in which policies, or plugins, can be written.
func Known(policy bool) []string {
	var names []string
	for _, l := range languages {
		if policy || l.Plugins {
			names = append(names, l.Name)
		}
	}
	return names
}

// Names returns the same names as a text: "go, c or rego".
func Names(policy bool) string {
	names := Known(policy)
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// A Source is a folder with the source of a guest.
type Source struct {
	Dir      string
	Language *Language
	Policy   bool   // it can be nothing but a policy
	Manifest string // the file in Dir that holds the manifest; empty: the module is asked
	Entry    string // the file in Dir that is compiled; empty if there is more than one
}

// Find says what a folder holds the source of; false if of nothing. In languages other
// than Go and Rego that is decided by one file: tool.c, say, with the manifest in
// plugin.yaml, or policy.c, with it in policy.yaml.
func Find(dir string) (Source, bool) {
	for _, l := range languages {
		if l.suffix == "" {
			continue
		}
		for _, s := range []Source{{Entry: "tool" + l.suffix, Manifest: PluginManifest}, {Entry: "policy" + l.suffix, Manifest: PolicyManifest, Policy: true}} {
			if regular(filepath.Join(dir, s.Entry)) {
				s.Dir, s.Language = dir, l
				return s, true
			}
		}
	}
	if holds(dir, "*.rego") && regular(filepath.Join(dir, PolicyManifest)) {
		return Source{Dir: dir, Language: Named("rego"), Manifest: PolicyManifest, Policy: true}, true
	}
	if holds(dir, "*.go") {
		return Source{Dir: dir, Language: Named("go")}, true
	}
	return Source{}, false
}

func regular(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// holds reports whether a folder has a file whose name matches a pattern.
func holds(dir, pattern string) bool {
	files, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(files, func(f os.DirEntry) bool {
		ok, _ := filepath.Match(pattern, f.Name())
		return ok
	})
}

func buildGo(ctx context.Context, s Source, cacheDir string) (Result, error) {
	r, err := guestbuild.Build(ctx, s.Dir, guestbuild.Options{CacheDir: cacheDir})
	return Result{Wasm: r.Wasm, Toolchain: r.GoVersion, Cached: r.Cached, Took: r.Took}, err
}

func buildRego(ctx context.Context, s Source, _ string) (Result, error) {
	r, err := regobuild.Build(ctx, s.Dir)
	return Result{Wasm: r.Wasm, Named: r.Named, Toolchain: "opa " + r.OPA, Took: r.Took}, err
}
