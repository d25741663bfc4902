package host

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

const endless = int64(1) << 60 // fuel

// spinner returns a guest whose "call" runs for ever.
func spinner() *builder {
	b := plain()
	b.exports = nil
	b.fn("call", ":", 0, loop())
	return b
}

// doubling returns a guest of functions that each call the next one twice, the
// last of which has the code.
func doubling(n int, code ...[]byte) *builder {
	b := &builder{}
	b.fn("call", ":", 0, callFn(1), callFn(1))
	for i := range n {
		b.fn("", ":", 0, callFn(i+2), callFn(i+2))
	}
	b.fn("", ":", 0, code...)
	return b
}

// Guests that an engine's own deadline does not stop: they have no loops, or one
// instruction takes long.
func TestGuestsWithoutLoopsStop(t *testing.T) {
	fills := &builder{}
	fills.pages(256)
	fill := join(i32(0), i32(1), i32(16<<20), []byte{0xfc, 11, 0})
	fills.fn("call", ":", 0, slices.Repeat(fill, 2000))
	copies := &builder{}
	copies.pages(256)
	copyAll := join(i32(0), i32(1), i32(16<<20-1), []byte{0xfc, 10, 0, 0})
	copies.fn("call", ":", 0, slices.Repeat(copyAll, 2000))
	reads := &builder{}
	read := reads.use(abi.ImportHost, "input_read")
	reads.pages(64)
	reads.fn("call", ":", 0, slices.Repeat(join(i32(0), i32(0), i32(4<<20), callFn(read), drop), 8000))
	tables := doubling(20, join(i32(0), []byte{0xd0, 0x70}, i32(60_000), []byte{0xfc, 17, 0}))
	tables.table = join([]byte{0x70, 0}, leb(60_000))
	for _, test := range []struct {
		name   string
		module *builder
	}{
		{"calls", doubling(60)}, {"fills", fills}, {"copies", copies}, {"reads of the input", reads},
		{"table fills", tables}, {"loop", spinner()},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := load(t, test.module.bytes())
			const wall = 20 * time.Millisecond
			call := &Call{Export: "call", Input: make([]byte, 4<<20), Limits: Limits{Wall: wall, Fuel: endless}}
			e := fails(t, m, call, abi.GuestTimeout)
			// 50 ms on a machine that does nothing else.
			if took := time.Duration(e.Receipt.WallUS) * time.Microsecond; took > wall+time.Second {
				t.Errorf("ended after %v, limit %v", took, wall)
			}
			call.Limits = Limits{Wall: time.Minute, Fuel: 5_000_000}
			e = fails(t, m, call, abi.GuestFuel)
			if e.Receipt.Fuel <= 5_000_000 || e.Receipt.Fuel > 16_000_000 || !strings.Contains(e.Detail, "limit 5000000") {
				t.Errorf("fuel %d, detail %q", e.Receipt.Fuel, e.Detail)
			}
			again := fails(t, m, call, abi.GuestFuel)
			if again.Receipt.Fuel != e.Receipt.Fuel {
				t.Errorf("fuel %d, then %d", e.Receipt.Fuel, again.Receipt.Fuel)
			}
		})
	}
}

// The start has as much fuel as the call, or a tool's if it is no tool's, and of its own. One that
// fails has used it, and is not tried again at once.
func TestStartHasFuelOfItsOwn(t *testing.T) {
	b := plain()
	b.start = leb(b.fn("", ":", 1, join(i64(1_000_000), setLocal(0)),
		[]byte{0x03, 0x40}, get(0), i64(1), []byte{0x7d, 0x22, 0, 0x50, 0x45, 0x0d, 0, 0x0b})) // a million rounds
	var out any
	m := load(t, b.bytes())
	const enough = 20_000_000
	for _, call := range []Call{{Limits: Limits{Fuel: enough}}, {Kind: abi.KindGuard, Limits: Limits{Fuel: 1000}}, {Kind: abi.KindHook, Limits: Limits{Fuel: 1000}}} {
		call.Export = "call"
		if reply := succeeds(t, m, &call, &out); reply.Receipt.Fuel == 0 || reply.Receipt.Fuel > 1000 {
			t.Errorf("%s: fuel %d", call.Kind, reply.Receipt.Fuel)
		}
	}
	m = loadIn(t, openPooled(t, true), b.bytes())
	call := &Call{Export: "call", Limits: Limits{Fuel: 1000}}
	e := fails(t, m, call, abi.GuestFuel)
	if e.Receipt.Fuel <= 1000 || !strings.HasPrefix(e.Detail, "before the call: limit 1000") {
		t.Errorf("fuel %d, detail %q", e.Receipt.Fuel, e.Detail)
	}
	again := fails(t, m, call, abi.GuestFuel)
	if again.Receipt.Fuel != 0 || !strings.Contains(again.Detail, "failed 1 times, not tried again for") {
		t.Errorf("fuel %d, detail %q", again.Receipt.Fuel, again.Detail)
	}
	img := m.code.engine.pool.image(m.code, profile{memory: toolLimits.MemoryBytes})
	for _, wait := range []time.Duration{2 * firstRestart, 4 * firstRestart} {
		now := img.failed.until
		if err := m.engine.pool.failedStart(img, now.Add(-time.Millisecond)); err == nil {
			t.Error("it is tried again too early")
		}
		if err := m.engine.pool.failedStart(img, now); err != nil {
			t.Errorf("it is not tried again: %v", err)
		}
		if m.engine.pool.started(img, e, now); !img.failed.until.Equal(now.Add(wait)) {
			t.Errorf("tried again %v later, want %v", img.failed.until.Sub(now), wait)
		}
	}
	m.engine.pool.started(img, &GuestError{Code: abi.Cancelled}, time.Now()) // says nothing of the guest
	if img.failed.times != 3 {
		t.Errorf("%d failures", img.failed.times)
	}
	if m.engine.pool.started(img, nil, time.Now()); img.failed.times != 0 {
		t.Error("a start that worked is not noted")
	}
}

