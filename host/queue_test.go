package host

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestQueue: a tenant who waits for many turns does not keep others from theirs.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		if err := q.take(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		ask := func(tenant string) {
			wg.Go(func() {
				if err := q.take(t.Context(), tenant); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
				q.give()
			})
			synctest.Wait() // so that they ask in this order
		}
		for range 4 {
			ask("a")
		}
		ask("b")
		ask("c")
		ask("b")
		gone, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if err := q.take(gone, "b"); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want that of the context", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		q.give()
		wg.Wait()
		if got := strings.Join(order, " "); got != "a b c a b a a" {
			t.Errorf("turns: %s", got)
		}
		if q.taken || len(q.tenants) != 0 || len(q.waiting) != 0 {
			t.Errorf("after all: %+v", &q)
		}
	})
}

// TestQueueIsBounded: a tenant who has as many waiting as it may is told so, and others wait.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.take(t.Context(), "")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range maxWaiting {
			wg.Go(func() { q.take(ctx, "a") })
		}
		synctest.Wait()
		if err := q.take(ctx, "a"); !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "64") {
			t.Errorf("error %v, want one that says how many wait", err)
		}
		wg.Go(func() { q.take(ctx, "b") })
		synctest.Wait()
		if len(q.waiting["b"]) != 1 {
			t.Error("another tenant does not wait")
		}
		cancel()
		wg.Wait()
	})
}

// A call and the end of the engine wait for a turn however many loads of a tenant do.
func TestQueueBeyondItsBound(t *testing.T) {
	var q queue
	if err := q.take(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range maxWaiting {
		wg.Go(func() { q.take(ctx, "") })
	}
	waiting := func() int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting[""])
	}
	for waiting() < maxWaiting {
		runtime.Gosched()
	}
	if err := q.take(ctx, ""); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("error %v, want %v", err, ErrQueueFull)
	}
	wg.Go(func() {
		if err := q.wait(ctx, "", math.MaxInt); errors.Is(err, ErrQueueFull) {
			t.Error(err)
		}
	})
	for waiting() <= maxWaiting {
		runtime.Gosched()
	}
}
