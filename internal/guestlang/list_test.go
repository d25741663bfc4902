package guestlang

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// Of a module by clang every line is known that its author wrote; what a macro of the SDK
// stands for and what a block ends with are nobody's.
func TestDWARFLines(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata", "wasm")
	wasm, err := os.ReadFile(filepath.Join(dir, "lines.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := dwarfLines(wasm, nil, author{dir, "sandboxd.h", map[string][]string{}}.line)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for i, l := range lines {
		if i > 0 && l.At <= lines[i-1].At || l.At >= len(wasm) || (l.File == "lines.c") != (l.Line > 0) {
			t.Errorf("line %+v behind %+v", l, lines[max(0, i-1)])
		}
		found[l.Line] = true
	}
	var got []int
	for n := range found {
		got = append(got, n)
	}
	slices.Sort(got)
	if want := "[0 4 5 9 10 11]"; fmt.Sprint(got) != want {
		t.Errorf("lines %v, want %s", got, want)
	}

	lines, err = dwarfLines(wasm, nil, author{dir, "lines.c", map[string][]string{}}.line)
	if err != nil || slices.ContainsFunc(lines, func(l guestbuild.Line) bool { return l.Line > 0 }) {
		t.Errorf("a file of the SDK: lines %v, %v", lines, err)
	}
	wasm, err = os.ReadFile(filepath.Join(dir, "kernels.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if lines, err = dwarfLines(wasm, nil, nil); err != nil || len(lines) != 0 {
		t.Errorf("a module that says nothing: lines %v, %v", lines, err)
	}
}

// anyLine takes every file for the author's, but for those with a tilde.
func anyLine(name string, line, _ int) guestbuild.Line {
	if strings.HasPrefix(name, "~") {
		return guestbuild.Line{}
	}
	return guestbuild.Line{File: name, Line: line}
}

func TestMapLines(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		// 10 from policy.ts:1, 12 from policy.ts:18, 13 from nowhere, 20 from the library, 24 from policy.ts:16
		{"a module", `{"sources":["~lib/string.ts","policy.ts"],"mappings":"UCAA,EAiBA,C,ODjBA,ICeA"}`, "[{10 policy.ts 1} {12 policy.ts 18} {13  0} {20  0} {24 policy.ts 16}]"},
		{"two at one place", `{"sources":["a.ts"],"mappings":"UAAA,AACA"}`, "[{10 a.ts 2}]"},
		{"no mapping", `{"sources":["a.ts"],"mappings":""}`, `source map: "" is not a mapping`},
		{"not a digit", `{"sources":["a.ts"],"mappings":"UA!A"}`, `source map: "UA!A" is not a mapping`},
		{"half a number", `{"sources":["a.ts"],"mappings":"UAAg"}`, `source map: "UAAg" is not a mapping`},
		{"too large a number", `{"sources":["a.ts"],"mappings":"ggggggggA"}`, `source map: "ggggggggA" is not a mapping`},
		{"no such source", `{"sources":["a.ts"],"mappings":"UCAA"}`, "source map: source 1 of 1"},
		{"before the first source", `{"sources":["a.ts"],"mappings":"UDAA"}`, "source map: source -1 of 1"},
		{"not a map", `[]`, "source map: json: cannot unmarshal array into Go value of type struct"},
	} {
		lines, err := mapLines(nil, []byte(c.text), anyLine)
		got := fmt.Sprint(lines)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzMapLines(f *testing.F) {
	f.Add("UCAA,EAiBA,C,ODjBA,ICeA")
	f.Fuzz(func(t *testing.T, mappings string) {
		lines, err := mapLines(nil, fmt.Appendf(nil, `{"sources":["~a","b"],"mappings":%q}`, mappings), anyLine)
		if err == nil && !slices.IsSortedFunc(lines, func(a, b guestbuild.Line) int { return a.At - b.At }) {
			t.Errorf("lines %v", lines)
		}
	})
}

func TestOwnFile(t *testing.T) {
	for name, want := range map[string]string{
		"/w/g/policy.c": "policy.c", "policy.c": "policy.c", "./rules.h": "rules.h", "/w/g/sub/rules.h": "sub/rules.h",
		"/w/g/sandboxd.h": "", "sandboxd.h": "", "./sandboxd.h": "", "/w/other/x.c": "", "../x.c": "", "/usr/include/stdint.h": "",
		"~lib/string.ts": "", "node_modules/x/y.ts": "", "/rustc/abc/library/core/src/fmt.rs": "", "": "",
	} {
		if got := ownFile("/w/g", name, "sandboxd.h"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
