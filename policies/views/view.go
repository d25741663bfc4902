package views

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A View is one way to read a text. It knows which part of the text each of its
// bytes comes from.
type View struct {
	Text string
	from []int // of each byte: where its source begins; nil: at the byte itself
	to   []int // and ends
}

// Span returns the part of the original text that bytes i to j of the view come
// from; i is less than j.
func (v View) Span(i, j int) (from, to int) {
	if v.from == nil {
		return i, j
	}
	return slices.Min(v.from[i:j]), slices.Max(v.to[i:j])
}

// whole returns a function that makes views all of whose bytes come from all of v.
func (v View) whole() func(string) View {
	from, to := 0, 0
	if len(v.Text) > 0 {
		from, to = v.Span(0, len(v.Text))
	}
	return func(text string) View { return constant(text, from, to) }
}

func constant(text string, from, to int) View {
	return View{text, slices.Repeat([]int{from}, len(text)), slices.Repeat([]int{to}, len(text))}
}

// A builder makes a view of another one.
type builder struct {
	of   View
	text strings.Builder
	view View
}

// add appends text that comes from bytes i to j.
func (b *builder) add(text string, i, j int) {
	from, to := b.of.Span(i, j)
	for range len(text) {
		b.view.from = append(b.view.from, from)
		b.view.to = append(b.view.to, to)
	}
	b.text.WriteString(text)
}

// keep appends bytes i to j as they are.
func (b *builder) keep(i, j int) {
	for ; i < j; i++ {
		b.add(b.of.Text[i:i+1], i, i+1)
	}
}

func (b *builder) done() View {
	b.view.Text = b.text.String()
	return b.view
}

// Invisible reports whether a reader does not see a character: zero width,
// direction, tags, variation selectors and other format characters, and controls
// but for tab and line breaks.
func Invisible(r rune) bool {
	switch {
	case r == '\t' || r == '\n' || r == '\r':
		return false
	case r >= ' ' && r < 0x7f:
		return false
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff, r == 0x034f, r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0:
		return true
	}
	return unicode.Is(unicode.Cf, r) || unicode.IsControl(r)
}

// Fold returns the view in compatibility form (NFKC), without what is invisible,
// with every dash as "-" and every space as " "; false if that is the same.
func (v View) Fold() (View, bool) {
	plain := true
	for i := 0; i < len(v.Text) && plain; i++ {
		c := v.Text[i]
		plain = c >= ' ' && c < 0x7f || c == '\n' || c == '\t' || c == '\r'
	}
	if plain || norm.NFKC.IsNormalString(v.Text) && !strings.ContainsFunc(v.Text, odd) {
		return v, false
	}
	b := builder{of: v}
	for i := 0; i < len(v.Text); {
		if c := v.Text[i]; (c >= ' ' && c < 0x7f || c == '\n') && (i+1 == len(v.Text) || v.Text[i+1] < 0x80) {
			b.keep(i, i+1)
			i++
			continue
		}
		// A cluster that composes is folded as one.
		n := norm.NFKC.NextBoundaryInString(v.Text[i:], true)
		if n <= 0 {
			n = 1
		}
		var out strings.Builder
		for _, r := range norm.NFKC.String(strings.Map(visible, v.Text[i:i+n])) {
			switch {
			case Invisible(r):
			case unicode.Is(unicode.Pd, r) || r == 0x2212:
				out.WriteByte('-')
			case unicode.Is(unicode.Zs, r) || r == 0x2028 || r == 0x2029:
				out.WriteByte(' ')
			default:
				if d, ok := digit(r); ok {
					out.WriteByte(d)
				} else {
					out.WriteRune(r)
				}
			}
		}
		b.add(out.String(), i, i+n)
		i += n
	}
	folded := b.done()
	return folded, folded.Text != v.Text
}

