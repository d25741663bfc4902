package host

import "slices"

// blocks is the memory that Extism's imports share with a guest: blocks on the
// host's side, named by handles. A handle is an address: a byte inside a block
// has the block's handle plus its index. Addresses are never used twice in a
// call, and between two blocks lies a gap, so a guest that runs over the end of
// one finds nothing.
type blocks struct {
	memory *memory
	list   []block // by address
	next   uint64
}

type block struct {
	base uint64
	data []byte // nil once freed
}

const (
	blockGap  = 16 // bytes of address space behind a block
	blockCost = 64 // bytes that a block's entry is counted as, freed or not
)

// alloc returns the handle of a new block of n zero bytes, or 0 if n is 0 or the
// call may not hold as much.
func (b *blocks) alloc(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	if n > uint64(b.memory.limit) || !b.memory.take(int64(n)+blockCost) {
		b.memory.refused = true
		return 0
	}
	return b.add(make([]byte, n))
}

// put returns the handle of a new block that holds a copy of data, or 0.
func (b *blocks) put(data []byte) uint64 {
	h := b.alloc(uint64(len(data)))
	if h != 0 {
		copy(b.list[len(b.list)-1].data, data)
	}
	return h
}

func (b *blocks) add(data []byte) uint64 {
	base := max(b.next, blockGap)
	b.next = (base + uint64(len(data)) + blockGap + 7) &^ 7
	b.list = append(b.list, block{base, data})
	return base
}

// find returns the block that holds address a, or nil.
func (b *blocks) find(a uint64) *block {
	i, exact := slices.BinarySearchFunc(b.list, a, func(e block, a uint64) int {
		switch {
		case e.base < a:
			return -1
		case e.base > a:
			return 1
		}
		return 0
	})
	if !exact {
		if i--; i < 0 {
			return nil
		}
	}
	if e := &b.list[i]; a-e.base < uint64(len(e.data)) {
		return e
	}
	return nil
}

// at returns the n bytes at address a. They lie in one block, or it is false.
func (b *blocks) at(a, n uint64) ([]byte, bool) {
	e := b.find(a)
	if e == nil {
		return nil, false
	}
	off := a - e.base
	if n > uint64(len(e.data))-off {
		return nil, false
	}
	return e.data[off : off+n], true
}

// whole returns the block whose handle is h.
func (b *blocks) whole(h uint64) ([]byte, bool) {
	if e := b.find(h); e != nil && e.base == h {
		return e.data, true
	}
	return nil, false
}

// free gives back the block whose handle is h, if there is one. Its entry stays
// counted, so alloc and free in a loop end.
func (b *blocks) free(h uint64) {
	if e := b.find(h); e != nil && e.base == h {
		b.memory.give(int64(len(e.data)))
		e.data = nil
	}
}

// reset gives back everything.
func (b *blocks) reset() {
	for _, e := range b.list {
		b.memory.give(int64(len(e.data)) + blockCost)
	}
	b.list = nil
}
