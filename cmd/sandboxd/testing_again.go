package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandboxd/sandboxd/internal/authortest"
)

// A past is what --watch remembers of the rounds before.
type past struct {
	seen   map[string]string  // stamps of what tests depend on, by path, as they were when the round began
	files  map[string]*kept   // what files of tests said last, by their names
	ended  map[string]bool    // how tests ended last, by file, kind and name
	guests map[string]*tested // as they were opened last, by path

	passed, failed int // in the last round; passed is below zero if that could not run what it was to run
}

func newPast() past {
	return past{seen: map[string]string{}, files: map[string]*kept{}, ended: map[string]bool{}, guests: map[string]*tested{}, passed: -1}
}

// A kept is what a file of tests said when it was run, and what that depended on.
type kept struct {
	on      string
	results []keptResult
}

// A keptResult is what is said of one test. It is a line of --json.
type keptResult struct {
	Kind string `json:"kind"` // such as "row"
	authortest.Result
}

// A testFile is a file of tests in a round.
type testFile struct {
	name   string
	data   []byte
	module string   // as it names it
	reads  []string // files that it names, relative to its folder
	writes []string // snapshots, likewise

	guest *tested
	on    string // a digest of what its results depend on
	due   bool   // it has to be run: that is not as it was
	first bool   // it was not run before
}

// watch has a file, or all that is below a folder, be looked at for changes.
func (r *testRun) watch(name string) {
	path := r.path(name)
	if _, ok := r.past.seen[path]; !ok && r.flags.watch {
		r.past.seen[path] = r.stamp(path)
	}
}

// moved reports whether something that is watched is not as it was when the round began.
func (r *testRun) moved() bool {
	for path, was := range r.past.seen {
		if r.stamp(path) != was {
			return true
		}
	}
	return false
}

// look begins a round: what changes from now on makes another.
func (r *testRun) look() {
	for path := range r.past.seen {
		r.past.seen[path] = r.stamp(path)
	}
}

// decide opens the module of a file of tests and finds out whether the file has to be
// run: if it is not as it was when it was run, or its module or another file is not. What the
// tests of one module reach is told of all of them together: if one of all is due, so are the others.
func (r *testRun) decide(ctx context.Context, f *testFile, all []*testFile) error {
	if f.guest != nil {
		return nil // with another of the same module
	}
	together, lines := []*testFile{f}, ""
	if r.covers() {
		var tests []string
		for _, o := range all {
			tests = append(tests, r.path(o.name))
		}
		lines = r.stamp(r.modulePath(f.name, f.module), tests...)
		together = slices.DeleteFunc(slices.Clone(all), func(o *testFile) bool {
			return r.modulePath(o.name, o.module) != r.modulePath(f.name, f.module)
		})
	}
	g, err := r.guest(ctx, f.name, f.module)
	if err != nil {
		return err
	}
	due := g.untold
	for _, o := range together {
		for _, name := range slices.Concat(o.reads, o.writes) {
			r.watch(r.beside(o.name, name))
		}
		o.guest = g
		o.on = r.dependsOn(o)
		before := r.past.files[o.name]
		o.first = before == nil
		due = due || o.first || before.on != o.on
	}
	for _, o := range together {
		o.due = due
	}
	if !due || !r.covers() {
		return nil
	}
	switch {
	case g.cover != nil: // opened just now
	case g.lines == lines:
		g.cover = g.opened.Again()
	default:
		if err := r.load(ctx, g); err != nil {
			return err
		}
	}
	g.due, g.untold, g.short, g.lines = true, true, nil, lines
	return nil
}

// again runs a file of tests, one of all, if it is due, or else counts what it said last.
func (r *testRun) again(ctx context.Context, f *testFile, all []*testFile, run func() error) error {
	if err := r.decide(ctx, f, all); err != nil {
		return err
	}
	if !f.due {
		for _, said := range r.past.files[f.name].results {
			r.count(said)
		}
		return nil
	}
	r.ran, r.running = true, &kept{on: f.on}
	if err := run(); err != nil {
		return err
	}
	if len(f.writes) > 0 {
		r.running.on = r.dependsOn(f) // on what it wrote itself, too
	}
	r.past.files[f.name] = r.running
	return nil
}

// dependsOn returns a digest of what the results of a file depend on.
func (r *testRun) dependsOn(f *testFile) string {
	h := sha256.New()
	fmt.Fprintf(h, "%x %s\n", sha256.Sum256(f.data), f.guest.module.Digest())
	for _, name := range slices.Concat(f.reads, f.writes) {
		fmt.Fprintf(h, "%q %s\n", name, digestOf(r.beside(f.name, name)))
	}
	return string(h.Sum(nil))
}

// beside returns where a file is that a file of tests names.
func (r *testRun) beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.path(file)), filepath.FromSlash(name))
}

// digestOf returns a digest of a file, empty if it cannot be read.
func digestOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// nothingNew reports whether a round that ended with err has nothing to tell: nothing of
// what changed is something that a test depends on.
func (r *testRun) nothingNew(err error) bool {
	p := &r.past
	same := err == nil && !r.ran && p.passed == r.passed && p.failed == r.failed
	if p.passed, p.failed = r.passed, r.failed; err != nil {
		p.passed = -1
	}
	return same
}
