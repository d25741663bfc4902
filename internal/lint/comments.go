package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// Comments finds packages and exported names without a doc comment, and comments
// that a blank line cuts off from what they are about. Main packages need none
// but the package's own.
func Comments(t *Tree) []Finding {
	var found []Finding
	packages := map[string]bool{}
	for _, f := range t.Go {
		if !f.Test {
			packages[f.Dir] = packages[f.Dir] || f.Doc != nil
		}
	}
	for dir, documented := range packages {
		if !documented {
			found = append(found, Finding{dir, 0, "package without a comment"})
		}
	}
	for _, f := range t.Go {
		if f.Test || f.Name.Name == "main" {
			continue
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d)) && !errorProtocol(d)) {
					found = append(found, t.documented(f, d, d.Name.Name, d.Doc, nil)...)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							found = append(found, t.documented(f, s, s.Name.Name, s.Doc, d.Doc)...)
						}
					case *ast.ValueSpec:
						i := slices.IndexFunc(s.Names, (*ast.Ident).IsExported)
						if i >= 0 && s.Doc == nil && s.Comment == nil {
							found = append(found, t.documented(f, s, s.Names[i].Name, d.Doc, nil)...)
						}
					}
				}
			}
		}
	}
	return inOrder(found)
}

// errorProtocol reports whether a method is one that package errors looks for.
// Its meaning is given there.
func errorProtocol(d *ast.FuncDecl) bool {
	return slices.Contains([]string{"Error", "Is", "Unwrap"}, d.Name.Name)
}

// documented finds what is wrong with the comment of one declaration.
func (t *Tree) documented(f *GoFile, decl ast.Node, name string, doc, outer *ast.CommentGroup) []Finding {
	if doc == nil {
		doc = outer
	}
	if doc == nil || strings.TrimSpace(doc.Text()) == "" {
		return []Finding{t.at(decl.Pos(), "%s has no comment", name)}
	}
	for _, group := range f.Comments {
		text := strings.TrimPrefix(strings.TrimPrefix(group.Text(), "A "), "An ")
		if t.line(group.End()) == t.line(doc.Pos())-2 && strings.HasPrefix(text, name+" ") {
			return []Finding{t.at(group.Pos(), "comment of %s is cut in two by a blank line", name)}
		}
	}
	return nil
}

// adkErrors marks a file that holds error texts of ADK, which the conformance
// vectors pin.
const adkErrors = "//adk:errors"

// ErrorTexts finds error texts that do not read well inside another: with a
// capital first letter, with punctuation at the end, or beginning with "failed
// to". Files that say so keep the texts of ADK.
func ErrorTexts(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.Go {
		if f.Test || hasLine(t.Files[f.Path], adkErrors) {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 || !isCall(call, "errors", "New") && !isCall(call, "fmt", "Errorf") {
				return true
			}
			text, ok := literal(call.Args[0])
			if !ok {
				return true
			}
			if why := badErrorText(text); why != "" {
				found = append(found, t.at(call.Pos(), "error %q %s", text, why))
			}
			return true
		})
	}
	return inOrder(found)
}

func badErrorText(s string) string {
	if strings.TrimSpace(s) == "" {
		return "says nothing"
	}
	word, _, _ := strings.Cut(s, " ")
	switch {
	case word != strings.ToUpper(word) && word[:1] != strings.ToLower(word[:1]):
		return "begins with a capital letter"
	case strings.ContainsAny(s[len(s)-1:], ".!?:;,\n "):
		return "ends in punctuation"
	case strings.HasPrefix(s, "failed to "):
		return "begins with \"failed to\": start with the thing"
	}
	return ""
}

func hasLine(data []byte, prefix string) bool {
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
