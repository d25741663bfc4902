// Package guestbuild compiles the source of a guest written in Go to WebAssembly,
// with the plain Go toolchain, and remembers what it compiled. The module has no
// manifest yet: packing asks the module itself for that, which needs a host.
package guestbuild

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
)

// Options say how to build. The zero value is usable.
type Options struct {
	CacheDir string // where modules are kept; default "sandboxd/guestbuild" below [os.UserCacheDir]
}

// A Result is a compiled guest.
type Result struct {
	Wasm      []byte        // without a manifest section; the caller's
	GoVersion string        // of the toolchain, such as "go1.26.8"
	Cached    bool          // nothing was compiled
	Took      time.Duration // the whole of Build
}

// An Error is what the toolchain had to say about a guest that it could not build.
type Error struct {
	Dir    string // as given to Build
	Output string // the toolchain's own text, at most 16 KiB
}

// Error names the directory and repeats the toolchain's text.
func (e *Error) Error() string { return fmt.Sprintf("guest %s: %s", e.Dir, e.Output) }

// maxOutput bounds the text of an Error.
const maxOutput = 16 << 10

// recipe is how a guest is built. The flags make the module the same wherever and
// whenever it is built with one version of Go.
var recipe = []string{"build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -buildid="}

// Build compiles the main package in dir. It may be part of any Go module; all
// that it imports must be at hand, in that module, beside it or in Go's module
// cache. Source that does not build is an *[Error].
//
// The sources are read for every call, and only what no earlier call has compiled
// is compiled. Build is safe for concurrent use, by several processes too.
func Build(ctx context.Context, dir string, o Options) (Result, error) {
	start := time.Now()
	c, err := OpenCache(o.CacheDir)
	if err != nil {
		return Result{}, err
	}
	key, version, err := fingerprint(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	if wasm, ok := c.Get(key); ok {
		return Result{Wasm: wasm, GoVersion: version, Cached: true, Took: time.Since(start)}, nil
	}
	wasm, err := compile(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	// A file saved while the compiler ran must not be remembered as what was there
	// before.
	again, _, err := fingerprint(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	if again == key {
		if err := c.Put(key, wasm); err != nil {
			return Result{}, err
		}
	}
	return Result{Wasm: wasm, GoVersion: version, Took: time.Since(start)}, nil
}

func compile(ctx context.Context, dir string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "guestbuild")
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", dir, err)
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "guest.wasm")
	if _, err := runGo(ctx, dir, slices.Concat(recipe, []string{"-o", out, "."})...); err != nil {
		return nil, err
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", dir, err)
	}
	return wasm, nil
}

// runGo runs the go command in dir and returns what it prints.
func runGo(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = environment(os.Environ())
	cmd.WaitDelay = time.Second // for a compiler that outlives the go command
	var stdout bytes.Buffer
	stderr := clipped{most: maxOutput}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("guest %s: go %s: %w", dir, args[0], context.Cause(ctx))
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, &Error{Dir: dir, Output: string(bytes.TrimSpace(stderr.kept))}
	}
	return nil, fmt.Errorf("guest %s: go %s: %w", dir, args[0], err)
}

// environment returns env as the toolchain may see it: what says where Go keeps
// and fetches things, and nothing that changes what is built.
func environment(env []string) []string {
	where := []string{"GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOTMPDIR", "GOTOOLCHAIN", "GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB",
		"GOPRIVATE", "GOINSECURE", "GOAUTH", "GOVCS"}
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if (strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "CGO_")) && !slices.Contains(where, name) || name == "PWD" {
			continue
		}
		out = append(out, e)
	}
	return append(out, "GOENV=off", "GOWORK=off", "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
}

// clipped keeps the beginning of what is written to it.
type clipped struct {
	kept []byte
	most int
}

func (c *clipped) Write(p []byte) (int, error) {
	c.kept = append(c.kept, p[:min(c.most-len(c.kept), len(p))]...)
	return len(p), nil
}
