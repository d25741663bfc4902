package wasmbin

import (
	"encoding/binary"
	"iter"
)

// A Body is one function with a body, whose locals [Decode] has read.
type Body struct {
	Groups int // number of groups of locals
	Locals int // offset in the module of the first group
	Code   int // of the first instruction
	End    int // behind the last one
	Count  int // locals, without parameters

	bytes []byte // the module's
}

// Bodies yields the functions with a body in their order, numbered from 0.
func (m *Module) Bodies() iter.Seq2[int, Body] {
	return func(yield func(int, Body) bool) {
		for _, s := range m.Sections {
			if s.ID != secCode {
				continue
			}
			r := &reader{b: m.bytes[:s.End], pos: s.Body}
			for i := range int(r.u32()) {
				size := int(r.u32())
				b := Body{End: r.pos + size, bytes: m.bytes}
				b.Groups = int(r.u32())
				b.Locals = r.pos
				for range b.Groups {
					b.Count += int(r.u32())
					r.pos++
				}
				b.Code, r.pos = r.pos, b.End
				if r.err != nil || !yield(i, b) { // Decode leaves no error to be found here
					return
				}
			}
		}
	}
}

// Instructions returns a reader of the body's instructions.
func (b Body) Instructions() *Instructions {
	return &Instructions{r: reader{b: b.bytes[:b.End], pos: b.Code}, depth: 1}
}

// Types returns the types of the body's locals, without parameters, one for each group.
func (b Body) Types() []ValueType {
	r := &reader{b: b.bytes[:b.End], pos: b.Locals}
	types := make([]ValueType, 0, b.Groups)
	for range b.Groups {
		r.u32()
		types = append(types, ValueType(r.byte()))
	}
	return types
}

// An Instruction is one instruction with the immediates that name something.
// Constants, lanes and alignment are stepped over.
type Instruction struct {
	Op       Op
	Start    int // offset of the opcode in the module
	Operands int // offset of the immediates
	End      int // behind the instruction

	// Index is the first index: a label, local, global, function, type, table,
	// element or data segment, or the type of a block that has one. For table.copy
	// it is the table that is written, for br_table the default label. Of a load or
	// store it is the offset.
	Index uint32
	// Index2 is the second index: the table of call_indirect and table.init, the
	// table that table.copy reads, and for br_table the number of other labels.
	Index2 uint32
	// HasType is set if a block's type is Index. Otherwise the block takes nothing
	// and returns at most one value, whose type is Result, or zero.
	HasType bool
	Result  ValueType

	labels []byte
}

// Labels yields the labels of br_table without the default.
func (i *Instruction) Labels() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		b := i.labels
		for range i.Index2 {
			v, n := binary.Uvarint(b)
			if b = b[n:]; !yield(uint32(v)) {
				return
			}
		}
	}
}

// Instructions reads the instructions of one body, each once and in order. It
// knows those of WebAssembly 2.0 and no others, in the encoding that every engine
// agrees on. It checks that blocks are balanced and that labels exist; types and
// other indexes it leaves to its caller. Its work is bounded by the body's bytes
// and it allocates nothing for an instruction.
type Instructions struct {
	r     reader
	depth int // labels that exist, the function's among them
	cur   Instruction
}

// Next reads the next instruction. It is false at the end and after an error.
func (s *Instructions) Next() bool {
	if s.r.err != nil {
		return false
	}
	if s.depth == 0 {
		if s.r.left() > 0 {
			s.r.fail("%d bytes behind the end of the body", s.r.left())
		}
		return false
	}
	s.read()
	return s.r.err == nil
}

// Instruction returns what Next read. It is overwritten by the next call.
func (s *Instructions) Instruction() *Instruction { return &s.cur }

// Depth returns the number of labels in scope behind the instruction that was
// read, the function's own among them: 0 behind the last end.
func (s *Instructions) Depth() int { return s.depth }

// Err returns why reading stopped before the end, as an [*Error] that names the
// proposal an unknown instruction belongs to, or nil.
func (s *Instructions) Err() error {
	if s.r.err == nil {
		return nil
	}
	return s.r.err
}

