//go:build linux && !race

// The race detector takes memory of its own for all that is touched.

package host

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// deepGuests recurse without end and have much on the stack in every frame, each in another way.
// Function 0 recurses and function 1 returns a number.
func deepGuests() map[string][]byte {
	clz, add, drops := []byte{0x79}, []byte{0x7c}, []byte{0x1a}
	operand := slices.Concat(get(0), clz)
	guest := func(locals int, code ...[]byte) []byte {
		b := &builder{}
		b.pages(1)
		b.fn("call", ":", locals, code...)
		b.fn("", ":I", 0, i64(7))
		return b.bytes()
	}
	store := []byte{0x37, 3, 0} // i64.store
	sum := func(n int) []byte { return bytes.Repeat(add, n-1) }
	written := func(n int) (code []byte) {
		for i := range n {
			code = slices.Concat(code, get(i), clz, setLocal(i))
		}
		return code
	}
	used := func(n int) (code []byte) {
		for i := range n {
			code = slices.Concat(code, i32(0), get(i), store)
		}
		return code
	}
	vector := slices.Concat(operand, []byte{0xfd, 0x12}) // i64x2.splat
	const many = 12_000                                  // as much as fits into a body
	return map[string][]byte{
		"operands below the call":         guest(1, i32(0), bytes.Repeat(operand, 950), callFn(0), sum(950), store),
		"operands below many calls":       guest(1, bytes.Repeat(slices.Concat(i32(0), bytes.Repeat(operand, 8), callFn(1), sum(9), store), many/8), callFn(0)),
		"operands without a call between": guest(1, bytes.Repeat(slices.Concat(i32(0), bytes.Repeat(operand, 200), sum(200), store), many/100), callFn(0)),
		"values of one local":             guest(1, bytes.Repeat(slices.Concat(operand, setLocal(0), callFn(1), drops), many), callFn(0), used(1)),
		"values of many locals":           guest(500, bytes.Repeat(slices.Concat(written(500), callFn(1), drops), 15), callFn(0), used(500)),
		"locals":                          guest(1000, written(1000), callFn(0), used(1000)),
		"locals of loops":                 guest(500, bytes.Repeat(slices.Concat([]byte{3, 0x40}, written(500), callFn(1), drops, i32(0), []byte{0x0d, 0, 0x0b}), 15), callFn(0), used(500)),
		"vectors":                         guest(1, i32(0), bytes.Repeat(vector, 500), callFn(0), bytes.Repeat([]byte{0xfd, 0xce, 1}, 499), []byte{0xfd, 0x1d, 0}, store),
		"nothing":                         guest(0, callFn(0)),
	}
}

// status returns a figure of this process, in bytes.
func status(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var kb int64
	_, rest, _ := strings.Cut(string(text), "\n"+name+":")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// TestDepthTakesLittleMemory: whatever a frame holds, calls that recurse until they are stopped
// take at most 16 MiB each.
func TestDepthTakesLittleMemory(t *testing.T) {
	if !inChild(t) {
		return
	}
	const calls, most = 16, 16 << 20
	for name, wasm := range deepGuests() {
		m := load(t, wasm)
		resident(t) // collects what the one before has left
		before := status(t, "VmRSS")
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // forgets the peak
			t.Fatal(err)
		}
		for _, n := range []int64{1, calls} {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					_, err := m.Call(t.Context(), &Call{Export: "call", Limits: Limits{Wall: time.Minute, Fuel: endless}})
					if e, ok := err.(*GuestError); !ok || e.Code != abi.GuestStack {
						t.Errorf("%s: %v, want %s", name, err, abi.GuestStack)
					}
				})
			}
			wg.Wait()
			grown := status(t, "VmHWM") - before
			t.Logf("%s: %d calls: %d KiB", name, n, grown>>10)
			if grown > n*most {
				t.Errorf("%s: %d calls took %d KiB, want at most %d", name, n, grown>>10, n*most>>10)
			}
		}
	}
}
