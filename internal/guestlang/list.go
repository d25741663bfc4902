package guestlang

import (
	"cmp"
	"context"
	"debug/dwarf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// List compiles the source of a guest once more, so that names of functions and lines of
// source are known of the code that [Build] makes of it; nil of a policy in Rego, of which
// Build knows them. Source that does not build is an error as in Build. List keeps
// nothing, and is safe for concurrent use.
func List(ctx context.Context, s Source) (*guestbuild.Listing, error) {
	if s.Language.recipe == nil {
		if s.Language.Name == "go" {
			return guestbuild.List(ctx, s.Dir)
		}
		return nil, nil
	}
	if err := s.Language.Missing(s.Dir); err != nil {
		return nil, err
	}
	r := s.Language.recipe(s.Dir)
	wasm, sourceMap, err := compile(ctx, s, r.listed)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as a compiler that asks where it is
		return nil, fmt.Errorf("guest %s: %w", s.Dir, err)
	}
	own := author{dir: dir, sdk: s.Language.SDK, texts: map[string][]string{}}
	lines, err := r.lines(wasm, sourceMap, own.line)
	if err != nil {
		return nil, fmt.Errorf("guest %s: lines of source: %w", s.Dir, err)
	}
	return &guestbuild.Listing{Wasm: wasm, Lines: lines}, nil
}

// An owner says what of the author's a place in the source is, as [author.line] does.
type owner func(name string, line, column int) guestbuild.Line

// An author knows which lines are the author's.
type author struct {
	dir   string // of the source, absolute
	sdk   string
	texts map[string][]string // lines of source, by file
}

// line returns where code comes from; column counts from 1, 0 is not known. The zero Line
// is code that is not the author's: of the SDK, whose macros stand in the author's source,
// of libraries, and of what a compiler puts where a block ends.
func (a author) line(name string, line, column int) guestbuild.Line {
	if name = ownFile(a.dir, name, a.sdk); name == "" || line < 1 {
		return guestbuild.Line{}
	}
	text, ok := a.texts[name]
	if !ok {
		data, _ := os.ReadFile(filepath.Join(a.dir, filepath.FromSlash(name))) // what cannot be read has no lines
		text = strings.Split(string(data), "\n")
		a.texts[name] = text
	}
	if line > len(text) || strings.Trim(text[line-1], " \t\r(){}[];,") == "" {
		return guestbuild.Line{}
	}
	if at := text[line-1]; column > 0 && column <= len(at) && strings.HasPrefix(at[column-1:], "SBX_") {
		return guestbuild.Line{}
	}
	return guestbuild.Line{File: name, Line: line}
}

// ownFile returns the name of a source file within the folder dir; empty if it is the copy
// of the SDK there, or not in dir.
func ownFile(dir, name, sdk string) string {
	name = filepath.FromSlash(name)
	if filepath.IsAbs(name) {
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return ""
		}
		name = rel
	}
	name = filepath.ToSlash(filepath.Clean(name))
	if !filepath.IsLocal(name) || name == "." || name == sdk || strings.HasPrefix(name, "~") || strings.HasPrefix(name, "node_modules/") {
		return ""
	}
	return name
}

// dwarfLines reads the lines of a module from its sections of DWARF, as clang and rustc
// write them: addresses are offsets in the section of the code.
func dwarfLines(wasm, _ []byte, own owner) ([]guestbuild.Line, error) {
	bin, err := wasmbin.Decode(wasm)
	if err != nil {
		return nil, err
	}
	section := func(name string) []byte {
		for _, data := range bin.Custom(".debug_" + name) {
			return data
		}
		return nil
	}
	if section("info") == nil {
		return nil, nil
	}
	const code = 10
	base := 0
	for _, s := range bin.Sections {
		if s.ID == code {
			base = s.Body
		}
	}
	data, err := dwarf.New(section("abbrev"), nil, nil, section("info"), section("line"), nil, section("ranges"), section("str"))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"addr", "line_str", "str_offsets", "rnglists"} { // of DWARF 5
		if b := section(name); b != nil {
			if err := data.AddSection(".debug_"+name, b); err != nil {
				return nil, err
			}
		}
	}
	var all []guestbuild.Line
	for units := data.Reader(); ; {
		unit, err := units.Next()
		if err != nil {
			return nil, err
		}
		if unit == nil {
			break
		}
		units.SkipChildren()
		lines, err := data.LineReader(unit)
		if err != nil {
			return nil, err
		}
		if lines == nil {
			continue
		}
		// What was left out of the module begins at no address, or at one that no code has.
		var sequence []guestbuild.Line
		for {
			var e dwarf.LineEntry
			if err := lines.Next(&e); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			var l guestbuild.Line
			if e.File != nil && !e.EndSequence {
				l = own(e.File.Name, e.Line, e.Column)
			}
			l.At = base + int(e.Address)
			sequence = append(sequence, l)
			if e.EndSequence {
				if at := sequence[0].At - base; at > 0 && at < len(wasm) {
					all = append(all, sequence...)
				}
				sequence = nil
			}
		}
	}
	return inOrder(all), nil
}

// inOrder sorts lines by where they begin; of several at one place the last one holds.
func inOrder(all []guestbuild.Line) []guestbuild.Line {
	slices.SortStableFunc(all, func(a, b guestbuild.Line) int { return cmp.Compare(a.At, b.At) })
	out := all[:0]
	for _, l := range all {
		if n := len(out); n > 0 && out[n-1].At == l.At {
			out = out[:n-1]
		}
		out = append(out, l)
	}
	return out
}

// mapLines reads the lines of a module from a source map, whose only line is the module:
// https://tc39.es/ecma426/.
func mapLines(_, sourceMap []byte, own owner) ([]guestbuild.Line, error) {
	var m struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	if err := json.Unmarshal(sourceMap, &m); err != nil {
		return nil, fmt.Errorf("source map: %w", err)
	}
	var all []guestbuild.Line
	var at, source, line int
	for text := range strings.SplitSeq(m.Mappings, ",") {
		fields, err := vlqs(text)
		if err != nil {
			return nil, err
		}
		at += fields[0]
		var l guestbuild.Line
		if len(fields) >= 4 {
			source, line = source+fields[1], line+fields[2]
			if source < 0 || source >= len(m.Sources) {
				return nil, fmt.Errorf("source map: source %d of %d", source, len(m.Sources))
			}
			// Sources are relative to the folder of the guest.
			l = own(m.Sources[source], line+1, 0)
		}
		l.At = at
		all = append(all, l)
	}
	return inOrder(all), nil
}

// vlqs decodes numbers in base 64, five bits a digit, the lowest first and the sign before
// them.
func vlqs(text string) ([]int, error) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var out []int
	n, shift := 0, 0
	for _, c := range []byte(text) {
		d := strings.IndexByte(digits, c)
		if d < 0 || shift > 30 {
			return nil, fmt.Errorf("source map: %.40q is not a mapping", text)
		}
		n |= d & 31 << shift
		if shift += 5; d&32 != 0 {
			continue
		}
		if n&1 != 0 {
			n = -n
		}
		out, n, shift = append(out, n/2), 0, 0
	}
	if len(out) == 0 || shift > 0 {
		return nil, fmt.Errorf("source map: %.40q is not a mapping", text)
	}
	return out, nil
}
