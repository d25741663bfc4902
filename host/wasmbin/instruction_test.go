package wasmbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// around returns a module whose one function has that code; it has two of
// everything that an instruction can name.
func around(code ...byte) []byte {
	body := with([]byte{1, 2, 0x7e}, code, []byte{0x0b})
	return []byte(header8 +
		sec(1, 2, 0x60, 0, 0, 0x60, 0, 0) +
		sec(3, 2, 0, 1) +
		sec(4, 2, 0x70, 1, 1, 2, 0x70, 1, 1, 2) +
		sec(5, 1, 1, 1, 4) +
		sec(6, 2, 0x7f, 1, 0x41, 0, 0x0b, 0x7f, 1, 0x41, 0, 0x0b) +
		sec(7, 2, 1, 'f', 0, 0, 1, 'g', 0, 1) +
		sec(9, 2, 1, 0, 0, 1, 0, 0) +
		sec(12, 2) +
		sec(10, with([]byte{2, 2, 0, 0x0b}, binary.AppendUvarint(nil, uint64(len(body))), body)...) +
		sec(11, 2, 1, 0, 1, 0))
}

// read decodes a module and reads the instructions of its last body.
func read(t testing.TB, module []byte) ([]Instruction, error) {
	t.Helper()
	m, err := Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	var all []Instruction
	for i, b := range m.Bodies() {
		if i != len(m.Functions)-1 {
			continue
		}
		s := b.Instructions()
		at := b.Code
		for s.Next() {
			in := s.Instruction()
			if in.Start != at || in.Operands <= in.Start || in.End < in.Operands || in.End > b.End {
				t.Fatalf("instruction at %d: %+v, body %+v", at, in, b)
			}
			at = in.End
			all = append(all, *in)
		}
		if err := s.Err(); err != nil {
			return all, err
		}
		if at != b.End || s.Depth() != 0 {
			t.Fatalf("body ends at %d, was read to %d, depth %d", b.End, at, s.Depth())
		}
	}
	return all, nil
}

// Every opcode that there can be is known here if, and only if, the engine knows
// it, with the same length of what follows.
func TestInstructionsAgreeWithEngine(t *testing.T) {
	runtime := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { runtime.Close(t.Context()) })
	immediates := map[shape][][]byte{
		unknown: {{}, {0}, {0, 0}, {0x7f}, {0x40, 0}}, bare: {{}}, block: {{0x40}, {0x7f}, {0x7b}, {0x6f}, {0}, {1}},
		label: {{0}}, table: {{0, 0}, {2, 0, 0, 0}, {0x82, 0, 0, 0, 0}}, indirect: {{0, 0}, {1, 1}}, index: {{0}, {1}, {0x81, 0}},
		twice: {{0, 0}, {1, 1}}, typed: {{1, 0x7f}, {1, 0x70}}, memarg: {{0, 0}, {0, 0xff, 0xff, 3}}, zero: {{0}},
		zeros: {{0, 0}}, segment: {{0, 0}, {1, 0}}, const32: {{0}, {0x7f}, {0x80, 0x80, 0x80, 0x80, 0x78}},
		const64: {{0}, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}}, four: {{1, 2, 3, 4}},
		eight: {{1, 2, 3, 4, 5, 6, 7, 8}}, sixteen: {make([]byte, 16)}, heap: {{0x70}, {0x6f}}, lane: {{0}, {1}}, memlane: {{0, 0, 1}},
	}
	var ops []Op
	for op := range Op(0x100) {
		if op != 0xfc && op != 0xfd {
			ops = append(ops, op)
		}
		ops = append(ops, 0xfc00|op, 0xfd00|op)
	}
	for _, op := range ops {
		var code []byte
		as := unknown
		switch {
		case op < 0x100:
			code, as = []byte{byte(op)}, shapes[op]
		case op>>8 == 0xfc:
			code = binary.AppendUvarint([]byte{0xfc}, uint64(op&0xff))
			if int(op&0xff) < len(shapesFC) {
				as = shapesFC[op&0xff]
			}
		default:
			code, as = binary.AppendUvarint([]byte{0xfd}, uint64(op&0xff)), shapesFD[op&0xff]
		}
		for _, imm := range immediates[as] {
			// On the stack behind unreachable lies whatever an instruction wants.
			inner := slices.Concat([]byte{0x00}, code, imm)
			switch op {
			case OpBlock, OpLoop:
				inner = append(inner, 0x00, 0x0b)
			case OpIf:
				inner = append(inner, 0x00, 0x05, 0x00, 0x0b)
			case OpElse:
				inner = slices.Concat([]byte{0x00, 0x04, 0x40, 0x00}, code, []byte{0x00, 0x0b})
			case OpEnd:
				inner = slices.Concat([]byte{0x02, 0x40, 0x00}, code)
			}
			module := around(append(inner, 0x00)...)
			compiled, engineErr := runtime.CompileModule(t.Context(), module)
			if engineErr == nil {
				compiled.Close(t.Context())
			}
			all, err := read(t, module)
			if (err == nil) != (engineErr == nil) {
				t.Errorf("%s % x: error %v, the engine's %v", op, imm, err, engineErr)
			}
			if err != nil {
				continue
			}
			if !slices.ContainsFunc(all, func(in Instruction) bool { return in.Op == op }) {
				t.Errorf("%s % x: was read as %+v", op, imm, all)
			}
		}
	}
}

