package authortest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// limit is a guard in Go whose tests are watched, and the module as an app has it.
func limit(t *testing.T, cache string) (*Cover, *host.Module) {
	t.Helper()
	const dir = "testdata/limit"
	engine, err := host.Open(t.Context(), host.Config{Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	wasm, _, err := app.Modules{Engine: engine}.Build(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	listing, err := guestbuild.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cover, err := OpenCover(t.Context(), engine, wasm, listing)
	if err != nil {
		t.Fatal(err)
	}
	return cover, module
}

func limitTable(t *testing.T, rows ...string) *Table {
	t.Helper()
	table, err := ParseTable("t.table.yaml", []byte("settings: {most: 10, forbidden: [rm]}\nbase: {phase: call, call: {tool: pay}}\nrows:\n  - "+strings.Join(rows, "\n  - ")))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// watch runs a table whose rows must pass.
func watch(t *testing.T, c *Cover, table *Table) []Result {
	t.Helper()
	var all []Result
	if _, err := table.Run(t.Context(), c.Guard(""), nil, func(r Result) {
		if !r.OK {
			t.Errorf("%s: %+v", r.Name, r.Problems)
		}
		c.Row(TestRow{r.File, r.Name})
		all = append(all, r)
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCover: compiling a guest in Go takes a while, so all of it shares a cache.
func TestCover(t *testing.T) {
	cache := t.TempDir()
	t.Run("module", func(t *testing.T) { coverIsTheModule(t, cache) })
	t.Run("branches", func(t *testing.T) { coverBranches(t, cache) })
	t.Run("changes", func(t *testing.T) { coverChanges(t, cache) })
}

// A module that is watched is the module of production: same digest, same verdicts, same
// fuel.
func coverIsTheModule(t *testing.T, cache string) {
	cover, module := limit(t, cache)
	table := limitTable(t, `[small, {args: {amount: 1}}, allow]`, `[much, {args: {amount: 11}}, deny too_much]`, `[none, {args: {}}, deny bad_amount]`)
	watched := watch(t, cover, table)
	if cover.Module().Digest() != module.Digest() {
		t.Errorf("digest %s, want %s", cover.Module().Digest(), module.Digest())
	}
	i := 0
	if _, err := table.Run(t.Context(), ModuleGuard(module, "", host.Limits{}), nil, func(r Result) {
		if w := watched[i]; r.Fuel != w.Fuel || r.Calls != w.Calls || !r.OK || r.Fuel == 0 {
			t.Errorf("row %s: %+v, watched %+v", r.Name, r, w)
		}
		i++
	}); err != nil {
		t.Fatal(err)
	}
}

// covered says what was taken, and which lines were not.
func covered(c *Cover) []string {
	var all []string
	for _, f := range c.Functions() {
		text := fmt.Sprintf("%s %d of %d", f.Function, f.Taken, f.Ways)
		for _, w := range f.Never {
			text += fmt.Sprintf(" %s:%d", w.File, w.Line)
		}
		all = append(all, text)
	}
	return all
}

func coverBranches(t *testing.T, cache string) {
	cover, _ := limit(t, cache)
	if got, want := covered(cover), []string{"check 0 of 3 main.go:25", "judge 0 of 13 main.go:32"}; !slices.Equal(got, want) {
		t.Errorf("before: %q, want %q", got, want)
	}
	watch(t, cover, limitTable(t, `[small, {args: {amount: 1}}, allow]`))
	if got, want := covered(cover), []string{"check 2 of 3 main.go:27", "judge 8 of 13 main.go:35 main.go:35 main.go:39 main.go:43 main.go:46"}; !slices.Equal(got, want) {
		t.Errorf("one row: %q, want %q", got, want)
	}
	var lines []string
	for _, site := range cover.Missed() {
		lines = append(lines, fmt.Sprintf("%s:%d", site.Name(), site.Line))
	}
	if want := []string{"main.go:27", "main.go:35", "main.go:39", "main.go:43", "main.go:46"}; !slices.Equal(lines, want) {
		t.Errorf("nothing came to %q, want %q", lines, want)
	}
}

// What survives is what no row tells apart, and nothing else.
func coverChanges(t *testing.T, cache string) {
	rows := []string{`[small, {args: {amount: 1}}, allow]`, `[much, {args: {amount: 20}}, deny too_much]`, `[most, {args: {amount: 10}}, allow]`,
		`[above, {args: {amount: 11}}, deny too_much]`, `[none, {args: {}}, deny bad_amount]`, `[text, {args: {amount: "1"}}, deny bad_amount]`,
		`[forbidden, {call: {tool: rm_all}, args: {amount: 1}}, deny forbidden]`, `[zero, {args: {amount: 0}}, allow]`,
		`[seven, {args: {amount: 7}}, deny trial]`, `[eight, {args: {amount: 8}}, allow]`, `[six, {args: {amount: 6}}, allow]`,
		`{name: below, settings: {most: -1, forbidden: []}, refused: below}`, `{name: nothing, settings: {most: 0, forbidden: []}, question: {args: {amount: 0}}, want: allow}`}
	survivors := func(rows ...string) []string {
		cover, _ := limit(t, cache)
		table := limitTable(t, rows...)
		watch(t, cover, table)
		mutants, err := cover.Mutate(t.Context(), []*Table{table}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(mutants) < 8 {
			t.Errorf("%d mutants", len(mutants))
		}
		var left []string
		for _, m := range mutants {
			if !m.Noticed {
				left = append(left, fmt.Sprintf("%s %s:%d %s %v", m.ID, m.File, m.Line, m.Change, m.Deny))
			}
		}
		return left
	}
	if got := survivors(rows...); len(got) > 0 {
		t.Errorf("all rows: %q survive", got)
	}
	for _, test := range []struct {
		without []string // rows
		want    []string
	}{
		{[]string{"most", "nothing"}, []string{"judge turned"}}, {[]string{"nothing"}, []string{"check turned"}}, // nothing tells < from <=
		{[]string{"forbidden"}, []string{"guard settings /forbidden/0"}},
		{[]string{"seven", "eight", "six"}, []string{"judge more", "judge less"}}, // each by itself
	} {
		got := survivors(slices.DeleteFunc(slices.Clone(rows), func(row string) bool {
			return slices.ContainsFunc(test.without, func(name string) bool { return strings.Contains(row[:len(name)+8], name+",") })
		})...)
		for _, want := range test.want {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("without %s: %q, want %q", test.without, got, want)
			}
		}
	}
}
