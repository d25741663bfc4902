package meter

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// Every block that the core suite's valid modules leave by its end leaves as many operands
// as its type says, so what instructions take and leave is known of all of them.
func TestHeights(t *testing.T) {
	runtime := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { runtime.Close(context.Background()) })
	met := map[wasmbin.Op]bool{}
	err := filepath.WalkDir(filepath.Join(suiteDir(t), "v2"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".wasm" {
			return err
		}
		wasm, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			return nil
		}
		if c, err := runtime.CompileModule(t.Context(), wasm); err != nil {
			return nil
		} else {
			c.Close(t.Context())
		}
		b := &body{rewriter: newRewriter(m)}
		for i, source := range m.Bodies() {
			b.prepare(m.Types[m.Functions[i]], source)
			dead := []bool{false} // by open block: its code here cannot be reached
			for s := source.Instructions(); s.Next(); {
				in := s.Instruction()
				met[in.Op] = true
				here := len(dead) - 1
				if in.Op == wasmbin.OpEnd || in.Op == wasmbin.OpElse {
					if top := b.blocks[here]; !dead[here] && b.size.height != top.base+top.results {
						t.Fatalf("%s: function %d: %d operands at byte %d, want %d", filepath.Base(path), i, b.size.height, in.Start, top.base+top.results)
					}
				}
				b.follow(in)
				b.instruction(in)
				switch in.Op {
				case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
					dead = append(dead, dead[here])
				case wasmbin.OpElse:
					dead[here] = here > 0 && dead[here-1]
				case wasmbin.OpEnd:
					dead = dead[:here]
				case wasmbin.OpBr, wasmbin.OpBrTable, wasmbin.OpReturn, wasmbin.OpUnreachable:
					dead[here] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(met) < 430 {
		t.Errorf("%d instructions were met", len(met))
	}
}

// A frame counts each value that needs a slot, and what needs none does not make it larger.
func TestFrameCountsValues(t *testing.T) {
	const n = 320
	push, add, call, drop := []byte{0x20, 0}, []byte{0x6a}, []byte{0x10, 1, 0x1a}, []byte{0x1a} // function 1 is ()->(i32)
	sum := func(n int) []byte { return append(bytes.Repeat(add, n-1), drop...) }
	repeat := func(n int, code ...byte) []byte { return bytes.Repeat(code, n) }
	write := []byte{0x20, 0, 0x67, 0x21, 0} // local 0 counted anew
	vector := slices.Concat([]byte{0xfd, 12}, make([]byte, 16), drop)
	for _, test := range []struct {
		name string
		code []byte
		want int64
	}{
		{"nothing", nil, 0},
		{"operands below a call", slices.Concat(bytes.Repeat(push, n), call, sum(n)), n},
		{"operands without a call", slices.Concat(bytes.Repeat(push, n), sum(n)), n - 1},
		{"operands one after the other", repeat(n, 0x20, 0, 0x1a), 0},
		{"few operands below each call", bytes.Repeat(slices.Concat(push, push, push, push, call, sum(4)), n/4), n},
		{"results of calls", slices.Concat(repeat(n, 0x10, 1), sum(n)), n - 1},
		{"a loop above operands", slices.Concat(bytes.Repeat(push, 8), []byte{3, 0x40, 0x0b}, sum(8)), 8},
		{"values of a local behind calls", bytes.Repeat(slices.Concat(write, call), n), n - 1},
		{"values of a local between calls", slices.Concat(bytes.Repeat(write, n), call), 0},
		{"one value behind many calls", slices.Concat(write, bytes.Repeat(call, n), push, drop, call, push, drop), 1},
		{"values met behind ifs", slices.Concat(repeat(n, 0x20, 0, 0x04, 0x40), write, bytes.Repeat(slices.Concat(call, []byte{0x0b}), n), call, push, drop), n},
		{"vectors", slices.Concat(vector, bytes.Repeat(push, n), call, sum(n)), 2*n + 2},
		{"code that is not reached", slices.Concat([]byte{0x00}, bytes.Repeat(add, n), drop, drop), 0},
	} {
		g := guest{types: []byte{2, 0}, funcs: [][]byte{fn(test.code...), fn(0x41, 0)}}
		m, err := wasmbin.Decode(bytes.ReplaceAll(g.bytes(), []byte{0x10, 1}, []byte{0x10, 2}))
		if err != nil {
			t.Fatal(err)
		}
		b := &body{rewriter: newRewriter(m)}
		for i, source := range m.Bodies() {
			if i > 0 {
				break
			}
			if err := b.write(m.Types[m.Functions[i]], source); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			got, code := b.size.slots, source.End-source.Code
			if b.size.wide {
				got = 2*got + 2 // the local as well
			}
			if got < test.want || got > test.want+test.want/10 {
				t.Errorf("%s: %d values, want %d", test.name, got, test.want)
			}
			if want := 1 + (test.want+1)/frameSlots + int64(code)/frameCode; b.size.size(code) < want {
				t.Errorf("%s: the frame counts %d, want %d", test.name, b.size.size(code), want)
			}
		}
	}
}
