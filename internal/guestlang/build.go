package guestlang

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// A Result is a compiled guest.
type Result struct {
	Wasm      []byte        // without a manifest section; the caller's
	Toolchain string        // what compiled it, such as "go1.26.8" or "clang 14.0.6"
	Cached    bool          // nothing was compiled
	Took      time.Duration // the whole of Build
}

// A MissingError reports that the toolchain of a language is not on this machine.
type MissingError struct {
	Language string // for people
	Tool     string // what was looked for
	Install  string // how to get it
}

// Error names the tool.
func (e *MissingError) Error() string { return fmt.Sprintf("%s needs %s", e.Language, e.Tool) }

// Build compiles the source of a guest, without a network. Source that does not build
// is a [*guestbuild.Error] or a [*regobuild.Error], a toolchain that is not there a
// [*MissingError]. cacheDir is where modules are kept of languages that compile
// slowly; empty: the default of guestbuild. Build is safe for concurrent use.
func Build(ctx context.Context, s Source, cacheDir string) (Result, error) {
	if err := s.Language.Missing(s.Dir); err != nil {
		return Result{}, err
	}
	return s.Language.build(ctx, s, cacheDir)
}

// Missing says what has to be installed before the source in dir can be built: a
// [*MissingError], or nil if nothing. Nothing is asked about Go and Rego, whose
// compilers say so themselves.
func (l *Language) Missing(dir string) error {
	if l.find == nil {
		return nil
	}
	return l.find(dir)
}

// A recipe is a compiler of one file and how it is called. The flags make the module
// the same wherever it is built with one version of the compiler.
type recipe struct {
	version []string // the command that says which it is
	name    string   // of the compiler, before its version
	compile []string // the command up to the files: the entry and, after it, out
	out     string   // the flag before the file to write
}

// build compiles the entry of a source.
func (r recipe) build(ctx context.Context, s Source) (Result, error) {
	start := time.Now()
	about, err := run(ctx, s.Dir, r.version)
	if err != nil {
		return Result{}, err
	}
	temp, err := os.MkdirTemp("", "guestlang")
	if err != nil {
		return Result{}, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "guest.wasm")
	if _, err := run(ctx, s.Dir, slices.Concat(r.compile, []string{s.Entry, r.out, out})); err != nil {
		return Result{}, err
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		return Result{}, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	return Result{Wasm: wasm, Toolchain: r.name + " " + versionIn(string(about)), Took: time.Since(start)}, nil
}

// versionIn returns the first word of a text that begins with a digit, such as
// "14.0.6" of "Debian clang version 14.0.6".
func versionIn(text string) string {
	for _, word := range strings.Fields(text) {
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return "of unknown version"
}

// maxOutput bounds the text of an error.
const maxOutput = 16 << 10

// run runs a compiler in dir and returns what it prints.
func run(ctx context.Context, dir string, command []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, environment(os.Environ())
	cmd.WaitDelay = time.Second // for a compiler that outlives its driver
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("guest %s: %s: %w", dir, filepath.Base(command[0]), context.Cause(ctx))
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		said := bytes.TrimSpace(append(stderr.Bytes(), stdout.Bytes()...))
		return nil, &guestbuild.Error{Dir: dir, Output: string(said[:min(len(said), maxOutput)])}
	}
	return nil, fmt.Errorf("guest %s: %w", dir, err)
}

// environment returns what compilers may see of env: where things are, and nothing
// that changes what is built.
func environment(env []string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains([]string{"PATH", "HOME", "TMPDIR", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"}, name) {
			out = append(out, e)
		}
	}
	return append(out, "LC_ALL=C")
}

// findC says what is missing to build C.
func findC(string) error {
	for _, tool := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(tool); err != nil {
			return &MissingError{"C", tool + ", which is not on PATH", "Debian: apt-get install clang lld"}
		}
	}
	return nil
}

// buildC compiles with clang as it is: freestanding, without a libc. The stack lies
// first in memory, so a guest that overruns it traps and writes over nothing.
func buildC(ctx context.Context, s Source, _ string) (Result, error) {
	return recipe{name: "clang", version: []string{"clang", "--version"}, out: "-o", compile: []string{"clang", "--target=wasm32", "-std=c11", "-Oz",
		"-ffreestanding", "-nostdlib", "-mbulk-memory", "-Werror=return-type", "-Werror=implicit-function-declaration", "-Werror=incompatible-pointer-types",
		"-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--stack-first", "-Wl,-z,stack-size=65536"}}.build(ctx, s)
}
