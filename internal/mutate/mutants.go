package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// A mutant is one change of the code.
type mutant struct {
	id       int    // from 1 in its package
	file     string // from the root of the module
	line     int
	function string
	before   string // as it stands in the file, in one line
	after    string
	nth      int // of the mutants of this function with these texts, from 1
}

// place and change are how the report and the list of equivalent ones name it.
func (m *mutant) place() string { return m.file + " " + m.function }

func (m *mutant) change() string {
	text := m.before + " -> " + m.after
	if m.nth > 1 {
		text += fmt.Sprintf(" (%d)", m.nth)
	}
	return text
}

// key is how the list of equivalent ones has it.
func (m *mutant) key() string { return m.place() + "\n" + m.change() }

// A point is a piece of the source that mutants replace.
type point struct {
	from, to  int
	statement bool // else an expression of type bool
	mutants   []*mutant
	code      []string // of each: an expression, or the statement to stand before the piece; "" leaves the piece out
}

// A source is a file with the points at which it is changed.
type source struct {
	fset   *token.FileSet
	path   string
	text   []byte
	points []*point
	next   int // id of the next mutant

	function string
	results  *ast.FieldList // of the innermost function
}

// switchName is the function of the test binary that says whether a mutant is on.
const switchName = "mutantIsOn"

// mutants parses a file and finds its mutants, numbered from next.
func mutants(path string, text []byte, next int) (*source, error) {
	s := &source{fset: token.NewFileSet(), path: path, text: text, next: next}
	f, err := parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		s.function = d.Name.Name
		if d.Recv != nil {
			s.function = strings.Trim(s.span(d.Recv.List[0].Type), "*") + "." + s.function
		}
		s.results = d.Type.Results
		s.walk(d.Body)
	}
	seen := map[string]int{}
	for _, m := range s.all() {
		key := m.function + "\n" + m.before + "\n" + m.after
		seen[key]++
		m.nth = seen[key]
	}
	return s, nil
}

// all returns the mutants in the order of their ids.
func (s *source) all() []*mutant {
	var all []*mutant
	for _, p := range s.points {
		all = append(all, p.mutants...)
	}
	slices.SortFunc(all, func(a, b *mutant) int { return a.id - b.id })
	return all
}

func (s *source) offset(pos token.Pos) int { return s.fset.Position(pos).Offset }

func (s *source) span(n ast.Node) string {
	return string(s.text[s.offset(n.Pos()):s.offset(n.End())])
}

// add makes a mutant of a node.
func (s *source) add(n ast.Node, statement bool, code, after string) {
	from, to := s.offset(n.Pos()), s.offset(n.End())
	i := slices.IndexFunc(s.points, func(p *point) bool { return p.from == from && p.to == to })
	if i < 0 {
		s.points = append(s.points, &point{from: from, to: to, statement: statement})
		i = len(s.points) - 1
	}
	p := s.points[i]
	p.mutants = append(p.mutants, &mutant{id: s.next, file: s.path, line: s.fset.Position(n.Pos()).Line, function: s.function,
		before: oneLine(s.span(n)), after: oneLine(after)})
	p.code = append(p.code, code)
	s.next++
}

// oneLine shortens source text so that it can be named.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 160 {
		text = text[:120] + " ... " + text[len(text)-35:]
	}
	return text
}

// walk finds the mutants below a node.
func (s *source) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.FuncLit:
			outer := s.results
			s.results = n.Type.Results
			s.walk(n.Body)
			s.results = outer
			return false
		case *ast.BlockStmt:
			s.statements(n.List)
		case *ast.CaseClause:
			s.statements(n.Body)
		case *ast.CommClause:
			s.statements(n.Body)
		case *ast.BinaryExpr:
			s.binary(n)
		case *ast.IfStmt:
			s.negate(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				s.negate(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, cond := range clause.(*ast.CaseClause).List {
						s.negate(cond)
					}
				}
			}
		}
		return true
	})
}

// turned is what a mutant makes of an operator.
var turned = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

