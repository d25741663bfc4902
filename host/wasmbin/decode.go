package wasmbin

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Section ids.
const (
	secCustom, secType, secImport, secFunction, secTable, secMemory, secGlobal byte = 0, 1, 2, 3, 4, 5, 6
	secExport, secStart, secElement, secCode, secData, secDataCount            byte = 7, 8, 9, 10, 11, 12
)

// rank is the order of the sections, by id; data count comes before code.
var rank = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6,
	secExport: 7, secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12}

// Decode reads what a module declares. The error is of type [Errors] and lists
// every reason that can be found: reading goes on behind a section that is past
// a cap and stops where the bytes are malformed. Nothing is returned beside an
// error. The module refers to b.
func Decode(b []byte) (*Module, error) {
	d := decoder{m: &Module{bytes: b}, counts: map[string]int{}}
	if len(b) > MaxModuleBytes {
		return nil, Errors{{Limit: true, Text: fmt.Sprintf("module of %d bytes exceeds %d", len(b), MaxModuleBytes)}}
	}
	if err := header(b); err != nil {
		return nil, Errors{err}
	}
	r := &reader{b: b, pos: 8}
	last := 0
	for r.left() > 0 && r.err == nil {
		s := Section{Start: r.pos}
		s.ID = r.byte()
		body := r.sub(r.u32())
		if r.err != nil {
			break
		}
		s.Body, s.End = body.at, r.pos
		body.refs, body.globals = &d.m.FuncRefs, &d.m.ConstGlobal
		switch {
		case s.ID == 13:
			r.pos = s.Start
			r.fail("tag section: exceptions are not enabled")
		case int(s.ID) >= len(rank):
			r.pos = s.Start
			r.fail("section id %d is not known", s.ID)
		case s.ID != secCustom && rank[s.ID] <= last:
			r.pos = s.Start
			r.fail("section %d is out of order or there twice", s.ID)
		}
		if r.err != nil {
			break
		}
		if s.ID != secCustom {
			last = rank[s.ID]
		}
		d.section(&s, body)
		if body.err != nil && body.err.Limit {
			d.errs = append(d.errs, body.err)
			continue
		}
		if body.err == nil && body.left() > 0 {
			body.fail("section %d has %d bytes too many", s.ID, body.left())
		}
		r.err = body.err
		d.m.Sections = append(d.m.Sections, s)
	}
	if r.err == nil && len(d.errs) == 0 {
		d.whole(r)
	}
	if r.err != nil {
		d.errs = append(d.errs, r.err)
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return d.m, nil
}

// header checks magic and version, and names what else the bytes may be.
func header(b []byte) *Error {
	if len(b) >= 8 && bytes.HasPrefix(b, []byte("\x00asm")) {
		version, layer := binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:])
		switch {
		case layer != 0:
			return &Error{Offset: 4, Text: fmt.Sprintf("component, not a core module (layer %d)", layer)}
		case version != 1:
			return &Error{Offset: 4, Text: fmt.Sprintf("version %d is not known, want 1", version)}
		}
		return nil
	}
	kinds := []struct{ magic, name string }{
		{"\x00asm", "WebAssembly cut off in its header"},
		{"\x7fELF", "an ELF file"}, {"MZ", "a Windows executable"}, {"\x1f\x8b", "gzip data"},
		{"PK", "a zip archive"}, {"\x89PNG", "a PNG image"}, {"\x28\xb5\x2f\xfd", "zstd data"},
		{"(module", "WebAssembly text"}, {"<", "markup"}, {"#!", "a script"}, {"{", "JSON"},
	}
	for _, k := range kinds {
		if bytes.HasPrefix(b, []byte(k.magic)) {
			return &Error{Text: "not a WebAssembly module but " + k.name}
		}
	}
	if len(b) == 0 {
		return &Error{Text: "not a WebAssembly module but empty"}
	}
	return &Error{Text: "not a WebAssembly module"}
}

type decoder struct {
	m      *Module
	errs   Errors
	counts map[string]int // lengths of sections that must agree, by name
}

