package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// makers are the only files that may make a value which opens a door, by the
// package and the type. Tests of host and below it may call guests too, and what
// runs hostile guards calls those that policies refuses.
var makers = map[[2]string][]string{
	{"flow", "Permit"}: {"flow/dispatch.go"},
	{"host", "Call"}: {"plugins/tool.go", "plugins/hooks.go", "policies/guest.go", "cmd/sandboxd/plugin_call.go", "host/module.go", "host/engine.go", "host/image.go",
		"internal/conformance/hostile/ungated.go"},
}

// Doors finds second ways to a handler or a guest: a permit is made by the
// dispatcher, and a guest is called where a tool, a hook or a guard stands for it.
func Doors(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
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
