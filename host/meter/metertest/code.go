package metertest

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// write writes a function: statements, then its results.
func (g *generator) write(f *function) {
	g.begin(f)
	t := g.types[f.typ]
	f.labels = [][]wasmbin.ValueType{t.Results}
	g.spend()
	g.statements(6)
	for _, r := range t.Results {
		g.expr(r)
	}
	f.code = g.code
}

// spend takes one of the work that is left; without any the function returns zeros.
func (g *generator) spend() {
	g.emit(0x23, work, 0x45, 0x04, 0x40)
	for _, t := range g.types[g.f.typ].Results {
		g.emit(zero(t)...)
	}
	g.emit(0x0f, 0x0b, 0x23, work, 0x41, 1, 0x6b, 0x24, work)
}

func zero(t wasmbin.ValueType) []byte {
	return map[wasmbin.ValueType][]byte{i32: {0x41, 0}, i64: {0x42, 0}, f32: {0x43, 0, 0, 0, 0}, f64: {0x44, 0, 0, 0, 0, 0, 0, 0, 0},
		v128: append([]byte{0xfd, 12}, make([]byte, 16)...), funcref: {0xd0, byte(funcref)}, externref: {0xd0, byte(externref)}}[t]
}

// local returns a local of a type to write to, which may be a new one.
func (g *generator) local(t wasmbin.ValueType) int {
	var all []int
	for i, l := range g.f.locals {
		if l == t {
			all = append(all, i)
		}
	}
	if pick := g.next(); len(all) > 0 && (pick&1 != 0 || len(g.f.locals) >= mostLocals) {
		return all[pick/2%len(all)]
	}
	g.f.locals = append(g.f.locals, t)
	return len(g.f.locals) - 1
}

// keep takes a value from the stack into a local.
func (g *generator) keep(t wasmbin.ValueType) int {
	i := g.local(t)
	g.index(0x21, i)
	return i
}

// constant returns an instruction that gives a constant.
func (g *generator) constant(t wasmbin.ValueType) []byte {
	edges := []uint64{0, 1, 2, 0xff, 1 << 31, 1<<32 - 1, 1 << 63, math.MaxUint64, 0x7fffffff, 0x7fc00000, 0x3f800000, 0x7f800001, 0x4330000000000000,
		0x3ff0000000000000, 0x7ff0000000000001, 0xfff0000000000000, 0xcf000000, 0x80000000_7f800000}
	word := func() uint64 {
		if c := g.next(); c < 128 {
			return edges[c%len(edges)]
		}
		v := uint64(0)
		for range 1 + g.pick(8) {
			v = v<<8 | uint64(g.next())
		}
		return v
	}
	switch t {
	case i32:
		return sleb([]byte{0x41}, int(int32(word())))
	case i64:
		return sleb([]byte{0x42}, int(word()))
	case f32:
		return binary.LittleEndian.AppendUint32([]byte{0x43}, uint32(word()))
	case f64:
		return binary.LittleEndian.AppendUint64([]byte{0x44}, word())
	case v128:
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{0xfd, 12}, word()), word())
	}
	return []byte{0xd0, byte(t)}
}

// leaf gives a value that needs no other.
func (g *generator) leaf(t wasmbin.ValueType) {
	pick := g.next()
	var locals, globals []int
	for i, l := range g.f.locals {
		if l == t {
			locals = append(locals, i)
		}
	}
	for i, v := range g.globals {
		if v.t == t && i != work {
			globals = append(globals, i)
		}
	}
	switch {
	case pick%4 == 1 && len(locals) > 0:
		g.index(0x20, locals[pick/4%len(locals)])
	case pick%4 == 2 && len(globals) > 0:
		g.index(0x23, globals[pick/4%len(globals)])
	case pick%4 == 3 && t == funcref:
		g.index(0xd2, 1+pick/4%len(g.funcs))
	default:
		g.emit(g.constant(t)...)
	}
}

// address gives an address, which mostly lies in memory, and is followed by the alignment and offset.
func (g *generator) address() {
	g.expr(i32)
	if !g.rarely() {
		g.number(0x3fff)
		g.emit(0x71)
	}
}

