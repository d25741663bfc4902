package lint

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// makers are the only files that may make a value which opens a door, by the
// package and the type. Tests of host and below it may call guests too, what runs
// hostile guards calls those that policies refuses, the fail-closed suite asks guards
// what is no question, a test asks a guest for what Rego computes, and a policy in Rego is
// asked, without any grant, how far its rules come.
var makers = map[[2]string][]string{
	{"flow", "Permit"}: {"flow/dispatch.go"},
	{"host", "Call"}: {"plugins/tool.go", "plugins/hooks.go", "policies/guest.go", "cmd/sandboxd/plugin_call.go", "host/module.go", "host/engine.go", "host/image.go",
		"internal/conformance/hostile/ungated.go", "internal/regobuild/main_test.go", "internal/authortest/raw.go", "cmd/sandboxd/policy_rules.go",
		"sdk/guest/go/guesttest/tool.go", "sdk/guest/go/guesttest/hook.go", "sdk/guest/go/guesttest/guard.go"}, // of guests that a test holds
}

// unboxed calls guests without a sandbox, which only the fake host does.
var unboxed = [2]string{"host", "CallNative"}

// named are modules of which only these names may be used outside tests: the types
// of Extism's manifest, and nothing that runs a plugin.
var named = map[string][]string{
	"github.com/extism/go-sdk": {"Manifest", "ManifestMemory", "Wasm", "WasmData", "WasmFile", "WasmUrl"},
}

// Doors finds second ways to a handler or a guest: a permit is made by the
// dispatcher, a guest is called where a tool, a hook or a guard stands for it, and
// no engine but ours runs one.
func Doors(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
		found = append(found, t.unnamed(f)...)
		found = append(found, t.unboxed(f)...)
		ast.Inspect(f.File, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			var of [2]string
			switch x := lit.Type.(type) {
			case *ast.Ident:
				of = [2]string{f.Dir, x.Name}
			case *ast.SelectorExpr:
				if p, ok := x.X.(*ast.Ident); ok {
					of = [2]string{p.Name, x.Sel.Name}
				}
			}
			allowed, guarded := makers[of]
			inside := f.Test && of[1] == "Call" && (f.Dir == of[0] || strings.HasPrefix(f.Dir, of[0]+"/"))
			if guarded && !inside && !slices.Contains(allowed, f.Path) {
				found = append(found, t.at(lit.Pos(), "%s.%s is made in %s only", of[0], of[1], strings.Join(allowed, ", ")))
			}
			return true
		})
	}
	return inOrder(found)
}

// unboxed finds calls of guests that run natively.
func (t *Tree) unboxed(f *GoFile) []Finding {
	var found []Finding
	if f.Test || f.Path == "sdk/guest/go/guesttest/host.go" {
		return nil
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == unboxed[1] {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == unboxed[0] {
				found = append(found, t.at(sel.Pos(), "%s.%s is for the unit tests of guests, by package guesttest", unboxed[0], unboxed[1]))
			}
		}
		return true
	})
	return found
}

// unnamed finds uses of names that are not in the table of named modules.
func (t *Tree) unnamed(f *GoFile) []Finding {
	var found []Finding
	for _, spec := range f.Imports {
		target, _ := strconv.Unquote(spec.Path.Value)
		allowed, guarded := named[target]
		if f.Test || !guarded {
			continue
		}
		if spec.Name == nil {
			found = append(found, t.at(spec.Pos(), "%s is imported without a name of its own", target))
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == spec.Name.Name && !slices.Contains(allowed, sel.Sel.Name) {
				found = append(found, t.at(sel.Pos(), "%s.%s of %s is for tests only", x.Name, sel.Sel.Name, target))
			}
			return true
		})
	}
	return found
}
