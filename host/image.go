package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A profile is what the state of an instance depends on before a call, other than its
// code. Nothing of a call, its input, its grants or who makes it is in it.
type profile struct {
	guard  bool  // its monotonic clock counts work
	repeat bool  // its randomness is always the same
	memory int64 // limit
}

// maxProfiles is how many profiles of one code have images.
const maxProfiles = 8

// An image is the state of an instance after the start function, _initialize and
// warm_up: memory and globals. Tables and segments are as the module has them, which
// code that can have an image does not change. It is made once, by code of the guest
// that ran without input and without grants, and is shared by all who call that code.
type image struct {
	code    *code
	profile profile
	making  chan struct{} // holds one token while it is made

	// Once it is made; they belong to the pool.
	memory  *snapshot // nil until then
	globals []uint64
	before  before
	users   int         // instances that calls have
	idle    []*instance // that wait for a call, the one that waits longest first
	used    time.Time   // last
	failed  failedStart
}

// A failedStart is what became of what comes before a call, so that nobody who calls again and
// again makes a guest begin again and again.
type failedStart struct {
	times int // in a row
	until time.Time
	last  *GuestError
}

const (
	firstRestart = time.Second
	longRestart  = time.Minute
)

// takeIdle gets the frame an instance that was set back and waits for a call, if there is one.
func (f *frame) takeIdle(now time.Time) bool {
	inst := f.parked
	f.parked = nil
	if e, c := f.module.engine, f.module.code; inst == nil {
		if inst = e.pool.takeIdle(c, f.profile(), now); inst == nil {
			inst = e.steal(c, f.profile())
		}
	}
	if inst == nil {
		return false
	}
	inst.give(f)
	return true
}

// getInstance gets the frame an instance in the state that a call begins with: one that was set
// back, a new one with an image, or a new one in which the guest has begun anew.
func (f *frame) getInstance() error {
	c := f.module.code
	p := &c.engine.pool
	img := p.image(c, f.profile())
	if img == nil {
		inst, err := f.begin()
		if err != nil {
			return err
		}
		inst.give(f)
		return nil
	}
	inst, made := p.take(img, f.started)
	if !made {
		select {
		case img.making <- struct{}{}:
			defer func() { <-img.making }()
		case <-f.lend().Done():
			return f.timeUp()
		}
		if inst, made = p.take(img, f.started); !made {
			if err := p.failedStart(img, f.started); err != nil {
				return err
			}
			err := f.makeImage(img)
			p.started(img, err, time.Now())
			return err
		}
	}
	if inst == nil {
		var err error
		if inst, err = img.instantiate(f); err != nil {
			p.leave(img)
			return err
		}
	}
	inst.give(f)
	return nil
}

// hasImage reports whether getInstance runs no code of the guest.
func (f *frame) hasImage() bool {
	p := &f.module.code.engine.pool
	img := p.image(f.module.code, f.profile())
	if img == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return img.memory != nil
}

func (f *frame) profile() profile {
	return profile{f.guard, f.guard || f.call.Seed != nil, f.limits.MemoryBytes}
}

// begin makes an instance and runs what comes before a call in it. That has a frame of its
// own, without anything of the call's but its limits, and fuel and time of its own. What it used
// is the call's if there is no call after it.
func (f *frame) begin() (*instance, error) {
	first := newFrame(f.parent, f.module, &Call{Kind: f.call.Kind, Limits: f.limits, Now: time.Unix(0, 0)})
	first.clock.repeat = f.profile().repeat
	inst, err := first.runFirst()
	if err != nil {
		failure := first.failure(err)
		failure.Detail = "before the call: " + failure.Detail
		f.fuel.used, f.memory.peak = first.fuel.used, first.memory.peak
		return nil, failure
	}
	if inst.arena != nil { // its blocks are gone
		if err := inst.arena.restore(false); err != nil {
			inst.close()
			return nil, f.hostFailed(noMemory, err)
		}
	}
	inst.clock = first.monotonic()
	inst.denied, inst.deniedMore = slices.Clip(first.denied), first.deniedMore
	return inst, nil
}