func (g *generator) access(a access) {
	g.emit(a.code...)
	g.code = u32(g.code, g.pick(a.align+1))
	offset := g.pick(200)
	if g.rarely() {
		offset = []int{1 << 16, math.MaxUint32, 0xfff8}[g.pick(3)]
	}
	g.code = u32(g.code, offset)
	if a.lanes > 0 {
		g.emit(byte(g.pick(a.lanes)))
	}
}

// small gives a number below a power of two, mostly.
func (g *generator) small(below int) {
	g.expr(i32)
	if !g.rarely() {
		g.number(below - 1)
		g.emit(0x71)
	}
}

// always is small without exceptions: for a table that has no maximum, and gets one.
func (g *generator) always(below int) {
	g.expr(i32)
	g.number(below - 1)
	g.emit(0x71)
}

// expr gives a value of a type.
func (g *generator) expr(t wasmbin.ValueType) {
	if g.left--; g.over() {
		g.leaf(t)
		return
	}
	g.depth++
	defer func() { g.depth-- }()
	switch k := g.next(); {
	case k < 60:
		g.leaf(t)
	case k < 150 && ops[t] != nil:
		g.op(ops[t][(k+g.next()*90)%len(ops[t])])
	case k < 165 && loads[t] != nil:
		a := loads[t][g.pick(len(loads[t]))]
		g.address()
		if a.lanes > 0 {
			g.expr(t)
		}
		g.access(a)
	case k < 175:
		g.block([]wasmbin.ValueType{t})
	case k < 185:
		g.when(t)
	case k < 192:
		g.loop([]wasmbin.ValueType{t})
	case k < 204:
		g.call(t)
	case k < 212:
		g.expr(t)
		g.expr(t)
		g.expr(i32)
		if t == funcref || t == externref || k&1 != 0 {
			g.emit(0x1c, 1, byte(t)) // select with a type
		} else {
			g.emit(0x1b)
		}
	case k < 222:
		g.expr(t)
		g.index(0x22, g.local(t))
	case k < 225:
		g.leave()
	default:
		g.special(t)
	}
}

// special gives what only values of some types come from.
func (g *generator) special(t wasmbin.ValueType) {
	switch t {
	case i32:
		switch g.pick(6) {
		case 0:
			g.emit(0x3f, 0)
		case 1:
			g.small(4)
			g.emit(0x40, 0)
		case 2:
			g.indexFC(16, g.pick(3))
		case 3:
			ref := []wasmbin.ValueType{funcref, externref}[g.pick(2)]
			g.expr(ref)
			g.emit(0xd1)
		default:
			if !g.lasting {
				g.leaf(t)
				return
			}
			table := g.pick(3)
			g.expr(g.tables[table].t)
			if g.tables[table].max == 0 {
				g.always(8)
			} else {
				g.small(8)
			}
			g.indexFC(15, table) // table.grow
		}
	case funcref, externref:
		table := []int{0, 2}[g.pick(2)]
		if t == externref {
			table = 1
		}
		g.small(4)
		g.index(0x25, table)
	case v128:
		g.expr(v128)
		g.expr(v128)
		g.emit(0xfd, 13) // shuffle
		for range 16 {
			g.emit(byte(g.pick(32)))
		}
	default:
		g.leaf(t)
	}
}

// op computes.
func (g *generator) op(o op) {
	for i, t := range o.in {
		g.expr(t)
		switch {
		case o.care == divides && i == 1 && !g.rarely():
			g.emit(g.one(t)...)
		case o.care == narrows && !g.rarely():
			g.emit(map[wasmbin.ValueType][]byte{f32: {0xfc, 0, 0x41, 0xff, 0, 0x71, 0xb2}, f64: {0xfc, 2, 0x41, 0xff, 0, 0x71, 0xb7}}[t]...) // a small integer
		}
	}
	g.emit(o.code...)
	switch o.care {
	case lanes:
		g.emit(byte(g.pick(o.most)))
	case nan:
		code := map[wasmbin.ValueType][]byte{f32: {0x43, 0, 0, 0xc0, 0x7f}, f64: {0x44, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}}[o.out]
		equal := map[wasmbin.ValueType]byte{f32: 0x5b, f64: 0x61}[o.out]
		v := g.local(o.out)
		g.index(0x22, v)
		g.emit(code...)
		g.index(0x20, v)
		g.index(0x20, v)
		g.emit(equal, 0x1b)
		g.index(0x22, v)
	case nans32, nans64:
		equal := byte(65)
		if o.care == nans64 {
			equal = 71
		}
		v := g.local(v128)
		g.index(0x22, v)
		g.index(0x20, v)
		g.index(0x20, v)
		g.emit(0xfd, equal, 0xfd, 78) // lanes that are a NaN become 0
		g.index(0x22, v)
	}
}

