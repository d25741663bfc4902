package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// rules are all rules that need nothing but the tree.
var rules = map[string]func(*Tree) []Finding{
	"arrows": Arrows, "signatures": Signatures, "comments": Comments, "errors": ErrorTexts, "files": Files,
	"doors": Doors, "tests": Tests, "paths": Paths, "links": Links, "snippets": Snippets, "pins": Pins,
}

func repository(t *testing.T) *Tree {
	t.Helper()
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestRepository(t *testing.T) {
	tree := repository(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, f := range rule(tree) {
				t.Error(f)
			}
		})
	}
}

// TestRulesCanFail applies each rule to the trees of its name in testdata. The
// comment of an archive is what the rule finds there.
func TestRulesCanFail(t *testing.T) {
	shown := map[string]bool{}
	for _, file := range archives(t) {
		t.Run(file.name, func(t *testing.T) {
			rule, _, _ := strings.Cut(file.name, "_")
			find := rules[rule]
			if rule == "commands" {
				find = func(t *Tree) []Finding { return Commands(t, fakeHelp) }
			}
			if find == nil {
				t.Fatalf("no rule %q", rule)
			}
			var got bytes.Buffer
			for _, f := range find(file.tree) {
				got.WriteString(f.String() + "\n")
			}
			if got.String() != file.want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), file.want)
			}
			if file.want != "" {
				shown[rule] = true
			}
		})
	}
	for name := range rules {
		if !shown[name] {
			t.Errorf("nothing in testdata breaks the rule %s", name)
		}
	}
	if !shown["commands"] {
		t.Error("nothing in testdata breaks the rule commands")
	}
}

type archive struct {
	name string
	want string
	tree *Tree
}

// archives reads the trees in testdata: a file begins with what is to be found,
// then every line "-- NAME --" begins a file of the tree.
func archives(t *testing.T) []archive {
	t.Helper()
	names, err := filepath.Glob("testdata/*.tree")
	if err != nil {
		t.Fatal(err)
	}
	var all []archive
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		a := archive{name: strings.TrimSuffix(filepath.Base(name), ".tree")}
		files := fstest.MapFS{"go.mod": {Data: []byte("module example.com/m\n")}}
		var open *fstest.MapFile
		for line := range strings.Lines(string(data)) {
			mark, begins := strings.CutPrefix(line, "-- ")
			switch {
			case begins:
				open = &fstest.MapFile{}
				files[strings.TrimSuffix(mark, " --\n")] = open
			case open == nil:
				a.want += line
			default:
				open.Data = append(open.Data, line...)
			}
		}
		if a.tree, err = Load(files); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, a)
	}
	return all
}

// fakeHelp is a program with the commands "run" and "plugin test".
func fakeHelp(command ...string) (string, bool) {
	text, ok := map[string]string{
		"run":         "Flags:\n  -h, --help\n      --session ID\n",
		"plugin":      "Available Commands:\n  test\n",
		"plugin test": "Flags:\n      --update\n",
	}[strings.Join(command, " ")]
	return text, ok
}
