package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Finding is one breach of a rule.
type Finding struct {
	File string // with slashes, from the root of the tree
	Line int    // from 1; 0 if the whole file is meant
	Text string
}

// String returns FILE:LINE: TEXT.
func (f Finding) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// A Tree is the text of a repository.
type Tree struct {
	Module string            // its module path
	Files  map[string][]byte // by path from the root; binary files are left out
	Go     []*GoFile         // by path, without those below a testdata directory
	fset   *token.FileSet
}

// A GoFile is one parsed file.
type GoFile struct {
	Path string
	Dir  string // its package; "." is the root
	Test bool
	*ast.File
}

// Load reads a tree. Hidden directories other than .ci are left out, and those whose name
// begins with _, which the go command does not look into, either.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{Files: map[string][]byte{}, fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		hidden := name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"))
		switch {
		case d.IsDir() && hidden && name != ".ci":
			return fs.SkipDir
		case d.IsDir() || name == ".git": // a file in a linked worktree
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return nil
		}
		t.Files[name] = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(t.Files["go.mod"])) {
		if rest, ok := strings.CutPrefix(line, "module "); ok {
			t.Module = strings.TrimSpace(rest)
		}
	}
	if t.Module == "" {
		return nil, fmt.Errorf("go.mod: no module line")
	}
	for _, name := range t.sorted(".go") {
		if strings.Contains("/"+name, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(t.fset, name, t.Files[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		t.Go = append(t.Go, &GoFile{Path: name, Dir: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"), File: file})
	}
	return t, nil
}

// sorted returns the names of the files with a suffix.
func (t *Tree) sorted(suffix string) []string {
	var names []string
	for name := range t.Files {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (t *Tree) line(pos token.Pos) int { return t.fset.Position(pos).Line }

// at makes a finding at a position.
func (t *Tree) at(pos token.Pos, format string, args ...any) Finding {
	p := t.fset.Position(pos)
	return Finding{p.Filename, p.Line, fmt.Sprintf(format, args...)}
}

// exists reports whether the tree has a file or a directory of that name.
func (t *Tree) exists(name string) bool {
	if _, ok := t.Files[name]; ok || name == "." {
		return true
	}
	for file := range t.Files {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

func inOrder(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return found
}
