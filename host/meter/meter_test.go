package meter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// A guest is a module for tests: one function "run" of ()->(i32) beside helpers.
// It has one memory of two pages, a table of four entries and a global of its own.
type guest struct {
	funcs [][]byte // bodies with their locals; the first is "run"
	types []byte   // of funcs: 0 is ()->(i32), 1 is (i32)->(i32), 2 is ()->()
	start bool     // the last function is the start function
	traps bool     // run or the start function ends in a trap
	extra string   // another export, of function 1 (the first with a body)
}

func leb(v int) []byte { return binary.AppendUvarint(nil, uint64(v)) }

func vec(items ...[]byte) []byte { return append(leb(len(items)), slices.Concat(items...)...) }

func sec(id byte, body ...[]byte) []byte {
	b := slices.Concat(body...)
	return slices.Concat([]byte{id}, leb(len(b)), b)
}

// fn is a body with one i32 local.
func fn(code ...byte) []byte { return slices.Concat([]byte{1, 1, 0x7f}, code, []byte{0x0b}) }

func (g guest) bytes() []byte {
	var types [][]byte
	var bodies [][]byte
	for i, f := range g.funcs {
		t := byte(0)
		if i < len(g.types) {
			t = g.types[i]
		}
		types = append(types, []byte{t})
		bodies = append(bodies, append(leb(len(f)), f...))
	}
	first := 1 // function 0 is imported
	exports := [][]byte{append([]byte("\x03run\x00"), leb(first)...), []byte("\x06memory\x02\x00")}
	if g.extra != "" {
		exports = append(exports, slices.Concat(leb(len(g.extra)), []byte(g.extra), []byte{0}, leb(first)))
	}
	out := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		sec(1, vec([]byte{0x60, 0, 1, 0x7f}, []byte{0x60, 1, 0x7f, 1, 0x7f}, []byte{0x60, 0, 0})),
		sec(2, vec([]byte("\x03env\x04note\x00\x01"))), // (i32)->(i32)
		sec(3, vec(types...)),
		sec(4, vec([]byte{0x70, 0, 4})),
		sec(5, vec([]byte{1, 2, 4})),
		sec(6, vec([]byte{0x7f, 1, 0x41, 7, 0x0b}, []byte{0x70, 0, 0xd2, 1, 0x0b})),
		sec(7, vec(exports...)))
	if g.start {
		out = append(out, sec(8, leb(first+len(g.funcs)-1))...)
	}
	return slices.Concat(out,
		sec(9, vec([]byte{0, 0x41, 0, 0x0b, 2, 1, 0}, slices.Concat([]byte{1, 0, 1}, leb(first+len(g.funcs)-1)))),
		sec(12, leb(1)),
		sec(10, vec(bodies...)),
		sec(11, vec([]byte{1, 3, 'a', 'b', 'c'})))
}

// An end is how a call of "run" ended and what it left.
type end struct {
	result  []uint64
	trap    string
	notes   string // what the guest told the host
	memory  string // digest
	fuel    int64  // used, of a metered guest
	refills int
	seen    []uint64 // of a probed guest
}

// A machine runs modules in one engine.
type machine struct {
	runtime  wazero.Runtime
	compiled map[string]wazero.CompiledModule // by the module
	cur      *end
	granted  int64
	slice    int64 // fuel of a slice
	most     int64 // fuel of a call
	frames   int64
	changed  uint64 // the change of a probed guest that is on
}

var errFuel, errDepth = errors.New("out of fuel"), errors.New("out of frames")

func newMachine(t testing.TB, config wazero.RuntimeConfig) *machine {
	x := &machine{compiled: map[string]wazero.CompiledModule{}, slice: 1000, most: 1 << 40, frames: 1000}
	ctx := context.Background()
	x.runtime = wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { x.runtime.Close(ctx) })
	must := func(_ api.Module, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(x.runtime.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func(v uint32) uint32 {
		x.cur.notes += fmt.Sprintln(v)
		return v + 1
	}).Export("note").Instantiate(ctx))
	wasi_snapshot_preview1.MustInstantiate(ctx, x.runtime)
	must(x.runtime.NewHostModuleBuilder(Prefix).NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, _ []uint64) {
		g := m.ExportedGlobal(Fuel).(api.MutableGlobal)
		fuel, depth := int64(g.Get()), int64(m.ExportedGlobal(Depth).Get())
		x.cur.refills++
		if depth < 0 {
			panic(errDepth)
		}
		used := x.granted - fuel
		if used > x.most {
			x.cur.fuel = used
			panic(errFuel)
		}
		x.granted = used + min(x.slice, x.most-used)
		g.Set(uint64(x.granted - used))
	}), nil, nil).Export(Refill).Instantiate(ctx))
	return x
}

