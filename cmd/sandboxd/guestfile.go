package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A guestFile is a module that the user named by its file or by the folder of its
// source.
type guestFile struct {
	name  string // as named
	wasm  []byte
	guard string           // the first-party guard that was named; "" for any other module
	made  bool             // from source
	built guestlang.Result // how source was built
	took  time.Duration    // from the compiled source to a packed module
}

// openGuest reads the file of a module or of an Extism manifest, or builds and
// packs the source in a folder. As in agent.yaml, builtin/NAME is a first-party guard, whose
// module has others, too. manifestName is the file of a manifest to pack; it may
// be empty.
func (e *env) openGuest(ctx context.Context, m app.Modules, name, manifestName string) (*guestFile, error) {
	g := &guestFile{name: name}
	manifest, err := e.readManifest(manifestName)
	if err != nil {
		return nil, err
	}
	if guard := app.BuiltinName(name); guard != "" && manifest == nil {
		g.guard = guard
		return g, g.openBuiltin(ctx, m)
	}
	info, err := os.Stat(e.path(name))
	if err != nil {
		return nil, &fileError{name, err}
	}
	if !info.IsDir() {
		data, err := e.readFile(name)
		if err != nil {
			return nil, err
		}
		if g.wasm, err = m.Import(ctx, e.path(name), data, manifest); err != nil {
			return nil, importError(name, data, err)
		}
		return g, nil
	}
	g.made = true
	start := time.Now()
	wasm, built, err := m.Build(ctx, e.path(name), manifest)
	if err != nil {
		return nil, moduleError(name, built.Wasm, err)
	}
	g.wasm, g.built, g.took = wasm, built, time.Since(start)-built.Took
	return g, nil
}

// openBuiltin builds the first-party guards.
func (g *guestFile) openBuiltin(ctx context.Context, m app.Modules) error {
	wasm, _, err := m.Builtin(ctx)
	if err != nil {
		return &commandError{What: fmt.Sprintf("%s: %v", g.name, err), Code: abi.PolicyUnavailable, Hint: app.BuiltinNeeds, Exit: exitNotDone}
	}
	g.wasm = wasm
	bin, err := wasmbin.Decode(wasm)
	if err != nil {
		return err
	}
	manifest, err := abi.ParseManifest(bytes.Join(bin.Custom(abi.ManifestSection), nil)) // it has one
	if err != nil {
		return err
	}
	if e := app.HasBuiltin(g.name, manifest); e != nil {
		return e
	}
	return nil
}

// importError says why the file that the user named is no module.
func importError(name string, data []byte, err error) error {
	if e, ok := errors.AsType[*app.Error](err); ok {
		c := explain(e)
		c.What = name + ": " + c.What
		return c
	}
	if refused, ok := errors.AsType[*host.RejectError](err); ok && len(refused.Reasons) > 1 {
		return &commandError{What: name + ": " + app.AllReasons(refused), Code: refused.Reasons[0].Code, Hint: rejectCure(name, refused.Reasons), Exit: exitNotDone}
	}
	return moduleError(name, data, err)
}

// readManifest reads the file of a manifest; there is none for no name.
func (e *env) readManifest(name string) (*abi.Manifest, error) {
	if name == "" {
		return nil, nil
	}
	data, err := e.readFile(name)
	if err != nil {
		return nil, err
	}
	dir := ""
	if name != "-" {
		dir = filepath.Dir(e.path(name))
	}
	m, err := app.ParseManifest(data, dir)
	if err != nil {
		return nil, &commandError{What: fmt.Sprintf("%s: %v", name, err), Code: abi.ConfigInvalid, Exit: exitMisused}
	}
	return m, nil
}

// manifestFlag adds the flag that names a manifest.
func manifestFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "manifest", "", "take the manifest from `FILE`, in JSON or YAML")
	groupFlags(c, "input", "manifest")
}

// load checks and compiles the module.
func (g *guestFile) load(ctx context.Context, m app.Modules) (*host.Module, error) {
	module, err := m.Load(ctx, g.short(), g.wasm)
	if err != nil {
		return nil, moduleError(g.name, g.wasm, err)
	}
	return module, nil
}

// short is the name of the file or folder.
func (g *guestFile) short() string {
	if whole, err := filepath.Abs(g.name); err == nil {
		return strings.TrimSuffix(filepath.Base(whole), ".wasm")
	}
	return g.name
}

// names reports whether an argument names something in the file system.
func (e *env) names(arg string) bool {
	_, err := os.Stat(e.path(arg))
	return err == nil || !errors.Is(err, os.ErrNotExist)
}
