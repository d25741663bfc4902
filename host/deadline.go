package host

import (
	"context"
	"sync"
	"time"
)

// A deadline is the context of a frame's host functions: that of the caller, with an
// end in time. Other than those of package context it costs nothing until somebody
// waits for it. It may be used after the call, by what a host function has left behind,
// and is not used again.
type deadline struct {
	parent context.Context
	frame  *frame
	at     time.Time

	mu     sync.Mutex
	err    error           // once it was stopped
	inner  context.Context // nil until somebody waits
	cancel context.CancelFunc
}

// stop ends the context, if it has not ended, and returns why it has: if for nothing else,
// it was canceled.
func (d *deadline) stop(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = d.ended(d.at.Sub(now)); d.err == nil {
		d.err = context.Canceled
	}
	if d.cancel != nil {
		d.cancel()
	}
	return d.err
}

// ended says why the context has ended, with so much time left; the caller holds the mutex.
func (d *deadline) ended(left time.Duration) error {
	switch {
	case d.err != nil:
		return d.err
	case left <= 0:
		return context.DeadlineExceeded
	}
	return d.parent.Err()
}

// Deadline implements [context.Context].
func (d *deadline) Deadline() (time.Time, bool) {
	if at, ok := d.parent.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

// Done implements [context.Context].
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inner == nil {
		d.inner, d.cancel = context.WithDeadline(d.parent, d.at)
		if d.err != nil {
			d.cancel()
		}
	}
	return d.inner.Done()
}

// Err implements [context.Context].
func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended(time.Until(d.at))
}

// Value implements [context.Context].
func (d *deadline) Value(key any) any {
	if _, ok := key.(frameKey); ok {
		return d.frame
	}
	d.mu.Lock()
	inner := d.inner
	d.mu.Unlock()
	if inner != nil {
		return inner.Value(key) // so that contexts made of this one end with it, without a goroutine
	}
	return d.parent.Value(key)
}
