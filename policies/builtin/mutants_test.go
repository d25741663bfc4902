package main_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/guestcode"
	"github.com/sandboxd/sandboxd/policies"
)

// leastNoticed is how many of a hundred changed guards must be noticed, denials or not.
const leastNoticed = 80

// unreached are the lines of the guards that no row comes to, by the package and the line, the
// one before it in front, and why. All others are reached, and with them every denial.
var unreached = map[string]string{
	"piiredact: if err != nil { panic(err) // which denies; the document has been read without":                                         "the same text was looked at before",
	"secretscan:  func newForm(name, literal, expr string) form {":                                                                      "when the module starts, which is not watched",
	"secretscan: func newForm(name, literal, expr string) form { return form{name, literal, regexp.MustCompile(expr), beginning(expr)}": "when the module starts, which is not watched",
	"secretscan: if err != nil { panic(err) // the expression was compiled before":                                                      "one that is none is refused by Check",
	"secretscan: if err != nil { panic(err) // which denies; the document has been read without":                                        "the same text was looked at before",
	`injectionquarantine: if err != nil { return ""`:                                                                                    "a result that was read as JSON can be written",
	"changewindow: if err != nil { panic(err) // which denies; Check has found the zone":                                                "a zone that is none is refused by Check",
	"toolpin: if definition, err = guest.Definition(d.Name, d.Description, d.Input, d.Output); err != nil { return false":               "schemas that were read as JSON are JSON",
	"modelbudget: if err != nil { panic(err) // which denies; the host never asks about what is no JSON":                                "a document was read before",
	"modelbudget: if err := q.KV().Set(pending(q), size.Tokens, 24*time.Hour); err != nil { return views.Unavailable(err)":              "a store that is down has failed when the tokens were added",
	"modelbudget: if err := q.KV().Delete(pending(q)); err != nil { return views.Unavailable(err)":                                      "a store that is down has failed when the estimate was asked for",
	"outputshape: if err != nil { panic(err) // which denies; the host never asks about what is no JSON":                                "a document was read before",
	"outputshape: if err != nil { panic(err) // which denies; Check has read it":                                                        "a schema that is none is refused by Check",
	"outputshape: if err != nil { return nil, err":                                                                                      "settings that were read as JSON can be written",
	"views: if err != nil { return out, false":                                                                                          "a schema that was read as JSON can be written",
	"views: if err != nil { return nil, err":                                                                                            "a text that was read as JSON can be written, and an expression was compiled before",
	"views: } return 0, false":                                                                                                          "a decimal digit is in one of the two tables",
	"views: if err != nil { panic(err)":                                                                                                 "the host never asks about what is no JSON",
}

// Every denial of a first-party guard stands in its own table. Its rows come to every line of the
// guard's package, and those of all tables together to every line of package views, which guards share.
// What changes a denial, in the guard or in what it shares, is noticed by the guard's table alone, or excused
// there with a reason. The changes are those of policy test --mutate at all places
// where one way led to denials only. With ALL_MUTANTS set all other changes are tried too,
// which takes minutes; most of those must be noticed, those of package views by any table.
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
	lines := &lines{t: t, left: map[string]bool{}}
	for excuse := range unreached {
		lines.left[excuse] = true
	}
	all := os.Getenv("ALL_MUTANTS") != ""
	denials, noticed, tried := 0, 0, 0
	shared := map[string]bool{} // other changes of package views, and whether any table notices
	for _, g := range cover.Module().Manifest().Guards {
		tab, cover := table(t, g.Name), cover.Again()
		if _, err := tab.Run(t.Context(), cover.Guard(g.Name), nil, func(r authortest.Result) {
			cover.Row(authortest.TestRow{File: r.File, Name: r.Name})
			if !r.OK {
				t.Errorf("%s:%d: %s: %+v", r.File, r.Line, r.Name, r.Problems)
			}
		}); err != nil {
			t.Fatal(err)
		}
		lines.missed(cover, strings.ReplaceAll(g.Name, "-", ""))
		lines.share(cover)
		mutants, err := cover.Mutate(t.Context(), []*authortest.Table{tab}, func(m authortest.Mutant) bool { return m.Deny || all })
		if err != nil {
			t.Fatal(err)
		}
		excuses := maps.Clone(tab.Equivalent)
		for _, m := range mutants {
			if !m.Deny && strings.HasPrefix(m.Function, "views.") {
				shared[m.ID] = shared[m.ID] || m.Noticed
				continue
			}
			tried++
			if m.Deny {
				denials++
			}
			if m.Noticed {
				noticed++
				continue
			}
			text := fmt.Sprintf("%s: %s:%d: %s: %s; row %q comes by", g.Name, m.File, m.Line, m.ID, m.Change, m.Row)
			switch _, is := excuses[m.ID]; {
			case is:
				delete(excuses, m.ID)
			case m.Deny:
				t.Error(text)
			default:
				t.Log(text)
			}
		}
		for id := range excuses {
			t.Errorf("%s: excuse for %s, which does not survive", g.Name, id)
		}
	}
	lines.shared()
	for id, is := range shared {
		if tried++; is {
			noticed++
		} else {
			t.Log(id)
		}
	}
	for excuse := range lines.left {
		t.Errorf("excuse for %q, which rows come to or which is not there", excuse)
	}
	t.Logf("%d changed guards, %d of them at a denial; %d noticed", tried, denials, noticed)
	if denials < 600 {
		t.Errorf("%d changes at denials: the guards have more", denials)
	}
	if noticed*100 < leastNoticed*tried {
		t.Errorf("%d of %d changed guards noticed, want %d%%", noticed, tried, leastNoticed)
	}
}

// lines looks which lines of packages rows came to.
type lines struct {
	t    *testing.T
	left map[string]bool // excuses that were not needed

	views map[guestcode.Site]bool // lines of package views that no row came to so far; nil: no table yet
}

// missed reports the lines of a guard's own package that no row came to and that are not excused.
func (l *lines) missed(cover *authortest.Cover, name string) {
	l.t.Helper()
	for _, site := range cover.Missed() {
		if path.Base(path.Dir(site.File)) == name {
			l.report(name, site)
		}
	}
}

// share notes which lines of package views the rows of a table did not come to.
func (l *lines) share(cover *authortest.Cover) {
	missed := map[guestcode.Site]bool{}
	for _, site := range cover.Missed() {
		if path.Base(path.Dir(site.File)) == "views" && (l.views == nil || l.views[site]) {
			missed[site] = true
		}
	}
	l.views = missed
}

// shared reports the lines of package views that no row of any table came to.
func (l *lines) shared() {
	l.t.Helper()
	for site := range l.views {
		l.report("views", site)
	}
}

// report reports a line that no row came to, unless it is excused.
func (l *lines) report(name string, site guestcode.Site) {
	l.t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name, path.Base(site.File)))
	if err != nil {
		l.t.Fatal(err)
	}
	all := strings.Split(string(data), "\n")
	text := strings.TrimSpace(all[max(site.Line-2, 0)]) + " " + strings.TrimSpace(all[site.Line-1])
	excuse := name + ": " + text
	if unreached[excuse] == "" {
		l.t.Errorf("no row comes to %s/%s:%d: %s", name, site.Name(), site.Line, text)
	}
	delete(l.left, excuse)
}
