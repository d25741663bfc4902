package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// maxWaiting is how many loads of one tenant may wait for their turn.
const maxWaiting = 64

// ErrQueueFull matches the error of a load that may not wait for its turn: as many of its
// tenant's wait already as may.
var ErrQueueFull = errors.New("too many modules of this tenant wait to be compiled")

// A queue gives one turn at a time. Tenants who wait come one after the other, however many turns each
// of them waits for; those of one tenant come in the order of asking. It is safe for
// concurrent use.
type queue struct {
	mu      sync.Mutex
	taken   bool
	tenants []string // that wait, the next one first
	waiting map[string][]chan struct{}
}

// take waits for a turn, which give ends. It ends with ctx. No more than maxWaiting of a tenant wait.
func (q *queue) take(ctx context.Context, tenant string) error {
	return q.wait(ctx, tenant, maxWaiting)
}

// wait is take with another bound.
func (q *queue) wait(ctx context.Context, tenant string, most int) error {
	q.mu.Lock()
	if !q.taken {
		q.taken = true
		q.mu.Unlock()
		return nil
	}
	if n := len(q.waiting[tenant]); n >= most {
		q.mu.Unlock()
		return fmt.Errorf("engine: tenant %q: %w: %d", tenant, ErrQueueFull, n)
	}
	if q.waiting == nil {
		q.waiting = map[string][]chan struct{}{}
	}
	if len(q.waiting[tenant]) == 0 {
		q.tenants = append(q.tenants, tenant)
	}
	turn := make(chan struct{})
	q.waiting[tenant] = append(q.waiting[tenant], turn)
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting[tenant], turn); i >= 0 {
		q.remove(tenant, i)
	} else { // the turn came meanwhile
		q.next()
	}
	return fmt.Errorf("engine: waiting to compile: %w", context.Cause(ctx))
}

// give ends a turn.
func (q *queue) give() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next()
}

// next passes the turn on; the caller holds the mutex.
func (q *queue) next() {
	if len(q.tenants) == 0 {
		q.taken = false
		return
	}
	tenant := q.tenants[0]
	turn := q.waiting[tenant][0]
	q.remove(tenant, 0)
	if len(q.waiting[tenant]) > 0 { // to the end of the line
		q.tenants = append(slices.Delete(q.tenants, 0, 1), tenant)
	}
	close(turn)
}

// remove takes one who waits out of the line; the caller holds the mutex.
func (q *queue) remove(tenant string, i int) {
	if q.waiting[tenant] = slices.Delete(q.waiting[tenant], i, i+1); len(q.waiting[tenant]) == 0 {
		delete(q.waiting, tenant)
		q.tenants = slices.DeleteFunc(q.tenants, func(t string) bool { return t == tenant })
	}
}
