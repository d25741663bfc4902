package regobuild

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/host/rego"
	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// Entrypoint is the rule that gives the verdict, as opa build is told it.
const Entrypoint = "guard/verdict"

// Section ids.
const (
	secType, secImport, secFunction, secTable, secMemory, secGlobal byte = 1, 2, 3, 4, 5, 6
	secExport, secStart, secElement, secCode, secData, secDataCount byte = 7, 8, 9, 10, 11, 12
	i32, i64                                                             = byte(wasmbin.I32), byte(wasmbin.I64)
	passive                                                         byte = 1 // a data segment that memory.init copies
	env                                                                  = "env"
)

// A BuiltinError reports a function that a policy calls and that a guard may not:
// its answer is no function of the question, or the host does not have it.
type BuiltinError struct {
	Names []string // as in Rego, sorted
}

// Error names the functions and those that there are.
func (e *BuiltinError) Error() string {
	return fmt.Sprintf("calls %q, which a guard may not; of what OPA does not compile to WebAssembly there are %q", e.Names, rego.Builtins())
}

// Link makes a guest of a policy as OPA compiles it to WebAssembly (its ABI 1.2 and
// later) and the JSON text of the policy's data. The guest has its own memory, and
// as exports [abi.ExportCall], which judges one question by the rule [Entrypoint],
// and [abi.ExportWarmUp], which reads the data. It has no manifest yet. The same
// policy and data give the same bytes.
//
// A policy that calls a function it may not call is a [*BuiltinError]. Link keeps
// neither argument.
func Link(policy, data []byte) ([]byte, error) {
	wasm, _, err := link(policy, data)
	return wasm, err
}

