package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestlang"
)

// A buildReport is what plugin build made.
type buildReport struct {
	Format  int    `json:"format"`
	File    string `json:"file"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Bytes   int    `json:"bytes"`
	With    string `json:"toolchain"` // what compiled it, such as "go1.26.8"
	Cached  bool   `json:"cached"`    // the source was compiled before
	BuildUS int64  `json:"build_us"`
	CheckUS int64  `json:"check_us"` // describe, pack, check and compile
	Twice   bool   `json:"twice"`    // built in two folders, with the same bytes
}

func pluginBuildCommand(e *env) *cobra.Command {
	var out, manifest string
	var verify, asJSON bool
	c := &cobra.Command{
		Use: "build [DIR]", Short: "Build a plugin from its source",
		Long: "Build the source in DIR, the current folder if it is left out; write its manifest into\nthe module; and put it through the checks that an upload meets. " +
			"The file is NAME.wasm in\nDIR.\n\nA module in Go is asked for its manifest, in the sandbox without a grant. In other languages\ntool.c, say, is what is compiled, and the manifest stands in " +
			guestlang.PluginManifest + " beside it.",
		Example: "sandboxd plugin build\nsandboxd plugin build --verify --out weather.wasm ./weather",
		Args:    exactly("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return e.buildPlugin(c.Context(), dir, manifest, out, verify, asJSON, false)
		},
	}
	c.Flags().StringVar(&out, "out", "", "write the module to `FILE`")
	c.Flags().BoolVar(&verify, "verify", false, "build a second time in another folder and compare the bytes")
	jsonFlag(c, &asJSON)
	e.verboseFlag(c)
	manifestFlag(c, &manifest)
	groupFlags(c, "output", "out")
	return c
}

// buildPlugin builds source; with policy it must make a guard.
func (e *env) buildPlugin(ctx context.Context, dir, manifest, out string, verify, asJSON, policy bool) error {
	if info, err := os.Stat(e.path(dir)); err != nil {
		return &fileError{dir, err}
	} else if !info.IsDir() {
		return misuse("sandboxd plugin pack is for modules that were built elsewhere", "%s: not a folder", dir)
	}
	switch source, ok := guestlang.Find(e.path(dir)); {
	case !ok:
		return misuse("sandboxd plugin new and sandboxd policy new make such folders", "%s: no source of a guest", dir)
	case source.Policy && !policy:
		return misuse("sandboxd policy build "+dir, "%s: a policy in %s", dir, source.Language.Title)
	}
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	g, err := e.openGuest(ctx, modules, dir, manifest)
	if err != nil {
		return err
	}
	start := time.Now()
	module, err := g.load(ctx, modules)
	if err != nil {
		return err
	}
	if policy && len(module.Manifest().Guards) == 0 {
		return misuse("sandboxd plugin build builds plugins", "%s: plugin %s has no guard", dir, module.Manifest().Name)
	}
	for _, as := range declared(module.Manifest()) {
		if v := judge(ctx, module, as); !v.Accepted {
			return refusal(dir, v)
		}
	}
	if verify {
		if err := e.buildAgain(ctx, modules, dir, manifest, g.wasm); err != nil {
			return err
		}
	}
	if out == "" {
		out = filepath.Join(dir, module.Manifest().Name+".wasm")
	}
	if err := e.writeFile(out, g.wasm); err != nil {
		return err
	}
	r := buildReport{Format: 1, File: out, Name: module.Manifest().Name, Version: module.Manifest().Version, Digest: module.Digest().String(),
		Bytes: len(g.wasm), With: g.built.Toolchain, Cached: g.built.Cached, BuildUS: g.built.Took.Microseconds(),
		CheckUS: (g.took + time.Since(start)).Microseconds(), Twice: verify}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(r)
	}
	build := "build " + took(g.built.Took)
	if r.Cached {
		build = "built before"
	}
	line := fmt.Sprintf("%s  %s  %s  %s  %s  check %s", foreign(out, true), shortDigest(r.Digest), size(int64(r.Bytes)), foreign(r.With, true), build, took(g.took+time.Since(start)))
	if verify {
		line += "  same bytes twice"
	}
	fmt.Fprintln(e.stdout, line)
	return nil
}

// buildAgain builds a copy of the source in a folder of its own, with nothing
// remembered, and compares what comes out.
func (e *env) buildAgain(ctx context.Context, m app.Modules, dir, manifestName string, want []byte) error {
	manifest, err := e.readManifest(manifestName)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "sandboxd-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	root, below := e.path(dir), "."
	if s, _ := guestlang.Find(root); s.Language != nil && s.Language.Name == "go" {
		root, below = moduleRoot(root)
	}
	if err := copySource(filepath.Join(temp, "source"), root); err != nil {
		return &fileError{dir, err}
	}
	m.Builds = filepath.Join(temp, "builds")
	wasm, built, err := m.Build(ctx, filepath.Join(temp, "source", below), manifest)
	if err != nil {
		return moduleError(dir+" copied to another folder", built.Wasm, err)
	}
	if !bytes.Equal(wasm, want) {
		a, b := sha256.Sum256(want), sha256.Sum256(wasm)
		return &commandError{What: fmt.Sprintf("%s: not the same twice: sha256:%s, then sha256:%s in another folder", dir, hex.EncodeToString(a[:6]), hex.EncodeToString(b[:6])),
			Hint: "look for what depends on the place, such as an embedded path", Exit: exitNotDone}
	}
	return nil
}

// moduleRoot returns the folder of the Go module that dir is in, and where dir
// is below it.
func moduleRoot(dir string) (root, below string) {
	for root = dir; ; root = filepath.Dir(root) {
		if info, err := os.Stat(filepath.Join(root, "go.mod")); err == nil && info.Mode().IsRegular() {
			if rel, err := filepath.Rel(root, dir); err == nil {
				return root, rel
			}
		}
		if root == filepath.Dir(root) {
			return dir, "."
		}
	}
}

// copySource copies the files of a folder of source, without what cannot be source:
// hidden folders, links, built modules.
func copySource(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && d.Name()[0] == '.':
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o777)
		case !d.Type().IsRegular() || filepath.Ext(path) == ".wasm":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o666)
	})
}