// section reads one section. What it could not read is in r.err.
func (d *decoder) section(s *Section, r *reader) {
	switch s.ID {
	case secCustom:
		s.Name = r.name()
		s.Body = r.at + r.pos
		if d.counts["custom"]++; d.counts["custom"] > MaxCustom {
			d.over(r, "custom sections", d.counts["custom"], MaxCustom)
		}
		if s.Name == "name" {
			names(r)
		}
		if r.err == nil {
			r.pos = len(r.b)
		}
	case secType:
		for range d.vector(r, "types", 3, MaxTypes) {
			if form := r.byte(); r.err == nil && form != 0x60 {
				r.fail("type form 0x%02x is not a function: garbage collection is not enabled", form)
			}
			t := FuncType{Params: d.types(r, "parameters", MaxParams), Results: d.types(r, "results", MaxResults)}
			if r.err != nil {
				return
			}
			d.m.Types = append(d.m.Types, t)
		}
	case secImport:
		for range d.vector(r, "imports", 4, MaxImports) {
			i := Import{Module: r.name(), Name: r.name(), Kind: Kind(r.byte())}
			switch i.Kind {
			case Func:
				i.Type = r.u32()
			case Table:
				r.refType()
				r.limits("table")
			case Memory:
				r.limits("memory")
			case Global:
				r.globalType()
			default:
				r.fail("import %s is not known", i.Kind)
			}
			if r.err != nil {
				return
			}
			d.m.Imports = append(d.m.Imports, i)
		}
	case secFunction:
		n := d.vector(r, "functions", 1, MaxFunctions)
		d.counts["function"] = n
		for range n {
			d.m.Functions = append(d.m.Functions, r.u32())
		}
	case secTable:
		total := uint64(0)
		for range d.vector(r, "tables", 3, MaxTables) {
			t := r.refType()
			l := r.limits("table")
			if r.err != nil {
				return
			}
			d.m.TableTypes = append(d.m.TableTypes, t)
			d.m.Tables = append(d.m.Tables, l)
			if total += uint64(max(l.Min, l.Max)); total > MaxTableEntries {
				d.over(r, "table entries", int(total), MaxTableEntries)
			}
		}
	case secMemory:
		for range d.vector(r, "memories", 2, MaxMemories) {
			l := r.limits("memory")
			if r.err == nil && max(l.Min, l.Max) > 1<<16 {
				r.fail("memory of %d pages exceeds %d", max(l.Min, l.Max), 1<<16)
			}
			d.m.Memories = append(d.m.Memories, l)
		}
	case secGlobal:
		for range d.vector(r, "globals", 4, MaxGlobals) {
			t := r.globalType()
			r.constExpr()
			if r.err != nil {
				return
			}
			d.m.Globals = append(d.m.Globals, t)
		}
	case secExport:
		seen := map[string]bool{}
		for range d.vector(r, "exports", 3, MaxExports) {
			e := Export{Name: r.name(), Kind: Kind(r.byte())}
			if e.Kind == Func {
				e.Index = r.funcRef()
			} else {
				e.Index = r.u32()
			}
			if r.err == nil && e.Kind > Global {
				r.fail("export %s is not known", e.Kind)
			}
			if r.err == nil && seen[e.Name] {
				r.fail("export %q is there twice", e.Name)
			}
			if r.err != nil {
				return
			}
			seen[e.Name] = true
			d.m.Exports = append(d.m.Exports, e)
		}
	case secStart:
		d.m.StartFunc = r.funcRef()
		d.m.Start = true
	case secElement:
		d.m.Elements = d.vector(r, "element segments", 3, MaxElements)
		for range d.m.Elements {
			d.element(r)
		}
	case secCode:
		d.code(r)
	case secData:
		n := d.vector(r, "data segments", 2, MaxData)
		d.m.Data = n
		for range n {
			switch flag := r.u32(); flag {
			case 2:
				r.u32()
				fallthrough
			case 0:
				r.constExpr()
			case 1:
			default:
				r.fail("data segment flag %d is not known", flag)
			}
			r.bytes(r.u32())
			if r.err != nil {
				return
			}
		}
	case secDataCount:
		d.counts["data count"] = int(r.u32())
		d.m.DataCount = true
	}
}

// whole checks what no section can know alone.
func (d *decoder) whole(r *reader) {
	if d.counts["function"] != d.counts["code"] {
		r.fail("%d functions have %d bodies", d.counts["function"], d.counts["code"])
	}
	if d.m.DataCount && d.counts["data count"] != d.m.Data {
		r.fail("%d data segments were announced as %d", d.m.Data, d.counts["data count"])
	}
}

