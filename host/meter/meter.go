package meter

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// What a rewritten module imports and exports. No module may have such names of
// its own: all that begin with Prefix are reserved.
const (
	Prefix = "sandboxd:meter"  // the module that Refill is imported from
	Refill = "refill"          // () -> (): looks at both globals and sets Fuel
	Fuel   = Prefix + ".fuel"  // exported i64 global: fuel left of the slice
	Depth  = Prefix + ".depth" // exported i64 global: frames left
	Start  = Prefix + ".start" // exported function: the module's start function, if it has one

	global = Prefix + ".global."
)

// Global is the name under which global i of the module is exported, if it is
// mutable and holds a number.
func Global(i int) string { return global + strconv.Itoa(i) }

// Reserved reports whether a name of an import's module or of an export is one
// that guests may not use.
func Reserved(name string) bool { return strings.HasPrefix(name, Prefix) }

// Section ids.
const (
	secCustom, secType, secImport, secFunction, secTable, secMemory, secGlobal byte = 0, 1, 2, 3, 4, 5, 6
	secExport, secStart, secElement, secCode, secData, secDataCount            byte = 7, 8, 9, 10, 11, 12
)

// Rewrite returns the module with its work metered, as the package comment says.
// Of its custom sections only the names of functions stay, as [Space.Frames] reads them. Active data segments
// that lie close to each other become one, and a table without a maximum gets one,
// so that all tables together stay within [wasmbin.MaxTableEntries]. The same
// module gives the same bytes.
//
// A module that uses a reserved name, that names what it does not declare or whose
// instructions cannot be read is a [*wasmbin.Error]. All else is left to the
// engine's validation of what Rewrite returns, which accepts it if, and only if, it
// would accept the module.
func Rewrite(m *wasmbin.Module) ([]byte, error) { return newRewriter(m).rewrite() }

func (w *rewriter) rewrite() ([]byte, error) {
	m := w.m
	if err := w.check(); err != nil {
		return nil, err
	}
	code, err := w.code()
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(m.Bytes())+len(m.Bytes())/2)
	out = append(out, m.Bytes()[:8]...)
	out = section(out, secType, w.types())
	out = section(out, secImport, w.imports())
	out = section(out, secFunction, w.functions())
	out = section(out, secTable, w.tables())
	out = section(out, secMemory, w.raw(secMemory))
	out = section(out, secGlobal, w.globals())
	out = section(out, secExport, w.exports())
	out = section(out, secElement, w.shifted(secElement))
	out = section(out, secDataCount, w.raw(secDataCount))
	out = section(out, secCode, code)
	out = section(out, secData, w.data())
	return section(out, secCustom, w.names()), nil
}

// A rewriter writes one module. Indexes are those of the rewritten module; of the
// index spaces only functions have been shifted, by the one import.
type rewriter struct {
	m *wasmbin.Module

	imported    uint32 // functions that the module imports, which is the index of refill
	funcCount   uint32 // functions, imported ones among them; likewise globals and tables
	globalCount uint32
	tableCount  uint32
	fuel        uint32 // global; likewise depth
	depth       uint32
	helper      uint32 // function that charges for lengths; behind it fill and copy, where there is a memory
	fill, copy  uint32
	memory      bool
	accessor    []bool // which of the imported functions are accessors

	declared  []bool   // functions that code may make references to
	funcTypes []uint32 // of all functions, once check has seen that they exist
	wide      bool     // the module has globals or types with values of 16 bytes

	probe *probe // nil without one
}

func newRewriter(m *wasmbin.Module) *rewriter {
	w := &rewriter{m: m}
	w.imported = uint32(m.Imported(wasmbin.Func))
	w.funcCount = w.imported + uint32(len(m.Functions))
	w.globalCount = uint32(m.Imported(wasmbin.Global) + len(m.Globals))
	w.tableCount = uint32(m.Imported(wasmbin.Table) + len(m.Tables))
	w.helper = w.funcCount + 1
	w.fill, w.copy = w.helper+1, w.helper+2
	w.memory = len(m.Memories)+m.Imported(wasmbin.Memory) > 0
	w.declared = make([]bool, w.funcCount)
	for _, i := range m.Imports {
		if i.Kind == wasmbin.Func {
			w.funcTypes = append(w.funcTypes, i.Type)
			w.accessor = append(w.accessor, isAccessor(m, i))
		}
	}
	w.funcTypes = append(w.funcTypes, m.Functions...)
	w.wide = slices.ContainsFunc(m.Types, func(t wasmbin.FuncType) bool {
		return slices.Contains(t.Params, wasmbin.V128) || slices.Contains(t.Results, wasmbin.V128)
	}) || slices.ContainsFunc(m.Globals, func(t wasmbin.GlobalType) bool { return t.Type == wasmbin.V128 })
	w.fuel, w.depth = w.globalCount, w.globalCount+1
	return w
}

