package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// split returns module and name of a host function: "extism.alloc", "wasi.fd_write"
// and, of sandboxd:host, the name alone.
func split(full string) (module, name string) {
	if name, ok := strings.CutPrefix(full, "extism."); ok {
		return abi.ImportExtism, name
	}
	if name, ok := strings.CutPrefix(full, "wasi."); ok {
		return abi.ImportWASI, name
	}
	return abi.ImportHost, full
}

// one builds a module whose export call runs code after the imports named. The
// indices of these are in fn, by full and by short name.
func one(typ string, names []string, code func(fn map[string]int) []byte) *builder {
	b := &builder{}
	fn := map[string]int{}
	for _, full := range names {
		module, name := split(full)
		fn[full] = b.use(module, name)
		fn[name] = fn[full]
	}
	b.pages(1)
	b.put(0, `{"ok":true}`)
	b.fn("call", typ, 4, code(fn))
	return b
}

func join(parts ...[]byte) []byte { return with(parts...) }

func with(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestEndings runs guests that end in every way there is, each as its own code.
func TestEndings(t *testing.T) {
	answer := func(fn map[string]int) []byte { return join(i32(0), i32(11), callFn(fn["output_set"])) }
	tests := []struct {
		name   string
		module *builder
		limits Limits
		code   abi.Code
		detail string
	}{
		{"spins", one(":", nil, func(map[string]int) []byte { return loop() }), Limits{Wall: 50 * time.Millisecond}, abi.GuestTimeout, "50ms"},
		{"spins in start", func() *builder {
			b := plain()
			b.start = leb(b.fn("", ":", 0, loop()))
			return b
		}(), Limits{Wall: 50 * time.Millisecond}, abi.GuestTimeout, "50ms"},
		{"spins in _initialize", func() *builder {
			b := plain()
			b.fn("_initialize", ":", 0, loop())
			return b
		}(), Limits{Wall: 50 * time.Millisecond}, abi.GuestTimeout, "50ms"},
		{"sleeps", one(":", []string{"wasi.poll_oneoff"}, func(fn map[string]int) []byte {
			// One subscription to the monotonic clock, an hour from now.
			return join(i32(1024+16), i32(1), []byte{0x36, 2, 0}, i32(1024+24), i64(int64(time.Hour)), []byte{0x37, 3, 0},
				i32(1024), i32(2048), i32(1), i32(4096), callFn(fn["poll_oneoff"]), drop)
		}), Limits{Wall: 50 * time.Millisecond}, abi.GuestTimeout, "50ms"},
		{"recurses", func() *builder {
			b := &builder{}
			b.fn("call", ":", 1, callFn(0))
			return b
		}(), Limits{Wall: time.Minute}, abi.GuestStack, "more frames than 10000"},
		{"traps", one(":", nil, func(map[string]int) []byte { return unreachable }), Limits{}, abi.GuestTrap, "unreachable"},
		{"traps in start", func() *builder {
			b := plain()
			b.start = leb(b.fn("", ":", 0, unreachable))
			return b
		}(), Limits{}, abi.GuestTrap, "unreachable"},
		{"divides by zero", one(":", nil, func(map[string]int) []byte { return join(i32(1), i32(0), []byte{0x6d}, drop) }), Limits{}, abi.GuestTrap, "divide by zero"},
		{"reads past memory", one(":", nil, func(map[string]int) []byte { return join(i32(-1), []byte{0x28, 2, 0}, drop) }), Limits{}, abi.GuestTrap, "out of bounds"},
		{"traps when memory is refused", one(":", nil, func(map[string]int) []byte {
			return join(grow(20), i32(-1), []byte{0x46, 0x04, 0x40, 0x00, 0x0b}) // if memory.grow is -1, unreachable
		}), Limits{MemoryBytes: 1 << 20}, abi.GuestMemory, "refused"},
		{"begins with too much memory", plain(), Limits{MemoryBytes: 1 << 15}, abi.GuestMemory, "begins with 65536"},
		{"exits 0", one(":", []string{"wasi.proc_exit"}, func(fn map[string]int) []byte { return join(i32(0), callFn(fn["proc_exit"])) }), Limits{}, abi.GuestTrap, "exit code 0"},
		{"exits 0 after output", one(":", []string{"output_set", "wasi.proc_exit"}, func(fn map[string]int) []byte {
			return join(answer(fn), i32(0), callFn(fn["proc_exit"]))
		}), Limits{}, abi.GuestTrap, "exit code 0"},
		{"exits 3", one(":", []string{"wasi.proc_exit"}, func(fn map[string]int) []byte { return join(i32(3), callFn(fn["proc_exit"])) }), Limits{}, abi.GuestTrap, "exit code 3"},
		{"exits like the engine's timeout", one(":", []string{"wasi.proc_exit"}, func(fn map[string]int) []byte {
			return join(i32(-0x10000001), callFn(fn["proc_exit"]))
		}), Limits{}, abi.GuestTrap, "exit code 4026531839"},
		{"answers nothing", one(":", nil, func(map[string]int) []byte { return nil }), Limits{}, abi.GuestOutputInvalid, "no output"},
		{"answers empty", one(":", []string{"output_set"}, func(fn map[string]int) []byte { return join(i32(0), i32(0), callFn(fn["output_set"])) }), Limits{}, abi.GuestOutputInvalid, "no output"},
		{"answers in start only", func() *builder {
			b := &builder{}
			set := b.use(abi.ImportHost, "output_set")
			b.pages(1)
			b.fn("call", ":", 0)
			b.start = leb(b.fn("", ":", 0, i32(0), i32(2), callFn(set)))
			return b
		}(), Limits{}, abi.GuestOutputInvalid, "no output"},
		{"answers 2 MB", one(":", []string{"output_set"}, func(fn map[string]int) []byte {
			return join(grow(32), drop, i32(0), i32(2<<20), callFn(fn["output_set"]))
		}), Limits{}, abi.GuestOutputTooLarge, "2097152"},
		{"answers 2 MB through Extism", one(":", []string{"extism.alloc", "extism.output_set"}, func(fn map[string]int) []byte {
			return join(i64(2<<20), callFn(fn["alloc"]), i64(2<<20), callFn(fn["output_set"]))
		}), Limits{}, abi.GuestOutputTooLarge, "2097152"},
		{"returns a code", one(":i", []string{"output_set"}, func(fn map[string]int) []byte { return join(answer(fn), i32(5)) }), Limits{}, abi.GuestError, ""},
		{"returns a code of 64 bits", one(":I", []string{"output_set"}, func(fn map[string]int) []byte { return join(answer(fn), i64(1)) }), Limits{}, abi.GuestError, ""},
		{"floods host calls", one(":", []string{"extism.http_status_code"}, func(fn map[string]int) []byte {
			return loop(callFn(fn["http_status_code"]), drop)
		}), Limits{}, abi.HostcallLimit, "1000"},
		{"floods the log", one(":", []string{"log"}, func(fn map[string]int) []byte {
			return loop(i32(0), i32(11), callFn(fn["log"]), drop)
		}), Limits{}, abi.HostcallLimit, "1000"},
		{"floods standard output", one(":", []string{"wasi.fd_write"}, func(fn map[string]int) []byte {
			return join(i32(1028), i32(11), []byte{0x36, 2, 0}, loop(i32(1), i32(1024), i32(1), i32(2048), callFn(fn["fd_write"]), drop))
		}), Limits{Wall: 50 * time.Millisecond}, abi.GuestTimeout, "50ms"},
		{"draws randomness without end", one(":", []string{"wasi.random_get"}, func(fn map[string]int) []byte {
			return loop(i32(0), i32(1<<15), callFn(fn["random_get"]), drop)
		}), Limits{}, abi.GuestTrap, "randomness"},
		{"hoards blocks", one(":", []string{"extism.alloc"}, func(fn map[string]int) []byte {
			return loop(i64(1<<20), callFn(fn["alloc"]), []byte{0x50, 0x04, 0x40, 0x00, 0x0b}) // if alloc is 0, unreachable
		}), Limits{}, abi.GuestMemory, "refused"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := load(t, test.module.bytes())
			from := time.Now()
			e := fails(t, m, &Call{Export: "call", Limits: test.limits}, test.code)
			if !strings.Contains(e.Detail, test.detail) {
				t.Errorf("detail %q, want %q", e.Detail, test.detail)
			}
			if e.Message == "" || e.Code != abi.GuestError && e.Message != e.Code.Sentence() {
				t.Errorf("message %q", e.Message)
			}
			if took := time.Since(from); test.code == abi.GuestTimeout && took > 3*time.Second {
				t.Errorf("took %v, limit %v", took, test.limits.Wall)
			}
		})
	}
}

