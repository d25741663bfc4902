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

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{4,64}$`)

// Module returns the module that ref names, packed, whatever digest is written beside
// it: the name of a plugin or guard of the file, or the digest of one of their modules, of which
// four digits or more are given. Those that are named by their source are built. That there is none
// is an [*Error] with the code not_found, that there are several one with the code usage.
func (f *File) Module(ctx context.Context, m Modules, ref string) ([]byte, error) {
	digest := digestForm.MatchString(ref)
	if !digest && strings.HasPrefix(ref, "sha256:") {
		return nil, bad(abi.Usage, "sandboxd prints the first 12 digits, and all of them with --json",
			"%s: want sha256: and 4 to 64 of the digits 0-9 and a-f", ref)
	}
	var names, found []string // what has the digest
	var one []byte
	var broken error // of the first module that could not be read
	for _, e := range f.entries() {
		if names = append(names, e.names...); !digest && !slices.Contains(e.names, ref) {
			continue
		}
		var wasm []byte
		var err error
		if BuiltinName(e.file) != "" {
			wasm, _, err = m.Builtin(ctx)
		} else {
			wasm, err = f.read(ctx, m, e.what, e.file, e.source, e.manifest)
		}
		if !digest {
			return wasm, err
		}
		sum := fmt.Sprintf("sha256:%x", sha256.Sum256(wasm))
		if err == nil && sum == ref {
			return wasm, nil
		}
		if err == nil && strings.HasPrefix(sum, ref) {
			if found, one = append(found, e.what+" "+short(sum)), wasm; len(found) > 1 && !strings.HasSuffix(found[0], " "+short(sum)) {
				return nil, bad(abi.Usage, "give more of its digits", "%s: the digest of several modules: %s", ref, strings.Join(found, ", "))
			}
		}
		if broken == nil {
			broken = err
		}
	}
	if one != nil {
		return one, nil
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
