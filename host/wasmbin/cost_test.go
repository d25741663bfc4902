package wasmbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A code is the body of one function.
type code struct {
	locals int // i32
	ops    []byte
}

// functions returns a module of functions without parameters and results, behind
// one that is imported.
func functions(codes ...code) []byte {
	bodies := binary.AppendUvarint(nil, uint64(len(codes)))
	for _, c := range codes {
		body := with([]byte{1}, binary.AppendUvarint(nil, uint64(c.locals)), []byte{byte(I32)}, c.ops, []byte{byte(OpEnd)})
		bodies = append(binary.AppendUvarint(bodies, uint64(len(body))), body...)
	}
	return []byte(header8 + sec(1, 1, 0x60, 0, 0) + sec(2, 1, 1, 'm', 1, 'f', 0, 0) +
		sec(3, repeat(len(codes), 0)...) + sec(10, bodies...))
}

func times(n int, ops ...byte) []byte { return bytes.Repeat(ops, n) }

func blocks(n int) []byte { return with(times(n, byte(OpBlock), 0x40), times(n, byte(OpEnd))) }

// loops returns n loops inside each other, in the innermost of which all locals
// are written.
func loops(n, locals int) code {
	ops := times(n, byte(OpLoop), 0x40)
	for l := range locals {
		set := OpLocalSet
		if l%2 == 1 {
			set = OpLocalTee
		}
		ops = append(append(ops, byte(OpI32Const), 0, byte(set)), binary.AppendUvarint(nil, uint64(l))...)
		if set == OpLocalTee {
			ops = append(ops, byte(OpDrop))
		}
	}
	return code{locals, append(ops, times(n, byte(OpEnd))...)}
}

func labels(n int) code {
	return code{0, with([]byte{byte(OpI32Const), 0, byte(OpBrTable)}, binary.AppendUvarint(nil, uint64(n)), make([]byte, n+1))}
}

func many(n int, c code) []code { return slices.Repeat([]code{c}, n) }

func TestCheckCode(t *testing.T) {
	empty := code{}
	tests := []struct {
		name   string
		module []byte
		want   []string // parts of the reasons; none: accepted
	}{
		{"empty functions", functions(empty, empty), nil},
		{"sequential blocks at the cap", functions(code{0, times(MaxBranches, byte(OpBlock), 0x40, byte(OpEnd))}), nil},
		{"sequential blocks", functions(empty, code{0, times(MaxBranches+1, byte(OpBlock), 0x40, byte(OpEnd))}),
			[]string{"function 2: 4001 blocks and branches exceed 4000"}},
		{"branches at the cap", functions(code{0, times(MaxBranches/2, byte(OpBr), 0, byte(OpI32Const), 0, byte(OpBrIf), 0)}), nil},
		{"branches", functions(code{0, with(times(MaxBranches, byte(OpBr), 0), []byte{byte(OpBrTable), 0, 0})}),
			[]string{"function 1: 4001 blocks and branches exceed 4000"}},
		{"nesting at the cap", functions(code{0, blocks(MaxNesting)}), nil},
		{"nesting", functions(code{0, blocks(MaxNesting + 1)}), []string{"function 1: 1001 blocks inside each other exceed 1000"}},
		{"labels at the cap", functions(labels(MaxLabels)), nil},
		{"labels", functions(labels(MaxLabels + 1)), []string{"function 1: br_table of 4097 labels exceeds 4096"}},
		{"all labels at the cap", functions(many(MaxLabelsTotal/4000, labels(4000))...), nil},
		{"all labels", functions(append(many(MaxLabelsTotal/4000, labels(4000)), labels(1))...),
			[]string{"labels of br_table in all functions: 200001 exceed 200000"}},
		{"loops times locals at the cap", functions(loops(40, 100)), nil},
		{"loops times locals", functions(loops(40, 101)), []string{"function 1: 40 loops inside each other times 101 locals written exceed 4000"}},
		{"a local written twice counts once", functions(code{100, with(times(40, byte(OpLoop), 0x40),
			times(200, byte(OpI32Const), 0, byte(OpLocalSet), 7), times(40, byte(OpEnd)))}), nil},
		{"loops one after the other are not nested", functions(code{100, slices.Concat(loops(40, 50).ops, loops(40, 100).ops)}), nil},
		{"all loops at the cap", functions(many(MaxLoopVarsSum/4000, loops(40, 100))...), nil},
		{"all loops", functions(append(many(MaxLoopVarsSum/4000, loops(40, 100)), loops(1, 1))...),
			[]string{"over all functions: 100001 exceed 100000"}},
		{"several", functions(code{0, blocks(MaxNesting + 1)}, empty, labels(MaxLabels+1), loops(101, 40)),
			[]string{"function 1: 1001 blocks inside", "function 3: br_table of 4097", "function 4: 101 loops inside each other times 40"}},
		{"tail call", functions(code{0, []byte{0x12, 0}}, empty, code{0, []byte{0x06, 0x40}}),
			[]string{"function 1: instruction 0x12: tail calls: not enabled", "function 3: instruction 0x06: exceptions: not enabled"}},
		{"garbage collection", functions(code{0, []byte{0xfb, 0}}), []string{"function 1: instruction 0xfb: garbage collection: not enabled"}},
		{"threads", functions(code{0, []byte{0xfe, 3, 0}}), []string{"function 1: instruction 0xfe: threads: not enabled"}},
		{"no type", []byte(header8 + sec(1, 1, 0x60, 0, 0) + sec(3, 1, 5) + sec(10, 1, 2, 0, byte(OpEnd))), []string{"function 0: type 5 does not exist"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Decode(test.module)
			if err != nil {
				t.Fatal(err)
			}
			err = m.CheckCode()
			if len(test.want) == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			errs, ok := errors.AsType[Errors](err)
			if !ok || len(errs) != len(test.want) {
				t.Fatalf("%d reasons, want %d: %v", len(errs), len(test.want), errs)
			}
			for i, want := range test.want {
				limit := !strings.Contains(want, "not enabled") && !strings.Contains(want, "does not exist")
				if !strings.Contains(errs[i].Text, want) || errs[i].Limit != limit {
					t.Errorf("reason %d: %q, limit %v; want %q, limit %v", i, errs[i].Text, errs[i].Limit, want, limit)
				}
				if errs[i].Offset <= 0 || errs[i].Offset > len(test.module) {
					t.Errorf("reason %d lies at byte %d of %d", i, errs[i].Offset, len(test.module))
				}
			}
		})
	}
}

