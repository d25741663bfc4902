package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host/hosttest"
	w "github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// parts are sections of a module by their ids; they come in their order.
type parts map[byte][]byte

func (p parts) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, id := range []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11} {
		if body, ok := p[id]; ok {
			out = append(append(append(out, id), leb(len(body))...), body...)
		}
	}
	return out
}

// repeated is a vector of n equal elements.
func repeated(n int, element ...byte) []byte { return append(leb(n), bytes.Repeat(element, n)...) }

// functions returns a module of functions without parameters and results, the first of which is run.
func functions(bodies ...[]byte) parts {
	code := leb(len(bodies))
	for _, b := range bodies {
		code = append(append(code, leb(len(b))...), b...)
	}
	return parts{1: {1, 0x60, 0, 0}, 3: append(leb(len(bodies)), make([]byte, len(bodies))...), 5: {1, 0, 1},
		7: slices.Concat([]byte{1}, text("run"), []byte{0, 0}), 10: code}
}

// function is the body of a function with i64 locals.
func function(locals int, code ...[]byte) []byte {
	return slices.Concat([]byte{1}, leb(locals), []byte{0x7e}, slices.Concat(code...), []byte{0x0b})
}

var nothing = []byte{0, 0x0b} // a body

// caps returns for each cap a module that is at it, and by how much more it would be past it.
func caps() map[string]func(more int) []byte {
	with := func(id byte, body []byte) []byte {
		p := functions(nothing)
		p[id] = body
		return p.bytes()
	}
	blocks := func(op byte, n int) []byte { return bytes.Repeat([]byte{op, 0x40}, n) }
	ends := func(n int) []byte { return bytes.Repeat([]byte{0x0b}, n) }
	table := func(labels int) []byte {
		return slices.Concat([]byte{0x02, 0x40, 0x41, 0, 0x0e}, leb(labels), make([]byte, labels+1), []byte{0x0b})
	}
	loops := func(depth, written int) []byte {
		var sets []byte
		for i := range written {
			sets = slices.Concat(sets, []byte{0x42, 1, 0x21}, leb(i))
		}
		return function(written, blocks(3, depth), sets, ends(depth))
	}
	code := func(bodies ...[]byte) []byte { return functions(bodies...).bytes() }
	typed := func(params, results int) []byte {
		return slices.Concat([]byte{2, 0x60, 0, 0, 0x60}, repeated(params, 0x7f), repeated(results, 0x7f))
	}
	padded := func(size int) []byte { // a body of that size
		return append(append([]byte{0}, bytes.Repeat([]byte{1}, size-2)...), 0x0b)
	}
	return map[string]func(more int) []byte{
		"module bytes": func(more int) []byte {
			p := functions(nothing).bytes()
			const names = 1 + 4 + 2 // id, size and name of a custom section
			left := w.MaxModuleBytes + more - len(p) - reserve - names
			size := binary.AppendUvarint(nil, uint64(left+2))
			return slices.Concat(p, []byte{0}, size, []byte{1, 'x'}, make([]byte, left))
		},
		"types exceed":      func(more int) []byte { return with(1, repeated(w.MaxTypes+more, 0x60, 0, 0)) },
		"parameters exceed": func(more int) []byte { return with(1, typed(w.MaxParams+more, 0)) },
		"results exceed":    func(more int) []byte { return with(1, typed(0, w.MaxResults+more)) },
		"imports exceed": func(more int) []byte {
			n := w.MaxImports + more
			p := functions(nothing)
			p[1] = []byte{2, 0x60, 0, 0, 0x60, 0, 1, 0x7e}
			p[2] = repeated(n, slices.Concat(text("extism:host/env"), text("input_length"), []byte{0, 1})...)
			p[7] = slices.Concat([]byte{1}, text("run"), []byte{0}, leb(n))
			return p.bytes()
		},
		"functions exceed": func(more int) []byte { return code(slices.Repeat([][]byte{nothing}, w.MaxFunctions+more)...) },
		"tables exceed":    func(more int) []byte { return with(4, repeated(w.MaxTables+more, 0x70, 0, 1)) },
		"table entries exceed": func(more int) []byte {
			return with(4, slices.Concat([]byte{2, 0x70, 0}, leb(w.MaxTableEntries/2), []byte{0x70, 1, 0}, leb(w.MaxTableEntries/2+more)))
		},
		"memories exceed": func(more int) []byte { return with(5, repeated(w.MaxMemories+more, 0, 1)) },
		"globals exceed":  func(more int) []byte { return with(6, repeated(w.MaxGlobals+more, 0x7f, 0, 0x41, 0, 0x0b)) },
		"exports exceed": func(more int) []byte {
			list := leb(w.MaxExports + more)
			for i := range w.MaxExports + more - 1 {
				list = slices.Concat(list, text(fmt.Sprint(i)), []byte{0, 0})
			}
			return with(7, slices.Concat(list, text("run"), []byte{0, 0}))
		},
		"element segments exceed":          func(more int) []byte { return with(9, repeated(w.MaxElements+more, 1, 0, 0)) },
		"items of element segments exceed": func(more int) []byte { return with(9, append([]byte{1, 1, 0}, repeated(w.MaxElementItems+more, 0)...)) },
		"data segments exceed":             func(more int) []byte { return with(11, repeated(w.MaxData+more, 1, 0)) },
		"bytes in body":                    func(more int) []byte { return code(padded(w.MaxBodyBytes + more)) },
		"locals in body":                   func(more int) []byte { return code(function(w.MaxLocals + more)) },
		"locals in all bodies": func(more int) []byte {
			return code(append(slices.Repeat([][]byte{function(w.MaxLocals)}, w.MaxLocalsTotal/w.MaxLocals), function(more))...)
		},
		"blocks and branches exceed": func(more int) []byte {
			return code(function(0, bytes.Repeat([]byte{0x02, 0x40, 0x0b}, w.MaxBranches+more)))
		},
		"blocks inside each other": func(more int) []byte { return code(function(0, blocks(2, w.MaxNesting+more), ends(w.MaxNesting+more))) },
		"br_table of":              func(more int) []byte { return code(function(0, table(w.MaxLabels+more))) },
		"labels of br_table in all": func(more int) []byte {
			return code(slices.Repeat([][]byte{function(0, table(2000))}, w.MaxLabelsTotal/2000+more)...)
		},
		"loops inside each other": func(more int) []byte { return code(loops(10, w.MaxLoopVars/10+more)) },
		"depth of loops times locals": func(more int) []byte {
			return code(slices.Repeat([][]byte{loops(20, 50)}, w.MaxLoopVarsSum/1000+more)...)
		},
		"name of": func(more int) []byte {
			return with(7, slices.Concat([]byte{2}, text("run"), []byte{0, 0}, text(strings.Repeat("a", w.MaxNameBytes+more)), []byte{0, 0}))
		},
		"custom sections exceed": func(more int) []byte {
			return append(functions(nothing).bytes(), bytes.Repeat([]byte{0, 1, 0}, w.MaxCustom-1+2*more)...)
		},
	}
}

