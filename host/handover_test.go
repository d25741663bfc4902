package host

import (
	"context"
	"errors"
	"testing"
)

// TestHandover: names are had by one at a time and beside each other, the directory by one alone, and
// who waits may give up.
func TestHandover(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	has := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	waits := func(err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want %v", err, context.Canceled)
		}
	}
	h := newHandover("")
	has(h.take(ended, "a")) // what nobody has needs no waiting
	has(h.take(ended, "b"))
	waits(h.take(ended, "a"))
	waits(h.takeAll(ended))
	has(h.take(ended, "c")) // who gave up keeps nobody waiting
	h.give("b")
	h.give("c")

	second, all, late := make(chan error), make(chan error), make(chan error)
	go func() { second <- h.take(t.Context(), "a") }()
	h.give("a")
	has(<-second)
	go func() { all <- h.takeAll(t.Context()) }()
	until(t, "nobody waits for all", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.all
	})
	waits(h.take(ended, "b")) // behind who waits for all
	waits(h.takeAll(ended))
	h.give("a")
	has(<-all)
	go func() { late <- h.take(t.Context(), "b") }()
	waits(h.take(ended, "c"))
	h.giveAll()
	has(<-late)
	h.give("b")
	if len(h.names) != 0 || h.all {
		t.Errorf("%v is had, all: %t", h.names, h.all)
	}
}
