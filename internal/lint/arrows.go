package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A row says what one package, or with "/..." a tree of them, may import besides
// the standard library and itself.
type row struct {
	packages string
	may      []string // packages of this module and modules of others, both as patterns
	shows    []string // modules whose types may stand in exported signatures
}

const (
	genai      = "google.golang.org/genai"
	jsonschema = "github.com/google/jsonschema-go/..."
	yaml       = "go.yaml.in/yaml/v3"
)

var (
	leaves = []string{"capability", "audit", "sdk/abi", "session"}
	halves = append([]string{"host/...", "flow/..."}, leaves...)
)

// rows is the map of docs/architecture.md, lowest first. The first row that
// matches counts; a package without a row is a finding.
var rows = []row{
	{packages: "capability"},
	{packages: "audit"},
	{packages: "sdk/abi"},
	{packages: "."}, // sources, as they are
	{packages: "sdk", may: []string{"github.com/sandboxd/sandboxd", "sdk/abi"}},
	{packages: "sdk/guest/go/examples/...", may: []string{"sdk/abi", "sdk/guest/go"}},
	// The fake host is made of what the real one is made of.
	{packages: "sdk/guest/go/guesttest", may: []string{jsonschema, "sdk/abi", "sdk/guest/go/...", "capability", "host"}},
	{packages: "sdk/guest/go", may: []string{"sdk/abi", "sdk/guest/go/internal/native"}},
	{packages: "sdk/guest/...", may: []string{"sdk/abi"}},
	{packages: "session/sqlite", may: []string{genai, "modernc.org/sqlite/...", "session"}, shows: []string{genai}},
	{packages: "session/...", may: []string{genai, "session"}, shows: []string{genai}},
	{packages: "host/wasmbin"},
	{packages: "host/...", may: []string{"github.com/tetratelabs/wazero/...", "golang.org/x/sys/...", "host/...", "capability", "audit", "sdk/abi"}},
	{packages: "flow/script", may: []string{genai, yaml, "flow", "session", "sdk/abi"}, shows: []string{genai}},
	{packages: "flow/mcp", may: []string{jsonschema, "github.com/modelcontextprotocol/go-sdk/...", "flow", "sdk/abi"}},
	{packages: "flow/...", may: append([]string{genai, jsonschema, "flow"}, leaves...), shows: []string{genai, jsonschema}},
	{packages: "plugins", may: append([]string{genai, jsonschema}, halves...)},
	{packages: "policies", may: append([]string{genai, jsonschema, "sdk"}, halves...)},
	{packages: "plugins/extism", may: []string{"github.com/extism/go-sdk", "host/wasmbin", "capability", "sdk/abi"}, shows: []string{"github.com/extism/go-sdk"}},
	// First-party plugins and policies are what guests are made of.
	{packages: "plugins/...", may: []string{"sdk/guest/..."}},
	{packages: "policies/builtin", may: []string{"sdk/guest/...", "policies/..."}},
	{packages: "policies/...", may: []string{"golang.org/x/text/unicode/norm", "sdk/guest/...", "policies/views"}},
	{packages: "examples/library/server", may: []string{"github.com/modelcontextprotocol/go-sdk/..."}}, // what an operator brings along
	{packages: "examples/...", may: []string{"github.com/extism/go-pdk", "sdk/guest/...", "plugins/...", "policies/..."}},
	{packages: "internal/...", may: []string{genai, jsonschema, yaml, "github.com/rogpeppe/go-internal/...", "github.com/modelcontextprotocol/go-sdk/...", "*"}},
	{packages: ".ci/opa", may: []string{"github.com/open-policy-agent/opa/..."}}, // a module of its own
	{packages: "cmd/...", may: []string{genai, jsonschema, yaml, "golang.org/x/sys/...", "github.com/spf13/cobra", "github.com/spf13/pflag", "*"}},
}

// apart are pairs that must not know each other, not even in the tests inside
// the package.
var apart = [][2]string{{"host/...", "flow/..."}, {"plugins/...", "policies/..."}}

