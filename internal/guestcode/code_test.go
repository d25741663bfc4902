package guestcode

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// source has, on marked lines, what the author branches on, and else what the compiler and
// the library branch on.
const source = `package main

import "strings"

func main() {}

var seen []string

//go:wasmexport judge
func judge(n int32) int32 {
	names := strings.Split("a b c", " ")
	if n > 2 { // branches
		return 1
	}
	seen = append(seen, names[n])
	for _, s := range seen { // branches
		if strings.Contains(s, "b") { // branches
			return half(int(n))
		}
	}
	return 0
}

//go:noinline
func half(n int) int32 {
	if n%2 == 0 && n != 4 { // branches twice
		return int32(n / 2)
	}
	return -1
}
`

func module(t *testing.T, text string) (string, []byte, *guestbuild.Listing) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{"go.mod": "module guest.example/half\n\ngo 1.26\n", "main.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	built, err := guestbuild.Build(t.Context(), dir, guestbuild.Options{CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	listing, err := guestbuild.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, built.Wasm, listing
}

// Branches and changes are those of the author's lines: what was inlined from elsewhere, and
// what the compiler added, is not among them.
func TestGo(t *testing.T) {
	dir, wasm, listing := module(t, source)
	c, err := Read(wasm, listing)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(source, "\n")
	found := map[string]map[int]int{}
	constants := map[string]string{}
	for _, f := range c.Functions {
		found[f.Name] = map[int]int{}
		for _, b := range f.Branches {
			line := f.sites[b.At].Line
			found[f.Name][line]++
			if !strings.Contains(lines[line-1], "// branches") {
				t.Errorf("%s branches in line %d: %s", f.Name, line, lines[line-1])
			}
			for _, w := range b.Ways {
				if w.Site.Line < line-1 || w.Site.File != "guest.example/half/main.go" {
					t.Errorf("%s goes from line %d to %v", f.Name, line, w.Site)
				}
			}
		}
		for _, ch := range f.Changes {
			if !strings.HasPrefix(ch.ID, f.Name+" ") || ch.Site.Line == 0 || !ch.To.Turns(opAt(t, c, ch.At)) {
				t.Errorf("change %+v", ch)
			}
			if ch.To == meter.More || ch.To == meter.Less {
				constants[ch.ID] = ch.Text
			}
		}
		if !c.Watch(f.Index) {
			t.Errorf("%s is not watched", f.Name)
		}
	}
	if len(found) != 2 || found["half"][26] != 2 || found["judge"][12] != 1 || found["judge"][16] == 0 || found["judge"][17] == 0 {
		t.Errorf("found %v", found)
	}

	if want := map[string]string{"half more 1": "4 becomes 5", "half less 1": "4 becomes 3"}; !maps.Equal(constants, want) {
		t.Errorf("constants %v, want %v", constants, want)
	}

	// Of a module alone one knows the functions, if it has their names.
	if _, err := Read(wasm, nil); !errors.Is(err, ErrNoNames) {
		t.Errorf("without names: %v", err)
	}
	named, err := Read(listing.Wasm, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(named.Functions, func(f *Function) bool { return f.Name == "half" && f.sites == nil && len(f.Branches) > 1 }) {
		t.Errorf("functions by name: %v", named.Functions)
	}

	// What was changed since is not taken for what was built.
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.Replace(source, "n > 2", "n > 2 && n < 9", 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	other, err := guestbuild.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(wasm, other); err == nil || !strings.Contains(err.Error(), "changed since") {
		t.Errorf("other source: %v", err)
	}
}

func opAt(t *testing.T, c *Code, at int) wasmbin.Op {
	t.Helper()
	for _, b := range c.bin.Bodies() {
		for s := b.Instructions(); s.Next(); {
			if s.Instruction().Start == at {
				return s.Instruction().Op
			}
		}
	}
	t.Fatalf("no instruction at %d", at)
	return 0
}

// Of code in other languages all functions count that are not of an SDK or library.
func TestNames(t *testing.T) {
	wasm, err := os.ReadFile("../../testdata/wasm/kernels.wasm")
	if err != nil {
		t.Fatal(err)
	}
	section := []byte{1, 0, 5}
	for i, name := range []string{"fib", "sbx_field", "_ZN4core3fmt5write17h00E", "~lib/string/String#charAt", "matmul"} {
		section = append(append(section, byte(i), byte(len(name))), name...)
	}
	section[1] = byte(len(section) - 2)
	named, err := wasmbin.SetCustom(wasm, "name", section)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read(named, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range c.Functions {
		got = append(got, f.Name)
		if len(f.Branches) == 0 || len(f.Changes) <= 3*len(f.Branches) {
			t.Errorf("%s: %d branches, %d changes", f.Name, len(f.Branches), len(f.Changes))
		}
	}
	if want := []string{"fib", "matmul"}; !slices.Equal(got, want) {
		t.Errorf("functions %q, want %q", got, want)
	}
	if _, err := Read(wasm, nil); !errors.Is(err, ErrNoNames) {
		t.Errorf("without names: %v", err)
	}
}

// Where lines are known, what comes from an author's line counts, whatever its function is
// called, and no other code does.
func TestLines(t *testing.T) {
	wasm, err := os.ReadFile("../../testdata/wasm/lines.wasm")
	if err != nil {
		t.Fatal(err)
	}
	listed, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	// The module has the same code elsewhere: something lies before it.
	moved := slices.Concat(wasm[:8], []byte{0, 5, 1, 'x', 1, 2, 3}, wasm[8:])
	bin, err := wasmbin.Decode(moved)
	if err != nil {
		t.Fatal(err)
	}
	var listing guestbuild.Listing
	listing.Wasm = wasm
	for i, b := range listed.Bodies() {
		if i == 0 {
			listing.Lines = append(listing.Lines, guestbuild.Line{At: b.Code, File: "a.c", Line: 3}, guestbuild.Line{At: b.Code + 10})
		}
	}
	c, err := Read(bin.Bytes(), &listing)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Functions) != 1 || c.Functions[0].Index != 0 || c.Functions[0].Name != "judge" || c.Functions[0].Site != (Site{"a.c", 3}) {
		t.Fatalf("functions %+v", c.Functions)
	}
	f := c.Functions[0]
	if len(f.Branches) == 0 || len(f.Changes) == 0 {
		t.Errorf("branches %v, changes %v", f.Branches, f.Changes)
	}
	named, err := Read(wasm, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all := named.Functions[0]; len(f.Branches) >= len(all.Branches) {
		t.Errorf("%d branches in the author's lines, %d in the function", len(f.Branches), len(all.Branches))
	}
	for _, b := range f.Branches {
		if b.Site != (Site{"a.c", 3}) || b.Ways[0].Site != (Site{"a.c", 3}) {
			t.Errorf("branch %+v", b)
		}
	}
}

func TestExported(t *testing.T) {
	for name, want := range map[string]string{
		"judge": "judge", "sbx__export_judge": "judge", "policy/check": "check", "policy/judge~anonymous|0": "judge~anonymous|0",
		"_ZN6policy6helper17h0123456789abcdefE": "helper", "_ZN4tool5inner3one17h0123456789abcdefE": "one",
		"_ZN": "_ZN", "_ZN9x": "_ZN9x", "_ZN1aE": "_ZN1aE", "_ZN99999999999999999999aE": "_ZN99999999999999999999aE",
	} {
		if got := exported(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c := &Code{}
	for _, want := range []string{"f", "f #2", "f #3"} {
		got := c.unique("f")
		if got != want {
			t.Errorf("unique: %q, want %q", got, want)
		}
		c.Functions = append(c.Functions, &Function{Name: got})
	}
}
