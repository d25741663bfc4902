package host

import (
	"context"
	"fmt"
	"sync"
)

// A handover is the directory in which the engine looks for native code. The code of any number of
// modules lies there at once, each under the name that the engine has for it; but where the engine
// writes there itself, nothing else may lie. It is safe for concurrent use.
type handover struct {
	dir string

	mu      sync.Mutex
	names   map[string]bool // that somebody has
	all     bool            // somebody has the directory, or waits until nobody has a name
	changed chan struct{}   // closed when something is given back
}

func newHandover(dir string) *handover {
	return &handover{dir: dir, names: map[string]bool{}, changed: make(chan struct{})}
}

// take waits until nobody else has a name; the caller ends its use with give. It ends with ctx.
func (h *handover) take(ctx context.Context, name string) error {
	return h.until(ctx, func() bool {
		if h.all || h.names[name] {
			return false
		}
		h.names[name] = true
		return true
	})
}

// takeAll waits until nobody has anything of the directory; the caller ends its use with giveAll. Who
// comes later waits, so that those who take names cannot keep it waiting for ever. It ends with ctx.
func (h *handover) takeAll(ctx context.Context) error {
	if err := h.until(ctx, func() bool {
		mine := !h.all
		h.all = true
		return mine
	}); err != nil {
		return err
	}
	err := h.until(ctx, func() bool { return len(h.names) == 0 })
	if err != nil {
		h.giveAll()
	}
	return err
}

// until waits until done, which is called with the mutex held, is true.
func (h *handover) until(ctx context.Context, done func() bool) error {
	for {
		h.mu.Lock()
		ok, changed := done(), h.changed
		h.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("engine: waiting for other code to be read: %w", context.Cause(ctx))
		}
	}
}

func (h *handover) give(name string) { h.end(func() { delete(h.names, name) }) }

func (h *handover) giveAll() { h.end(func() { h.all = false }) }

func (h *handover) end(with func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	with()
	close(h.changed)
	h.changed = make(chan struct{})
}
