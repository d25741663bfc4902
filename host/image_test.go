package host

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// openPooled opens an engine of the test's own whose instances are set back, or not.
func openPooled(t testing.TB, restores bool) *Engine {
	t.Helper()
	e, _ := openEngine(t)
	if e.pages == nil && runtime.GOOS == "linux" {
		t.Fatal("instances cannot be set back here")
	}
	if pages := e.pages; pages != nil && !restores {
		e.pages = nil
		t.Cleanup(func() { pages.close() })
	}
	return e
}

func loadIn(t testing.TB, e *Engine, wasm []byte) *Module {
	t.Helper()
	m, err := e.Load(t.Context(), packed(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// images returns the images of a module that are made. None of their instances is parked then.
func (m *Module) images() []*image {
	m.engine.unpark(nil)
	p := &m.engine.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*image
	for _, img := range m.code.images {
		if img.memory != nil {
			all = append(all, img)
		}
	}
	return all
}

// sameAsImage compares every idle instance of the module with its image, byte for byte.
func sameAsImage(t testing.TB, m *Module) (compared int) {
	t.Helper()
	for _, img := range m.images() {
		for _, inst := range img.idle {
			compared++
			if inst.linear != nil {
				memory, ok := inst.module.Memory().Read(0, inst.module.Memory().Size())
				if !ok || !bytes.Equal(memory, img.memory.data) {
					t.Fatal("memory is not that of the image")
				}
			}
			if a := inst.arena; a != nil {
				if blocks, ok := a.module.Memory().Read(0, a.module.Memory().Size()); !ok || bytes.Count(blocks, []byte{0}) != len(blocks) || a.top != 0 {
					t.Fatal("blocks of a call are left")
				}
			}
			for i, g := range inst.globals {
				if g.Get() != img.globals[i] {
					t.Fatalf("global %d is %d, in the image %d", i, g.Get(), img.globals[i])
				}
			}
			if inst.module.IsClosed() || inst.linear != nil && inst.linear.memory != nil {
				t.Fatal("an instance that waits is closed or belongs to a call")
			}
		}
	}
	return compared
}

// counter is a guest that counts its calls, in memory and in a global, from what
// _initialize and warm_up left, and answers the count.
func counter() *builder {
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.globals = [][]byte{
		slices.Concat([]byte{0x7f, 1}, i32(0), []byte{0x0b}), // i32, mutable
		slices.Concat([]byte{0x7e, 1}, i64(-5), []byte{0x0b}),
		slices.Concat([]byte{0x7e, 0}, i64(7), []byte{0x0b}),
	}
	increment := [][]byte{
		{0x23, 0}, i32(1), {0x6a}, {0x24, 0}, // global 0 += 1
		{0x23, 1}, i64(-1), {0x7c}, {0x24, 1}, // global 1 -= 1
		i32(60000), i32(60000), {0x2d, 0, 0}, i32(1), {0x6a}, {0x3a, 0, 0}, // memory[60000] += 1
	}
	up := b.fn("", ":", 0, increment...)
	b.fn("_initialize", ":", 0, callFn(up), callFn(up))
	b.fn("warm_up", ":", 0, callFn(up))
	b.fn("call", ":", 0, callFn(up),
		i32(0), []byte{0x23, 0}, i32('0'), []byte{0x6a, 0x3a, 0, 0},
		i32(1), i32(60000), []byte{0x2d, 0, 0}, i32('0'), []byte{0x6a, 0x3a, 0, 0},
		i32(0), i32(2), callFn(set))
	return b
}

// TestImage: every call begins in the state that _initialize and warm_up left, in an
// instance that is set back and in one that is made for it.
func TestImage(t *testing.T) {
	for _, restores := range []bool{true, false} {
		m := loadIn(t, openPooled(t, restores), counter().bytes())
		for range 5 {
			for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
				reply, err := m.Call(t.Context(), &Call{Kind: kind, Export: "call", Limits: Limits{Wall: time.Minute}})
				if err != nil || string(reply.Output) != "44" {
					t.Fatalf("answer %v, error %v; want 44, the fourth time", reply, err)
				}
			}
		}
		want := 0
		if m.engine.pages != nil {
			want = 2 // one of tools, one of guards
		}
		if n := sameAsImage(t, m); n != want {
			t.Errorf("%d instances wait, want %d", n, want)
		}
	}
}

// TestImageIsState: whatever a call does, its instance is either gone or in the state of the
// image.
func TestImageIsState(t *testing.T) {
	e := openPooled(t, true)
	wasm, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	m := loadIn(t, e, wasm)
	call := func(input string, limits Limits) error {
		_, err := m.Call(t.Context(), &Call{Export: "call", Input: []byte(input), Limits: limits})
		return err
	}
	call(`{"do":"echo"}`, Limits{}) // makes the image
	for _, c := range []struct {
		input  string
		limits Limits
		code   abi.Code
		waits  int
	}{
		{`{"do":"echo","id":"` + strings.Repeat("x", 1000) + `"}`, Limits{}, abi.OK, 1},
		{`{"do":"goroutines","n":20}`, Limits{}, abi.OK, 1},
		{`{"do":"random"}`, Limits{}, abi.OK, 1},
		{`{"do":"nothing"}`, Limits{}, abi.GuestError, 1},
		{`{"do":"print"}`, Limits{}, abi.OK, 1},
		{`{"do":"panic"}`, Limits{}, abi.GuestTrap, 0},
		{`{"do":"exit"}`, Limits{}, abi.GuestTrap, 0},
		{`{"do":"hoard"}`, Limits{}, abi.GuestMemory, 0},
		{`{"do":"echo","id":"` + strings.Repeat("x", 3<<20) + `"}`, Limits{OutputBytes: 4 << 20, Wall: time.Minute}, abi.OK, 1}, // grows
		{`{"do":"goroutines","n":1}`, Limits{Fuel: 1000}, abi.GuestFuel, 0},
		{`{"do":"time","n":60000}`, Limits{Wall: time.Millisecond}, abi.GuestTimeout, 0},
	} {
		err := call(c.input, c.limits)
		code := abi.OK
		if e, ok := err.(*GuestError); ok {
			code = e.Code
		}
		if code != c.code {
			t.Errorf("%.40s: %v, want %s", c.input, err, c.code)
		}
		if waits := sameAsImage(t, m); waits != c.waits {
			t.Errorf("%.40s: %d instances wait, want %d", c.input, waits, c.waits)
		}
		if err := call(`{"do":"echo"}`, Limits{}); err != nil {
			t.Error(err)
		}
	}
}

// TestImageAfterGrowth: memory that a call has made larger is as small as before in the next, and what
// lies behind it traps.
func TestImageAfterGrowth(t *testing.T) {
	for _, windows := range []bool{false, true} {
		b := &builder{}
		set := b.use(abi.ImportHost, "output_set")
		if windows {
			extismFuncs(b, "load_u8")
		}
		b.pages(1)
		b.put(0, "[]")
		b.fn("call", ":", 0,
			size32, i32(1), check32,
			grow(3), i32(1), check32,
			i32(1<<16), []byte{0x29, 3, 0}, i64(0), check64,
			i32(3<<16), []byte{0x29, 3, 0}, i64(0), check64,
			i32(1<<16), i64(-1), []byte{0x37, 3, 0},
			i32(4<<16-8), i64(-1), []byte{0x37, 3, 0},
			i32(0), i32(2), callFn(set))
		b.fn("behind", ":", 0, i32(1<<16), []byte{0x29, 3, 0}, drop, i32(0), i32(2), callFn(set))
		m := loadIn(t, openPooled(t, true), b.bytes())
		for range 5 {
			if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil {
				t.Fatal(err.(*GuestError).Detail)
			}
			if n := sameAsImage(t, m); n > 1 {
				t.Fatalf("%d instances wait", n)
			}
		}
		if n := sameAsImage(t, m); n != 1 {
			t.Errorf("%d instances wait, want 1", n)
		}
		fails(t, m, &Call{Export: "behind"}, abi.GuestTrap)
	}
}

// TestImageKnowsNoCall: nothing of the call that comes first, or of its caller, is in the
// image.
func TestImageKnowsNoCall(t *testing.T) {
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	length := b.use(abi.ImportHost, "input_length")
	random := b.use(abi.ImportWASI, "random_get")
	clock := b.use(abi.ImportWASI, "clock_time_get")
	config := b.use(abi.ImportExtism, "config_get")
	alloc := b.use(abi.ImportExtism, "alloc")
	store := b.use(abi.ImportExtism, "store_u8")
	b.pages(1)
	b.fn("_initialize", ":", 1,
		i32(0), i32(16), callFn(random), drop,
		i32(0), i64(1), i32(16), callFn(clock), drop,
		i32(24), callFn(length), []byte{0x37, 3, 0},
		i64(1), callFn(alloc), setLocal(0), get(0), i32('k'), callFn(store),
		i32(32), get(0), callFn(config), []byte{0x37, 3, 0})
	b.fn("call", ":", 0, i32(0), i32(40), callFn(set))
	m := loadIn(t, openPooled(t, true), b.bytes())
	call := &Call{Export: "call", Input: []byte("input"), Seed: []byte("seed"), Now: time.Unix(1e9, 0), Config: map[string]string{"k": "secret"},
		Limits: Limits{Wall: time.Minute}}
	first, err := m.Call(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Output[16:], make([]byte, 24)) {
		t.Errorf("_initialize saw the time, the input or the configuration: %x", first.Output[16:])
	}
	// Only whether randomness repeats tells images apart.
	call.Seed = []byte("another")
	second, err := m.Call(t.Context(), call)
	if err != nil || !bytes.Equal(first.Output, second.Output) {
		t.Errorf("outputs %x and %x, error %v", first.Output, second.Output, err)
	}
	call.Seed = nil
	third, err := m.Call(t.Context(), call)
	if err != nil || bytes.Equal(first.Output, third.Output) {
		t.Errorf("the same randomness without a seed: %x, error %v", third.Output, err)
	}
	if n := len(m.images()); n != 2 {
		t.Errorf("%d images, want 2", n)
	}
}

// TestNoImage: code that changes what an image does not hold begins anew for every call.
func TestNoImage(t *testing.T) {
	guest := func(change func(b *builder) [][]byte) *builder {
		b := &builder{}
		set := b.use(abi.ImportHost, "output_set")
		b.pages(1)
		b.table = []byte{0x70, 0, 4}
		b.put(0, `[]`)
		b.fn("call", ":", 0, append(change(b), i32(0), i32(2), callFn(set))...)
		return b
	}
	for _, c := range []struct {
		what   string
		change func(b *builder) [][]byte
		whole  bool
	}{
		{"nothing", func(*builder) [][]byte { return nil }, true},
		{"table.get", func(*builder) [][]byte { return [][]byte{i32(0), {0x25, 0}, drop} }, true},
		{"table.size", func(*builder) [][]byte { return [][]byte{{0xfc, 16, 0}, drop} }, true},
		{"table.set", func(*builder) [][]byte { return [][]byte{i32(0), {0xd0, 0x70}, {0x26, 0}} }, false},
		{"table.grow", func(*builder) [][]byte { return [][]byte{{0xd0, 0x70}, i32(1), {0xfc, 15, 0}, drop} }, false},
		{"table.fill", func(*builder) [][]byte { return [][]byte{i32(0), {0xd0, 0x70}, i32(1), {0xfc, 17, 0}} }, false},
		{"table.copy", func(*builder) [][]byte { return [][]byte{i32(0), i32(1), i32(1), {0xfc, 14, 0, 0}} }, false},
		{"a reference", func(b *builder) [][]byte {
			b.globals = [][]byte{{0x70, 1, 0xd0, 0x70, 0x0b}}
			return nil
		}, false},
		{"a constant reference", func(b *builder) [][]byte {
			b.globals = [][]byte{{0x70, 0, 0xd0, 0x70, 0x0b}}
			return nil
		}, true},
		{"a vector", func(b *builder) [][]byte {
			b.globals = [][]byte{append(append([]byte{0x7b, 1, 0xfd, 12}, make([]byte, 16)...), 0x0b)}
			return nil
		}, false},
	} {
		m := load(t, guest(c.change).bytes())
		for range 3 {
			if _, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
		}
		if m.code.whole != c.whole || c.whole != (len(m.images()) == 1) {
			t.Errorf("%s: an image can be made: %v, was made: %v; want %v", c.what, m.code.whole, len(m.images()) == 1, c.whole)
		}
	}
}

// TestTiersAgree: what a call answers and uses does not depend on how its instance was made.
func TestTiersAgree(t *testing.T) {
	wasm, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	pooled := loadIn(t, openPooled(t, true), wasm)
	fresh := openPooled(t, true)
	fresh.pool.maxIdle = 0 // so every call has a new instance with the image
	fresh.parked.closed.Store(true)
	plain := loadIn(t, openPooled(t, false), wasm)
	anew := loadIn(t, fresh, wasm)
	for i, input := range []string{
		`{"do":"echo","id":"a"}`, `{"do":"random"}`, `{"do":"frozen"}`, `{"do":"goroutines","n":9}`, `{"do":"time","n":3}`,
		`{"do":"print"}`, `{"do":"nothing"}`, `no JSON`, ``, `{"do":"echo","id":"` + strings.Repeat("y", 300000) + `"}`,
		`{"do":"calls","calls":[{"name":"log","request":{"message":"m"}}]}`, `{"do":"exit"}`, `{"do":"panic"}`,
	} {
		for _, kind := range []abi.Kind{abi.KindGuard, abi.KindTool} {
			if kind == abi.KindTool && strings.Contains(input, "time") {
				continue // a tool's clock is that of the world
			}
			var want string
			for n, m := range []*Module{plain, anew, pooled, pooled} {
				reply, err := m.Call(t.Context(), &Call{Kind: kind, Export: "call", Input: []byte(input), Seed: []byte{byte(i)},
					Now: time.Unix(1e9, 0), Limits: Limits{Wall: time.Minute, Fuel: 2e9}})
				var r Receipt
				got := ""
				if err != nil {
					e := err.(*GuestError)
					r, got = e.Receipt, e.Error()
				} else {
					r, got = reply.Receipt, string(reply.Output)
				}
				got += fmt.Sprint(r.Code, r.HostCalls, r.Used, r.Denied, r.PeakBytes, r.LogBytes)
				if kind == abi.KindGuard { // whose clock is its work
					got += fmt.Sprint(r.Fuel)
				}
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%s %.40s, way %d:\n%.300s\nwant\n%.300s", kind, input, n, got, want)
				}
			}
		}
	}
}

// TestFrozenRandomness: what a guest drew before the image was made is the same in every
// call; what it asks the host for is not.
func TestFrozenRandomness(t *testing.T) {
	m := loadIn(t, openPooled(t, true), func() []byte { b, _ := goGuest(); return b }())
	answers := func(do string, seed []byte) map[string]bool {
		all := map[string]bool{}
		for range 20 {
			reply, err := m.Call(t.Context(), &Call{Export: "call", Input: []byte(`{"do":"` + do + `"}`), Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			all[string(reply.Output)] = true
		}
		return all
	}
	if n := len(answers("random", nil)); n != 20 {
		t.Errorf("crypto/rand: %d different answers of 20", n)
	}
	answers("frozen", nil) // the first call has the instance that the image was made of
	if n := len(answers("frozen", nil)); n != 1 && m.engine.pages != nil {
		t.Errorf("math/rand and maphash: %d different answers of 20; the documentation says 1", n)
	}
	if n := len(answers("random", []byte("seed"))); n != 1 {
		t.Errorf("with a seed: %d different answers of 20", n)
	}
}

// TestImageAtOnce: calls that come at once get one image, each an instance of its own.
func TestImageAtOnce(t *testing.T) {
	m := loadIn(t, openPooled(t, true), counter().bytes())
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 20 {
				reply, err := m.Call(t.Context(), &Call{Export: "call"})
				if err != nil || string(reply.Output) != "44" {
					t.Errorf("answer %v, error %v", reply, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(m.images()); n != 1 {
		t.Errorf("%d images", n)
	}
	sameAsImage(t, m)
}

// TestImageFails: a guest that cannot begin ends every call, and leaves no image; a call that
// is cancelled meanwhile takes nothing from the next.
func TestImageFails(t *testing.T) {
	b := &builder{}
	length := b.use(abi.ImportHost, "input_length")
	b.pages(1)
	b.fn("warm_up", ":", 0, unreachable)
	b.fn("call", ":", 0, callFn(length), drop)
	m := loadIn(t, openPooled(t, true), b.bytes())
	for range 3 {
		if e := fails(t, m, &Call{Export: "call"}, abi.GuestTrap); !strings.HasPrefix(e.Detail, "before the call: ") {
			t.Errorf("detail %q", e.Detail)
		}
	}
	spin := &builder{}
	spin.pages(1)
	spin.fn("_initialize", ":", 0, loop())
	spin.fn("call", ":", 0)
	m = loadIn(t, m.engine, spin.bytes())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	failsIn(t, ctx, m, &Call{Export: "call"}, abi.Cancelled)
	fails(t, m, &Call{Export: "call", Limits: Limits{Startup: 20 * time.Millisecond}}, abi.GuestTimeout)
	if n := len(m.images()); n != 0 {
		t.Errorf("%d images", n)
	}
}

// TestPoolBounds: what waits for a call is bounded, and the oldest goes first.
func TestPoolBounds(t *testing.T) {
	e := openPooled(t, true)
	modules := make([]*Module, 4)
	for i := range modules {
		b := counter()
		b.put(100, fmt.Sprint(i)) // so that they are different
		modules[i] = loadIn(t, e, b.bytes())
	}
	call := func(i int) {
		if reply, err := modules[i].Call(t.Context(), &Call{Export: "call"}); err != nil || string(reply.Output) != "44" {
			t.Errorf("answer %v, error %v", reply, err)
		}
		e.unpark(nil)
	}
	waiting := func() string {
		var all []int
		for _, m := range modules {
			n := 0
			for _, img := range m.images() {
				n += len(img.idle)
			}
			all = append(all, n)
		}
		return fmt.Sprint(all)
	}
	e.pool.maxIdle = 2
	for i := range modules {
		call(i) // makes the image
		call(i)
	}
	if got := waiting(); got != "[0 0 1 1]" {
		t.Errorf("waiting %s, want the last two", got)
	}
	call(2)
	call(0)
	if got := waiting(); got != "[1 0 1 0]" {
		t.Errorf("waiting %s, want those used last", got)
	}
	e.pool.maxIdleBytes = 1
	call(0)
	if got := waiting(); got != "[0 0 0 0]" {
		t.Errorf("waiting %s, want none", got)
	}
	e.pool.maxIdleBytes = 1 << 30

	// An image that no call uses makes room for the next.
	e.pool.maxImageBytes = e.pool.bytes
	b := counter()
	b.put(100, "x")
	last := loadIn(t, e, b.bytes())
	for range 2 {
		if reply, err := last.Call(t.Context(), &Call{Export: "call"}); err != nil || string(reply.Output) != "44" {
			t.Errorf("answer %v, error %v", reply, err)
		}
	}
	e.pool.maxImages = 4
	if len(modules[1].images()) != 0 || len(last.images()) != 1 || len(e.pool.images) != 4 || e.pool.bytes != 4*wasmPage {
		t.Errorf("%d images of %d bytes", len(e.pool.images), e.pool.bytes)
	}
	for i := range modules {
		call(i)
		call(i)
	}
	if len(e.pool.images) != 4 {
		t.Errorf("%d images, want 4", len(e.pool.images))
	}
	// Where no image fits, calls do without.
	e.pool.maxImageBytes = 0
	b = counter()
	b.put(100, "y")
	without := loadIn(t, e, b.bytes())
	for range 2 {
		if reply, err := without.Call(t.Context(), &Call{Export: "call"}); err != nil || string(reply.Output) != "44" {
			t.Errorf("answer %v, error %v", reply, err)
		}
	}
	if n := len(without.images()); n != 0 {
		t.Errorf("%d images, want none", n)
	}
}

// TestProfiles: limits of memory have images of their own, up to a bound.
func TestProfiles(t *testing.T) {
	m := loadIn(t, openPooled(t, true), counter().bytes())
	for i := range maxProfiles + 3 {
		for range 2 {
			reply, err := m.Call(t.Context(), &Call{Export: "call", Limits: Limits{MemoryBytes: int64(i+1) * wasmPage}})
			if err != nil || string(reply.Output) != "44" {
				t.Fatalf("answer %v, error %v", reply, err)
			}
		}
	}
	if n := len(m.images()); n != maxProfiles {
		t.Errorf("%d images, want %d", n, maxProfiles)
	}
	pool := &m.code.engine.pool
	if img := pool.image(m.code, profile{memory: (maxProfiles + 3) * wasmPage}); img == nil || img.memory == nil || len(img.idle) != 1 {
		t.Errorf("the profile that was used last has the image %+v", img)
	}
	if pool.image(m.code, profile{memory: 4 * wasmPage}) == nil {
		t.Error("a profile that comes again gets no image")
	}
	for _, img := range m.images() {
		img.users++
	}
	if img := pool.image(m.code, profile{memory: wasmPage}); img != nil {
		t.Errorf("a profile took the place of one in use: %+v", img)
	}
	for _, img := range m.images() {
		img.users--
	}
	if len(pool.images) >= maxProfiles+1 || pool.idle > maxProfiles {
		t.Errorf("%d images and %d instances are kept", len(pool.images), pool.idle)
	}
}

// TestNativeStack: the engine's stack for an export is seen, and not kept when it has grown.
func TestNativeStack(t *testing.T) {
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.put(0, "[]")
	deep := b.count
	// (i64) calls itself until its parameter is 0.
	b.fn("", "I:", 0, get(0), []byte{0x50, 0x45, 0x04, 0x40}, get(0), i64(-1), []byte{0x7c}, callFn(deep), []byte{0x0b})
	b.fn("call", ":", 0, i64(9000), callFn(deep), i32(0), i32(2), callFn(set))
	b.fn("flat", ":", 0, i32(0), i32(2), callFn(set))
	m := loadIn(t, openPooled(t, true), b.bytes())
	for range 3 {
		for _, export := range []string{"flat", "call"} {
			if _, err := m.Call(t.Context(), &Call{Export: export}); err != nil {
				t.Fatal(err)
			}
		}
	}
	inst := m.images()[0].idle[0]
	if len(inst.exports) != 1 || inst.exports["flat"] == nil || inst.stacks < 1<<10 || inst.stacks != stackOf(inst.exports["flat"].fn) {
		t.Errorf("kept %d exports with stacks of %d", len(inst.exports), inst.stacks)
	}
	if stackOf(nil) != -1 {
		t.Error("a stack where there is none")
	}
}

// TestCallAllocates: a call in an instance that is there allocates twice, and its output.
func TestCallAllocates(t *testing.T) {
	e := openPooled(t, true)
	wasm, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*Module{"small": loadIn(t, e, counter().bytes()), "go": loadIn(t, e, wasm)} {
		for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
			call := &Call{Kind: kind, Export: "call", Input: []byte(`{"do":"echo","id":"x"}`), Limits: Limits{Wall: time.Minute, Fuel: 1e9}}
			for range 2 { // makes the image, and an instance
				if _, err := m.Call(t.Context(), call); err != nil {
					t.Fatal(err)
				}
			}
			allocs := testing.AllocsPerRun(100, func() {
				if _, err := m.Call(t.Context(), call); err != nil {
					t.Fatal(err)
				}
			})
			if allocs > 3 {
				t.Errorf("%s, %s: %v allocations, want 3: the frame, the reply and its output", name, kind, allocs)
			}
		}
	}
}
