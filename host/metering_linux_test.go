package host

import (
	"context"
	"crypto/sha256"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A kernel is a guest that computes for some milliseconds: an export, and its argument if it
// takes one.
type kernel struct {
	name   string
	wasm   []byte
	export string
	arg    []uint64
}

// kernels are what the cost of metering is measured with: small ones in C, larger ones in Go.
func kernels(t testing.TB) []kernel {
	c := fixture(t, "kernels.wasm")
	inGo := goKernels(t, `package main

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
)

//go:wasmexport sha
func sha() uint32 {
	sum := [32]byte{}
	for range 5000 {
		sum = sha256.Sum256(sum[:])
	}
	return uint32(sum[0])
}

type line struct {
	Name  string   `+"`json:\"name\"`"+`
	Price float64  `+"`json:\"price\"`"+`
	Tags  []string `+"`json:\"tags\"`"+`
}

//go:wasmexport json
func encode() uint32 {
	all := []line{}
	for i := range 50 {
		all = append(all, line{"name", float64(i) / 7, []string{"a", "b"}})
	}
	n := 0
	for range 10 {
		text, err := json.Marshal(all)
		if err != nil {
			panic(err)
		}
		var back []line
		if err := json.Unmarshal(text, &back); err != nil {
			panic(err)
		}
		n += len(text)
	}
	return uint32(n)
}

//go:wasmexport sort
func sort() uint32 {
	all := make([]int, 20000)
	for i := range all {
		all[i] = i * 7919 % 20011
	}
	slices.Sort(all)
	return uint32(all[17])
}

func main() {}
`)
	return []kernel{
		{"c-fib", c, "fib", []uint64{26}}, {"c-sieve", c, "sieve", []uint64{1 << 20}}, {"c-sha256", c, "sha256", []uint64{5000}},
		{"c-matmul", c, "matmul", []uint64{100}}, {"c-scan", c, "scan", []uint64{30}},
		{"go-sha256", inGo, "sha", nil}, {"go-json", inGo, "json", nil}, {"go-sort", inGo, "sort", nil},
	}
}

// goKernels builds a guest of the text of a main package.
func goKernels(t testing.TB, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "main.wasm")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, src)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// processorTime returns what this process has used of the processors, which other work on the machine disturbs less than it does
// the time that passes.
func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// plain is a kernel in the bare engine.
func (k *kernel) plain(b *testing.B, config wazero.RuntimeConfig) func() time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	b.Cleanup(cancel)
	r := wazero.NewRuntimeWithConfig(ctx, config)
	b.Cleanup(func() { r.Close(context.Background()) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	m, err := r.InstantiateWithConfig(ctx, k.wasm, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		b.Fatal(err)
	}
	run := m.ExportedFunction(k.export)
	return func() time.Duration {
		from := processorTime(b)
		if _, err := run.Call(ctx, k.arg...); err != nil {
			b.Fatal(err)
		}
		return processorTime(b) - from
	}
}

// metered is a kernel as a call has it: metered, in an instance of the host's, with slices of fuel that the frame refills, which looks
// at the deadline, at whether the caller has given up, at the fuel of the call and at its frames, and lets others run. Calls cannot
// give arguments, so the export is called past [Module.Call].
func (k *kernel) metered(b *testing.B) func(ctx context.Context, l Limits) (time.Duration, *GuestError) {
	b.Helper()
	e := shared
	digest := Digest(sha256.Sum256(k.wasm))
	m, bin, why := e.check(digest, k.wasm)
	if len(why) > 0 {
		b.Fatal(why)
	}
	if err := e.compileAlone(b.Context(), "", m, bin); err != nil {
		b.Fatal(err)
	}
	limits := Limits{Wall: time.Hour, Startup: time.Hour, Fuel: endless}
	first := newFrame(b.Context(), m, &Call{Export: k.export, Limits: limits})
	inst, err := first.runFirst()
	if err != nil {
		b.Fatal(first.failure(err))
	}
	b.Cleanup(inst.close)
	run := inst.module.ExportedFunction(k.export)
	return func(ctx context.Context, l Limits) (time.Duration, *GuestError) {
		f := newFrame(ctx, m, &Call{Export: k.export, Limits: l})
		inst.give(f)
		f.startClock(time.Now(), f.limits.Wall)
		f.fill(f.limits.Fuel)
		inst.depth.Set(uint64(f.limits.Depth))
		from := processorTime(b)
		_, err := run.Call(f.ctx, k.arg...)
		took := processorTime(b) - from
		f.stopClock()
		if err != nil {
			return took, f.failure(err)
		}
		if used := f.spent(); used < 2*firstFuel {
			b.Fatalf("%s takes %d fuel, too few slices to show what they cost", k.name, used)
		}
		return took, nil
	}
}

// Bounds of what metering may cost, as how many times longer a metered kernel takes.
const (
	mostMean  = 1.25 // geometric
	mostWorst = 1.8
)

// BenchmarkMetering compares each kernel as a call runs it with the same kernel in the bare engine, in turns, and with the
// engine's own way to stop a guest. It reports how many times longer the metered kernel and the engine's way take, and fails past
// the bounds.
func BenchmarkMetering(b *testing.B) {
	product, worst := 1.0, 0.0
	all := kernels(b)
	turns := 0
	for _, k := range all {
		b.Run(k.name, func(b *testing.B) {
			plain, metered := k.plain(b, runtimeConfig()), k.metered(b)
			engine := k.plain(b, runtimeConfig().WithCloseOnContextDone(true))
			limits := Limits{Wall: time.Hour, Fuel: endless}
			ctx, cancel := context.WithCancel(b.Context())
			measured := func() time.Duration {
				took, err := metered(ctx, limits)
				if err != nil {
					b.Fatal(err, err.Detail)
				}
				return took
			}
			// On one processor, since the Go scheduler wakes a thread for another that is idle whenever a guest lets others run,
			// which then uses time of its own without delaying the guest.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			// The least of many is what other work on the machine disturbs least.
			times := [3]time.Duration{time.Hour, time.Hour, time.Hour}
			seen := 0
			for b.Loop() {
				seen++
				if seen == 1 { // it takes long
					times[2] = engine()
				}
				// A turn of a small kernel is many: the least of a few of them is not yet what it takes.
				for from := processorTime(b); ; {
					times[0], times[1] = min(times[0], plain()), min(times[1], measured())
					if processorTime(b)-from > 20*time.Millisecond {
						break
					}
				}
			}
			// What was measured is what stops a guest.
			stops := func(ctx context.Context, l Limits, code abi.Code) {
				if _, err := metered(ctx, l); err == nil || err.Code != code {
					b.Errorf("%s ends with %v, want %s", k.name, err, code)
				}
			}
			stops(ctx, Limits{Wall: 1, Fuel: endless}, abi.GuestTimeout)
			stops(ctx, Limits{Wall: time.Hour, Fuel: firstSliceFuel * 2}, abi.GuestFuel)
			cancel()
			stops(ctx, limits, abi.Cancelled)

			cost := float64(times[1]) / float64(times[0])
			b.ReportMetric(cost, "metered/plain")
			b.ReportMetric(float64(times[2])/float64(times[0]), "engine/plain")
			product, worst, turns = product*cost, max(worst, cost), b.N
		})
	}
	mean := math.Pow(product, 1/float64(len(all)))
	b.Logf("metering: geometric mean %.2f, worst %.2f", mean, worst)
	if turns >= 10 && (mean > mostMean || worst > mostWorst) {
		b.Errorf("metering costs %.2f times in the geometric mean and %.2f at worst, want at most %v and %v", mean, worst, mostMean, mostWorst)
	}
}
