package regobuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Probed is a policy that was compiled to say how far each of its rules comes. It judges as the
// policy does, at more cost: between the expressions of a rule it calls the host, see [Probed.Mark].
type Probed struct {
	Wasm  []byte // without a manifest section
	Rules []Rule // of the author, in the order of files and lines
}

// A Rule is a rule with a body, or one of the bodies that it has behind else.
type Rule struct {
	File string // relative to the folder
	Line int
	Head string // what stands before the body, such as "deny contains {...}", in one line
	Body []Expression

	first int // mark of the beginning; those of expressions follow
}

// An Expression is one of a rule's body, all of which have to hold.
type Expression struct {
	Line int
	Text string // in one line
}

// marked begins the text of a mark.
const marked = "sandboxd:mark:"

// Probe compiles the policy in dir as [Build] does, from a copy that says how far its rules come.
// Errors are Build's. Probe is safe for concurrent use.
func Probe(ctx context.Context, dir string) (*Probed, error) {
	temp, err := os.MkdirTemp("", "regoprobe")
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", dir, err)
	}
	defer os.RemoveAll(temp)
	p := &Probed{}
	if err := p.copy(dir, temp); err != nil {
		return nil, fmt.Errorf("policy %s: %w", dir, err)
	}
	built, err := Build(ctx, temp)
	if e, ok := errors.AsType[*Error](err); ok {
		return nil, &Error{Dir: dir, Output: e.Output}
	}
	p.Wasm = built.Wasm
	return p, err
}

// copy writes what OPA reads of dir to another folder, with marks in the author's rules.
func (p *Probed) copy(dir, to string) error {
	marks := 0
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, bad := filepath.Rel(dir, path)
		if err != nil || bad != nil {
			return errors.Join(err, bad)
		}
		out := filepath.Join(to, name)
		switch base := d.Name(); {
		case d.IsDir():
			return os.MkdirAll(out, 0o700)
		case filepath.Ext(base) != ".rego" && base != "data.json" && base != "data.yaml" && base != ".manifest", strings.HasSuffix(base, "_test.rego"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(name) == ".rego" && d.Name() != "sandboxd.rego" {
			var rules []Rule
			data, rules = mark(filepath.ToSlash(name), data, &marks)
			p.Rules = append(p.Rules, rules...)
		}
		return os.WriteFile(out, data, 0o600)
	})
}

// Mark reads a mark in what a call of a function of OPA carried to the host, which is the name of
// the function and its arguments; it is false if that is no mark.
func (p *Probed) Mark(sent []byte) (int, bool) {
	_, text, ok := bytes.Cut(sent, []byte(`["`+marked))
	digits, _, more := bytes.Cut(text, []byte(`"`))
	n, err := strconv.Atoi(string(digits))
	return n, ok && more && err == nil
}

// An Outcome is what came of a rule in one judgement.
type Outcome struct {
	Rule
	Asked bool // something needed it
	Fired bool // all of its body held, at least once
	// Failed is the first expression that was false, or had no value, whichever values those before it
	// gave; nil unless the rule was asked and has not fired.
	Failed *Expression
}

// Compiled reports whether a module is a guard that was made of a policy in Rego.
func Compiled(wasm []byte) bool { return bytes.Contains(wasm, []byte(silence)) }

// Outcomes says what the marks that were seen mean.
func (p *Probed) Outcomes(seen map[int]bool) []Outcome {
	var all []Outcome
	for _, r := range p.Rules {
		o := Outcome{Rule: r, Asked: seen[r.first], Fired: seen[r.first+len(r.Body)]}
		for i := range r.Body {
			if o.Asked && !o.Fired && !seen[r.first+i+1] {
				o.Failed = &r.Body[i]
				break
			}
		}
		all = append(all, o)
	}
	return all
}

