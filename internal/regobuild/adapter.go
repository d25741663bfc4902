package regobuild

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// calls are the exports of OPA's that the adapter calls.
var calls = []string{"opa_eval", "opa_malloc", "opa_heap_ptr_get", "opa_heap_ptr_set", "opa_value_parse", "opa_value_dump"}

// hostTypes are the types of what OPA's code imports.
var hostTypes = map[string]wasmbin.FuncType{
	"opa_abort": funcType(1, 0), "opa_println": funcType(1, 0),
	"opa_builtin0": funcType(2, 1), "opa_builtin1": funcType(3, 1), "opa_builtin2": funcType(4, 1),
	"opa_builtin3": funcType(5, 1), "opa_builtin4": funcType(6, 1),
}

func funcType(params, results int) wasmbin.FuncType {
	return wasmbin.FuncType{Params: slices.Repeat([]wasmbin.ValueType{wasmbin.I32}, params), Results: slices.Repeat([]wasmbin.ValueType{wasmbin.I32}, results)}
}

// roomBytes is what the heap has from the start, so that judging an ordinary question
// grows no memory, call after call.
const roomBytes = 512 << 10

// silence is what the operator reads when the rule has no value.
const silence = "the rule " + Entrypoint + " is undefined for this question"

// An adapter is the code between OPA's and the host's contract:
//
//	call      reads the question, evaluates, hands out the value of the rule
//	warm_up   reads the data of the policy, makes room on the heap
//	strlen    the length of a text that ends with NUL
//	say       writes to standard error, for the operator
//	ask       calls a function that the host has
//	opa_...   what OPA's code imports
type adapter struct {
	l       *linker
	types   [][]byte          // encoded, behind OPA's
	uses    []use             // imports
	parts   []part            // functions, in order
	index   map[string]uint32 // of functions and imports, in the guest
	global  uint32            // address of the blob; behind it the value of the data
	segment uint32            // the blob

	blob     []byte // requests, silence, data, and room
	requests []span // of l.builtins
	vector   span   // room for what fd_write reads and writes: there may be no memory left to say so
	silence  span
	data     span
}

// A use is an imported function.
type use struct {
	module, name string
	params       string
	results      string
}

// A part is one function of the adapter.
type part struct {
	name            string
	params, results string // of i and I
	locals          int    // i32, behind the parameters; behind them comes one i64
	code            func() []byte
}

// A span is a part of the blob.
type span struct{ at, n int }

func newAdapter(l *linker, data []byte) *adapter {
	a := &adapter{l: l, index: map[string]uint32{}, global: uint32(len(l.m.Globals)), segment: uint32(l.m.Data)}
	if len(data) == 0 {
		data = []byte("{}")
	}
	for _, b := range l.builtins {
		a.requests = append(a.requests, a.put(`{"builtin":`+strconv.Quote(b.name)+`}`))
	}
	a.silence, a.data, a.vector = a.put(silence), a.put(string(data)), a.put(strings.Repeat("\x00", 12))

	a.uses = []use{{abi.ImportHost, "input_length", "", "I"}, {abi.ImportHost, "input_read", "iii", "i"},
		{abi.ImportHost, "output_set", "ii", ""}, {abi.ImportWASI, "fd_write", "iiii", "i"}}
	if len(l.builtins) > 0 {
		a.uses = append(a.uses, use{abi.ImportHost, abi.RegoBuiltin, "iiii", "I"}, use{abi.ImportHost, "reply_read", "iii", "i"})
	}
	a.parts = []part{
		{abi.ExportCall, "", "", 3, a.call},
		{abi.ExportWarmUp, "", "", 1, a.warmUp},
		{"strlen", "i", "i", 1, a.strlen},
		{"say", "ii", "", 1, a.say},
		{"opa_abort", "i", "", 0, func() []byte { return join(a.sayText(), unreachable) }},
		{"opa_println", "i", "", 0, a.sayText},
	}
	if len(l.builtins) > 0 {
		a.parts = append(a.parts, part{"ask", "iii", "i", 4, a.ask})
	}
	for n := range 5 {
		a.parts = append(a.parts, part{"opa_builtin" + strconv.Itoa(n), "ii" + "iiii"[:n], "i", 2*n + 2, func() []byte { return a.builtin(n) }})
	}
	l.imported, l.stands = uint32(len(a.uses)), a.index
	for i, u := range a.uses {
		a.index[u.name] = uint32(i)
	}
	for i, p := range a.parts {
		a.index[p.name] = l.imported + uint32(len(l.m.Functions)+i)
	}
	for _, name := range calls {
		a.index[name] = l.index(l.funcs[name])
	}
	for _, u := range a.uses {
		a.types = append(a.types, encodeType(u.params, u.results))
	}
	for _, p := range a.parts {
		a.types = append(a.types, encodeType(p.params, p.results))
	}
	return a
}