// runFirst runs what comes before a call.
func (f *frame) runFirst() (inst *instance, err error) {
	c := f.module.code
	f.startClock(time.Now(), f.limits.Startup)
	defer func() {
		f.stopClock()
		if err != nil && inst != nil {
			f.fuel.used = f.spent()
			inst.close()
			inst = nil
		}
	}()
	if inst, err = c.instantiate(f); err != nil {
		return nil, err
	}
	inst.give(f)
	if f.guard || f.call.Kind == abi.KindHook {
		f.fill(max(f.limits.Fuel, toolLimits.Fuel))
	} else {
		f.fill(f.limits.Fuel)
	}
	if c.start {
		if _, err = f.invoke(meter.Start); err != nil {
			return inst, err
		}
	}
	for _, export := range []string{abi.ExportInitialize, abi.ExportWarmUp} {
		if !f.module.entries[export] {
			continue
		}
		if _, err = f.invoke(export); err != nil {
			return inst, err
		}
	}
	return inst, nil
}

// putInstance ends the frame's use of its instance, which another call may have if nothing
// went wrong in it.
func (f *frame) putInstance() {
	inst := f.instance
	if inst == nil {
		return
	}
	f.instance = nil
	img := inst.image
	again := img != nil && f.returned && !inst.module.IsClosed() && img.restore(inst)
	if again {
		f.park(inst, f.started.Add(f.wall))
		return
	}
	inst.close()
	if img != nil {
		img.code.engine.pool.leave(img)
	}
}

// park parks an instance that is in the state that a call begins with, and with it the call's being one.
// It waits since then.
func (f *frame) park(inst *instance, since time.Time) {
	f.entered = false
	if f.module.engine.park(f.home, inst, since) {
		f.home++
	}
}

// makeImage makes an image. The call gets the instance that it was made of.
func (f *frame) makeImage(img *image) error {
	inst, err := f.begin()
	if err != nil {
		return err
	}
	inst.give(f)
	memory := &snapshot{}
	if inst.linear != nil {
		if memory, err = takeSnapshot(inst.linear.region.bytes(inst.linear.size)); err != nil {
			f.module.engine.log.Warn("no image of an instance", "module", f.module.digest.Short(), "error", err)
			return nil
		}
	}
	globals := make([]uint64, len(inst.globals))
	for i, g := range inst.globals {
		globals[i] = g.Get()
	}
	f.module.engine.pool.made(img, inst, memory, globals)
	return nil
}

// instantiate makes an instance with the state of the image.
func (img *image) instantiate(f *frame) (*instance, error) {
	inst, err := img.code.instantiate(f)
	if err != nil {
		return nil, err
	}
	if inst.linear != nil {
		more := (int64(img.memory.size) - inst.linear.size) / wasmPage
		if _, ok := inst.module.Memory().Grow(uint32(more)); !ok {
			inst.close()
			return nil, &abort{abi.GuestMemory, fmt.Sprintf("memory of %d bytes exceeds limit %d", img.memory.size, f.memory.limit)}
		}
		if err := img.memory.put(inst.linear.region); err != nil {
			inst.close()
			return nil, f.hostFailed(noMemory, err)
		}
	}
	inst.setGlobals(img)
	inst.image, inst.before = img, img.before
	return inst, nil
}

// sweepEvery is after how many calls an instance gives pages back that the last of them has
// not changed. A page that is given back in vain costs a fault, one that is kept in vain is
// copied after every call.
const sweepEvery = 64

// restore sets an instance back to the state of the image. It is false if that cannot be done.
func (img *image) restore(inst *instance) bool {
	inst.kept = instanceBytes
	inst.restored++
	if inst.linear != nil {
		kept, err := img.memory.restore(inst.linear.region, inst.linear.size, img.code.engine.pages, inst.restored%sweepEvery == 0)
		if err != nil {
			img.code.engine.log.Warn("an instance was not set back", "error", err)
			return false
		}
		inst.kept += kept
		if size := int64(img.memory.size); inst.linear.size != size {
			if size == 0 || !inst.shrink(size) {
				return false
			}
		}
		inst.linear.memory = nil
	}
	if inst.arena != nil {
		if err := inst.arena.restore(inst.restored%sweepEvery == 0); err != nil {
			img.code.engine.log.Warn("an instance was not set back", "error", err)
			return false
		}
		inst.kept += inst.arena.kept
	}
	inst.setGlobals(img)
	inst.trim()
	inst.kept += int64(inst.stacks)
	return true
}

func (inst *instance) setGlobals(img *image) {
	for i, g := range inst.globals {
		g.Set(img.globals[i])
	}
}
