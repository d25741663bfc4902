package hostile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An imported function: module, name and type, "ii:I" for (i32, i32) -> i64.
type imported struct{ module, name, typ string }

// guestModule returns a module that exports run, of type () -> (), with one page
// of memory that begins with data. Imports are functions 0 and up.
func guestModule(imports []imported, data string, code ...byte) []byte {
	types := map[string]int{":": 0}
	list := []string{":"}
	for _, i := range imports {
		if _, ok := types[i.typ]; !ok {
			types[i.typ] = len(list)
			list = append(list, i.typ)
		}
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, body []byte) { out = append(append(append(out, id), leb(len(body))...), body...) }
	section(1, vector(list, func(t string) []byte {
		params, results := []byte{}, []byte{}
		into := &params
		for _, c := range t {
			switch c {
			case 'i':
				*into = append(*into, 0x7f)
			case 'I':
				*into = append(*into, 0x7e)
			case ':':
				into = &results
			}
		}
		return slices.Concat([]byte{0x60}, leb(len(params)), params, leb(len(results)), results)
	}))
	section(2, vector(imports, func(i imported) []byte {
		return slices.Concat(text(i.module), text(i.name), []byte{0}, leb(types[i.typ]))
	}))
	section(3, []byte{1, 0})
	section(5, []byte{1, 0, 1})
	section(7, slices.Concat([]byte{1}, text("run"), []byte{0}, leb(len(imports))))
	body := slices.Concat([]byte{0}, code, []byte{0x0b})
	section(10, slices.Concat([]byte{1}, leb(len(body)), body))
	section(11, slices.Concat([]byte{1, 0, 0x41, 0, 0x0b}, text(data)))
	return out
}

func vector[T any](items []T, encode func(T) []byte) []byte {
	out := leb(len(items))
	for _, item := range items {
		out = append(out, encode(item)...)
	}
	return out
}

func leb(n int) []byte     { return binary.AppendUvarint(nil, uint64(n)) }
func text(s string) []byte { return append(leb(len(s)), s...) }

// constant returns an instruction i32.const of a small number.
func constant(n byte) []byte { return []byte{0x41, n} }

func call(f byte) []byte { return []byte{0x10, f} }

var outputSet = imported{"sandboxd:host", "output_set", "ii:"}

// answers returns a guest that answers with a text of at most 63 bytes.
func answers(s string) []byte {
	return guestModule([]imported{outputSet}, s, slices.Concat(constant(0), constant(byte(len(s))), call(0))...)
}

// guests are the modules of the test corpus.
func guests() map[string][]byte {
	length := imported{"extism:host/env", "input_length", ":I"}
	read := imported{"sandboxd:host", "input_read", "iii:i"}
	alloc := imported{"extism:host/env", "alloc", "I:I"}
	logInfo := imported{"extism:host/env", "log_info", "I:"}
	wrap := []byte{0xa7}
	drop := []byte{0x1a}
	return map[string][]byte{
		"echo": guestModule([]imported{length, read, outputSet}, "", slices.Concat(
			constant(0), constant(0), call(0), wrap, call(1), drop, // read it all to 0
			constant(0), call(0), wrap, call(2))...),
		"witness": guestModule([]imported{outputSet, alloc, logInfo}, `{"n":1}`, slices.Concat(
			[]byte{0x42, 7}, call(1), call(2),
			constant(0), constant(7), call(0))...),
		"varies": guestModule([]imported{length, outputSet}, `{"n":1}`, slices.Concat( // works more on a long input
			call(0), []byte{0x42, 10, 0x56, 0x04, 0x40}, slices.Repeat(slices.Concat(constant(0), drop), 50), []byte{0x0b},
			constant(0), constant(7), call(1))...),
		"one":   answers(`{"n":1}`),
		"list":  answers(`[1]`),
		"spin":  guestModule(nil, "", 0x03, 0x40, 0x0c, 0, 0x0b),
		"trap":  guestModule(nil, "", 0x00),
		"elf":   []byte("\x7fELF"),
		"old":   guestModule([]imported{{"env", "system", ":"}}, ""),
		"silly": answers("not a verdict"),
	}
}

// writeCorpus makes a corpus of cases in temporary folders. A case is a document
// without id, sum and bounds, under "ID"; the module is the guest of "of".
func writeCorpus(t *testing.T, cases map[string]string) Corpus { return writeCorpusOf(t, cases, nil) }

// writeCorpusOf is writeCorpus with modules under "ID", where "of" is not given.
func writeCorpusOf(t *testing.T, cases map[string]string, modules map[string][]byte) Corpus {
	t.Helper()
	c := Corpus{Dir: t.TempDir(), Modules: t.TempDir()}
	write := func(dir, name string, data []byte) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := guests()
	for _, name := range []string{"echo", "witness"} {
		write(filepath.Join(c.Dir, "modules"), name+".wat.hex", []byte(hex.EncodeToString(all[name])))
	}
	if len(cases) == 0 {
		write(filepath.Join(c.Dir, "cases"), "readme.txt", nil)
	}
	for id, doc := range cases {
		var k map[string]any
		if err := json.Unmarshal([]byte(doc), &k); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		guest, _ := k["of"].(string)
		delete(k, "of")
		wasm, ok := modules[id]
		if !ok {
			wasm = all[guest]
		}
		sum := sha256.Sum256(wasm)
		fill(k, map[string]any{"id": id, "group": "tests", "doc": "A test.", "threat": "-", "stage": "call",
			"module": map[string]any{"gen": "test", "size": len(wasm), "sha256": hex.EncodeToString(sum[:])}})
		if k["stage"] != "upload" {
			fill(k, map[string]any{"call": map[string]any{"export": "run", "input": map[string]any{}}})
		}
		if e, ok := k["expect"].(map[string]any); ok {
			fill(e, map[string]any{"outcome": "ok", "max_wall_ms": 5000, "max_rss_mb": 200, "process_survives": true})
		}
		data, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(c.Dir, "cases"), id+".json", data)
		write(c.Modules, id+".wasm", wasm)
	}
	return c
}

// fill adds members that are not there.
func fill(m, defaults map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := m[key]; !ok {
			m[key] = defaults[key]
		}
	}
}
