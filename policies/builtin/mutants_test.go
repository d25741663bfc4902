package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/policies"
)

// leastNoticed is how many of a hundred changed guards must be noticed, denials or not.
const leastNoticed = 80

// Every denial of a first-party guard stands in its table: what changes it is noticed, or
// excused there with a reason. The changes are those of policy test --mutate at all places
// where one way led to denials only. With ALL_MUTANTS set all other changes are tried too,
// which takes minutes; most of those must be noticed.
func TestDenialsAreNoticed(t *testing.T) {
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	wasm, _, err := app.Modules{Engine: engine}.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := policies.CopyBuiltin(dir); err != nil {
		t.Fatal(err)
	}
	listing, err := guestbuild.List(t.Context(), filepath.Join(dir, filepath.FromSlash(policies.BuiltinDir)))
	if err != nil {
		t.Fatal(err)
	}
	cover, err := authortest.OpenCover(t.Context(), engine, wasm, listing)
	if err != nil {
		t.Fatal(err)
	}
	var tables []*authortest.Table
	excused := map[string]string{}
	for _, g := range cover.Module().Manifest().Guards {
		tab := table(t, g.Name)
		for id, why := range tab.Equivalent {
			excused[id] = why
		}
		tables = append(tables, tab)
		if _, err := tab.Run(t.Context(), cover.Guard(g.Name), nil, func(r authortest.Result) {
			cover.Row(authortest.TestRow{File: r.File, Name: r.Name})
			if !r.OK {
				t.Errorf("%s:%d: %s: %+v", r.File, r.Line, r.Name, r.Problems)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	all := os.Getenv("ALL_MUTANTS") != ""
	mutants, err := cover.Mutate(t.Context(), tables, func(m authortest.Mutant) bool { return m.Deny || all })
	if err != nil {
		t.Fatal(err)
	}
	denials, noticed := 0, 0
	for _, m := range mutants {
		if m.Deny {
			denials++
		}
		if m.Noticed {
			noticed++
			continue
		}
		text := fmt.Sprintf("%s:%d: %s: %s; row %q comes by", m.File, m.Line, m.ID, m.Change, m.Row)
		switch _, is := excused[m.ID]; {
		case is:
			delete(excused, m.ID)
		case m.Deny:
			t.Error(text)
		default:
			t.Log(text)
		}
	}
	t.Logf("%d changed guards, %d of them at a denial; %d noticed", len(mutants), denials, noticed)
	if denials < 400 {
		t.Errorf("%d changes at denials: the guards have more", denials)
	}
	if noticed*100 < leastNoticed*len(mutants) {
		t.Errorf("%d of %d changed guards noticed, want %d%%", noticed, len(mutants), leastNoticed)
	}
	for id := range excused {
		t.Errorf("excuse for %s, which does not survive", id)
	}
}
