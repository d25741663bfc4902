package wasmbin

import (
	"fmt"
	"unicode/utf8"
)

// A reader walks over bytes it does not own. The first error stays, and every
// later read returns zero, so callers check where a loop could run on.
type reader struct {
	b   []byte
	pos int // next byte, relative to b
	at  int // offset of b in the module
	err *Error

	// What a section says of functions and globals, if anyone wants to know.
	refs    *[]Ref
	globals *uint32

	over func(r *reader, what, format string, args ...any) // is told what is past a cap
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Offset: r.at + r.pos, Text: fmt.Sprintf(format, args...)}
	}
}

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) byte() byte {
	if r.err != nil || r.pos == len(r.b) {
		r.fail("unexpected end")
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *reader) bytes(n uint32) []byte {
	if r.err != nil || uint64(n) > uint64(r.left()) {
		r.fail("length %d exceeds the %d bytes left", n, r.left())
		return nil
	}
	r.pos += int(n)
	return r.b[r.pos-int(n) : r.pos : r.pos]
}

// sub returns a reader over the next n bytes and steps over them.
func (r *reader) sub(n uint32) *reader {
	at := r.at + r.pos
	return &reader{b: r.bytes(n), at: at, err: r.err}
}

// u32 reads an unsigned LEB128 of at most 32 bits. Padding is lawful up to five
// bytes; bits beyond the 32nd are not.
func (r *reader) u32() uint32 {
	var v uint32
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if shift == 28 && c > 0x0f {
			r.fail("integer is longer than 32 bits")
			return 0
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
}

// funcRef reads the index of a function.
func (r *reader) funcRef() uint32 {
	from := r.at + r.pos
	v := r.u32()
	if r.err == nil && r.refs != nil {
		*r.refs = append(*r.refs, Ref{from, r.at + r.pos, v})
	}
	return v
}

// signed steps over a signed LEB128 of size bits.
func (r *reader) signed(size int) {
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if rest := size - shift; rest < 7 {
			// The unused bits must all equal the sign bit.
			sign := int8(c<<1) >> rest // the sign bit and what is above it
			if c >= 0x80 || sign != 0 && sign != -1 {
				r.fail("integer is longer than %d bits", size)
				return
			}
		}
		if c < 0x80 {
			return
		}
	}
}

func (r *reader) name() string {
	n := r.u32()
	if n > MaxNameBytes && uint64(n) <= uint64(r.left()) {
		r.over(r, "names", "name of %d bytes exceeds %d", n, MaxNameBytes)
	}
	s := r.bytes(n)
	if !utf8.Valid(s) {
		r.pos -= len(s)
		r.fail("name is not UTF-8")
		return ""
	}
	return string(s)
}

// count reads the length of a vector whose elements take at least size bytes.
func (r *reader) count(what string, size int) int {
	n := r.u32()
	if r.err == nil && uint64(n)*uint64(size) > uint64(r.left()) {
		r.fail("%d %s exceed the %d bytes left", n, what, r.left())
		return 0
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) valueType() ValueType {
	t := ValueType(r.byte())
	switch t {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
		return t
	}
	r.pos = max(r.pos-1, 0)
	switch {
	case r.err != nil:
	case t == 0x63 || t == 0x64 || r.left() > 0 && t < 0x60:
		r.fail("value type 0x%02x: typed function references are not enabled", byte(t))
	case t == 0x69:
		r.fail("value type 0x%02x: exceptions are not enabled", byte(t))
	case t >= 0x65 && t < 0x6f || t > 0x70 && t < 0x75:
		r.fail("value type 0x%02x: garbage collection is not enabled", byte(t))
	default:
		r.fail("value type 0x%02x is not known", byte(t))
	}
	return 0
}

func (r *reader) refType() ValueType {
	t := r.valueType()
	if r.err == nil && t != FuncRef && t != ExternRef {
		r.fail("type %s is not a reference type", t)
	}
	return t
}

// limits reads the minimum and maximum of a table or memory.
func (r *reader) limits(what string) Limits {
	var l Limits
	switch flag := r.byte(); flag {
	case 0:
	case 1:
		l.HasMax = true
	case 2, 3:
		r.fail("shared %s: threads are not enabled", what)
	case 4, 5, 6, 7:
		r.fail("64-bit %s: memory64 is not enabled", what)
	default:
		r.fail("%s limits flag 0x%02x is not known", what, flag)
	}
	l.Min = r.u32()
	if l.HasMax {
		if l.Max = r.u32(); r.err == nil && l.Max < l.Min {
			r.fail("%s maximum %d is below its minimum %d", what, l.Max, l.Min)
		}
	}
	return l
}

// constExpr steps over a constant expression: one instruction and its end.
func (r *reader) constExpr() {
	switch op := r.byte(); op {
	case 0x41: // i32.const
		r.signed(32)
	case 0x42: // i64.const
		r.signed(64)
	case 0x43: // f32.const
		r.bytes(4)
	case 0x44: // f64.const
		r.bytes(8)
	case 0x23: // global.get
		if v := r.u32(); r.globals != nil {
			*r.globals = max(*r.globals, v)
		}
	case 0xd2: // ref.func
		r.funcRef()
	case 0xd0: // ref.null
		r.refType()
	case 0xfd: // v128.const
		if sub := r.u32(); sub != 12 {
			r.fail("instruction 0xfd %d is not constant", sub)
		}
		r.bytes(16)
	default:
		r.fail("instruction 0x%02x is not constant", op)
	}
	if end := r.byte(); r.err == nil && end != 0x0b {
		r.pos--
		r.fail("instruction 0x%02x in a constant: extended constants are not enabled", end)
	}
}
