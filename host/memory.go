package host

import "github.com/tetratelabs/wazero/experimental"

// A memory counts what one call holds: its linear memory and the blocks that
// the host keeps for it. Every call has its own limit, and a refusal is remembered.
type memory struct {
	limit   int64
	linear  int64
	blocks  int64
	peak    int64
	refused bool // some growth was refused
}

// take counts n more bytes of blocks. It is false, and counts nothing, if that
// would pass the limit.
func (m *memory) take(n int64) bool {
	if n > m.limit-m.linear-m.blocks {
		m.refused = true
		return false
	}
	m.blocks += n
	m.peak = max(m.peak, m.linear+m.blocks)
	return true
}

func (m *memory) give(n int64) { m.blocks -= n }

// use counts the linear memory as of so many bytes.
func (m *memory) use(n int64) {
	m.linear = n
	m.peak = max(m.peak, m.linear+m.blocks)
}

// linear is the linear memory of an instance, and the engine's allocator for it alone.
type linear struct {
	region *region
	size   int64
	arena  *arena  // with which it shares what a call may have; nil if there is none
	cut    int64   // what the next Reallocate makes of it, whatever it is asked for; 0: nothing
	memory *memory // of the call that has the instance
}

// Allocate implements [experimental.MemoryAllocator].
func (l *linear) Allocate(_, _ uint64) experimental.LinearMemory { return l }

// Reallocate implements [experimental.LinearMemory].
func (l *linear) Reallocate(size uint64) []byte {
	if l.cut > 0 {
		l.size, l.cut = l.cut, 0
		return l.region.bytes(l.size)
	}
	m := l.memory
	if int64(size) > m.limit-m.blocks || size > uint64(l.region.size) || l.arena != nil && !l.arena.leaves(int64(size)) {
		m.refused = true
		return nil
	}
	l.size = int64(size)
	m.use(l.size)
	return l.region.bytes(l.size)
}

// Free implements [experimental.LinearMemory].
func (l *linear) Free() { l.region.free() }
