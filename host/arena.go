package host

import (
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/meter"
)

// An arena is where the blocks of a call lie if the guest reads and writes them itself:
// behind the guest's own part of its linear memory. See package meter on windows.
type arena struct {
	inst *instance
	free []span // by place, none next to another
	top  int64  // behind it nothing was used
}

// A span is a part of an arena.
type span struct{ at, size int64 }

// arenaPages is what an arena begins with, so that most calls need not make memory larger.
// More would be looked through after each.
// Pages that are not used take no memory.
const arenaPages = 1

const arenaAlign = 16

func aligned(n int64) int64 { return (n + arenaAlign - 1) &^ (arenaAlign - 1) }

// take finds room for n bytes, which are zero. It is false if the memory cannot have as much.
func (a *arena) take(n int64) (at int64, ok bool) {
	room := aligned(n)
	at = a.top
	i := slices.IndexFunc(a.free, func(s span) bool { return s.size >= room })
	switch {
	case i >= 0:
		at = a.free[i].at
		if a.free[i].at, a.free[i].size = at+room, a.free[i].size-room; a.free[i].size == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
	case at+room > a.inst.linear.arena && !a.inst.growArena(at+room):
		return 0, false
	default:
		a.top = at + room
	}
	clear(a.bytes(at, n))
	return at, true
}

// give gives back what take has found.
func (a *arena) give(at, n int64) {
	a.inst.closeWindows()
	s := span{at, aligned(n)}
	i, _ := slices.BinarySearchFunc(a.free, at, func(s span, at int64) int { return int(s.at - at) })
	if i < len(a.free) && a.free[i].at == s.at+s.size {
		s.size += a.free[i].size
		a.free = slices.Delete(a.free, i, i+1)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].size == s.at {
		i--
		s = span{a.free[i].at, a.free[i].size + s.size}
		a.free = slices.Delete(a.free, i, i+1)
	}
	if s.at+s.size == a.top {
		a.top = s.at
		return
	}
	a.free = slices.Insert(a.free, i, s)
}

// bytes returns n bytes of the arena, until memory grows.
func (a *arena) bytes(at, n int64) []byte {
	l := a.inst.linear
	return l.region.bytes(l.size)[l.size-l.arena:][at : at+n]
}

// open opens a window on n bytes of the arena, which for the guest begin with address base.
func (a *arena) open(window int, base uint64, at, n int64) {
	l := a.inst.linear
	w := &a.inst.windows[window]
	w.open = true
	w.at.Set(uint64(l.size - l.arena + at))
	w.base.Set(base)
	w.ones.Set(uint64(n))
	w.wides.Set(uint64(max(n-7, 0)))
}

// A window is the part of an instance that package meter describes.
type window struct {
	at, base, ones, wides api.MutableGlobal
	open                  bool
}

// newArena takes the globals of an instance that has windows, and gives it its first pages. It
// is false if there is no room.
func (inst *instance) newArena() bool {
	inst.arena = inst.global(meter.Arena)
	for i := range inst.windows {
		part := func(name string) api.MutableGlobal { return inst.global(meter.Window(i, name)) }
		inst.windows[i] = window{at: part(meter.At), base: part(meter.Base), ones: part(meter.Ones), wides: part(meter.Wides)}
	}
	return inst.growArena(arenaPages * wasmPage)
}

// closeWindows makes the guest ask for the next byte.
func (inst *instance) closeWindows() {
	for i := range inst.windows {
		inst.windows[i].close()
	}
}

func (w *window) close() {
	if !w.open {
		return
	}
	w.open = false
	w.ones.Set(0)
	w.wides.Set(0)
}

// growArena makes the arena at least as large as size. It is false, and changes nothing, if
// there is no room.
func (inst *instance) growArena(size int64) bool {
	l := inst.linear
	pages := (size - l.arena + wasmPage - 1) / wasmPage
	l.arena += pages * wasmPage
	if _, ok := inst.module.Memory().Grow(uint32(pages)); !ok {
		l.arena -= pages * wasmPage
		return false
	}
	inst.arena.Set(uint64(l.arena / wasmPage))
	return true
}

// growMemory is memory.grow of a guest with an arena, which moves. It returns the pages that
// were the guest's before, or -1.
func (f *frame) growMemory(pages uint32) int32 {
	inst, blocks := f.instance, &f.extism.blocks
	l := inst.linear
	own := l.size - l.arena
	if int64(pages) > inst.code.maxPages-own/wasmPage {
		return -1
	}
	more := int64(pages) * wasmPage
	used := blocks.arena.top
	f.charge(uint64(used + min(more, l.arena)))
	if _, ok := inst.module.Memory().Grow(pages); !ok {
		return -1
	}
	memory := l.region.bytes(l.size)
	copy(memory[own+more:], memory[own:own+used])
	clear(memory[own : own+min(more, l.arena)])
	inst.closeWindows()
	return int32(own / wasmPage)
}
