package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// documents returns the names of the Markdown files that people read: all but
// those below a testdata directory that came with the data.
func (t *Tree) documents() []string {
	var names []string
	for _, name := range t.sorted(".md") {
		if !strings.Contains("/"+name, "/testdata/") {
			names = append(names, name)
		}
	}
	return names
}

var (
	link     = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	code     = regexp.MustCompile("`[^`]*`")
	testName = regexp.MustCompile("^`((?:Test|Fuzz|Example|Benchmark)\\w+)`$")
	scheme   = regexp.MustCompile(`^[a-z]+:`)
)

// Links finds relative links of documents that lead nowhere: to no file, to no
// heading, or, where the text is the name of a test, to a file without it. It
// also finds names of tests and vectors in tables that are not linked.
func Links(t *Tree) []Finding {
	var found []Finding
	for _, name := range t.documents() {
		for n, line := range prose(t.Files[name]) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if why := t.broken(name, m[1], m[2]); why != "" {
					found = append(found, Finding{name, n + 1, fmt.Sprintf("link %s: %s", m[2], why)})
				}
			}
			rest := link.ReplaceAllString(line, "")
			for _, span := range code.FindAllString(rest, -1) {
				if testName.MatchString(span) {
					found = append(found, Finding{name, n + 1, fmt.Sprintf("%s is not linked", span)})
				}
			}
		}
	}
	return inOrder(found)
}

// broken says why a link leads nowhere.
func (t *Tree) broken(from, text, target string) string {
	if scheme.MatchString(target) {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" {
		file = from
	} else {
		file = path.Join(path.Dir(from), file)
	}
	if !t.exists(file) {
		return "no such file"
	}
	if m := testName.FindStringSubmatch(text); m != nil && !strings.Contains(string(t.Files[file]), "\nfunc "+m[1]+"(") {
		return "no function " + m[1] + " there"
	}
	if anchor != "" && !slices.Contains(anchors(t.Files[file]), anchor) {
		return "no such heading"
	}
	return ""
}

// prose returns the lines of a document, those of code blocks empty.
func prose(data []byte) []string {
	lines := strings.Split(string(data), "\n")
	inside := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || inside {
			lines[i] = ""
		}
		if fence {
			inside = !inside
		}
	}
	return lines
}

// anchors returns the anchors that GitHub gives the headings of a document.
func anchors(data []byte) []string {
	var all []string
	for _, line := range prose(data) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		title = link.ReplaceAllString(title, "$1")
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return all
}

// A block is a fenced block of a document.
type block struct {
	file   string
	line   int    // of its first line of text
	kind   string // what follows the fence
	before string // the line before the fence
	lines  []string
}

func blocks(name string, data []byte) []block {
	var all []block
	var open *block
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		rest, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{file: name, line: i + 2, kind: strings.TrimSpace(rest)}
			if i > 0 {
				open.before = lines[i-1]
			}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		}
	}
	return all
}

var source = regexp.MustCompile(`^<!-- from (\S+) -->$`)

// Snippets finds blocks of Go in documents that are not taken from a file that
// compiles. The line before a block names the file: <!-- from PATH -->.
func Snippets(t *Tree) []Finding {
	var found []Finding
	for _, name := range t.documents() {
		for _, b := range blocks(name, t.Files[name]) {
			if b.kind != "go" {
				continue
			}
			m := source.FindStringSubmatch(b.before)
			switch {
			case m == nil:
				found = append(found, Finding{name, b.line, "Go without <!-- from PATH --> before it"})
			case !strings.HasSuffix(m[1], ".go") || t.Files[m[1]] == nil:
				found = append(found, Finding{name, b.line, "no Go file " + m[1]})
			case !within(b.lines, strings.Split(string(t.Files[m[1]]), "\n")):
				found = append(found, Finding{name, b.line, "is not in " + m[1]})
			}
		}
	}
	return inOrder(found)
}

// within reports whether lines stand in text one after the other, all indented
// by the same amount.
func within(lines, text []string) bool {
	if len(lines) == 0 {
		return false
	}
	for i := range len(text) - len(lines) + 1 {
		for indent := range 8 {
			tabs := strings.Repeat("\t", indent)
			if slices.EqualFunc(lines, text[i:i+len(lines)], func(a, b string) bool { return b == a && a == "" || b == tabs+a }) {
				return true
			}
		}
	}
	return false
}
