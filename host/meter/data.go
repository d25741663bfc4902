package meter

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

const i32Const = byte(wasmbin.OpI32Const)

// mergeGap is the most bytes between two segments that become one: a segment costs
// the engine more than so many zeros.
const mergeGap = 64

// data returns the data section with active segments merged that lie close to each
// other. Nothing is merged where that could be noticed: if segments can be named by
// instructions, overlap, have offsets that are not known or lie outside the memory
// that is there at first.
func (w *rewriter) data() []byte {
	old := w.raw(secData)
	if len(old) == 0 || w.m.DataCount || len(w.m.Memories) != 1 {
		return old
	}
	type segment struct {
		at       uint64 // in memory
		contents []byte
	}
	count, n := binary.Uvarint(old)
	rest := old[n:]
	all := make([]segment, 0, count)
	for range count {
		if rest[0] != 0 || rest[1] != i32Const {
			return old
		}
		offset, n := signed(rest[2:])
		rest = rest[2+n+1:] // and the end of the constant
		size, n := binary.Uvarint(rest)
		all = append(all, segment{uint64(uint32(offset)), rest[n : n+int(size)]})
		rest = rest[n+int(size):]
	}
	slices.SortStableFunc(all, func(a, b segment) int { return cmp.Compare(a.at, b.at) })
	memory := uint64(w.m.Memories[0].Min) << 16
	out := make([]byte, 0, len(old))
	var open segment // not yet written
	merged := uint32(0)
	flush := func() {
		if len(open.contents) > 0 {
			out = s64(append(out, 0, i32Const), int64(int32(uint32(open.at))))
			out = append(u32(append(out, opEnd), uint32(len(open.contents))), open.contents...)
			merged++
		}
	}
	for _, s := range all {
		end := open.at + uint64(len(open.contents))
		switch {
		case s.at < end || s.at+uint64(len(s.contents)) > memory:
			return old
		case len(s.contents) == 0:
		case len(open.contents) > 0 && s.at-end <= mergeGap:
			open.contents = append(append(open.contents, make([]byte, s.at-end)...), s.contents...)
		default:
			flush()
			open = segment{s.at, slices.Clone(s.contents)}
		}
	}
	flush()
	return append(u32(nil, merged), out...)
}

// signed reads a signed LEB128 and returns its length.
func signed(b []byte) (int64, int) {
	v, shift := int64(0), 0
	for i, c := range b {
		v |= int64(c&0x7f) << shift
		if shift += 7; c < 0x80 {
			if c&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v, i + 1
		}
	}
	return 0, 0
}
