package host

import (
	"fmt"
	"sync"
	"sync/atomic"
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
				e.unpark(nil)
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
	e.unpark(nil)
	f.park(f.parked, f.parked.since)
	if m.code.calls != 0 || e.pool.idle != 1 {
		t.Errorf("%d calls run and %d instances wait, want 0 and 1", m.code.calls, e.pool.idle)
	}
}

// An instance that is looked at while the engine is closed is not parked again: Close has ended what was parked by then, and waits
// for all that are.
func TestParkedIsTrimmedBesideClose(t *testing.T) {
	e, m := loadImaged(t)
	if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil {
		t.Fatal(err)
	}
	var looked *atomic.Pointer[instance]
	var inst *instance
	e.parked.each(func(spot *atomic.Pointer[instance]) { // as trim does
		if out := spot.Swap(nil); out != nil {
			looked, inst = spot, out
		}
	})
	if inst == nil {
		t.Fatal("nothing is parked")
	}
	e.parked.closed.Store(true) // as Close does
	e.unpark(nil)
	if m.code.calls != 1 {
		t.Fatalf("%d calls run, want the one of the instance that is looked at", m.code.calls)
	}
	e.putBack(looked, inst, inst.since)
	if m.code.calls != 0 || e.pool.idle != 1 || looked.Load() != nil {
		t.Errorf("%d calls run and %d instances wait, want 0 and 1", m.code.calls, e.pool.idle)
		e.unpark(nil) // else nobody closes the engine
	}
}

// What is called again and again is what was called last, for the engine as for the pool, though
// those calls come by neither.
func TestParkedIsUsedLast(t *testing.T) {
	e, _ := openOn(t, Config{InProcess: true})
	e.parked.places = e.parked.places[:1] // wherever a call runs
	load := func(n int) *Module {
		m, err := e.Load(t.Context(), saying(t, n))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b, c := load(100), load(101), load(102)
	for range 3 {
		says(t, a, 100)
	}
	for range 2 {
		says(t, b, 101)
		says(t, c, 102)
	}
	e.unpark(nil)
	says(t, a, 100) // takes one that waits, and parks it
	entered := a.code.last
	says(t, b, 101)
	says(t, c, 102)
	for range 20 {
		says(t, a, 100)
	}
	if !a.code.last.Equal(entered) {
		t.Fatal("calls that take a parked instance came by the engine: nothing is shown")
	}
	e.codes.most = e.codes.bytes // so that the next takes the place of one
	e.pool.maxImages = 3
	d := load(103)
	says(t, d, 103)
	for _, x := range []struct {
		name string
		m    *Module
		in   bool
	}{{"a", a, true}, {"b", b, false}, {"c", c, true}} {
		if in := e.isResident(x.m.code); in != x.in {
			t.Errorf("the code of %s is in memory: %t, want %t", x.name, in, x.in)
		}
		if n := len(x.m.images()); (n == 1) != x.in {
			t.Errorf("%s has %d images", x.name, n)
		}
	}
}

// Calls park and take instances while code and images come and go, until the engine is closed.
func TestParkedBesideEviction(t *testing.T) {
	e, err := Open(t.Context(), Config{InProcess: true, CodeBytes: 1}) // so one code is in memory, beside those with calls
	if err != nil {
		t.Fatal(err)
	}
	e.pool.maxImages, e.pool.maxIdle = 2, 2
	modules := make([]*Module, 4)
	for i := range modules {
		if modules[i], err = e.Load(t.Context(), saying(t, 100+i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 60 {
				j := (i + n/5) % len(modules)
				reply, err := modules[j].Call(t.Context(), &Call{Export: "call", Limits: Limits{Wall: time.Minute, Startup: time.Minute}})
				if err != nil || string(reply.Output) != fmt.Sprint(100+j) {
					t.Errorf("answer %v, error %v", reply, err)
				}
			}
		})
	}
	wg.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for i, m := range modules {
		if m.code.calls != 0 {
			t.Errorf("%d calls of module %d are left", m.code.calls, i)
		}
	}
	if e.pool.idle != 0 || e.pool.kept != 0 || len(e.pool.images) != 0 {
		t.Errorf("%d instances of %d bytes and %d images are left", e.pool.idle, e.pool.kept, len(e.pool.images))
	}
}

// An instance waits no longer for being parked, nor for others being: calls that find one see to
// those that wait.
func TestParkedIsTrimmed(t *testing.T) {
	e, m := loadImaged(t)
	b := counter()
	b.put(100, "x")
	other := loadIn(t, e, b.bytes())
	for range 2 {
		for _, m := range []*Module{m, other} {
			if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.trim(time.Now())
	if m.code.calls != 1 || other.code.calls != 1 {
		t.Fatalf("%d and %d instances are parked, want 1 each", m.code.calls, other.code.calls)
	}
	later := time.Now().Add(e.pool.maxIdleTime)
	inst := e.steal(m.code, m.onlyProfile())
	if inst == nil {
		t.Fatal("nothing is parked")
	}
	e.running.Add(1) // steal took the call's own
	m.code.calls++
	e.park(0, inst, later) // a call that ends a minute later
	if m.code.calls != 1 || other.code.calls != 0 || e.pool.idle != 0 {
		t.Errorf("%d and %d instances are parked and %d wait, want 1, 0 and 0: the other is too old", m.code.calls, other.code.calls, e.pool.idle)
	}
	// One that holds too much is not parked.
	inst = e.steal(m.code, m.onlyProfile())
	e.running.Add(1)
	m.code.calls++
	inst.kept = maxParkedBytes
	e.park(0, inst, later)
	if m.code.calls != 0 || e.pool.idle != 1 {
		t.Errorf("%d instances are parked and %d wait, want 0 and 1", m.code.calls, e.pool.idle)
	}
}

// onlyProfile returns the profile of the one image of a module.
func (m *Module) onlyProfile() profile {
	m.engine.pool.mu.Lock()
	defer m.engine.pool.mu.Unlock()
	for of := range m.code.images {
		return of
	}
	return profile{}
}
