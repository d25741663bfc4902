// Package hosttest writes small modules for tests of what runs guests: a [Guest]
// says, byte for byte, what a test wants and ends as badly as it wants, and no
// compiler is needed for it. [TestKV] is the contract of a [host.KVStore].
package hosttest

import (
	"encoding/binary"
	"slices"
)

// A module is written one function after the other. Function types are written
// as parameters and results, i for i32 and I for i64, as in "iI:i".
type module struct {
	types   []string
	imports []imported
	bodies  [][]byte
	funcs   []int // index of the type of each body
	exports [][]byte
	data    [][]byte
	next    int // address of the next data
}

type imported struct{ module, name, typ string }

const (
	valueI32 = 0x7f
	valueI64 = 0x7e
	locals   = 5 // of each function, all i64
	pages    = 160
)

func leb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(n int64) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func text(s string) []byte { return append(leb(len(s)), s...) }

func vec(items [][]byte) []byte { return append(leb(len(items)), slices.Concat(items...)...) }

func section(id byte, body []byte) []byte { return slices.Concat([]byte{id}, leb(len(body)), body) }

func (m *module) typ(t string) int {
	if i := slices.Index(m.types, t); i >= 0 {
		return i
	}
	m.types = append(m.types, t)
	return len(m.types) - 1
}

// use returns the index of an imported function. All imports are named before the
// first function.
func (m *module) use(f imported) int {
	if i := slices.Index(m.imports, f); i >= 0 {
		return i
	}
	if len(m.bodies) > 0 {
		panic("hosttest: import after a function: " + f.name)
	}
	m.imports = append(m.imports, f)
	return len(m.imports) - 1
}

// fn adds a function, exported if it has a name.
func (m *module) fn(export, typ string, code []byte) {
	body := slices.Concat(leb(1), leb(locals), []byte{valueI64}, code, []byte{0x0b})
	m.bodies = append(m.bodies, append(leb(len(body)), body...))
	m.funcs = append(m.funcs, m.typ(typ))
	if export != "" {
		m.exports = append(m.exports, slices.Concat(text(export), []byte{0}, leb(len(m.imports)+len(m.bodies)-1)))
	}
}

// put places text in memory and returns its address.
func (m *module) put(s string) int {
	if m.next == 0 {
		m.next = 1024
	}
	at := m.next
	if at+len(s) > inputAt {
		panic("hosttest: too much text")
	}
	m.next += len(s)
	m.data = append(m.data, slices.Concat([]byte{0}, i32(at), []byte{0x0b}, text(s)))
	return at
}

func (m *module) bytes() []byte {
	var types, imports, funcs [][]byte
	for _, f := range m.imports {
		imports = append(imports, slices.Concat(text(f.module), text(f.name), []byte{0}, leb(m.typ(f.typ))))
	}
	for _, t := range m.funcs {
		funcs = append(funcs, leb(t))
	}
	for _, t := range m.types {
		enc := []byte{0x60}
		params, results, _ := cut(t)
		for _, list := range []string{params, results} {
			enc = append(enc, leb(len(list))...)
			for _, c := range list {
				enc = append(enc, map[rune]byte{'i': valueI32, 'I': valueI64}[c])
			}
		}
		types = append(types, enc)
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = append(out, section(1, vec(types))...)
	out = append(out, section(2, vec(imports))...)
	out = append(out, section(3, vec(funcs))...)
	out = append(out, section(5, slices.Concat(leb(1), []byte{0}, leb(pages)))...)
	out = append(out, section(7, vec(m.exports))...)
	out = append(out, section(10, vec(m.bodies))...)
	return append(out, section(11, vec(m.data))...)
}

func cut(t string) (params, results string, ok bool) {
	i := slices.Index([]byte(t), ':')
	return t[:i], t[i+1:], true
}

// Instructions.

func i32(v int) []byte           { return append([]byte{0x41}, sleb(int64(int32(v)))...) }
func i64(v int64) []byte         { return append([]byte{0x42}, sleb(v)...) }
func call(i int) []byte          { return append([]byte{0x10}, leb(i)...) }
func get(i int) []byte           { return append([]byte{0x20}, leb(i)...) }
func set(i int) []byte           { return append([]byte{0x21}, leb(i)...) }
func pointer(i int) []byte       { return append(get(i), 0xa7) } // a local as i32
func join(code ...[]byte) []byte { return slices.Concat(code...) }
func block(code ...[]byte) []byte {
	return slices.Concat([]byte{0x02, 0x40}, slices.Concat(code...), []byte{0x0b})
}
func loop(code ...[]byte) []byte {
	return slices.Concat([]byte{0x03, 0x40}, slices.Concat(code...), []byte{0x0b})
}

// when runs code if the i32 on the stack is not 0.
func when(code ...[]byte) []byte {
	return slices.Concat([]byte{0x04, 0x40}, slices.Concat(code...), []byte{0x0b})
}

var (
	drop        = []byte{0x1a}
	unreachable = []byte{0x00}
	again       = []byte{0x0c, 0}
	leave       = []byte{0x0d, 1} // the block around the loop, if the i32 on the stack is not 0
	back        = []byte{0x0f}
	add         = []byte{0x7c}
	and         = []byte{0x83}
	equal       = []byte{0x51}
	less        = []byte{0x54}
	atLeast     = []byte{0x5a}
	wide        = []byte{0xad} // an i32 as i64
	copyBytes   = []byte{0xfc, 0x0a, 0, 0}
	growMemory  = []byte{0x40, 0}
)
