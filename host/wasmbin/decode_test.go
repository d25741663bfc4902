package wasmbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const header8 = "\x00asm\x01\x00\x00\x00"

func sec(id byte, body ...byte) string {
	return string(id) + string(binary.AppendUvarint(nil, uint64(len(body)))) + string(body)
}

// ones is 2^32-1 as LEB128.
var ones = []byte{0xff, 0xff, 0xff, 0xff, 0x0f}

func with(parts ...[]byte) []byte { return slices.Concat(parts...) }

// repeat returns a vector of n times the same element.
func repeat(n int, element ...byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(n)), bytes.Repeat(element, n)...)
}

// small is a module with every section that Decode reads.
var small = header8 +
	sec(0, 4, 'n', 'o', 't', 'e', 1, 2, 3) +
	sec(1, 1, 0x60, 1, 0x7f, 1, 0x7e) + // (i32) -> (i64)
	sec(2, 1, 1, 'm', 1, 'f', 0, 0) +
	sec(3, 1, 0) +
	sec(4, 1, 0x70, 1, 1, 2) +
	sec(5, 1, 1, 1, 4) +
	sec(6, 1, 0x7f, 1, 0x41, 0x7f, 0x0b) +
	sec(7, 1, 3, 'r', 'u', 'n', 0, 1) +
	sec(9, 1, 0, 0x41, 0, 0x0b, 1, 1) +
	sec(12, 1) +
	sec(10, 1, 6, 1, 2, 0x7e, 0x42, 0, 0x0b) +
	sec(11, 1, 0, 0x41, 0, 0x0b, 2, 'h', 'i') +
	sec(0, 4, 'n', 'a', 'm', 'e', 1, 4, 1, 1, 1, 'r')