// put adds a text to the blob.
func (a *adapter) put(s string) span {
	at := len(a.blob)
	a.blob = append(a.blob, s...)
	return span{at, len(s)}
}

func (a *adapter) imports() []byte {
	out := u32(nil, uint32(len(a.uses)))
	for i, u := range a.uses {
		out = append(append(out, text(u.module)...), text(u.name)...)
		out = u32(append(out, byte(wasmbin.Func)), uint32(len(a.l.m.Types)+i))
	}
	return out
}

func (a *adapter) functions() [][]byte {
	var out [][]byte
	for i := range a.parts {
		out = append(out, u32(nil, uint32(len(a.l.m.Types)+len(a.uses)+i)))
	}
	return out
}

func (a *adapter) globals() [][]byte {
	zero := []byte{i32, 1, byte(wasmbin.OpI32Const), 0, byte(wasmbin.OpEnd)}
	return [][]byte{zero, zero}
}

func (a *adapter) exports() []byte {
	out := u32(nil, 3)
	out = append(append(out, text("memory")...), byte(wasmbin.Memory), 0)
	for _, name := range []string{abi.ExportCall, abi.ExportWarmUp} {
		out = u32(append(append(out, text(name)...), byte(wasmbin.Func)), a.index[name])
	}
	return out
}

// bodies returns the adapter's functions.
func (a *adapter) bodies() [][]byte {
	var out [][]byte
	for _, p := range a.parts {
		out = append(out, join([]byte{2}, u32(nil, uint32(p.locals)), []byte{i32, 1, i64}, p.code(), end))
	}
	return out
}

// call judges. A rule without a value gives no output, which denies.
func (a *adapter) call() []byte {
	const question, size, answer = 0, 1, 2
	// The answer is the text [{"result":VALUE}], or [] if there is none.
	const before, behind = `[{"result":`, `}]`
	return join(
		a.to("input_length"), wrap, set(size),
		get(size), a.to("opa_malloc"), set(question),
		get(question), con(0), get(size), a.to("input_read"), get(size), notEqual, when(unreachable),
		con(0), con(0), a.dataValue(), get(question), get(size), a.to("opa_heap_ptr_get"), con(0), a.to("opa_eval"), set(answer),
		get(answer), a.to("strlen"), set(size),
		get(size), con(len(before)+len(behind)), lessOrEqual, when(a.blobAt(a.silence), con(a.silence.n), a.to("say"), back),
		get(answer), load64(0), wide(before[:8]), notEqual64, when(unreachable),
		get(answer), load64(len(before)-8), wide(before[len(before)-8:]), notEqual64, when(unreachable),
		get(answer), con(len(before)), add, get(size), con(len(before)+len(behind)), sub, a.to("output_set"))
}

// warmUp reads the data once, so that no call has to.
func (a *adapter) warmUp() []byte {
	const heap = 0
	return join(
		con(len(a.blob)), a.to("opa_malloc"), setGlobal(a.global),
		getGlobal(a.global), con(0), con(len(a.blob)), memoryInit(a.segment),
		a.blobAt(a.data), con(a.data.n), a.to("opa_value_parse"), setGlobal(a.global+1),
		a.dataValue(), isZero, when(unreachable),
		a.to("opa_heap_ptr_get"), set(heap), con(roomBytes), a.to("opa_malloc"), drop, get(heap), a.to("opa_heap_ptr_set"))
}

func (a *adapter) strlen() []byte {
	const s, n = 0, 1
	return join(block(loop(get(s), get(n), add, load8, isZero, leave, get(n), con(1), add, set(n), again)), get(n))
}

// say writes n bytes to standard error.
func (a *adapter) say() []byte {
	const s, n, vector = 0, 1, 2
	return join(a.blobAt(a.vector), set(vector),
		get(vector), get(s), store32(0), get(vector), get(n), store32(4),
		con(2), get(vector), con(1), get(vector), con(8), add, a.to("fd_write"), drop)
}

// sayText says the text of the first parameter.
func (a *adapter) sayText() []byte {
	return join(get(0), get(0), a.to("strlen"), a.to("say"))
}

// ask has the host compute a function of the values in a text, and returns the value
// it answered, or 0 where the function has none.
func (a *adapter) ask() []byte {
	const id, values, size, request, length, reply, n, code64 = 0, 1, 2, 3, 4, 5, 6, 7
	code := []byte{}
	for i, b := range a.l.builtins {
		code = join(code, get(id), con(int(b.id)), equal, when(a.blobAt(a.requests[i]), set(request), con(a.requests[i].n), set(length)))
	}
	return join(code,
		get(request), get(length), get(values), get(size), a.to(abi.RegoBuiltin), set(code64),
		get(code64), wide(strings.Repeat("\x00", 8)), less64, when(unreachable), // refused
		get(code64), wrap, set(n),
		// Values have a text, so no text is no value.
		get(n), isZero, when(con(0), back),
		get(n), a.to("opa_malloc"), set(reply),
		get(reply), con(0), get(n), a.to("reply_read"), get(n), notEqual, when(unreachable),
		get(reply), get(n), a.to("opa_value_parse"), set(reply), get(reply), isZero, when(unreachable), get(reply))
}