// reserve is at least what the manifest of a case takes.
const reserve = 1 << 10

// groups are those of the whole corpus.
var groups = []string{"abi", "compile", "control", "cpu", "guard", "isolation", "memory", "output", "upload", "wasi"}

// samples are cases of each group beside uploads, with their modules.
func samples() (docs map[string]string, modules map[string][]byte) {
	recurse := functions(function(0, []byte{0x10, 0})).bytes()
	double := make([][]byte, 0, 41)
	for i := range 40 {
		double = append(double, function(0, bytes.Repeat([]byte{0x10, byte(i + 1)}, 2)))
	}
	double = append(double, nothing)
	var writes []byte // of 300 locals
	for i := range 300 {
		writes = slices.Concat(writes, []byte{0x42, 1, 0x21}, leb(i))
	}
	exit := imported{"wasi_snapshot_preview1", "proc_exit", "i:"}
	open := imported{"wasi_snapshot_preview1", "path_open", "iiiiiIIii:i"}
	alloc := imported{"extism:host/env", "alloc", "I:I"}
	load := imported{"extism:host/env", "load_u8", "I:i"}
	// Adds one to the digit in memory and answers with it.
	count := guestModule([]imported{outputSet}, "0", slices.Concat(constant(0), constant(0), []byte{0x2d, 0, 0}, constant(1), []byte{0x6a, 0x3a, 0, 0},
		constant(0), constant(1), call(0))...)
	hoard := guestModule([]imported{alloc}, "", slices.Concat([]byte{0x03, 0x40, 0x42}, []byte{0x80, 0x80, 0xc0, 0}, call(0), []byte{0x50, 0x04, 0x40, 0x00, 0x0b, 0x0c, 0, 0x0b})...)
	return map[string]string{
			"abi-handle":      `{"group":"abi","expect":{"outcome":"guest_trap"}}`,
			"abi-pointer":     `{"group":"abi","expect":{"outcome":"guest_trap"}}`,
			"cpu-recursion":   `{"group":"cpu","expect":{"outcome":"guest_stack"}}`,
			"cpu-calls":       `{"group":"cpu","limits":{"wall_ms":100},"expect":{"outcome":["guest_timeout","guest_fuel"]}}`,
			"memory-hoard":    `{"group":"memory","expect":{"outcome":["guest_trap","guest_memory"]}}`,
			"isolation-count": `{"group":"isolation","repeat":5,"expect":{"output":{"result":1}}}`,
			"compile-loops":   `{"group":"compile","stage":"upload","expect":{"outcome":"module_limit"}}`,
			"control-object":  `{"group":"control","expect":{"outcome":"ok","output":{"a":[1]}}}`,
			"output-cut":      `{"group":"output","expect":{"outcome":"guest_output_invalid"}}`,
			"output-number":   `{"group":"output","expect":{"outcome":"guest_output_invalid"}}`,
			"guard-no-judge":  `{"group":"guard","stage":"guard","manifest":{"guard":{"export":"run","phases":["call"]}},"expect":{"outcome":"policy_unavailable","handler_started":false,"audit":["guard.deny"]}}`,
			"wasi-exit":       `{"group":"wasi","expect":{"outcome":"guest_trap"}}`,
			"wasi-files":      `{"group":"wasi","stage":"upload","expect":{"outcome":"module_import_denied"}}`,
		}, map[string][]byte{
			"abi-handle":      guestModule([]imported{load}, "", 0x42, 0x7f, 0x10, 0, 0x1a),
			"abi-pointer":     guestModule([]imported{outputSet}, "", 0x41, 0x7f, 0x41, 1, 0x10, 0),
			"cpu-recursion":   recurse,
			"cpu-calls":       functions(double...).bytes(),
			"memory-hoard":    hoard,
			"isolation-count": count,
			"compile-loops":   functions(function(300, bytes.Repeat([]byte{0x03, 0x40}, 250), writes, bytes.Repeat([]byte{0x0b}, 250))).bytes(),
			"control-object":  answers(`{"a":[1]}`),
			"output-cut":      answers(`{"a":`),
			"output-number":   answers(`1e400`),
			"guard-no-judge":  answers("{}"),
			"wasi-exit":       guestModule([]imported{exit}, "", 0x41, 0, 0x10, 0),
			"wasi-files":      guestModule([]imported{open}, ""),
		}
}