// The start has the time of the call, if one is given.
func TestStartHasTheTimeOfTheCall(t *testing.T) {
	b := plain()
	b.fn("_initialize", ":", 0, loop())
	m := loadIn(t, openPooled(t, true), b.bytes())
	for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
		e := fails(t, m, &Call{Kind: kind, Export: "call", Limits: Limits{Wall: 30 * time.Millisecond, Fuel: endless}}, abi.GuestTimeout)
		if !strings.Contains(e.Detail, "30ms") || e.Receipt.Fuel == 0 {
			t.Errorf("%s: fuel %d, detail %q", kind, e.Receipt.Fuel, e.Detail)
		}
	}
}

func TestDepthLimit(t *testing.T) {
	b := &builder{}
	b.fn("call", ":", 0, callFn(0))
	m := load(t, b.bytes())
	from := fails(t, m, &Call{Export: "call", Limits: Limits{Depth: 10}}, abi.GuestStack)
	all := fails(t, m, &Call{Export: "call"}, abi.GuestStack)
	if !strings.Contains(from.Detail, "than 10") || !strings.Contains(all.Detail, "than 10000") {
		t.Errorf("details %q and %q", from.Detail, all.Detail)
	}
	if from.Receipt.Fuel >= all.Receipt.Fuel/100 {
		t.Errorf("fuel %d of 10 frames and %d of 10000", from.Receipt.Fuel, all.Receipt.Fuel)
	}
}

// A table that grows without end is refused, not the memory of the process.
func TestTableGrows(t *testing.T) {
	b := plain()
	b.table = []byte{0x70, 0, 1}
	b.exports = b.exports[:0]
	set := 0
	b.fn("call", ":", 0, []byte{0xd0, 0x70}, i32(100_000_000), []byte{0xfc, 15, 0}, i32(-1), []byte{0x47, 0x04, 0x40, 0x00, 0x0b}, // traps unless -1
		i32(0), i32(2), callFn(set))
	m := load(t, b.bytes())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var out any
	succeeds(t, m, &Call{Export: "call"}, &out)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// A guest that only computes lets the garbage collector run, and ends with its
// caller.
func TestSpinningGuestYields(t *testing.T) {
	m := load(t, spinner().bytes())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	running := make(chan struct{})
	go func() {
		close(running)
		_, err := m.Call(ctx, &Call{Export: "call", Limits: Limits{Wall: time.Minute, Fuel: endless}})
		done <- err
	}()
	<-running
	for range 5 {
		from := time.Now()
		runtime.GC()
		if took := time.Since(from); took > 5*time.Second {
			t.Errorf("a collection took %v", took)
		}
	}
	cancel()
	from := time.Now()
	if err := <-done; err == nil || !strings.HasPrefix(err.Error(), string(abi.Cancelled)) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(from); took > 5*time.Second {
		t.Errorf("ended %v after it was cancelled", took)
	}
}

// With the clock and the seed fixed, a guard uses the same fuel every time.
func TestFuelRepeats(t *testing.T) {
	m := loadGo(t)
	call := &Call{Kind: abi.KindGuard, Export: "call", Input: []byte(`{"do":"echo","id":"x"}`), Now: time.UnixMilli(1), Seed: []byte("seed"),
		Limits: Limits{Wall: 5 * time.Second, Startup: 30 * time.Second}}
	var want int64
	for i := range 20 {
		var out any
		got := succeeds(t, m, call, &out).Receipt.Fuel
		if want == 0 {
			want = got
		}
		if got != want || got == 0 {
			t.Fatalf("run %d: fuel %d, want %d", i, got, want)
		}
	}
	if most := DefaultLimits(abi.KindGuard).Fuel; want > most/4 {
		t.Errorf("a guard that does next to nothing uses %d of %d", want, most)
	}
}

// No module can name what the meter adds.
func TestMeterIsOutOfReach(t *testing.T) {
	exported := plain()
	exported.exports = append(exported.exports, join(str(meter.Fuel), []byte{0}, leb(exported.count-1)))
	rejects := func(wasm []byte, code abi.Code, text string) {
		t.Helper()
		_, err := shared.Load(t.Context(), packed(t, wasm))
		e, ok := err.(*RejectError)
		if !ok || e.Reasons[0].Code != code || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %s %q", err, code, text)
		}
	}
	rejects(exported.bytes(), abi.ModuleABI, "are the host's")
	imported := &builder{}
	imported.importFunc(meter.Prefix, meter.Refill, ":")
	imported.fn("call", ":", 0)
	rejects(imported.bytes(), abi.ModuleImportDenied, "not a host function")
	global := &builder{}
	global.fn("call", ":", 0, i64(1), []byte{0x24, 0})
	rejects(global.bytes(), abi.ModuleMalformed, "names global 0 of 0")
}
