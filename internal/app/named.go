package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An entry is a place in the file that names a module.
type entry struct {
	what     string // such as "plugin weather"
	names    []string
	file     string // the module's, or builtin/NAME; empty if it is built from source
	source   string
	manifest string
}

// entries are all of them, plugins first.
func (f *File) entries() []entry {
	var all []entry
	for _, p := range f.Plugins {
		all = append(all, entry{"plugin " + p.Name, []string{p.Name}, p.Module, p.Source, p.Manifest})
	}
	for _, g := range f.Guards {
		members, where, _ := g.group()
		if where == "" {
			members = []Member{g.module()}
		}
		for _, m := range members {
			var names []string
			for _, name := range []string{m.Name, g.Name} {
				if name != "" && !slices.Contains(names, name) && (name != g.Name || len(members) == 1) {
					names = append(names, name)
				}
			}
			all = append(all, entry{"guard " + g.Name, names, m.Policy, m.Source, ""})
		}
	}
	return all
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{12,64}$`)

// Module returns the module that ref names, packed, whatever digest is written beside
// it: the name of a plugin or guard of the file, or a digest, as whole or short as
// sandboxd prints it, of one of their modules. Those that are named by their source
// are built. That there is none is an [*Error] with the code not_found.
func (f *File) Module(ctx context.Context, m Modules, ref string) ([]byte, error) {
	digest := digestForm.MatchString(ref)
	var names []string
	var broken error // of the first module that could not be read
	for _, e := range f.entries() {
		if names = append(names, e.names...); !digest && !slices.Contains(e.names, ref) {
			continue
		}
		var wasm []byte
		var err error
		if builtinName(e.file) != "" {
			wasm, _, err = m.Builtin(ctx)
		} else {
			wasm, err = f.read(ctx, m, e.what, e.file, e.source, e.manifest)
		}
		if !digest || err == nil && strings.HasPrefix(fmt.Sprintf("sha256:%x", sha256.Sum256(wasm)), ref) {
			return wasm, err
		}
		if broken == nil {
			broken = err
		}
	}
	switch near := Nearest(ref, names); {
	case broken != nil:
		return nil, broken
	case digest:
		return nil, bad(abi.NotFound, "the digests of modules that are no longer there are in the audit log only", "%s: no module of %s has this digest", ref, FileName)
	case near != "":
		return nil, bad(abi.NotFound, "did you mean "+near+"?", "%s: no such file, and no plugin or guard of %s", ref, FileName)
	default:
		return nil, bad(abi.NotFound, "it has "+strings.Join(names, ", "), "%s: no such file, and no plugin or guard of %s", ref, FileName)
	}
}