// check refuses reserved names and indexes that the module does not declare,
// except those in bodies.
func (w *rewriter) check() error {
	m := w.m
	bad := func(format string, args ...any) error { return &wasmbin.Error{Text: fmt.Sprintf(format, args...)} }
	types := uint32(len(m.Types))
	for _, i := range m.Imports {
		if Reserved(i.Module) {
			return bad("import from %q: the name is reserved", i.Module)
		}
		if i.Kind == wasmbin.Func && i.Type >= types {
			return bad("import of %q has type %d of %d", i.Name, i.Type, types)
		}
	}
	for i, t := range m.Functions {
		if t >= types {
			return bad("function %d has type %d of %d", w.imported+uint32(i), t, types)
		}
	}
	for _, e := range m.Exports {
		if Reserved(e.Name) {
			return bad("export %q: the name is reserved", e.Name)
		}
		if e.Kind == wasmbin.Global && e.Index >= w.globalCount {
			return bad("export %q is global %d of %d", e.Name, e.Index, w.globalCount)
		}
	}
	start, _ := w.find(secStart)
	for _, r := range m.FuncRefs {
		if r.Index >= w.funcCount {
			return &wasmbin.Error{Offset: r.Start, Text: fmt.Sprintf("function %d of %d is named", r.Index, w.funcCount)}
		}
		w.declared[r.Index] = w.declared[r.Index] || r.Start < start.Body || r.Start >= start.End
	}
	if t, _ := m.FuncType(m.StartFunc); m.Start && len(t.Params)+len(t.Results) > 0 {
		return bad("start function has the type %s", t)
	}
	if m.ConstGlobal >= max(w.globalCount, 1) {
		return bad("constant is global %d of %d", m.ConstGlobal, w.globalCount)
	}
	return nil
}

// shift returns the new index of a function.
func (w *rewriter) shift(f uint32) uint32 {
	if f >= w.imported {
		return f + 1
	}
	return f
}

// find returns the section with that id.
func (w *rewriter) find(id byte) (wasmbin.Section, bool) {
	for _, s := range w.m.Sections {
		if s.ID == id {
			return s, true
		}
	}
	return wasmbin.Section{}, false
}

// raw returns the contents of a section, or nil.
func (w *rewriter) raw(id byte) []byte {
	s, _ := w.find(id)
	return w.m.Bytes()[s.Body:s.End]
}

// shifted returns the contents of a section with the new indexes of functions.
func (w *rewriter) shifted(id byte) []byte {
	s, ok := w.find(id)
	if !ok {
		return nil
	}
	var out []byte
	from := s.Body
	for _, r := range w.m.FuncRefs {
		if r.Start < s.Body || r.Start >= s.End {
			continue
		}
		out = append(out, w.m.Bytes()[from:r.Start]...)
		out = u32(out, w.shift(r.Index))
		from = r.End
	}
	return append(out, w.m.Bytes()[from:s.End]...)
}

// extended returns a section's vector with more elements behind those it has.
func extended(contents []byte, n uint32, more ...byte) []byte {
	old, size := uint64(0), 0
	if len(contents) > 0 {
		old, size = binary.Uvarint(contents)
	}
	out := u32(make([]byte, 0, len(contents)+len(more)+5), uint32(old)+n)
	return append(append(out, contents[size:]...), more...)
}

const (
	i32 = byte(wasmbin.I32)
	i64 = byte(wasmbin.I64)
)

// types adds those of the helper, of refill, and of fill and copy.
func (w *rewriter) types() []byte {
	n, out := uint32(addedTypes), []byte{0x60, 2, i64, i64, 1, i64, 0x60, 0, 0, 0x60, 4, i32, i32, i32, i64, 1, i64}
	if w.probe != nil {
		more, count := probeTypes()
		n, out = n+count, append(out, more...)
	}
	return extended(w.raw(secType), n, out...)
}

