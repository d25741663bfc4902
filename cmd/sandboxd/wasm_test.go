package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// wasmModules are the small modules that scripts need, by name. Each is what its
// name says and otherwise as plain as it can be.
var wasmModules = map[string][]byte{
	// Binaries that are no plugin.
	"component": []byte("\x00asm\x0d\x00\x01\x00"),
	"empty":     module{}.bytes(),
	"command":   module{export: "_start"}.bytes(),

	// Imports that do not exist.
	"unknown-import": module{from: "env", name: "now", export: "answer"}.bytes(),
	"old-extism":     module{from: "env", name: "extism_alloc", export: "answer"}.bytes(),

	// Past limits: of memory, and of two things at once.
	"big-memory": module{export: "answer", pages: 2000}.bytes(),
	"twice-bad":  module{from: "env", name: "now", export: "answer", pages: 2000}.bytes(),

	// Blocks inside each other past the limit, and two more reasons.
	"deep": module{from: "env", name: "now", export: "answer", pages: 2000,
		code: slices.Concat(bytes.Repeat([]byte{0x02, 0x40}, wasmbin.MaxNesting+1), bytes.Repeat([]byte{0x0b}, wasmbin.MaxNesting+1))}.bytes(),

	// Plugins without a manifest.
	"answers": module{export: "answer", data: `{"answer":42}`}.bytes(),
	"hides":   module{export: "answer", data: "{\"text\":\"\u202eevil\x1b[31m\u200b\"}"}.bytes(),
	"binary":  module{export: "answer", data: "\xff\x00\xfe"}.bytes(),
	"spins":   module{export: "answer", code: []byte{0x03, 0x40, 0x0c, 0, 0x0b}}.bytes(),
	"traps":   module{export: "answer", code: []byte{0x00}}.bytes(),
	"silent":  module{export: "answer"}.bytes(),

	// Without a manifest, and what it has of code is not valid.
	"invalid": module{export: "answer", code: []byte{0x41, 0}}.bytes(),
}

// A module has one export without parameters or results, and perhaps one import of
// the same type. With data, the export answers with that.
type module struct {
	from, name string
	export     string
	pages      int
	data       string
	code       []byte
}

func (m module) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, body ...[]byte) {
		all := slices.Concat(body...)
		out = append(append(append(out, id), leb(len(all))...), all...)
	}
	code := m.code
	imports := 0
	switch {
	case m.data != "": // output_set(0, length)
		m.from, m.name = "sandboxd:host", "output_set"
		m.pages = max(m.pages, 1)
		code = slices.Concat([]byte{0x41, 0, 0x41}, sleb(len(m.data)), []byte{0x10, 0})
		section(1, []byte{2, 0x60, 0, 0, 0x60, 2, 0x7f, 0x7f, 0})
	case m.export != "":
		section(1, []byte{1, 0x60, 0, 0})
	}
	if m.from != "" {
		imports = 1
		typ := byte(0)
		if m.data != "" {
			typ = 1
		}
		section(2, []byte{1}, text(m.from), text(m.name), []byte{0, typ})
	}
	if m.export == "" {
		return out
	}
	section(3, []byte{1, 0})
	if m.pages > 0 {
		section(5, []byte{1, 0}, leb(m.pages))
	}
	section(7, []byte{1}, text(m.export), []byte{0, byte(imports)})
	body := slices.Concat([]byte{0}, code, []byte{0x0b})
	section(10, []byte{1}, leb(len(body)), body)
	if m.data != "" {
		section(11, []byte{1, 0, 0x41, 0, 0x0b}, text(m.data))
	}
	return out
}

func leb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// sleb encodes a number that is not negative as a signed one.
func sleb(n int) []byte {
	var out []byte
	for ; n >= 0x40; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

func text(s string) []byte { return append(leb(len(s)), s...) }

// wasm NAME FILE writes one of wasmModules.
func wasm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: wasm NAME FILE")
	}
	bytes, ok := wasmModules[args[0]]
	if !ok {
		ts.Fatalf("wasm: no module %s: there are %v", args[0], slices.Sorted(maps.Keys(wasmModules)))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes, 0o644))
}
