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
// different codes park. One instance is in a spot; the next one ends it.
type parking struct {
	closed atomic.Bool
	codes  atomic.Uint32 // so far, each of which has the spot after the last one's
	places []place
}

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

// park parks an instance that was set back, for which the caller has entered. It is true if one of
// the same kind was there.
func (e *Engine) park(home uint32, inst *instance) (crowded bool) {
	spot := e.parked.spot(home, inst.code)
	if before := spot.Swap(inst); before != nil {
		crowded = before.image == inst.image
		e.end(before)
	}
	if e.parked.closed.Load() {
		e.end(spot.Swap(nil))
	}
	return crowded
}

// end makes a parked instance an idle one.
func (e *Engine) end(inst *instance) {
	if inst != nil {
		e.pool.put(inst, time.Now())
		e.leave(inst.code)
	}
}

// unpark ends all parked instances.
func (e *Engine) unpark() {
	for i := range e.parked.places {
		for j := range e.parked.places[i].spots {
			e.end(e.parked.places[i].spots[j].Swap(nil))
		}
	}
}
