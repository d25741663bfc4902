package host

import "github.com/tetratelabs/wazero/experimental"

// A memory counts what one call holds: its linear memory and the blocks that
// the host keeps for it. It is the engine's allocator for this one call, so
// every call has its own limit and a refusal is remembered.
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

// Allocate implements [experimental.MemoryAllocator].
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return &linear{memory: m} }

// linear is the linear memory of an instance.
type linear struct {
	memory *memory
	buf    []byte
}

// Reallocate implements [experimental.LinearMemory]. Size never shrinks, so the
// bytes between length and capacity are still zero.
func (l *linear) Reallocate(size uint64) []byte {
	m := l.memory
	most := m.limit - m.blocks
	if size > uint64(max(most, 0)) {
		m.refused = true
		return nil
	}
	if size > uint64(cap(l.buf)) {
		// A quarter more than asked, so that growing page by page does not copy
		// everything for each page.
		room := min(size+size/4, uint64(most))
		if len(l.buf) == 0 {
			room = size
		}
		buf := make([]byte, size, room)
		copy(buf, l.buf)
		l.buf = buf
	}
	l.buf = l.buf[:size]
	m.linear = int64(size)
	m.peak = max(m.peak, m.linear+m.blocks)
	return l.buf
}

// Free implements [experimental.LinearMemory].
func (l *linear) Free() { l.buf = nil }