// builtin is the function that OPA's code calls for a function of n values: it
// writes them as one array.
func (a *adapter) builtin(n int) []byte {
	if len(a.l.builtins) == 0 {
		return unreachable
	}
	const id, first = 0, 2
	texts, sizes := first+n, first+2*n
	buffer, at := first+3*n, first+3*n+1
	put := func(c byte) []byte {
		return join(get(at), con(int(c)), store8, get(at), con(1), add, set(at))
	}
	code := []byte{}
	for i := range n {
		code = join(code, get(first+i), a.to("opa_value_dump"), set(texts+i), get(texts+i), a.to("strlen"), set(sizes+i))
	}
	code = join(code, con(n+2))
	for i := range n {
		code = join(code, get(sizes+i), add)
	}
	code = join(code, a.to("opa_malloc"), set(buffer), get(buffer), set(at), put('['))
	for i := range n {
		if i > 0 {
			code = join(code, put(','))
		}
		code = join(code, get(at), get(texts+i), get(sizes+i), memoryCopy, get(at), get(sizes+i), add, set(at))
	}
	return join(code, put(']'), get(id), get(buffer), get(at), get(buffer), sub, a.to("ask"))
}

// to calls a function.
func (a *adapter) to(name string) []byte {
	index, ok := a.index[name]
	if !ok {
		panic("regobuild: no function " + name)
	}
	return u32([]byte{0x10}, index)
}

// blobAt is the address of a part of the blob.
func (a *adapter) blobAt(s span) []byte { return join(getGlobal(a.global), con(s.at), add) }

// dataValue is the value of the policy's data.
func (a *adapter) dataValue() []byte { return getGlobal(a.global + 1) }

func encodeType(params, results string) []byte {
	out := []byte{0x60}
	for _, list := range []string{params, results} {
		out = u32(out, uint32(len(list)))
		for _, c := range list {
			out = append(out, map[rune]byte{'i': i32, 'I': i64}[c])
		}
	}
	return out
}

// Instructions.

func join(code ...[]byte) []byte { return slices.Concat(code...) }
func get(local int) []byte       { return u32([]byte{0x20}, uint32(local)) }
func set(local int) []byte       { return u32([]byte{0x21}, uint32(local)) }
func getGlobal(g uint32) []byte  { return u32([]byte{0x23}, g) }
func setGlobal(g uint32) []byte  { return u32([]byte{0x24}, g) }
func con(v int) []byte           { return sleb([]byte{0x41}, int64(v)) }
func load64(offset int) []byte   { return u32([]byte{0x29, 0}, uint32(offset)) }
func store32(offset int) []byte  { return u32([]byte{0x36, 0}, uint32(offset)) }

// wide is eight bytes as an i64.
func wide(s string) []byte {
	v := uint64(0)
	for i := range 8 {
		v |= uint64(s[i]) << (8 * i)
	}
	return sleb([]byte{0x42}, int64(v))
}

func memoryInit(segment uint32) []byte { return append(u32([]byte{0xfc, 8}, segment), 0) }
func block(code ...[]byte) []byte      { return join([]byte{0x02, 0x40}, join(code...), end) }
func loop(code ...[]byte) []byte       { return join([]byte{0x03, 0x40}, join(code...), end) }

// when runs code if the i32 on the stack is not 0.
func when(code ...[]byte) []byte { return join([]byte{0x04, 0x40}, join(code...), end) }

var (
	end         = []byte{0x0b}
	unreachable = []byte{0x00}
	back        = []byte{0x0f}
	again       = []byte{0x0c, 0}
	leave       = []byte{0x0d, 1} // the block around the loop, if the i32 on the stack is not 0
	drop        = []byte{0x1a}
	load8       = []byte{0x2d, 0, 0}
	store8      = []byte{0x3a, 0, 0}
	isZero      = []byte{0x45}
	equal       = []byte{0x46}
	notEqual    = []byte{0x47}
	lessOrEqual = []byte{0x4d} // unsigned
	notEqual64  = []byte{0x52}
	less64      = []byte{0x53} // signed
	add         = []byte{0x6a}
	sub         = []byte{0x6b}
	wrap        = []byte{0xa7}
	memoryCopy  = []byte{0xfc, 10, 0, 0}
)
