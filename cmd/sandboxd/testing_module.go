package main

import (
	"bytes"
	"context"
	"path/filepath"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/internal/guestlang"
)

// A tested is a module that tests name.
type tested struct {
	file   string // as shown
	guest  *guestFile
	module *host.Module
	source string // the folder that it was built from; empty if it was not

	due    bool                // what its tests reach is to be told
	cover  *authortest.Cover   // nil without --cover and --mutate, or if nothing is due; module is its then
	opened *authortest.Cover   // one of the same module, of this round or of one before
	lines  string              // stamp of the source whose lines it knows
	tables []*authortest.Table // that were run
	short  []string            // what coverage and changed guards lack
	untold bool                // what its tests reach, or which changes they notice, is still to be told
}

// guest returns the module that a file of tests names, relative to its own folder:
// a folder of source, or a file. A file beside the source that makes it is made
// anew: what is tested is never older than what is written. The empty name is the
// folder above the one of the tests.
func (r *testRun) guest(ctx context.Context, file, name string) (*tested, error) {
	path := r.modulePath(file, name)
	if t := r.guests[path]; t != nil {
		return t, nil
	}
	t, err := r.open(ctx, path)
	if err != nil {
		return nil, err
	}
	old := r.past.guests[path]
	r.guests[path], r.past.guests[path] = t, t
	r.order = append(r.order, t)
	if old != nil && old.module.Digest() == t.module.Digest() {
		return t, nil
	}
	digest := t.module.Digest().String()
	r.line(map[string]any{"kind": "module", "file": t.file, "digest": digest, "source": t.source})
	r.say("%s %s", foreign(t.file, true), shortDigest(digest))
	if t.source != "" {
		r.say(" (built from %s)", foreign(t.source, true))
	}
	r.say("\n")
	return t, nil
}

// modulePath returns the path of the module that a file of tests names.
func (r *testRun) modulePath(file, name string) string {
	switch {
	case name == "":
		path := filepath.Dir(filepath.Dir(r.path(file)))
		if rel, err := filepath.Rel(r.dir, path); err == nil {
			return rel
		}
		return path
	case filepath.IsAbs(name):
		return name
	}
	return filepath.Join(filepath.Dir(file), filepath.FromSlash(name))
}

func (r *testRun) open(ctx context.Context, path string) (*tested, error) {
	dir := filepath.Dir(path)
	if filepath.Ext(path) == ".wasm" && r.isSource(dir) {
		t, err := r.openAs(ctx, dir)
		if err != nil || filepath.Base(path) == filepath.Base(t.file) {
			return t, err
		}
	}
	return r.openAs(ctx, path)
}

func (r *testRun) openAs(ctx context.Context, path string) (*tested, error) {
	r.watch(path)
	g, err := r.openGuest(ctx, r.modules, path, "")
	if err != nil {
		return nil, err
	}
	t := &tested{file: path, guest: g}
	if old := r.past.guests[path]; old != nil && bytes.Equal(old.guest.wasm, g.wasm) {
		t.module, t.short, t.untold, t.opened, t.lines = old.module, old.short, old.untold, old.opened, old.lines
	} else if err := r.load(ctx, t); err != nil {
		return nil, err
	}
	if g.made {
		t.source, t.file = path, filepath.Join(path, t.module.Manifest().Name+".wasm")
	}
	return t, nil
}

// load compiles a module that is tested, so that its tests are watched if they are to be.
func (r *testRun) load(ctx context.Context, t *tested) (err error) {
	if !r.covers() {
		t.module, err = t.guest.load(ctx, r.modules)
		return err
	}
	if t.opened, err = r.openCover(ctx, r.engine, t.guest); err == nil {
		t.cover, t.module = t.opened, t.opened.Module()
	}
	return err
}

// covers reports whether what tests reach is watched.
func (r *testRun) covers() bool { return r.flags.cover != "" || r.flags.mutate != "" }

// isSource reports whether a folder holds source that plugin build or policy build
// takes.
func (e *env) isSource(dir string) bool {
	_, ok := guestlang.Find(e.path(dir))
	return ok
}
