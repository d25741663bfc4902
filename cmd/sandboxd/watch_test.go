package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/internal/clitest"
)

// TestWatch: a file that changes, comes or goes is noticed; what is built or hidden
// is not.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	e := &env{dir: dir}
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", "package main")
	write("tests/a.table.yaml", "rows: []")
	before := e.stamp(".")
	write("main.wasm", "\x00asm")
	write(".git/HEAD", "x")
	if e.stamp(".") != before {
		t.Error("a built module or a hidden file counts as a change")
	}
	kept := []string{filepath.Join(dir, "data", "s.db"), filepath.Join(dir, "data", "audit.log")}
	before = e.stamp(".", kept...)
	write("data/s.db-wal", "x")
	write("data/audit.log", "x")
	if e.stamp(".", kept...) != before || e.stamp(".") == before {
		t.Error("what a run writes counts as a change, or always does not")
	}
	before = e.stamp(".")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if e.changed(ctx, func() bool { return e.stamp(".") != before }) {
			t.Error("a change was seen where there was none")
		}
	})
	for _, change := range []func(){
		func() { write("tests/a.table.yaml", "rows: [1]") },
		func() { write("tests/b.table.yaml", "") },
		func() { _ = os.Remove(filepath.Join(dir, "main.go")) },
	} {
		before := e.stamp(".")
		change()
		synctest.Test(t, func(t *testing.T) {
			if !e.changed(t.Context(), func() bool { return e.stamp(".") != before }) {
				t.Error("a change was not seen")
			}
		})
	}
}

// answers are what a run prints; each is followed by what its user does next.
type answers struct {
	all  []string
	next []func()
}

func (a *answers) Write(b []byte) (int, error) {
	a.all = append(a.all, string(b))
	if len(a.all) <= len(a.next) {
		a.next[len(a.all)-1]()
	}
	return len(b), nil
}

// TestRunWatch: a run is made again when the app changes, also if the change was a mistake.
func TestRunWatch(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replies := func(say string) { put("replies.yaml", "format: 1\nrules:\n  - reply: [{say: "+say+"}]\n") }
	put("agent.yaml", "format: 1\nname: echo\nmodel: {use: script, script: replies.yaml}\nagent: {name: echo}\nstore: {sessions: sqlite, path: kept/s.db, audit: kept/audit.log}\n")
	replies("one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &answers{next: []func(){func() { replies("[") }, cancel}} // no document
	errs := answers{next: []func(){func() { replies("three") }}}
	e := &env{args: []string{"run", "--watch", ".", "hello"}, stdin: typed("", false), stdout: stream{out, false}, stderr: stream{&errs, false},
		getenv: func(string) string { return "" }, dir: dir, cache: func() (string, error) { return clitest.Cache(), nil }, now: time.Now,
		user: func() (string, error) { return "ada", nil }}
	if code := run(ctx, e); code != exitDone || len(out.all) != 2 || out.all[0] != "one\n" || out.all[1] != "three\n" || len(errs.all) == 0 || !strings.Contains(errs.all[0], "replies.yaml") {
		t.Errorf("exit %d, answers %q, errors %q", code, out.all, errs.all)
	}
}
