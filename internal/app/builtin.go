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

// BuiltinName returns the name of the first-party guard that policy stands for, such as
// role-access for builtin/role-access; "" if it stands for a file. That there is such a guard
// is for [HasBuiltin] to say.
func BuiltinName(policy string) string {
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

// BuiltinNeeds says what to do if [Modules.Builtin] fails.
const BuiltinNeeds = "builtin guards are built with Go, which must be at hand"

// HasBuiltin returns nil if the module of the first-party guards, whose manifest m is, has the one
// that policy names, else an error that says which are near, or all.
func HasBuiltin(policy string, m *abi.Manifest) *Error {
	var names []string
	for _, have := range m.Guards {
		if have.Name == BuiltinName(policy) {
			return nil
		}
		names = append(names, have.Name)
	}
	hint := "guards: " + strings.Join(names, ", ")
	if near := Nearest(BuiltinName(policy), names); near != "" {
		hint = "did you mean builtin/" + near + "?"
	}
	return &Error{Code: abi.ConfigInvalid, Text: policy + ": there is no such guard", Hint: hint}
}

// policy loads the module of a guard, which may be a first-party one: then g is told
// its name.
func (rt *Runtime) policy(ctx context.Context, name string, g *Member, o Options) (*host.Module, error) {
	guard := BuiltinName(g.Policy)
	if guard == "" {
		return rt.module(ctx, "guard "+name, g.Policy, g.Source, "", g.Digest, o)
	}
	if rt.builtin == nil {
		modules := o.Modules
		modules.Tenant = rt.File.Name
		wasm, _, err := modules.Builtin(ctx)
		if err != nil {
			return nil, bad(abi.PolicyUnavailable, BuiltinNeeds, "guard %s: %v", name, err)
		}
		if rt.builtin, err = modules.Load(ctx, "builtin", wasm); err != nil {
			return nil, fmt.Errorf("guard %s: %w", name, err)
		}
	}
	if e := HasBuiltin(g.Policy, rt.builtin.Manifest()); e != nil {
		e.Text = "guard " + name + ": " + e.Text
		return nil, e
	}
	g.Guard = guard
	if g.Digest != "" && !sameDigest(g.Digest, rt.builtin.Digest().String()) {
		return nil, bad(abi.DigestMismatch, "write the new digest if you have updated sandboxd", "guard %s: digest mismatch: %s %s, builtin guards %s",
			name, FileName, short(g.Digest), rt.builtin.Digest().Short())
	}
	return rt.builtin, nil
}