func (s *Instructions) read() {
	r := &s.r
	s.cur = Instruction{Start: r.pos}
	in := &s.cur
	in.Op = Op(r.byte())
	as := shapes[in.Op]
	switch in.Op {
	case 0xfc:
		as = s.prefixed(len(shapesFC), shapesFC[:])
	case 0xfd:
		as = s.prefixed(len(shapesFD), shapesFD[:])
	}
	if r.err != nil {
		return
	}
	in.Operands = r.pos
	switch as {
	case unknown:
		r.pos = in.Start
		if name := feature(in.Op); name != "" {
			r.fail("instruction %s: %s: not enabled", in.Op, name)
		} else {
			r.fail("instruction %s is not known", in.Op)
		}
	case bare:
	case block:
		s.blockType()
	case label:
		in.Index = s.label()
	case table:
		s.table()
	case indirect, twice:
		in.Index, in.Index2 = r.u32(), r.u32()
	case index:
		in.Index = r.u32()
	case typed:
		if n := r.byte(); r.err == nil && n != 1 {
			r.pos--
			r.fail("select of %d types, want 1", n)
		}
		in.Result = r.valueType()
	case memarg:
		s.memarg()
	case zero:
		s.memory()
	case zeros:
		s.memory()
		s.memory()
	case segment:
		in.Index = r.u32()
		s.memory()
	case const32:
		r.signed(32)
	case const64:
		r.signed(64)
	case four:
		r.bytes(4)
	case eight:
		r.bytes(8)
	case sixteen:
		r.bytes(16)
	case heap:
		in.Result = r.refType()
	case lane:
		r.byte()
	case memlane:
		s.memarg()
		r.byte()
	}
	switch in.Op {
	case OpBlock, OpLoop, OpIf:
		s.depth++
	case OpElse:
		if s.depth == 1 {
			r.fail("else outside a block")
		}
	case OpEnd:
		s.depth--
	}
	in.End = r.pos
}

// prefixed reads the opcode behind a prefix. Engines disagree on encodings longer
// than needed, so there is one for each.
func (s *Instructions) prefixed(known int, shapes []shape) shape {
	r := &s.r
	prefix, at := s.cur.Op, r.pos
	sub := r.u32()
	if r.err != nil {
		return unknown
	}
	if n := r.pos - at; n > 1 && r.b[r.pos-1] == 0 {
		r.pos = at
		r.fail("opcode of instruction 0x%02x %d has %d bytes", byte(prefix), sub, n)
		return unknown
	}
	if sub > 0xff {
		r.pos = at
		if prefix == 0xfd && sub < 0x114 {
			r.fail("instruction 0xfd %d: relaxed SIMD: not enabled", sub)
		} else {
			r.fail("instruction 0x%02x %d is not known", byte(prefix), sub)
		}
		return unknown
	}
	s.cur.Op = prefix<<8 | Op(sub)
	if int(sub) >= known {
		return unknown
	}
	return shapes[sub]
}

// blockType reads the type of a block: empty, one value type, or an index, which
// is a signed LEB128 of 33 bits and not negative.
func (s *Instructions) blockType() {
	r := &s.r
	switch first := r.byte(); {
	case r.err != nil || first == 0x40:
		return
	case first < 0x40 || first >= 0x80:
		r.pos--
	default:
		r.pos--
		s.cur.Result = r.valueType()
		return
	}
	at := r.pos
	v := uint64(0)
	for shift := 0; ; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if r.err != nil {
			return
		}
		if c < 0x80 {
			if c&0x40 != 0 || v > 1<<32-1 {
				break // negative, or too large
			}
			s.cur.HasType, s.cur.Index = true, uint32(v)
			return
		}
		if shift == 28 {
			break
		}
	}
	r.pos = at
	r.fail("block type is neither a value type nor an index")
}

func (s *Instructions) label() uint32 {
	at := s.r.pos
	v := s.r.u32()
	if s.r.err == nil && uint64(v) >= uint64(s.depth) {
		s.r.pos = at
		s.r.fail("label %d: there are %d", v, s.depth)
	}
	return v
}

func (s *Instructions) table() {
	r := &s.r
	n := r.count("labels", 1)
	from := r.pos
	for range n {
		if s.label(); r.err != nil {
			return
		}
	}
	s.cur.Index2, s.cur.labels = uint32(n), r.b[from:r.pos]
	s.cur.Index = s.label()
}

// memory reads the index of the one memory, for which the format has a byte.
func (s *Instructions) memory() {
	if c := s.r.byte(); s.r.err == nil && c != 0 {
		s.r.pos--
		s.r.fail("memory %d: multiple memories are not enabled", c)
	}
}

func (s *Instructions) memarg() {
	r := &s.r
	at := r.pos
	align := r.u32()
	if r.err == nil && align >= 32 {
		r.pos = at
		if align&0x40 != 0 {
			r.fail("memory of an instruction is named: multiple memories are not enabled")
		} else {
			r.fail("alignment 2^%d is not known", align)
		}
	}
	s.cur.Index = r.u32()
}
