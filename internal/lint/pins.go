package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Where the vectors are, and which of them show what.
const (
	vectorDir   = "testdata/conformance/vectors"
	passingFile = "testdata/conformance/passing.txt"
	deviations  = "testdata/conformance/DEVIATIONS.md"
)

var deviating = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|")

// Pins finds statements that nothing pins: rows of a table whose last column is
// headed "pinned by" that name there no test and no vector, or anything else, or a
// vector that neither passes nor is a known deviation. If there is such a table,
// every vector that passes has to stand in one. [Links] finds tests and files
// that are not there.
func Pins(t *Tree) []Finding {
	known := map[string]bool{}
	for line := range strings.Lines(string(t.Files[passingFile])) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			known[line] = true
		}
	}
	passing := maps.Clone(known)
	for _, m := range deviating.FindAllStringSubmatch(string(t.Files[deviations]), -1) {
		known[m[1]] = true
	}
	var found []Finding
	tables := false
	for _, name := range t.documents() {
		pinned := false // the line is in such a table
		for n, line := range prose(t.Files[name]) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			last := strings.TrimSpace(cells[len(cells)-1])
			switch {
			case !strings.HasPrefix(line, "|"):
				pinned = false
			case last == "pinned by":
				pinned, tables = true, true
			case pinned && strings.Trim(last, "-: ") != "":
				for _, why := range badPins(name, last, known, passing) {
					found = append(found, Finding{name, n + 1, why})
				}
			case pinned && strings.Trim(line, "|-: ") != "":
				found = append(found, Finding{name, n + 1, "nothing pins this"})
			}
		}
	}
	if tables {
		for _, vector := range slices.Sorted(maps.Keys(passing)) {
			found = append(found, Finding{passingFile, 0, vector + " pins no statement of a document"})
		}
	}
	return inOrder(found)
}

// badPins says what is wrong with the names in a cell. Vectors that are all right
// are taken out of unused.
func badPins(document, cell string, known, unused map[string]bool) []string {
	var bad []string
	for _, m := range link.FindAllStringSubmatch(cell, -1) {
		text, target := m[1], path.Join(path.Dir(document), m[2])
		if testName.MatchString(text) {
			continue
		}
		vector := strings.TrimSuffix(path.Base(target), ".json")
		switch {
		case path.Dir(target) != vectorDir || text != "`"+vector+"`":
			bad = append(bad, fmt.Sprintf("%s is neither a test nor a vector", text))
		case !known[vector]:
			bad = append(bad, fmt.Sprintf("vector %s does not pass, and is no known deviation", vector))
		}
		delete(unused, vector)
	}
	if rest := strings.Trim(link.ReplaceAllString(cell, ""), ", "); rest != "" || len(link.FindString(cell)) == 0 {
		bad = append(bad, fmt.Sprintf("%q: want links to tests and vectors only", cell))
	}
	return bad
}
