package host

import (
	"bytes"
	"cmp"
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
	if p.sleeps(program) {
		c.Limits.Wall = 20 * time.Millisecond
	}
	from := time.Now()
	reply, err := p.module.Call(context.Background(), c)
	if took := time.Since(from); took > c.Limits.Wall+5*time.Second { // for a machine that does other things, too
		t.Fatalf("took %v, limit %v", took, c.Limits.Wall)
	}
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

// sleeps reports whether a program calls the function that waits for as long as its parameters say.
func (p *imports) sleeps(program []byte) bool {
	for i := 0; i+recordBytes <= len(program); i += recordBytes {
		if at := binary.LittleEndian.Uint64(program[i:]); at < uint64(len(p.functions)) && p.functions[at].name == "poll_oneoff" {
			return true
		}
	}
	return false
}

// Every import, called with a value at the edge in each of its parameters, after a
// block of 16 bytes was made: the host does not fail.
func TestImportsAtBoundaries(t *testing.T) {
	p := newImports(t)
	alloc := slices.IndexFunc(p.functions, func(f function) bool { return f.name == "alloc" })
	ends := map[abi.Code]int{}
	for op, f := range p.functions {
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

// A subscription is what poll_oneoff waits for.
type subscription struct {
	kind    byte   // 0 is a clock, 1 and 2 are a descriptor
	id      uint32 // of either
	timeout uint64 // of a clock, in nanoseconds
	flags   uint16 // 1 is a point in time
}

// A poll is a call of poll_oneoff in a program of its own.
type poll struct {
	name string
	subs []subscription
	end  abi.Code

	// Where they are not 0 they take the place of what is right.
	in, out, n, count uint64
}

// program calls poll_oneoff with subscriptions in the records behind the call, which are no calls.
func (c poll) program(op int) []byte {
	n := uint64(len(c.subs))
	program := record(op, cmp.Or(c.in, programAt+recordBytes), cmp.Or(c.out, 0x1000), cmp.Or(c.n, n), cmp.Or(c.count, 0x800))
	for _, s := range c.subs {
		b := make([]byte, 48)
		copy(b, "\xff\xff\xff\xff") // the guest's mark
		b[8] = s.kind
		binary.LittleEndian.PutUint32(b[16:], s.id)
		binary.LittleEndian.PutUint64(b[24:], s.timeout)
		binary.LittleEndian.PutUint16(b[40:], s.flags)
		program = append(program, b...)
	}
	for len(program)%recordBytes != 0 {
		program = append(program, 0xff)
	}
	return program
}

// polls are those at which something turns: the number of subscriptions, the kinds of time, how long that is,
// and where memory ends.
func polls() []poll {
	const page, now = 1 << 16, uint64(1e18)
	clock := func(id uint32, timeout uint64, flags uint16) []subscription {
		return []subscription{{0, id, timeout, flags}}
	}
	soon := clock(1, 1, 0)
	return []poll{
		{name: "nothing", end: abi.OK},
		{name: "no time", subs: clock(1, 0, 0), end: abi.OK},
		{name: "a nanosecond", subs: soon, end: abi.OK},
		{name: "a nanosecond of the wall clock", subs: clock(0, 1, 0), end: abi.OK},
		{name: "no such clock", subs: clock(2, math.MaxUint64, 0), end: abi.OK},
		{name: "the highest clock", subs: clock(math.MaxUint32, math.MaxUint64, 0), end: abi.OK},
		{name: "a point that is over", subs: clock(1, 1, 1), end: abi.OK},
		{name: "a point that is over of the wall clock", subs: clock(0, now, 1), end: abi.OK},
		{name: "flags that are not known", subs: clock(1, 1, math.MaxUint16), end: abi.OK},
		{name: "an hour", subs: clock(1, 3600e9, 0), end: abi.GuestTimeout},
		{name: "a point in an hour", subs: clock(1, 3600e9, 1), end: abi.GuestTimeout},
		{name: "a point in a year of the wall clock", subs: clock(0, now+365*24*3600e9, 1), end: abi.GuestTimeout},
		{name: "half of all time", subs: clock(1, 1<<63-1, 0), end: abi.GuestTimeout},
		{name: "more than a duration holds", subs: clock(1, 1<<63, 0), end: abi.GuestTimeout},
		{name: "all time", subs: clock(1, math.MaxUint64, 0), end: abi.GuestTimeout},
		{name: "all time from now on", subs: clock(0, math.MaxUint64, 1), end: abi.GuestTimeout},
		{name: "all time and no time", subs: slices.Concat(clock(1, math.MaxUint64, 0), soon), end: abi.OK},
		{name: "descriptors", subs: []subscription{{1, 0, math.MaxUint64, 0}, {2, 2, 0, 0}, {2, 3, 0, 0}, {1, math.MaxUint32, 0, 0}}, end: abi.OK},
		{name: "no such kind", subs: []subscription{{3, 0, math.MaxUint64, 0}}, end: abi.OK},
		{name: "the highest kind", subs: []subscription{{255, 0, math.MaxUint64, 0}}, end: abi.OK},
		{name: "as many as may be", in: 8, out: 8, n: 1024, end: abi.OK},
		{name: "all that memory holds", in: 8, out: 8, n: 600, end: abi.OK},
		{name: "one too many", in: 8, n: 1025, end: abi.OK},
		{name: "the highest number", in: 8, n: math.MaxUint32, end: abi.OK},
		{name: "at the end of memory", in: page - 48, n: 1, end: abi.OK},
		{name: "past the end of memory", in: page - 47, n: 1, end: abi.GuestTrap},
		{name: "at the highest address", in: math.MaxUint32, n: 1, end: abi.GuestTrap},
		{name: "events at the end of memory", subs: soon, out: page - 32, end: abi.OK},
		{name: "events past the end of memory", subs: soon, out: page - 31, end: abi.GuestTrap},
		{name: "events past it, and an hour", subs: clock(1, 3600e9, 0), out: page - 31, end: abi.GuestTrap},
		{name: "count at the end of memory", subs: soon, count: page - 4, end: abi.OK},
		{name: "count past the end of memory", subs: soon, count: page - 3, end: abi.GuestTrap},
		{name: "count past it, and an hour", subs: clock(1, 3600e9, 0), count: page - 3, end: abi.GuestTrap},
		{name: "events over the subscriptions", subs: slices.Concat(soon, soon, soon), out: programAt + recordBytes, end: abi.OK},
		{name: "count over the events", subs: soon, out: 0x1000, count: 0x1000, end: abi.OK},
	}
}

// Whatever poll_oneoff is asked to wait for, it is no longer than the call may take.
func TestPollAtBoundaries(t *testing.T) {
	p := newImports(t)
	op := slices.IndexFunc(p.functions, func(f function) bool { return f.name == "poll_oneoff" })
	for _, c := range polls() {
		for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
			end := p.run(t, kind, c.program(op))
			if code, _, _ := strings.Cut(end, " "); abi.Code(code) != c.end {
				t.Errorf("%s, as a %s: %s, want %s", c.name, kind, end, c.end)
			}
		}
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
	for _, c := range polls() {
		f.Add(c.program(op("poll_oneoff")))
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > mostRecords*recordBytes {
			return
		}
		p.run(t, abi.KindTool, program)
		guard, again := p.run(t, abi.KindGuard, program), p.run(t, abi.KindGuard, program)
		if late := string(abi.GuestTimeout); again != guard && !strings.HasPrefix(guard, late) && !strings.HasPrefix(again, late) {
			t.Fatalf("as a guard it ends with\n%s, then with\n%s", guard, again)
		}
	})
}
