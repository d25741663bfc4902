package meter

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// goModule is what the Go compiler makes of a program whose "run" encodes and sorts.
func goModule(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "main.wasm")
	text := `package main

import (
	"encoding/json"
	"slices"
)

//go:wasmexport run
func run() uint32 {
	all := map[string][]int{}
	for i := range 300 {
		k := string(rune('a' + i%26))
		all[k] = append(all[k], i*7919%1000)
	}
	for _, v := range all {
		slices.Sort(v)
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	h := uint32(0)
	for _, c := range b {
		h = h*31 + uint32(c)
	}
	return h
}

func main() {}
`
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, src)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A module of the Go compiler computes the same when it is metered, in the same
// fuel every time, and its ten thousand data segments become few.
func TestGoModule(t *testing.T) {
	x := newMachine(t, wazero.NewRuntimeConfig())
	x.slice = 100_000
	wasm := goModule(t)
	metered := rewritten(t, wasm)
	want, err := x.run(wasm)
	if err != nil || want.trap != "" {
		t.Fatal(want, err)
	}
	first, err := x.run(metered)
	if err != nil || first.trap != "" {
		t.Fatal(first, err)
	}
	if !slices.Equal(first.result, want.result) {
		t.Errorf("metered: %d, want %d", first.result, want.result)
	}
	again, err := x.run(metered)
	if err != nil || again.fuel != first.fuel || first.fuel < 1_000_000 {
		t.Errorf("fuel %d, then %d, error %v", first.fuel, again.fuel, err)
	}
	before, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	after, err := wasmbin.Decode(metered)
	if err != nil {
		t.Fatal(err)
	}
	if before.Data < 5000 || after.Data > before.Data/10 {
		t.Errorf("%d data segments became %d", before.Data, after.Data)
	}
}

// kernels are guests that compute for about a millisecond.
func kernels(t testing.TB) map[string][]byte {
	fib := guests()["fib"]
	fib.funcs[0] = fn(0x41, 20, 0x10, 2)
	loop := guests()["loop"]
	loop.funcs[0] = slices.Concat(loop.funcs[0][:4], []byte{0xc0, 0x84, 0x3d}, loop.funcs[0][7:]) // 1,000,000 rounds
	fill := slices.Repeat([]byte{0x41, 0, 0x41, 0, 0x41, 16, 0xfc, 11, 0}, 100)
	return map[string][]byte{
		"fib":   fib.bytes(),
		"loop":  loop.bytes(),
		"fills": guest{funcs: [][]byte{fn(slices.Concat([]byte{0x41, 0xe4, 0, 0x21, 0, 0x03, 0x40}, fill, []byte{0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x41, 1})...)}}.bytes(),
		"go":    goModule(t),
	}
}

// BenchmarkMetering compares each kernel with and without metering in turns, and
// with the engine's own way to stop a guest. It reports how many times longer the
// metered kernel and the engine's way take.
func BenchmarkMetering(b *testing.B) {
	for name, wasm := range kernels(b) {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			start := func(config wazero.RuntimeConfig, wasm []byte) func() time.Duration {
				x := newMachine(b, config)
				x.cur, x.slice = &end{}, 1<<20
				m, err := x.runtime.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions())
				if err != nil {
					b.Fatal(err)
				}
				depth, metered := m.ExportedGlobal(Depth).(api.MutableGlobal)
				if metered {
					depth.Set(10_000)
				}
				if f := m.ExportedFunction("_initialize"); f != nil {
					if _, err := f.Call(ctx); err != nil {
						b.Fatal(err)
					}
				}
				run := m.ExportedFunction("run")
				return func() time.Duration {
					if metered {
						depth.Set(10_000)
					}
					from := time.Now()
					if _, err := run.Call(ctx); err != nil {
						b.Fatal(err)
					}
					return time.Since(from)
				}
			}
			plain := start(wazero.NewRuntimeConfig(), wasm)
			metered := start(wazero.NewRuntimeConfig(), rewritten(b, wasm))
			engine := start(wazero.NewRuntimeConfig().WithCloseOnContextDone(true), wasm)
			// The least of many is what other work on the machine disturbs least.
			times := [3]time.Duration{time.Hour, time.Hour, time.Hour}
			for b.Loop() {
				for i, run := range []func() time.Duration{plain, metered, engine} {
					times[i] = min(times[i], run())
				}
			}
			b.ReportMetric(float64(times[1])/float64(times[0]), "metered/plain")
			b.ReportMetric(float64(times[2])/float64(times[0]), "engine/plain")
		})
	}
}

// BenchmarkRewrite times the rewriting of a Go module.
func BenchmarkRewrite(b *testing.B) {
	m, err := wasmbin.Decode(goModule(b))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(m.Bytes())))
	for b.Loop() {
		if _, err := Rewrite(m); err != nil {
			b.Fatal(err)
		}
	}
}
