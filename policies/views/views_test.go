package views

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// What is found in any view is traced to the part of the text that it came from.
func TestSpans(t *testing.T) {
	want := regexp.MustCompile("secret-value-42")
	for _, c := range []struct{ text, part string }{
		{"a secret-value-42 b", "secret-value-42"},
		{"a ｓｅｃｒｅｔ-value-４２ b", "ｓｅｃｒｅｔ-value-４２"},
		{"a sec\u200bret‑value\u00ad-٤٢ b", "sec\u200bret‑value\u00ad-٤٢"},
		{"a %73ecret-value-42 b", "%73ecret-value-42"},
		{"a secret&#45;value&hyphen;42 b", "secret&#45;value&hyphen;42"},
		{"a c2VjcmV0LXZhbHVlLTQy b", "c2VjcmV0LXZhbHVlLTQy"},
		{"a 7365637265742d76616c75652d3432 b", "7365637265742d76616c75652d3432"},
		{"a %2573ecret-value-42 b", "%2573ecret-value-42"},
		{`{"a":"\u0073ecret-value-42"}`, `\u0073ecret-value-42`},
		{`a \u0073ecret\\u002dvalue-42 b`, `\u0073ecret\\u002dvalue-42`},
		{`a secret-value\ud835\udfcc-42 secret-value-\ud835\udfdc\ud835\udfda b \ud800\u12`, `secret-value-\ud835\udfdc\ud835\udfda`},
	} {
		found := ""
		if _, err := Texts(c.text, func(v View) bool {
			if m := want.FindStringIndex(v.Text); m != nil && found == "" {
				from, to := v.Span(m[0], m[1])
				found = c.text[from:to]
			}
			return true
		}); err != nil || found != c.part {
			t.Errorf("%q: found %q, want %q (%v)", c.text, found, c.part, err)
		}
	}
	if _, err := Texts("%2525252541", func(View) bool { return true }); !errors.Is(err, ErrEncoding) {
		t.Errorf("encoded too often: %v", err)
	}
}

func TestBeginning(t *testing.T) {
	for _, c := range []struct{ expr, text, held string }{
		{"tok_[0-9]{4}", "the to", "to"},
		{"tok_[0-9]{4}", "the town", ""},
		{"tok_[0-9]{4}", "tok_12", "tok_12"},
		{"tok_[0-9]{4}", "tok_1234", ""},
		{"tok_[0-9]{4,6}", "x tok_1234", "tok_1234"},
		{"(?i)ab+c", "zABB", "ABB"},
		{`\bab`, "xa", ""},
		{`\bab`, "x a", "a"},
		{"aab", "aaa", "aa"},
		{"x|yz", "y", "y"},
		{"héé", "hé", "hé"},
	} {
		b, err := NewBeginning(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		if held := c.text[b.At(c.text, 100):]; held != c.held {
			t.Errorf("%s in %q: held %q, want %q", c.expr, c.text, held, c.held)
		}
	}
	b, err := NewBeginning("a+b")
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Repeat("a", 50); len(text)-b.At(text, 10) != 10 {
		t.Error("more is held than may be")
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name  string
		allows, covers bool
	}{
		{"read_*", "read_ticket", true, true}, {"read_*", "reader", false, false}, {"*", "a-b_9", true, true}, {"*", "A", false, true},
		{"pay", "PAY", false, true}, {"pay", "ｐay", false, true}, {"pay", "p\u200bay", false, true}, {"pay", "payx", false, false}, {"a*c*e", "abcde", true, true},
	} {
		if Allows(c.pattern, c.name) != c.allows || Covers(c.pattern, c.name) != c.covers {
			t.Errorf("%s and %q: allows %v, covers %v", c.pattern, c.name, Allows(c.pattern, c.name), Covers(c.pattern, c.name))
		}
	}
}
