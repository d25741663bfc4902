package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
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
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if e.changed(ctx, ".", before) {
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
			if !e.changed(t.Context(), ".", before) {
				t.Error("a change was not seen")
			}
		})
	}
}
