package regobuild

import (
	"fmt"
	"strings"
	"testing"
)

// Rules are marked between their expressions, wherever these end.
func TestMark(t *testing.T) {
	source := `package guard # if { not a rule }

import rego.v1

default open := false

limit := {"a": 1, "if": 2}

open if {
	# a comment; with { a bracket
	x := input.a; x == "; }"
	every t in ["a", "b"] {
		t != x
		t != "c"
	}
	input.tool in {"one",
		"two"}
	x ==
		"a\"b"
	x != ` + "`raw\n}`" + `
	count([y |
		some y in input.list
		y > 1
	]) > 0
}

deny contains {"code": "c", "if": "x"} if not open

two(x) := 3 if {x > 1} else := 4 if {
	x > 5
}
three if {
}
`
	next := 7
	out, rules := mark("p.rego", []byte(source), &next)
	var got []string
	for _, r := range rules {
		got = append(got, fmt.Sprintf("%d %s (%d)", r.Line, r.Head, r.first))
		for _, x := range r.Body {
			got = append(got, fmt.Sprintf("  %d %s", x.Line, x.Text))
		}
	}
	want := []string{
		"9 open (7)", "  11 x := input.a", `  11 x == "; }"`, `  12 every t in ["a", "b"] { t != x t != "c" }`, `  16 input.tool in {"one", "two"}`,
		`  18 x == "a\"b"`, "  20 x != `raw\n}`", "  22 count([y | some y in input.list y > 1 ]) > 0",
		`28 deny contains {"code": "c", "if": "x"} (15)`, "  28 not open",
		"30 two(x) := 3 (17)", "  30 x > 1", "30 else := 4 (19)", "  31 x > 5",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("rules\n%s\nwant\n%s", g, w)
	}
	if next != 21 {
		t.Errorf("%d marks, want 14", next-7)
	}
	// Without the marks it is what it was, but for the braces of a body that had none.
	plain := string(out)
	for n := 7; n < next; n++ {
		m := fmt.Sprintf(`sprintf("sandboxd:mark:%d", [])`, n)
		if strings.Count(plain, m) != 1 {
			t.Errorf("mark %d is there %d times", n, strings.Count(plain, m))
		}
		plain = strings.Replace(strings.Replace(plain, m+"; ", "", 1), "; "+m, "", 1)
	}
	if plain = strings.Replace(plain, "if { not open }", "if not open", 1); plain != source {
		t.Errorf("source with marks\n%s", out)
	}
}

// What the marks mean.
func TestOutcomes(t *testing.T) {
	next := 0
	p := &Probed{}
	_, p.Rules = mark("p.rego", []byte("a if {\n\tb\n\tc\n}\n"), &next)
	for _, c := range []struct {
		seen         map[int]bool
		asked, fired bool
		failed       string
	}{
		{nil, false, false, ""},
		{map[int]bool{0: true}, true, false, "b"},
		{map[int]bool{0: true, 1: true}, true, false, "c"},
		{map[int]bool{0: true, 1: true, 2: true}, true, true, ""},
	} {
		o := p.Outcomes(c.seen)[0]
		failed := ""
		if o.Failed != nil {
			failed = o.Failed.Text
		}
		if o.Asked != c.asked || o.Fired != c.fired || failed != c.failed {
			t.Errorf("%v: %+v", c.seen, o)
		}
	}
	for sent, want := range map[string]int{`{"builtin":"sprintf"}["sandboxd:mark:12",[]]`: 12, `["sandboxd:mark:x",[]]`: -1, `["x",[]]`: -1, `["sandboxd:mark:3`: -1} {
		if n, ok := p.Mark([]byte(sent)); ok != (want >= 0) || ok && n != want {
			t.Errorf("%s: %d, %v", sent, n, ok)
		}
	}
}

// FuzzMark: whatever stands in a policy, what is marked is only added to it.
func FuzzMark(f *testing.F) {
	f.Add("package g\na if { b; c }\nelse := 1 if not d\n")
	f.Add("a if {\n\"x")
	f.Fuzz(func(t *testing.T, source string) {
		next := 0
		out, rules := mark("p.rego", []byte(source), &next)
		for _, r := range rules {
			if next < r.first+len(r.Body)+1 {
				t.Errorf("%d marks, rule from %d with %d", next, r.first, len(r.Body))
			}
		}
		rest := source
		for i := 0; i < len(out) && rest != ""; i++ { // source is a subsequence of what was made of it
			if out[i] == rest[0] {
				rest = rest[1:]
			}
		}
		if rest != "" {
			t.Errorf("%q is lost", rest)
		}
	})
}
