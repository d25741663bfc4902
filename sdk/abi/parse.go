package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A parser reads strict JSON and writes it in canonical form as it goes. Each
// method appends what it read to out.
type parser struct {
	in  []byte
	pos int
}

func (p *parser) fail(what string) error {
	return fmt.Errorf("document: %s at byte %d", what, p.pos)
}

func (p *parser) space() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) value(out []byte, depth int) ([]byte, error) {
	p.space()
	if p.pos == len(p.in) {
		return nil, p.fail("no value")
	}
	switch c := p.in[p.pos]; {
	case c == '{':
		if depth > MaxNesting {
			return nil, p.fail(fmt.Sprintf("nesting exceeds %d", MaxNesting))
		}
		return p.object(out, depth)
	case c == '[':
		if depth > MaxNesting {
			return nil, p.fail(fmt.Sprintf("nesting exceeds %d", MaxNesting))
		}
		return p.array(out, depth)
	case c == '"':
		if plain := p.plainText(); plain != nil {
			return append(out, plain...), nil
		}
		s, err := p.text()
		if err != nil {
			return nil, err
		}
		return appendText(out, s), nil
	case c == '-' || c >= '0' && c <= '9':
		return p.number(out)
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(p.in[p.pos:], []byte(word)) {
			p.pos += len(word)
			return append(out, word...), nil
		}
	}
	return nil, p.fail("not JSON")
}

// A member of an object is where it has been written.
type member struct {
	name     []byte // what it says
	from, to int    // in the output: name, colon and value
}

func (p *parser) object(out []byte, depth int) ([]byte, error) {
	p.pos++
	var room [8]member
	members := room[:0]
	sorted := true
	out = append(out, '{')
	first := len(out)
	for {
		p.space()
		if p.pos < len(p.in) && p.in[p.pos] == '}' && len(members) == 0 {
			p.pos++
			return append(out, '}'), nil
		}
		if p.pos == len(p.in) || p.in[p.pos] != '"' {
			return nil, p.fail("member name expected")
		}
		from := len(out)
		var name []byte
		if plain := p.plainText(); plain != nil {
			name, out = plain[1:len(plain)-1], append(out, plain...)
		} else {
			text, err := p.text()
			if err != nil {
				return nil, err
			}
			name, out = []byte(text), appendText(out, text)
		}
		p.space()
		if p.pos == len(p.in) || p.in[p.pos] != ':' {
			return nil, p.fail("colon expected")
		}
		p.pos++
		out = append(out, ':')
		var err error
		if out, err = p.value(out, depth+1); err != nil {
			return nil, err
		}
		if n := len(members); n > 0 && bytes.Compare(members[n-1].name, name) >= 0 {
			sorted = false
		}
		members = append(members, member{name, from, len(out)})
		p.space()
		if p.pos == len(p.in) {
			return nil, p.fail("object has no end")
		}
		c := p.in[p.pos]
		p.pos++
		if c == '}' {
			break
		}
		if c != ',' {
			p.pos--
			return nil, p.fail("comma expected")
		}
		out = append(out, ',')
	}
	if !sorted {
		slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
		for i := 1; i < len(members); i++ {
			if bytes.Equal(members[i].name, members[i-1].name) {
				return nil, fmt.Errorf("document: %w: %q", ErrDuplicate, clip(string(members[i].name), 60))
			}
		}
		written := bytes.Clone(out[first:])
		out = out[:first]
		for i, m := range members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, written[m.from-first:m.to-first]...)
		}
	}
	return append(out, '}'), nil
}

func (p *parser) array(out []byte, depth int) ([]byte, error) {
	p.pos++
	out = append(out, '[')
	p.space()
	if p.pos < len(p.in) && p.in[p.pos] == ']' {
		p.pos++
		return append(out, ']'), nil
	}
	for {
		var err error
		if out, err = p.value(out, depth+1); err != nil {
			return nil, err
		}
		p.space()
		if p.pos == len(p.in) {
			return nil, p.fail("array has no end")
		}
		c := p.in[p.pos]
		p.pos++
		switch c {
		case ']':
			return append(out, ']'), nil
		case ',':
			out = append(out, ',')
		default:
			p.pos--
			return nil, p.fail("comma expected")
		}
	}
}