// run instantiates a module and calls its start function and "run".
func (x *machine) run(wasm []byte) (*end, error) {
	x.cur, x.granted = &end{}, 0
	ctx := context.Background()
	compiled := x.compiled[string(wasm)]
	if compiled == nil {
		var err error
		if compiled, err = x.runtime.CompileModule(ctx, wasm); err != nil {
			return nil, err
		}
		x.compiled[string(wasm)] = compiled
	}
	m, err := x.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		x.cur.trap, _, _ = strings.Cut(err.Error(), "\n")
		if _, cause, ok := strings.Cut(x.cur.trap, "failed: "); ok {
			x.cur.trap = cause // of the start function
		}
		return x.cur, nil
	}
	defer m.Close(ctx)
	call := func(f api.Function) {
		if g, ok := m.ExportedGlobal(Depth).(api.MutableGlobal); ok {
			g.Set(uint64(x.frames))
		}
		if g, ok := m.ExportedGlobal(Changed).(api.MutableGlobal); ok {
			g.Set(x.changed)
		}
		if x.cur.result, err = f.Call(ctx); err != nil {
			x.cur.trap, _, _ = strings.Cut(err.Error(), "\n")
			for _, e := range []error{errFuel, errDepth} {
				if errors.Is(err, e) {
					x.cur.trap = e.Error()
				}
			}
		}
	}
	for _, name := range []string{Start, "_initialize", "run"} {
		if f := m.ExportedFunction(name); f != nil && x.cur.trap == "" {
			call(f)
		}
	}
	if g := m.ExportedGlobal(Fuel); g != nil && x.cur.fuel == 0 {
		x.cur.fuel = x.granted - int64(g.Get())
	}
	for i := 0; m.ExportedGlobal(Seen(i)) != nil; i++ {
		x.cur.seen = append(x.cur.seen, m.ExportedGlobal(Seen(i)).Get())
	}
	if memory := m.Memory(); memory != nil {
		b, _ := memory.Read(0, memory.Size())
		x.cur.memory = fmt.Sprintf("%d %x", len(b), sha256.Sum256(b))
	}
	return x.cur, nil
}

