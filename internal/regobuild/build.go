// Package regobuild makes guards of policies in Rego: OPA compiles them to
// WebAssembly, and what it gives is linked to an adapter that speaks the contract of
// guards. The module has no manifest yet, as with package guestbuild.
package regobuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// OPA is the version of OPA that builds where none is on PATH.
const OPA = "v1.22.4"

// A Result is a linked guest.
type Result struct {
	Wasm  []byte        // without a manifest section; the caller's
	Named []byte        // the same with the names that OPA gives functions, which are those of rules
	OPA   string        // the version that compiled, such as "1.22.4"
	Took  time.Duration // the whole of Build
}

// An Error is what OPA had to say about a policy that it could not compile.
type Error struct {
	Dir    string // as given to Build
	Output string // OPA's own text, at most 16 KiB
}

// Error names the folder and repeats OPA's text.
func (e *Error) Error() string { return fmt.Sprintf("policy %s: %s", e.Dir, e.Output) }

// maxOutput bounds the text of an Error, and maxData the data of a policy.
const (
	maxOutput = 16 << 10
	maxData   = 4 << 20
)

// Build compiles the policy in dir: its files *.rego, those that end in _test.rego
// excepted, and data.json or data.yaml. It runs opa from PATH, or else Go, which
// fetches and builds the version [OPA] the first time. A policy that does not
// compile is an [*Error], one that calls what a guard may not a [*BuiltinError].
// Build is safe for concurrent use.
func Build(ctx context.Context, dir string) (Result, error) {
	start := time.Now()
	bundle, err := compile(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	about, err := runOPA(ctx, dir, "version")
	if err != nil {
		return Result{}, err
	}
	policy, data, err := unpack(bundle)
	if err != nil {
		return Result{}, fmt.Errorf("policy %s: %w", dir, err)
	}
	wasm, names, err := link(policy, data)
	if err != nil {
		return Result{}, fmt.Errorf("policy %s: %w", dir, err)
	}
	named, err := wasmbin.SetCustom(wasm, "name", names)
	if err != nil {
		return Result{}, fmt.Errorf("policy %s: %w", dir, err)
	}
	line, _, _ := strings.Cut(string(about), "\n")
	return Result{Wasm: wasm, Named: named, OPA: strings.TrimPrefix(line, "Version: "), Took: time.Since(start)}, nil
}

// compile has OPA compile a policy, and returns the bundle that it writes. Its paths
// are relative to the folder, so the same files give the same bytes anywhere.
func compile(ctx context.Context, dir string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "regobuild")
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", dir, err)
	}
	defer os.RemoveAll(temp)
	file := filepath.Join(temp, "bundle.tar.gz")
	if _, err := runOPA(ctx, dir, "build", "--target", "wasm", "--entrypoint", Entrypoint, "--ignore", "*_test.rego", "--output", file, "--bundle", "."); err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", dir, err)
	}
	return bundle, nil
}

// LinkBundle makes a guest of a bundle that opa build wrote for WebAssembly, see
// [Link].
func LinkBundle(bundle []byte) ([]byte, error) {
	policy, data, err := unpack(bundle)
	if err != nil {
		return nil, err
	}
	return Link(policy, data)
}

// unpack returns the module of a bundle, and its data.
func unpack(bundle []byte) (policy, data []byte, err error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(bundle))
	if err != nil {
		return nil, nil, fmt.Errorf("bundle: %w", err)
	}
	for files := tar.NewReader(unpacked); ; {
		h, err := files.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("bundle: %w", err)
		}
		var to *[]byte
		most := int64(maxData)
		switch h.Name {
		case "/policy.wasm":
			to, most = &policy, wasmbin.MaxModuleBytes
		case "/data.json":
			to = &data
		default:
			continue
		}
		if h.Size > most {
			return nil, nil, fmt.Errorf("bundle: %s of %d bytes exceeds %d", h.Name, h.Size, most)
		}
		if *to, err = io.ReadAll(files); err != nil {
			return nil, nil, fmt.Errorf("bundle: %w", err)
		}
	}
	if policy == nil {
		return nil, nil, errors.New("bundle: no /policy.wasm")
	}
	return policy, data, nil
}

// runOPA runs OPA in dir and returns what it prints.
func runOPA(ctx context.Context, dir string, args ...string) ([]byte, error) {
	name := "opa"
	if _, err := exec.LookPath(name); err != nil {
		name, args = "go", append([]string{"run", "github.com/open-policy-agent/opa@" + OPA}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = environment(os.Environ())
	cmd.WaitDelay = time.Second // for a compiler that outlives the go command
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("policy %s: %s: %w", dir, name, context.Cause(ctx))
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		said := bytes.TrimSpace(append(stderr.Bytes(), stdout.Bytes()...))
		return nil, &Error{Dir: dir, Output: string(said[:min(len(said), maxOutput)])}
	}
	return nil, fmt.Errorf("policy %s: %w: install opa, or Go, which runs it", dir, err)
}

// environment returns env without what makes Go build for another machine.
func environment(env []string) []string {
	var out []string
	for _, e := range env {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "PWD":
			continue
		}
		out = append(out, e)
	}
	return append(out, "CGO_ENABLED=0")
}