// A command is a raw tool whose export is _start: its exit code is what it returns, if it is called as a tool. Nobody
// else's is.
func TestCommand(t *testing.T) {
	build := func(t *testing.T, output string, code int, tool abi.Tool) *Module {
		b := &builder{}
		set, exit := b.use(abi.ImportHost, "output_set"), b.use(abi.ImportWASI, "proc_exit")
		b.pages(1)
		b.put(0, output)
		// What a call leaves in memory would be the output of the next.
		b.fn(abi.ExportStart, ":", 0, i32(0), i32(int64(len(output))), callFn(set), i32(0), i32('x'), []byte{0x3a, 0, 0}, i32(int64(code)), callFn(exit), unreachable)
		manifest := &abi.Manifest{ABI: abi.Version, Name: "test", Version: "1", Tools: []abi.Tool{tool},
			Guards: []abi.Guard{{Name: "test", Export: abi.ExportStart, Phases: []abi.Phase{abi.PhaseCall}}}}
		data, err := manifest.Encode()
		if err != nil {
			t.Fatal(err)
		}
		wasm, err := wasmbin.SetCustom(b.bytes(), abi.ManifestSection, data)
		if err != nil {
			t.Fatal(err)
		}
		m, err := shared.Load(t.Context(), wasm)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	command := abi.Tool{Name: "start", Export: abi.ExportStart, Raw: true}
	call := &Call{Kind: abi.KindTool, Export: abi.ExportStart}
	m := build(t, "answer", 0, command)
	for range 3 {
		if reply, err := m.Call(t.Context(), call); err != nil || string(reply.Output) != "answer" {
			t.Fatalf("exit code 0: reply %+v, error %v", reply, err)
		}
	}
	fails(t, m, &Call{Kind: abi.KindGuard, Export: abi.ExportStart}, abi.GuestTrap)
	if e := fails(t, build(t, "answer", 3, command), call, abi.GuestError); e.Message != "exit code 3" {
		t.Errorf("message %q", e.Message)
	}
	fails(t, build(t, "", 0, command), call, abi.GuestOutputInvalid)
	fails(t, build(t, "answer", 0, abi.Tool{Name: "start", Export: abi.ExportStart}), call, abi.GuestTrap)
}

// Several raw tools may be one command: each call has the input of its tool. A tool that is not raw cannot be one
// beside them, because its exit code would count as theirs does.
func TestCommandOfSeveralTools(t *testing.T) {
	pack := func(tools ...abi.Tool) []byte {
		b := &builder{}
		length, read, set, exit := b.use(abi.ImportHost, "input_length"), b.use(abi.ImportHost, "input_read"), b.use(abi.ImportHost, "output_set"), b.use(abi.ImportWASI, "proc_exit")
		b.pages(1)
		b.fn(abi.ExportStart, ":", 0, i32(0), i32(0), callFn(length), []byte{0xa7}, callFn(read), []byte{0x1a}, i32(0), callFn(length), []byte{0xa7}, callFn(set), i32(0), callFn(exit), unreachable)
		data, err := (&abi.Manifest{ABI: abi.Version, Name: "test", Version: "1", Tools: tools}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		wasm, err := wasmbin.SetCustom(b.bytes(), abi.ManifestSection, data)
		if err != nil {
			t.Fatal(err)
		}
		return wasm
	}
	one, two := abi.Tool{Name: "one", Export: abi.ExportStart, Raw: true}, abi.Tool{Name: "two", Export: abi.ExportStart, Raw: true}
	m, err := shared.Load(t.Context(), pack(one, two))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{`{"a":1}`, `{"other":"x"}`, `{"a":2}`} {
		if reply, err := m.Call(t.Context(), &Call{Kind: abi.KindTool, Export: abi.ExportStart, Input: []byte(args)}); err != nil || string(reply.Output) != args {
			t.Errorf("arguments %s: reply %+v, error %v", args, reply, err)
		}
	}
	two.Raw = false
	_, err = shared.Load(t.Context(), pack(one, two))
	const want = "tool two is not raw, and a raw tool has its export _start: leaving with the exit code 0 is returning for raw tools alone"
	if refused, ok := errors.AsType[*RejectError](err); !ok || len(refused.Reasons) != 1 || refused.Reasons[0] != (Reason{abi.ModuleABI, want}) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestSuccess(t *testing.T) {
	for _, typ := range []string{":", ":i", ":I"} {
		m := load(t, one(typ, []string{"output_set"}, func(fn map[string]int) []byte {
			code := join(i32(0), i32(11), callFn(fn["output_set"]))
			switch typ {
			case ":i":
				code = append(code, i32(0)...)
			case ":I":
				code = append(code, i64(1<<32)...) // the code is the low half
			}
			return code
		}).bytes())
		var out struct{ OK bool }
		reply := succeeds(t, m, &Call{Export: "call"}, &out)
		if !out.OK || reply.Receipt.HostCalls != 1 || reply.Receipt.PeakBytes != 1<<16 {
			t.Errorf("%s: output %s, receipt %+v", typ, reply.Output, reply.Receipt)
		}
	}
}

func TestCallRefuses(t *testing.T) {
	m := load(t, plain().bytes())
	fails(t, m, &Call{Export: "nothing"}, abi.ModuleABI)
	fails(t, m, &Call{Export: "call", Input: make([]byte, 11), Limits: Limits{InputBytes: 10}}, abi.GuestMemory)
	fails(t, m, &Call{Export: "call", Limits: Limits{OutputBytes: 1}}, abi.GuestOutputTooLarge)
	fails(t, m, &Call{Export: "call", Limits: Limits{HostCalls: -1, OutputBytes: -1}}, abi.GuestOutputTooLarge)
}

func TestCancelled(t *testing.T) {
	m := load(t, one(":", []string{"log"}, func(fn map[string]int) []byte {
		return join(i32(0), i32(11), callFn(fn["log"]), drop, loop())
	}).bytes())
	ctx, cancel := context.WithCancel(t.Context())
	// The first host call says that the guest runs.
	call := &Call{Export: "call", Trace: func(HostCall) { cancel() }}
	failsIn(t, ctx, m, call, abi.Cancelled)
	failsIn(t, ctx, m, call, abi.Cancelled) // and when it is over before

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	failsIn(t, ctx, m, &Call{Export: "call"}, abi.Cancelled)
}

// TestNothingBeforeTheCall: no grant is effective in the start function and in
// _initialize, and the call finds nothing of them on the host's side.
func TestNothingBeforeTheCall(t *testing.T) {
	b := &builder{}
	fn := map[string]int{}
	for _, name := range []string{"output_set", "log", "input_length"} {
		fn[name] = b.use(abi.ImportHost, name)
	}
	for _, name := range []string{"alloc", "error_set", "memory_bytes"} {
		fn[name] = b.use(abi.ImportExtism, name)
	}
	b.pages(1)
	b.put(0, `{"message":"early"}`)
	b.put(100, `["0"]`)
	early := b.fn("", ":", 0,
		i32(0), i32(19), callFn(fn["log"]), drop,
		i32(0), i32(19), callFn(fn["output_set"]),
		i64(100), callFn(fn["alloc"]), callFn(fn["error_set"]),
		callFn(fn["input_length"]), []byte{0x50, 0x45, 0x04, 0x40, 0x00, 0x0b}) // unreachable if there is input
	b.start = leb(early)
	b.fn("_initialize", ":", 0, callFn(early))
	// The digit of the answer is the number of bytes in blocks.
	b.fn("call", ":", 0, i32(102), callFn(fn["memory_bytes"]), i64('0'), []byte{0x7c, 0xa7, 0x3a, 0, 0},
		i32(100), i32(5), callFn(fn["output_set"]))
	m := load(t, b.bytes())
	var logged int
	var out []string
	reply := succeeds(t, m, &Call{Export: "call", Input: []byte("input"), Grants: grants(t, "log"),
		Access: Access{Log: func(string, string) { logged++ }}}, &out)
	if logged != 0 || len(out) != 1 || out[0] != "0" {
		t.Errorf("logged %d lines, output %s", logged, reply.Output)
	}
	if got := fmt.Sprint(reply.Receipt.Denied); got != "[log]" {
		t.Errorf("denied %s, want [log]", got)
	}
}

// TestFreshInstance: nothing of a call is left for the next.
func TestFreshInstance(t *testing.T) {
	m := load(t, one(":", []string{"output_set"}, func(fn map[string]int) []byte {
		// Adds one to a digit in memory and answers it.
		return join(i32(4), i32(4), []byte{0x2d, 0, 0}, i32(1), []byte{0x6a, 0x3a, 0, 0}, i32(0), i32(11), callFn(fn["output_set"]))
	}).bytes())
	first, err := m.Call(t.Context(), &Call{Export: "call"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Call(t.Context(), &Call{Export: "call"})
	if err != nil || string(first.Output) != string(second.Output) || string(first.Output) == `{"ok":true}` {
		t.Errorf("outputs %s and %s, error %v", first.Output, second.Output, err)
	}
}

// TestParallel: each of 64 calls at once has its own input, grants, access and
// limits.
func TestParallel(t *testing.T) {
	// Sends its input as a request for state and answers the reply.
	m := load(t, one(":", []string{"input_length", "input_read", "state_get", "reply_read", "output_set"}, func(fn map[string]int) []byte {
		wrap := []byte{0xa7}
		return join(i32(1024), i32(0), callFn(fn["input_length"]), wrap, callFn(fn["input_read"]), drop,
			i32(1024), callFn(fn["input_length"]), wrap, callFn(fn["state_get"]), setLocal(0),
			i32(2048), i32(2048), i32(0), get(0), wrap, callFn(fn["reply_read"]), callFn(fn["output_set"]))
	}).bytes())
	allowed := grants(t, "state read session:*")
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			key := fmt.Sprintf("session:call-%d", i)
			c := &Call{Export: "call", Input: fmt.Appendf(nil, `{"key":%q}`, key), Limits: Limits{Wall: time.Minute},
				Access: Access{State: memState{key: json.RawMessage(fmt.Sprint(i))}}}
			var traced []HostCall
			c.Trace = func(h HostCall) { traced = append(traced, h) }
			want, used, denied := fmt.Sprintf(`{"found":true,"value":%d}`, i), "[state read "+key+"]", "[]"
			switch i % 3 {
			case 1: // no grant
				want, used, denied = "capability_denied", "[]", used
			case 2: // no room for the second host call
				c.Limits.HostCalls = 1
			}
			if i%3 != 1 {
				c.Grants = allowed
			}
			reply, err := m.Call(t.Context(), c)
			if i%3 == 2 {
				if e, ok := errors.AsType[*GuestError](err); !ok || e.Code != abi.HostcallLimit {
					t.Errorf("%s: error %v, want %s", key, err, abi.HostcallLimit)
				}
				return
			}
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			if r := reply.Receipt; !strings.Contains(string(reply.Output), want) || fmt.Sprint(r.Used) != used || fmt.Sprint(r.Denied) != denied {
				t.Errorf("%s: output %s, receipt %+v", key, reply.Output, r)
			}
			if len(traced) != 1 || traced[0].Name != "state_get" {
				t.Errorf("%s: trace %+v", key, traced)
			}
		})
	}
	wg.Wait()
}

func TestGoEndings(t *testing.T) {
	m := loadGo(t)
	e := fails(t, m, &Call{Export: "call", Input: []byte(`{"do":"panic"}`)}, abi.GuestTrap)
	if !strings.Contains(e.Detail, "panic: on purpose") {
		t.Errorf("detail %q has not the text of the panic", e.Detail)
	}
	if strings.Contains(e.Message, "purpose") {
		t.Errorf("message %q shows internals", e.Message)
	}
	e = fails(t, m, &Call{Export: "call", Input: []byte(`{"do":"exit","n":0}`)}, abi.GuestTrap)
	if !strings.Contains(e.Detail, "exit code 0") {
		t.Errorf("detail %q", e.Detail)
	}
	fails(t, m, &Call{Export: "call", Input: []byte(`{"do":"nothing"}`)}, abi.GuestError)
}

// TestGoHoard runs in a child process: what it does must not meet the tests'
// own memory.
func TestGoHoard(t *testing.T) {
	if os.Getenv(scratchVar) == "" {
		loadGo(t) // so that the child finds it compiled
		cmd := exec.Command(os.Args[0], "-test.run=^TestGoHoard$", "-test.v")
		cmd.Env = append(os.Environ(), scratchVar+"="+scratch, "GOMEMLIMIT=512MiB")
		if text, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(text), "hoard ended as guest_memory") {
			t.Fatalf("%v\n%s", err, text)
		}
		return
	}
	m := loadGo(t)
	e := fails(t, m, &Call{Export: "call", Input: []byte(`{"do":"hoard"}`), Limits: Limits{MemoryBytes: 32 << 20, Wall: time.Minute}}, abi.GuestMemory)
	if e.Receipt.PeakBytes > 32<<20 || e.Receipt.PeakBytes < 16<<20 {
		t.Errorf("peak %d of 32 MiB", e.Receipt.PeakBytes)
	}
	t.Log("hoard ended as", e.Code)
}

// TestGuardsTakeTurns: a guard waits for its turn no longer than its caller, and
// a tool does not wait for guards.
func TestGuardsTakeTurns(t *testing.T) {
	e, _ := openEngine(t)
	m, err := e.Load(t.Context(), packed(t, plain().bytes()))
	if err != nil {
		t.Fatal(err)
	}
	succeeds(t, m, &Call{Kind: abi.KindGuard, Export: "call"}, &struct{}{}) // makes the image
	for range cap(e.judging) {
		e.judging <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if failure := failsIn(t, ctx, m, &Call{Kind: abi.KindGuard, Export: "call"}, abi.Cancelled); failure.Receipt.WallUS != 0 {
		t.Errorf("waiting was counted: %+v", failure.Receipt)
	}
	succeeds(t, m, &Call{Export: "call"}, &struct{}{})
	<-e.judging
	succeeds(t, m, &Call{Kind: abi.KindGuard, Export: "call"}, &struct{}{})
	if len(e.judging) != cap(e.judging)-1 {
		t.Errorf("%d guards are said to run, want %d", len(e.judging), cap(e.judging)-1)
	}
	for range cap(e.judging) - 1 {
		<-e.judging
	}
}

// TestHostBug: a bug of the host's in a call is no failure of the guest's, and nobody knows what the call has done.
func TestHostBug(t *testing.T) {
	e, log := openEngine(t)
	m := loadIn(t, e, one(":", []string{"log", "output_set"}, func(fn map[string]int) []byte {
		return join(i32(1024), i32(0), callFn(fn["log"]), drop, i32(0), i32(11), callFn(fn["output_set"]))
	}).bytes())
	for _, bug := range []any{"a string", fmt.Errorf("an error"), nil} {
		for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
			failure := fails(t, m, &Call{Kind: kind, Export: "call", Trace: func(HostCall) {
				if bug == nil {
					var none []int
					_ = none[len(none)]
				}
				panic(bug)
			}}, abi.OutcomeUnknown)
			why := "index out of range"
			if bug != nil {
				why = fmt.Sprint(bug)
			}
			if failure.Message != abi.OutcomeUnknown.Sentence() || !strings.HasPrefix(failure.Detail, "host function log failed, and no guest: ") ||
				!strings.Contains(failure.Detail, why) || failure.Receipt.In != "" {
				t.Errorf("bug %v: %+v", bug, failure)
			}
			reported(t, log, "panic in a guest call", m, why)
			reported(t, log, "host function log", m, "TestHostBug.func") // the stack
			log.Reset()
		}
	}
	m.engine.unpark(nil)
	if n := len(m.engine.pool.images); m.engine.pool.idle != 0 || m.engine.pages != nil && n != 2 {
		t.Errorf("%d instances wait, with %d images; want none", m.engine.pool.idle, n)
	}
	succeeds(t, m, &Call{Export: "call"}, new(struct{}))
}

// TestHostBugBeforeCall: before the call nothing was done, so nobody need ask what was.
func TestHostBugBeforeCall(t *testing.T) {
	e, log := openEngine(t)
	m := loadIn(t, e, plain().bytes())
	e.reserve = func(size int64) (*region, error) { panic("no region") }
	failure := fails(t, m, &Call{Export: "call"}, abi.StorageUnavailable)
	if failure.Detail != "the host failed, and no guest: no region" {
		t.Errorf("detail %q", failure.Detail)
	}
	reported(t, log, "panic in a guest call", m, "no region")
	e.reserve = reserve
	succeeds(t, m, &Call{Export: "call"}, new(struct{}))
}

func TestLimitsNarrow(t *testing.T) {
	a := Limits{MemoryBytes: 10, Wall: 5, HostCalls: 3}
	b := Limits{MemoryBytes: 5, Wall: 50, OutputBytes: 7}
	want := Limits{MemoryBytes: 5, Wall: 5, HostCalls: 3, OutputBytes: 7}
	if got := a.Narrow(b); got != want {
		t.Errorf("narrowed to %+v, want %+v", got, want)
	}
	if got := b.Narrow(a); got != want {
		t.Errorf("the other way %+v, want %+v", got, want)
	}
	if guard := DefaultLimits(abi.KindGuard); guard.MemoryBytes != 16<<20 || guard.Wall != 50*time.Millisecond || guard.HostCalls != 1000 {
		t.Errorf("guard %+v", guard)
	}
	if DefaultLimits("") == DefaultLimits(abi.KindTool) {
		t.Error("a kind that is none has the limits of a tool")
	}
}

type memState map[string]json.RawMessage

func (s memState) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	v, ok := s[key]
	return v, ok, nil
}

func (s memState) Set(_ context.Context, values map[string]json.RawMessage) error {
	for k, v := range values {
		s[k] = v
	}
	return nil
}
