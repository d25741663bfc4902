package guestlang

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// put writes empty files into a new folder.
func put(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := write(filepath.Join(dir, name), ""); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		files string
		want  string // language, entry, manifest, policy
	}{
		{"", ""},
		{"README.md", ""},
		{"other.c", ""},
		{"tool.c/x", ""},
		{"main.go", "go   false"},
		{"main.go plugin.yaml", "go   false"},
		{"policy.rego", ""},
		{"rules.rego policy.yaml", "rego  policy.yaml true"},
		{"tool.c", "c tool.c plugin.yaml false"},
		{"policy.ts sandboxd.ts", "assemblyscript policy.ts policy.yaml true"},
		{"tool.rs main.go", "rust tool.rs plugin.yaml false"},
		{"policy.c policy.yaml", "c policy.c policy.yaml true"},
	} {
		s, ok := Find(put(t, strings.Fields(c.files)...))
		got := ""
		if ok {
			got = strings.Join([]string{s.Language.Name, s.Entry, s.Manifest, map[bool]string{false: "false", true: "true"}[s.Policy]}, " ")
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.files, got, c.want)
		}
	}
}

// TestNew makes a plugin and a policy in every language: it is recognised, named as
// asked, has its tests, and a copy of the SDK that can be replaced.
func TestNew(t *testing.T) {
	for _, l := range languages {
		for _, policy := range []bool{false, true} {
			if !policy && !l.Plugins {
				continue
			}
			dir := filepath.Join(t.TempDir(), "made")
			if err := l.New(dir, "made", policy); err != nil {
				t.Fatal(err)
			}
			s, ok := Find(dir)
			if !ok || s.Language != l || s.Manifest != "" && s.Policy != policy {
				t.Errorf("%s, policy %v: found %+v, %v", l.Name, policy, s, ok)
			}
			if s.Manifest != "" {
				if data, err := os.ReadFile(filepath.Join(dir, s.Manifest)); err != nil || !strings.Contains(string(data), "\nname: made\n") {
					t.Errorf("%s: manifest %q, error %v", l.Name, data, err)
				}
			}
			tests, err := filepath.Glob(filepath.Join(dir, "tests", "*.*.*"))
			if err != nil || len(tests) != 1 {
				t.Errorf("%s: tests %v, error %v", l.Name, tests, err)
			}
			if name, err := s.Refresh(); err != nil || name != l.SDK {
				t.Errorf("%s: refreshed %s, error %v", l.Name, name, err)
			}
			if err := os.RemoveAll(filepath.Join(dir, l.SDK)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Refresh(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: refreshed what is not there: error %v", l.Name, err)
			}
			for file, text := range map[string]string{l.SDK: "mine", filepath.Join(l.SDK, "go.mod"): "module mine\n"} {
				if (l.Name == "go") == (file == l.SDK) {
					continue
				}
				if err := write(filepath.Join(dir, file), text); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Refresh(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: refreshed what is something else: error %v", l.Name, err)
			}
		}
	}
}

// TestMissing builds where there is no compiler at all.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, l := range languages {
		if l.suffix == "" {
			continue
		}
		s, ok := Find(put(t, "tool"+l.suffix))
		if !ok {
			t.Fatal(l.Name)
		}
		_, err := Build(t.Context(), s, "")
		missing, ok := errors.AsType[*MissingError](err)
		if !ok || missing.Language != l.Title || !strings.HasPrefix(missing.Error(), l.Title+" needs ") || missing.Install == "" {
			t.Errorf("%s: error %v", l.Name, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, policy := range []bool{false, true} {
		list := Names(policy)
		for _, name := range strings.Split(strings.Replace(list, " or ", ", ", 1), ", ") {
			if l := Named(name); l == nil || !policy && !l.Plugins {
				t.Errorf("%q names %q", list, name)
			}
		}
	}
	if Named("cobol") != nil || strings.Contains(Names(false), "rego") {
		t.Error("a language that is none")
	}
}

// TestEnvironment checks that nothing of the user's reaches a compiler that would
// change what it makes.
func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/bin", "CPATH=/mine", "RUSTFLAGS=-g", "NODE_OPTIONS=--x", "HOME=/h", "C_INCLUDE_PATH=/mine"})
	if strings.Join(got, " ") != "PATH=/bin HOME=/h LC_ALL=C" {
		t.Errorf("compilers see %v", got)
	}
}
