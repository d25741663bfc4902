package wasmbin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
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
// every reason that can be found: reading goes on behind what is past a cap and
// stops where the bytes are malformed. Where all reasons are limits the module is returned beside
// them, so that more reasons can be found in it. It is good for nothing else: of
// what is past a cap in number it has as many as the cap allows, see
// [Module.Partial]. The module refers to b.
func Decode(b []byte) (*Module, error) {
	d := decoder{m: &Module{bytes: b}, counts: map[string]int{}, told: map[string]int{}}
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
		body.refs, body.globals, body.over = &d.m.FuncRefs, &d.m.ConstGlobal, d.over
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
		d.cut = false
		d.section(&s, body)
		if d.cut {
			switch s.ID {
			case secType, secImport, secFunction, secExport:
				d.m.partial = true
			case secCustom:
				continue
			}
		} else if body.err == nil && body.left() > 0 {
			body.fail("section %d has %d bytes too many", s.ID, body.left())
		}
		r.err = body.err
		d.m.Sections = append(d.m.Sections, s)
	}
	if r.err == nil {
		d.whole(r)
	}
	for _, what := range slices.Sorted(maps.Keys(d.told)) {
		if n := d.told[what] - maxTold; n > 0 {
			d.errs = append(d.errs, &Error{Limit: true, Offset: r.pos, Text: fmt.Sprintf("%s: the same %d more times", what, n)})
		}
	}
	if r.err != nil {
		d.errs = append(d.errs, r.err)
		return nil, d.errs
	}
	if len(d.errs) > 0 {
		return d.m, d.errs
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
	counts map[string]int // lengths of vectors, by name
	told   map[string]int // how often something was past each cap
	cut    bool           // the section has more than was read of it
}

// section reads one section. What it could not read is in r.err.
func (d *decoder) section(s *Section, r *reader) {
	switch s.ID {
	case secCustom:
		s.Name = r.name()
		s.Body = r.at + r.pos
		if d.counts["custom"]++; d.counts["custom"] > MaxCustom {
			if d.cut = true; d.counts["custom"] == MaxCustom+1 {
				d.over(r, "custom sections", "%d custom sections exceed %d", MaxCustom+1, MaxCustom)
			}
			return
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
		d.vector(r, "imports", 4, MaxImports)
		for range d.counts["imports"] {
			i := Import{Start: r.at + r.pos}
			i.Module = r.name()
			i.NameStart = r.at + r.pos
			i.Name = r.name()
			i.Kind = Kind(r.byte())
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
			if len(d.m.Imports) == MaxImports { // all are counted, so that functions have their numbers
				d.m.more[i.Kind]++
				continue
			}
			d.m.Imports = append(d.m.Imports, i)
		}
	case secFunction:
		for range d.vector(r, "functions", 1, MaxFunctions) {
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
			total += uint64(max(l.Min, l.Max))
		}
		if total > MaxTableEntries {
			d.over(r, "table entries", "%d table entries exceed %d", total, MaxTableEntries)
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
		for range d.vector(r, "element segments", 3, MaxElements) {
			if d.element(r); d.counts["items"] > MaxElementItems {
				break
			}
		}
		d.m.Elements = d.counts["element segments"]
	case secCode:
		d.code(r)
	case secData:
		n := d.vector(r, "data segments", 2, MaxData)
		d.m.Data = d.counts["data segments"]
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
	if d.counts["functions"] != d.counts["bodies"] {
		r.fail("%d functions have %d bodies", d.counts["functions"], d.counts["bodies"])
	}
	if d.m.DataCount && d.counts["data count"] != d.m.Data {
		r.fail("%d data segments were announced as %d", d.m.Data, d.counts["data count"])
	}
}

// over records that something is past its cap. Of one kind there are enough at some point.
func (d *decoder) over(r *reader, what, format string, args ...any) {
	if d.told[what]++; r.err == nil && d.told[what] <= maxTold {
		d.errs = append(d.errs, &Error{Limit: true, Offset: r.at + r.pos, Text: fmt.Sprintf(format, args...)})
	}
}

// vector reads the length of a section's vector and compares it with the cap. It
// returns how many elements to read; what is behind them is left.
func (d *decoder) vector(r *reader, what string, size, most int) int {
	n := r.count(what, size)
	d.counts[what] = n
	if n > most {
		d.over(r, what, "%d %s exceed %d", n, what, most)
		d.cut = true
	}
	return min(n, most)
}

// types reads the types of parameters or results, all of them, and keeps those within the cap.
func (d *decoder) types(r *reader, what string, most int) []ValueType {
	n := r.count(what, 1)
	if n > most {
		d.over(r, what, "%d %s exceed %d", n, what, most)
	}
	types := make([]ValueType, 0, min(n, most))
	for range n {
		if t := r.valueType(); len(types) < most {
			types = append(types, t)
		}
	}
	return types
}

// code reads sizes and locals of the bodies; instructions are the engine's.
func (d *decoder) code(r *reader) {
	total := 0
	for i := range d.vector(r, "bodies", 3, MaxFunctions) {
		size := r.u32()
		body := r.sub(size)
		if size > MaxBodyBytes {
			d.over(r, "bytes of bodies", "%d bytes in body %d exceed %d", size, i, MaxBodyBytes)
		}
		locals := 0
		for range body.count("groups of locals", 2) {
			c := body.u32()
			body.valueType()
			if body.err != nil {
				break
			}
			locals += int(c)
		}
		if locals > MaxLocals {
			d.over(body, "locals of bodies", "%d locals in body %d exceed %d", locals, i, MaxLocals)
		}
		total += locals
		if body.err == nil && (body.left() == 0 || body.b[len(body.b)-1] != 0x0b) {
			body.fail("body %d does not end", i)
		}
		if r.err = body.err; r.err != nil {
			return
		}
	}
	if total > MaxLocalsTotal {
		d.over(r, "locals in all bodies", "%d locals in all bodies exceed %d", total, MaxLocalsTotal)
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
		d.over(r, "items of element segments", "%d items of element segments exceed %d", d.counts["items"], MaxElementItems)
		d.cut = true
		return
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
