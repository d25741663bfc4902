package meter

import (
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// HostCall is the fuel for calling a host function, and for asking for memory or
// table entries, which leaves compiled code as well.
const HostCall = 100

const guestCall = 5 // fuel for calling a guest function

// mostLength is the most that one instruction is charged for its length: 64 MiB.
const mostLength = 64 << 20 >> 3

// A run is a sequence of instructions that are executed together: once the first
// has begun, there is no way but through all of them, or a trap. The kinds say
// where a run is and so what checks the fuel.
type run int

const (
	plain run = iota // no check
	entry            // begins the function
	head             // begins a loop
)

// A block is a block that is open.
type block struct {
	op     wasmbin.Op
	target bool // a branch leads to its end

	base    int // operands below it
	params  int // that it takes, on top of these
	results int
	loops   int // that are open, this one among them
}

// A body writes one function after the other.
type body struct {
	*rewriter

	locals uint32 // parameters and locals; behind them come the fuel, the depth and a length
	size   frame
	code   int  // bytes of instructions
	calls  bool // calls a guest function
	blocks []block

	out   []byte // runs that are finished, without the charge at the entry
	open  []byte // instructions of the run that is not
	kind  run    // of the open run; likewise cost
	cost  int64
	first int64 // cost of the run at the entry
	and   and   // the last one, if its value may be on top of the stack, or one below

	// For a probe.
	index int  // of the function, among those with a body
	start int  // offset of the first instruction of the open run
	dead  bool // nothing leads to the open run
}

// code returns the code section.
func (w *rewriter) code() ([]byte, error) {
	size := len(w.raw(secCode))
	out := u32(make([]byte, 0, size+size/2), uint32(len(w.m.Functions))+w.helpers())
	b := &body{rewriter: w}
	for i, source := range w.m.Bodies() {
		b.index, b.start, b.dead = i, source.Code, false
		if err := b.write(w.m.Types[w.m.Functions[i]], source); err != nil {
			return nil, err
		}
		groups := w.m.Bytes()[source.Locals:source.Code]
		var start []byte
		start = append(u32(start, uint32(source.Groups)+2), groups...)
		start = append(start, 2, byte(wasmbin.I64), 1, byte(wasmbin.I32))
		start = b.begin(start)
		out = u32(out, uint32(len(start)+len(b.out)))
		out = append(append(out, start...), b.out...)
	}
	added := [][]byte{w.helperBody()}
	if w.memory {
		added = append(added, w.fillBody(), w.copyBody())
	}
	for _, code := range added {
		out = append(u32(out, uint32(len(code))), code...)
	}
	return out, nil
}

// write rewrites the instructions of a body, but for the charge at its entry.
func (b *body) write(t wasmbin.FuncType, source wasmbin.Body) error {
	b.prepare(t, source)
	s := source.Instructions()
	for s.Next() {
		in := s.Instruction()
		if err := b.named(in); err != nil {
			return err
		}
		b.follow(in)
		b.hide(in)
		b.instruction(in)
		b.hidden(in)
	}
	if err := s.Err(); err != nil {
		return err
	}
	b.finish(plain, source.End, false)
	return nil
}

// prepare begins a function.
func (b *body) prepare(t wasmbin.FuncType, source wasmbin.Body) {
	b.locals = uint32(len(t.Params) + source.Count)
	b.size.begin(int(b.locals), b.wide || slices.Contains(source.Types(), wasmbin.V128))
	b.code, b.calls, b.first = source.End-source.Code, false, 0
	b.blocks = append(b.blocks[:0], block{results: len(t.Results)})
	b.out, b.open, b.kind, b.cost, b.and = b.out[:0], b.open[:0], entry, 0, and{}
}

// named checks that what an instruction names is declared by the module.
func (b *body) named(in *wasmbin.Instruction) error {
	check := func(what string, index uint32, count int) error {
		if uint64(index) < uint64(count) {
			return nil
		}
		return &wasmbin.Error{Offset: in.Start, Text: fmt.Sprintf("instruction %s names %s %d of %d", in.Op, what, index, count)}
	}
	switch in.Op {
	case wasmbin.OpLocalGet, wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		return check("local", in.Index, int(b.locals))
	case wasmbin.OpGlobalGet, wasmbin.OpGlobalSet:
		return check("global", in.Index, int(b.globalCount))
	case wasmbin.OpCall, wasmbin.OpRefFunc:
		if err := check("function", in.Index, int(b.funcCount)); err != nil || in.Op == wasmbin.OpCall || b.declared[in.Index] {
			return err
		}
		return &wasmbin.Error{Offset: in.Start, Text: fmt.Sprintf("function %d is referred to but not declared", in.Index)}
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		if in.HasType {
			return check("type", in.Index, len(b.m.Types))
		}
	case wasmbin.OpCallIndirect:
		return check("type", in.Index, len(b.m.Types))
	}
	return nil // nothing is added to other index spaces
}

// instruction writes one instruction and what it needs around it.
func (b *body) instruction(in *wasmbin.Instruction) {
	raw := b.m.Bytes()[in.Start:in.End]
	b.cost += b.price(in)
	switch in.Op {
	case wasmbin.OpBlock:
		b.enter(in)
	case wasmbin.OpLoop:
		b.enter(in)
		b.open = append(b.open, raw...)
		b.finish(head, in.End, b.dead)
		return
	case wasmbin.OpIf:
		b.enter(in)
		b.turned(in, raw)
		b.finish(plain, in.End, b.dead)
		return
	case wasmbin.OpElse:
		b.open = append(b.open, raw...)
		b.finish(plain, in.End, false)
		return
	case wasmbin.OpEnd:
		ended := b.blocks[len(b.blocks)-1]
		b.blocks = b.blocks[:len(b.blocks)-1]
		if len(b.blocks) == 0 {
			b.spill()
		}
		b.open = append(b.open, raw...)
		// Without a branch to it, the end of a block is no place where runs meet.
		if ended.op == wasmbin.OpIf || ended.target {
			b.finish(plain, in.End, false)
		}
		return
	case wasmbin.OpBr, wasmbin.OpBrIf, wasmbin.OpBrTable:
		leaves := b.branch(in.Index)
		for l := range in.Labels() {
			leaves = b.branch(l) || leaves
		}
		if leaves {
			b.spill()
		}
		b.turned(in, raw)
		b.finish(plain, in.End, b.dead || in.Op != wasmbin.OpBrIf)
		return
	case wasmbin.OpReturn, wasmbin.OpUnreachable:
		b.spill()
		b.open = append(b.open, raw...)
		b.finish(plain, in.End, true)
		return
	case wasmbin.OpCall:
		b.spill()
		if in.Index >= b.imported {
			b.descend()
		}
		b.open = u32(append(b.open, raw[0]), b.shift(in.Index))
		b.reload()
		return
	case wasmbin.OpCallIndirect:
		b.spill()
		b.descend()
		b.open = append(b.open, raw...)
		b.reload()
		return
	case wasmbin.OpRefFunc:
		b.open = u32(append(b.open, raw[0]), b.shift(in.Index))
		return
	case wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy:
		if b.memory {
			to := b.fill
			if in.Op == wasmbin.OpMemoryCopy {
				to = b.copy
			}
			b.open = u32(append(b.local(b.open, opLocalGet, fuelLocal), opCall), to)
			b.open = b.local(b.open, opLocalSet, fuelLocal)
			return
		}
	case wasmbin.OpMemoryInit:
		b.length(opI64ShrU, 3)
	case wasmbin.OpMemoryGrow:
		b.length(opI64Shl, 13)
	case wasmbin.OpTableFill, wasmbin.OpTableCopy, wasmbin.OpTableInit, wasmbin.OpTableGrow:
		b.length(opI64ShrU, 0)
	}
	b.turned(in, raw)
}

// enter opens a block.
func (b *body) enter(in *wasmbin.Instruction) {
	to := block{op: in.Op, loops: b.blocks[len(b.blocks)-1].loops}
	to.params, to.results = b.blockType(in)
	to.base = max(b.size.height-to.params, b.blocks[len(b.blocks)-1].base)
	if in.Op == wasmbin.OpLoop {
		to.loops++
	}
	b.blocks = append(b.blocks, to)
}

// price returns what an instruction costs, without what it costs by length.
func (b *body) price(in *wasmbin.Instruction) int64 {
	switch in.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpElse, wasmbin.OpEnd, wasmbin.OpNop, wasmbin.OpDrop:
		return 0
	case wasmbin.OpCall:
		switch {
		case in.Index >= b.imported:
			return guestCall
		case b.accessor[in.Index]:
			return accessCall
		}
		return HostCall
	case wasmbin.OpCallIndirect:
		return guestCall
	case wasmbin.OpMemoryGrow, wasmbin.OpTableGrow:
		return HostCall
	}
	return 1
}

