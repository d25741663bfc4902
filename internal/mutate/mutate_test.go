package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// TestMutate runs the tool on a small module: what a test notices is killed, what
// none does is reported, and the list is kept honest.
func TestMutate(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write("go.mod", "module sample\n\ngo 1.26.0\n")
	write("lib.go", `package lib

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Both(a, b bool) bool { return a && b }
`)
	write("lib_test.go", `package lib

import "testing"

func TestAll(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 || Both(true, false) || Both(false, true) || !Both(true, true) {
		t.Fatal()
	}
}
`)
	run := func(list string) (string, error) {
		var out bytes.Buffer
		err := mutate(t.Context(), &out, root, list, "", 2, []string{"lib.go"})
		return out.String(), err
	}
	out, err := run("")
	if err == nil || !strings.Contains(err.Error(), "75.0 % of the mutants are killed: want 90 %") || !strings.Contains(out, "survives  lib.go Max\n  line 4: a > b -> a >= b") {
		t.Errorf("error %v, report\n%s", err, out)
	}
	out, err = run(write("list", "lib.go Max\na > b -> a >= b\nthe same number\n\nlib.go Min\na -> b\nnowhere\n"))
	if err == nil || !strings.Contains(err.Error(), "no such mutant: lib.go Min: a -> b") || strings.Contains(out, "survives") || !strings.Contains(out, "1 equivalent") {
		t.Errorf("error %v, report\n%s", err, out)
	}
	_, err = run(write("list", "lib.go Both\na && b -> a || b\nno\n"))
	if err == nil || !strings.Contains(err.Error(), "a test notices it: lib.go Both") {
		t.Errorf("error %v", err)
	}
	if _, err = run(write("list", "lib.go Both\n")); err == nil || !strings.Contains(err.Error(), "has 1 lines") {
		t.Errorf("error %v", err)
	}
	write("lib_test.go", "package lib\n\nimport \"testing\"\n\nfunc TestNo(t *testing.T) { t.Fatal(\"broken\") }\n")
	if _, err = run(""); err == nil || !strings.Contains(err.Error(), "fail without a mutant") {
		t.Errorf("error %v", err)
	}
}
