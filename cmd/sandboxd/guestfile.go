package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// A guestFile is a module that the user named by its file or by the folder of its
// source.
type guestFile struct {
	name  string // as named
	wasm  []byte
	built *guestbuild.Result // how the source was built; nil for a file
	took  time.Duration      // from the compiled source to a packed module
}

// openGuest reads a module's file, or builds and packs the plugin in a folder.
func (e *env) openGuest(ctx context.Context, m app.Modules, name string) (*guestFile, error) {
	g := &guestFile{name: name}
	info, err := os.Stat(e.path(name))
	if err != nil {
		return nil, &fileError{name, err}
	}
	if !info.IsDir() {
		g.wasm, err = e.readFile(name)
		return g, err
	}
	start := time.Now()
	wasm, built, err := m.Build(ctx, e.path(name))
	if err != nil {
		return nil, moduleError(name, built.Wasm, err)
	}
	g.wasm, g.built, g.took = wasm, &built, time.Since(start)-built.Took
	return g, nil
}

// load checks and compiles the module.
func (g *guestFile) load(ctx context.Context, engine *host.Engine) (*host.Module, error) {
	module, err := engine.Load(ctx, g.wasm)
	if err != nil {
		return nil, moduleError(g.name, g.wasm, err)
	}
	return module, nil
}

// names reports whether an argument names something in the file system.
func (e *env) names(arg string) bool {
	_, err := os.Stat(e.path(arg))
	return err == nil || !errors.Is(err, os.ErrNotExist)
}