// imports adds refill, and has accessors come from [Blocks].
func (w *rewriter) imports() []byte {
	old := w.raw(secImport)
	var renamed []byte
	if len(old) > 0 {
		s, _ := w.find(secImport)
		from := s.Body
		for _, i := range w.m.Imports {
			if isAccessor(w.m, i) {
				renamed = append(renamed, w.m.Bytes()[from:i.Start]...)
				renamed = name(renamed, Blocks)
				from = i.NameStart
			}
		}
		renamed = append(renamed, w.m.Bytes()[from:s.End]...)
	}
	more := append(name(name(nil, Prefix), Refill), byte(wasmbin.Func))
	more = u32(more, uint32(len(w.m.Types))+1)
	return extended(renamed, 1, more...)
}

// addedTypes is how many types are added to every module.
const addedTypes = 3

// helpers is how many functions are added.
func (w *rewriter) helpers() uint32 {
	if w.memory {
		return 3
	}
	return 1
}

// functions adds the helpers.
func (w *rewriter) functions() []byte {
	types := uint32(len(w.m.Types))
	more := u32(nil, types)
	if w.memory {
		more = u32(u32(more, types+2), types+2)
	}
	return extended(w.raw(secFunction), w.helpers(), more...)
}

func (w *rewriter) globals() []byte {
	zero := []byte{i64, 1, byte(wasmbin.OpI64Const), 0, byte(wasmbin.OpEnd)}
	small := []byte{i32, 1, byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpEnd)}
	n, more := uint32(2), append(slices.Clone(zero), zero...)
	if w.probe != nil {
		n++
		more = append(more, small...)
		for range w.probe.words() {
			n++
			more = append(more, zero...)
		}
	}
	return extended(w.shifted(secGlobal), n, more...)
}

func (w *rewriter) exports() []byte {
	n := uint32(2)
	more := u32(append(name(nil, Fuel), byte(wasmbin.Global)), w.fuel)
	more = u32(append(name(more, Depth), byte(wasmbin.Global)), w.depth)
	for i, t := range w.m.Globals {
		if t.Mutable && t.Type.Number() {
			n++
			more = u32(append(name(more, Global(i)), byte(wasmbin.Global)), uint32(w.m.Imported(wasmbin.Global)+i))
		}
	}
	if w.probe != nil {
		n++
		more = u32(append(name(more, Changed), byte(wasmbin.Global)), w.changed())
		for i := range w.probe.words() {
			n++
			more = u32(append(name(more, Seen(i)), byte(wasmbin.Global)), w.changed()+1+uint32(i))
		}
	}
	if w.m.Start {
		n++
		more = u32(append(name(more, Start), byte(wasmbin.Func)), w.shift(w.m.StartFunc))
	}
	return extended(w.shifted(secExport), n, more...)
}

// tables gives every table a maximum. What the module leaves of the entries that
// all tables may have is shared by those that had none.
func (w *rewriter) tables() []byte {
	if len(w.m.Tables) == 0 {
		return nil
	}
	left, open := uint32(wasmbin.MaxTableEntries), uint32(0)
	for _, t := range w.m.Tables {
		left -= max(t.Min, t.Max) // together they are within the cap
		if !t.HasMax {
			open++
		}
	}
	out := u32(nil, uint32(len(w.m.Tables)))
	for i, t := range w.m.Tables {
		if !t.HasMax {
			t.Max = t.Min + left/open
		}
		out = append(out, byte(w.m.TableTypes[i]), 1)
		out = u32(u32(out, t.Min), t.Max)
	}
	return out
}

// section appends a section, unless it is nil.
func section(out []byte, id byte, contents []byte) []byte {
	if len(contents) == 0 {
		return out
	}
	return append(u32(append(out, id), uint32(len(contents))), contents...)
}

func u32(out []byte, v uint32) []byte { return binary.AppendUvarint(out, uint64(v)) }

// s64 appends a signed LEB128.
func s64(out []byte, v int64) []byte {
	for v < -64 || v > 63 {
		out = append(out, byte(v)|0x80)
		v >>= 7
	}
	return append(out, byte(v)&0x7f)
}

func name(out []byte, s string) []byte { return append(u32(out, uint32(len(s))), s...) }
