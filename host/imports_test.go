package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An interpreter is a guest that makes the host calls that its input says: records
// of an operation, an index into functions, and the parameters.
type interpreter struct {
	functions []function
	modules   []string // of each function
	wasm      []byte
}

const (
	maxParams   = 7
	recordBytes = 8 * (1 + maxParams)
	programAt   = 0x8000 // in a memory of one page
	mostRecords = 64

	// A parameter whose upper 16 bits are this is the result of the call before, plus
	// its lower 16 bits: so handles can be named.
	relative = 0x5a5a
)

// newInterpreter makes an interpreter of all functions that the host offers.
func newInterpreter() *interpreter {
	p, b := &interpreter{}, &builder{}
	input, output := b.use(abi.ImportHost, "input_read"), b.use(abi.ImportHost, "output_set")
	var indices []int
	for _, module := range slices.Sorted(maps.Keys(hostModules)) {
		for _, f := range hostModules[module] {
			p.functions, p.modules = append(p.functions, f), append(p.modules, module)
			indices = append(indices, b.use(module, f.name))
		}
	}
	b.pages(1)
	b.put(0, "ok")
	b.put(0x100, `{"key":"session:a"}{"name":"a.csv"}{"url":"https://api.example.com/v1/x"}{"message":"m"}{"chunk":1}`)
	const cursor, last, left, word = 0, 1, 2, 3 // locals
	load := func(offset int) []byte {
		return slices.Concat(get(cursor), []byte{0xa7, 0x29, 3}, leb(programAt+offset)) // i32.wrap_i64, i64.load
	}
	var ops []byte
	for i, f := range p.functions {
		params, results := f.types()
		code := slices.Concat(load(0), i64(int64(i)), []byte{0x51, 0x04, 0x40}) // i64.eq, if
		for k, t := range params {
			code = slices.Concat(code, load(8*(1+k)), setLocal(word), get(last), get(word), i64(0xffff), []byte{0x83, 0x7c}, // i64.and, i64.add
				get(word), get(word), i64(48), []byte{0x88}, i64(relative), []byte{0x51, 0x1b}) // i64.shr_u, i64.eq, select
			if byte(t) == 0x7f {
				code = append(code, 0xa7)
			}
		}
		code = append(code, callFn(indices[i])...)
		if len(results) > 0 {
			if byte(results[0]) == 0x7f {
				code = append(code, 0xad) // i64.extend_i32_u
			}
			code = append(code, setLocal(last)...)
		}
		ops = append(append(ops, code...), 0x0b)
	}
	b.fn("call", ":", 4, i32(programAt), i32(0), i32(mostRecords*recordBytes), callFn(input), []byte{0xad}, i64(recordBytes), []byte{0x80}, setLocal(left), // i64.div_u
		[]byte{0x02, 0x40, 0x03, 0x40}, get(left), []byte{0x50, 0x0d, 1}, // block, loop, i64.eqz, br_if
		get(left), i64(1), []byte{0x7d}, setLocal(left), ops,
		get(cursor), i64(recordBytes), []byte{0x7c}, setLocal(cursor), []byte{0x0c, 0, 0x0b, 0x0b}, // br, end, end
		i32(0), i32(2), callFn(output))
	p.wasm = b.bytes()
	return p
}

// record encodes one call.
func record(op int, params ...uint64) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(op))
	for i := range maxParams {
		v := uint64(0)
		if i < len(params) {
			v = params[i]
		}
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return out
}

// boundaries are values at which a length, a pointer or a handle turns bad.
var boundaries = []uint64{0, 1, 7, 8, 0x100, 1<<16 - 8, 1<<16 - 1, 1 << 16, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 32, math.MaxInt64, 1 << 63, math.MaxUint64,
	relative << 48, relative<<48 | 1, relative<<48 | 8}

