package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// parse fills f from YAML. Unknown and repeated keys, wrong types, aliases and
// second documents are errors with their line.
func parse(data []byte, f *File) error {
	if len(data) > maxFileBytes {
		return bad(abi.ConfigInvalid, "", "%s: %d bytes exceed %d", FileName, len(data), maxFileBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return bad(abi.ConfigInvalid, "", "%s: empty", FileName)
	}
	if err != nil {
		return bad(abi.ConfigInvalid, "", "%s: %s", FileName, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return bad(abi.ConfigInvalid, "", "%s:%d: a second document", FileName, second.Line)
	}
	p := &parser{line: map[string]int{}}
	p.value(doc.Content[0], reflect.ValueOf(f).Elem(), "")
	f.line = p.line
	return errors.Join(p.errs...)
}

type parser struct {
	errs []error
	line map[string]int
}

func (p *parser) fail(n *yaml.Node, path, hint, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	p.errs = append(p.errs, bad(abi.ConfigInvalid, hint, "%s:%d: %s", FileName, n.Line, text))
}

func (p *parser) value(n *yaml.Node, v reflect.Value, path string) {
	p.line[path] = n.Line
	if s, ok := v.Addr().Interface().(scalar); ok {
		if err := s.fromYAML(n); err != nil {
			p.fail(n, path, "", "%v", err)
		}
		return
	}
	want := func(kind yaml.Kind, what string) bool {
		if n.Kind != kind {
			p.fail(n, path, "", "want %s, have %s", what, kindOf(n))
		}
		return n.Kind == kind
	}
	switch v.Kind() {
	case reflect.Struct:
		if want(yaml.MappingNode, "an object") {
			p.object(n, v, path)
		}
	case reflect.Map:
		if !want(yaml.MappingNode, "an object") {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if v.MapIndex(reflect.ValueOf(key)).IsValid() {
				p.fail(n.Content[i], path+"."+key, "", "there twice")
			}
			e := reflect.New(v.Type().Elem()).Elem()
			p.value(n.Content[i+1], e, path+"."+key)
			v.SetMapIndex(reflect.ValueOf(key), e)
		}
	case reflect.Slice:
		if !want(yaml.SequenceNode, "a list") {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, len(n.Content))) // an empty list is not an absent one
		for i, e := range n.Content {
			x := reflect.New(v.Type().Elem()).Elem()
			p.value(e, x, fmt.Sprintf("%s[%d]", path, i))
			v.Set(reflect.Append(v, x))
		}
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			hint := ""
			if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
				hint = fmt.Sprintf("quote it: %q", n.Value)
			}
			p.fail(n, path, hint, "want text, have %s", kindOf(n))
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			p.fail(n, path, "", "want true or false, have %s", kindOf(n))
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int:
		i, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || i < 1 || i > 1<<20 {
			p.fail(n, path, "", "want a whole number from 1 to %d, have %s", 1<<20, kindOf(n))
			return
		}
		v.SetInt(int64(i))
	default:
		panic("app: no way to read a " + v.Type().String())
	}
}

func (p *parser) object(n *yaml.Node, v reflect.Value, path string) {
	fields := map[string]reflect.StructField{}
	var names []string
	for f := range v.Type().Fields() {
		if name := yamlName(f); name != "" {
			fields[name] = f
			names = append(names, name)
		}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := join(path, key.Value)
		f, ok := fields[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			hint := "known keys: " + strings.Join(names, ", ")
			if near := Nearest(key.Value, names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			p.fail(key, at, hint, "unknown key")
			continue
		case seen[key.Value]:
			p.fail(key, at, "", "there twice")
			continue
		}
		seen[key.Value] = true
		p.value(n.Content[i+1], v.FieldByIndex(f.Index), at)
		if enum := f.Tag.Get("enum"); enum != "" {
			choices := strings.Split(enum, ",")
			if s := v.FieldByIndex(f.Index).String(); s != "" && !slices.Contains(choices, s) {
				p.fail(n.Content[i+1], at, "", "%q: want one of %s", s, strings.Join(choices, ", "))
			}
		}
	}
	for _, name := range names {
		if fields[name].Tag.Get("required") != "" && !seen[name] {
			p.fail(n, join(path, name), "", "missing")
		}
	}
}

// yamlName returns the key of a field, or "".
func yamlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Nearest returns the one of names that is at most two edits away from word, and
// nearest; "" if none is. Of short words more has to stay than is replaced: an edit fewer than
// the shorter of the two has letters, or nothing but letters that were added or left out.
func Nearest(word string, names []string) string {
	best, at := 3, ""
	for _, n := range names {
		d, short, long := distance(word, n), min(len(word), len(n)), max(len(word), len(n))
		if d < best && short > 0 && (d < short || d == long-short) {
			best, at = d, n
		}
	}
	return at
}

// distance counts the edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left, diagonal := i+1, row[0]
		row[0] = left
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, left, row[j+1]) + 1
			}
			diagonal, left = row[j+1], cost
			row[j+1] = cost
		}
	}
	return row[len(b)]
}
