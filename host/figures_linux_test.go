package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// The figures in milliseconds below are what docs/specification.md promises. They depend on what
// else the machine does, so that a benchmark fails only past lenient times as much.
const lenient = 5

func percentile(all []time.Duration, p int) time.Duration {
	slices.Sort(all)
	return all[min(len(all)*p/100, len(all)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// reportTail reports the 99th percentile in milliseconds, and fails past lenient times most.
func reportTail(b *testing.B, all []time.Duration, most time.Duration) {
	p99 := percentile(all, 99)
	b.ReportMetric(milliseconds(p99), "p99-ms")
	if p99 > lenient*most {
		b.Errorf("99th percentile %v, promised %v, failing past %d times that", p99, most, lenient)
	}
}

// BenchmarkDeadline times how late calls end that would run for ever, after their deadline and
// after they were cancelled.
func BenchmarkDeadline(b *testing.B) {
	bulk := func(code ...[]byte) *builder { // over 64 MiB and a table as large as can be
		b := &builder{}
		b.pages(1024)
		b.table = slices.Concat([]byte{0x70, 0}, leb(100_000))
		b.fn("call", ":", 0, loop(code...))
		return b
	}
	none := []byte{0xd0, 0x70} // ref.null func
	for _, c := range []struct {
		name   string
		module *builder
		most   time.Duration
	}{
		{"loop", spinner(), 5 * time.Millisecond},
		{"calls", doubling(60), 5 * time.Millisecond},
		{"memory.fill", bulk(i32(0), i32(1), i32(64<<20), []byte{0xfc, 11, 0}), 30 * time.Millisecond},
		{"memory.copy", bulk(i32(0), i32(32<<20), i32(32<<20), []byte{0xfc, 10, 0, 0}), 30 * time.Millisecond},
		{"memory.copy-over-itself", bulk(i32(1), i32(0), i32(64<<20-1), []byte{0xfc, 10, 0, 0}), 30 * time.Millisecond},
		{"table.fill", bulk(i32(0), none, i32(100_000), []byte{0xfc, 17, 0}), 5 * time.Millisecond},
		{"table.copy", bulk(i32(0), i32(1), i32(99_999), []byte{0xfc, 14, 0, 0}), 5 * time.Millisecond},
	} {
		m, err := shared.Load(b.Context(), packedFor(b, c.module.bytes(), "call")) // as a tool, which may have 64 MiB
		if err != nil {
			b.Fatal(err)
		}
		const wall = 10 * time.Millisecond
		b.Run(c.name, func(b *testing.B) {
			var late []time.Duration
			for b.Loop() {
				from := time.Now()
				if _, err := m.Call(b.Context(), &Call{Export: "call", Limits: Limits{Wall: wall, Fuel: endless}}); err == nil {
					b.Fatal("the call ended by itself")
				}
				late = append(late, time.Since(from)-wall)
			}
			reportTail(b, late, c.most)
		})
		b.Run(c.name+"-cancelled", func(b *testing.B) {
			var late []time.Duration
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				var from time.Time
				timer := time.AfterFunc(wall, func() { from = time.Now(); cancel() })
				if _, err := m.Call(ctx, &Call{Export: "call", Limits: Limits{Wall: time.Minute, Fuel: endless}}); err == nil {
					b.Fatal("the call ended by itself")
				}
				late = append(late, time.Since(from))
				timer.Stop()
			}
			reportTail(b, late, c.most)
		})
	}
}

// BenchmarkGCBesideGuests times a collection of garbage while guests compute on every processor.
func BenchmarkGCBesideGuests(b *testing.B) {
	m := load(b, spinner().bytes())
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() { m.Call(ctx, &Call{Export: "call", Limits: Limits{Wall: time.Hour, Fuel: endless}}) })
	}
	var all []time.Duration
	for b.Loop() {
		from := time.Now()
		runtime.GC()
		all = append(all, time.Since(from))
	}
	cancel()
	wg.Wait()
	reportTail(b, all, 10*time.Millisecond)
}

