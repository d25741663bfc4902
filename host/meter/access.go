package meter

import "github.com/sandboxd/sandboxd/host/wasmbin"

// blocksModule is the module that accessors are imported from, which is Extism's.
const blocksModule = "extism:host/env"

// An accessor is a function that reads or writes a few bytes of a block of the host's. A
// module that imports one gets a function of its own instead, which does without the
// host as long as the bytes lie in the window that the host has opened.
type accessor struct {
	name   string
	typ    wasmbin.FuncType
	window int // of windows
	wide   bool
	store  bool
	op     byte
}

// Windows, by their globals: where a block lies in linear memory, the address it begins with,
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

// Window is the name under which a part of a window is exported.
func Window(window int, part string) string {
	return Prefix + [...]string{".load", ".store", ".input"}[window] + part
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

// HasWindows reports whether a module gets windows: it imports an accessor and has a
// memory that they can look into.
func HasWindows(m *wasmbin.Module) bool { return len(importedAccessors(m)) > 0 }

// An access is an accessor as a module imports it.
type access struct {
	accessor
	index uint32 // of the imported function
	typ   uint32
}

func importedAccessors(m *wasmbin.Module) []access {
	if len(m.Memories) != 1 {
		return nil
	}
	var all []access
	index := uint32(0)
	for _, i := range m.Imports {
		if i.Kind != wasmbin.Func {
			continue
		}
		for _, a := range accessors {
			if i.Module == blocksModule && i.Name == a.name && uint64(i.Type) < uint64(len(m.Types)) && m.Types[i.Type].Equal(a.typ) {
				all = append(all, access{a, index, i.Type})
			}
		}
		index++
	}
	return all
}

// accessCall is the fuel for calling an accessor; one that needs the host costs HostCall
// more.
const accessCall = 10

// part returns the global that is a part of a window.
func (w *rewriter) part(window int, name string) uint32 {
	for i, p := range parts {
		if p.name == name {
			return w.arena + 1 + uint32(window*len(parts)+i)
		}
	}
	panic("meter: no part " + name)
}

// accessBody is the function that a module gets for an accessor.
func (w *rewriter) accessBody(a access) []byte {
	params := uint32(len(a.accessor.typ.Params))
	get := func(out []byte, op byte, i uint32) []byte { return u32(append(out, op), i) }
	out := []byte{1, 1, i64} // locals: the place in the window
	out = get(out, opLocalGet, 0)
	out = append(get(out, opGlobalGet, w.part(a.window, Base)), opI64Sub)
	out = get(out, opLocalTee, params)
	count := Ones
	if a.wide {
		count = Wides
	}
	out = append(get(out, opGlobalGet, w.part(a.window, count)), opI64LtU, opIf)
	if a.store {
		out = append(out, 0x40)
	} else {
		out = append(out, byte(a.accessor.typ.Results[0]))
	}
	out = append(get(out, opLocalGet, params), opI32WrapI64)
	out = append(get(out, opGlobalGet, w.part(a.window, At)), opI32Add)
	if a.store {
		out = get(out, opLocalGet, 1)
	}
	out = append(out, a.op, 0, 0, byte(wasmbin.OpElse))
	out = append(constant(get(out, opGlobalGet, w.fuel), HostCall), opI64Sub)
	out = get(out, opGlobalSet, w.fuel)
	for i := range params {
		out = get(out, opLocalGet, i)
	}
	out = get(out, opCall, a.index)
	return append(out, opEnd, opEnd)
}