func TestDecode(t *testing.T) {
	m, err := Decode([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Index(small, "\x01m\x01f")
	if want := (Import{"m", "f", Func, 0, start, start + 2}); len(m.Imports) != 1 || m.Imports[0] != want {
		t.Errorf("imports %+v, want %+v", m.Imports, want)
	}
	if e, ok := m.Export("run"); !ok || e.Kind != Func || e.Index != 1 {
		t.Errorf("export %+v, %v", e, ok)
	}
	if typ, ok := m.FuncType(1); !ok || typ.String() != "(i32) -> (i64)" {
		t.Errorf("type %v, %v", typ, ok)
	}
	if _, ok := m.FuncType(2); ok {
		t.Error("function 2 has a type")
	}
	if want := (Limits{1, 4, true}); len(m.Memories) != 1 || m.Memories[0] != want {
		t.Errorf("memories %+v, want %+v", m.Memories, want)
	}
	if got := m.Custom("note"); len(got) != 1 || string(got[0]) != "\x01\x02\x03" {
		t.Errorf("custom section %q", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct {
		name, module string
		limit        bool
		text         string
	}{
		{"empty", "", false, "empty"},
		{"magic only", "\x00asm", false, "cut off"},
		{"component", "\x00asm\x0d\x00\x01\x00", false, "component, not a core module (layer 1)"},
		{"version 2", "\x00asm\x02\x00\x00\x00", false, "version 2"},
		{"ELF", "\x7fELF\x02\x01\x01\x00", false, "ELF"},
		{"gzip", "\x1f\x8b\x08\x00", false, "gzip"},
		{"text", "(module)", false, "text"},
		{"types 4g", header8 + sec(1, ones...), false, "4294967295 types"},
		{"imports 4g", header8 + sec(2, ones...), false, "imports"},
		{"functions 4g", header8 + sec(3, ones...), false, "functions"},
		{"tables 4g", header8 + sec(4, ones...), false, "tables"},
		{"memories 4g", header8 + sec(5, ones...), false, "memories"},
		{"globals 4g", header8 + sec(6, ones...), false, "globals"},
		{"exports 4g", header8 + sec(7, ones...), false, "exports"},
		{"elements 4g", header8 + sec(9, ones...), false, "element segments"},
		{"code 4g", header8 + sec(10, ones...), false, "bodies"},
		{"data 4g", header8 + sec(11, ones...), false, "data segments"},
		{"data count", header8 + sec(12, ones...), false, "announced"},
		{"params 4g", header8 + sec(1, with([]byte{1, 0x60}, ones, []byte{0})...), false, "parameters"},
		{"export name 4g", header8 + sec(7, with([]byte{1}, ones, []byte{0, 0})...), false, "length 4294967295"},
		{"data bytes 4g", header8 + sec(11, with([]byte{1, 1}, ones)...), false, "length 4294967295"},
		{"names 4g", header8 + sec(0, with([]byte{4, 'n', 'a', 'm', 'e', 1, 5}, ones)...), false, "names"},
		{"local names 4g", header8 + sec(0, with([]byte{4, 'n', 'a', 'm', 'e', 2, 7, 1, 0}, ones)...), false, "names"},
		{"section past end", header8 + "\x01\x05\x00", false, "exceeds"},
		{"section too long", header8 + sec(1, 0, 0), false, "too many"},
		{"section twice", header8 + sec(1, 0) + sec(1, 0), false, "twice"},
		{"section order", header8 + sec(3, 0) + sec(1, 0), false, "order"},
		{"section unknown", header8 + sec(14, 0), false, "not known"},
		{"exceptions", header8 + sec(13, 0), false, "exceptions"},
		{"threads", header8 + sec(5, 1, 3, 1, 1), false, "threads"},
		{"memory64", header8 + sec(5, 1, 4, 1), false, "memory64"},
		{"garbage collection", header8 + sec(1, 1, 0x5f, 0, 0), false, "garbage"},
		{"extended constant", header8 + sec(6, 1, 0x7f, 0, 0x41, 0, 0x41, 0, 0x6a, 0x0b), false, "extended constants"},
		{"integer of six bytes", header8 + sec(1, 0x80, 0x80, 0x80, 0x80, 0x80, 0), false, "32 bits"},
		{"integer with stray bits", header8 + sec(1, 0x80, 0x80, 0x80, 0x80, 0x10), false, "32 bits"},
		{"constant with stray bits", header8 + sec(6, 1, 0x7f, 0, 0x41, 0x80, 0x80, 0x80, 0x80, 0x70, 0x0b), false, "32 bits"},
		{"export twice", header8 + sec(7, 2, 1, 'a', 3, 0, 1, 'a', 3, 0), false, "twice"},
		{"name not UTF-8", header8 + sec(7, 1, 1, 0xff, 3, 0), false, "UTF-8"},
		{"bodies missing", header8 + sec(1, 1, 0x60, 0, 0) + sec(3, 1, 0), false, "1 functions have 0 bodies"},
		{"body without end", header8 + sec(1, 1, 0x60, 0, 0) + sec(3, 1, 0) + sec(10, 1, 2, 0, 1), false, "does not end"},

		{"locals 4g", header8 + sec(10, with([]byte{1, 8, 1}, ones, []byte{0x7e, 0x0b})...), true, "locals"},
		{"many types", header8 + sec(1, repeat(MaxTypes+1, 0x60, 0, 0)...), true, "10001 types exceed 10000"},
		{"many imports", header8 + sec(2, repeat(MaxImports+1, 0, 0, 0, 0)...), true, "257 imports"},
		{"many functions", header8 + sec(3, repeat(MaxFunctions+1, 0)...), true, "functions"},
		{"many globals", header8 + sec(6, repeat(MaxGlobals+1, 0x7f, 0, 0x41, 0, 0x0b)...), true, "globals"},
		{"many exports", header8 + sec(7, repeat(MaxExports+1, 0, 0, 0)...), true, "exports"},
		{"many elements", header8 + sec(9, repeat(MaxElements+1, 1, 0, 0)...), true, "element segments"},
		{"many items", header8 + sec(9, with([]byte{1, 1, 0}, repeat(MaxElementItems+1, 0))...), true, "items of element segments"},
		{"many data segments", header8 + sec(11, repeat(MaxData+1, 1, 0)...), true, "data segments"},
		{"many parameters", header8 + sec(1, with([]byte{1, 0x60}, repeat(65, 0x7f), []byte{0})...), true, "65 parameters exceed 64"},
		{"many results", header8 + sec(1, with([]byte{1, 0x60, 0}, repeat(9, 0x7f))...), true, "9 results exceed 8"},
		{"two memories", header8 + sec(5, 2, 0, 1, 0, 1), true, "2 memories exceed 1"},
		{"large table", header8 + sec(4, with([]byte{1, 0x70, 0}, ones)...), true, "table entries"},
		{"tables together", header8 + sec(4, repeat(2, 0x70, 0, 0xe0, 0xd4, 3)...), true, "table entries"},
		{"long body", header8 + sec(10, with(binary.AppendUvarint([]byte{1}, MaxBodyBytes+1), make([]byte, MaxBodyBytes+1))...), true, "bytes in body 0"},
		{"long name", header8 + sec(7, with([]byte{1}, repeat(MaxNameBytes+1, 'a'), []byte{0, 0})...), true, "name of 1025 bytes"},
		{"custom sections", header8 + strings.Repeat(sec(0, 0), MaxCustom+1), true, "custom sections"},
		{"large module", header8 + strings.Repeat("\x00", MaxModuleBytes), true, "exceeds 8388608"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, err := Decode([]byte(test.module))
			runtime.ReadMemStats(&after)
			errs, ok := errors.AsType[Errors](err)
			malformed := slices.ContainsFunc(errs, func(e *Error) bool { return !e.Limit })
			if !ok || (m == nil) != (malformed || len(test.module) > MaxModuleBytes) {
				t.Fatalf("module %v, error %v", m, err)
			}
			if !slices.ContainsFunc(errs, func(e *Error) bool { return e.Limit == test.limit && strings.Contains(e.Text, test.text) }) {
				t.Errorf("errors %v; want %q, limit %v", errs, test.text, test.limit)
			}
			if used, most := after.TotalAlloc-before.TotalAlloc, uint64(3<<20+2*len(test.module)); used > most {
				t.Errorf("decoding %d bytes allocated %d, want at most %d", len(test.module), used, most)
			}
		})
	}
}

func TestDecodeListsEveryLimit(t *testing.T) {
	module := header8 + sec(1, repeat(MaxTypes+1, 0x60, 0, 0)...) + sec(5, 2, 0, 1, 0, 1) + sec(6, repeat(MaxGlobals+1, 0x7f, 0, 0x41, 0, 0x0b)...)
	m, err := Decode([]byte(module))
	errs, _ := errors.AsType[Errors](err)
	if len(errs) != 3 || m == nil || len(m.Types) != MaxTypes || len(m.Memories) != 1 || !m.Partial() {
		t.Fatalf("%d reasons, want 3: %v", len(errs), errs)
	}
}

// Behind each body, name or type past a cap the next one is looked at; of many a few are named.
func TestDecodeGoesOn(t *testing.T) {
	wide := append(binary.AppendUvarint([]byte{1}, MaxLocals+1), 0x7f, 0x0b) // a body
	long := append(make([]byte, MaxBodyBytes), 0x0b)
	entry := func(body []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(body))), body...) }
	const more = 5
	var bodies []byte
	for range maxTold + more {
		bodies = append(bodies, entry(wide)...)
	}
	n := byte(maxTold + more + 2)
	name := append(binary.AppendUvarint(nil, MaxNameBytes+1), bytes.Repeat([]byte{'a'}, MaxNameBytes+1)...)
	module := header8 + sec(1, with([]byte{1, 0x60}, repeat(MaxParams+1, 0x7f), repeat(MaxResults+1, 0x7f))...) +
		sec(2, with([]byte{2}, name, []byte{0, 0, 0, 1, 'a', 1, 'b', 0, 0})...) + sec(3, with([]byte{n}, make([]byte, n))...) +
		sec(10, with([]byte{n}, entry(long), bodies, entry(long))...)
	m, err := Decode([]byte(module))
	errs, _ := errors.AsType[Errors](err)
	count := map[string]int{}
	for _, e := range errs {
		for _, text := range []string{"65 parameters", "9 results", "name of 1025", "bytes in body", "locals in body", "locals of bodies: the same 5 more times"} {
			if e.Limit && strings.Contains(e.Text, text) {
				count[text]++
			}
		}
	}
	want := map[string]int{"65 parameters": 1, "9 results": 1, "name of 1025": 1, "bytes in body": 2, "locals in body": maxTold, "locals of bodies: the same 5 more times": 1}
	if m == nil || !maps.Equal(count, want) {
		t.Errorf("reasons %v, want %v: %v", count, want, errs)
	}
	if m != nil && (m.Partial() || len(m.Imports) != 2 || m.Imports[1].Name != "b") {
		t.Errorf("imports %+v", m.Imports)
	}
}