func rewritten(t testing.TB, wasm []byte) []byte {
	t.Helper()
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Rewrite(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fib(20), a loop that sums, and what else a compiler writes.
func guests() map[string]guest {
	get, call := byte(0x20), byte(0x10)
	return map[string]guest{
		"constant":   {funcs: [][]byte{fn(0x41, 42)}},
		"host calls": {funcs: [][]byte{fn(0x41, 1, call, 0, call, 0, call, 0)}},
		"fib": {types: []byte{0, 1}, funcs: [][]byte{
			fn(0x41, 16, call, 2),
			fn(get, 0, 0x41, 2, 0x48, 0x04, 0x7f, get, 0, 0x05,
				get, 0, 0x41, 1, 0x6b, call, 2, get, 0, 0x41, 2, 0x6b, call, 2, 0x6a, 0x0b)}},
		"loop": {funcs: [][]byte{fn(0x41, 0x90, 0xce, 0, 0x21, 0, // 10000
			0x03, 0x40, 0x23, 0, get, 0, 0x6a, 0x24, 0, get, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x23, 0)}},
		"early returns": {types: []byte{0, 1}, funcs: [][]byte{
			fn(0x41, 0, call, 2, 0x41, 1, call, 2, 0x6a, 0x41, 2, call, 2, 0x6a, 0x41, 3, call, 2, 0x6a),
			// br_table: leave with 10 in four ways
			fn(0x02, 0x40, 0x02, 0x40, 0x02, 0x40, get, 0, 0x0e, 3, 0, 1, 2, 2, 0x0b, 0x41, 10, 0x0f, 0x0b, 0x41, 11, 0x0c, 1, 0x0b,
				0x41, 12, 0x41, 1, 0x0d, 0, 0x1a, 0x41, 13)}},
		"leaves from a table": {types: []byte{0, 1}, funcs: [][]byte{
			fn(0x41, 0, call, 2, 0x41, 1, call, 2, 0x6a),
			fn(0x41, 5, 0x02, 0x40, 0x41, 6, get, 0, 0x0e, 1, 1, 1, 0x0b)}},
		"indirect": {types: []byte{0, 1, 0}, funcs: [][]byte{
			// table 0 holds run and note: set entry 2 to function 2 and call entries 1 and 2
			fn(0x41, 2, 0xd2, 3, 0x26, 0, 0x41, 9, 0x41, 1, 0x11, 1, 0, 0x41, 2, 0x11, 0, 0, 0x6a),
			fn(get, 0), fn(0x41, 33)}},
		"bulk memory": {funcs: [][]byte{fn(0x41, 8, 0x41, 0, 0x41, 3, 0xfc, 8, 0, 0, // init
			0x41, 0xe4, 0, 0x41, 7, 0x41, 0xe8, 7, 0xfc, 11, 0, 0x41, 0x80, 0x20, 0x41, 0, 0x41, 0xe8, 7, 0xfc, 10, 0, 0,
			0xfc, 9, 0, 0x41, 1, 0x40, 0, 0x41, 0xff, 0xff, 3, 0x40, 0, 0x6a, 0x3f, 0, 0x6a)}},
		"bulk tables": {funcs: [][]byte{fn(0x41, 0, 0x41, 0, 0x41, 1, 0xfc, 12, 1, 0, 0xfc, 13, 1,
			0x41, 1, 0x41, 0, 0x41, 2, 0xfc, 14, 0, 0, 0xd2, 1, 0x41, 10, 0xfc, 15, 0, 0x41, 4, 0xd0, 0x70, 0x41, 3, 0xfc, 17, 0,
			0xfc, 16, 0, 0x6a)}},
		"trap in a call":       {traps: true, types: []byte{0, 2}, funcs: [][]byte{fn(0x41, 1, call, 0, call, 2), fn(0x00)}},
		"fill past the end":    {traps: true, funcs: [][]byte{fn(0x41, 0, 0x41, 0, 0x41, 0x7f, 0xfc, 11, 0, 0x41, 0)}},
		"start":                {types: []byte{0, 2}, start: true, funcs: [][]byte{fn(0x23, 0), fn(0x41, 0xe4, 0, 0x24, 0)}},
		"start traps":          {traps: true, types: []byte{0, 2}, start: true, funcs: [][]byte{fn(0x23, 0), fn(0x00)}},
		"code behind a branch": {funcs: [][]byte{fn(0x41, 3, 0x0f, 0xfc, 11, 0, 0x40, 0, 0x1a, 0xfc, 15, 0, 0x10, 0)}},
		"blocks with values":   {funcs: [][]byte{fn(0x41, 5, 0x02, 1, 0x41, 1, 0x6a, 0x03, 1, 0x41, 1, 0x6a, 0x22, 0, get, 0, 0x41, 50, 0x48, 0x0d, 0, 0x0b, 0x0b)}},
	}
}

// A metered guest does what the guest does: same results, same traps, same calls of
// the host, same memory.
func TestSameBehaviour(t *testing.T) {
	for kind, config := range map[string]wazero.RuntimeConfig{
		"compiler": wazero.NewRuntimeConfig(), "interpreter": wazero.NewRuntimeConfigInterpreter(),
	} {
		x := newMachine(t, config)
		for name, g := range guests() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				want, err := x.run(g.bytes())
				if err != nil {
					t.Fatalf("the guest itself: %v", err)
				}
				metered := rewritten(t, g.bytes())
				got, err := x.run(metered)
				if err != nil {
					t.Fatalf("metered: %v", err)
				}
				if !slices.Equal(got.result, want.result) || got.trap != want.trap || got.notes != want.notes {
					t.Errorf("metered: %+v, want %+v", got, want)
				}
				if g.traps != (got.trap != "") {
					t.Errorf("ended with %q", got.trap)
				}
				if want.memory != got.memory && want.memory != "" {
					t.Errorf("memory %s, want %s", got.memory, want.memory)
				}
				if got.fuel == 0 || got.refills == 0 {
					t.Errorf("nothing was counted: %+v", got)
				}
			})
		}
	}
}

