package host

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A parked instance was set back and waits for the next call of its code where the last one
// ended. It is not idle: to the pool it is an instance in use and to the engine a call that
// runs, so that to park it and to take it again costs neither of their locks, which the calls
// of all processors want. Who looks for what is not in use has parked instances end first; see
// [Engine.unpark].
//
// An engine has as many places as calls can run at once, and each a few spots, in which
// different codes park. One instance is in a spot; the next one ends it. What is too large for its part of
// maxParkedBytes is not parked.
type parking struct {
	closed  atomic.Bool
	codes   atomic.Uint32 // so far, each of which has the spot after the last one's
	trimmed atomic.Int64  // when that was done last, in nanoseconds of Unix time
	places  []place
}

// maxParkedBytes is what all parked instances of an engine may hold, beside their images.
const maxParkedBytes = 128 << 20

// spots is how many instances are parked in a place.
const spots = 8

// A place has cache lines of its own.
type place struct {
	spots [spots]atomic.Pointer[instance]
	_     [64]byte
}

// homes are given to frames in turn, which keep them: most frames stay with a processor.
var homes atomic.Uint32

func newParking() parking { return parking{places: make([]place, runtime.GOMAXPROCS(0))} }

func (p *parking) spot(home uint32, c *code) *atomic.Pointer[instance] {
	return &p.places[home%uint32(len(p.places))].spots[c.spot%spots]
}

// take returns an instance that is parked there in the state that a call of the code with the
// profile begins with, or nil. The caller takes over that it is in use.
func (p *parking) take(home uint32, c *code, of profile) *instance {
	spot := p.spot(home, c)
	inst := spot.Load()
	if inst == nil || inst.code != c || inst.image.profile != of || !spot.CompareAndSwap(inst, nil) {
		return nil
	}
	return inst
}

// steal is take from wherever one is parked, for a call that is counted itself.
func (e *Engine) steal(c *code, of profile) *instance {
	for home := range e.parked.places {
		if inst := e.parked.take(uint32(home), c, of); inst != nil {
			e.leave(c)
			return inst
		}
	}
	return nil
}

// park parks an instance that was set back, for which the caller has entered, as one that waits
// since then. It is true if one of the same kind was there.
func (e *Engine) park(home uint32, inst *instance, since time.Time) (crowded bool) {
	p := &e.parked
	inst.since = since
	if inst.kept > maxParkedBytes/int64(spots*len(p.places)) {
		e.end(inst)
		return false
	}
	spot := p.spot(home, inst.code)
	if before := spot.Swap(inst); before != nil {
		crowded = before.image == inst.image
		e.end(before)
	}
	if p.closed.Load() {
		e.end(spot.Swap(nil))
	}
	if trimmed := p.trimmed.Load(); since.UnixNano()-trimmed > int64(e.pool.maxIdleTime)/4 && p.trimmed.CompareAndSwap(trimmed, since.UnixNano()) {
		e.trim(since)
	}
	return crowded
}

// end makes a parked instance an idle one.
func (e *Engine) end(inst *instance) {
	if inst != nil {
		since := inst.since // the pool gives it to another call
		e.pool.put(inst, time.Now())
		e.leaveSince(inst.code, since)
	}
}

// unpark ends the parked instances of a code, or all.
func (e *Engine) unpark(of *code) {
	e.parked.each(func(spot *atomic.Pointer[instance]) {
		if inst := spot.Load(); inst != nil && (of == nil || inst.code == of) && spot.CompareAndSwap(inst, nil) {
			e.end(inst)
		}
	})
}

// trim closes what waits for too long, parked or idle: calls that find a parked instance do not come by the pool.
func (e *Engine) trim(now time.Time) {
	e.parked.each(func(spot *atomic.Pointer[instance]) {
		if inst := spot.Swap(nil); inst != nil {
			e.putBack(spot, inst, now)
		}
	})
	e.pool.trim(now)
}

// putBack parks an instance again that was taken out of a spot to be looked at, unless it waits for too long or the spot is taken.
func (e *Engine) putBack(spot *atomic.Pointer[instance], inst *instance, now time.Time) {
	if now.Sub(inst.since) > e.pool.maxIdleTime || !spot.CompareAndSwap(nil, inst) {
		e.end(inst)
		return
	}
	if e.parked.closed.Load() { // meanwhile: Close, which has ended what was parked, did not see it
		e.end(spot.Swap(nil))
	}
}

func (p *parking) each(do func(spot *atomic.Pointer[instance])) {
	for i := range p.places {
		for j := range p.places[i].spots {
			do(&p.places[i].spots[j])
		}
	}
}
