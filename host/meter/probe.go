package meter

import (
	"strconv"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// A Probe is what [RewriteProbed] writes into a module beside the meter, for tests of the
// guest. None of it costs fuel, and none of it changes what the module does as long as the
// global [Changed] is 0.
type Probe struct {
	// Watch says for a function with a body, numbered from 0, whether the blocks in it that
	// begin are noted. Nil watches none.
	Watch func(function int) bool
	// Changes can be turned on one at a time: the first by setting Changed to 1, and so on.
	Changes []Change
}

// A Change is another way for one instruction to work.
type Change struct {
	At int // offset in the module of the instruction
	To Turn
}

// A Turn is what a change does.
type Turn int

// The turns, and the instructions that they are for. One for another instruction is ignored.
const (
	Swap   Turn = iota // a comparison: < becomes <=, <= becomes <, == becomes !=, and so on; a test for zero becomes one for not zero
	Invert             // if, br_if, select: the condition is turned round
	Never              // if, br_if, select: the condition does not hold
	Always             // if, br_if, select: the condition holds
	More               // a whole constant: one more
	Less               // a whole constant: one less
)

// Turns reports whether a turn is for an instruction with this opcode.
func (t Turn) Turns(op wasmbin.Op) bool {
	switch t {
	case Swap:
		return op <= 0xff && swaps[op].op != 0
	case Invert, Never, Always:
		return op == wasmbin.OpIf || op == wasmbin.OpBrIf || op == wasmbin.OpSelect || op == wasmbin.OpSelectType
	case More, Less:
		return op == wasmbin.OpI32Const || op == wasmbin.OpI64Const
	}
	return false
}

// A Block is a run of instructions that are charged together, in a function that is watched.
type Block struct {
	Function int // with a body, numbered from 0
	Start    int // offset in the module of its first instruction
	End      int // behind its last one
}

// What a probed module exports.
const (
	Changed = Prefix + ".changed" // i32 global: the change that is on, counted from 1; 0: none

	seen = Prefix + ".seen."
)

// Seen is the name under which the blocks that began are exported: global i is an i64 in
// which the bits are blocks i*64 and those behind it.
func Seen(i int) string { return seen + strconv.Itoa(i) }

// RewriteProbed is [Rewrite] with a probe. It also returns the blocks that are watched, in
// the order of their bits.
func RewriteProbed(m *wasmbin.Module, p Probe) ([]byte, []Block, error) {
	w := newRewriter(m)
	w.probe = &probe{Probe: p, at: map[int][]int{}}
	for i, c := range p.Changes {
		w.probe.at[c.At] = append(w.probe.at[c.At], i)
	}
	out, err := w.rewrite()
	return out, w.probe.blocks, err
}

// A probe is a probe while a module is rewritten.
type probe struct {
	Probe
	at     map[int][]int // changes by offset
	blocks []Block
}

// words is how many globals have the bits of the blocks.
func (p *probe) words() int { return (len(p.blocks) + 63) / 64 }

// changed is the global that says which change is on; behind it are those of the blocks.
func (w *rewriter) changed() uint32 {
	return w.globalCount + 2
}

// swap is what a comparison is turned into, and the type of what it compares.
type swap struct {
	op  byte
	typ wasmbin.ValueType
	one bool // it compares one value with zero
}

var swaps = func() (s [256]swap) {
	pairs := func(typ wasmbin.ValueType, ops ...byte) {
		for i := 0; i < len(ops); i += 2 {
			s[ops[i]], s[ops[i+1]] = swap{op: ops[i+1], typ: typ}, swap{op: ops[i], typ: typ}
		}
	}
	// eq ne, lt le and gt ge, signed and not.
	pairs(wasmbin.I32, 0x46, 0x47, 0x48, 0x4c, 0x49, 0x4d, 0x4a, 0x4e, 0x4b, 0x4f)
	pairs(wasmbin.I64, 0x51, 0x52, 0x53, 0x57, 0x54, 0x58, 0x55, 0x59, 0x56, 0x5a)
	pairs(wasmbin.F32, 0x5b, 0x5c, 0x5d, 0x5f, 0x5e, 0x60)
	pairs(wasmbin.F64, 0x61, 0x62, 0x63, 0x65, 0x64, 0x66)
	s[0x45] = swap{op: 0x45, typ: wasmbin.I32, one: true} // eqz
	s[0x50] = swap{op: 0x50, typ: wasmbin.I64, one: true}
	return s
}()

// compared are the types of comparisons that are swapped, in the order in which their block
// types are added.
var compared = [...]wasmbin.ValueType{wasmbin.I32, wasmbin.I64, wasmbin.F32, wasmbin.F64}

// probeTypes are the types of blocks that take what is compared.
func probeTypes() (types []byte, n uint32) {
	for _, t := range compared {
		types = append(types, 0x60, 2, byte(t), byte(t), 1, i32)
	}
	return types, uint32(len(compared))
}

// comparing returns the block type for a comparison of two values.
func (w *rewriter) comparing(t wasmbin.ValueType) uint32 {
	n := uint32(len(w.m.Types)) + addedTypes
	for i, c := range compared {
		if c == t {
			return n + uint32(i)
		}
	}
	panic("meter: no comparison of " + t.String())
}

// mark notes that the open run begins.
func (b *body) mark(end int) {
	p := b.probe
	if p == nil || p.Watch == nil || b.dead || b.cost == 0 && b.kind != entry || !p.Watch(b.index) {
		return
	}
	n := uint32(len(p.blocks))
	p.blocks = append(p.blocks, Block{Function: b.index, Start: b.start, End: end})
	global := b.changed() + 1 + n/64
	b.out = u32(append(b.out, opGlobalGet), global)
	b.out = append(constant(b.out, int64(1)<<(n%64)), opI64Or)
	b.out = u32(append(b.out, opGlobalSet), global)
}

const (
	opI32And       = 0x71
	opI32Or        = 0x72
	opI32Xor       = 0x73
	opI32Eqz       = 0x45
	opI32Eq        = 0x46
	opI32Ne        = 0x47
	opI64Add       = 0x7c
	opElse         = byte(wasmbin.OpElse)
	opI32Const     = byte(wasmbin.OpI32Const)
	opI64ExtendU32 = 0xad
)

// is appends whether a change is on, or with op opI32Ne, that it is not.
func (b *body) is(out []byte, change int, op byte) []byte {
	out = u32(append(out, opGlobalGet), b.changed())
	return append(s64(append(out, opI32Const), int64(change)+1), op)
}

// turned writes an instruction and the changes of it.
func (b *body) turned(in *wasmbin.Instruction, raw []byte) {
	var changes []int
	if b.probe != nil {
		changes = b.probe.at[in.Start]
	}
	out := b.open
	before := func(change int, op, with byte) {
		out = append(out, opI32Eqz, opI32Eqz)
		out = append(b.is(out, change, op), with)
	}
	var swapped []int
	var constants []int // changes of a constant
	for _, i := range changes {
		to := b.probe.Changes[i].To
		if !to.Turns(in.Op) {
			continue
		}
		switch to {
		case Swap:
			swapped = append(swapped, i)
		case More, Less:
			constants = append(constants, i)
		case Invert:
			before(i, opI32Eq, opI32Xor)
		case Never:
			before(i, opI32Ne, opI32And)
		case Always:
			before(i, opI32Eq, opI32Or)
		}
	}
	switch s := swaps[in.Op&0xff]; {
	case len(swapped) > 0 && s.one:
		out = append(out, raw...)
		for _, i := range swapped {
			out = append(b.is(out, i, opI32Eq), opI32Xor)
		}
	case len(swapped) > 0:
		out = append(b.is(out, swapped[0], opI32Eq), opIf)
		out = s64(out, int64(b.comparing(s.typ)))
		out = append(out, s.op, opElse)
		out = append(append(out, raw...), opEnd)
	default:
		out = append(out, raw...)
		for _, i := range constants {
			add, sub := byte(opI32Add), byte(opI32Sub)
			if out = b.is(out, i, opI32Eq); in.Op == wasmbin.OpI64Const {
				out = append(out, opI64ExtendU32)
				add, sub = opI64Add, opI64Sub
			}
			if b.probe.Changes[i].To == Less {
				add = sub
			}
			out = append(out, add)
		}
	}
	b.open = out
}
