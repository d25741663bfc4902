package meter

import (
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

const (
	frameSlots = 32   // values on the native stack that a frame of 1 may have
	frameCode  = 4096 // bytes of code likewise, for what is not counted by value
	registers  = 8    // operands that stay off the native stack between two calls
)

// A frame counts the values of one function that an engine may keep on the native
// stack: every parameter and local, every operand that lies below a call or below
// more operands than there are registers, and every further value of a local that is
// read after a call. An engine gives each of them a slot of its own for as long as
// the function runs, so it is their number that counts, not the most at one time.
//
// It follows the heights of the operand stack without types, so what it counts of
// code that the engine would refuse means nothing.
type frame struct {
	vars    []variable
	wide    bool  // values may have 16 bytes
	slots   int64 // beside parameters and locals
	height  int   // of the operand stack
	counted int   // operands at its bottom that have their slots
	calls   int   // so far

	ends   int    // of blocks so far
	lowest []exit // for each end, unless a later one left fewer blocks open
}

// An exit is the end of a block: which it is, and how many blocks it left open.
type exit struct{ n, open int }

// A variable is a parameter or local as it was last written or read.
type variable struct {
	ends   int  // at that moment; likewise calls and open
	calls  int  //
	open   int  //
	inside int  // blocks, of those open when it was written, that were still open
	slot   bool // its value has a slot
}

// begin forgets everything.
func (f *frame) begin(locals int, wide bool) {
	f.vars = slices.Grow(f.vars[:0], locals)[:locals]
	for i := range f.vars {
		f.vars[i] = variable{open: 1, inside: 1, slot: true} // counted as a local
	}
	*f = frame{vars: f.vars, wide: wide, lowest: f.lowest[:0]}
}

// size returns what the frame counts as.
func (f *frame) size(code int) int64 {
	n := int64(len(f.vars)) + f.slots
	if f.wide {
		n *= 2
	}
	return 1 + n/frameSlots + int64(code)/frameCode
}

// pop takes operands from the stack, but none that lie below the block. Where code
// cannot be reached there may be fewer than it takes.
func (f *frame) pop(n, base int) {
	f.height = max(f.height-n, base)
	f.counted = min(f.counted, f.height)
}

func (f *frame) push(n int) {
	if f.height += n; f.height > registers {
		f.keep(f.height - 1) // the last one is used next, or has its turn with the next
	}
}

// keep gives slots to the lowest n operands.
func (f *frame) keep(n int) {
	if n > f.counted {
		f.slots += int64(n - f.counted)
		f.counted = n
	}
}

// call is a call behind which the operands that are left are needed.
func (f *frame) call() {
	f.keep(f.height)
	f.calls++
}

// end is the end of a block; open says how many are left.
func (f *frame) end(open int) {
	f.ends++
	for len(f.lowest) > 0 && f.lowest[len(f.lowest)-1].open >= open {
		f.lowest = f.lowest[:len(f.lowest)-1]
	}
	f.lowest = append(f.lowest, exit{f.ends, open})
}

// write is a new value of a local.
func (f *frame) write(local uint32, open int) {
	f.vars[local] = variable{ends: f.ends, calls: f.calls, open: open, inside: open}
}

// read is a use of a local. Where ways through the code meet that gave it different
// values, which is behind blocks in which it was written and at the head of loops, what
// they meet in is one more value.
func (f *frame) read(local uint32, blocks []block) {
	v := &f.vars[local]
	least := v.open // the fewest open blocks since
	if i, _ := slices.BinarySearchFunc(f.lowest, v.ends+1, func(e exit, n int) int { return e.n - n }); i < len(f.lowest) {
		least = min(least, f.lowest[i].open)
	}
	met := v.inside - min(v.inside, least) + blocks[len(blocks)-1].loops - blocks[least-1].loops
	if !v.slot {
		met++
	}
	if n := min(met, f.calls-v.calls); n > 0 {
		f.slots += int64(n)
		v.slot = true
	}
	v.ends, v.calls, v.open, v.inside = f.ends, f.calls, len(blocks), min(v.inside, least)
}

// follow notes what an instruction does to the operands and locals, before the
// blocks change. The function ends with the last block.
func (b *body) follow(in *wasmbin.Instruction) {
	f, top := &b.size, &b.blocks[len(b.blocks)-1]
	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		if in.Op == wasmbin.OpIf {
			f.pop(1, top.base)
		}
		params, _ := b.blockType(in)
		if in.Op == wasmbin.OpLoop {
			f.keep(f.height - params) // at its head the host may be called
			f.calls++
		}
	case wasmbin.OpElse:
		f.pop(f.height, top.base)
		f.push(top.params)
	case wasmbin.OpEnd:
		f.pop(f.height, top.base)
		f.push(top.results)
		f.end(len(b.blocks) - 1)
	case wasmbin.OpBr, wasmbin.OpBrTable, wasmbin.OpReturn, wasmbin.OpUnreachable:
		f.pop(f.height, top.base)
	case wasmbin.OpCall, wasmbin.OpCallIndirect:
		t := b.callee(in)
		f.pop(len(t.Params), top.base)
		if in.Op == wasmbin.OpCallIndirect {
			f.pop(1, top.base) // the entry of the table
		}
		f.call()
		f.push(len(t.Results))
	case wasmbin.OpLocalGet:
		f.read(in.Index, b.blocks)
		f.push(1)
	case wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		f.write(in.Index, len(b.blocks))
		f.pop(1, top.base)
		if in.Op == wasmbin.OpLocalTee {
			f.push(1)
		}
	case wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy, wasmbin.OpMemoryInit, wasmbin.OpMemoryGrow,
		wasmbin.OpTableFill, wasmbin.OpTableCopy, wasmbin.OpTableInit, wasmbin.OpTableGrow:
		f.call() // of the helper
		fallthrough
	default:
		e := effectOf(in.Op)
		f.pop(int(e.pops), top.base)
		f.push(int(e.pushes))
	}
	f.wide = f.wide || in.Op>>8 == 0xfd
}