// odd reports whether Fold changes a character that is in compatibility form.
func odd(r rune) bool {
	if r < 0x80 {
		return Invisible(r)
	}
	return Invisible(r) || unicode.In(r, unicode.Pd, unicode.Zs, unicode.Nd) || r == 0x2212 || r == 0x2028 || r == 0x2029
}

// visible drops a character that is not.
func visible(r rune) rune {
	if Invisible(r) {
		return -1
	}
	return r
}

// digit returns the ASCII form of a decimal digit of another script.
func digit(r rune) (byte, bool) {
	if r < 0x80 || !unicode.Is(unicode.Nd, r) {
		return 0, false
	}
	for _, t := range unicode.Nd.R16 {
		if uint32(r) >= uint32(t.Lo) && uint32(r) <= uint32(t.Hi) {
			return byte('0' + (uint32(r)-uint32(t.Lo))%10), true // digits of a script stand together, ten in a row
		}
	}
	for _, t := range unicode.Nd.R32 {
		if uint32(r) >= t.Lo && uint32(r) <= t.Hi {
			return byte('0' + (uint32(r)-t.Lo)%10), true
		}
	}
	return 0, false
}

// Percent decodes every percent sign that two hexadecimal digits follow; false if there
// is none.
func (v View) Percent() (View, bool) {
	if !strings.Contains(v.Text, "%") {
		return v, false
	}
	b := builder{of: v}
	changed := false
	for i := 0; i < len(v.Text); i++ {
		if v.Text[i] == '%' && i+2 < len(v.Text) {
			if c, err := hex.DecodeString(v.Text[i+1 : i+3]); err == nil {
				b.add(string(c), i, i+3)
				i, changed = i+2, true
				continue
			}
		}
		b.keep(i, i+1)
	}
	if !changed {
		return v, false
	}
	return b.done(), true
}