// mark returns a file with marks between the expressions of its rules, which are returned.
// Marks count from *next.
func mark(file string, source []byte, next *int) ([]byte, []Rule) {
	t := tokens(source)
	var rules []Rule
	var out []byte
	copied := 0
	put := func(at int, text string) {
		out = append(append(out, source[copied:at]...), text...)
		copied = at
	}
	for i, from := 0, 0; i < len(t); i++ {
		switch {
		case t[i].depth > 0:
			continue
		case t[i].text == "else" || i > 0 && t[i].line > t[i-1].last && !t[i].joins(t[i-1]):
			from = i
		}
		if t[i].text != "if" || i+1 == len(t) {
			continue
		}
		r := Rule{File: file, Line: t[from].line, Head: line(source[t[from].at:t[i].at]), first: *next}
		body := t[i+1:]
		braces := body[0].text == "{"
		body = body[:extent(body, braces)]
		end := body[len(body)-1].end
		if braces {
			if len(body) < 3 || body[len(body)-1].depth != body[0].depth { // OPA will refuse it
				continue
			}
			body = body[1 : len(body)-1]
		}
		if !braces {
			put(body[0].at, "{ ")
		}
		put(body[0].at, r.mark(0))
		for _, x := range expressions(body) {
			r.Body = append(r.Body, Expression{x[0].line, line(source[x[0].at:x[len(x)-1].end])})
			put(x[len(x)-1].end, "; "+strings.TrimSuffix(r.mark(len(r.Body)), "; "))
		}
		if !braces {
			put(end, " }")
		}
		*next += len(r.Body) + 1
		rules = append(rules, r)
		for i+1 < len(t) && t[i+1].at < end {
			i++
		}
	}
	return append(out, source[copied:]...), rules
}

// mark is an expression that always holds.
func (r *Rule) mark(n int) string {
	return fmt.Sprintf("sprintf(%q, []); ", marked+strconv.Itoa(r.first+n))
}

// line is source without its breaks and comments.
func line(source []byte) string {
	var b strings.Builder
	end := 0
	for i, t := range tokens(source) {
		if i > 0 && t.at > end {
			b.WriteByte(' ')
		}
		b.Write(source[t.at:t.end])
		end = t.end
	}
	return b.String()
}

// extent returns how many tokens a body has: to the brace that closes it, or to the end of an
// expression.
func extent(t []token, braces bool) int {
	if braces {
		for i := range t {
			if i > 0 && t[i].depth == t[0].depth {
				return i + 1 // depth is that behind an opening and before a closing bracket
			}
		}
		return len(t)
	}
	for i := 1; i < len(t); i++ {
		if t[i].depth == t[0].depth && (t[i].text == "else" || t[i].text == ";" || t[i].line > t[i-1].last && !t[i].joins(t[i-1])) {
			return i
		}
	}
	return len(t)
}

// expressions splits a body.
func expressions(t []token) [][]token {
	var all [][]token
	from := 0
	for i := 1; i <= len(t); i++ {
		if i < len(t) && (t[i].depth > t[0].depth || t[i].text != ";" && t[i-1].text != ";" && (t[i].line <= t[i-1].last || t[i].joins(t[i-1]))) {
			continue
		}
		if t[from].text != ";" {
			all = append(all, t[from:i])
		}
		from = i
	}
	return all
}

// A token of Rego. What it stands in and its own brackets have the same depth.
type token struct {
	at, end    int
	line, last int // lines from 1 where it begins and ends
	depth      int // brackets around it
	text       string
}

// Words and operators behind which, and before which, no expression ends.
var (
	opens = strings.Fields(":= = == != < <= > >= + - * / % & | , : in with as not some every contains import package default .")
	joins = strings.Fields(":= = == != < <= > >= + - * / % & | , : in with as if contains )  ] } .")
)

// joins reports whether a token goes on with the expression of the one before, though it is on
// another line.
func (t token) joins(before token) bool {
	for _, s := range opens {
		if s == before.text {
			return true
		}
	}
	for _, s := range joins {
		if s == t.text {
			return true
		}
	}
	return false
}

// tokens reads Rego, without white space and comments.
func tokens(source []byte) []token {
	var all []token
	depth, lines := 0, 1
	word := func(c byte) bool {
		return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
	}
	for i := 0; i < len(source); {
		c := source[i]
		t := token{at: i, line: lines, depth: depth}
		switch {
		case c == '\n':
			lines++
			fallthrough
		case c == ' ', c == '\t', c == '\r':
			i++
			continue
		case c == '#':
			for i < len(source) && source[i] != '\n' {
				i++
			}
			continue
		case c == '"' || c == '`':
			for i++; i < len(source) && source[i] != c; i++ {
				if source[i] == '\\' && c == '"' {
					i++
				} else if source[i] == '\n' {
					lines++
				}
			}
			i = min(i+1, len(source))
		case word(c):
			for i < len(source) && word(source[i]) {
				i++
			}
		case strings.IndexByte("([{", c) >= 0:
			depth++
			i++
		case strings.IndexByte(")]}", c) >= 0:
			depth = max(0, depth-1)
			t.depth = depth
			i++
		case i+1 < len(source) && source[i+1] == '=' && strings.IndexByte(":=!<>", c) >= 0:
			i += 2
		default:
			i++
		}
		t.end, t.last, t.text = i, lines, string(source[t.at:i])
		all = append(all, t)
	}
	return all
}
