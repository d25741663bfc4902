package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// maxValue is how many characters of one foreign value are printed.
const maxValue = 2000

// foreign returns text of a guest, model, tool or file fit for one line of a
// terminal: hidden characters are escaped as in \u202e, and unless full is set
// all beyond the first 2000 characters is left out and counted. A JSON document
// that was not cut stays the same document.
func foreign(s string, full bool) string {
	var b strings.Builder
	count := 0
	for i := 0; i < len(s); {
		if count == maxValue && !full {
			fmt.Fprintf(&b, "… %s more, --full", size(int64(len(s)-i)))
			break
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case hidden(r):
			b.WriteString(escaped(r))
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
		count++
	}
	return b.String()
}

// hidden reports whether r must not reach a terminal: it is invisible or moves
// what stands beside it.
func hidden(r rune) bool {
	return abi.Hidden(r) || r == '\u2028' || r == '\u2029'
}

// escaped returns r as JSON writes it in a text.
func escaped(r rune) string {
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// shortDigest returns a digest as "sha256:" and 12 digits. It takes digests with
// and without "sha256:".
func shortDigest(s string) string {
	hex := strings.TrimPrefix(s, "sha256:")
	return "sha256:" + hex[:min(len(hex), 12)]
}

// size returns a number of bytes for people: "412 B", "5.1 MiB".
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return trimZero(float64(n)/(1<<10)) + " KiB"
	case n < 1<<30:
		return trimZero(float64(n)/(1<<20)) + " MiB"
	}
	return trimZero(float64(n)/(1<<30)) + " GiB"
}

// count returns a number for people: "412", "12,400", "12.4 M".
func count(n int64) string {
	switch {
	case n < 0:
		return "-" + count(-n)
	case n >= 1e9:
		return trimZero(float64(n)/1e9) + " G"
	case n >= 1e6:
		return trimZero(float64(n)/1e6) + " M"
	}
	s := strconv.FormatInt(n, 10)
	if len(s) > 3 {
		s = s[:len(s)-3] + "," + s[len(s)-3:]
	}
	return s
}

// took returns a time for people: "0.4 ms", "38 ms", "2 s", "1m30s".
func took(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return trimZero(float64(d)/float64(time.Millisecond)) + " ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return trimZero(d.Seconds()) + " s"
	}
	return d.Round(time.Second).String()
}

// fuel returns a count of guest work, such as "412 k" or "2 G".
func fuel(n int64) string {
	if n >= 1e3 && n < 1e6 {
		return trimZero(float64(n)/1e3) + " k"
	}
	return count(n)
}

// trimZero returns a number with one decimal, or none if that is zero.
func trimZero(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// receiptLine returns a receipt with the limits that applied, for people.
func receiptLine(r host.Receipt, l host.Limits) string {
	parts := []string{"receipt  " + string(r.Code),
		fmt.Sprintf("fuel %s of %s", fuel(r.Fuel), fuel(l.Fuel)),
		fmt.Sprintf("memory %s of %s", size(r.PeakBytes), size(l.MemoryBytes)),
		fmt.Sprintf("%s of %s", took(time.Duration(r.WallUS)*time.Microsecond), took(l.Wall)),
		plural(r.HostCalls, "host call")}
	if len(r.Used) > 0 {
		parts = append(parts, "used "+foreign(strings.Join(r.Used, ", "), false))
	}
	return strings.Join(stopped(append(parts, shortDigest(r.Module)), r), " · ")
}

// stopped adds where a guest was stopped to the parts of its receipt.
func stopped(parts []string, r host.Receipt) []string {
	if r.In == "" {
		return parts
	}
	return append(parts, "in "+foreign(r.In, false))
}

// A palette colours words that already say what they mean. The zero palette
// leaves them as they are.
type palette struct{ on bool }

// palette returns the colours for a stream, as --color, NO_COLOR and TERM say.
func (e *env) palette(s stream) palette {
	switch e.color {
	case "always":
		return palette{true}
	case "never":
		return palette{}
	}
	return palette{s.terminal && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb"}
}

func (p palette) red(s string) string    { return p.paint("31", s) }
func (p palette) green(s string) string  { return p.paint("32", s) }
func (p palette) yellow(s string) string { return p.paint("33", s) }

func (p palette) paint(code, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