// Markdown drops the backslash before ASCII punctuation, as readers of Markdown do, also
// in the address of a link; false if there is none.
func (v View) Markdown() (View, bool) {
	if !strings.Contains(v.Text, `\`) {
		return v, false
	}
	b := builder{of: v}
	changed := false
	for i := 0; i < len(v.Text); i++ {
		if v.Text[i] == '\\' && i+1 < len(v.Text) && punctuation(v.Text[i+1]) {
			b.add(v.Text[i+1:i+2], i, i+2)
			i, changed = i+1, true
			continue
		}
		b.keep(i, i+1)
	}
	if !changed {
		return v, false
	}
	return b.done(), true
}

func punctuation(c byte) bool { return c > ' ' && c < 0x7f && !alnum(c) }

// entities replaces HTML entities.
func (v View) entities() (View, bool) {
	if !strings.Contains(v.Text, "&") {
		return v, false
	}
	b := builder{of: v}
	changed := false
	for i := 0; i < len(v.Text); {
		if v.Text[i] == '&' {
			if text, size := entity(v.Text[i:]); size > 0 {
				b.add(text, i, i+size)
				i, changed = i+size, true
				continue
			}
		}
		b.keep(i, i+1)
		i++
	}
	if !changed {
		return v, false
	}
	return b.done(), true
}

// escapes replaces escapes as JSON has them, \uXXXX, wherever they stand and however many
// backslashes they have: in a part of a document, or in a member whose name is there twice,
// they are seen by nobody who reads the whole.
func (v View) escapes() (View, bool) {
	if !strings.Contains(v.Text, `\u`) {
		return v, false
	}
	b := builder{of: v}
	changed := false
	for i := 0; i < len(v.Text); {
		j := i
		for j < len(v.Text) && v.Text[j] == '\\' {
			j++
		}
		unit, ok := escaped(v.Text[j:])
		if j == i || !ok {
			b.keep(i, max(j, i+1))
			i = max(j, i+1)
			continue
		}
		end := j + 5
		rest := strings.TrimLeft(v.Text[end:], `\`)
		if low, ok := escaped(rest); ok && len(rest) < len(v.Text)-end {
			if pair := utf16.DecodeRune(unit, low); pair != utf8.RuneError {
				unit, end = pair, len(v.Text)-len(rest)+5
			}
		}
		b.add(string(unit), i, end)
		i, changed = end, true
	}
	if !changed {
		return v, false
	}
	return b.done(), true
}

// escaped returns the unit of UTF-16 that a text begins with as uXXXX.
func escaped(s string) (rune, bool) {
	if len(s) < 5 || s[0] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(s[1:5], 16, 16)
	return rune(unit), err == nil
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// minRun is the shortest run that is read as base64 or hexadecimal.
const minRun = 16

// MinRun is the length from which on a run of letters and digits may be a code.
const MinRun = minRun

// Coded reports whether a byte may be part of a base64 or hexadecimal text.
func Coded(c byte) bool {
	return alnum(c) || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

// runs decodes what may be base64, at each offset, or hexadecimal.
func (v View) runs() []View {
	var out []View
	for i := 0; i < len(v.Text); {
		j := i
		for j < len(v.Text) && (Coded(v.Text[j]) && v.Text[j] != '=' || foldsLines(v.Text, i, j)) {
			j++
		}
		run := v.Text[i:j]
		if len(run) >= minRun && !image(v.Text[:i], run) {
			from, to := v.Span(i, j)
			for _, text := range decoded(run) {
				out = append(out, constant(text, from, to))
			}
		}
		i = max(j, i+1)
	}
	return out
}

// foldsLines reports whether a line break at j is one inside a code of many lines.
func foldsLines(s string, i, j int) bool {
	c := s[j]
	if c != '\n' && c != '\r' || j-i < minRun {
		return false
	}
	k := j + 1
	for k < len(s) && (s[k] == '\n' || s[k] == '\r') {
		k++
	}
	end := k
	for end < len(s) && Coded(s[end]) {
		end++
	}
	return end-k >= 4 && (end == len(s) || s[end] == '\n' || s[end] == '\r')
}

// image reports whether a run is the body of a data URL and an image indeed.
func image(before, run string) bool {
	i := strings.LastIndex(before, "data:image/")
	if i < 0 || !strings.HasSuffix(before, ";base64,") || len(before)-i > 40 {
		return false
	}
	for _, magic := range []string{"iVBORw0KGgoAAAANSUhE", "/9j/", "R0lGODdh", "R0lGODlh", "UklGR"} {
		if strings.HasPrefix(run, magic) {
			return true
		}
	}
	return false
}

// decoded returns the texts that a run may stand for.
func decoded(run string) []string {
	run = strings.NewReplacer("-", "+", "_", "/", "\n", "", "\r", "").Replace(run)
	var out []string
	for offset := range 4 {
		part := run[min(offset, len(run)):]
		if data, err := base64.RawStdEncoding.DecodeString(part[:len(part)-tail(len(part))]); err == nil {
			out = append(out, readable(data)...)
		}
	}
	for i := 0; i < len(run); {
		j := i
		for j < len(run) && isHex(run[j]) {
			j++
		}
		for offset := 0; offset < 2 && j-i-offset >= minRun; offset++ {
			data, err := hex.DecodeString(run[i+offset : j-(j-i-offset)%2])
			if err == nil {
				out = append(out, readable(data)...)
			}
		}
		i = max(j, i+1)
	}
	return out
}

// tail is how many characters at the end stand for no whole byte.
func tail(n int) int {
	if n%4 == 1 {
		return 1
	}
	return 0
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// readable returns bytes as text if they are one, else every stretch of eight or
// more readable characters.
func readable(data []byte) []string {
	text := string(data)
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }) {
		return []string{text}
	}
	var out []string
	for i := 0; i < len(data); {
		j := i
		for j < len(data) && data[j] >= ' ' && data[j] < 0x7f {
			j++
		}
		if j-i >= 8 {
			out = append(out, text[i:j])
		}
		i = max(j, i+1)
	}
	return out
}
