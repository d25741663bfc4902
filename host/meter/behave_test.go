package meter

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/meter/metertest"
	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// What must agree about a module is what it computes, traps with, tells the host and
// leaves, as it is and metered, and what fuel that takes, whoever runs it and however often.

// A bench runs one module after the other in one engine.
type bench struct {
	runtime wazero.Runtime
	now     *trial
}

// A trial is one instance of a module, which is called some times under limits.
type trial struct {
	calls               int
	slice, most, frames int64 // of each, as in machine

	granted int64
	checks  []int64 // fuel used at each call of refill
	ended   trialEnd
}

// A trialEnd is what a trial came to.
type trialEnd struct {
	steps []string // how the start function and the calls ended
	notes string   // what the host was told
	state string   // of memory, globals and tables
	fuel  []int64  // used by each call, as far as it is known: 0 of a module that is not metered

	checks []int64 // fuel used at each call of refill in the last call
}

func newBench(t testing.TB, config wazero.RuntimeConfig) *bench {
	ctx := context.Background()
	b := &bench{runtime: wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(api.CoreFeaturesV2))}
	t.Cleanup(func() { b.runtime.Close(ctx) })
	_, err := b.runtime.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func(at, size uint32) {
		b.now.ended.notes += fmt.Sprintf("%d %d;", at, size)
	}).Export("note").Instantiate(ctx)
	if err == nil {
		_, err = b.runtime.NewHostModuleBuilder(Prefix).NewFunctionBuilder().WithFunc(func(_ context.Context, m api.Module) { b.now.refill(m) }).Export(Refill).Instantiate(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (x *trial) refill(m api.Module) {
	fuel := m.ExportedGlobal(Fuel).(api.MutableGlobal)
	if int64(m.ExportedGlobal(Depth).Get()) < 0 {
		panic(errDepth)
	}
	used := x.granted - int64(fuel.Get())
	x.checks = append(x.checks, used)
	if used > x.most {
		panic(errFuel)
	}
	x.granted = used + min(x.slice, x.most-used)
	fuel.Set(uint64(x.granted - used))
}

// ample are limits that nothing reaches.
func ample() *trial { return &trial{calls: 2, slice: 1000, most: 1 << 40, frames: 1 << 40} }

// run instantiates a module, calls it twice and looks at what it left. An error is one of
// compiling.
func (b *bench) run(wasm []byte, x *trial) (*trialEnd, error) {
	ctx := context.Background()
	compiled, err := b.runtime.CompileModule(ctx, wasm)
	if err != nil {
		return nil, err
	}
	defer compiled.Close(ctx)
	return b.try(compiled, x), nil
}

func (b *bench) try(compiled wazero.CompiledModule, x *trial) *trialEnd {
	ctx := context.Background()
	limits := *x
	b.now = x
	m, err := b.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		_, cause, _ := strings.Cut(reason(err), "failed: ") // of the start function
		x.ended.steps = append(x.ended.steps, cause)
		return &x.ended
	}
	defer m.Close(ctx)
	call := func(name string, slice, most, frames int64) (end string, used int64) {
		x.slice, x.most, x.granted, x.checks = slice, most, 0, nil
		depth, metered := m.ExportedGlobal(Depth).(api.MutableGlobal)
		if metered {
			m.ExportedGlobal(Fuel).(api.MutableGlobal).Set(0)
			depth.Set(uint64(frames))
		}
		_, err := m.ExportedFunction(name).Call(ctx)
		if metered {
			if used = x.granted - int64(m.ExportedGlobal(Fuel).Get()); errors.Is(err, errFuel) {
				used = x.checks[len(x.checks)-1]
			}
		}
		return reason(err), used
	}
	const much = 1 << 40
	if m.ExportedFunction(Start) != nil {
		if end, _ := call(Start, 1000, much, much); end != "" {
			x.ended.steps = append(x.ended.steps, end)
			return &x.ended
		}
	}
	for range limits.calls {
		end, used := call(metertest.Call, limits.slice, limits.most, limits.frames)
		x.ended.checks = x.checks
		x.ended.steps, x.ended.fuel = append(x.ended.steps, end), append(x.ended.fuel, used)
		b, _ := m.Memory().Read(0, m.Memory().Size())
		x.ended.state += fmt.Sprintf("%d bytes %x; ", len(b), sha256.Sum256(b))
	}
	if end, _ := call(metertest.Dump, 1000, much, much); end != "" {
		x.ended.state += end
	}
	dump, _ := m.Memory().Read(metertest.DumpAt, metertest.DumpBytes)
	x.ended.state += fmt.Sprintf("%x", dump)
	return &x.ended
}

// reason is what kind of end an error is.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errFuel):
		return errFuel.Error()
	case errors.Is(err, errDepth):
		return errDepth.Error()
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

func (e *trialEnd) String() string {
	return fmt.Sprintf("steps %q, notes %s, state %s, fuel %d", e.steps, e.notes, e.state, e.fuel)
}

// work is what an end has of the guest, without what it cost.
func (e *trialEnd) work() string { return fmt.Sprint(e.steps, e.notes, e.state) }

// behaviour returns a check of the module that choices make.
func behaviour(t testing.TB) func(t *testing.T, choices []byte) {
	compiler, interpreter := newBench(t, wazero.NewRuntimeConfig()), newBench(t, wazero.NewRuntimeConfigInterpreter())
	return func(t *testing.T, choices []byte) {
		wasm := metertest.Module(choices, "env", "note")
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			t.Fatalf("decoding: %v", err)
		}
		if err := m.CheckCode(); err != nil {
			t.Fatalf("code: %v", err)
		}
		metered, err := Rewrite(m)
		if err != nil {
			t.Fatalf("rewriting: %v", err)
		}
		run := func(b *bench, wasm []byte, x *trial) *trialEnd {
			end, err := b.run(wasm, x)
			if err != nil {
				t.Fatalf("compiling: %v", err)
			}
			return end
		}
		want := run(interpreter, wasm, ample())
		got := run(compiler, metered, ample())
		if got.work() != want.work() {
			t.Fatalf("metered, the compiler: %v\nas it is, the interpreter: %v", got, want)
		}
		if other := run(interpreter, metered, ample()); other.String() != got.String() {
			t.Fatalf("metered, the interpreter: %v\nthe compiler: %v", other, got)
		}

		compiled, err := compiler.runtime.CompileModule(context.Background(), metered)
		if err != nil {
			t.Fatal(err)
		}
		defer compiled.Close(context.Background())
		if again := compiler.try(compiled, ample()); again.String() != got.String() {
			t.Fatalf("again: %v\nat first: %v", again, got)
		}
		few := func(b *bench) *trialEnd {
			return run(b, metered, &trial{calls: 2, slice: 1000, most: 1 << 40, frames: 6})
		}
		if one, other := few(compiler), few(interpreter); one.String() != other.String() {
			t.Fatalf("in six frames, the compiler: %v\nthe interpreter: %v", one, other)
		}
		stops(t, compiler, compiled)
	}
}

