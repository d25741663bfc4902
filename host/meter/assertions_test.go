package meter

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// A script is one file of the core suite, as far as it runs code.
type script struct {
	Commands []struct {
		Type     string `json:"type"`
		Line     int    `json:"line"`
		Name     string `json:"name"`
		As       string `json:"as"`
		Filename string `json:"filename"`
		Action   struct {
			Type   string  `json:"type"`
			Module string  `json:"module"`
			Field  string  `json:"field"`
			Args   []value `json:"args"`
		} `json:"action"`
	} `json:"commands"`
}

type value struct {
	Type  string `json:"type"`
	Lane  string `json:"lane_type"`
	Value any    `json:"value"` // a text, or a text for each lane
}

// words returns a value as the engine takes it.
func (v value) words() []uint64 {
	number := func(s any) uint64 {
		n, err := strconv.ParseUint(s.(string), 10, 64)
		if err != nil {
			panic(err) // the suite has no other arguments
		}
		return n
	}
	switch {
	case v.Value == "null":
		return []uint64{0}
	case v.Type == "externref":
		return []uint64{number(v.Value) + 1} // to the engine 0 is null
	case v.Type != "v128":
		return []uint64{number(v.Value)}
	}
	lanes := v.Value.([]any)
	words, width := []uint64{0, 0}, 128/len(lanes)
	for i, lane := range lanes {
		words[i*width/64] |= number(lane) << (i * width % 64)
	}
	return words
}

// A stage runs a script in one engine, with its modules as they are or metered.
type stage struct {
	t       *testing.T
	ctx     context.Context
	runtime wazero.Runtime
	metered bool
	dir     string

	last  api.Module
	named map[string]api.Module // by the script's own names and the registered ones
	all   []api.Module
}

