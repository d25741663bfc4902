package guestlang

import (
	"bytes"
	"cmp"
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
	Named     []byte        // of a policy in Rego: the same with the names that OPA gives functions; else nil
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
	if s.Language.recipe != nil {
		return s.Language.recipe(s.Dir).build(ctx, s)
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

// A recipe is how a compiler makes a module of one file. The flags make it the same
// wherever it is built with one version of the compiler.
type recipe struct {
	name    string   // of the compiler, before its version
	version []string // the command that says which it is
	// steps are commands, run one after the other. ENTRY stands for the source, OUT for
	// the module, OBJECT for a file between two steps.
	steps [][]string
	// listed are the steps that make the same code, with names of functions and lines.
	listed [][]string
	lines  func(wasm, sourceMap []byte, own owner) ([]guestbuild.Line, error)
}

// build compiles the entry of a source.
func (r recipe) build(ctx context.Context, s Source) (Result, error) {
	start := time.Now()
	about, err := run(ctx, s.Dir, r.version)
	if err != nil {
		return Result{}, err
	}
	wasm, _, err := compile(ctx, s, r.steps)
	if err != nil {
		return Result{}, err
	}
	return Result{Wasm: wasm, Toolchain: r.name + " " + versionIn(string(about)), Took: time.Since(start)}, nil
}

// compile runs the steps of a recipe and returns the module, and the map of its source
// if there is one.
func compile(ctx context.Context, s Source, steps [][]string) (wasm, sourceMap []byte, err error) {
	temp, err := os.MkdirTemp("", "guestlang")
	if err != nil {
		return nil, nil, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	defer os.RemoveAll(temp)
	files := map[string]string{"ENTRY": s.Entry, "OUT": filepath.Join(temp, "guest.wasm"), "OBJECT": filepath.Join(temp, "guest.o")}
	for _, step := range steps {
		step = slices.Clone(step)
		for i, word := range step {
			step[i] = cmp.Or(files[word], word)
		}
		if _, err := run(ctx, s.Dir, step); err != nil {
			return nil, nil, err
		}
	}
	if wasm, err = os.ReadFile(files["OUT"]); err != nil {
		return nil, nil, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	if sourceMap, err = os.ReadFile(files["OUT"] + ".map"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	return wasm, sourceMap, nil
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

// recipeC compiles with clang as it is: freestanding, without a libc. The stack lies
// first in memory, so a guest that overruns it traps and writes over nothing. The linker
// is called apart, because clang would hand what it made to any wasm-opt on PATH.
func recipeC(string) recipe {
	compile := []string{"clang", "--target=wasm32", "-std=c11", "-O2", "-ffreestanding", "-mbulk-memory", "-Werror=return-type", "-Werror=implicit-function-declaration",
		"-Werror=incompatible-pointer-types", "-c", "-o", "OBJECT", "ENTRY"}
	link := []string{"wasm-ld", "--no-entry", "--stack-first", "-z", "stack-size=65536", "-o", "OUT", "OBJECT"}
	return recipe{name: "clang", version: []string{"clang", "--version"}, steps: [][]string{compile, append(slices.Clone(link), "--strip-all")},
		listed: [][]string{append(slices.Clone(compile), "-gline-tables-only", "-gdwarf-4"), link}, lines: dwarfLines}
}

// ascBelow is where npm puts the compiler.
const ascBelow = "node_modules/assemblyscript/bin/asc.js"

// asc returns the command that compiles AssemblyScript in dir: what npm installed there
// or in a folder above, else asc from PATH; nil if neither is there.
func asc(dir string) []string {
	dir, err := filepath.Abs(dir)
	for up := dir; err == nil; up = filepath.Dir(up) {
		name := filepath.Join(up, filepath.FromSlash(ascBelow))
		if _, missing := exec.LookPath("node"); missing == nil && regular(name) {
			return []string{"node", name}
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	if _, err := exec.LookPath("asc"); err == nil {
		return []string{"asc"}
	}
	return nil
}

func findAS(dir string) error {
	if asc(dir) == nil {
		return &MissingError{"AssemblyScript", "asc, which is neither in node_modules nor on PATH", "npm ci in the folder; Debian has npm: apt-get install npm"}
	}
	return nil
}

// recipeAS compiles with the runtime that frees nothing, as a call is short. A failed
// assertion, or an index that is out of bounds, traps.
func recipeAS(dir string) recipe {
	command := asc(dir)
	compile := slices.Concat(command, []string{"ENTRY", "--outFile", "OUT", "-O3", "--shrinkLevel", "1", "--runtime", "stub", "--use", "abort="})
	return recipe{name: "asc", version: slices.Concat(command, []string{"--version"}), steps: [][]string{compile},
		listed: [][]string{slices.Concat(compile, []string{"--debug", "--sourceMap"})}, lines: mapLines}
}

// rustTarget has no system below it, so a guest imports what it calls and nothing else.
const rustTarget = "wasm32-unknown-unknown"

// rustc returns the first rustc on PATH that has the library of the target: that of
// Debian, as a rule, and not one of rustup that comes before it. "" if there is none.
func rustc() string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		name := filepath.Join(dir, "rustc")
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			continue
		}
		cmd := exec.Command(name, "--print", "target-libdir", "--target", rustTarget)
		cmd.Env = environment(os.Environ())
		out, err := cmd.Output()
		if libs := string(bytes.TrimSpace(out)); err == nil && holds(libs, "libstd-*.rlib") {
			return name
		}
	}
	return ""
}

func findRust(string) error {
	if rustc() == "" {
		return &MissingError{"Rust", "a rustc on PATH that has the target " + rustTarget, "Debian: apt-get install rustc libstd-rust-dev-wasm32"}
	}
	return nil
}

// recipeRust compiles with rustc as it is: std, no crates, a panic traps.
func recipeRust(string) recipe {
	name := rustc()
	compile := []string{name, "--target", rustTarget, "--crate-type", "cdylib", "--edition", "2021",
		"-C", "opt-level=2", "-C", "lto=fat", "-C", "panic=abort", "-C", "link-arg=-zstack-size=65536", "-o", "OUT", "ENTRY"}
	return recipe{name: "rustc", version: []string{name, "--version"}, steps: [][]string{slices.Concat(compile, []string{"-C", "strip=symbols"})},
		listed: [][]string{slices.Concat(compile, []string{"-C", "debuginfo=1"})}, lines: dwarfLines}
}
