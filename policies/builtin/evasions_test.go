package main_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/authortest"
)

// kinds are the columns of the table of what guards resist.
var kinds = []string{"encodings", "nesting", "case", "duplicate keys", "look-alikes"}

// Every guard resists every kind of evasion, by a row that its page names, or the page says
// why the kind has no place there.
func TestEvasions(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "| guard | "+strings.Join(kinds, " | ")+" |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	named := regexp.MustCompile("`([^`]+)`")
	reasons := regexp.MustCompile(`^(exact|unread|other)$|^((exact|unread): )?` + "`A [^`]+`(, `A [^`]+`)*(; other letters: other)?$")
	seen := map[string]bool{}
	cells := 0
	for line := range strings.Lines(section) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if len(row) != 1+len(kinds) {
			continue // the line below the names of columns
		}
		guard := strings.Trim(row[0], "`")
		seen[guard] = true
		rows := names(t, guard)
		for i, cell := range row[1:] {
			cells++
			if !reasons.MatchString(cell) {
				t.Errorf("%s, %s: %q: want rows that are attacks, or why there are none", guard, kinds[i], cell)
			}
			for _, m := range named.FindAllStringSubmatch(cell, -1) {
				if !slices.Contains(rows, m[1]) {
					t.Errorf("%s, %s: its table has no row %q", guard, kinds[i], m[1])
				}
			}
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

// names returns the names of the rows of a guard's table.
func names(t *testing.T, guard string) []string {
	t.Helper()
	var all []string
	if _, err := table(t, guard).Run(t.Context(), nil, func(name string) bool {
		all = append(all, name)
		return false
	}, func(authortest.Result) {}); err != nil {
		t.Fatal(err)
	}
	return all
}
