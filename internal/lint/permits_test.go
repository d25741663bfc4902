package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const flowPath = "github.com/sandboxd/sandboxd/flow"

// There is one door to handlers: a permit comes into being in one place, and a
// handler is run in one place for each way to run one. Types are looked at, so that
// no alias, conversion, variable or embedding hides a second.
func TestOnePermit(t *testing.T) {
	made, run := permits(t, load(t))
	if want := []string{"flow/dispatch.go: handle: literal"}; !slices.Equal(made, want) {
		t.Errorf("a permit is made in\n%s\nwant\n%s", strings.Join(made, "\n"), strings.Join(want, "\n"))
	}
	want := []string{"flow/dispatch.go: runHandler: Run", "flow/dispatch.go: runHandler: Stream"}
	if !slices.Equal(run, want) {
		t.Errorf("a handler is run in\n%s\nwant\n%s", strings.Join(run, "\n"), strings.Join(want, "\n"))
	}
}

// Each way to make a permit, or to run a handler, is found.
func TestOnePermitFindsOthers(t *testing.T) {
	l := load(t)
	l.add(t, "second", `package second

import (
	"unsafe"

	"github.com/sandboxd/sandboxd/flow"
)

type alias = flow.Permit
type holder struct{ flow.Permit }

var global flow.Permit

func literal() any { return flow.Permit{} }
func byAlias() any { return &alias{} }
func inside() any { return []flow.Permit{{}} }
func byNew() any { return new(flow.Permit) }
func byVar() any { var p alias; return p }
func named() (p flow.Permit) { return }
func generic[T any]() (v T) { return }
func instance() any { return generic[flow.Permit]() }
func embedded() any { return holder{} }
func array() any { return [1]flow.Permit{} }
func absent(m map[string]flow.Permit) any { return m["x"] }
func closed(c chan alias) any { return <-c }
func asserted(v any) any { p, _ := v.(flow.Permit); return p }
func cast(b *[64]byte) any { return (*flow.Permit)(unsafe.Pointer(b)) }
func runs(h flow.Handler, c *flow.ToolContext, p flow.Permit) { h.Run(c, p) }
func streams(h flow.Streamer, c *flow.ToolContext, p flow.Permit) { h.Stream(c, p) }
func value(h flow.Handler) any { return h.Run }
`)
	made, run := permits(t, l)
	for _, in := range []string{"literal", "byAlias", "inside", "byNew", "byVar", "named", "instance", "embedded", "array", "absent", "closed", "asserted", "cast", ""} {
		if !slices.ContainsFunc(made, func(s string) bool { return strings.HasPrefix(s, "second/second.go: "+in+": ") }) {
			t.Errorf("%q is not found in %q", in, made)
		}
	}
	for _, in := range []string{"runs", "streams", "value"} {
		if !slices.ContainsFunc(run, func(s string) bool { return strings.HasPrefix(s, "second/second.go: "+in+": ") }) {
			t.Errorf("%q is not found in %q", in, run)
		}
	}
}

// A loaded is the code of this module that knows permits, with types.
type loaded struct {
	root     string
	fset     *token.FileSet
	imports  types.Importer
	packages []*typed
}

type typed struct {
	files []*ast.File
	info  *types.Info
}

// load type-checks the packages of this module that import flow, and flow.
func load(t *testing.T) *loaded {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Export,Module", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles, Imports        []string
		Module                  *struct{ Main bool }
	}
	exports := map[string]string{}
	var ours []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main && (p.ImportPath == flowPath || slices.Contains(p.Imports, flowPath)) {
			ours = append(ours, p)
		}
	}
	l := &loaded{root: root, fset: token.NewFileSet()}
	l.imports = importer.ForCompiler(l.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	if len(ours) < 5 {
		t.Fatalf("%d packages know permits", len(ours))
	}
	for _, p := range ours {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(l.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		l.check(t, p.ImportPath, files)
	}
	return l
}

// add type-checks one more package, of one file.
func (l *loaded) add(t *testing.T, name, source string) {
	t.Helper()
	f, err := parser.ParseFile(l.fset, filepath.Join(l.root, name, name+".go"), source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	l.check(t, name, []*ast.File{f})
}

func (l *loaded) check(t *testing.T, path string, files []*ast.File) {
	t.Helper()
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Instances: map[*ast.Ident]types.Instance{}}
	if _, err := (&types.Config{Importer: l.imports}).Check(path, l.fset, files, info); err != nil {
		t.Fatal(err)
	}
	l.packages = append(l.packages, &typed{files, info})
}

// isPermit reports whether a type is a permit, or holds one that comes into being
// with it.
func isPermit(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		if o := t.Obj(); o.Pkg() != nil && o.Pkg().Path() == flowPath && o.Name() == "Permit" {
			return true
		}
		return isPermit(t.Underlying())
	case *types.Struct:
		for f := range t.Fields() {
			if isPermit(f.Type()) {
				return true
			}
		}
	case *types.Array:
		return isPermit(t.Elem())
	}
	return false
}