// one makes a divisor odd.
func (g *generator) one(t wasmbin.ValueType) []byte {
	if t == i32 {
		return []byte{0x41, 1, 0x72}
	}
	return []byte{0x42, 1, 0x84}
}

// open begins a block of any kind, whose parameters are on the stack.
func (g *generator) open(op byte, params, results []wasmbin.ValueType) {
	label := results
	if op == 0x03 {
		label = params
	}
	g.f.labels = append(g.f.labels, label)
	g.emit(op)
	switch {
	case len(params) == 0 && len(results) == 0 && g.pick(2) == 0:
		g.emit(0x40)
	case len(params) == 0 && len(results) == 1 && g.pick(2) == 0:
		g.emit(byte(results[0]))
	default:
		g.code = sleb(g.code, g.typeOf(params, results))
	}
}

func (g *generator) close() {
	g.f.labels = g.f.labels[:len(g.f.labels)-1]
	g.emit(0x0b)
}

// take takes the parameters of a block.
func (g *generator) take(params []wasmbin.ValueType) {
	for _, t := range slices.Backward(params) {
		g.keep(t)
	}
}

func (g *generator) exprs(types []wasmbin.ValueType) {
	for _, t := range types {
		g.expr(t)
	}
}

// block gives results by way of a block.
func (g *generator) block(results []wasmbin.ValueType) {
	params := g.someTypes(2)
	g.exprs(params)
	g.open(0x02, params, results)
	g.take(params)
	g.statements(3)
	g.exprs(results)
	g.close()
}

// when gives one of two values.
func (g *generator) when(t wasmbin.ValueType) {
	params := g.someTypes(2)
	g.exprs(params)
	g.expr(i32)
	g.open(0x04, params, []wasmbin.ValueType{t})
	g.take(params)
	g.statements(2)
	g.expr(t)
	g.emit(0x05)
	g.take(params)
	g.statements(2)
	g.expr(t)
	g.close()
}

// loop gives results after some rounds, of which each takes new parameters.
func (g *generator) loop(results []wasmbin.ValueType) {
	params := g.someTypes(2)
	g.f.locals = append(g.f.locals, i32) // where something else writes to it, work ends the loop
	count := len(g.f.locals) - 1
	g.number(1 + g.pick(12))
	g.index(0x21, count)
	g.exprs(params)
	g.open(0x03, params, results)
	g.take(params)
	g.spend()
	g.statements(3)
	g.exprs(params)
	g.index(0x20, count)
	g.number(1)
	g.emit(0x6b)
	g.index(0x22, count)
	g.emit(0x0d, 0)
	for range params {
		g.emit(0x1a)
	}
	g.exprs(results)
	g.close()
}

// call gives a value that a function returns, by its index or through a table.
func (g *generator) call(t wasmbin.ValueType) {
	var with []int
	for i, f := range g.funcs {
		if slices.Contains(g.types[f.typ].Results, t) {
			with = append(with, i)
		}
	}
	if len(with) == 0 {
		g.leaf(t)
		return
	}
	results := g.invoke(with[g.pick(len(with))])
	value := -1
	for _, r := range slices.Backward(results) {
		i := g.keep(r)
		if r == t && value < 0 {
			value = i
		}
	}
	g.index(0x20, value)
}

// invoke calls a function and leaves what it returns.
func (g *generator) invoke(i int) []wasmbin.ValueType {
	t := g.types[g.funcs[i].typ]
	g.exprs(t.Params)
	if g.pick(3) > 0 {
		g.index(0x10, i+1)
		return t.Results
	}
	if g.rarely() {
		g.expr(i32)
	} else {
		g.number(i) // the entry of the first table that is the function at first
	}
	g.index(0x11, g.funcs[i].typ)
	g.code = u32(g.code, []int{0, 0, 0, 2}[g.pick(4)])
	return t.Results
}
