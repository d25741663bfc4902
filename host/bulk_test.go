package host

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestBulkInChunks: what memory.fill and memory.copy do is the same however long it is, and wherever both
// places overlap.
func TestBulkInChunks(t *testing.T) {
	const size, chunk = 4 << 20, 1 << 20
	pattern := make([]byte, size-100)
	x := uint32(1)
	for i := range pattern {
		x = x*1664525 + 1013904223
		pattern[i] = byte(x >> 24)
	}
	limits := Limits{OutputBytes: size, MemoryBytes: 16 << 20}
	type place struct{ to, from, n int }
	run := func(op []byte, p place) *Module {
		b := &builder{}
		set := b.use(abi.ImportHost, "output_set")
		b.pages(size / wasmPage)
		b.put(0, string(pattern))
		b.fn("call", ":", 0, i32(int64(p.to)), i32(int64(p.from)), i32(int64(p.n)), op, i32(0), i32(size), callFn(set))
		return load(t, b.bytes())
	}
	fill, copying := []byte{0xfc, 11, 0}, []byte{0xfc, 10, 0, 0}
	for _, p := range []place{
		{0, 7, chunk}, {5, 0, chunk + 1}, {0, 5, 3 * chunk}, {5, 0, 3*chunk + 17}, {1000, 1000, 2 * chunk}, {0, 1, size - 1}, {1, 0, size - 1},
		{0, 2 * chunk, 2 * chunk}, {2 * chunk, 0, 2 * chunk}, {chunk + 3, 3, 2*chunk + 1}, {3, chunk + 3, 2*chunk + 1}, {size, 0, 0}, {0, size, 0},
	} {
		want := append(slices.Clone(pattern), make([]byte, 100)...)
		copy(want[p.to:p.to+p.n], want[p.from:p.from+p.n])
		m := run(copying, p)
		reply, err := m.Call(t.Context(), &Call{Export: "call", Limits: limits})
		if err != nil {
			t.Fatal(err.(*GuestError).Detail)
		}
		if !bytes.Equal(reply.Output, want) {
			t.Errorf("copy %+v: memory differs", p)
		}
		want = append(slices.Clone(pattern), make([]byte, 100)...)
		for i := range p.n {
			want[p.to+i] = byte(p.from)
		}
		m = run(fill, p)
		if reply, err = m.Call(t.Context(), &Call{Export: "call", Limits: limits}); err != nil {
			t.Fatal(err.(*GuestError).Detail)
		}
		if !bytes.Equal(reply.Output, want) {
			t.Errorf("fill %+v: memory differs", p)
		}
	}
	for _, p := range []place{{1, 0, size}, {0, 0, size + 1}, {size - chunk, 0, chunk + 1}, {-1, 0, 2 * chunk}, {0, 0, -1}, {-1, 0, -1}} {
		m := run(fill, p)
		fails(t, m, &Call{Export: "call", Limits: limits}, abi.GuestTrap)
		for _, p := range []place{p, {p.from, p.to, p.n}} {
			m := run(copying, p)
			fails(t, m, &Call{Export: "call", Limits: limits}, abi.GuestTrap)
		}
	}
}

// An asked counts how often a call looks whether it is over.
type asked struct {
	context.Context
	times int
}

func (a *asked) Err() error {
	a.times++
	return a.Context.Err()
}

// TestBulkIsInterrupted: one long instruction asks the host again and again, which can end it, and costs
// what it costs by its length.
func TestBulkIsInterrupted(t *testing.T) {
	for _, op := range [][]byte{{0xfc, 11, 0}, {0xfc, 10, 0, 0}} {
		for _, from := range []int64{0, 1} {
			var fuel [2]int64
			var times [2]int
			for i, n := range []int64{1 << 20, 8 << 20} {
				b := &builder{}
				set := b.use(abi.ImportHost, "output_set")
				b.pages(8 << 20 / wasmPage * 2)
				b.fn("call", ":", 0, i32(1-from), i32(from), i32(n), op, i32(0), i32(1), callFn(set))
				ctx := &asked{Context: t.Context()}
				m := load(t, b.bytes())
				reply, err := m.Call(ctx, &Call{Export: "call"})
				if err != nil {
					t.Fatal(err.(*GuestError).Detail)
				}
				fuel[i], times[i] = reply.Receipt.Fuel, ctx.times
			}
			what := fmt.Sprintf("%x from %d", op[1], from)
			if more := fuel[1] - fuel[0]; more != 7<<20>>3 {
				t.Errorf("%s: 7 MiB more cost %d, want %d", what, more, 7<<20>>3)
			}
			if more := times[1] - times[0]; more < 7 {
				t.Errorf("%s: asked %d times more for 7 MiB more, want 7 or more", what, more)
			}
		}
	}
}
