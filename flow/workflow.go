package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sandboxd/sandboxd/session"
)

// sequence runs the agents of an agent one after the other.
func (p place) sequence(ctx context.Context, a *Agent, yield yieldFunc) bool {
	for _, sub := range a.Agents {
		if !p.runAgent(ctx, sub, "", yield) {
			return false
		}
	}
	return true
}

// repeat runs the agents of an agent in turn until one escalates. A round in which
// no model was called counts as a step, so that every loop ends.
func (p place) repeat(ctx context.Context, a *Agent, yield yieldFunc) bool {
	for n := 0; a.MaxIterations == 0 || n < a.MaxIterations; n++ {
		before := p.steps.count()
		for _, sub := range a.Agents {
			escalated := false
			ok := p.runAgent(ctx, sub, "", func(ev *session.Event, err error) bool {
				escalated = escalated || err == nil && ev.Actions.Escalate
				return yield(ev, err)
			})
			if !ok || escalated {
				return ok
			}
		}
		if ctx.Err() != nil {
			return p.over(ctx, a.Name, context.Cause(ctx), yield)
		}
		if p.steps.count() == before && p.steps.take(p.cfg.Limits.Steps) == 0 {
			return p.outOfSteps(a.Name, yield)
		}
	}
	return true
}

// parallel runs the agents of an agent at the same time, each on a branch of its
// own. When one fails, or the consumer stops, the others are cancelled. Nothing
// outlives it.
func (p place) parallel(ctx context.Context, a *Agent, yield yieldFunc) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFunnel(cancel)
	f.lost = func(err error) {
		if !errors.Is(err, context.Canceled) { // as it must, when others have ended the run
			p.cfg.Logger.Error("an agent failed when its run had ended already", "agent", a.Name, "err", err)
		}
	}
	var wg sync.WaitGroup
	for _, sub := range a.Agents {
		q := p
		q.branch = under(p.branch, a.Name+"."+sub.Name)
		wg.Go(func() {
			if !f.contain("agent "+sub.Name, func() bool { return q.runAgent(ctx, sub, "", f.yield) }) {
				f.halt()
			}
		})
	}
	go func() {
		wg.Wait()
		close(f.items)
	}()
	f.serve(yield)
	return !f.halted.Load()
}

// under names a branch below another.
func under(branch, name string) string {
	if branch == "" {
		return name
	}
	return branch + "." + name
}

// A funnel hands what goroutines of a run yield, one after the other, to the one
// goroutine in which the consumer's code runs. Whoever yields waits for the answer.
// After halt nothing more is handed over but the results of calls, see [step.yield],
// and, unless the consumer wants no more, the event that tells of a limit: what is
// halted may be halted by an agent that ended because another had met it.
type funnel struct {
	items   chan funneled
	halted  atomic.Bool
	cancel  func()          // what halt does besides
	lost    func(err error) // is told of errors that are not handed over; nil: nobody
	refused bool            // the consumer has stopped, or was told of an error
}

type funneled struct {
	ev   *session.Event
	err  error
	took chan<- bool
}

func newFunnel(cancel func()) *funnel { return &funnel{items: make(chan funneled), cancel: cancel} }

func (f *funnel) halt() {
	f.halted.Store(true)
	f.cancel()
}

// yield is safe for concurrent use. It may be called until items is closed.
func (f *funnel) yield(ev *session.Event, err error) bool {
	took := make(chan bool, 1)
	f.items <- funneled{ev, err, took}
	return <-took
}

// contain runs what a goroutine of the run does. A panic is an error of the run.
func (f *funnel) contain(what string, do func() bool) (ok bool) {
	ended := false
	defer func() {
		if p := recover(); p != nil {
			f.yield(nil, fmt.Errorf("%s: panic: %v", what, p))
		} else if !ended {
			f.yield(nil, errors.New(what+": its goroutine was ended"))
		}
	}()
	ok = do()
	ended = true
	return ok
}

// serve hands over until items is closed. If yield panics, the others end first, and
// the results of calls are handed over still.
func (f *funnel) serve(yield yieldFunc) {
	ended := false
	defer func() {
		if ended {
			return
		}
		for it := range f.items {
			f.handDespite(it, yield)
		}
	}()
	for it := range f.items {
		f.hand(it, yield)
	}
	ended = true
}

// handDespite hands over while a panic is on its way, which another must not hide.
func (f *funnel) handDespite(it funneled, yield yieldFunc) {
	defer func() { _ = recover() }()
	f.hand(it, yield)
}

func (f *funnel) hand(it funneled, yield yieldFunc) {
	ok := false
	defer func() {
		if !ok {
			f.halt()
		}
		it.took <- ok
	}()
	halted := f.halted.Load()
	if halted && !tellsResults(it.ev, it.err) && (f.refused || !tellsLimit(it.ev, it.err)) {
		if it.err != nil && f.lost != nil {
			f.lost(it.err)
		}
		return
	}
	wanted := false
	defer func() { f.refused = f.refused || !wanted }()
	wanted = yield(it.ev, it.err) && it.err == nil
	ok = wanted && !halted
}