// goodGuards are guards that do nothing wrong: they must pass before a bad one counts.
var goodGuards = map[string]struct{ says, doc string }{
	"guard-good-allow": {`"verdict":"allow"`, `{"group":"guard","stage":"guard","manifest":{"guard":{"export":"run","phases":["call"]}},
		"expect":{"outcome":"ok","handler_started":true,"handler_output":{"n":1}}}`},
	"guard-good-deny": {`"verdict":"deny","code":"never"`, `{"group":"guard","stage":"guard","manifest":{"guard":{"export":"run","phases":["call"]}},
		"expect":{"outcome":"policy_denied","handler_started":false,"audit":["guard.deny"]}}`},
}

// goodGuard is a guard that answers every question with a verdict of these members, and otherwise behaves.
func goodGuard(t *testing.T, says string) []byte {
	m := &abi.Manifest{ABI: abi.Version, Name: "good", Version: "1", Guards: []abi.Guard{{Name: "judge", Export: "run", Phases: []abi.Phase{abi.PhaseCall}}}}
	return hosttest.Build(t, m, map[string]hosttest.Guest{"run": {Says: hosttest.Verdict(says)}})
}

// TestSamples: a small corpus of our own, of which no module stops other people's engines: one past
// each cap is refused for that, at the cap it is accepted, and every group has some cases.
func TestSamples(t *testing.T) {
	docs, modules := samples()
	for cap, make := range caps() {
		id := strings.ReplaceAll(cap, " ", "-")
		docs[id] = `{"group":"upload","stage":"upload","expect":{}}`
		docs[id+"-more"] = fmt.Sprintf(`{"group":"upload","stage":"upload","expect":{"outcome":"module_limit","reason":%q}}`, cap)
		modules[id], modules[id+"-more"] = make(0), make(1)
		if cap == "module bytes" { // the manifest comes on top
			docs[id+"-more"] = `{"group":"upload","stage":"upload","expect":{"outcome":"module_limit","reason":"exceeds 8388608"}}`
			modules[id+"-more"] = make(reserve + 1)
		}
	}
	for _, group := range groups {
		if !slices.ContainsFunc(slices.Collect(maps.Values(docs)), func(doc string) bool { return strings.HasPrefix(doc, `{"group":"`+group+`"`) }) {
			t.Errorf("no case of group %s", group)
		}
	}
	for id, verdict := range goodGuards {
		docs[id] = verdict.doc
		modules[id] = goodGuard(t, verdict.says)
	}
	c := writeCorpusOf(t, docs, modules)
	report, err := Run(t.Context(), c, Options{Child: child(c, "case")})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != len(docs) {
		t.Errorf("%d results of %d cases", len(report.Results), len(docs))
	}
	for _, r := range report.Results {
		if !r.Passed {
			t.Errorf("%s: %s", r.ID, r.Difference)
		}
	}
}