// over records that something is past its cap and stops reading the section.
func (d *decoder) over(r *reader, what string, n, most int) {
	r.fail("%d %s exceed %d", n, what, most)
	r.err.Limit = true
}

// vector reads the length of a section's vector and compares it with the cap.
func (d *decoder) vector(r *reader, what string, size, most int) int {
	n := r.count(what, size)
	if r.err == nil && n > most {
		d.over(r, what, n, most)
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (d *decoder) types(r *reader, what string, most int) []ValueType {
	n := d.vector(r, what, 1, most)
	types := make([]ValueType, 0, n)
	for range n {
		types = append(types, r.valueType())
	}
	return types
}

// code reads sizes and locals of the bodies; instructions are the engine's.
func (d *decoder) code(r *reader) {
	n := d.vector(r, "bodies", 3, MaxFunctions)
	d.counts["code"] = n
	total := 0
	for i := range n {
		size := r.u32()
		body := r.sub(size)
		if r.err == nil && size > MaxBodyBytes {
			d.over(r, fmt.Sprintf("bytes in body %d", i), int(size), MaxBodyBytes)
		}
		if r.err != nil {
			return
		}
		locals := 0
		for range body.count("groups of locals", 2) {
			c := body.u32()
			body.valueType()
			if body.err != nil {
				break
			}
			if locals += int(min(c, MaxLocals+1)); locals > MaxLocals {
				d.over(body, fmt.Sprintf("or more locals in body %d", i), locals, MaxLocals)
			}
		}
		if total += locals; body.err == nil && total > MaxLocalsTotal {
			d.over(body, "locals in all bodies", total, MaxLocalsTotal)
		}
		if body.err == nil && (body.left() == 0 || body.b[len(body.b)-1] != 0x0b) {
			body.fail("body %d does not end", i)
		}
		if r.err = body.err; r.err != nil {
			return
		}
	}
}

func (r *reader) globalType() GlobalType {
	t := r.valueType()
	mutable := r.byte()
	if r.err == nil && mutable > 1 {
		r.fail("global mutability 0x%02x is not known", mutable)
	}
	return GlobalType{t, mutable == 1}
}

// element steps over an element segment. The bits of its flag say: passive or
// declarative, explicit table or declarative, expressions.
func (d *decoder) element(r *reader) {
	flag := r.u32()
	if r.err == nil && flag > 7 {
		r.fail("element segment flag %d is not known", flag)
		return
	}
	if flag&1 == 0 {
		if flag&2 != 0 {
			r.u32()
		}
		r.constExpr()
	}
	if flag&3 != 0 {
		if flag&4 != 0 {
			r.refType()
		} else if kind := r.byte(); r.err == nil && kind != 0 {
			r.fail("element kind 0x%02x is not known", kind)
		}
	}
	size := 1
	if flag&4 != 0 {
		size = 2
	}
	n := r.count("items", size)
	if d.counts["items"] += n; d.counts["items"] > MaxElementItems {
		d.over(r, "items of element segments", d.counts["items"], MaxElementItems)
	}
	for range n {
		if r.err != nil {
			return
		}
		if flag&4 != 0 {
			r.constExpr()
		} else {
			r.funcRef()
		}
	}
}

// names checks the structure of the custom section "name", which engines read
// as eagerly as any other.
func names(r *reader) {
	for r.err == nil && r.left() > 0 {
		id := r.byte()
		sub := r.sub(r.u32())
		switch id {
		case 0:
			sub.bytes(sub.u32())
		case 1:
			sub.nameMap()
		case 2:
			for range sub.count("functions with local names", 2) {
				sub.u32()
				sub.nameMap()
				if sub.err != nil {
					break
				}
			}
		default:
			sub.pos = len(sub.b)
		}
		if sub.err == nil && sub.left() > 0 {
			sub.fail("names have %d bytes too many", sub.left())
		}
		if r.err == nil {
			r.err = sub.err
		}
	}
}

func (r *reader) nameMap() {
	for range r.count("names", 2) {
		r.u32()
		r.bytes(r.u32())
		if r.err != nil {
			return
		}
	}
}