// imports runs programs and reports what no guest may bring about.
type imports struct {
	*interpreter
	module *Module
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func newImports(t testing.TB) *imports {
	t.Helper()
	log := &lockedBuffer{}
	e, err := Open(context.Background(), Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	p := newInterpreter()
	m, err := e.Load(context.Background(), packed(t, p.wasm))
	if err != nil {
		t.Fatal(err)
	}
	return &imports{p, m, log}
}

// run runs a program and returns how it ended. Whatever the program, the host does
// not fail, and what it keeps for the guest stays below the limit.
func (p *imports) run(t testing.TB, kind abi.Kind, program []byte) string {
	t.Helper()
	given, err := capability.ParseSet(everyGrant)
	if err != nil {
		t.Fatal(err)
	}
	c := &Call{Kind: kind, Export: "call", Input: program, Grants: given, Access: newWorld().access(), Config: map[string]string{"": "empty", "k": "v"},
		Now: time.Unix(1e9, 0), Limits: Limits{MemoryBytes: 1 << 20, Wall: time.Second, HostCalls: 100, LogBytes: 1 << 10}}
	reply, err := p.module.Call(context.Background(), c)
	end := "ok"
	var receipt Receipt
	if err == nil {
		receipt = reply.Receipt
		end += fmt.Sprintf(" %x", reply.Output)
	} else {
		failure, ok := err.(*GuestError)
		if !ok {
			t.Fatalf("error %T: %v", err, err)
		}
		receipt = failure.Receipt
		end = fmt.Sprintf("%s %s %s", failure.Code, failure.Message, failure.Detail)
		if !strings.HasPrefix(string(failure.Code), "guest_") && failure.Code != abi.HostcallLimit {
			t.Fatalf("ended with %s", end)
		}
	}
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	if text := p.log.b.String(); strings.Contains(text, "panic") {
		t.Fatalf("the host failed: %s", text)
	}
	if receipt.PeakBytes > 1<<20 || receipt.PeakBytes < 1<<16 || receipt.HostCalls > 100 || receipt.LogBytes > 1<<10 {
		t.Fatalf("past a limit: %+v", receipt)
	}
	return fmt.Sprintf("%s; %d calls, fuel %d, used %v, denied %v", end, receipt.HostCalls, receipt.Fuel, receipt.Used, receipt.Denied)
}

// sleeps are functions that wait for as long as their parameters say.
var sleeps = []string{"poll_oneoff"}

// Every import, called with a value at the edge in each of its parameters, after a
// block of 16 bytes was made: the host does not fail.
func TestImportsAtBoundaries(t *testing.T) {
	p := newImports(t)
	alloc := slices.IndexFunc(p.functions, func(f function) bool { return f.name == "alloc" })
	ends := map[abi.Code]int{}
	for op, f := range p.functions {
		if slices.Contains(sleeps, f.name) {
			continue // TestBadPointers has its edges
		}
		params, _ := f.types()
		if len(params) > maxParams {
			t.Fatalf("%s has %d parameters, records hold %d", f.name, len(params), maxParams)
		}
		for k := range max(len(params), 1) {
			for _, edge := range boundaries {
				for _, others := range []uint64{0, 0x100, relative << 48} {
					values := slices.Repeat([]uint64{others}, len(params))
					if len(params) > 0 {
						values[k] = edge
					}
					program := slices.Concat(record(alloc, 16), record(op, values...))
					code, _, _ := strings.Cut(p.run(t, abi.KindTool, program), " ")
					ends[abi.Code(code)]++
				}
			}
		}
	}
	if ends[abi.OK] < 1000 || ends[abi.GuestTrap] < 1000 {
		t.Errorf("calls ended with %v: the program does not reach the imports", ends)
	}
}

// FuzzImports: no sequence of host calls makes the host fail or takes it past a
// limit, and a judgement repeats.
func FuzzImports(f *testing.F) {
	p := newImports(f)
	op := func(name string) int {
		return slices.IndexFunc(p.functions, func(f function) bool { return f.name == name })
	}
	handle := uint64(relative << 48)
	for i, fn := range p.functions {
		params, _ := fn.types()
		f.Add(slices.Concat(record(op("alloc"), 16), record(i, slices.Repeat([]uint64{handle}, len(params))...)))
		f.Add(record(i, slices.Repeat([]uint64{8}, len(params))...))
	}
	f.Add(slices.Concat(record(op("alloc"), 1), record(op("store_u8"), handle, 'k'), record(op("var_set"), handle, handle), record(op("var_get"), handle), record(op("reset"))))
	f.Add(slices.Concat(record(op("input_offset")), record(op("free"), handle), record(op("input_set"), handle, 1<<40), record(op("input_load_u64"), 1<<63)))
	f.Add(slices.Concat(record(op("state_get"), 0x100, 19), record(op("reply_read"), 0, 0, 1<<16), record(op("reply_read"), 0, 1<<31, 1)))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > mostRecords*recordBytes {
			return
		}
		for i := 0; i+recordBytes <= len(program); i += recordBytes {
			if at := binary.LittleEndian.Uint64(program[i:]); at < uint64(len(p.functions)) && slices.Contains(sleeps, p.functions[at].name) {
				return
			}
		}
		p.run(t, abi.KindTool, program)
		guard := p.run(t, abi.KindGuard, program)
		if again := p.run(t, abi.KindGuard, program); again != guard {
			t.Fatalf("as a guard it ends with\n%s, then with\n%s", guard, again)
		}
	})
}
