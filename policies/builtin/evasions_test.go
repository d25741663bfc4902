package main_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
)

// kinds are the columns of the table of what guards resist.
var kinds = []string{"encodings", "nesting", "case", "duplicate keys", "look-alikes"}

// Every guard resists every kind of evasion, by a row that its page names, or the page says
// why the kind has no place there. The rows are run: the guard refuses, asks or rewrites as each wants.
func TestEvasions(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "| guard | "+strings.Join(kinds, " | ")+" |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	quoted := regexp.MustCompile("`([^`]+)`")
	reasons := regexp.MustCompile(`^(exact|unread|other|host)$|^((exact|unread): )?` + "`A [^`]+`(, `A [^`]+`)*(; other letters: other)?$")
	module := built(t)
	seen := map[string]bool{}
	cells := 0
	for line := range strings.Lines(section) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if len(row) != 1+len(kinds) {
			continue // the line below the names of columns
		}
		guard := strings.Trim(row[0], "`")
		seen[guard] = true
		rows := wants(t, guard)
		var named []string
		for i, cell := range row[1:] {
			cells++
			if !reasons.MatchString(cell) {
				t.Errorf("%s, %s: %q: want rows that are attacks, or why there are none", guard, kinds[i], cell)
			}
			for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
				named = append(named, m[1])
				if want, ok := rows[m[1]]; !ok || !want.resists() {
					t.Errorf("%s, %s: its table has no row %q that wants a refusal, a question or a rewrite: %q", guard, kinds[i], m[1], want.verdict)
				}
			}
		}
		ran := 0
		if _, err := table(t, guard).Run(t.Context(), authortest.ModuleGuard(module, guard, host.Limits{}), func(name string) bool { return slices.Contains(named, name) }, func(r authortest.Result) {
			ran++
			if !r.OK {
				t.Errorf("%s does not resist %q: %+v", guard, r.Name, r.Problems)
			}
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(named)
		if want := len(slices.Compact(named)); ran != want {
			t.Errorf("%s: %d rows ran, want %d", guard, ran, want)
		}
	}
	for guard := range costs(t) {
		if !seen[guard] {
			t.Errorf("%s does not say what %s resists", docs, guard)
		}
	}
	if want := len(kinds) * len(costs(t)); cells != want {
		t.Errorf("%s has %d cells, want %d", docs, cells, want)
	}
}
