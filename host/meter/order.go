package meter

import (
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// What a branch does on 0 < x & y is wrong in the compiler of wazero 1.12.0, on amd64 and arm64: it goes by
// x & y < 0, and likewise for every order whose left operand is the constant 0 and whose right one is
// an "and" that nothing else uses. Go writes x&y > 0 like that. On arm64 it is wrong, too, where the order is one of
// numbers without a sign, the "and" on its left and 0 on its right. So an "and" whose value may get to such a place, at once
// or by way of a local or the end of a block, is followed by "or 0", behind which the compiler does not
// see it. That costs no fuel: it is not the guest's.

// An and is what is known of the value of an "and".
type and struct {
	op byte // the instruction, 0 if there is none that may get somewhere
	// end is where it ends in the open run.
	end int
	// beside is set if a value has been put beside it, to its right.
	beside bool
}

const opI64And = 0x83

// hide is told of each instruction before it is written.
func (b *body) hide(in *wasmbin.Instruction) {
	switch a := b.and; {
	case a.op == 0:
	case !a.beside && pushes(in.Op):
		b.and.beside = true
		return
	case a.beside && takesTwo(in.Op) && !unsigned(in.Op), !a.beside && (uses(in.Op) || takesTwo(in.Op) && !orders(in.Op)):
	default:
		or := []byte{opI32Const, 0, opI32Or}
		if a.op == opI64And {
			or = []byte{opI64Const, 0, opI64Or}
		}
		b.open = slices.Insert(b.open, a.end, or...)
	}
	b.and = and{}
}

// hidden is told of each instruction once it is written.
func (b *body) hidden(in *wasmbin.Instruction) {
	if in.Op == opI32And || in.Op == opI64And {
		b.and = and{op: byte(in.Op), end: len(b.open)}
	}
}

// pushes tells whether an instruction puts a value on the stack and does nothing else.
func pushes(op wasmbin.Op) bool {
	return op == wasmbin.OpLocalGet || op == wasmbin.OpGlobalGet || op == wasmbin.OpI32Const || op == wasmbin.OpI64Const
}

// orders tells whether an instruction compares two integers by size.
func orders(op wasmbin.Op) bool {
	return op >= 0x48 && op <= 0x4f || op >= 0x53 && op <= 0x5a
}

// unsigned tells whether an instruction compares two integers by size that have no sign.
func unsigned(op wasmbin.Op) bool { return orders(op) && (op < 0x50) == (op%2 == 1) }

// takesTwo tells whether an instruction makes one value of two integers, or stores one of them where the other says.
func takesTwo(op wasmbin.Op) bool {
	return op >= 0x46 && op <= 0x4f || op >= 0x51 && op <= 0x5a || // comparisons
		op >= 0x6a && op <= 0x78 || op >= 0x7c && op <= 0x8a || // arithmetic
		op >= 0x36 && op <= 0x37 || op >= 0x3a && op <= 0x3e
}

// uses tells whether an instruction takes the integer on top of the stack, and makes something else of it.
func uses(op wasmbin.Op) bool {
	switch op {
	case wasmbin.OpIf, wasmbin.OpBrIf, wasmbin.OpBrTable, wasmbin.OpDrop, wasmbin.OpSelect, wasmbin.OpSelectType, wasmbin.OpGlobalSet:
		return true
	}
	return op >= 0x28 && op <= 0x35 || // loads
		op == 0x45 || op == 0x50 || // tests
		op >= 0x67 && op <= 0x69 || op >= 0x79 && op <= 0x7b || // counts of bits
		op >= 0xa7 && op <= 0xbf || op >= 0xc0 && op <= 0xc4 // conversions
}
