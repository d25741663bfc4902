package wasmbin

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// A ValueType is the type of a value.
type ValueType byte

// The value types.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

// String returns the name that the text format has for the type.
func (t ValueType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return fmt.Sprintf("0x%02x", byte(t))
}

// Number reports whether values of the type are integers or floating-point numbers.
func (t ValueType) Number() bool { return t == I32 || t == I64 || t == F32 || t == F64 }

// A FuncType is the type of a function.
type FuncType struct {
	Params  []ValueType
	Results []ValueType
}

// String returns the type as "(PARAMETERS) -> (RESULTS)".
func (t FuncType) String() string {
	return fmt.Sprintf("(%s) -> (%s)", list(t.Params), list(t.Results))
}

// Equal reports whether t and u are the same type.
func (t FuncType) Equal(u FuncType) bool {
	return list(t.Params) == list(u.Params) && list(t.Results) == list(u.Results)
}

func list(types []ValueType) string {
	s := ""
	for i, t := range types {
		if i > 0 {
			s += " "
		}
		s += t.String()
	}
	return s
}

// A Kind is what an import or export is.
type Kind byte

// The kinds.
const (
	Func   Kind = 0
	Table  Kind = 1
	Memory Kind = 2
	Global Kind = 3
)

// String returns what the kind is called, such as "memory".
func (k Kind) String() string {
	switch k {
	case Func:
		return "function"
	case Table:
		return "table"
	case Memory:
		return "memory"
	case Global:
		return "global"
	}
	return fmt.Sprintf("kind 0x%02x", byte(k))
}

// Limits are the bounds of a table, in entries, or of a memory, in pages of 64 KiB.
type Limits struct {
	Min, Max uint32 // Max only if HasMax
	HasMax   bool
}

// A GlobalType is what a global holds and whether that can change.
type GlobalType struct {
	Type    ValueType
	Mutable bool
}

// An Import is one import.
type Import struct {
	Module, Name string
	Kind         Kind
	Type         uint32 // index into Types, of a function

	Start, NameStart int // where it begins in the module, and where its name does
}

// An Export is one export.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32 // in the index space of its kind
}

// A Ref is where an index lies in the module, encoded in the bytes from Start to End.
type Ref struct {
	Start, End int
	Index      uint32
}

// A Section is where one section lies in the module.
type Section struct {
	ID    byte
	Name  string // of a custom section
	Start int    // its id byte
	Body  int    // after its size; for a custom section after its name
	End   int    // behind its last byte
}

// A Module is what the sections of a module declare. It refers to the bytes it
// was decoded from, which must not change.
type Module struct {
	Types      []FuncType
	Imports    []Import
	Functions  []uint32    // the type of each function with a body
	Tables     []Limits    // those of this module, without imported ones; likewise the next three
	TableTypes []ValueType // of Tables
	Memories   []Limits
	Globals    []GlobalType
	Exports    []Export
	Start      bool   // has a start function
	StartFunc  uint32 // its index
	Elements   int    // number of element segments
	Data       int    // number of data segments
	DataCount  bool   // has a section that announces Data
	FuncRefs   []Ref  // every index of a function outside of bodies, in order

	// ConstGlobal is the highest index of a global in a constant, 0 if there is none.
	ConstGlobal uint32

	// Lasting is an instruction in the code that changes a table or drops a segment,
	// 0 if there is none. [Module.CheckCode] sets it.
	Lasting Op

	Sections []Section

	bytes   []byte
	partial bool
	more    [Global + 1]int // imports that are not in Imports, by kind
}

// Partial reports that the module has more types, imports, functions or exports than
// the caps allow, of which those past the caps are not there: what names one of
// them may be right.
func (m *Module) Partial() bool { return m.partial }

// Bytes returns what the module was decoded from. It must not be changed.
func (m *Module) Bytes() []byte { return m.bytes }

// Imported returns the number of imports of a kind: the first index of that kind
// which is the module's own.
func (m *Module) Imported(k Kind) int {
	n := 0
	if int(k) < len(m.more) {
		n = m.more[k]
	}
	for _, i := range m.Imports {
		if i.Kind == k {
			n++
		}
	}
	return n
}

// Custom returns the contents of every custom section of that name.
func (m *Module) Custom(name string) [][]byte {
	var all [][]byte
	for _, s := range m.Sections {
		if s.ID == 0 && s.Name == name {
			all = append(all, m.bytes[s.Body:s.End:s.End])
		}
	}
	return all
}

// FunctionNames yields the names of functions by their index, imports first, in the order of
// the custom section "name". They may name functions that the module has not.
func (m *Module) FunctionNames() iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		for _, b := range m.Custom("name") {
			for len(b) > 0 { // Decode has read it
				id := b[0]
				size, n := binary.Uvarint(b[1:])
				sub := b[1+n : 1+n+int(size)]
				b = b[1+n+int(size):]
				if id != 1 {
					continue
				}
				count, n := binary.Uvarint(sub)
				sub = sub[n:]
				for range count {
					index, n := binary.Uvarint(sub)
					length, k := binary.Uvarint(sub[n:])
					end := n + k + int(length)
					if !yield(uint32(index), string(sub[n+k:end])) {
						return
					}
					sub = sub[end:]
				}
			}
		}
	}
}

// FuncType returns the type of a function in the index space of functions,
// imports first. It is false if the module has no such function or type.
func (m *Module) FuncType(index uint32) (FuncType, bool) {
	for _, i := range m.Imports {
		if i.Kind != Func {
			continue
		}
		if index == 0 {
			return m.typeAt(i.Type)
		}
		index--
	}
	if uint64(index) >= uint64(len(m.Functions)) {
		return FuncType{}, false
	}
	return m.typeAt(m.Functions[index])
}

func (m *Module) typeAt(i uint32) (FuncType, bool) {
	if uint64(i) >= uint64(len(m.Types)) {
		return FuncType{}, false
	}
	return m.Types[i], true
}

// Export returns the export of that name.
func (m *Module) Export(name string) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}