// callee returns the type of the function that a call or call_indirect calls.
func (b *body) callee(in *wasmbin.Instruction) wasmbin.FuncType {
	if in.Op == wasmbin.OpCallIndirect {
		return b.m.Types[in.Index]
	}
	return b.m.Types[b.funcTypes[in.Index]]
}

// blockType returns how many operands a block takes and leaves.
func (b *body) blockType(in *wasmbin.Instruction) (params, results int) {
	if in.HasType {
		return len(b.m.Types[in.Index].Params), len(b.m.Types[in.Index].Results)
	}
	if in.Result != 0 {
		return 0, 1
	}
	return 0, 0
}

// An effect is how many operands an instruction takes and leaves.
type effect struct{ pops, pushes uint8 }

func effectOf(op wasmbin.Op) effect {
	switch {
	case op <= 0xff:
		return effects[op]
	case op>>8 == 0xfc:
		return effectsFC[op&0xff]
	}
	return effectsFD[op&0xff]
}

// The instructions that take and leave the same are written as ranges.
type span struct {
	from, to     int
	pops, pushes uint8
}

func table(spans ...span) (t [256]effect) {
	for _, s := range spans {
		for op := s.from; op <= s.to; op++ {
			t[op] = effect{s.pops, s.pushes}
		}
	}
	return t
}

// effects are those of instructions without a prefix, but for the ones that follow knows.
var effects = table(
	span{0x0d, 0x0d, 1, 0},                         // br_if
	span{0x1a, 0x1a, 1, 0}, span{0x1b, 0x1c, 3, 1}, // drop, select
	span{0x23, 0x23, 0, 1}, span{0x24, 0x24, 1, 0}, // globals
	span{0x25, 0x25, 1, 1}, span{0x26, 0x26, 2, 0}, // tables
	span{0x28, 0x35, 1, 1}, span{0x36, 0x3e, 2, 0}, // loads, stores
	span{0x3f, 0x3f, 0, 1}, span{0x40, 0x40, 1, 1}, span{0x41, 0x44, 0, 1}, // memory.size, memory.grow, constants
	span{0x45, 0xc4, 2, 1}, // numbers; those that take one:
	span{0x45, 0x45, 1, 1}, span{0x50, 0x50, 1, 1}, span{0x67, 0x69, 1, 1}, span{0x79, 0x7b, 1, 1},
	span{0x8b, 0x91, 1, 1}, span{0x99, 0x9f, 1, 1}, span{0xa7, 0xc4, 1, 1},
	span{0xd0, 0xd0, 0, 1}, span{0xd1, 0xd1, 1, 1}, span{0xd2, 0xd2, 0, 1}, // references
)

// effectsFC are those behind 0xfc.
var effectsFC = table(
	span{0, 7, 1, 1}, span{8, 8, 3, 0}, span{10, 12, 3, 0}, span{14, 14, 3, 0},
	span{15, 15, 2, 1}, span{16, 16, 0, 1}, span{17, 17, 3, 0},
)

// effectsFD are those behind 0xfd.
var effectsFD = table(
	span{0, 255, 2, 1}, // those that take or leave something else:
	span{0, 10, 1, 1}, span{11, 11, 2, 0}, span{12, 12, 0, 1}, span{15, 20, 1, 1},
	span{21, 22, 1, 1}, span{24, 25, 1, 1}, span{27, 27, 1, 1}, span{29, 29, 1, 1}, span{31, 31, 1, 1}, span{33, 33, 1, 1}, // extract
	span{77, 77, 1, 1}, span{82, 82, 3, 1}, span{83, 83, 1, 1}, // not, bitselect, any_true
	span{88, 91, 2, 0}, span{92, 100, 1, 1}, span{103, 106, 1, 1}, // stores of one lane; loads with zeros to bitmask; rounding
	span{116, 117, 1, 1}, span{122, 122, 1, 1}, span{124, 129, 1, 1}, span{131, 132, 1, 1}, span{135, 138, 1, 1},
	span{148, 148, 1, 1}, span{160, 161, 1, 1}, span{163, 164, 1, 1}, span{167, 170, 1, 1},
	span{192, 193, 1, 1}, span{195, 196, 1, 1}, span{199, 202, 1, 1},
	span{224, 225, 1, 1}, span{227, 227, 1, 1}, span{236, 237, 1, 1}, span{239, 239, 1, 1}, span{248, 255, 1, 1},
)
