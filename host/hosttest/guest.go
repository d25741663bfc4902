package hosttest

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Guest is what one export of a module does: it puts an answer together from
// pieces, in their order, gives it to the host, and ends.
type Guest struct {
	Says []Piece
	Ends Ending // nil returns 0
	// Good, if set, is what the guest says, and then returns 0, when it is asked by
	// the gates that a policy passes through before it is used.
	Good []Piece
}

// A Piece is a part of an answer, which may be made by a host call.
type Piece func(m *module, f functions) []byte

// An Ending is what a guest does after it has given its answer.
type Ending func(m *module, f functions) []byte

// functions are the indices of imported functions, by name.
type functions map[string]int

// Where things are in memory, and what the locals of a function hold.
const (
	inputAt  = 1 << 20
	outputAt = 4 << 20

	outLocal  = 0 // address behind the answer so far
	scanLocal = 1 // offset in the input
	sizeLocal = 2 // of the input
	someLocal = 3
)

// Text is a piece that is the same in every call.
func Text(s string) Piece {
	return func(m *module, _ functions) []byte {
		if s == "" {
			return nil
		}
		return join(pointer(outLocal), i32(m.put(s)), i32(len(s)), copyBytes, forward(i64(int64(len(s)))))
	}
}

// Blanks is a piece of n blanks.
func Blanks(n int) Piece {
	return func(*module, functions) []byte {
		return join(pointer(outLocal), i32(' '), i32(n), []byte{0xfc, 0x0b, 0}, forward(i64(int64(n))))
	}
}

// Input is the input of the call.
func Input() Piece {
	return func(*module, functions) []byte {
		return join(pointer(outLocal), i32(inputAt), pointer(sizeLocal), copyBytes, forward(get(sizeLocal)))
	}
}

// Nonce is the nonce of the question that a guard was asked.
func Nonce() Piece { return member(`"nonce":`, "", 32) }

// SHA256 is the digest of the document that a guard was asked about.
func SHA256() Piece { return member(`document`, `_sha256":`, 64) }

// member copies the text behind a name that begins with 8 bytes, which must be in the
// input, and not before that, and goes on with more.
func member(name, more string, size int) Piece {
	return func(*module, functions) []byte {
		return join(find(name), pointer(outLocal), pointer(scanLocal), i32(inputAt+len(name+more)+1), []byte{0x6a}, i32(size), copyBytes, forward(i64(int64(size))))
	}
}

// find sets the scan local to where 8 bytes are in the input, or to its size.
func find(eight string) []byte {
	word := int64(binary.LittleEndian.Uint64([]byte(eight)))
	return join(i64(0), set(scanLocal), block(loop(
		get(scanLocal), get(sizeLocal), atLeast, leave,
		pointer(scanLocal), append([]byte{0x29, 0}, leb(inputAt)...), i64(word), equal, leave,
		get(scanLocal), i64(1), add, set(scanLocal), again)))
}

// Ask makes a host call of abi.HostFunctions and stands for its reply. body is
// for those that take one.
func Ask(function, request string, body ...string) Piece {
	return func(m *module, f functions) []byte {
		code := join(i32(m.put(request)), i32(len(request)))
		for _, b := range body {
			code = join(code, i32(m.put(b)), i32(len(b)))
		}
		return join(code, call(f[function]), i64(0xffffffff), and, set(someLocal),
			pointer(outLocal), i32(0), pointer(someLocal), call(f["reply_read"]), wide, set(someLocal), forward(get(someLocal)))
	}
}

// forward moves the end of the answer.
func forward(n []byte) []byte { return join(get(outLocal), n, add, set(outLocal)) }

// Result is the answer of a tool: a document with the pieces as result.
func Result(pieces ...Piece) []Piece {
	return slices.Concat([]Piece{Text(`{"format":1,"result":`)}, pieces, []Piece{Text("}")})
}

// Verdict is the answer of a guard: members is what it says besides the echo, as
// in `"verdict":"allow"`.
func Verdict(members string) []Piece {
	return []Piece{Text(`{"nonce":"`), Nonce(), Text(`","document_sha256":"`), SHA256(), Text(`",` + members + `}`)}
}

// Return ends with a return code.
func Return(code int) Ending {
	return func(*module, functions) []byte { return i32(code) }
}

// Exit ends by proc_exit.
func Exit(code int) Ending {
	return func(_ *module, f functions) []byte { return join(i32(code), call(f["proc_exit"]), unreachable) }
}

// Trap ends with a trap.
func Trap() Ending { return func(*module, functions) []byte { return unreachable } }