// permits lists where permits are made and handlers are run, as "file: function:
// what", sorted.
func permits(t *testing.T, l *loaded) (made, run []string) {
	for _, p := range l.packages {
		for _, f := range p.files {
			var in string
			note := func(list *[]string, n ast.Node, what string) {
				name, err := filepath.Rel(l.root, l.fset.Position(n.Pos()).Filename)
				if err != nil {
					t.Fatal(err)
				}
				*list = append(*list, fmt.Sprintf("%s: %s: %s", filepath.ToSlash(name), in, what))
			}
			look := func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					if isPermit(p.info.TypeOf(n)) {
						note(&made, n, "literal")
					}
				case *ast.ValueSpec:
					for _, name := range n.Names {
						if o := p.info.Defs[name]; o != nil && len(n.Values) == 0 && isPermit(o.Type()) {
							note(&made, n, "variable")
						}
					}
				case *ast.FuncType:
					if n.Results == nil {
						return true
					}
					for _, r := range n.Results.List {
						if len(r.Names) > 0 && isPermit(p.info.TypeOf(r.Type)) {
							note(&made, n, "named result")
						}
					}
				case *ast.CallExpr:
					fun := p.info.Types[ast.Unparen(n.Fun)]
					if fun.IsBuiltin() && len(n.Args) > 0 {
						if arg := p.info.Types[n.Args[0]]; arg.IsType() && isPermit(held(arg.Type)) {
							note(&made, n, "new or make")
						}
					}
					if fun.IsType() && isPermit(pointed(fun.Type)) && !isPermit(pointed(p.info.TypeOf(n.Args[0]))) {
						note(&made, n, "conversion")
					}
				case *ast.IndexExpr:
					if m, ok := p.info.TypeOf(n.X).Underlying().(*types.Map); ok && isPermit(m.Elem()) {
						note(&made, n, "element that may be absent")
					}
				case *ast.UnaryExpr:
					if n.Op == token.ARROW && isPermit(held(p.info.TypeOf(n.X))) {
						note(&made, n, "receipt from what may be closed")
					}
				case *ast.TypeAssertExpr:
					if n.Type != nil && isPermit(p.info.TypeOf(n.Type)) {
						note(&made, n, "assertion that may fail")
					}
				case *ast.Ident:
					if inst, ok := p.info.Instances[n]; ok {
						for arg := range inst.TypeArgs.Types() {
							if isPermit(arg) {
								note(&made, n, "type argument")
							}
						}
					}
				case *ast.SelectorExpr:
					sel := p.info.Selections[n]
					if sel == nil || sel.Kind() == types.FieldVal {
						return true
					}
					if name := sel.Obj().Name(); (name == "Run" || name == "Stream") && takesPermit(sel.Obj().Type()) {
						note(&run, n, name)
					}
				}
				return true
			}
			for _, d := range f.Decls {
				in = ""
				if fn, ok := d.(*ast.FuncDecl); ok {
					in = fn.Name.Name
				}
				ast.Inspect(d, look)
			}
		}
	}
	slices.Sort(made)
	slices.Sort(run)
	return made, run
}

// pointed is the type that a pointer points to, or else the type.
func pointed(t types.Type) types.Type {
	if t, ok := t.Underlying().(*types.Pointer); ok {
		return t.Elem()
	}
	return t
}

// held is the type of the elements of a slice, map or channel, or else the type.
func held(t types.Type) types.Type {
	if t, ok := t.Underlying().(interface{ Elem() types.Type }); ok {
		return t.Elem()
	}
	return t
}

func takesPermit(t types.Type) bool {
	sig, ok := t.(*types.Signature)
	if !ok {
		return false
	}
	for v := range sig.Params().Variables() {
		if isPermit(v.Type()) {
			return true
		}
	}
	return false
}