// branch notes a branch to a label and reports whether it leaves the function.
func (b *body) branch(label uint32) bool {
	to := &b.blocks[len(b.blocks)-1-int(label)]
	to.target = to.op != wasmbin.OpLoop
	return label == uint32(len(b.blocks)-1)
}

// finish ends the open run at an offset, charges for it and begins one of the next kind, to which nothing
// leads if it is dead.
func (b *body) finish(next run, end int, dead bool) {
	switch {
	case b.kind == entry:
		b.first = b.cost
	case b.kind == head:
		b.out = b.charge(b.out, max(b.cost, 1))
		b.out = b.check(b.out)
	case b.cost > 0:
		b.out = b.local(b.charge(b.out, b.cost), opLocalSet, 0)
	}
	b.mark(end)
	b.out = append(b.out, b.open...)
	b.open, b.kind, b.cost = b.open[:0], next, 0
	b.start, b.dead = end, dead
}

// Opcodes of what is added.
const (
	opLocalGet  = byte(wasmbin.OpLocalGet)
	opLocalSet  = byte(wasmbin.OpLocalSet)
	opLocalTee  = byte(wasmbin.OpLocalTee)
	opGlobalGet = byte(wasmbin.OpGlobalGet)
	opGlobalSet = byte(wasmbin.OpGlobalSet)
	opCall      = byte(wasmbin.OpCall)
	opIf        = byte(wasmbin.OpIf)
	opEnd       = byte(wasmbin.OpEnd)
	opSelect    = byte(wasmbin.OpSelect)
	opI64Const  = byte(wasmbin.OpI64Const)

	opI32Add       = 0x6a
	opI32WrapI64   = 0xa7
	opI64LtS       = 0x53
	opI64LtU       = 0x54
	opI64Sub       = 0x7d
	opI64Or        = 0x84
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendI32 = 0xad
)

