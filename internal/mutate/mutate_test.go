package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const sample = `package sample

import "errors"

const big = 1 > 0

type T struct{ n int }

func (t *T) f(a, b int, ok bool) (bool, error) {
	if a < b && !ok {
		t.n++
		t.Logger.Warn("nothing of this")
		return false, errors.New("no")
	}
	for a > b {
		x := a
		t.n = x
		break
	}
	g(func() bool { return ok })
	switch {
	case ok:
		defer g(nil)
		return a == b, nil
	}
	return t.h(a) == nil, nil
}

func (t *T) h(int) *T {
	if t != nil {
		return t
	}
	return nil
}

func g(func() bool) {
	return
}
`

func TestMutants(t *testing.T) {
	s, err := mutants("sample.go", []byte(sample), 5)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, m := range s.all() {
		got = append(got, m.function+": "+m.change())
		if m.id != i+5 {
			t.Errorf("mutant %d has the id %d", i, m.id)
		}
	}
	slices.Sort(got)
	want := []string{
		"T.f: !ok -> ok", "T.f: a < b && !ok -> a < b || !ok", "T.f: a < b -> a <= b", "T.f: a == b -> a != b", "T.f: a > b -> a >= b", "T.f: break -> (nothing)",
		"T.f: defer g(nil) -> (nothing)", "T.f: g(func() bool { return ok }) -> (nothing)", "T.f: ok -> !ok",
		`T.f: return false, errors.New("no") -> return !(false), errors.New("no")`, `T.f: return false, errors.New("no") -> return false, nil`,
		"T.f: return ok -> return !(ok)", "T.f: t.h(a) == nil -> t.h(a) != nil", "T.f: t.n = x -> (nothing)", "T.f: t.n++ -> (nothing)",
		"T.h: return t -> return nil", "T.h: t != nil -> t == nil", "g: return -> (nothing)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants\n got %q\nwant %q", got, want)
	}
	schema := s.schema()
	if _, err := parser.ParseFile(token.NewFileSet(), "schema.go", schema, 0); err != nil {
		t.Errorf("%v in\n%s", err, schema)
	}
	for _, m := range s.all() {
		if n := strings.Count(schema, switchName); n != len(want) {
			t.Fatalf("%d switches for %d mutants, among them %s", n, len(want), m.change())
		}
	}
}

// A module is a small one in which the tool is run.
type module struct {
	t    *testing.T
	root string
}

func newModule(t *testing.T, lib, tests string) module {
	m := module{t, t.TempDir()}
	m.write("go.mod", "module sample\n\ngo 1.26.0\n")
	m.write("lib.go", "package lib\n"+lib)
	m.write("lib_test.go", "package lib\n"+tests)
	return m
}

