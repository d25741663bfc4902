package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestForeign(t *testing.T) {
	long := strings.Repeat("é", maxValue)
	for _, c := range []struct{ name, in, want string }{
		{"plain", "snow in Tromsø, 雪", "snow in Tromsø, 雪"},
		{"bidi", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"zero width", "pay\u200bpal\ufeff", `pay\u200bpal\ufeff`},
		{"tag characters", "a\U000e0041b", `a\udb40\udc41b`},
		{"escape", "\x1b[2Jx\x07\x7f", `\u001b[2Jx\u0007\u007f`},
		{"line ends", "a\nb\tc\rd\u2028e", `a\nb\tc\u000dd\u2028e`},
		{"not UTF-8", "a\xffb", `a\xffb`},
		{"as long as may be", long, long},
		{"longer", long + "xyz", long + "… 3 B more, --full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := foreign(c.in, false); got != c.want {
				t.Errorf("foreign(%q)\n got %q\nwant %q", c.in, got, c.want)
			}
			if again := foreign(foreign(c.in, true), true); again != foreign(c.in, true) {
				t.Errorf("foreign is not stable: %q", again)
			}
		})
	}
	if got := foreign(long+"xyz", true); got != long+"xyz" {
		t.Errorf("full: %d bytes of %d", len(got), len(long)+3)
	}
}

// TestForeignJSON checks that escaping does not change what a document says.
func TestForeignJSON(t *testing.T) {
	want := map[string]string{"te\u202ext": "\u200b\U000e0041 \u2028 é", "x": "\u007f"}
	doc, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(foreign(string(doc), true)), &got); err != nil {
		t.Fatal(err)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q is %q, want %q", k, got[k], v)
		}
	}
}

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		size(0): "0 B", size(1023): "1023 B", size(64 << 10): "64 KiB", size(5_347_737): "5.1 MiB", size(3 << 30): "3 GiB",
		count(7): "7", count(12_400): "12,400", count(12_400_000): "12.4 M", count(2_000_000_000): "2 G",
		took(400 * time.Microsecond): "0.4 ms", took(38 * time.Millisecond): "38 ms", took(2 * time.Second): "2 s", took(90 * time.Second): "1m30s",
		shortDigest("sha256:0123456789abcdef"): "sha256:0123456789ab", shortDigest("0123456789abcdef"): "sha256:0123456789ab", shortDigest("01"): "sha256:01",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestColour checks when words are coloured: on a terminal, unless a variable or
// flag says otherwise.
func TestColour(t *testing.T) {
	for _, c := range []struct {
		name, flag string
		terminal   bool
		vars       map[string]string
		want       bool
	}{
		{"terminal", "auto", true, nil, true},
		{"pipe", "auto", false, nil, false},
		{"NO_COLOR", "auto", true, map[string]string{"NO_COLOR": "1"}, false},
		{"dumb terminal", "auto", true, map[string]string{"TERM": "dumb"}, false},
		{"always", "always", false, map[string]string{"NO_COLOR": "1"}, true},
		{"never", "never", true, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &env{color: c.flag, getenv: func(name string) string { return c.vars[name] }}
			s := stream{&bytes.Buffer{}, c.terminal}
			if got := e.palette(s).red("DENY"); (got != "DENY") != c.want || !strings.Contains(got, "DENY") {
				t.Errorf("got %q, coloured want %v", got, c.want)
			}
		})
	}
}