func (p *parser) number(out []byte) ([]byte, error) {
	start := p.pos
	digits := func() bool {
		n := p.pos
		for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
			p.pos++
		}
		return p.pos > n
	}
	if p.in[p.pos] == '-' {
		p.pos++
	}
	zero := p.pos < len(p.in) && p.in[p.pos] == '0'
	from := p.pos
	if !digits() || zero && p.pos > from+1 {
		return nil, p.fail("bad number")
	}
	if p.pos < len(p.in) && p.in[p.pos] == '.' {
		p.pos++
		if !digits() {
			return nil, p.fail("bad number")
		}
	}
	if p.pos < len(p.in) && (p.in[p.pos] == 'e' || p.in[p.pos] == 'E') {
		p.pos++
		if p.pos < len(p.in) && (p.in[p.pos] == '+' || p.in[p.pos] == '-') {
			p.pos++
		}
		if !digits() {
			return nil, p.fail("bad number")
		}
	}
	text := p.in[start:p.pos]
	if len(text) > 300 || bytes.ContainsAny(text, "eE") { // others are in range
		if f, _ := strconv.ParseFloat(string(text), 64); math.IsInf(f, 0) {
			p.pos = start
			return nil, p.fail("number past all floats")
		}
	}
	return append(out, text...), nil
}

// plainText reads a string that is written as it is said, which has no escapes, and
// returns it with its quotes. It returns nil for others, which text reads.
func (p *parser) plainText() []byte {
	for i := p.pos + 1; i < len(p.in); i++ {
		c := p.in[i]
		if c == '"' {
			quoted := p.in[p.pos : i+1]
			if !utf8.Valid(quoted) {
				return nil
			}
			p.pos = i + 1
			return quoted
		}
		if c == '\\' || c < ' ' {
			return nil
		}
	}
	return nil
}

// text reads a string and returns what it says.
func (p *parser) text() (string, error) {
	p.pos++
	start := p.pos
	for p.pos < len(p.in) { // the common case: no escapes
		c := p.in[p.pos]
		if c == '"' {
			s := string(p.in[start:p.pos])
			if !utf8.ValidString(s) {
				return "", p.fail("bad UTF-8")
			}
			p.pos++
			return s, nil
		}
		if c == '\\' || c < ' ' {
			break
		}
		p.pos++
	}
	buf := append([]byte(nil), p.in[start:p.pos]...)
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '"':
			if !utf8.Valid(buf) {
				return "", p.fail("bad UTF-8")
			}
			p.pos++
			return string(buf), nil
		case c < ' ':
			return "", p.fail("control character in a string")
		case c == '\\':
			var err error
			if buf, err = p.escape(buf); err != nil {
				return "", err
			}
		default:
			buf = append(buf, c)
			p.pos++
		}
	}
	return "", p.fail("string has no end")
}

func (p *parser) escape(buf []byte) ([]byte, error) {
	p.pos++
	if p.pos == len(p.in) {
		return nil, p.fail("string has no end")
	}
	c := p.in[p.pos]
	p.pos++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return append(buf, "\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return nil, p.fail("bad escape")
	}
	r, ok := p.hex4()
	if !ok {
		return nil, p.fail("bad escape")
	}
	if utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(p.in[p.pos:], []byte(`\u`)) {
			return nil, p.fail("lone surrogate")
		}
		p.pos += 2
		low, ok := p.hex4()
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return nil, p.fail("lone surrogate")
		}
	}
	return utf8.AppendRune(buf, r), nil
}

func (p *parser) hex4() (rune, bool) {
	if p.pos+4 > len(p.in) {
		return 0, false
	}
	var r rune
	for _, c := range p.in[p.pos : p.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	p.pos += 4
	return r, true
}

// appendText appends s as a JSON string with the fewest escapes.
func appendText(out []byte, s string) []byte {
	out = append(out, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c >= ' ':
			out = append(out, c)
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\t':
			out = append(out, '\\', 't')
		case c == '\r':
			out = append(out, '\\', 'r')
		case c == '\b':
			out = append(out, '\\', 'b')
		case c == '\f':
			out = append(out, '\\', 'f')
		default:
			out = fmt.Appendf(out, `\u%04x`, c)
		}
	}
	return append(out, '"')
}

// generic reads a value that is in canonical form, and therefore has no errors.
func (p *parser) generic() any {
	switch p.in[p.pos] {
	case '{':
		m := map[string]any{}
		for p.pos++; p.in[p.pos] != '}'; {
			if p.in[p.pos] == ',' {
				p.pos++
			}
			name, _ := p.text()
			p.pos++ // the colon
			m[name] = p.generic()
		}
		p.pos++
		return m
	case '[':
		a := []any{}
		for p.pos++; p.in[p.pos] != ']'; {
			if p.in[p.pos] == ',' {
				p.pos++
			}
			a = append(a, p.generic())
		}
		p.pos++
		return a
	case '"':
		s, _ := p.text()
		return s
	case 't':
		p.pos += len("true")
		return true
	case 'f':
		p.pos += len("false")
		return false
	case 'n':
		p.pos += len("null")
		return nil
	}
	start := p.pos
	for p.pos < len(p.in) && strings.IndexByte(",]}", p.in[p.pos]) < 0 {
		p.pos++
	}
	return json.Number(p.in[start:p.pos])
}
