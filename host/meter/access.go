package meter

import (
	"encoding/binary"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// blocksModule is the module that accessors are imported from, which is Extism's.
const blocksModule = "extism:host/env"

// An accessor is a function that reads or writes a few bytes of a block of the host's. A
// module that imports one gets that of an instance of [BlocksModule], which does without the
// host as long as the bytes lie in the window that the host has opened.
type accessor struct {
	name   string
	typ    wasmbin.FuncType
	window int // of windows
	wide   bool
	store  bool
	op     byte
}

// Windows, by their globals: where a block lies in memory, the address it begins with,
// and the number of places in it where one byte, or eight, can be read or written.
const (
	Load  = iota // of the block that was read last
	Store        // of the block that was written last
	Input        // of the input, whose addresses begin with 0
	windows

	At    = ".at"    // i32
	Base  = ".base"  // i64
	Ones  = ".ones"  // i64
	Wides = ".wides" // i64
)

// parts are the globals of a window, in their order.
var parts = [...]struct {
	name string
	typ  wasmbin.ValueType
}{{At, wasmbin.I32}, {Base, wasmbin.I64}, {Ones, wasmbin.I64}, {Wides, wasmbin.I64}}

// Blocks is the name of the module that rewritten modules import accessors from.
const Blocks = Prefix + ".blocks"

// Window is the name under which an instance of [BlocksModule] exports a part of a window.
func Window(window int, part string) string {
	return [...]string{"load", "store", "input"}[window] + part
}

var accessors = []accessor{
	{"load_u8", signature(wasmbin.I32, wasmbin.I64), Load, false, false, 0x2d},
	{"load_u64", signature(wasmbin.I64, wasmbin.I64), Load, true, false, 0x29},
	{"store_u8", signature(0, wasmbin.I64, wasmbin.I32), Store, false, true, 0x3a},
	{"store_u64", signature(0, wasmbin.I64, wasmbin.I64), Store, true, true, 0x37},
	{"input_load_u8", signature(wasmbin.I32, wasmbin.I64), Input, false, false, 0x2d},
	{"input_load_u64", signature(wasmbin.I64, wasmbin.I64), Input, true, false, 0x29},
}

func signature(result wasmbin.ValueType, params ...wasmbin.ValueType) wasmbin.FuncType {
	t := wasmbin.FuncType{Params: params}
	if result != 0 {
		t.Results = []wasmbin.ValueType{result}
	}
	return t
}

// Accessors returns the names of all accessors: of functions of Extism that a rewritten module
// imports from [Blocks], which itself imports them from the module [Prefix].
func Accessors() []string {
	var names []string
	for _, a := range accessors {
		names = append(names, a.name)
	}
	return names
}

// HasWindows reports whether a module gets windows: it imports an accessor.
func HasWindows(m *wasmbin.Module) bool {
	for _, i := range m.Imports {
		if isAccessor(m, i) {
			return true
		}
	}
	return false
}

func isAccessor(m *wasmbin.Module, i wasmbin.Import) bool {
	if i.Kind != wasmbin.Func || i.Module != blocksModule || uint64(i.Type) >= uint64(len(m.Types)) {
		return false
	}
	for _, a := range accessors {
		if a.name == i.Name {
			return m.Types[i.Type].Equal(a.typ)
		}
	}
	return false
}

// accessCall is the fuel for calling an accessor; one that needs the host costs HostCall
// more, which the host charges.
const accessCall = 10

// BlocksModule returns the module that blocks lie in, in a memory of one page or more that its
// host gives it. It exports the accessors and the windows. What lies in no window it leaves to the
// functions of the same names that it imports from [Prefix].
func BlocksModule() []byte {
	n := uint32(len(accessors))
	types, imports, functions := u32(nil, n), u32(nil, n), u32(nil, n)
	exports, code := u32(nil, n+uint32(windows*len(parts))), u32(nil, n)
	for i, a := range accessors {
		index := uint32(i)
		types = append(types, 0x60)
		for _, list := range [][]wasmbin.ValueType{a.typ.Params, a.typ.Results} {
			types = u32(types, uint32(len(list)))
			for _, t := range list {
				types = append(types, byte(t))
			}
		}
		imports = u32(append(name(name(imports, Prefix), a.name), byte(wasmbin.Func)), index)
		functions = u32(functions, index)
		exports = u32(append(name(exports, a.name), byte(wasmbin.Func)), n+index)
		body := a.body(index)
		code = append(u32(code, uint32(len(body))), body...)
	}
	globals := u32(nil, uint32(windows*len(parts)))
	for w := range windows {
		for _, p := range parts {
			zero := byte(wasmbin.OpI64Const)
			if p.typ == wasmbin.I32 {
				zero = byte(wasmbin.OpI32Const)
			}
			globals = append(globals, byte(p.typ), 1, zero, 0, opEnd)
			exports = u32(append(name(exports, Window(w, p.name)), byte(wasmbin.Global)), part(w, p.name))
		}
	}
	out := binary.LittleEndian.AppendUint32([]byte("\x00asm"), 1)
	out = section(out, secType, types)
	out = section(out, secImport, imports)
	out = section(out, secFunction, functions)
	out = section(out, secMemory, []byte{1, 0, 1})
	out = section(out, secGlobal, globals)
	out = section(out, secExport, exports)
	out = section(out, secCode, code)
	// Its own name, so that nobody takes its functions for a guest's in a trace.
	called := name(nil, Blocks)
	return section(out, secCustom, append(u32(append(name(nil, "name"), 0), uint32(len(called))), called...))
}

// part returns the global that is a part of a window.
func part(window int, name string) uint32 {
	for i, p := range parts {
		if p.name == name {
			return uint32(window*len(parts) + i)
		}
	}
	panic("meter: no part " + name)
}

// body is that of the accessor; the function of that index is the host's.
func (a accessor) body(host uint32) []byte {
	params := uint32(len(a.typ.Params))
	get := func(out []byte, op byte, i uint32) []byte { return u32(append(out, op), i) }
	out := []byte{1, 1, i64} // locals: the place in the window
	out = get(out, opLocalGet, 0)
	out = append(get(out, opGlobalGet, part(a.window, Base)), opI64Sub)
	out = get(out, opLocalTee, params)
	count := Ones
	if a.wide {
		count = Wides
	}
	out = append(get(out, opGlobalGet, part(a.window, count)), opI64LtU, opIf)
	if a.store {
		out = append(out, 0x40)
	} else {
		out = append(out, byte(a.typ.Results[0]))
	}
	out = append(get(out, opLocalGet, params), opI32WrapI64)
	out = append(get(out, opGlobalGet, part(a.window, At)), opI32Add)
	if a.store {
		out = get(out, opLocalGet, 1)
	}
	out = append(out, a.op, 0, 0, byte(wasmbin.OpElse))
	for i := range params {
		out = get(out, opLocalGet, i)
	}
	out = get(out, opCall, host)
	return append(out, opEnd, opEnd)
}
