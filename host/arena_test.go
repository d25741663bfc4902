package host

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// extismFuncs declares Extism's imports by name.
func extismFuncs(b *builder, names ...string) map[string]int {
	fn := map[string]int{}
	for _, name := range names {
		fn[name] = b.use(abi.ImportExtism, name)
	}
	return fn
}

// check ends the guest unless two numbers on the stack are equal.
var (
	check32 = []byte{0x47, 0x04, 0x40, 0x00, 0x0b} // i32.ne, if unreachable end
	check64 = []byte{0x52, 0x04, 0x40, 0x00, 0x0b}
	size32  = []byte{0x3f, 0x00} // memory.size
)

// TestWindows: a guest that reads and writes blocks itself sees what it would see through the
// host, and its memory is its own: it grows as any, and the blocks move with it.
func TestWindows(t *testing.T) {
	b := &builder{}
	fn := extismFuncs(b, "alloc", "free", "load_u8", "load_u64", "store_u8", "store_u64", "input_load_u8", "input_load_u64", "input_length",
		"input_offset", "input_set", "output_set")
	b.memory = []byte{1, 2, 5} // two pages, at most five
	b.fn("call", ":", 3,
		i64(100), callFn(fn["alloc"]), setLocal(0),
		i64(40), callFn(fn["alloc"]), setLocal(1),
		// The last eight bytes of the first block and the last one of the second.
		get(0), i64(92), []byte{0x7c}, i64(0x0102030405060708), callFn(fn["store_u64"]),
		get(1), i64(39), []byte{0x7c}, i32(0x1ff), callFn(fn["store_u8"]),
		get(0), i64(99), []byte{0x7c}, callFn(fn["load_u8"]), i32(1), check32,
		get(1), i64(32), []byte{0x7c}, callFn(fn["load_u64"]), i64(-1<<56), check64,
		get(0), i64(92), []byte{0x7c}, callFn(fn["load_u64"]), i64(0x0102030405060708), check64,
		// The input, of which the end is filled with zeros.
		i64(0), callFn(fn["input_load_u64"]), i64(int64(binary.LittleEndian.Uint64([]byte("0123456789")))), check64,
		i64(8), callFn(fn["input_load_u64"]), i64('8'|'9'<<8), check64,
		i64(9), callFn(fn["input_load_u8"]), i32('9'), check32,
		i64(10), callFn(fn["input_load_u8"]), i32(0), check32,
		i64(-1), callFn(fn["input_load_u64"]), i64(0), check64,
		// The guest's memory.
		size32, i32(2), check32,
		i32(2<<16-8), i64(-1), []byte{0x37, 3, 0},
		grow(2), i32(2), check32,
		size32, i32(4), check32,
		i32(2<<16), []byte{0x29, 3, 0}, i64(0), check64, // zeros, where the blocks were
		i32(2<<16+200), []byte{0x29, 3, 0}, i64(0), check64,
		i32(4<<16-8), []byte{0x29, 3, 0}, i64(0), check64,
		i32(2<<16), i64(-1), []byte{0x37, 3, 0},
		grow(2), i32(-1), check32,
		grow(0), i32(4), check32,
		grow(-1), i32(-1), check32,
		grow(1), i32(4), check32,
		// The blocks and the input are as they were.
		get(0), i64(92), []byte{0x7c}, callFn(fn["load_u64"]), i64(0x0102030405060708), check64,
		get(1), i64(39), []byte{0x7c}, callFn(fn["load_u8"]), i32(0xff), check32,
		i64(0), callFn(fn["input_load_u8"]), i32('0'), check32,
		// Part of a block as the input, without its last byte.
		get(0), i64(93), []byte{0x7c}, i64(6), callFn(fn["input_set"]),
		callFn(fn["input_length"]), i64(6), check64,
		i64(0), callFn(fn["input_load_u64"]), i64(0x020304050607), check64,
		// A block that is gone leaves room for another, which begins with zeros.
		get(0), callFn(fn["free"]),
		i64(0), callFn(fn["input_load_u8"]), i32(0), check32,
		i64(100), callFn(fn["alloc"]), setLocal(2),
		get(2), i64(92), []byte{0x7c}, callFn(fn["load_u64"]), i64(0), check64,
		get(2), get(0), []byte{0x51, 0x04, 0x40, 0x00, 0x0b}, // the address is another
		get(1), i64(39), []byte{0x7c}, i64(1), callFn(fn["output_set"]))
	m := load(t, b.bytes())
	for range 4 {
		reply, err := m.Call(t.Context(), &Call{Export: "call", Input: []byte("0123456789")})
		if err != nil {
			t.Fatal(err.(*GuestError).Detail)
		}
		if string(reply.Output) != "\xff" {
			t.Fatalf("output %q", reply.Output)
		}
		if most := int64(5*wasmPage + 1000); reply.Receipt.PeakBytes > most {
			t.Errorf("peak %d, want at most %d: the pages of blocks are not counted", reply.Receipt.PeakBytes, most)
		}
	}
}

