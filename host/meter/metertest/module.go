// Package metertest makes modules for tests of what changes or runs them. A module is
// made of bytes that a fuzzer chooses; whatever they are, it is valid, ends, and does
// the same wherever it runs: what WebAssembly leaves open is not in it.
package metertest

import (
	"encoding/binary"
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// What every module exports, beside its memory as "memory".
const (
	Call = "call" // () -> (): computes, and tells the host when it is done
	Dump = "dump" // () -> (): writes globals and tables to memory, at DumpAt
)

// Where modules write what [Dump] does, of which there are DumpBytes.
const (
	DumpAt    = 0xf000
	DumpBytes = 0x200
)

const (
	resultsAt  = 0xe000 // where Call writes what the first function returned
	mostWork   = 600    // calls of functions and rounds of loops in one Call
	mostCode   = 600    // instructions that are chosen for one module
	mostDepth  = 9      // of what is chosen within each other
	mostLocals = 60     // of one function, after which what is kept for a moment shares locals
	work       = 0      // the global that counts work down
)

// Module returns a module that is made of choices. Where they end, everything is the simplest that
// it can be. Its functions call each other and, now and then, the host: it imports one function of
// the type (i32 i32) -> () by the given names, and Call calls that last, with 0 and the bytes of memory.
//
// Calls and rounds of loops are counted, and where there are too many functions return at once. Every call of Call
// counts itself in memory and in globals, so what is left of one shows in the next. Half of the modules
// change tables and drop segments; the others can be set back by their memory and globals. Some have a
// start function, an export "_initialize", more than two MiB of memory, or data in segments that touch.
func Module(choices []byte, module, name string) []byte {
	g := &generator{choices: choices, left: mostCode}
	flags := g.next()
	g.lasting, g.bulk, g.big = flags&1 == 0, flags&2 == 0, flags&0x38 == 0x38
	g.second = 12 - 2*(flags>>7)
	g.declare()
	for _, f := range g.funcs {
		g.write(f)
	}
	return g.module(module, name, flags&4 != 0, flags&64 != 0)
}

type generator struct {
	choices []byte
	left    int // instructions that may still be chosen
	lasting bool
	bulk    bool // segments that instructions name
	big     bool
	second  int // where the second of the segments in the beginning lies

	types   []wasmbin.FuncType
	funcs   []*function // those with a body; before them is the import
	globals []global
	tables  []table

	f     *function // which is written; likewise the next two
	depth int
	code  []byte
}

type function struct {
	typ    int
	locals []wasmbin.ValueType // parameters among them
	labels [][]wasmbin.ValueType
	code   []byte
}

type global struct {
	t       wasmbin.ValueType
	mutable bool
	init    []byte
}

type table struct {
	t        wasmbin.ValueType
	min, max int // none if max is 0
}

// next is the next choice, 0 behind the last.
func (g *generator) next() int {
	if len(g.choices) == 0 {
		return 0
	}
	c := g.choices[0]
	g.choices = g.choices[1:]
	return int(c)
}

func (g *generator) pick(n int) int { return g.next() % n }

// rarely is true for few choices.
func (g *generator) rarely() bool { return g.next() >= 244 }

// over says that everything has to come to an end.
func (g *generator) over() bool { return len(g.choices) == 0 || g.left <= 0 || g.depth >= mostDepth }

var valueTypes = []wasmbin.ValueType{i32, i64, f32, f64, v128, i32, i64, funcref, externref}

func (g *generator) someTypes(most int) []wasmbin.ValueType {
	var types []wasmbin.ValueType
	for range g.pick(most + 1) {
		types = append(types, valueTypes[g.pick(len(valueTypes))])
	}
	return types
}

// typeOf returns the index of a function type.
func (g *generator) typeOf(params, results []wasmbin.ValueType) int {
	t := wasmbin.FuncType{Params: params, Results: results}
	if i := slices.IndexFunc(g.types, t.Equal); i >= 0 {
		return i
	}
	g.types = append(g.types, t)
	return len(g.types) - 1
}

// declare chooses everything but code.
func (g *generator) declare() {
	g.typeOf([]wasmbin.ValueType{i32, i32}, nil)
	g.typeOf(nil, nil)
	for i := range 2 + g.pick(5) {
		f := &function{typ: 1}
		if i != 1 { // which is the start function
			f.typ = g.typeOf(g.someTypes(3), g.someTypes(3))
		}
		f.locals = slices.Clone(g.types[f.typ].Params)
		for range g.pick(8) {
			f.locals = append(f.locals, valueTypes[g.pick(len(valueTypes))])
		}
		g.funcs = append(g.funcs, f)
	}
	g.globals = []global{{i32, true, sleb([]byte{0x41}, mostWork)}}
	for range 1 + g.pick(8) {
		t := valueTypes[g.pick(len(valueTypes))]
		mutable := g.pick(4) > 0 && (g.lasting || t != funcref && t != externref && t != v128)
		g.globals = append(g.globals, global{t, mutable, g.constant(t)})
	}
	g.tables = []table{{funcref, 8, 16}, {externref, 3, 10}, {funcref, 4, 0}}
}

// export appends an entry of the export section.
func export(name string, kind wasmbin.Kind, index int) []byte {
	return u32(append(text(name), byte(kind)), index)
}

// module puts the sections together.
func (g *generator) module(module, name string, start, initialize bool) []byte {
	first := g.types[g.funcs[0].typ]
	g.finish(first)
	var types, funcs, tables, globals, bodies [][]byte
	for _, f := range g.funcs {
		funcs = append(funcs, u32(nil, f.typ))
		body := u32(nil, len(f.locals)-len(g.types[f.typ].Params))
		for _, t := range f.locals[len(g.types[f.typ].Params):] {
			body = append(body, 1, byte(t))
		}
		body = append(append(body, f.code...), 0x0b)
		bodies = append(bodies, append(u32(nil, len(body)), body...))
	}
	for _, t := range g.types {
		code := []byte{0x60}
		for _, list := range [][]wasmbin.ValueType{t.Params, t.Results} {
			code = u32(code, len(list))
			for _, v := range list {
				code = append(code, byte(v))
			}
		}
		types = append(types, code)
	}
	for _, t := range g.tables {
		code := []byte{byte(t.t), 0}
		if t.max > 0 {
			code[1] = 1
		}
		if code = u32(code, t.min); t.max > 0 {
			code = u32(code, t.max)
		}
		tables = append(tables, code)
	}
	for _, v := range g.globals {
		code := []byte{byte(v.t), 0}
		if v.mutable {
			code[1] = 1
		}
		globals = append(globals, append(append(code, v.init...), 0x0b))
	}
	memory := []byte{1, 1, 4}
	if g.big {
		memory = []byte{1, 33, 36}
	}
	exports := [][]byte{export("memory", wasmbin.Memory, 0), export(Call, wasmbin.Func, len(g.funcs)), export(Dump, wasmbin.Func, len(g.funcs)-1)}
	if initialize {
		exports = append(exports, export("_initialize", wasmbin.Func, 2))
	}
	var all []byte
	for i := range g.funcs {
		all = u32(all, i+1)
	}
	n := len(g.funcs)
	elements := [][]byte{
		slices.Concat([]byte{0, 0x41, 0, 0x0b}, u32(nil, n), all),              // into the first table
		slices.Concat([]byte{1, 0}, u32(nil, n), all),                          // passive
		slices.Concat([]byte{3, 0}, u32(nil, n), all),                          // declared alone
		{5, 0x70, 3, 0xd2, 1, 0x0b, 0xd0, 0x70, 0x0b, 0xd2, 2, 0x0b},           // passive, as expressions
		slices.Concat([]byte{2, 2, 0x41, 1, 0x0b, 0}, []byte{2, 1, 2}),         // into the third table
		{6, 1, 0x41, 0, 0x0b, byte(externref), 1, 0xd0, byte(externref), 0x0b}, // null into the second
	}
	data := [][]byte{
		slices.Concat([]byte{0}, sleb([]byte{0x41}, 8), []byte{0x0b, 4}, []byte("data")),
		slices.Concat([]byte{0}, sleb([]byte{0x41}, 40), []byte{0x0b, 5, 1, 0xff, 0x7f, 0x80, 0}),
	}
	if g.bulk {
		data = append(data, []byte("\x01\x07passive"), []byte("\x01\x03\xc0\x7f\x00"))
	} else {
		// They touch, or one is over the other.
		data = append(data, slices.Concat([]byte{0}, sleb([]byte{0x41}, g.second), []byte{0x0b, 2, 'X', 'Y'}), slices.Concat([]byte{0}, sleb([]byte{0x41}, 0x1000), []byte{0x0b, 1, 9}))
	}
	for i := range 64 { // so that in what is copied in parts no part is like another
		if g.big {
			data = append(data, slices.Concat([]byte{0}, sleb([]byte{0x41}, 1<<20-1<<15+i<<10), []byte{0x0b, 8, byte(i), 1, byte(i * 7), 3, 4, byte(i), 6, 7}))
		}
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = section(out, 1, vector(types...))
	out = section(out, 2, vector(append(append(text(module), text(name)...), 0, 0)))
	out = section(out, 3, vector(funcs...))
	out = section(out, 4, vector(tables...))
	out = section(out, 5, vector(memory))
	out = section(out, 6, vector(globals...))
	out = section(out, 7, vector(exports...))
	if start {
		out = section(out, 8, u32(nil, 2))
	}
	out = section(out, 9, vector(elements...))
	if g.bulk {
		out = section(out, 12, u32(nil, len(data)))
	}
	out = section(out, 10, vector(bodies...))
	return section(out, 11, vector(data...))
}

// finish writes the functions that are exported: dump, and behind it call.
func (g *generator) finish(first wasmbin.FuncType) {
	g.begin(&function{typ: 1})
	at := DumpAt
	store := func(t wasmbin.ValueType, value ...byte) {
		g.number(at)
		g.emit(value...)
		switch t {
		case i32:
			g.emit(0x36, 0, 0)
			at += 4
		case i64:
			g.emit(0x37, 0, 0)
			at += 8
		case f32:
			g.emit(0x38, 0, 0)
			at += 4
		case f64:
			g.emit(0x39, 0, 0)
			at += 8
		case v128:
			g.emit(0xfd, 11, 0, 0)
			at += 16
		default:
			g.emit(0xd1, 0x3a, 0, 0) // ref.is_null
			at++
		}
	}
	for i, v := range g.globals {
		store(v.t, u32([]byte{0x23}, i)...)
	}
	for i, t := range g.tables {
		store(i32, u32([]byte{0xfc, 16}, i)...)
		for entry := range t.min {
			store(t.t, u32(append(sleb([]byte{0x41}, entry), 0x25), i)...)
		}
	}
	store(i32, 0x3f, 0) // memory.size
	g.f.code = g.code
	g.funcs = append(g.funcs, g.f)
	dump := len(g.funcs)

	g.begin(&function{typ: 1})
	g.number(mostWork)
	g.emit(0x24, work)
	g.count()
	for i, f := range g.funcs[1 : dump-1] {
		for _, t := range g.types[f.typ].Params {
			g.emit(g.constant(t)...)
		}
		g.index(0x10, i+2)
		for range g.types[f.typ].Results {
			g.emit(0x1a)
		}
	}
	for _, t := range first.Params {
		g.emit(g.constant(t)...)
	}
	g.emit(0x10, 1)
	var locals []int
	for range first.Results {
		locals = append(locals, -1)
	}
	for i := len(first.Results) - 1; i >= 0; i-- {
		locals[i] = g.keep(first.Results[i])
	}
	at = resultsAt
	for i, t := range first.Results {
		store(t, u32([]byte{0x20}, locals[i])...)
	}
	g.index(0x10, dump)
	g.number(0)
	g.emit(0x3f, 0)
	g.number(16)
	g.emit(0x74, 0x10, 0) // shl, call of the host
	g.f.code = g.code
	g.funcs = append(g.funcs, g.f)
}

// count counts a call in everything that lasts.
func (g *generator) count() {
	g.emit(0x41, 0, 0x41, 0, 0x28, 2, 0, 0x41, 1, 0x6a, 0x36, 2, 0)
	for i, v := range g.globals {
		one := map[wasmbin.ValueType][]byte{i32: {0x41, 1, 0x6a}, i64: {0x42, 1, 0x7c}, f32: {0x43, 0, 0, 0x80, 0x3f, 0x92}, f64: {0x44, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0xa0}}[v.t]
		if i == work || !v.mutable || one == nil {
			continue
		}
		if v.t == f32 || v.t == f64 { // not of a NaN
			g.index(0x23, i)
			g.index(0x23, i)
			g.emit(map[wasmbin.ValueType]byte{f32: 0x5b, f64: 0x61}[v.t], 0x04, 0x40)
		}
		g.index(0x23, i)
		g.emit(one...)
		g.index(0x24, i)
		if v.t == f32 || v.t == f64 {
			g.emit(0x0b)
		}
	}
	if g.lasting {
		g.emit(0xd0, byte(funcref), 0x41, 1, 0xfc, 15, 2, 0x1a) // the third table grows
	}
}

func (g *generator) begin(f *function) { g.f, g.code, g.depth = f, nil, 0 }

func (g *generator) emit(code ...byte)    { g.code = append(g.code, code...) }
func (g *generator) index(op byte, i int) { g.code = u32(append(g.code, op), i) }
func (g *generator) number(n int)         { g.code = sleb(append(g.code, 0x41), n) }
func (g *generator) indexFC(sub byte, is ...int) {
	g.emit(0xfc, sub)
	for _, i := range is {
		g.code = u32(g.code, i)
	}
}

func u32(out []byte, n int) []byte { return binary.AppendUvarint(out, uint64(n)) }

func sleb(out []byte, n int) []byte {
	for n < -64 || n > 63 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(out, byte(n)&0x7f)
}

func text(s string) []byte { return append(u32(nil, len(s)), s...) }

func vector(items ...[]byte) []byte { return append(u32(nil, len(items)), slices.Concat(items...)...) }

func section(out []byte, id byte, contents []byte) []byte {
	return append(u32(append(out, id), len(contents)), contents...)
}