func (m module) write(name, text string) string {
	m.t.Helper()
	name = filepath.Join(m.root, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return name
}

// mutate runs the tool with a list of equivalent mutants, if any, and returns its report.
func (m module) mutate(list string) (string, error) {
	var out bytes.Buffer
	if list != "" {
		list = m.write("list", list)
	}
	err := mutate(m.t.Context(), &out, m.root, list, "", 2, []string{"lib.go"})
	return out.String(), err
}

// TestMutate runs the tool on a small module: what a test notices is killed, also in
// a process that it starts, what none does is reported, and the list is kept honest.
func TestMutate(t *testing.T) {
	m := newModule(t, `
func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Both(a, b bool) bool { return a && b }

func Not(a bool) bool { return !a }

func Never(a bool) bool { return a }
`, `
import (
	"os"
	"os/exec"
	"testing"
)

func TestAll(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 || Both(true, false) || Both(false, true) || !Both(true, true) {
		t.Fatal()
	}
}

func TestChild(t *testing.T) {
	if os.Getenv("CHILD") != "" {
		if Not(true) {
			os.Exit(1)
		}
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "CHILD=yes")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}
`)
	out, err := m.mutate("lib.go Max\na > b -> a >= b\nthe same number\n\nlib.go Min\na -> b\nnowhere\n")
	if err == nil || !strings.Contains(err.Error(), "no such mutant: lib.go Min: a -> b") {
		t.Errorf("error %v", err)
	}
	if want := "unreached lib.go Never\n  line 14: return a -> return !(a)\n6 mutants: 4 killed (66.7 %), 0 timed out, 1 equivalent (16.7 %), 1 survived\n"; out != want {
		t.Errorf("report\n%s\nwant\n%s", out, want)
	}
	out, err = m.mutate("lib.go Both\na && b -> a || b\nno\n")
	if err == nil || !strings.Contains(err.Error(), "a test notices it: lib.go Both") || !strings.Contains(out, "survives  lib.go Max\n  line 4: a > b -> a >= b\n") {
		t.Errorf("error %v, report\n%s", err, out)
	}
	if _, err = m.mutate("lib.go Both\n"); err == nil || !strings.Contains(err.Error(), "has 1 lines") {
		t.Errorf("error %v", err)
	}
}

// TestThresholds: too few killed, too many excused, and tests that fail anyway.
func TestThresholds(t *testing.T) {
	m := newModule(t, "\nfunc Both(a, b bool) bool { return a && b }\n", `
import "testing"

func TestNothing(t *testing.T) { Both(true, true) }
`)
	if _, err := m.mutate(""); err == nil || !strings.Contains(err.Error(), "0.0 % of the mutants are killed: want 90 %") {
		t.Errorf("error %v", err)
	}
	m.write("lib_test.go", `package lib

import "testing"

func TestAll(t *testing.T) {
	if Both(true, false) || Both(false, true) || !Both(true, true) {
		t.Fatal()
	}
}
`)
	if out, err := m.mutate(""); err != nil || !strings.Contains(out, "3 mutants: 3 killed (100.0 %)") {
		t.Errorf("error %v, report\n%s", err, out)
	}
	m.write("lib_test.go", "package lib\n\nimport \"testing\"\n\nfunc TestNo(t *testing.T) { t.Fatal(\"broken\") }\n")
	if _, err := m.mutate(""); err == nil || !strings.Contains(err.Error(), "without a mutant: TestNo fails") {
		t.Errorf("error %v", err)
	}
}

// TestTimeOut: a mutant that never ends is stopped, and is not said to be noticed.
func TestTimeOut(t *testing.T) {
	m := newModule(t, `
func Count(n int) (i int) {
	for i < n {
		i++
	}
	return i
}
`, `
import "testing"

func TestCount(t *testing.T) {
	if Count(3) != 3 {
		t.Fatal()
	}
}
`)
	s, err := build(t.Context(), m.root, ".", m.t.TempDir(), 2, []string{"lib.go"})
	if err != nil {
		t.Fatal(err)
	}
	for _, mutant := range s.mutants {
		if mutant.change() != "i++ -> (nothing)" {
			continue
		}
		if o, out := s.run(t.Context(), 100*time.Millisecond, s.reached[mutant.id], switchEnv+"="+strconv.Itoa(mutant.id)); o != timedOut {
			t.Errorf("outcome %d\n%s", o, out)
		}
		return
	}
	t.Fatal("no such mutant")
}

// TestListed: what the list of this module excuses is in its code.
func TestListed(t *testing.T) {
	listed, err := readEquivalent("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	read := map[string]bool{}
	for key := range listed {
		file, _, _ := strings.Cut(key, " ")
		if read[file] {
			continue
		}
		read[file] = true
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		s, err := mutants(file, text, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range s.all() {
			there[m.key()] = true
		}
	}
	for key := range listed {
		if !there[key] {
			t.Errorf("equivalent.txt lists what is no mutant: %q: name it as it is now, or leave it out and see what \"make mutate\" says", key)
		}
	}
}
