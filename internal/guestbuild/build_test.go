package guestbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxd/sandboxd/sdk"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

const (
	weather  = "../guestlang/template/go/plugin"
	smallest = "../../sdk/guest/go/testdata/smallest"
)

func build(t *testing.T, dir, cacheDir string) Result {
	t.Helper()
	r, err := Build(t.Context(), dir, Options{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// standalone writes the smallest plugin as a module of its own, with a copy of the
// SDK beside it, as `plugin new` does.
func standalone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := sdk.Copy(filepath.Join(dir, "sdk")); err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(filepath.Join(smallest, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "main.go", string(main))
	write(t, dir, "go.mod", "module smallest\n\ngo 1.26.0\n\nrequire github.com/sandboxd/sandboxd v0.0.0\n\nreplace github.com/sandboxd/sandboxd => ./sdk\n")
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestWeather checks that the plugin that authors begin with builds to a module that keeps
// the contract: it exports what the host calls and imports nothing else than the
// host's own functions and WASI.
func TestWeather(t *testing.T) {
	r := build(t, weather, t.TempDir())
	if !strings.HasPrefix(r.GoVersion, "go1.") || r.Cached || r.Took <= 0 {
		t.Errorf("result says %s, cached %v, took %v", r.GoVersion, r.Cached, r.Took)
	}
	m, err := readModule(r.Wasm)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{abi.ExportCall, abi.ExportDescribe, abi.ExportInitialize, "memory"} {
		if !slices.Contains(m.exports, name) {
			t.Errorf("exports %v lack %s", m.exports, name)
		}
	}
	if got := slices.Sorted(maps.Keys(m.imports)); !slices.Equal(got, []string{abi.ImportHost, abi.ImportWASI}) {
		t.Errorf("imports from %v", got)
	}
	// The linker keeps every function of the host that the SDK can call, and the
	// contract has no other.
	want := slices.Sorted(slices.Values(abi.HostFunctions()))
	if got := slices.Sorted(slices.Values(m.imports[abi.ImportHost])); !slices.Equal(got, want) {
		t.Errorf("host functions %v, want %v", got, want)
	}
	for _, name := range m.imports[abi.ImportWASI] {
		if strings.HasPrefix(name, "path_") || strings.HasPrefix(name, "sock_") {
			t.Errorf("a plugin without files and sockets imports %s", name)
		}
	}
	t.Logf("weather: %d bytes", len(r.Wasm))
}

// TestReproducible builds one plugin in two directories, without a common cache,
// and wants the same bytes.
func TestReproducible(t *testing.T) {
	a, b := build(t, standalone(t), t.TempDir()), build(t, standalone(t), t.TempDir())
	if a.Cached || b.Cached || !bytes.Equal(a.Wasm, b.Wasm) {
		t.Errorf("cached %v and %v, %d and %d bytes, equal %v", a.Cached, b.Cached, len(a.Wasm), len(b.Wasm), bytes.Equal(a.Wasm, b.Wasm))
	}
	for _, path := range []string{os.TempDir(), "build_test"} {
		if bytes.Contains(a.Wasm, []byte(path)) {
			t.Errorf("the module holds the path %s", path)
		}
	}
	t.Logf("smallest: %d bytes", len(a.Wasm))
}

func TestCache(t *testing.T) {
	cacheDir, dir := t.TempDir(), standalone(t)
	first := build(t, dir, cacheDir)
	again := func(what string, wantCached bool) Result {
		t.Helper()
		r := build(t, dir, cacheDir)
		if r.Cached != wantCached {
			t.Errorf("%s: cached %v, want %v", what, r.Cached, wantCached)
		}
		return r
	}
	if r := again("unchanged", true); !bytes.Equal(r.Wasm, first.Wasm) || r.GoVersion != first.GoVersion {
		t.Error("what is cached is not what was built")
	}
	write(t, dir, "main_test.go", "package main\n")
	write(t, dir, "notes.txt", "x")
	write(t, dir, "other_linux.go", "package main\n\nvar x int\n")
	again("files that are not built", true)

	elsewhere := dir
	dir = standalone(t)
	again("another directory", true)
	dir = elsewhere

	write(t, dir, "more.go", "package main\n\nimport _ \"embed\"\n\n//go:embed notes.txt\nvar notes string\n\nfunc init() { println(notes) }\n")
	changed := again("a file more", false)
	if bytes.Equal(changed.Wasm, first.Wasm) {
		t.Error("a file more changes nothing")
	}
	write(t, dir, "notes.txt", "y")
	again("an embedded file", false)
	again("an embedded file, unchanged", true)
	file := filepath.Join(dir, "sdk", "sdk", "guest", "go", "errors.go")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Dir(file), "errors.go", string(data)+"\nfunc init() { println() }\n")
	again("the SDK", false)
	write(t, dir, "go.mod", "module other\n\ngo 1.26.0\n\nrequire github.com/sandboxd/sandboxd v0.0.0\n\nreplace github.com/sandboxd/sandboxd => ./sdk\n")
	again("go.mod", false)
}

func TestErrors(t *testing.T) {
	cacheDir := t.TempDir()
	module := func(source string) string {
		dir := t.TempDir()
		write(t, dir, "go.mod", "module x\n\ngo 1.26.0\n")
		if source != "" {
			write(t, dir, "main.go", source)
		}
		return dir
	}
	for _, c := range []struct{ name, dir, want string }{
		{"type error", module("package main\n\nfunc main() { undefined() }\n"), "./main.go:3:15: undefined: undefined"},
		{"syntax error", module("package main\n\nfunc main( {}\n"), "main.go:3:12: "},
		{"no source", module(""), "no Go files"},
		{"no program", module("package lib\n"), "package lib: want package main"},
		{"unknown import", module("package main\n\nimport _ \"no.example/such\"\n\nfunc main() {}\n"), "no.example/such"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Build(t.Context(), c.dir, Options{CacheDir: cacheDir})
			e, ok := errors.AsType[*Error](err)
			if !ok || r.Wasm != nil || !strings.Contains(e.Output, c.want) || !strings.HasPrefix(e.Error(), "guest "+c.dir+": ") {
				t.Fatalf("got %v, error %v, want %s", r, err, c.want)
			}
		})
	}
	var many strings.Builder
	many.WriteString("package main\n\nfunc main() {}\n")
	for i := range 10 {
		fmt.Fprintf(&many, "var v%d int = %q\n", i, strings.Repeat("x", 20_000))
	}
	_, err := Build(t.Context(), module(many.String()), Options{CacheDir: cacheDir})
	if e, ok := errors.AsType[*Error](err); !ok || len(e.Output) > maxOutput || len(e.Output) == 0 {
		t.Errorf("error of %d bytes, want at most %d", len(err.Error()), maxOutput)
	}
	if _, err := Build(t.Context(), filepath.Join(cacheDir, "none"), Options{CacheDir: cacheDir}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: error %v", err)
	}
	if entries, err := os.ReadDir(cacheDir); err != nil || len(entries) > 0 {
		t.Errorf("failed builds left %d entries, error %v", len(entries), err)
	}
}

func TestCancel(t *testing.T) {
	stop := errors.New("no time")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := Build(ctx, weather, Options{CacheDir: t.TempDir()}); !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}

// TestEnvironment checks that settings of the user's Go change nothing.
func TestEnvironment(t *testing.T) {
	plain := build(t, smallest, t.TempDir())
	t.Setenv("GOFLAGS", "-tags=none -ldflags=-w")
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOARCH", "mips")
	t.Setenv("GOWASM", "satconv")
	t.Setenv("GOEXPERIMENT", "nosuch")
	t.Setenv("CGO_ENABLED", "1")
	t.Setenv("GOWORK", "/none/go.work")
	if r := build(t, smallest, t.TempDir()); !bytes.Equal(r.Wasm, plain.Wasm) {
		t.Error("the environment changes the module")
	}
	got := environment([]string{"PATH=/bin", "HOME=/h", "GOCACHE=/c", "GOPROXY=off", "GOFLAGS=-x", "GODEBUG=a=1", "CGO_CFLAGS=-O", "PWD=/x", "GOENV=/e"})
	want := []string{"PATH=/bin", "HOME=/h", "GOCACHE=/c", "GOPROXY=off", "GOENV=off", "GOWORK=off", "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}
	if !slices.Equal(got, want) {
		t.Errorf("environment %v, want %v", got, want)
	}
}

func TestConcurrent(t *testing.T) {
	cacheDir := t.TempDir()
	var wg sync.WaitGroup
	results := make([]Result, 4)
	errs := make([]error, len(results))
	for i := range results {
		wg.Go(func() { results[i], errs[i] = Build(t.Context(), smallest, Options{CacheDir: cacheDir}) })
	}
	wg.Wait()
	for i, r := range results {
		if errs[i] != nil || !bytes.Equal(r.Wasm, results[0].Wasm) {
			t.Errorf("build %d: error %v, equal %v", i, errs[i], bytes.Equal(r.Wasm, results[0].Wasm))
		}
	}
	if entries, err := os.ReadDir(cacheDir); err != nil || len(entries) != 1 {
		t.Errorf("%d entries in the cache, error %v, want 1", len(entries), err)
	}
}
