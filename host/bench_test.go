package host

import (
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// BenchmarkCall times one call in a fresh instance: making it, initialising it,
// calling it, throwing it away.
func BenchmarkCall(b *testing.B) {
	wasm, err := goGuest()
	if err != nil {
		b.Fatal(err)
	}
	for _, guest := range []struct {
		name  string
		wasm  []byte
		input string
	}{
		{"small", plain().bytes(), ""},
		{"go", wasm, `{"do":"echo","id":"x"}`},
	} {
		m := load(b, guest.wasm)
		call := &Call{Kind: abi.KindGuard, Export: "call", Input: []byte(guest.input), Limits: Limits{Wall: 5 * time.Second}}
		b.Run(guest.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Call(b.Context(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoad times loading the Go guest where nothing is compiled yet.
func BenchmarkLoad(b *testing.B) {
	wasm, err := goGuest()
	if err != nil {
		b.Fatal(err)
	}
	wasm = packed(b, wasm)
	for b.Loop() {
		e, err := Open(b.Context(), Config{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Load(b.Context(), wasm); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
