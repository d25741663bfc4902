package meter

import (
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// everything returns a probe of all functions with all changes that a module can have.
func everything(t testing.TB, m *wasmbin.Module) Probe {
	t.Helper()
	p := Probe{Watch: func(int) bool { return true }}
	for _, b := range m.Bodies() {
		s := b.Instructions()
		for s.Next() {
			for _, to := range []Turn{Swap, Invert, Never, Always, More, Less} {
				if in := s.Instruction(); to.Turns(in.Op) {
					p.Changes = append(p.Changes, Change{in.Start, to})
				}
			}
		}
	}
	return p
}

func probed(t testing.TB, wasm []byte, p func(*wasmbin.Module) Probe) ([]byte, []Block) {
	t.Helper()
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	out, blocks, err := RewriteProbed(m, p(m))
	if err != nil {
		t.Fatal(err)
	}
	return out, blocks
}

// A probed guest does what the metered one does and uses the same fuel, as long as no
// change is on.
func TestProbedBehaves(t *testing.T) {
	all := guests()
	modules := map[string][]byte{"in Go": goModule(t)}
	for name, g := range all {
		modules[name] = g.bytes()
	}
	x := newMachine(t, wazero.NewRuntimeConfigInterpreter())
	for name, wasm := range modules {
		want, err := x.run(rewritten(t, wasm))
		if err != nil {
			t.Fatal(err)
		}
		out, blocks := probed(t, wasm, func(m *wasmbin.Module) Probe { return everything(t, m) })
		got, err := x.run(out)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		seen := 0
		for i := range blocks {
			if got.seen[i/64]&(1<<(i%64)) != 0 {
				seen++
			}
		}
		if seen == 0 && want.fuel > 0 {
			t.Errorf("%s: nothing was seen of %d blocks", name, len(blocks))
		}
		got.seen = nil
		if !slices.Equal(got.result, want.result) || got.trap != want.trap || got.notes != want.notes || got.memory != want.memory || got.fuel != want.fuel || got.refills != want.refills {
			t.Errorf("%s: probed %+v, want %+v", name, got, want)
		}
	}
}

// Each turn changes what it says, and nothing else is on at the same time.
func TestTurns(t *testing.T) {
	x := newMachine(t, wazero.NewRuntimeConfig())
	ifelse := []byte{0x04, 0x7f, 0x41, 10, 0x05, 0x41, 20, 0x0b}
	compare := func(op byte, a, b byte) []byte { return fn(slices.Concat([]byte{0x41, a, 0x41, b, op}, ifelse)...) }
	for _, test := range []struct {
		name   string
		body   []byte
		op     wasmbin.Op // that is changed
		to     Turn
		before uint64
		want   uint64
	}{
		{"less", compare(0x48, 3, 3), 0x48, Swap, 20, 10},
		{"less, and is", compare(0x48, 2, 3), 0x48, Swap, 10, 10},
		{"less or equal", compare(0x4c, 3, 3), 0x4c, Swap, 10, 20},
		{"greater, unsigned", compare(0x4b, 3, 3), 0x4b, Swap, 20, 10},
		{"equal", compare(0x46, 3, 3), 0x46, Swap, 10, 20},
		{"long", fn(slices.Concat([]byte{0x42, 3, 0x42, 3, 0x53}, ifelse)...), 0x53, Swap, 20, 10},
		{"double", fn(slices.Concat([]byte{0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0x63}, ifelse)...), 0x63, Swap, 20, 10},
		{"zero", fn(slices.Concat([]byte{0x41, 0, 0x45}, ifelse)...), 0x45, Swap, 10, 20},
		{"long zero", fn(slices.Concat([]byte{0x42, 1, 0x50}, ifelse)...), 0x50, Swap, 20, 10},
		{"if inverted", compare(0x48, 3, 3), wasmbin.OpIf, Invert, 20, 10},
		{"if never", compare(0x48, 2, 3), wasmbin.OpIf, Never, 10, 20},
		{"if never, and is not", compare(0x48, 3, 3), wasmbin.OpIf, Never, 20, 20},
		{"if always", compare(0x48, 3, 3), wasmbin.OpIf, Always, 20, 10},
		{"a condition of 2 inverted", fn(slices.Concat([]byte{0x41, 2}, ifelse)...), wasmbin.OpIf, Invert, 10, 20},
		{"br_if", fn(0x02, 0x7f, 0x41, 1, 0x41, 5, 0x0d, 0, 0x1a, 0x41, 2, 0x0b), wasmbin.OpBrIf, Never, 1, 2},
		{"select", fn(0x41, 1, 0x41, 2, 0x41, 4, 0x1b), wasmbin.OpSelect, Invert, 1, 2},
		{"constant", fn(0x41, 7), wasmbin.OpI32Const, More, 7, 8},
		{"long constant", fn(0x42, 0x7f, 0x50), wasmbin.OpI64Const, More, 0, 1},
		{"constant, one less", fn(0x41, 7), wasmbin.OpI32Const, Less, 7, 6},
		{"long constant, one less", fn(0x42, 1, 0x50), wasmbin.OpI64Const, Less, 0, 1},
		{"constant of zero, one less", fn(0x41, 0, 0x41, 0x7f, 0x46), wasmbin.OpI32Const, Less, 0, 1},
	} {
		wasm := guest{funcs: [][]byte{test.body}}.bytes()
		out, _ := probed(t, wasm, func(m *wasmbin.Module) Probe {
			p := Probe{Changes: []Change{{0, test.to}}} // of no instruction
			for _, b := range m.Bodies() {
				for s := b.Instructions(); s.Next(); {
					if in := s.Instruction(); in.Op == test.op {
						p.Changes = append(p.Changes, Change{in.Start, test.to})
					}
				}
			}
			return p
		})
		for changed, want := range []uint64{test.before, test.before, test.want} {
			x.changed = uint64(changed)
			got, err := x.run(out)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if !slices.Equal(got.result, []uint64{want}) {
				t.Errorf("%s: change %d: got %v, want %d (%s)", test.name, changed, got.result, want, got.trap)
			}
		}
	}
}

// Blocks are noted where they begin, and only those.
func TestBlocks(t *testing.T) {
	x := newMachine(t, wazero.NewRuntimeConfig())
	g := guest{types: []byte{0, 1}, funcs: [][]byte{
		fn(0x41, 0, 0x10, 2),
		fn(0x20, 0, 0x04, 0x7f, 0x41, 1, 0x0f, 0x05, 0x41, 2, 0x0b)}}
	out, blocks := probed(t, g.bytes(), func(*wasmbin.Module) Probe { return Probe{Watch: func(f int) bool { return f == 1 }} })
	got, err := x.run(out)
	if err != nil {
		t.Fatal(err)
	}
	// The function itself, what holds and what does not.
	if len(blocks) != 3 || got.seen[0] != 0b101 {
		t.Errorf("blocks %+v, seen %b", blocks, got.seen)
	}
	for i, b := range blocks {
		if b.Function != 1 || b.End <= b.Start || i > 0 && b.Start < blocks[i-1].End {
			t.Errorf("block %d: %+v", i, b)
		}
	}
}
