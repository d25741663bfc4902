package metertest

import (
	"context"
	"runtime"
	"testing"

	"github.com/tetratelabs/wazero"
)

// The compiler of the engine, on amd64, takes a branch on 0 < x & y for one on x & y < 0, and likewise for
// every order; where it is mended, modules made here need no care about that any more.
func TestEngineOrdersZero(t *testing.T) {
	// run takes an i64 and returns an i32: if (i64.ge_u 0 (i64.and x 2)), 1, else 0.
	code := []byte{0, 0x42, 0, 0x20, 0, 0x42, 2, 0x83, 0x5a, 0x04, 0x40, 0x41, 1, 0x0f, 0x0b, 0x41, 0, 0x0b}
	wasm := section([]byte("\x00asm\x01\x00\x00\x00"), 1, []byte{1, 0x60, 1, byte(i64), 1, byte(i32)})
	wasm = section(section(wasm, 3, []byte{1, 0}), 7, vector(append(text("run"), 0, 0)))
	wasm = section(wasm, 10, vector(append(u32(nil, len(code)), code...)))
	run := func(config wazero.RuntimeConfig) uint64 {
		ctx := context.Background()
		r := wazero.NewRuntimeWithConfig(ctx, config)
		defer r.Close(ctx)
		m, err := r.Instantiate(ctx, wasm)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.ExportedFunction("run").Call(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	if got := run(wazero.NewRuntimeConfigInterpreter()); got != 0 {
		t.Errorf("the interpreter answers %d, want 0: 0 is not as large as 2", got)
	}
	if got := run(wazero.NewRuntimeConfig()); runtime.GOARCH == "amd64" && got != 1 {
		t.Errorf("the compiler answers %d: it is mended, so what ops calls orders can go, and what docs/rationale.md says of it", got)
	}
}
