package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// builtinName returns the name of a first-party guard, "" if a policy is a file.
func builtinName(policy string) string {
	name, ok := strings.CutPrefix(policy, "builtin/")
	if !ok || filepath.Ext(name) != "" {
		return ""
	}
	return name
}

// Builtin returns the module of the first-party guards, built from the sources that
// this program holds. That takes the Go toolchain, and time only once: what was built
// is remembered like any other guest.
func (m Modules) Builtin(ctx context.Context) ([]byte, guestlang.Result, error) {
	dir, err := os.MkdirTemp("", "builtin")
	if err != nil {
		return nil, guestlang.Result{}, fmt.Errorf("builtin guards: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := policies.CopyBuiltin(dir); err != nil {
		return nil, guestlang.Result{}, err
	}
	return m.Build(ctx, filepath.Join(dir, filepath.FromSlash(policies.BuiltinDir)), nil)
}

// policy loads the module of a guard, which may be a first-party one: then g is told
// its name.
func (rt *Runtime) policy(ctx context.Context, name string, g *Member, o Options) (*host.Module, error) {
	guard := builtinName(g.Policy)
	if guard == "" {
		return rt.module(ctx, "guard "+name, g.Policy, g.Source, "", g.Digest, o)
	}
	if rt.builtin == nil {
		modules := o.Modules
		modules.Tenant = rt.File.Name
		wasm, _, err := modules.Builtin(ctx)
		if err != nil {
			return nil, bad(abi.PolicyUnavailable, "builtin guards are built with Go, which must be at hand", "guard %s: %v", name, err)
		}
		if rt.builtin, err = modules.Load(ctx, "builtin", wasm); err != nil {
			return nil, fmt.Errorf("guard %s: %w", name, err)
		}
	}
	var names []string
	for _, have := range rt.builtin.Manifest().Guards {
		names = append(names, have.Name)
		if have.Name == guard {
			g.Guard = guard
		}
	}
	if g.Guard == "" {
		hint := "guards: " + strings.Join(names, ", ")
		if near := Nearest(guard, names); near != "" {
			hint = "did you mean builtin/" + near + "?"
		}
		return nil, bad(abi.ConfigInvalid, hint, "guard %s: %s: there is no such guard", name, g.Policy)
	}
	if g.Digest != "" && !sameDigest(g.Digest, rt.builtin.Digest().String()) {
		return nil, bad(abi.DigestMismatch, "write the new digest if you have updated sandboxd", "guard %s: digest mismatch: %s %s, builtin guards %s",
			name, FileName, short(g.Digest), rt.builtin.Digest().Short())
	}
	return rt.builtin, nil
}