// link is Link, which also returns the contents of the section "name" that the guest does
// not have.
func link(policy, data []byte) (wasm, names []byte, err error) {
	m, err := wasmbin.Decode(policy)
	if err != nil {
		return nil, nil, fmt.Errorf("policy: %w", err)
	}
	l := &linker{m: m, funcs: map[string]uint32{}}
	if err := l.read(); err != nil {
		return nil, nil, fmt.Errorf("policy: not as OPA compiles: %w", err)
	}
	var unknown []string
	for _, b := range l.builtins {
		if !slices.Contains(rego.Builtins(), b.name) {
			unknown = append(unknown, b.name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, nil, &BuiltinError{unknown}
	}
	a := newAdapter(l, bytes.TrimSpace(data))
	code, err := l.code(a)
	if err != nil {
		return nil, nil, fmt.Errorf("policy: %w", err)
	}
	out := slices.Clone(m.Bytes()[:8])
	out = section(out, secType, extended(l.raw(secType), a.types...))
	out = section(out, secImport, a.imports())
	out = section(out, secFunction, extended(l.raw(secFunction), a.functions()...))
	out = section(out, secTable, l.raw(secTable))
	out = section(out, secMemory, l.memory)
	out = section(out, secGlobal, extended(l.mapped(secGlobal), a.globals()...))
	out = section(out, secExport, a.exports())
	if m.Start {
		out = section(out, secStart, u32(nil, l.index(m.StartFunc)))
	}
	out = section(out, secElement, l.mapped(secElement))
	out = section(out, secDataCount, u32(nil, uint32(m.Data)+1))
	out = section(out, secCode, code)
	out = section(out, secData, extended(l.raw(secData), append([]byte{passive}, text(string(a.blob))...)))
	if _, err := wasmbin.Decode(out); err != nil {
		return nil, nil, fmt.Errorf("policy: linked: %w", err)
	}
	return out, l.functionNames(), nil
}

// A builtin is a function that the policy asks its host for, by number.
type builtin struct {
	id   int64
	name string
}

// A linker writes the sections of the guest. Functions get new numbers: those that
// were imported from OPA's host become the adapter's, and the adapter's imports come
// in their place.
type linker struct {
	m        *wasmbin.Module
	names    []string          // of the imported functions, in order
	memory   []byte            // contents of a memory section
	funcs    map[string]uint32 // exported functions, by name
	builtins []builtin

	imported uint32            // functions that the guest imports
	stands   map[string]uint32 // what stands for an imported function, by name
}

// read looks at what OPA compiled.
func (l *linker) read() error {
	if len(l.m.Memories) > 0 || l.m.Imported(wasmbin.Memory) != 1 || l.m.Imported(wasmbin.Global)+l.m.Imported(wasmbin.Table) > 0 {
		return fmt.Errorf("want one import of a memory and none of globals and tables")
	}
	r := bytes.NewReader(l.raw(secImport))
	next := func() uint64 { n, _ := binary.ReadUvarint(r); return n } // wasmbin has read it before
	for range next() {
		var names [2]string
		for i := range names {
			b := make([]byte, next())
			r.Read(b)
			names[i] = string(b)
		}
		kind, _ := r.ReadByte()
		if names[0] != env {
			return fmt.Errorf("imports %s.%s", names[0], names[1])
		}
		if wasmbin.Kind(kind) == wasmbin.Func {
			next()
			l.names = append(l.names, names[1])
			continue
		}
		if bounded := next(); bounded == 0 || bounded == 1 { // a maximum is the host's business
			l.memory = u32([]byte{1, 0}, uint32(next()))
			for range bounded {
				next()
			}
		}
	}
	for _, x := range l.m.Exports {
		if x.Kind == wasmbin.Func {
			l.funcs[x.Name] = x.Index
		}
	}
	for _, name := range append([]string{"builtins", "entrypoints"}, calls...) {
		if _, ok := l.funcs[name]; !ok {
			return fmt.Errorf("no export %q", name)
		}
	}
	for i, name := range l.names {
		want, known := hostTypes[name]
		if t, ok := l.m.FuncType(uint32(i)); !known || !ok || !t.Equal(want) {
			return fmt.Errorf("imports %s of the type %s", name, t)
		}
	}
	entries, err := l.table("entrypoints")
	if err != nil {
		return err
	}
	if len(entries) != 1 || entries[0] != (builtin{0, Entrypoint}) {
		return fmt.Errorf("entry points %v, want %s alone", entries, Entrypoint)
	}
	l.builtins, err = l.table("builtins")
	return err
}

// table reads what an export of OPA's returns: an object of names with numbers. It
// is read from the code that makes it, which has one form: nothing of the policy
// runs while it is built.
func (l *linker) table(export string) ([]builtin, error) {
	index := int(l.funcs[export]) - len(l.names)
	form := []wasmbin.Op{wasmbin.OpLocalGet, wasmbin.OpI32Const, wasmbin.OpCall, wasmbin.OpI64Const, wasmbin.OpCall, wasmbin.OpCall}
	var all []builtin
	for i, body := range l.m.Bodies() {
		if i != index {
			continue
		}
		var ops []wasmbin.Op
		var address, id int64
		for s := body.Instructions(); s.Next(); {
			in := s.Instruction()
			ops = append(ops, in.Op)
			switch in.Op {
			case wasmbin.OpI32Const:
				address = signed(l.m.Bytes()[in.Operands:in.End])
			case wasmbin.OpI64Const:
				id = signed(l.m.Bytes()[in.Operands:in.End])
				name, ok := l.constant(uint32(address))
				if !ok {
					return nil, fmt.Errorf("%s: no text at %d", export, address)
				}
				all = append(all, builtin{id, name})
			}
		}
		want := []wasmbin.Op{wasmbin.OpCall, wasmbin.OpLocalSet}
		for range all {
			want = append(want, form...)
		}
		if !slices.Equal(ops, append(want, wasmbin.OpLocalGet, wasmbin.OpEnd)) {
			return nil, fmt.Errorf("%s: another form of code", export)
		}
		return all, nil
	}
	return nil, fmt.Errorf("%s: no body", export)
}

// constant returns the text at an address of the memory as it is at first, up to a
// NUL.
func (l *linker) constant(address uint32) (string, bool) {
	raw := l.raw(secData)
	next := func() uint32 { n, size := binary.Uvarint(raw); raw = raw[size:]; return uint32(n) }
	for range next() {
		if next() != 0 || raw[0] != byte(wasmbin.OpI32Const) { // OPA writes no other segments
			return "", false
		}
		end := 1
		for raw[end]&0x80 != 0 {
			end++
		}
		at := uint32(signed(raw[1 : end+1]))
		raw = raw[end+2:]
		contents := raw[:next()]
		contents = raw[:len(contents)]
		raw = raw[len(contents):]
		if address >= at && address-at < uint32(len(contents)) {
			name, _, ok := bytes.Cut(contents[address-at:], []byte{0})
			return string(name), ok
		}
	}
	return "", false
}

// index returns the new number of a function.
func (l *linker) index(f uint32) uint32 {
	if n := uint32(len(l.names)); f >= n {
		return f - n + l.imported
	}
	return l.stands[l.names[f]]
}

// functionNames returns the contents of a section "name" that has the names of OPA's
// functions by their new numbers.
func (l *linker) functionNames() []byte {
	var list []byte
	kept := uint32(0)
	for index, name := range l.m.FunctionNames() {
		if index >= uint32(len(l.names)) && index < uint32(len(l.names)+len(l.m.Functions)) {
			list = append(u32(list, l.index(index)), text(name)...)
			kept++
		}
	}
	list = append(u32(nil, kept), list...)
	return append(u32([]byte{1}, uint32(len(list))), list...)
}

// code returns the code section: OPA's functions with new numbers, then the adapter's.
func (l *linker) code(a *adapter) ([]byte, error) {
	bodies := a.bodies()
	out := u32(nil, uint32(len(l.m.Functions)+len(bodies)))
	for _, source := range l.m.Bodies() {
		body := u32(nil, uint32(source.Groups))
		from := source.Locals
		s := source.Instructions()
		for s.Next() {
			in := s.Instruction()
			if in.Op != wasmbin.OpCall && in.Op != wasmbin.OpRefFunc {
				continue
			}
			if int(in.Index) >= len(l.names)+len(l.m.Functions) {
				return nil, fmt.Errorf("function %d is called and does not exist", in.Index)
			}
			body = u32(append(body, l.m.Bytes()[from:in.Operands]...), l.index(in.Index))
			from = in.End
		}
		if err := s.Err(); err != nil {
			return nil, err
		}
		body = append(body, l.m.Bytes()[from:source.End]...)
		out = append(u32(out, uint32(len(body))), body...)
	}
	for _, body := range bodies {
		out = append(u32(out, uint32(len(body))), body...)
	}
	return out, nil
}

// raw returns the contents of a section, or nil.
func (l *linker) raw(id byte) []byte {
	for _, s := range l.m.Sections {
		if s.ID == id {
			return l.m.Bytes()[s.Body:s.End]
		}
	}
	return nil
}

// mapped returns the contents of a section with the new numbers of functions.
func (l *linker) mapped(id byte) []byte {
	for _, s := range l.m.Sections {
		if s.ID != id {
			continue
		}
		var out []byte
		from := s.Body
		for _, r := range l.m.FuncRefs {
			if r.Start >= s.Body && r.Start < s.End {
				out = u32(append(out, l.m.Bytes()[from:r.Start]...), l.index(r.Index))
				from = r.End
			}
		}
		return append(out, l.m.Bytes()[from:s.End]...)
	}
	return nil
}

// extended returns a section's vector with more elements behind those it has.
func extended(contents []byte, more ...[]byte) []byte {
	old, size := uint64(0), 0
	if len(contents) > 0 {
		old, size = binary.Uvarint(contents)
	}
	out := u32(nil, uint32(old)+uint32(len(more)))
	return append(append(out, contents[size:]...), slices.Concat(more...)...)
}

// section appends a section, unless it is empty.
func section(out []byte, id byte, contents []byte) []byte {
	if len(contents) == 0 {
		return out
	}
	return append(u32(append(out, id), uint32(len(contents))), contents...)
}

func u32(out []byte, v uint32) []byte { return binary.AppendUvarint(out, uint64(v)) }

func text(s string) []byte { return append(u32(nil, uint32(len(s))), s...) }

// signed decodes a signed LEB128 that fills b.
func signed(b []byte) int64 {
	v, shift := int64(0), 0
	for _, c := range b {
		v |= int64(c&0x7f) << shift
		shift += 7
	}
	if shift < 64 && b[len(b)-1]&0x40 != 0 {
		v |= -1 << shift
	}
	return v
}

// sleb appends a signed LEB128.
func sleb(out []byte, v int64) []byte {
	for v < -64 || v > 63 {
		out = append(out, byte(v)|0x80)
		v >>= 7
	}
	return append(out, byte(v)&0x7f)
}