// TestWindowsEnd: what lies outside every block ends the call, before and after a window was
// opened beside it.
func TestWindowsEnd(t *testing.T) {
	for _, c := range []struct {
		what string
		run  func(fn map[string]int) [][]byte
	}{
		{"behind", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), i64(16), {0x7c}, callFn(fn["load_u8"]), drop}
		}},
		{"over the end", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), i64(9), {0x7c}, callFn(fn["load_u64"]), drop}
		}},
		{"before", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), i64(-1), {0x7c}, callFn(fn["load_u8"]), drop}
		}},
		{"write behind", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), i64(16), {0x7c}, i32(1), callFn(fn["store_u8"])}
		}},
		{"write over the end", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), i64(9), {0x7c}, i64(1), callFn(fn["store_u64"])}
		}},
		{"freed", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), callFn(fn["free"]), get(0), callFn(fn["load_u8"]), drop}
		}},
		{"freed, write", func(fn map[string]int) [][]byte {
			return [][]byte{get(0), callFn(fn["free"]), get(0), i32(1), callFn(fn["store_u8"])}
		}},
		{"reset", func(fn map[string]int) [][]byte {
			return [][]byte{callFn(fn["reset"]), get(0), callFn(fn["load_u8"]), drop}
		}},
		{"far", func(fn map[string]int) [][]byte {
			return [][]byte{i64(-8), callFn(fn["load_u64"]), drop}
		}},
	} {
		b := &builder{}
		fn := extismFuncs(b, "alloc", "free", "load_u8", "load_u64", "store_u8", "store_u64", "reset")
		b.pages(1)
		b.fn("call", ":", 1, slices.Concat([][]byte{i64(16), callFn(fn["alloc"]), setLocal(0),
			get(0), i64(8), {0x7c}, callFn(fn["load_u64"]), drop,
			get(0), i64(15), {0x7c}, i32(7), callFn(fn["store_u8"])}, c.run(fn))...)
		if e := fails(t, load(t, b.bytes()), &Call{Export: "call"}, abi.GuestTrap); !bytes.Contains([]byte(e.Detail), []byte("bad handle")) {
			t.Errorf("%s: %s", c.what, e.Detail)
		}
	}
}

// TestBehindMemory: blocks do not lie behind the guest's memory, however large that is: what is not
// the guest's ends the call.
func TestBehindMemory(t *testing.T) {
	for _, to := range []struct {
		what string
		code []byte
	}{
		{"read", slices.Concat([]byte{0x2d, 0, 0}, drop)},
		{"write", slices.Concat(i32(1), []byte{0x3a, 0, 0})},
		{"fill", slices.Concat(i32(0), i32(1), []byte{0xfc, 11, 0})},
		{"copy", slices.Concat(i32(0), i32(1), []byte{0xfc, 10, 0, 0})},
	} {
		for _, grown := range []bool{false, true} {
			b := &builder{}
			fn := extismFuncs(b, "alloc", "store_u8", "output_set")
			b.pages(1)
			code := [][]byte{i64(16), callFn(fn["alloc"]), setLocal(0), get(0), i32('1'), callFn(fn["store_u8"]), get(0), i64(1), callFn(fn["output_set"])}
			want := abi.GuestTrap
			if grown {
				want = abi.GuestMemory // for that it was refused more is why it fails
				code = append(code, []byte{0x03, 0x40}, grow(1), i32(-1), []byte{0x47, 0x0d, 0, 0x0b})
			}
			end := slices.Concat(size32, i32(16), []byte{0x74})
			b.fn("last", ":", 1, append(slices.Clone(code), end, i32(1), []byte{0x6b}, to.code)...)
			b.fn("call", ":", 1, append(slices.Clone(code), end, to.code)...)
			m := load(t, b.bytes())
			limits := Limits{MemoryBytes: 1 << 20}
			if _, err := m.Call(t.Context(), &Call{Export: "last", Limits: limits}); err != nil {
				t.Errorf("%s at the end, grown %v: %s", to.what, grown, err.(*GuestError).Detail)
			}
			for range 3 { // instances that are new, made from an image, and set back
				fails(t, m, &Call{Export: "call", Limits: limits}, want)
			}
		}
	}
}

// TestWindowsBeforeTheCall: a block of _initialize is gone in the call, however the instance was
// made, though a window was open on it.
func TestWindowsBeforeTheCall(t *testing.T) {
	for _, restores := range []bool{true, false} {
		b := &builder{}
		fn := extismFuncs(b, "alloc", "load_u8")
		b.pages(1)
		b.fn("_initialize", ":", 0, i32(0), i64(16), callFn(fn["alloc"]), []byte{0x37, 3, 0},
			i32(0), []byte{0x29, 3, 0}, callFn(fn["load_u8"]), drop)
		b.fn("call", ":", 0, i32(0), []byte{0x29, 3, 0}, callFn(fn["load_u8"]), drop)
		m := loadIn(t, openPooled(t, restores), b.bytes())
		for range 3 {
			if e := fails(t, m, &Call{Export: "call"}, abi.GuestTrap); !bytes.Contains([]byte(e.Detail), []byte("bad handle")) {
				t.Errorf("set back %v: %s", restores, e.Detail)
			}
		}
	}
}

