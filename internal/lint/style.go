package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxLines is the most lines of one Go file. A table of tests may be longer.
const maxLines = 500

// Files finds Go files that are too long, and packages whose names say nothing.
func Files(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
		if n := bytes.Count(t.Files[f.Path], []byte("\n")); n > maxLines && !strings.HasSuffix(f.Path, "_test.go") {
			found = append(found, Finding{f.Path, 0, fmt.Sprintf("%d lines exceed %d", n, maxLines)})
		}
		for _, name := range []string{f.Name.Name, path.Base(f.Dir)} {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, name) {
				found = append(found, Finding{f.Path, 0, fmt.Sprintf("package %s: named for nothing", name)})
				break
			}
		}
	}
	return inOrder(found)
}

// Tests finds tests that sleep or skip. A sleep inside a synctest bubble takes no
// time and is none.
func Tests(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
		if !f.Test {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			switch {
			case !ok:
			case isCall(call, "synctest", "Test"):
				return false
			case isCall(call, "time", "Sleep"):
				found = append(found, t.at(call.Pos(), "a test sleeps"))
			case slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && testHandle(sel.X):
				found = append(found, t.at(call.Pos(), "a test skips"))
			}
			return true
		})
	}
	return inOrder(found)
}

// testHandle reports whether an expression is named as test, benchmark and fuzz
// functions name their argument.
func testHandle(expr ast.Expr) bool {
	x, ok := expr.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name)
}

// A path that only one machine has.
var machinePath = regexp.MustCompile(`(^|[^\w.~])/(root|home|Users|work)/[\w.]`)

// Paths finds paths of somebody's machine in any text of the tree but the trees
// that test this rule.
func Paths(t *Tree) []Finding {
	var found []Finding
	for _, name := range t.sorted("") {
		if strings.HasPrefix(name, "internal/lint/testdata/") {
			continue
		}
		n := 0
		for line := range bytes.Lines(t.Files[name]) {
			n++
			if m := machinePath.Find(line); m != nil {
				found = append(found, Finding{name, n, fmt.Sprintf("path of one machine: %s", bytes.TrimSpace(m))})
			}
		}
	}
	return inOrder(found)
}

// isCall reports whether a call is of the function name in package pkg.
func isCall(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// literal returns the text of a string literal.
func literal(expr ast.Expr) (string, bool) {
	lit, ok := expr.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
