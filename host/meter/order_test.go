package meter

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// ways are those that the value of an "and" takes to the right side of an order with 0: code that computes 0 < x & y, say, as
// an i32, of code that computes x & y, the order, a zero, and the type. Local 2 is free, and local 3 is 0.
var ways = []struct {
	name string
	code func(and, order, zero []byte, t byte) []byte
}{
	{"in place", func(and, order, zero []byte, t byte) []byte { return slices.Concat(zero, and, order) }},
	{"by a local", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(and, []byte{0x21, 2}, zero, []byte{0x20, 2}, order)
	}},
	{"by a local that is kept on the stack", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, and, []byte{0x22, 2}, order)
	}},
	{"both by locals", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(and, []byte{0x21, 2, 0x20, 3, 0x20, 2}, order)
	}},
	{"by the end of a block", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, []byte{0x02, t}, and, []byte{0x0b}, order)
	}},
	{"by a branch", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, []byte{0x02, t}, and, []byte{0x0c, 0, 0x0b}, order)
	}},
	{"below what comes and goes", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, and, zero, []byte{0x1a}, order)
	}},
	{"below what is kept", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, and, zero, []byte{0x21, 2}, order)
	}},
	{"below a block", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, and, []byte{0x02, 0x40, 0x0b}, order)
	}},
	{"below nothing at all", func(and, order, zero []byte, t byte) []byte {
		return slices.Concat(zero, and, []byte{0x01}, order)
	}},
	{"as the left operand", func(and, order, zero []byte, t byte) []byte { return slices.Concat(and, zero, order) }},
}

// A branch on an order of 0 and x & y goes where WebAssembly says, in every form that the compiler sees through.
func TestOrderOfZero(t *testing.T) {
	ctx := context.Background()
	interpreter := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer interpreter.Close(ctx)
	compiler := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig())
	defer compiler.Close(ctx)
	for _, r := range []wazero.Runtime{interpreter, compiler} {
		_, err := r.NewHostModuleBuilder(Prefix).NewFunctionBuilder().WithFunc(func() {}).Export(Refill).Instantiate(ctx)
		if err != nil {
			t.Fatal(err)
		}
	}
	hidden := 0
	wrong := 0 // of what the engine makes of modules as they are
	for _, way := range ways {
		for op := byte(0x48); op <= 0x5a; op++ {
			typ, and, zero := byte(wasmbin.I32), byte(opI32And), byte(wasmbin.OpI32Const)
			if op > 0x4f {
				typ, and, zero = byte(wasmbin.I64), opI64And, byte(wasmbin.OpI64Const)
			}
			if !orders(wasmbin.Op(op)) {
				continue
			}
			computes := way.code([]byte{0x20, 0, 0x20, 1, and}, []byte{op}, []byte{zero, 0}, typ)
			for name, code := range map[string][]byte{
				"if":    slices.Concat(computes, []byte{0x04, 0x40, 0x41, 1, 0x0f, 0x0b, 0x41, 0}),
				"br_if": slices.Concat([]byte{0x02, 0x40}, computes, []byte{0x0d, 0, 0x41, 0, 0x0f, 0x0b, 0x41, 1}),
			} {
				name = fmt.Sprintf("%s, %s, %s", way.name, wasmbin.Op(op), name)
				wasm := orderModule(code, typ)
				m, err := wasmbin.Decode(wasm)
				if err != nil {
					t.Fatal(name, err)
				}
				metered, err := Rewrite(m)
				if err != nil {
					t.Fatal(name, err)
				}
				or := []byte{zero, 0, and + 1}
				if n := bytes.Count(metered, or); way.name == "as the left operand" {
					hidden += n
				}
				for _, args := range [][]uint64{{3, 2}, {4, 2}, {1<<63 | 1<<31, 1<<63 | 1<<31}} {
					want := runOrder(t, interpreter, wasm, args)
					if runOrder(t, compiler, wasm, args) != want {
						wrong++
					}
					if got := runOrder(t, compiler, metered, args); got != want {
						t.Errorf("%s of %d: metered %d, want %d", name, args, got, want)
					}
					if got := runOrder(t, interpreter, metered, args); got != want {
						t.Errorf("%s of %d: metered and interpreted %d, want %d", name, args, got, want)
					}
				}
			}
		}
	}
	// What is wrong on arm64 alone: 4 orders of 2 types, in 2 branches.
	if hidden != 16 {
		t.Errorf("%d of the orders without a sign hide an and on their left, want 16", hidden)
	}
	if runtime.GOARCH == "amd64" && wrong == 0 {
		t.Error("the compiler goes by x & y < 0 no more: order.go has done its work, and can go")
	}
}

// orderModule exports run, with two parameters and two locals of a type, and an i32 for a result.
func orderModule(code []byte, typ byte) []byte {
	body := slices.Concat([]byte{1, 2, typ}, code, []byte{0x0b})
	out := section([]byte("\x00asm\x01\x00\x00\x00"), 1, []byte{1, 0x60, 2, typ, typ, 1, 0x7f})
	out = section(section(out, 3, []byte{1, 0}), 7, append(name([]byte{1}, "run"), 0, 0))
	return section(out, 10, append(u32([]byte{1}, uint32(len(body))), body...))
}

func runOrder(t *testing.T, r wazero.Runtime, wasm []byte, args []uint64) uint64 {
	t.Helper()
	ctx := context.Background()
	m, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(ctx)
	if g := m.ExportedGlobal(Fuel); g != nil {
		g.(interface{ Set(uint64) }).Set(1 << 30)
	}
	got, err := m.ExportedFunction("run").Call(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(uint32(got[0]))
}