// matches reports whether a package or module path fits a pattern.
func matches(pattern, name string) bool {
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == tree || strings.HasPrefix(name, tree+"/")
	}
	return pattern == name
}

func rowOf(dir string) *row {
	for i := range rows {
		if matches(rows[i].packages, dir) {
			return &rows[i]
		}
	}
	return nil
}

// Arrows finds imports that point the wrong way. Tests outside the package they
// test are users of it, and may import anything.
func Arrows(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
		r := rowOf(f.Dir)
		if r == nil {
			found = append(found, Finding{f.Path, 0, fmt.Sprintf("package %s has no row in internal/lint/arrows.go", f.Dir)})
			continue
		}
		if f.Test && strings.HasSuffix(f.Name.Name, "_test") {
			continue
		}
		for _, spec := range f.Imports {
			target, _ := strconv.Unquote(spec.Path.Value) // the parser has read it
			if why := t.wrong(f, r, target); why != "" {
				found = append(found, t.at(spec.Pos(), "%s imports %s: %s", f.Dir, target, why))
			}
		}
	}
	return inOrder(found)
}

// wrong says why an import is wrong.
func (t *Tree) wrong(f *GoFile, r *row, target string) string {
	own, inside := strings.CutPrefix(target, t.Module+"/")
	for _, pair := range apart {
		for i, side := range pair {
			if inside && matches(side, f.Dir) && matches(pair[1-i], own) {
				return "these two do not know each other"
			}
		}
	}
	first, _, _ := strings.Cut(target, "/")
	standard := !inside && !strings.Contains(first, ".") && target != "C"
	allowed := func(name string) bool {
		return slices.ContainsFunc(r.may, func(p string) bool { return matches(p, name) })
	}
	switch {
	case standard || inside && own == f.Dir:
		return ""
	case f.Test && (!inside || matches("internal/...", own) || strings.HasSuffix(own, "test")):
		return "" // test support
	case allowed(own) && inside || allowed(target) && !inside:
		return ""
	case inside && slices.Contains(r.may, "*"):
		return ""
	}
	return "not in its row of internal/lint/arrows.go"
}

// Signatures finds types of other modules in exported signatures.
func Signatures(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
		r := rowOf(f.Dir)
		if f.Test || r == nil || matches("internal/...", f.Dir) || f.Name.Name == "main" {
			continue
		}
		foreign := map[string]string{} // by name in this file
		for _, spec := range f.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			first, _, _ := strings.Cut(target, "/")
			if !strings.Contains(first, ".") || strings.HasPrefix(target, t.Module+"/") ||
				slices.ContainsFunc(r.shows, func(p string) bool { return matches(p, target) }) {
				continue
			}
			name := path.Base(target)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			foreign[name] = target
		}
		for _, decl := range f.Decls {
			for _, expr := range exportedTypes(decl) {
				ast.Inspect(expr, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := sel.X.(*ast.Ident); ok && foreign[x.Name] != "" {
							found = append(found, t.at(sel.Pos(), "%s.%s of %s in an exported signature", x.Name, sel.Sel.Name, foreign[x.Name]))
						}
					}
					return true
				})
			}
		}
	}
	return inOrder(found)
}

// exportedTypes returns the type expressions that users of a package see of a
// declaration.
func exportedTypes(decl ast.Decl) []ast.Node {
	var seen []ast.Node
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			seen = append(seen, d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					seen = append(seen, visible(s.Type)...)
				}
			case *ast.ValueSpec:
				if d.Tok != token.IMPORT && s.Type != nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
					seen = append(seen, s.Type)
				}
			}
		}
	}
	return seen
}

// visible returns the exported part of a type: of a struct its exported and
// embedded fields.
func visible(expr ast.Expr) []ast.Node {
	s, ok := expr.(*ast.StructType)
	if !ok {
		return []ast.Node{expr}
	}
	var seen []ast.Node
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			seen = append(seen, field.Type)
		}
	}
	return seen
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}
