package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/guestcode"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// percent reads the value of --cover or --mutate; "" is 0.
func percent(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err == nil && (n < 0 || n > 100) {
		err = strconv.ErrRange
	}
	return n, err
}

// openCover loads a module so that its tests are watched. Of source the compiler is asked
// where each instruction comes from; of policies in Rego the rules are known.
func (e *env) openCover(ctx context.Context, engine *host.Engine, g *guestFile) (*authortest.Cover, error) {
	var listing *guestbuild.Listing
	if source, is := guestlang.Find(e.path(g.name)); g.made && is {
		var err error
		if listing, err = guestlang.List(ctx, source); err != nil {
			return nil, moduleError(g.name, g.wasm, err)
		}
	}
	if g.built.Named != nil {
		listing = &guestbuild.Listing{Wasm: g.built.Named}
	}
	defer e.progress.begin(fmt.Sprintf("compiling %s, watched", g.short()))()
	c, err := authortest.OpenCover(ctx, engine, g.wasm, listing)
	if errors.Is(err, guestcode.ErrNoNames) {
		return nil, &commandError{What: fmt.Sprintf("%s: %v", g.name, err), Code: abi.NotFound, Exit: exitMisused}
	}
	if err != nil {
		return nil, moduleError(g.name, g.wasm, err)
	}
	return c, nil
}

// ended says that a test has ended, whose calls were watched.
func (t *tested) ended(res authortest.Result) {
	if t.cover != nil {
		t.cover.Row(authortest.TestRow{File: res.File, Name: res.Name})
	}
}

// watched says what the tests of a module reached, and which changes of it they notice.
func (r *testRun) watched(ctx context.Context, t *tested) error {
	if !t.due {
		return nil // not asked for, or told before
	}
	if r.flags.cover != "" {
		r.covered(t)
	}
	if r.flags.mutate == "" || len(t.tables) == 0 {
		t.untold = false
		return nil
	}
	if r.failed > 0 {
		r.say("mutate  not tried, as rows fail\n")
		return nil
	}
	mutants, err := t.cover.Mutate(ctx, t.tables, nil)
	if err != nil {
		return err
	}
	r.mutated(t, mutants)
	t.untold = false
	return nil
}

// listed is how many functions are named where all is well.
const listed = 8

// covered says which branches were taken.
func (r *testRun) covered(t *tested) {
	functions := t.cover.Functions()
	r.line(map[string]any{"kind": "cover", "module": t.file, "functions": functions})
	ways, taken := 0, 0
	var each []string
	for _, f := range functions {
		ways, taken = ways+f.Ways, taken+f.Taken
		each = append(each, fmt.Sprintf("%s %d of %d", foreign(f.Function, true), f.Taken, f.Ways))
	}
	if len(each) > listed {
		each = []string{fmt.Sprintf("%d of %d in %s", taken, ways, plural(len(functions), "function"))}
	}
	r.say("cover   %s branches\n", strings.Join(each, "   "))
	for _, f := range functions {
		for i, w := range f.Never {
			same := func(o authortest.Way) bool { return w.Line > 0 && o.File == w.File && o.Line == w.Line }
			if slices.ContainsFunc(f.Never[:i], same) {
				continue
			}
			n, times := 0, ""
			for _, o := range f.Never[i:] {
				if same(o) {
					n++
				}
			}
			if n > 1 {
				times = fmt.Sprintf(", %d ways", n)
			}
			r.say("        never taken: %s  %s%s   %s\n", foreign(f.Function, true), place(w.File, w.Line, w.At), times, r.source(t, w.File, w.Line))
		}
	}
	if least, _ := percent(r.flags.cover); ways > 0 && taken*100 < least*ways {
		t.short = append(t.short, fmt.Sprintf("%s: %d%% of its branches are taken, want %d%%", t.file, taken*100/ways, least))
	}
}

// place is a line of source, or an offset in the module, or what tables say.
func place(file string, line, at int) string {
	switch {
	case line == 0 && at == 0:
		return "table"
	case line == 0:
		return fmt.Sprintf("at byte %d", at)
	}
	return fmt.Sprintf("%s:%d", foreign(file, true), line)
}

// source returns a line of the source that a module was built from, if the file lies in the
// folder itself.
func (r *testRun) source(t *tested, file string, line int) string {
	return r.sourceLine(t.source, file, line, r.flags.full)
}

func (e *env) sourceLine(dir, file string, line int, full bool) string {
	if dir == "" || line == 0 {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(e.path(dir), file))
	if err != nil {
		return "" // it is in another package
	}
	lines := strings.Split(string(data), "\n")
	if line > len(lines) {
		return ""
	}
	return foreign(strings.TrimSpace(lines[line-1]), full)
}

// mutated says which changed guards the tables notice.
func (r *testRun) mutated(t *tested, mutants []authortest.Mutant) {
	excused := map[string]string{}
	for _, table := range t.tables {
		for id, why := range table.Equivalent {
			excused[id] = why
		}
	}
	noticed, equal := 0, 0
	var left []authortest.Mutant
	for _, m := range mutants {
		why, is := excused[m.ID]
		switch {
		case m.Noticed:
			noticed++
			continue // to be told if it is called equivalent
		case is:
			equal++
		default:
			left = append(left, m)
		}
		delete(excused, m.ID)
		r.line(mutantLine{"mutant", t.file, m, why})
	}
	r.line(map[string]any{"kind": "mutate", "module": t.file, "changed": len(mutants), "noticed": noticed, "equivalent": equal})
	more := ""
	if equal > 0 {
		more = fmt.Sprintf(", %d equivalent", equal)
	}
	r.say("mutate  %s, %d noticed%s\n", plural(len(mutants), "changed guard"), noticed, more)
	for _, m := range left {
		r.say("        %s  %s   %s: %s   %s\n", r.palette(r.stdout).red("SURVIVED"), place(m.File, m.Line, m.At), foreign(m.ID, true), m.Change, r.source(t, m.File, m.Line))
		r.say("                  no row tells them apart; %q comes by\n", foreign(m.Row, r.flags.full))
	}
	if bar, _ := percent(r.flags.mutate); noticed*100 < bar*(noticed+len(left)) {
		survived := "1 changed guard is"
		if len(left) > 1 {
			survived = fmt.Sprintf("%d changed guards are", len(left))
		}
		t.short = append(t.short, fmt.Sprintf("%s: %s not noticed", t.file, survived))
	}
	if r.match != nil {
		return // rows that were not run may notice
	}
	for _, id := range slices.Sorted(maps.Keys(excused)) {
		t.short = append(t.short, fmt.Sprintf("%s: equivalent %q: no change of that name survives", t.file, id))
	}
}

// A mutantLine is what --json says of a changed guard that is not noticed.
type mutantLine struct {
	Kind   string `json:"kind"`
	Module string `json:"module"`
	authortest.Mutant
	Equivalent string `json:"equivalent,omitempty"` // why it does the same
}
