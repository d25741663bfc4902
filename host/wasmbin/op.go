package wasmbin

import "fmt"

// An Op is the opcode of an instruction. An opcode behind a prefix has the prefix
// in its high byte: memory.copy, which is 0xfc 10 in the binary format, is 0xfc0a.
type Op uint16

// The opcodes that more is done with than stepping over them.
const (
	OpUnreachable  Op = 0x00
	OpNop          Op = 0x01
	OpBlock        Op = 0x02
	OpLoop         Op = 0x03
	OpIf           Op = 0x04
	OpElse         Op = 0x05
	OpEnd          Op = 0x0b
	OpBr           Op = 0x0c
	OpBrIf         Op = 0x0d
	OpBrTable      Op = 0x0e
	OpReturn       Op = 0x0f
	OpCall         Op = 0x10
	OpCallIndirect Op = 0x11
	OpDrop         Op = 0x1a
	OpSelect       Op = 0x1b
	OpSelectType   Op = 0x1c
	OpLocalGet     Op = 0x20
	OpLocalSet     Op = 0x21
	OpLocalTee     Op = 0x22
	OpGlobalGet    Op = 0x23
	OpGlobalSet    Op = 0x24
	OpTableGet     Op = 0x25
	OpTableSet     Op = 0x26
	OpMemorySize   Op = 0x3f
	OpMemoryGrow   Op = 0x40
	OpI32Const     Op = 0x41
	OpI64Const     Op = 0x42
	OpF32Const     Op = 0x43
	OpF64Const     Op = 0x44
	OpRefNull      Op = 0xd0
	OpRefIsNull    Op = 0xd1
	OpRefFunc      Op = 0xd2
	OpMemoryInit   Op = 0xfc08
	OpDataDrop     Op = 0xfc09
	OpMemoryCopy   Op = 0xfc0a
	OpMemoryFill   Op = 0xfc0b
	OpTableInit    Op = 0xfc0c
	OpElemDrop     Op = 0xfc0d
	OpTableCopy    Op = 0xfc0e
	OpTableGrow    Op = 0xfc0f
	OpTableSize    Op = 0xfc10
	OpTableFill    Op = 0xfc11
	OpV128Const    Op = 0xfd0c
)

// String returns the opcode as the specification writes it, such as "0x6a" or
// "0xfc 10".
func (o Op) String() string {
	if o > 0xff {
		return fmt.Sprintf("0x%02x %d", byte(o>>8), byte(o))
	}
	return fmt.Sprintf("0x%02x", byte(o))
}

// A shape is what follows an opcode.
type shape uint8

const (
	unknown  shape = iota // no instruction of WebAssembly 2.0
	bare                  // nothing
	block                 // a block type
	label                 // a label
	table                 // a vector of labels and one more
	indirect              // a type and a table
	index                 // one index
	twice                 // two indexes
	typed                 // a vector of one value type
	memarg                // alignment and offset
	zero                  // a byte that is 0
	zeros                 // two of them
	segment               // an index and a byte that is 0
	const32               // a signed LEB128 of 32 bits
	const64
	four // bytes; likewise eight and sixteen
	eight
	sixteen
	heap // a reference type
	lane // a byte
	memlane
)

// shapes are those of the opcodes without a prefix.
var shapes = func() (s [256]shape) {
	set := func(as shape, from, to byte) {
		for op := int(from); op <= int(to); op++ {
			s[op] = as
		}
	}
	set(bare, 0x00, 0x01)
	set(block, 0x02, 0x04)
	set(bare, 0x05, 0x05)
	set(bare, 0x0b, 0x0b)
	set(label, 0x0c, 0x0d)
	set(table, 0x0e, 0x0e)
	set(bare, 0x0f, 0x0f)
	set(index, 0x10, 0x10)
	set(indirect, 0x11, 0x11)
	set(bare, 0x1a, 0x1b)
	set(typed, 0x1c, 0x1c)
	set(index, 0x20, 0x26)
	set(memarg, 0x28, 0x3e)
	set(zero, 0x3f, 0x40)
	set(const32, 0x41, 0x41)
	set(const64, 0x42, 0x42)
	set(four, 0x43, 0x43)
	set(eight, 0x44, 0x44)
	set(bare, 0x45, 0xc4)
	set(heap, 0xd0, 0xd0)
	set(bare, 0xd1, 0xd1)
	set(index, 0xd2, 0xd2)
	return s
}()

// shapesFC are those of the opcodes behind 0xfc, in their order.
var shapesFC = [...]shape{
	bare, bare, bare, bare, bare, bare, bare, bare, // saturating truncation
	segment, index, zeros, zero, // memory.init, data.drop, memory.copy, memory.fill
	twice, index, twice, index, index, index, // table.init, elem.drop, table.copy, table.grow, table.size, table.fill
}

// shapesFD are those of the opcodes behind 0xfd.
var shapesFD = func() (s [256]shape) {
	for op := range s {
		switch {
		case op <= 11, op == 92, op == 93: // loads and stores
			s[op] = memarg
		case op == 12, op == 13: // v128.const, i8x16.shuffle
			s[op] = sixteen
		case op >= 21 && op <= 34: // extract and replace
			s[op] = lane
		case op >= 84 && op <= 91: // loads and stores of one lane
			s[op] = memlane
		default:
			s[op] = bare
		}
	}
	for _, gap := range []byte{0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6,
		0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee} {
		s[gap] = unknown
	}
	return s
}()

// feature names the proposal that an opcode outside WebAssembly 2.0 belongs to,
// or is empty.
func feature(op Op) string {
	switch {
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "exceptions"
	case op == 0x12, op == 0x13:
		return "tail calls"
	case op == 0x14, op == 0x15, op >= 0xd4 && op <= 0xd6:
		return "typed function references"
	case op == 0xd3, op == 0xfb:
		return "garbage collection"
	case op >= 0xe0 && op <= 0xe6:
		return "stack switching"
	case op == 0xfe:
		return "threads"
	case op >= 0xfc13 && op <= 0xfc16:
		return "wide arithmetic"
	}
	return ""
}
