package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Pin is what is written of one module that the file names, or of the first-party
// guards.
type Pin struct {
	What   string // such as "plugin weather"
	File   string // the module's, as named, or builtin/NAME; empty for one that is built from source, which cannot be pinned
	Source string
	Was    string // the digest that was there; may be empty
	Digest string // the one that is there now

	at string // its place in the file
}

// Pin loads every module that the file names, whatever digest is written beside it,
// and returns what each is now, and the text of the file with these digests. The
// text is otherwise as it was. Nothing is written.
func (f *File) Pin(ctx context.Context, m Modules) ([]Pin, []byte, error) {
	var pins []Pin
	rt := &Runtime{File: f}
	load := map[string]func() (*host.Module, error){} // by place
	for i, p := range f.Plugins {
		pin := Pin{What: "plugin " + p.Name, File: p.Module, Source: p.Source, Was: p.Digest, at: fmt.Sprintf("plugins[%d].module", i)}
		load[pin.at] = func() (*host.Module, error) {
			return rt.module(ctx, pin.What, p.Module, "", p.Manifest, "", Options{Modules: m})
		}
		pins = append(pins, pin)
	}
	for i, g := range f.Guards {
		at := fmt.Sprintf("guards[%d]", i)
		members, where, _ := g.group()
		if where == "" {
			members = []Member{g.module()}
		}
		for j, member := range members {
			pin := Pin{What: "guard " + g.Name, File: member.Policy, Source: member.Source, Was: member.Digest, at: at + ".policy"}
			if where != "" {
				pin.at = fmt.Sprintf("%s.%s[%d].policy", at, where, j)
			}
			load[pin.at] = func() (*host.Module, error) {
				return rt.policy(ctx, g.Name, &Member{Policy: member.Policy}, Options{Modules: m})
			}
			pins = append(pins, pin)
		}
	}
	data, err := os.ReadFile(filepath.Join(f.dir, FileName))
	if err != nil {
		return nil, nil, bad(abi.Usage, "", "%v", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, bad(abi.ConfigInvalid, "", "%s: %v", FileName, err)
	}
	var edits []edit
	for i := range pins {
		p := &pins[i]
		if p.File == "" {
			continue
		}
		module, err := load[p.at]()
		if err != nil {
			return nil, nil, err
		}
		p.Digest = module.Digest().String()
		entry, key := nodeAt(doc.Content[0], p.at)
		if entry == nil || sameDigest(p.Was, p.Digest) {
			continue
		}
		edits = append(edits, pinEdit(entry, key, p.Digest))
	}
	text, err := apply(string(data), edits)
	if err == nil {
		err = pinned(text, pins)
	}
	if err != nil {
		return nil, nil, bad(abi.ConfigInvalid, "write the digests by hand: sandboxd plugin inspect shows them", "%s: %v", FileName, err)
	}
	return pins, text, nil
}

// apply makes edits in a text.
func apply(text string, edits []edit) ([]byte, error) {
	slices.SortFunc(edits, func(a, b edit) int { // from the end: what is before stays where it is
		return cmp.Or(b.line-a.line, b.column-a.column)
	})
	lines := strings.SplitAfter(text, "\n")
	for _, e := range edits {
		line := []rune(lines[e.line-1])
		if e.column-1+e.old > len(line) {
			return nil, fmt.Errorf("line %d: not one line for one value", e.line)
		}
		lines[e.line-1] = string(line[:e.column-1]) + e.text + string(line[e.column-1+e.old:])
	}
	return []byte(strings.Join(lines, "")), nil
}

// pinned checks that a text holds the digests, each at its place.
func pinned(text []byte, pins []Pin) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	for _, p := range pins {
		if p.Digest == "" {
			continue
		}
		found := ""
		entry, _ := nodeAt(doc.Content[0], p.at)
		for i := 0; entry != nil && i+1 < len(entry.Content); i += 2 {
			if entry.Content[i].Value == "digest" {
				found = entry.Content[i+1].Value
			}
		}
		if !sameDigest(found, p.Digest) {
			return fmt.Errorf("%s: its entry cannot be edited", p.What)
		}
	}
	return nil
}

// An edit replaces old characters at a place, whose numbers begin with 1.
type edit struct {
	line, column, old int
	text              string
}

// pinEdit returns the edit that writes a digest into an entry: in place of the one
// that is there, or behind the key that names the module, in the entry's own style.
func pinEdit(entry *yaml.Node, key, digest string) edit {
	var named *yaml.Node
	var column int // of the key
	for i := 0; i+1 < len(entry.Content); i += 2 {
		k, v := entry.Content[i], entry.Content[i+1]
		switch k.Value {
		case "digest":
			return edit{v.Line, v.Column, written(v), digest}
		case key:
			named, column = v, k.Column
		}
	}
	end := named.Column + written(named)
	if entry.Style&yaml.FlowStyle != 0 {
		return edit{named.Line, end, 0, ", digest: " + digest}
	}
	return edit{named.Line, end, 0, "\n" + strings.Repeat(" ", column-1) + "digest: " + digest}
}

// written returns how many characters a scalar has in the file, if it has no escapes.
func written(n *yaml.Node) int {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		return utf8.RuneCountInString(n.Value) + 2
	}
	return utf8.RuneCountInString(n.Value)
}

// nodeAt finds an entry by a path such as "guards[0].any_of[1].policy", and returns
// it with the last key.
func nodeAt(n *yaml.Node, path string) (entry *yaml.Node, key string) {
	steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	key = steps[len(steps)-1]
	for _, step := range steps[:len(steps)-1] {
		next := (*yaml.Node)(nil)
		if n.Kind == yaml.SequenceNode {
			var i int
			if _, err := fmt.Sscan(step, &i); err == nil && i < len(n.Content) {
				next = n.Content[i]
			}
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				next = n.Content[i+1]
			}
		}
		if next == nil {
			return nil, key
		}
		n = next
	}
	return n, key
}
