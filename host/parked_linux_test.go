package host

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Instances are parked and taken while others end them: none is used twice at once, and
// nothing is counted that is not there.
func TestParked(t *testing.T) {
	e := openPooled(t, true)
	modules := make([]*Module, spots+1) // of which two park in the same spot
	for i := range modules {
		b := counter()
		b.put(100, fmt.Sprint(i)) // so that they are different
		modules[i] = loadIn(t, e, b.bytes())
	}
	call := func(m *Module, kind abi.Kind) {
		if reply, err := m.Call(t.Context(), &Call{Kind: kind, Export: "call", Limits: Limits{Wall: time.Minute}}); err != nil || string(reply.Output) != "44" {
			t.Errorf("answer %v, error %v; want 44, the fourth time", reply, err)
		}
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				m := modules[0]
				if n%4 == 3 {
					m = modules[(i+n)%len(modules)]
				}
				call(m, []abi.Kind{abi.KindTool, abi.KindGuard}[n/8%2])
				if n%50 == 49 { // it is not used again, and its frame gets a new place
					fails(t, m, &Call{Export: "none"}, abi.ModuleABI)
				}
			}
		})
	}
	ending := sync.WaitGroup{}
	ending.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				e.unpark()
			}
		}
	})
	wg.Wait()
	close(done)
	ending.Wait()

	idle := 0
	for i, m := range modules {
		for _, img := range m.images() {
			idle += len(img.idle)
			if img.users != 0 {
				t.Errorf("%d users of module %d are left", img.users, i)
			}
		}
		if m.code.calls != 0 {
			t.Errorf("%d calls of module %d are left", m.code.calls, i)
		}
	}
	if idle == 0 || idle != e.pool.idle {
		t.Errorf("%d instances wait, the pool counts %d", idle, e.pool.idle)
	}
}

// loadImaged returns a module with an image, of which no instance waits, and its engine.
func loadImaged(t *testing.T) (*Engine, *Module) {
	e := openPooled(t, true)
	m := loadIn(t, e, counter().bytes())
	if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil { // the instance of which the image is made is used once
		t.Fatal(err)
	}
	return e, m
}

// The next call takes the parked instance, wherever its frame was before, and a call that ends
// without having used it leaves it to the next.
func TestParkedIsTaken(t *testing.T) {
	e, m := loadImaged(t)
	for n := range 20 {
		if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil {
			t.Fatal(err)
		}
		fails(t, m, &Call{Export: "none"}, abi.ModuleABI)
		parked := 0
		for i := range e.parked.places {
			for j := range e.parked.places[i].spots {
				if e.parked.places[i].spots[j].Load() != nil {
					parked++
				}
			}
		}
		if parked != 1 || e.pool.idle != 0 || m.code.calls != 1 {
			t.Fatalf("after %d calls %d instances are parked, %d wait and %d calls run; want 1 that is parked and counted", n+1, parked, e.pool.idle, m.code.calls)
		}
	}
	if n := len(m.images()[0].idle); n != 1 {
		t.Errorf("%d instances wait, want 1", n)
	}
}

// Nothing is parked in an engine that is closed.
func TestParkedInClosed(t *testing.T) {
	e, m := loadImaged(t)
	if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil {
		t.Fatal(err)
	}
	f := newFrame(t.Context(), m, &Call{Export: "call"})
	for home := range uint32(len(e.parked.places)) { // as if a call had begun
		if f.parked = e.parked.take(home, m.code, f.profile()); f.parked != nil {
			break
		}
	}
	if f.parked == nil {
		t.Fatal("nothing is parked")
	}
	e.parked.closed.Store(true)
	e.unpark()
	f.park(f.parked)
	if m.code.calls != 0 || e.pool.idle != 1 {
		t.Errorf("%d calls run and %d instances wait, want 0 and 1", m.code.calls, e.pool.idle)
	}
}