// Spin never ends.
func Spin() Ending { return func(*module, functions) []byte { return join(loop(again), unreachable) } }

// Work counts to n and returns 0.
func Work(n int64) Ending {
	return func(*module, functions) []byte {
		return join(i64(0), set(someLocal), loop(get(someLocal), i64(1), add, set(someLocal), get(someLocal), i64(n), less, []byte{0x0d, 0}), i32(0))
	}
}

// Recurse calls itself for ever.
func Recurse() Ending {
	return func(m *module, _ functions) []byte { return join(call(len(m.imports)), i32(0)) }
}

// Hoard takes memory until it gets no more, and traps.
func Hoard() Ending {
	return func(*module, functions) []byte {
		return join(loop(i32(16), growMemory, i32(-1), []byte{0x47, 0x0d, 0}), unreachable)
	}
}

// Flood makes one host call for ever.
func Flood(function, request string) Ending {
	return func(m *module, f functions) []byte {
		return join(loop(i32(m.put(request)), i32(len(request)), call(f[function]), drop, again), unreachable)
	}
}

// Await makes one host call and returns 0 when it is answered.
func Await(function, request string) Ending {
	return func(m *module, f functions) []byte {
		return join(i32(m.put(request)), i32(len(request)), call(f[function]), drop, i32(0))
	}
}

// Fail ends well after it reported an error in Extism's way.
func Fail(message string) Ending {
	return func(m *module, f functions) []byte {
		code := join(i64(int64(len(message))), call(f["alloc"]), set(someLocal))
		for i, b := range []byte(message) {
			code = join(code, get(someLocal), i64(int64(i)), add, i32(int(b)), call(f["store_u8"]))
		}
		return join(code, get(someLocal), call(f["error_set"]), i32(0))
	}
}

// Build writes a module whose exports are guests, with a manifest.
func Build(t testing.TB, manifest *abi.Manifest, guests map[string]Guest) []byte {
	t.Helper()
	m := &module{}
	f := functions{}
	for _, name := range abi.HostFunctions() {
		f[name] = m.use(imported{abi.ImportHost, name, hostType(name)})
	}
	f["proc_exit"] = m.use(imported{abi.ImportWASI, "proc_exit", "i:"})
	f["alloc"] = m.use(imported{abi.ImportExtism, "alloc", "I:I"})
	f["store_u8"] = m.use(imported{abi.ImportExtism, "store_u8", "Ii:"})
	f["error_set"] = m.use(imported{abi.ImportExtism, "error_set", "I:"})
	m.fn("", ":", call(len(m.imports))) // the first one, for Recurse
	names := make([]string, 0, len(guests))
	for name := range guests {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m.fn(name, ":i", guests[name].code(m, f))
	}
	encoded, err := manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	wasm, err := wasmbin.SetCustom(m.bytes(), abi.ManifestSection, encoded)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// hostType returns the type of a function of abi.HostFunctions.
func hostType(name string) string {
	switch name {
	case "input_length":
		return ":I"
	case "input_read", "reply_read":
		return "iii:i"
	case "output_set":
		return "ii:"
	case "http", "artifact_save":
		return "iiii:I"
	}
	return "ii:I"
}

func (g Guest) code(m *module, f functions) []byte {
	say := func(pieces []Piece) []byte {
		code := join(i64(outputAt), set(outLocal))
		for _, p := range pieces {
			code = join(code, p(m, f))
		}
		return join(code, i32(outputAt), pointer(outLocal), i32(outputAt), []byte{0x6b}, call(f["output_set"]))
	}
	code := join(call(f["input_length"]), set(sizeLocal), i32(inputAt), i32(0), pointer(sizeLocal), call(f["input_read"]), drop)
	if g.Good != nil {
		code = join(code, find(gateMark), get(scanLocal), get(sizeLocal), less, when(say(g.Good), i32(0), back))
	}
	if g.Says != nil {
		code = join(code, say(g.Says))
	}
	if g.Ends == nil {
		return join(code, i32(0))
	}
	return join(code, g.Ends(m, f))
}

// gateMark is in the questions of the gates of a policy.
const gateMark = `dry_run"`

// Manifest is the manifest of a plugin "zoo" whose tools are guests of the same
// name.
func Manifest(tools ...string) *abi.Manifest {
	m := &abi.Manifest{ABI: abi.Version, Name: "zoo", Version: "1"}
	for _, name := range tools {
		m.Tools = append(m.Tools, abi.Tool{Name: name, Export: strings.ReplaceAll(name, "-", "_")})
	}
	return m
}