// Fuel does not depend on the slices it is given in, nor on the engine.
func TestFuelIsTheSame(t *testing.T) {
	compiler, interpreter := newMachine(t, wazero.NewRuntimeConfig()), newMachine(t, wazero.NewRuntimeConfigInterpreter())
	for name, g := range guests() {
		metered := rewritten(t, g.bytes())
		var want *end
		for _, x := range []*machine{compiler, interpreter} {
			for _, slice := range []int64{1, 7, 1000, 1 << 30} {
				x.slice = slice
				got, err := x.run(metered)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = got
				}
				if got.trap != "" && got.fuel <= want.fuel {
					continue // what the last function did may be lacking
				}
				if got.fuel != want.fuel || got.fuel == 0 {
					t.Errorf("%s in slices of %d: fuel %d, want %d", name, slice, got.fuel, want.fuel)
				}
			}
		}
	}
}

// The count of what a run costs, by hand.
func TestFuelCounts(t *testing.T) {
	x := newMachine(t, wazero.NewRuntimeConfig())
	for _, test := range []struct {
		name string
		g    guest
		want int64
	}{
		{"one constant", guest{funcs: [][]byte{fn(0x41, 42)}}, 1},
		{"host call", guest{funcs: [][]byte{fn(0x41, 1, 0x10, 0)}}, 1 + HostCall},
		{"guest call", guest{types: []byte{0, 0}, funcs: [][]byte{fn(0x10, 2), fn(0x41, 1)}}, guestCall + 1},
		{"one way of two", guest{funcs: [][]byte{fn(0x41, 0, 0x04, 0x7f, 0x41, 1, 0x41, 2, 0x6a, 0x05, 0x41, 3, 0x0b)}}, 3},
		{"ten rounds", guest{funcs: [][]byte{fn(0x41, 10, 0x21, 0, 0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x41, 1)}}, 2 + 10*5 + 1},
		{"800 bytes", guest{funcs: [][]byte{fn(0x41, 0, 0x41, 0, 0x41, 0xa0, 6, 0xfc, 11, 0, 0x41, 1)}}, 5 + 100},
		{"a page", guest{funcs: [][]byte{fn(0x41, 1, 0x40, 0)}}, 1 + HostCall + 8192},
		{"all pages there can be", guest{funcs: [][]byte{fn(0x41, 0x7f, 0x40, 0)}}, 1 + HostCall + mostLength},
		{"entries", guest{funcs: [][]byte{fn(0xd0, 0x70, 0x41, 10, 0xfc, 15, 0)}}, 2 + HostCall + 10},
	} {
		got, err := x.run(rewritten(t, test.g.bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got.fuel != test.want || got.trap != "" {
			t.Errorf("%s: fuel %d, want %d (%s)", test.name, got.fuel, test.want, got.trap)
		}
	}
}

// doubling returns functions that call the next one twice: 2^n calls without a loop.
func doubling(n byte) guest {
	g := guest{}
	for i := range n {
		g.funcs = append(g.funcs, fn(0x10, i+2, 0x10, i+2, 0x6a))
	}
	g.funcs = append(g.funcs, fn(0x41, 1))
	return g
}

func TestStops(t *testing.T) {
	fill := []byte{0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 4, 0xfc, 11, 0} // 64 KiB
	for _, test := range []struct {
		name string
		g    guest
		most error
		over int64 // most fuel beyond the limit
	}{
		{"loop", guest{funcs: [][]byte{fn(0x03, 0x40, 0x0c, 0, 0x0b, 0x00)}}, errFuel, 10},
		{"empty loop by table", guest{funcs: [][]byte{fn(0x03, 0x40, 0x41, 0, 0x0e, 0, 0, 0x0b, 0x00)}}, errFuel, 10},
		{"calls without loops", doubling(60), errFuel, 20},
		{"fills without loops", guest{funcs: [][]byte{fn(append(slices.Repeat(fill, 2000), 0x41, 1)...)}}, errFuel, 20_000},
		{"growing without loops", guest{funcs: [][]byte{fn(append(slices.Repeat([]byte{0x41, 0, 0x40, 0, 0x1a}, 20_000), 0x41, 1)...)}}, errFuel, 3 << 20},
		{"recursion", guest{funcs: [][]byte{fn(0x10, 1)}}, errDepth, 0},
		{"recursion through the table", guest{funcs: [][]byte{fn(0x41, 0, 0x11, 0, 0)}}, errDepth, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newMachine(t, wazero.NewRuntimeConfig())
			x.most = 1_000_000
			got, err := x.run(rewritten(t, test.g.bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if got.trap != test.most.Error() {
				t.Fatalf("ended with %+v, want %v", got, test.most)
			}
			if got.fuel > x.most+test.over {
				t.Errorf("fuel %d, want at most %d", got.fuel, x.most+test.over)
			}
		})
	}
}

// A frame counts by its size, and a function that calls none is not counted.
func TestDepth(t *testing.T) {
	deep := func(locals byte, more ...byte) guest {
		return guest{types: []byte{0, 1}, funcs: [][]byte{fn(0x41, 0xe3, 0, 0x10, 2),
			slices.Concat([]byte{1, locals, 0x7f}, []byte{0x20, 0, 0x45, 0x04, 0x40, 0x41, 1, 0x0f, 0x0b, 0x20, 0, 0x41, 1, 0x6b, 0x10, 2}, more, []byte{0x0b})}}
	}
	for _, test := range []struct {
		name   string
		g      guest
		frames int64
	}{
		{"100 calls", deep(1), 101}, // and run itself
		{"100 calls of frames of two", deep(31), 201},
		{"100 calls of frames of three", deep(63), 301},
	} {
		x := newMachine(t, wazero.NewRuntimeConfig())
		for _, frames := range []int64{test.frames, test.frames - 1} {
			x.frames = frames
			got, err := x.run(rewritten(t, test.g.bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if stopped := got.trap == errDepth.Error(); stopped != (frames < test.frames) {
				t.Errorf("%s in %d frames: %+v", test.name, frames, got)
			}
		}
	}
}

func TestRewriteRefuses(t *testing.T) {
	base := guest{funcs: [][]byte{fn(0x41, 1)}}
	reserved, inner := base, base
	reserved.extra, inner.extra = Fuel, Prefix
	body := func(code ...byte) []byte { return guest{funcs: [][]byte{fn(code...)}}.bytes() }
	for _, test := range []struct {
		name, text string
		wasm       []byte
	}{
		{"export", "reserved", reserved.bytes()},
		{"export of the prefix", "reserved", inner.bytes()},
		{"import", "reserved", []byte("\x00asm\x01\x00\x00\x00" + string(sec(1, vec([]byte{0x60, 2, 0x7e, 0x7e, 1, 0x7e}))) +
			string(sec(2, vec([]byte("\x0esandboxd:meter\x06refill\x00\x00")))))},
		{"fuel global", "names global 2 of 2", body(0x42, 0, 0x24, 2)},
		{"depth global", "names global 3 of 2", body(0x42, 0, 0x24, 3)},
		{"fuel local", "names local 1 of 1", body(0x42, 0, 0x21, 1)},
		{"function behind the last", "names function 2 of 2", body(0x10, 2)},
		{"reference behind the last", "names function 2 of 2", body(0xd2, 2)},
		{"type of refill", "names type 3 of 3", body(0x11, 3, 0)},
		{"block type of refill", "names type 3 of 3", body(0x02, 3, 0x0b)},
		{"tail call", "tail calls", body(0x12, 0)},
		{"reference to what is not declared", "not declared", guest{types: []byte{0, 0, 0}, funcs: [][]byte{fn(0xd2, 2, 0x1a, 0x41, 0), fn(0x41, 0), fn(0x41, 0)}}.bytes()},
		{"start function with a result", "() -> (i32)", guest{start: true, funcs: [][]byte{fn(0x41, 0)}}.bytes()},
	} {
		m, err := wasmbin.Decode(test.wasm)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		out, err := Rewrite(m)
		if e, ok := errors.AsType[*wasmbin.Error](err); !ok || !strings.Contains(e.Text, test.text) || out != nil {
			t.Errorf("%s: error %v, want %q", test.name, err, test.text)
		}
	}
}

// Tables get a maximum, so that all of them together stay within the cap.
func TestTableGrows(t *testing.T) {
	x := newMachine(t, wazero.NewRuntimeConfig())
	grow := func(n int) guest {
		return guest{funcs: [][]byte{fn(slices.Concat([]byte{0xd0, 0x70, 0x41}, s64(nil, int64(n)), []byte{0xfc, 15, 0})...)}}
	}
	for _, test := range []struct{ by, want int }{
		{wasmbin.MaxTableEntries - 4, 4}, {wasmbin.MaxTableEntries - 3, -1}, {1 << 30, -1},
	} {
		got, err := x.run(rewritten(t, grow(test.by).bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.result) != 1 || int32(got.result[0]) != int32(test.want) {
			t.Errorf("growing by %d: %+v, want %d", test.by, got, test.want)
		}
	}
}

func TestMergeData(t *testing.T) {
	segment := func(at int64, data string) []byte {
		return slices.Concat([]byte{0}, s64([]byte{0x41}, at), []byte{0x0b}, leb(len(data)), []byte(data))
	}
	for _, test := range []struct {
		name     string
		segments [][]byte
		want     int
	}{
		{"close", [][]byte{segment(0, "ab"), segment(10, "cd"), segment(76, "e")}, 1},
		{"touching", [][]byte{segment(8, "ab"), segment(10, "cd")}, 1},
		{"far", [][]byte{segment(0, "ab"), segment(67, "cd"), segment(70, "e")}, 2},
		{"overlapping", [][]byte{segment(0, "abc"), segment(2, "X")}, 2},
		{"another order", [][]byte{segment(100, "a"), segment(0, "b"), segment(50, "c")}, 1},
		{"past the end", [][]byte{segment(0, "a"), segment(65536, "b")}, 2},
		{"empty", [][]byte{segment(0, ""), segment(5, "b"), segment(9, "")}, 1},
		{"high address", [][]byte{segment(-1, "a")}, 1},
	} {
		wasm := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), sec(1, vec([]byte{0x60, 0, 1, 0x7f})), sec(3, []byte{1, 0}),
			sec(5, vec([]byte{0, 1})), sec(7, vec([]byte("\x03run\x00\x00"), []byte("\x06memory\x02\x00"))),
			sec(10, vec(append(leb(len(fn(0x41, 1))), fn(0x41, 1)...))), sec(11, vec(test.segments...)))
		metered := rewritten(t, wasm)
		m, err := wasmbin.Decode(metered)
		if err != nil {
			t.Fatal(err)
		}
		if m.Data != test.want {
			t.Errorf("%s: %d segments, want %d", test.name, m.Data, test.want)
		}
		x := newMachine(t, wazero.NewRuntimeConfig())
		want, err := x.run(wasm)
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.run(metered)
		if err != nil {
			t.Fatal(err)
		}
		if got.memory != want.memory || got.trap != want.trap {
			t.Errorf("%s: %+v, want %+v", test.name, got, want)
		}
	}
}

// The names of functions stay with their functions, so a trace names the guest's, as its author
// numbers them; a name cannot pretend to be a frame.
func TestNames(t *testing.T) {
	g := guest{types: []byte{0, 2}, funcs: [][]byte{fn(0x10, 2, 0x41, 0), fn(0x00)}}
	named, err := wasmbin.SetCustom(g.bytes(), "name", slices.Concat([]byte{0, 2, 1, 'm', 1, 21, 2},
		[]byte("\x00\x01a"), []byte("\x02\x0ffails\n\t.0 \"x\"()")))
	if err != nil {
		t.Fatal(err)
	}
	x := newMachine(t, wazero.NewRuntimeConfig())
	x.cur = &end{}
	m, err := x.runtime.Instantiate(t.Context(), rewritten(t, named))
	if err != nil {
		t.Fatal(err)
	}
	m.ExportedGlobal(Depth).(api.MutableGlobal).Set(10)
	_, err = m.ExportedFunction("run").Call(t.Context())
	bin, bad := wasmbin.Decode(named)
	if err == nil || bad != nil {
		t.Fatal(err, bad)
	}
	want := []Frame{{2, "fails\n\t.0 \"x\"()"}, {1, "run"}}
	if got := slices.Collect(SpaceOf(bin).Frames(err)); !slices.Equal(got, want) {
		t.Errorf("frames %+v, want %+v, of %v", got, want, err)
	}
	if got := slices.Collect(Space{}.Frames(errors.New("no trace"))); len(got) > 0 {
		t.Errorf("frames %+v", got)
	}
}

// However long a name is, and however much longer it gets when it is quoted, what the engine is given of it is
// bounded, and what can be read of it is its beginning.
func TestLongNames(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"main.spin", `"main.spin"`},
		{strings.Repeat("x", 254), `"` + strings.Repeat("x", 254) + `"`},
		{strings.Repeat("x", 255), `"` + strings.Repeat("x", 254) + `"`},
		{strings.Repeat("\xff", 256), `"` + strings.Repeat(`\xff`, 63) + `"`},
		{strings.Repeat("x", 253) + "\n", `"` + strings.Repeat("x", 253) + `"`},
		{strings.Repeat("x", 252) + "é!", `"` + strings.Repeat("x", 252) + `é"`},
		{strings.Repeat("x", 253) + "é!", `"` + strings.Repeat("x", 253) + `"`},
		{strings.Repeat("\U000e0001", 100), `"` + strings.Repeat(`\U000e0001`, 25) + `"`},
	} {
		got := quote(c.name)
		if got != c.want || len(got) > maxName {
			t.Errorf("%.20q…, %d bytes: %d bytes %s, want %d bytes %s", c.name, len(c.name), len(got), got, len(c.want), c.want)
		}
		if text, err := strconv.Unquote(got); err != nil || !strings.HasPrefix(c.name, text) {
			t.Errorf("%s: %q, %v", got, text, err)
		}
	}
}

// FuzzRewrite: what the engine accepts is still accepted when it is metered, and
// what it refuses stays refused, so no code can name what was added.
func FuzzRewrite(f *testing.F) {
	for _, g := range guests() {
		f.Add(g.funcs[0])
	}
	f.Add(fn(0x42, 0, 0x24, 2))
	agree := agreement()
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) <= 1000 {
			agree(t, guest{types: []byte{0, 1, 2}, funcs: [][]byte{body, fn(0x20, 0), fn()}}.bytes())
		}
	})
}

