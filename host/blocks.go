package host

import "slices"

// blocks is the memory that Extism's imports share with a guest: blocks named by
// handles. A handle is an address: a byte inside a block
// has the block's handle plus its index. Addresses are never used twice in a
// call, and between two blocks lies a gap, so a guest that runs over the end of
// one finds nothing.
//
// The bytes of a block lie in the arena of the guest's instance, or in memory of the host's
// for guests that never look at them without the host.
type blocks struct {
	memory *memory
	arena  *arena   // nil: blocks are the host's
	list   []block  // by address
	few    [2]block // which most calls do with
	next   uint64
}

type block struct {
	base uint64
	size int64  // 0 once freed
	data []byte // without an arena
	at   int64  // in the arena
}

const (
	blockGap  = 16  // bytes of address space behind a block
	blockCost = 128 // bytes that a block's entry is counted as, freed or not, with what a list leaves behind that grows
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
	e := block{base: max(b.next, blockGap), size: int64(n)}
	if b.arena == nil {
		e.data = make([]byte, n)
	} else {
		var ok bool
		if e.at, ok = b.arena.take(int64(n)); !ok {
			b.memory.give(int64(n) + blockCost)
			b.memory.refused = true
			return 0
		}
	}
	b.next = (e.base + n + blockGap + 7) &^ 7
	if b.list == nil {
		b.list = b.few[:0]
	}
	b.list = append(b.list, e)
	return e.base
}

// put returns the handle of a new block that holds a copy of data, or 0.
func (b *blocks) put(data []byte) uint64 {
	h := b.alloc(uint64(len(data)))
	if h != 0 {
		copy(b.bytes(b.last()), data)
	}
	return h
}

// last returns the block that was made last, until the next one is.
func (b *blocks) last() *block { return &b.list[len(b.list)-1] }

// bytes returns the bytes of a block, until the next one is made.
func (b *blocks) bytes(e *block) []byte {
	if b.arena == nil {
		return e.data
	}
	return b.arena.bytes(e.at, e.size)
}

// find returns the block that holds address a, or nil, until the next one is made.
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
	if e := &b.list[i]; a-e.base < uint64(e.size) {
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
	if n > uint64(e.size)-off {
		return nil, false
	}
	return b.bytes(e)[off : off+n], true
}

// whole returns the block whose handle is h.
func (b *blocks) whole(h uint64) ([]byte, bool) {
	if e := b.find(h); e != nil && e.base == h {
		return b.bytes(e), true
	}
	return nil, false
}

// free gives back the block whose handle is h, if there is one. Its entry stays
// counted, so alloc and free in a loop end.
func (b *blocks) free(h uint64) {
	if e := b.find(h); e != nil && e.base == h {
		b.release(e)
	}
}

func (b *blocks) release(e *block) {
	b.memory.give(e.size)
	if b.arena != nil && e.size > 0 {
		b.arena.give(e.at, e.size)
	}
	e.size, e.data = 0, nil
}

// close closes a window.
func (b *blocks) close(window int) {
	if b.arena != nil {
		b.arena.windows[window].close()
	}
}

// reset gives back everything.
func (b *blocks) reset() {
	for i := range b.list {
		b.release(&b.list[i])
		b.memory.give(blockCost)
	}
	b.list = nil
}