func newStage(t *testing.T, config wazero.RuntimeConfig, metered bool, dir string, spectest []byte) *stage {
	s := &stage{t: t, metered: metered, dir: dir, named: map[string]api.Module{}}
	s.ctx = experimental.WithImportResolver(context.Background(), func(name string) api.Module { return s.named[name] })
	s.runtime = wazero.NewRuntimeWithConfig(s.ctx, config.WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { s.runtime.Close(context.Background()) })
	_, err := s.runtime.NewHostModuleBuilder(Prefix).NewFunctionBuilder().WithFunc(func(_ context.Context, m api.Module) {
		if int64(m.ExportedGlobal(Depth).Get()) < 0 {
			panic(errDepth)
		}
		m.ExportedGlobal(Fuel).(api.MutableGlobal).Set(1 << 20)
	}).Export(Refill).Instantiate(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.named["spectest"], err = s.runtime.InstantiateWithConfig(s.ctx, spectest, wazero.NewModuleConfig().WithName("")); err != nil {
		t.Fatal(err)
	}
	return s
}

// load instantiates a module of the suite and says how that ended.
func (s *stage) load(file string) string {
	wasm, err := os.ReadFile(filepath.Join(s.dir, file))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.metered {
		m, err := wasmbin.Decode(wasm)
		var metered []byte
		if err == nil {
			metered, err = Rewrite(m)
		}
		// What is refused for a reason that TestCoreSuite knows runs as it is.
		if err != nil && (refused[file] == "" || !strings.Contains(err.Error(), refused[file])) {
			s.t.Fatalf("%s: %v", file, err)
		}
		if err == nil {
			wasm = metered
		}
	}
	m, err := s.runtime.InstantiateWithConfig(s.ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err == nil {
		s.last, s.all = m, append(s.all, m)
		if start := m.ExportedFunction(Start); start != nil {
			_, err = s.call(start)
		}
	}
	if err != nil {
		return "not instantiated"
	}
	return "instantiated"
}

// call calls a function with all the frames and the fuel there are.
func (s *stage) call(f api.Function, args ...uint64) ([]uint64, error) {
	for _, m := range s.all {
		if depth, ok := m.ExportedGlobal(Depth).(api.MutableGlobal); ok {
			depth.Set(1000)
		}
	}
	return f.Call(s.ctx, args...)
}

// act calls a function or reads a global, and says how that ended.
func (s *stage) act(kind, module, field string, args []value) string {
	m := s.last
	if module != "" {
		m = s.named[module]
	}
	if kind == "get" {
		g := m.ExportedGlobal(field)
		return show([]uint64{g.Get()}, []api.ValueType{g.Type()})
	}
	f := m.ExportedFunction(field)
	var words []uint64
	for _, a := range args {
		words = append(words, a.words()...)
	}
	results, err := s.call(f, words...)
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		if strings.Contains(first, "stack overflow") || strings.Contains(first, errDepth.Error()) {
			first = "too many frames"
		}
		return first
	}
	return show(results, f.Definition().ResultTypes())
}

// show writes values so that those which may differ look the same: what a NaN
// carries, and where a function is.
func show(words []uint64, types []api.ValueType) string {
	var out []string
	for _, t := range types {
		w := words[0]
		words = words[1:]
		switch {
		case t == 0x7b: // v128
			out = append(out, fmt.Sprintf("v128:%s", nans(w, words[0])))
			words = words[1:]
		case t == api.ValueTypeF32 && nan32(uint32(w)), t == api.ValueTypeF64 && nan64(w):
			out = append(out, "nan")
		case t == 0x70 && w != 0: // funcref
			out = append(out, "func")
		case t == api.ValueTypeI32 || t == api.ValueTypeF32:
			out = append(out, fmt.Sprintf("%x", uint32(w))) // the rest of the word is anything
		default:
			out = append(out, fmt.Sprintf("%x", w))
		}
	}
	return strings.Join(out, " ")
}

func nan32(w uint32) bool { return w&0x7fffffff > 0x7f800000 }
func nan64(w uint64) bool { return w&(1<<63-1) > 0x7ff<<52 }

// nans writes a vector; lanes that would be a NaN lose what it carries.
func nans(low, high uint64) string {
	text := ""
	for _, w := range []uint64{low, high} {
		switch a, b := uint32(w), uint32(bits.RotateLeft64(w, 32)); {
		case nan64(w):
			text += " nan"
		case nan32(a) || nan32(b):
			text += fmt.Sprintf(" %v %v", nan32(a), nan32(b))
		default:
			text += fmt.Sprintf(" %x", w)
		}
	}
	return text
}

// memories digests what the script has left in exported memories.
func (s *stage) memories() string {
	h := sha256.New()
	for _, m := range s.all {
		for _, name := range slices.Sorted(maps.Keys(m.ExportedMemoryDefinitions())) {
			memory := m.ExportedMemory(name)
			b, _ := memory.Read(0, memory.Size())
			fmt.Fprintf(h, "%d", len(b))
			h.Write(b)
		}
	}
	return fmt.Sprintf("memories %x", h.Sum(nil))
}

// The scripts of the core suite: every call ends in the same way in the interpreter
// and in the compiler, as it is and metered, and leaves the same memory.
func TestCoreSuiteBehaves(t *testing.T) {
	suite := suiteDir(t)
	dir := filepath.Join(suite, "v2", "testdata")
	spectest, err := os.ReadFile(filepath.Join(suite, "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	calls, traps := 0, 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s script
			if err := json.Unmarshal(data, &s); err != nil {
				t.Fatal(err)
			}
			stages := []*stage{
				newStage(t, wazero.NewRuntimeConfigInterpreter(), false, dir, spectest), newStage(t, wazero.NewRuntimeConfigInterpreter(), true, dir, spectest),
				newStage(t, wazero.NewRuntimeConfig(), false, dir, spectest), newStage(t, wazero.NewRuntimeConfig(), true, dir, spectest),
			}
			for _, c := range s.Commands {
				var ends []string
				for _, st := range stages {
					end := ""
					switch c.Type {
					case "module", "assert_uninstantiable", "assert_unlinkable":
						before := st.last
						end = st.load(c.Filename)
						if c.Name != "" {
							st.named[c.Name] = st.last
						}
						if c.Type != "module" {
							st.last = before
						}
					case "register":
						st.named[c.As] = st.last
						if c.Name != "" {
							st.named[c.As] = st.named[c.Name]
						}
					case "action", "assert_return", "assert_trap", "assert_exhaustion":
						end = st.act(c.Action.Type, c.Action.Module, c.Action.Field, c.Action.Args)
					}
					ends = append(ends, end)
				}
				if len(slices.Compact(slices.Clone(ends))) > 1 {
					t.Errorf("line %d, %s: interpreter %q, metered %q, compiler %q, metered %q", c.Line, c.Type, ends[0], ends[1], ends[2], ends[3])
				}
				switch c.Type {
				case "assert_return":
					calls++
				case "assert_trap", "assert_exhaustion":
					if traps++; !strings.HasPrefix(ends[0], "wasm error") && ends[0] != "too many frames" {
						t.Errorf("line %d: ends with %q, want a trap", c.Line, ends[0])
					}
				}
			}
			for i, st := range stages[1:] {
				if got, want := st.memories(), stages[0].memories(); got != want {
					t.Errorf("stage %d left %s, the first %s", i+1, got, want)
				}
			}
		})
	}
	if calls < 45_000 || traps < 2400 {
		t.Errorf("%d calls and %d traps were compared", calls, traps)
	}
}