// stops checks that with less fuel than a call takes it is stopped at the first check at which it has
// used more than there is, and that how much of it there is at once does not matter.
func stops(t *testing.T, b *bench, compiled wazero.CompiledModule) {
	t.Helper()
	once := func(slice, most int64) *trialEnd {
		return b.try(compiled, &trial{calls: 1, slice: slice, most: most, frames: 1 << 40})
	}
	want := once(0, 1<<40)   // then every check that finds that fuel was used calls the host
	if len(want.fuel) == 0 { // the start function failed
		return
	}
	checks := want.checks
	if !slices.IsSorted(checks) {
		t.Fatalf("fuel that was used comes back: %d", checks)
	}
	if got := once(1<<40, 1<<40); got.work() != want.work() || want.steps[0] == "" && got.fuel[0] != want.fuel[0] {
		t.Fatalf("in one slice: %v\nchecked at every step: %v", got, want)
	}
	budgets := []int64{0}
	for _, at := range checks {
		budgets = append(budgets, at-1, at)
	}
	for len(budgets) > 6 { // the first and the last
		budgets = slices.Delete(budgets, len(budgets)/2, len(budgets)/2+1)
	}
	for _, most := range budgets {
		i := slices.IndexFunc(checks, func(used int64) bool { return used > most })
		for _, slice := range []int64{1, 1 << 40} {
			got := once(slice, most)
			switch {
			case i < 0 && got.work() != want.work():
				t.Fatalf("with fuel %d: %v\nwith enough: %v", most, got, want)
			case i >= 0 && (got.steps[0] != errFuel.Error() || got.fuel[0] != checks[i]):
				t.Fatalf("with fuel %d in slices of %d: %v\nwant it stopped at %d; there are checks at %d", most, slice, got, checks[i], checks)
			}
		}
	}
}

// FuzzBehaviour: a module does the same when it is metered, in the interpreter and in the
// compiler, costs the same fuel, and stops where that is used up.
func FuzzBehaviour(f *testing.F) {
	f.Add([]byte{})
	check := behaviour(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) <= 4000 {
			check(t, choices)
		}
	})
}

// The kept corpus has every instruction of WebAssembly 2.0, every kind of trap, and every kind of module
// that choices make.
func TestBehaviourCorpus(t *testing.T) {
	const instructions = 437
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", "FuzzBehaviour", "*"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, wazero.NewRuntimeConfigInterpreter())
	ops, ends := map[wasmbin.Op]bool{}, map[string]bool{}
	for _, file := range files {
		choices := kept(t, file)
		m, err := wasmbin.Decode(metertest.Module(choices, "env", "note"))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, body := range m.Bodies() {
			for s := body.Instructions(); s.Next(); {
				ops[s.Instruction().Op] = true
			}
		}
		if err := m.CheckCode(); err != nil { // it says whether there is an instruction that lasts
			t.Fatalf("%s: %v", file, err)
		}
		end, err := b.run(m.Bytes(), ample())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		last := strings.TrimPrefix(end.steps[0], "wasm error: ")
		ends[last] = true
		for kind, is := range map[string]bool{
			"with a start function": m.Start, "over two MiB": m.Memories[0].Min > 32, "with segments that touch": !m.DataCount,
			"with nothing that lasts": m.Lasting == 0, "with host calls": strings.Count(end.notes, ";") > 2,
		} {
			if is {
				ends[kind] = true
			}
		}
	}
	if len(ops) != instructions {
		t.Errorf("%d different instructions, want all %d", len(ops), instructions)
	}
	for _, want := range []string{
		"", "unreachable", "out of bounds memory access", "invalid table access", "indirect call type mismatch",
		"integer divide by zero", "integer overflow", "invalid conversion to integer",
		"with a start function", "over two MiB", "with segments that touch", "with nothing that lasts", "with host calls",
	} {
		if !ends[want] {
			t.Errorf("no module is or ends %q", want)
		}
	}
}

// kept reads an entry of a corpus that has one value, of bytes.
func kept(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "[]byte(")
	value, err := strconv.Unquote(strings.TrimSuffix(rest, ")\n"))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return []byte(value)
}