// A function keeps its number behind imports that are past the cap.
func TestNumbersBehindManyImports(t *testing.T) {
	module := header8 + sec(1, 1, 0x60, 0, 0) + sec(2, repeat(MaxImports+10, 0, 0, 0, 0)...) + sec(3, 1, 0) + sec(10, 1, 4, 0, 0x12, 0, 0x0b)
	m, err := Decode([]byte(module))
	if m == nil || !m.Partial() || m.Imported(Func) != MaxImports+10 {
		t.Fatalf("module %v, error %v", m, err)
	}
	if err := m.CheckCode(); err == nil || !strings.Contains(err.Error(), "function 266: instruction 0x12") {
		t.Errorf("error %v", err)
	}
}

func TestSetCustom(t *testing.T) {
	const name = "sandboxd.manifest"
	one, err := SetCustom([]byte(small), name, []byte("first"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(one), small) {
		t.Error("appending changed what was there")
	}
	two, err := SetCustom(one, name, bytes.Repeat([]byte("second"), 100))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := Decode(two); err != nil || len(m.Custom(name)) != 1 || string(m.Custom(name)[0]) != strings.Repeat("second", 100) {
		t.Errorf("section %q, error %v", m.Custom(name), err)
	}
	back, err := SetCustom(two, name, []byte("first"))
	if err != nil || !bytes.Equal(back, one) {
		t.Errorf("writing the first again gives other bytes, error %v", err)
	}
	twice := append(slices.Clone(one), one[len(small):]...)
	if _, err := SetCustom(twice, name, nil); err == nil || !strings.Contains(err.Error(), "there are 2") {
		t.Errorf("two sections: error %v", err)
	}
	if _, err := SetCustom([]byte(small), name, make([]byte, MaxModuleBytes)); err == nil {
		t.Error("a module past the cap was written")
	}
}

// FuzzDecode: no input panics or is read past its end, and a custom section
// reads back as it was written, leaving the rest as it was.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(small), []byte("data"))
	f.Add([]byte(header8+sec(1, ones...)), []byte(nil))
	f.Add([]byte(header8+sec(9, 1, 5, 0x70, 1, 0xd2, 0, 0x0b)), []byte("x"))
	f.Fuzz(func(t *testing.T, module, data []byte) {
		m, err := Decode(module)
		if err != nil {
			errs, ok := errors.AsType[Errors](err)
			if !ok || m != nil && slices.ContainsFunc(errs, func(e *Error) bool { return !e.Limit }) {
				t.Fatalf("module %v beside error %T %v", m, err, err)
			}
			if m != nil {
				_ = m.CheckCode()
			}
			return
		}
		if len(m.Custom("x")) > 1 {
			return
		}
		out, err := SetCustom(module, "x", data)
		if err != nil {
			return // past a cap
		}
		again, err := Decode(out)
		if err != nil || len(again.Custom("x")) != 1 || !bytes.Equal(again.Custom("x")[0], data) {
			t.Fatalf("section reads back as %q, error %v", again.Custom("x"), err)
		}
		if got, want := others(again), others(m); got != want {
			t.Fatalf("other sections changed:\n%s\n%s", got, want)
		}
	})
}

func others(m *Module) string {
	var b strings.Builder
	for _, s := range m.Sections {
		if s.ID != 0 || s.Name != "x" {
			fmt.Fprintf(&b, "%d %q %x\n", s.ID, s.Name, m.bytes[s.Body:s.End])
		}
	}
	return b.String()
}