// A module with a thousand bad functions does not give a thousand reasons.
func TestCheckCodeCountsWhatItDoesNotName(t *testing.T) {
	m, err := Decode(functions(many(1000, code{0, blocks(MaxNesting + 1)})...))
	if err != nil {
		t.Fatal(err)
	}
	errs, _ := errors.AsType[Errors](m.CheckCode())
	if len(errs) != maxTold+1 {
		t.Fatalf("%d reasons, want %d", len(errs), maxTold+1)
	}
	if last := errs[maxTold]; !last.Limit || last.Text != fmt.Sprintf("the same of nesting in %d more functions", 1000-maxTold) {
		t.Errorf("last reason %+v", last)
	}
}

// What the pass holds does not grow with the number of functions.
func TestCheckCodeHoldsLittle(t *testing.T) {
	m, err := Decode(functions(many(MaxFunctions, code{0, blocks(100)})...))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = m.CheckCode()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 64<<10 {
		t.Errorf("error %v, %d bytes allocated for %d functions", err, used, MaxFunctions)
	}
}

func BenchmarkCheckCode(b *testing.B) {
	module := functions(many(MaxFunctions, code{0, blocks(100)})...)
	m, err := Decode(module)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(module)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.CheckCode(); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzCheckCode: whatever Decode accepts is read to an answer.
func FuzzCheckCode(f *testing.F) {
	f.Add(functions(loops(2, 3), labels(4), code{0, []byte{0x12, 0}}))
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, module []byte) {
		m, err := Decode(module)
		if err != nil {
			return
		}
		if err := m.CheckCode(); err != nil {
			errs, ok := errors.AsType[Errors](err)
			if !ok || len(errs) == 0 {
				t.Fatalf("error %T %v", err, err)
			}
		}
	})
}

// Lawful Go guests pass: a usual one, and one of nearly all that a module may have.
func TestCheckCodeOfGoModules(t *testing.T) {
	tests := []struct {
		name  string
		text  string
		least int // bytes
	}{
		{"usual", `import "encoding/json"

//go:wasmexport call
func call() { json.Marshal([]float64{1}) }`, 2 << 20},
		{"large", `import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"go/parser"
	"go/token"
	"image/png"
	"math/big"
	"os"
	"regexp"
	"text/template"
)

//go:wasmexport call
func call() {
	json.Marshal(big.NewInt(1))
	xml.Unmarshal(nil, nil)
	csv.NewReader(os.Stdin).ReadAll()
	regexp.MustCompile("a")
	template.Must(template.New("x").Parse("{{.}}")).Execute(os.Stdout, 1)
	parser.ParseFile(token.NewFileSet(), "x", nil, 0)
	png.Decode(os.Stdin)
}`, 6 << 20},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			module := buildGo(t, "package main\n"+test.text+"\nfunc main() {}\n")
			if len(module) < test.least {
				t.Fatalf("%d bytes, want at least %d", len(module), test.least)
			}
			m, err := Decode(module)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.CheckCode(); err != nil {
				t.Errorf("%d bytes: %v", len(module), err)
			}
		})
	}
}
