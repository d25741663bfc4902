package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandboxd/sandboxd/host/meter"
)

// An arena is where the blocks of a call lie if the guest reads and writes them itself: in the
// memory of a module that belongs to the guest's instance. See package meter on windows.
type arena struct {
	module  api.Module
	region  *region
	windows [3]window

	free []span  // by place, none next to another
	top  int64   // behind it nothing was used
	size int64   // of the memory, which never shrinks
	held int64   // behind it everything is zero
	kept int64   // bytes that the region may have for itself
	own  *linear // the guest's memory; nil if it has none
}

// A span is a part of an arena.
type span struct{ at, size int64 }

// arenaBytes is what the arena and the guest's memory may have together beyond the limit of a call.
const arenaBytes = wasmPage

// maxArenaBytes is the most that an arena keeps of its own from call to call.
const maxArenaBytes = 1 << 20

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
	case !a.fits(at + room):
		return 0, false
	default:
		a.top = at + room
	}
	if used := min(n, a.held-at); used > 0 {
		clear(a.bytes(at, used))
	}
	a.held = max(a.held, a.top)
	return at, true
}

// fits makes the arena at least as large as n bytes. It is false, and changes nothing, if there is
// no room beside the guest's memory.
func (a *arena) fits(n int64) bool {
	room := int64(a.region.size)
	if a.own != nil {
		room -= a.own.size
	}
	if max(n, a.held) > room {
		return false
	}
	if n <= a.size {
		return true
	}
	_, ok := a.module.Memory().Grow(uint32((n - a.size + wasmPage - 1) / wasmPage))
	return ok
}

// give gives back what take has found.
func (a *arena) give(at, n int64) {
	a.closeWindows()
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

// leaves reports whether the guest's memory may have so many bytes.
func (a *arena) leaves(n int64) bool { return n+a.held <= int64(a.region.size) }

// bytes returns n bytes of the arena.
func (a *arena) bytes(at, n int64) []byte { return a.region.bytes(a.size)[at : at+n] }

// open opens a window on n bytes of the arena, which for the guest begin with address base.
func (a *arena) open(window int, base uint64, at, n int64) {
	w := &a.windows[window]
	w.open = true
	w.at.Set(uint64(at))
	w.base.Set(base)
	w.ones.Set(uint64(n))
	w.wides.Set(uint64(max(n-7, 0)))
}

// A window is the part of an arena that package meter describes.
type window struct {
	at, base, ones, wides api.MutableGlobal
	open                  bool
}

// close makes the guest ask for the next byte.
func (w *window) close() {
	if !w.open {
		return
	}
	w.open = false
	w.ones.Set(0)
	w.wides.Set(0)
}

func (a *arena) closeWindows() {
	for i := range a.windows {
		a.windows[i].close()
	}
}

// newArena makes an arena that may hold so many bytes with the guest's memory.
func (e *Engine) newArena(ctx context.Context, most int64) (*arena, error) {
	room, err := e.reserve(most)
	if err != nil {
		return nil, err
	}
	a := &arena{region: room}
	config := wazero.NewModuleConfig().WithName("").WithRandSource(noRandom{})
	a.module, err = e.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, a), e.blocks, config)
	if err != nil {
		room.free()
		return nil, fmt.Errorf("module of blocks: %w", err)
	}
	for i := range a.windows {
		part := func(name string) api.MutableGlobal {
			return a.module.ExportedGlobal(meter.Window(i, name)).(api.MutableGlobal)
		}
		a.windows[i] = window{at: part(meter.At), base: part(meter.Base), ones: part(meter.Ones), wides: part(meter.Wides)}
	}
	return a, nil
}

// close frees the arena. No code runs then that could look into it.
func (a *arena) close() { a.module.Close(context.Background()) }

// Allocate implements [experimental.MemoryAllocator].
func (a *arena) Allocate(_, _ uint64) experimental.LinearMemory { return a }

// Reallocate implements [experimental.LinearMemory].
func (a *arena) Reallocate(size uint64) []byte {
	if size > uint64(a.region.size) {
		return nil
	}
	a.size = int64(size)
	return a.region.bytes(a.size)
}

// Free implements [experimental.LinearMemory].
func (a *arena) Free() { a.region.free() }

// restore empties the arena, so that nothing is left of a call in it. With sweep, pages that the call
// did not need are given back.
func (a *arena) restore(sweep bool) error {
	a.closeWindows()
	a.free, a.top = a.free[:0], 0
	used := a.held
	a.held, a.kept = 0, max(a.kept, used)
	keep := used // what it keeps stays its own, and is made zero here
	switch {
	case a.kept > maxArenaBytes:
		keep = 0
	case !sweep:
		keep = a.kept
	}
	clear(a.bytes(0, min(used, keep)))
	keep = (keep + wasmPage - 1) &^ (wasmPage - 1)
	if a.kept <= keep {
		return nil
	}
	back := a.bytes(keep, a.kept-keep)
	a.kept = keep
	return madvise(back)
}

// resolve has a module find its accessors in the arena.
func (a *arena) resolve(name string) api.Module {
	if name == meter.Blocks {
		return a.module
	}
	return nil // the runtime has it
}