func TestInstructionImmediates(t *testing.T) {
	tests := []struct {
		name string
		code []byte
		want Instruction // Op, Index, Index2, HasType, Result
	}{
		{"block of nothing", []byte{0x02, 0x40, 0x0b}, Instruction{Op: OpBlock}},
		{"block of a value", []byte{0x02, 0x7b, 0x00, 0x0b}, Instruction{Op: OpBlock, Result: V128}},
		{"loop of a type", []byte{0x03, 1, 0x0b}, Instruction{Op: OpLoop, HasType: true, Index: 1}},
		{"block of a padded type", []byte{0x02, 0x81, 0x80, 0, 0x0b}, Instruction{Op: OpBlock, HasType: true, Index: 1}},
		{"call", []byte{0x10, 0x81, 0}, Instruction{Op: OpCall, Index: 1}},
		{"call_indirect", []byte{0x11, 3, 7}, Instruction{Op: OpCallIndirect, Index: 3, Index2: 7}},
		{"ref.func", []byte{0xd2, 9}, Instruction{Op: OpRefFunc, Index: 9}},
		{"ref.null", []byte{0xd0, 0x6f}, Instruction{Op: OpRefNull, Result: ExternRef}},
		{"select", []byte{0x1c, 1, 0x7c}, Instruction{Op: OpSelectType, Result: F64}},
		{"global.set", []byte{0x24, 5}, Instruction{Op: OpGlobalSet, Index: 5}},
		{"load", []byte{0x29, 3, 0x80, 1}, Instruction{Op: 0x29, Index: 128}},
		{"memory.init", []byte{0xfc, 8, 4, 0}, Instruction{Op: OpMemoryInit, Index: 4}},
		{"table.copy", []byte{0xfc, 14, 1, 2}, Instruction{Op: OpTableCopy, Index: 1, Index2: 2}},
		{"table.init", []byte{0xfc, 12, 1, 2}, Instruction{Op: OpTableInit, Index: 1, Index2: 2}},
		{"v128.load lane", []byte{0xfd, 0x54, 0, 6, 15}, Instruction{Op: 0xfd54, Index: 6}},
		{"br_table", []byte{0x02, 0x40, 0x0e, 2, 0, 1, 1, 0x0b}, Instruction{Op: OpBrTable, Index: 1, Index2: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all, err := read(t, around(test.code...))
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(all, func(in Instruction) bool { return in.Op == test.want.Op })
			got := all[at]
			if got.Index != test.want.Index || got.Index2 != test.want.Index2 || got.HasType != test.want.HasType || got.Result != test.want.Result {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if got.Op == OpBrTable {
				if labels := slices.Collect(got.Labels()); !slices.Equal(labels, []uint32{0, 1}) {
					t.Errorf("labels %v", labels)
				}
			}
		})
	}
}

func TestInstructionsRefuse(t *testing.T) {
	tests := []struct {
		name string
		code []byte
		text string
	}{
		{"exceptions", []byte{0x08, 0}, "0x08: exceptions: not enabled"},
		{"try_table", []byte{0x1f, 0x40, 0}, "exceptions"},
		{"tail call", []byte{0x12, 0}, "tail calls"},
		{"call_ref", []byte{0x14, 0}, "typed function references"},
		{"ref.null of a type", []byte{0xd0, 0}, "typed function references"},
		{"block of a typed reference", []byte{0x02, 0x63, 0x70, 0x0b}, "typed function references"},
		{"garbage collection", []byte{0xfb, 0, 0}, "garbage collection"},
		{"ref.null any", []byte{0xd0, 0x6e}, "garbage collection"},
		{"atomic", []byte{0xfe, 0x10, 0, 0}, "threads"},
		{"wide arithmetic", []byte{0xfc, 19}, "wide arithmetic"},
		{"relaxed SIMD", []byte{0xfd, 0x80, 2}, "0xfd 256: relaxed SIMD"},
		{"second memory", []byte{0x3f, 1}, "multiple memories"},
		{"second memory of a load", []byte{0x28, 0x42, 1, 0}, "multiple memories"},
		{"second memory of a copy", []byte{0xfc, 10, 0, 1}, "multiple memories"},
		{"padded opcode", []byte{0xfc, 0x8b, 0, 0}, "has 2 bytes"},
		{"padded vector opcode", []byte{0xfd, 0xae, 0x81, 0}, "has 3 bytes"},
		{"vector opcode cut off", []byte{0xfd, 0xae, 0}, "has 2 bytes"},
		{"unknown", []byte{0x27}, "0x27 is not known"},
		{"unknown vector", []byte{0xfd, 0x9a, 1}, "0xfd 154 is not known"},
		{"negative block type", []byte{0x02, 0xc0, 0x7f, 0x0b}, "neither a value type nor an index"},
		{"large block type", []byte{0x02, 0x80, 0x80, 0x80, 0x80, 0x10, 0x0b}, "neither a value type nor an index"},
		{"long block type", []byte{0x02, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0x0b}, "neither a value type nor an index"},
		{"label", []byte{0x0c, 1}, "label 1: there are 1"},
		{"label of a table", []byte{0x0e, 1, 5, 0}, "label 5: there are 1"},
		{"labels 4g", with([]byte{0x0e}, ones, []byte{0}), "4294967295 labels"},
		{"else alone", []byte{0x05}, "else outside a block"},
		{"too many ends", []byte{0x0b}, "1 bytes behind the end"},
		{"no end", []byte{0x02, 0x40}, "unexpected end"},
		{"constant cut off", []byte{0x44, 1, 2}, "exceeds"},
		{"two types of select", []byte{0x1c, 2, 0x7f, 0x7f}, "select of 2 types"},
		{"alignment", []byte{0x28, 0x20, 0}, "alignment"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := read(t, around(test.code...))
			if e, ok := errors.AsType[*Error](err); !ok || e.Limit || !strings.Contains(e.Text, test.text) {
				t.Errorf("error %v, want %q", err, test.text)
			}
		})
	}
}