// BenchmarkScaling compares the calls of one and of two callers at once, and beside them plain
// computing: where that does not scale, the machine has no two processors to give.
func BenchmarkScaling(b *testing.B) {
	inGo, small := loadGo(b), load(b, counter().bytes())
	buf := make([]byte, 4096)
	for b.Loop() {
		rate := func(callers int, do func()) float64 {
			var all atomic.Int64
			var wg sync.WaitGroup
			from := time.Now()
			for range callers {
				wg.Go(func() {
					n := int64(0)
					for ; time.Since(from) < 50*time.Millisecond; n++ {
						do()
					}
					all.Add(n)
				})
			}
			wg.Wait()
			return float64(all.Load())
		}
		// What one caller gets and what two get is measured in turns, since others want the processors now and then.
		scale := func(do func()) float64 {
			var one, two []float64
			for range 5 {
				one, two = append(one, rate(1, do)), append(two, rate(2, do))
			}
			slices.Sort(one)
			slices.Sort(two)
			return two[len(two)/2] / one[len(one)/2]
		}
		call := func(m *Module, input string) func() {
			return func() {
				if _, err := m.Call(b.Context(), &Call{Export: "call", Input: []byte(input)}); err != nil {
					b.Error(err)
				}
			}
		}
		control := 0.0
		for range 10 { // until the machine lets two compute at once
			if control = scale(func() { sha256.Sum256(buf) }); control >= 1.9 {
				break
			}
		}
		goScale, smallScale := scale(call(inGo, `{"do":"echo","id":"x"}`)), scale(call(small, ""))
		b.ReportMetric(control, "control-2/1")
		b.ReportMetric(goScale, "go-2/1")
		b.ReportMetric(smallScale, "small-2/1")
		if control >= 1.9 && (goScale < 1.5 || smallScale < 1.3) {
			b.Errorf("two callers get %.2f times the calls of one in Go and %.2f in small guests, want at least 1.5 and 1.3; plain computing scales %.2f times", goScale, smallScale, control)
		}
	}
}

// burnVar makes the test binary a process of the lowest priority that only computes.
const burnVar = "HOST_TEST_BURN"

func burn() {
	syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19)
	for b := []byte("x"); ; {
		sum := sha256.Sum256(b)
		b = sum[:]
	}
}

// BenchmarkBesideCompiler compares the time of calls beside the compiler's child with that beside a
// process of the lowest priority which computes.
func BenchmarkBesideCompiler(b *testing.B) {
	wasm, err := goGuest()
	if err != nil {
		b.Fatal(err)
	}
	m := loadGo(b)
	measure := func(done <-chan struct{}) time.Duration {
		var all []time.Duration
		for {
			select {
			case <-done:
				return percentile(all, 99)
			default:
			}
			from := time.Now()
			if _, err := m.Call(b.Context(), &Call{Export: "call", Input: []byte(`{"do":"echo","id":"x"}`)}); err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(from))
		}
	}
	for b.Loop() {
		e, err := Open(b.Context(), Config{})
		if err != nil {
			b.Fatal(err)
		}
		compiled := make(chan struct{})
		from := time.Now()
		go func() {
			defer close(compiled)
			if _, err := e.Load(b.Context(), packed(b, wasm)); err != nil {
				b.Error(err)
			}
		}()
		compiling := measure(compiled)
		took := time.Since(from)
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		burner := exec.Command(os.Args[0])
		burner.Env = append(os.Environ(), burnVar+"=1")
		if err := burner.Start(); err != nil {
			b.Fatal(err)
		}
		idle := make(chan struct{})
		time.AfterFunc(took, func() { close(idle) })
		burning := measure(idle)
		burner.Process.Kill()
		burner.Wait()
		r := float64(compiling) / float64(burning)
		b.ReportMetric(milliseconds(compiling), "compiler-p99-ms")
		b.ReportMetric(milliseconds(burning), "burner-p99-ms")
		b.ReportMetric(r, "compiler/burner")
		if r > 2 {
			b.Errorf("calls take %v beside the compiler and %v beside an idle process (99th percentile), want at most twice", compiling, burning)
		}
	}
}

