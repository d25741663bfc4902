package host

import "testing"

func TestPrintable(t *testing.T) {
	tests := []struct {
		in   string
		most int
		want string
	}{
		{"plain", 10, "plain"},
		{"a\nb\tc", 10, `a\nb\tc`},
		{"\x1b[31m", 20, `\u{1b}[31m`},
		{"\x00\x00\x00", 20, `\u{0}\u{0}\u{0}`},
		{"a\x00\x00\x00\x00b", 20, `a\u{0}×4b`},
		{"\u200b\u200b\u200b\u200b\u200b\x00\x00", 40, `\u{200b}×5\u{0}\u{0}`},
		{"longer than it may be", 18, "longer…truncated"},
	}
	for _, test := range tests {
		if got := printable(test.in, test.most); got != test.want {
			t.Errorf("printable(%q, %d) = %q, want %q", test.in, test.most, got, test.want)
		}
	}
}