// goModule is what the Go compiler makes of a program that uses all it knows.
func goModule(t testing.TB) []byte {
	t.Helper()
	return buildGo(t, "package main\nimport \"encoding/json\"\n//go:wasmexport call\nfunc call() { json.Marshal([]float64{1}) }\nfunc main() {}\n")
}

func buildGo(t testing.TB, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "main.wasm")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, src)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInstructionsOfGoModule(t *testing.T) {
	m, err := Decode(goModule(t))
	if err != nil {
		t.Fatal(err)
	}
	calls, bodies := 0, 0
	allocs := testing.AllocsPerRun(1, func() {
		calls, bodies = 0, 0
		for i, b := range m.Bodies() {
			bodies++
			s := b.Instructions()
			for s.Next() {
				in := s.Instruction()
				for l := range in.Labels() {
					if int(l) >= s.Depth() {
						t.Fatalf("body %d: label %d of %d", i, l, s.Depth())
					}
				}
				if in.Op == OpCall {
					calls++
					if _, ok := m.FuncType(in.Index); !ok {
						t.Fatalf("body %d at %d: call of %d", i, in.Start, in.Index)
					}
				}
			}
			if err := s.Err(); err != nil {
				t.Fatalf("body %d: %v", i, err)
			}
		}
	})
	if bodies != len(m.Functions) || calls < 1000 {
		t.Errorf("%d bodies of %d functions, %d calls", bodies, len(m.Functions), calls)
	}
	if most := float64(2*bodies + 100); allocs > most {
		t.Errorf("%.0f allocations for %d bodies, want at most %.0f", allocs, bodies, most)
	}
}

// FuzzInstructions: whatever a body holds, reading it ends, stays inside and
// covers every byte of a body that has no error.
func FuzzInstructions(f *testing.F) {
	f.Add([]byte{0x02, 0x40, 0x0e, 2, 0, 1, 1, 0x0b})
	f.Add([]byte{0xfc, 10, 0, 0, 0xfd, 0xae, 1, 0x44, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(with([]byte{0x0e}, ones))
	f.Add(bytes.Repeat([]byte{0x02, 0x40}, 1000))
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) > 1000 {
			return
		}
		read(t, around(code...))
	})
}

func ExampleOp_String() {
	fmt.Println(OpCall, OpMemoryCopy)
	// Output: 0x10 0xfc 10
}