// TestArenaIsBounded: blocks cannot have more memory than the call, whether they lie in
// the guest's or in the host's, and what was freed is used again.
func TestArenaIsBounded(t *testing.T) {
	b := &builder{}
	fn := extismFuncs(b, "alloc", "free", "load_u8", "output_set")
	b.pages(1)
	b.fn("call", ":", 0, loop(i64(1<<20), callFn(fn["alloc"]), callFn(fn["load_u8"]), drop))
	// 300 blocks of a mebibyte, one after the other.
	b.fn("again", ":", 2, i64(300), setLocal(1),
		[]byte{0x03, 0x40}, i64(1<<20), callFn(fn["alloc"]), setLocal(0),
		get(0), i64(1<<20-1), []byte{0x7c}, callFn(fn["load_u8"]), drop,
		get(0), callFn(fn["free"]),
		get(1), i64(-1), []byte{0x7c, 0x22, 1}, i64(0), []byte{0x52, 0x0d, 0, 0x0b},
		i64(1), callFn(fn["alloc"]), i64(1), callFn(fn["output_set"]))
	m := load(t, b.bytes())
	limits := Limits{MemoryBytes: 8 << 20, HostCalls: 10_000}
	e := fails(t, m, &Call{Export: "call", Limits: limits}, abi.GuestMemory)
	if e.Receipt.PeakBytes > 8<<20 || e.Receipt.PeakBytes < 7<<20 {
		t.Errorf("peak %d of 8 MiB", e.Receipt.PeakBytes)
	}
	if _, err := m.Call(t.Context(), &Call{Export: "again", Limits: limits}); err != nil {
		t.Error(err.(*GuestError).Detail)
	}
}

// TestArena: room that is taken is never taken twice, is zero, and comes together again.
func TestArena(t *testing.T) {
	b := &builder{}
	fn := extismFuncs(b, "alloc", "load_u8")
	b.pages(1)
	b.fn("call", ":", 0, i64(1), callFn(fn["alloc"]), callFn(fn["load_u8"]), drop)
	m := load(t, b.bytes())
	f := newFrame(t.Context(), m, &Call{Limits: Limits{MemoryBytes: 32 << 20, Wall: time.Minute}})
	f.startClock(time.Now(), time.Minute)
	inst, err := m.code.instantiate(f)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.close()
	inst.give(f)
	a := inst.arena
	random := rand.New(rand.NewPCG(1, 2))
	type taken struct {
		at, n int64
		fill  byte
	}
	var all []taken
	for i := range 5000 {
		if random.IntN(3) > 0 {
			n := 1 + random.Int64N(3000)
			at, ok := a.take(n)
			if !ok {
				t.Fatal("no room")
			}
			b := a.bytes(at, n)
			if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
				t.Fatal("room that is not zero")
			}
			fill := byte(i) | 1
			for j := range b {
				b[j] = fill
			}
			all = append(all, taken{at, n, fill})
		} else if len(all) > 0 {
			j := random.IntN(len(all))
			a.give(all[j].at, all[j].n)
			all = slices.Delete(all, j, j+1)
		}
		for _, x := range all {
			if b := a.bytes(x.at, x.n); b[0] != x.fill || b[x.n-1] != x.fill {
				t.Fatal("room was taken twice")
			}
		}
	}
	for _, x := range all {
		a.give(x.at, x.n)
	}
	if a.top != 0 || len(a.free) > 1 {
		t.Errorf("when nothing is taken: top %d, free %v", a.top, a.free)
	}
}

// BenchmarkEcho64K times a call that copies 64 KiB from the input to the output, eight bytes
// at a time, as Extism's plugins do.
func BenchmarkEcho64K(b *testing.B) {
	g := &builder{}
	fn := extismFuncs(g, "alloc", "input_load_u64", "store_u64", "output_set")
	g.pages(1)
	g.fn("call", ":", 2, i64(64<<10), callFn(fn["alloc"]), setLocal(0),
		[]byte{0x03, 0x40},
		get(0), get(1), []byte{0x7c}, get(1), callFn(fn["input_load_u64"]), callFn(fn["store_u64"]),
		get(1), i64(8), []byte{0x7c, 0x22, 1}, i64(64<<10), []byte{0x54, 0x0d, 0, 0x0b},
		get(0), i64(64<<10), callFn(fn["output_set"]))
	m := load(b, g.bytes())
	input := bytes.Repeat([]byte("01234567"), 8<<10)
	call := &Call{Export: "call", Input: input}
	for b.Loop() {
		reply, err := m.Call(b.Context(), call)
		if err != nil {
			b.Fatal(err)
		}
		if !bytes.Equal(reply.Output, input) {
			b.Fatalf("output %.20q", reply.Output)
		}
	}
}
