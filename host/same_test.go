package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/meter/metertest"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// What must agree about a call is all that the caller sees of it, whether its instance was set
// back, was made from an image, or began anew.

// A way is an engine that gives calls instances in one of these ways.
type way struct {
	name   string
	engine *Engine
}

// newWays opens an engine for each. Modules are compiled in this process: they are compiled once, and
// are small.
func newWays(t testing.TB) []way {
	t.Helper()
	all := []way{{name: "set back"}, {name: "from an image"}, {name: "begun anew"}}
	for i := range all {
		e, err := Open(context.Background(), Config{InProcess: true, CodeBytes: 32 << 20})
		if err != nil {
			t.Fatal(err)
		}
		all[i].engine = e
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all[1].engine.pool.maxIdle = 0
	if pages := all[2].engine.pages; pages != nil {
		all[2].engine.pages = nil
		t.Cleanup(func() { pages.close() })
	}
	return all
}

// calls calls a module some times with the same limits, and says how each call ended.
func (w way) calls(t *testing.T, wasm []byte, limits Limits) []string {
	t.Helper()
	m, err := w.engine.Load(context.Background(), wasm)
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	var ends []string
	for range 3 {
		reply, err := m.Call(context.Background(), &Call{Export: metertest.Call, Limits: limits, Now: time.Unix(1e9, 0)})
		end, r := "", Receipt{}
		if failure, ok := errors.AsType[*GuestError](err); ok {
			detail, _, _ := strings.Cut(failure.Detail, "; failed ")
			if !strings.HasPrefix(detail, "before the call: ") { // else it is not tried again at once, and costs nothing
				r = failure.Receipt
			}
			end = fmt.Sprintf("%s %s", failure.Code, detail)
		} else {
			end, r = fmt.Sprintf("%d bytes %x", len(reply.Output), sha256.Sum256(reply.Output)), reply.Receipt
		}
		ends = append(ends, fmt.Sprintf("%s; fuel %d, peak %d, calls %d", end, r.Fuel, r.PeakBytes, r.HostCalls))
		w.engine.unpark(nil)
		if len(w.engine.pool.images) > 0 && w.name == "from an image" && w.engine.pool.idle > 0 {
			t.Fatal("an instance waits for the next call")
		}
	}
	return ends
}

// FuzzInstances: whatever a module does, its next call ends as the first did, with the same receipt,
// in whatever instance.
func FuzzInstances(f *testing.F) {
	f.Add([]byte{})
	ways := newWays(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 4000 {
			return
		}
		wasm := packed(t, metertest.Module(choices, abi.ImportHost, "output_set"))
		bin, err := wasmbin.Decode(wasm)
		if err != nil {
			t.Fatal(err)
		}
		_, begins := bin.Export(abi.ExportInitialize)
		begins = begins || bin.Start
		ample := Limits{Wall: time.Minute, Startup: time.Minute, OutputBytes: 8 << 20}
		scarce := ample
		scarce.Fuel = 200
		for _, limits := range []Limits{ample, scarce} {
			if limits == scarce && begins { // what the fuel is for, too, unless there is an image
				continue
			}
			want := ways[0].calls(t, wasm, limits)
			for _, w := range ways {
				for i, got := range w.calls(t, wasm, limits) {
					if got != want[0] {
						t.Fatalf("call %d in an instance that is %s, with fuel %d, ended with\n%s\nthe first with\n%s", i, w.name, limits.Fuel, got, want[0])
					}
				}
			}
		}
	})
}
