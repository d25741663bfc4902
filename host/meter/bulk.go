package meter

import "github.com/sandboxd/sandboxd/host/wasmbin"

// maxChunk is how many bytes memory.fill and memory.copy work on between two calls of the host.
// An engine does all of one instruction at once, which for 64 MiB that nobody has touched before takes
// long.
const maxChunk = 1 << 20

// Parameters of the functions that stand for memory.fill and memory.copy, and a local of theirs. They
// charge for the length as for any other, and return the fuel.
const (
	bulkTo     = iota // i32
	bulkFrom          // i32, or the byte
	bulkLength        // i32
	bulkFuel          // i64
	bulkCharge        // i64, the local
)

// Opcodes that only these functions use.
const (
	opLoop   = byte(wasmbin.OpLoop)
	opBrIf   = byte(wasmbin.OpBrIf)
	opI32GtU = 0x4b
	opI32LeU = 0x4d
	opI64LeU = 0x58
	opI32Sub = 0x6b
)

// A bulk is the code of such a function.
type bulk struct {
	*rewriter
	out []byte
	op  []byte
}

func (b *bulk) put(code ...byte)  { b.out = append(b.out, code...) }
func (b *bulk) get(locals ...int) { b.each(opLocalGet, locals) }
func (b *bulk) set(locals ...int) { b.each(opLocalSet, locals) }

func (b *bulk) each(op byte, locals []int) {
	for _, l := range locals {
		b.out = u32(append(b.out, op), uint32(l))
	}
}

// chunk puts the length of a chunk.
func (b *bulk) chunk() { b.out = s64(append(b.out, opI32Const), maxChunk) }

// begin charges, and opens a block for what is longer than a chunk.
func (b *bulk) begin() {
	b.put(1, 1, i64)
	b.get(bulkFuel, bulkLength)
	b.put(opI64ExtendI32)
	b.out = append(constant(b.out, 3), opI64ShrU)
	b.each(opLocalTee, []int{bulkCharge})
	b.out = constant(b.out, mostLength)
	b.get(bulkCharge)
	b.out = append(constant(b.out, mostLength), opI64LtU, opSelect, opI64Sub)
	b.each(opLocalTee, []int{bulkFuel})
	b.out = append(constant(b.out, 0), opI64LtS, opIf, 0x40)
	b.ask()
	b.put(opEnd)
	b.get(bulkLength)
	b.chunk()
	b.put(opI32GtU, opIf, 0x40)
}

// ask calls the host, with the fuel that is left.
func (b *bulk) ask() {
	b.get(bulkFuel)
	b.out = u32(append(b.out, opGlobalSet), b.fuel)
	b.out = u32(append(constant(b.out, 0), opGlobalSet), b.depth)
	b.out = u32(append(b.out, opCall), b.imported)
	b.out = u32(append(b.out, opGlobalGet), b.fuel)
	b.set(bulkFuel)
}

// within puts whether all that begins with an address lies in memory: else nothing may be done, and the
// instruction itself fails.
func (b *bulk) within(address int) {
	b.get(address)
	b.put(opI64ExtendI32)
	b.get(bulkLength)
	b.put(opI64ExtendI32, opI64Add, byte(wasmbin.OpMemorySize), 0, opI64ExtendI32)
	b.out = append(constant(b.out, 16), opI64Shl, opI64LeU)
}

// next ends the loop over chunks, of which one was done.
func (b *bulk) next() {
	b.get(bulkLength)
	b.chunk()
	b.put(opI32Sub)
	b.set(bulkLength)
	b.ask()
	b.get(bulkLength)
	b.chunk()
	b.put(opI32GtU, opBrIf, 0, opEnd)
}

// forward does the lowest chunk, and steps over it.
func (b *bulk) forward(addresses ...int) {
	b.put(opLoop, 0x40)
	b.get(bulkTo, bulkFrom)
	b.chunk()
	b.put(b.op...)
	for _, a := range addresses {
		b.get(a)
		b.chunk()
		b.put(opI32Add)
		b.set(a)
	}
	b.next()
}

// backward does the highest chunk.
func (b *bulk) backward() {
	b.put(opLoop, 0x40)
	for _, a := range []int{bulkTo, bulkFrom} {
		b.get(a, bulkLength)
		b.put(opI32Add)
		b.chunk()
		b.put(opI32Sub)
	}
	b.chunk()
	b.put(b.op...)
	b.next()
}

// end closes the block, and does what is left.
func (b *bulk) end() []byte {
	b.put(opEnd)
	b.get(bulkTo, bulkFrom, bulkLength)
	b.put(b.op...)
	b.get(bulkFuel)
	b.put(opEnd)
	return b.out
}

// fillBody is the function that stands for memory.fill.
func (w *rewriter) fillBody() []byte {
	b := &bulk{rewriter: w, op: []byte{0xfc, 0x0b, 0}}
	b.begin()
	b.within(bulkTo)
	b.put(opIf, 0x40)
	b.forward(bulkTo)
	b.put(opEnd)
	return b.end()
}

// copyBody is the function that stands for memory.copy. Where both places overlap, what would be
// overwritten is copied first.
func (w *rewriter) copyBody() []byte {
	b := &bulk{rewriter: w, op: []byte{0xfc, 0x0a, 0, 0}}
	b.begin()
	b.within(bulkTo)
	b.within(bulkFrom)
	b.put(opI32And, opIf, 0x40)
	b.get(bulkTo, bulkFrom)
	b.put(opI32LeU, opIf, 0x40)
	b.forward(bulkTo, bulkFrom)
	b.put(byte(wasmbin.OpElse))
	b.backward()
	b.put(opEnd, opEnd)
	return b.end()
}