// Locals that are added, behind those of the function.
const (
	fuelLocal = iota
	depthLocal
	lengthLocal
)

func (b *body) local(out []byte, op byte, which uint32) []byte {
	return u32(append(out, op), b.locals+which)
}

func constant(out []byte, v int64) []byte { return s64(append(out, opI64Const), v) }

// begin appends the charge at the entry of a function.
func (b *body) begin(out []byte) []byte {
	out = u32(append(out, opGlobalGet), b.fuel)
	out = append(constant(out, b.first), opI64Sub)
	out = b.local(out, opLocalTee, fuelLocal)
	if b.calls {
		out = u32(append(out, opGlobalGet), b.depth)
		out = append(constant(out, b.size.size(b.code)), opI64Sub)
		out = append(b.local(out, opLocalTee, depthLocal), opI64Or)
	}
	return b.refill(out)
}

// charge appends the fuel that is left after a charge, on the stack.
func (b *body) charge(out []byte, cost int64) []byte {
	out = b.local(out, opLocalGet, fuelLocal)
	return append(constant(out, cost), opI64Sub)
}

// check appends what keeps the fuel on the stack and refills it below zero.
func (b *body) check(out []byte) []byte {
	return b.refill(b.local(out, opLocalTee, fuelLocal))
}

// refill appends a call of the host if what is on the stack is below zero.
func (b *body) refill(out []byte) []byte {
	out = append(constant(out, 0), opI64LtS, opIf, 0x40)
	out = u32(append(b.local(out, opLocalGet, fuelLocal), opGlobalSet), b.fuel)
	out = u32(append(b.local(out, opLocalGet, depthLocal), opGlobalSet), b.depth)
	out = u32(append(out, opCall), b.imported)
	out = b.local(u32(append(out, opGlobalGet), b.fuel), opLocalSet, fuelLocal)
	return append(out, opEnd)
}

// spill makes the fuel known outside the function.
func (b *body) spill() {
	b.open = u32(append(b.local(b.open, opLocalGet, fuelLocal), opGlobalSet), b.fuel)
}

// reload takes up the fuel that a call has left.
func (b *body) reload() {
	b.open = b.local(u32(append(b.open, opGlobalGet), b.fuel), opLocalSet, fuelLocal)
}

// descend tells the function that is called how deep it is.
func (b *body) descend() {
	b.calls = true
	b.open = u32(append(b.local(b.open, opLocalGet, depthLocal), opGlobalSet), b.depth)
}

// length charges for the number on the stack, shifted by so many bits.
func (b *body) length(shift byte, bits int64) {
	out := b.local(b.open, opLocalTee, lengthLocal)
	out = b.local(out, opLocalGet, fuelLocal)
	out = append(b.local(out, opLocalGet, lengthLocal), opI64ExtendI32)
	out = append(constant(out, bits), shift)
	out = u32(append(out, opCall), b.helper)
	b.open = b.local(out, opLocalSet, fuelLocal)
}

// helperBody is the function that charges for lengths: it takes the fuel and a
// charge and returns the fuel. A branch at every such instruction would make a
// function of many of them slow to compile.
func (w *rewriter) helperBody() []byte {
	b := body{rewriter: w}
	get := func(out []byte, i uint32) []byte { return u32(append(out, opLocalGet), i) }
	out := []byte{0}  // locals; the parameters are where refill looks for fuel and depth
	out = get(out, 0) // the fuel
	out = constant(get(out, 1), mostLength)
	out = constant(get(out, 1), mostLength)
	out = append(out, opI64LtU, opSelect, opI64Sub)
	out = constant(u32(append(out, opLocalSet), 0), 0)
	out = u32(append(out, opLocalSet), 1) // no depth
	return append(get(b.refill(get(out, 0)), 0), opEnd)
}