// FuzzRewriteModule is the same of whole modules.
func FuzzRewriteModule(f *testing.F) {
	for _, g := range guests() {
		f.Add(g.bytes())
	}
	agree := agreement()
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Decode(wasm)
		if err != nil || len(wasm) > 10_000 {
			return
		}
		// Of custom sections the rewritten module keeps names of functions alone, and the
		// engine refuses more of them than matters.
		agree(t, m.WithoutCustom("-"))
	})
}

// agreement returns a check that the engine judges a module as it does the metered one.
func agreement() func(t *testing.T, wasm []byte) {
	runtime := wazero.NewRuntimeWithConfig(context.Background(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	compiles := func(wasm []byte) (err error) {
		defer func() { // its validation trusts some indexes
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		compiled, err := runtime.CompileModule(context.Background(), wasm)
		if err == nil {
			compiled.Close(context.Background())
		}
		return err
	}
	return func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			return
		}
		out, err := Rewrite(m)
		engine := compiles(wasm)
		if err != nil {
			// The engine takes some encodings that the specification does not, and names that are ours.
			if engine == nil && !strings.Contains(err.Error(), "integer is longer") && !strings.Contains(err.Error(), "opcode of instruction") &&
				!strings.Contains(err.Error(), "the name is reserved") {
				t.Fatalf("the engine accepts what Rewrite refuses: %v", err)
			}
			return
		}
		if metered := compiles(out); (metered == nil) != (engine == nil) {
			t.Fatalf("the engine's error is %v, of the metered module %v", engine, metered)
		}
	}
}