// BenchmarkRefuse times the refusal of modules that an engine would compile for seconds or hours.
func BenchmarkRefuse(b *testing.B) {
	for name, wasm := range bombs() {
		b.Run(name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				from := time.Now()
				_, err := shared.Load(b.Context(), wasm) // without a manifest: what is past a cap cannot be packed
				if r, ok := errors.AsType[*RejectError](err); !ok || r.Reasons[0].Code != abi.ModuleLimit {
					b.Fatalf("error %v, want %s", err, abi.ModuleLimit)
				}
				all = append(all, time.Since(from))
			}
			reportTail(b, all, 50*time.Millisecond)
		})
	}
}

// TestBombs: modules that an engine would compile for seconds or hours, or whose memory and tables would
// be large, are refused before it sees them.
func TestBombs(t *testing.T) {
	for name, wasm := range bombs() {
		if _, err := shared.Load(t.Context(), wasm); err == nil {
			t.Errorf("%s: accepted", name)
		} else if r, ok := errors.AsType[*RejectError](err); !ok || r.Reasons[0].Code != abi.ModuleLimit {
			t.Errorf("%s: error %v, want %s", name, err, abi.ModuleLimit)
		}
	}
}

// bombs are modules that take a compiler more than linear time, or an instance much memory: every kind of
// them that is known. (Ten thousand functions of a hundred blocks each, of 3 MB, are none: they take a second, as lawful
// modules of that size do.)
func bombs() map[string][]byte {
	nested := func(op byte, n int, locals int) []byte {
		b := &builder{}
		b.pages(1)
		var code [][]byte
		code = append(code, bytes.Repeat([]byte{op, 0x40}, n))
		for i := range locals {
			code = append(code, i64(1), setLocal(i))
		}
		code = append(code, bytes.Repeat([]byte{0x0b}, n))
		b.fn("call", ":", locals, code...)
		return b.bytes()
	}
	table := func(labels, n int) []byte {
		b := &builder{}
		b.pages(1)
		var code [][]byte
		for range n {
			code = append(code, []byte{0x02, 0x40}, i32(0), []byte{0x0e}, leb(labels), make([]byte, labels+1), []byte{0x0b})
		}
		b.fn("call", ":", 0, code...)
		return b.bytes()
	}
	alone := func(locals int, code ...[]byte) []byte {
		b := &builder{}
		b.pages(1)
		b.fn("call", ":", locals, code...)
		return b.bytes()
	}
	many := func(n, locals int) []byte {
		b := &builder{}
		b.pages(1)
		b.fn("call", ":", 0)
		for range n {
			b.fn("", ":", locals)
		}
		return b.bytes()
	}
	large := &builder{}
	large.memory = slices.Concat([]byte{0}, leb(1<<16))
	large.fn("call", ":", 0)
	tabled := &builder{}
	tabled.pages(1)
	tabled.table = slices.Concat([]byte{0x70, 0}, leb(10_000_000))
	tabled.fn("call", ":", 0)
	ifs := &builder{}
	ifs.pages(1)
	ifs.fn("call", ":", 64, bytes.Repeat(slices.Concat(i32(1), []byte{0x04, 0x40, 0x0b}), 20_000))
	return map[string][]byte{
		"a memory of 4 GiB": large.bytes(), "a table of 10000000": tabled.bytes(),
		"3000 loops, 3000 locals": nested(0x03, 3000, 3000), "1000000 adds": alone(0, i32(0), bytes.Repeat([]byte{0x41, 1, 0x6a}, 1_000_000), drop),
		"50000 locals, 2000 times": many(2000, 50_000), "50000 locals, 100 times": many(100, 50_000), "50000 functions": many(50_000, 0),
		"200000 calls": alone(0, bytes.Repeat(callFn(0), 200_000)), "1000000 labels": table(1_000_000, 1),
		"250 loops, 300 locals": nested(0x03, 250, 300), "50000 blocks": nested(0x02, 50_000, 0), "20000 ifs": ifs.bytes(),
		"100000 labels": table(100_000, 1), "100 times 4000 labels": table(4000, 100), "16000 loops": nested(0x03, 16_000, 0),
	}
}
