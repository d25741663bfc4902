package host

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A builder writes small modules, so that hostile guests need no assembler.
// Function types are written as in [function].typ; "v" never appears.
type builder struct {
	types   []string
	imports [][]byte
	count   int // functions, imported ones first
	funcs   []int
	bodies  [][]byte
	exports [][]byte
	memory  []byte
	table   []byte
	globals [][]byte
	data    [][]byte
	start   []byte
}

func leb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(n int64) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func str(s string) []byte { return append(leb(len(s)), s...) }

func vec(items ...[]byte) []byte { return append(leb(len(items)), slices.Concat(items...)...) }

func section(id byte, body []byte) []byte { return slices.Concat([]byte{id}, leb(len(body)), body) }

func (b *builder) typ(t string) int {
	if i := slices.Index(b.types, t); i >= 0 {
		return i
	}
	b.types = append(b.types, t)
	return len(b.types) - 1
}

// use imports a function the host offers and returns its index.
func (b *builder) use(module, name string) int {
	f, ok := lookup(module, name)
	if !ok {
		panic("no host function " + name)
	}
	return b.importFunc(module, name, f.typ)
}

func (b *builder) importFunc(module, name, typ string) int {
	b.imports = append(b.imports, slices.Concat(str(module), str(name), []byte{0}, leb(b.typ(typ))))
	b.count++
	return b.count - 1
}

// fn adds a function with i64 locals, and exports it if name is not empty.
// Imports come before.
func (b *builder) fn(name, typ string, locals int, code ...[]byte) int {
	b.funcs = append(b.funcs, b.typ(typ))
	body := slices.Concat(leb(1), leb(locals), []byte{byte(wasmbin.I64)}, slices.Concat(code...), []byte{0x0b})
	b.bodies = append(b.bodies, append(leb(len(body)), body...))
	index := b.count
	b.count++
	if name != "" {
		b.exports = append(b.exports, slices.Concat(str(name), []byte{0}, leb(index)))
	}
	return index
}

func (b *builder) pages(n int) { b.memory = append([]byte{0}, leb(n)...) }

func (b *builder) put(at int, data string) {
	b.data = append(b.data, slices.Concat([]byte{0}, i32(int64(at)), []byte{0x0b}, str(data)))
}

func (b *builder) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	var types [][]byte
	for _, t := range b.types {
		ft := function{typ: t}.funcType()
		enc := []byte{0x60}
		for _, list := range [][]wasmbin.ValueType{ft.Params, ft.Results} {
			enc = append(enc, leb(len(list))...)
			for _, v := range list {
				enc = append(enc, byte(v))
			}
		}
		types = append(types, enc)
	}
	out = append(out, section(1, vec(types...))...)
	if len(b.imports) > 0 {
		out = append(out, section(2, vec(b.imports...))...)
	}
	var funcs [][]byte
	for _, f := range b.funcs {
		funcs = append(funcs, leb(f))
	}
	out = append(out, section(3, vec(funcs...))...)
	if b.table != nil {
		out = append(out, section(4, vec(b.table))...)
	}
	if b.memory != nil {
		out = append(out, section(5, vec(b.memory))...)
	}
	if len(b.globals) > 0 {
		out = append(out, section(6, vec(b.globals...))...)
	}
	out = append(out, section(7, vec(b.exports...))...)
	if b.start != nil {
		out = append(out, section(8, b.start)...)
	}
	out = append(out, section(10, vec(b.bodies...))...)
	if len(b.data) > 0 {
		out = append(out, section(11, vec(b.data...))...)
	}
	return out
}

// Instructions.
func i32(v int64) []byte      { return append([]byte{0x41}, sleb(int64(int32(v)))...) }
func i64(v int64) []byte      { return append([]byte{0x42}, sleb(v)...) }
func callFn(i int) []byte     { return append([]byte{0x10}, leb(i)...) }
func get(i int) []byte        { return append([]byte{0x20}, leb(i)...) }
func setLocal(i int) []byte   { return append([]byte{0x21}, leb(i)...) }
func grow(pages int64) []byte { return append(i32(pages), 0x40, 0) }
func loop(code ...[]byte) []byte {
	return slices.Concat([]byte{0x03, 0x40}, slices.Concat(code...), []byte{0x0c, 0, 0x0b})
}

var (
	drop        = []byte{0x1a}
	unreachable = []byte{0x00}
)

// testManifest is the manifest of hand-made guests.
var testManifest = &abi.Manifest{ABI: 1, Name: "test", Version: "1",
	Tools:  []abi.Tool{{Name: "tool", Effects: abi.None}},
	Guards: []abi.Guard{{Name: "guard", Phases: []abi.Phase{abi.PhaseCall}}},
	Hooks:  []abi.HookPoint{abi.BeforeTool}}

// packed returns the module with the test manifest.
func packed(t testing.TB, wasm []byte) []byte {
	t.Helper()
	offers := testManifest
	if bytes.Contains(wasm, []byte(abi.RegoBuiltin)) {
		// Nobody else may import it.
		offers = &abi.Manifest{ABI: abi.Version, Name: "test", Version: "1", Guards: []abi.Guard{{Name: "test", Phases: []abi.Phase{abi.PhaseCall}}}}
	}
	manifest, err := offers.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := wasmbin.SetCustom(wasm, abi.ManifestSection, manifest)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(out, wasm) {
		t.Fatal("no manifest was written")
	}
	return out
}