func (s *source) binary(n *ast.BinaryExpr) {
	to, ok := turned[n.Op]
	if !ok {
		return
	}
	x, y := s.span(n.X), s.span(n.Y)
	s.add(n, false, fmt.Sprintf("(%s) %s (%s)", x, to, y), fmt.Sprintf("%s %s %s", x, to, y))
	if n.Op == token.LAND || n.Op == token.LOR {
		s.negate(n.X)
		s.negate(n.Y)
	}
}

// negate makes the mutant of a condition that no operator of it stands for.
func (s *source) negate(cond ast.Expr) {
	for {
		inner, ok := cond.(*ast.ParenExpr)
		if !ok {
			break
		}
		cond = inner.X
	}
	switch e := cond.(type) {
	case *ast.BinaryExpr:
		return
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			s.add(e, false, s.span(e.X), s.span(e.X))
		}
		return
	}
	s.add(cond, false, "!("+s.span(cond)+")", "!"+s.span(cond))
}

// statements makes the mutants of the statements of a block.
func (s *source) statements(list []ast.Stmt) {
	for _, n := range list {
		switch n := n.(type) {
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && (strings.Contains(s.span(call.Fun), ".Logger.") || s.span(call.Fun) == "panic") {
				continue
			}
		case *ast.AssignStmt:
			blank := func(e ast.Expr) bool { return s.span(e) != "_" }
			if n.Tok == token.DEFINE || !slices.ContainsFunc(n.Lhs, blank) {
				continue
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		case *ast.ReturnStmt:
			s.returned(n)
			if len(n.Results) > 0 || s.results.NumFields() > 0 {
				continue
			}
		default:
			continue
		}
		s.add(n, true, "", "(nothing)")
	}
}

// returned makes the mutants of what a function returns.
func (s *source) returned(n *ast.ReturnStmt) {
	if s.results.NumFields() != len(n.Results) {
		return // nothing, or all results of a call
	}
	var types []ast.Expr
	if s.results != nil {
		for _, field := range s.results.List {
			for range max(1, len(field.Names)) {
				types = append(types, field.Type)
			}
		}
	}
	for i, value := range n.Results {
		text, to := s.span(value), ""
		_, pointer := types[i].(*ast.StarExpr)
		switch {
		case (pointer || s.span(types[i]) == "error") && text != "nil":
			to = "nil"
		case s.span(types[i]) == "bool":
			if b, ok := value.(*ast.BinaryExpr); ok && turned[b.Op] != token.ILLEGAL {
				continue // it has its own mutants
			}
			to = "!(" + text + ")"
		default:
			continue
		}
		var all []string
		for j, other := range n.Results {
			if j == i {
				all = append(all, to)
			} else {
				all = append(all, s.span(other))
			}
		}
		code := "return " + strings.Join(all, ", ")
		s.add(n, true, code, code)
	}
}

// schema returns the file with all its mutants in it.
func (s *source) schema() string {
	slices.SortFunc(s.points, func(a, b *point) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	points := s.points
	var text func(from, to int) string
	text = func(from, to int) string {
		var out strings.Builder
		for len(points) > 0 && points[0].from < to {
			p := points[0]
			points = points[1:]
			out.Write(s.text[from:p.from])
			out.WriteString(p.wrap(text(p.from, p.to)))
			from = p.to
		}
		out.Write(s.text[from:to])
		return out.String()
	}
	return text(0, len(s.text))
}

// wrap returns what stands in the place of a piece of source.
func (p *point) wrap(piece string) string {
	var out strings.Builder
	if !p.statement {
		out.WriteString("func() bool {\n")
		for i, m := range p.mutants {
			fmt.Fprintf(&out, "if %s(%d) {\nreturn %s\n}\n", switchName, m.id, p.code[i])
		}
		return out.String() + "return " + piece + "\n}()"
	}
	for i, m := range p.mutants {
		if p.code[i] == "" {
			piece = fmt.Sprintf("if !%s(%d) {\n%s\n}", switchName, m.id, piece)
			continue
		}
		fmt.Fprintf(&out, "if %s(%d) {\n%s\n}\n", switchName, m.id, p.code[i])
	}
	return out.String() + piece
}
