package host

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// word builds a module that answers the i64 that code leaves, as eight bytes.
func word(names []string, code func(fn map[string]int) []byte) *builder {
	return one(":", append(names, "output_set"), func(fn map[string]int) []byte {
		return join(i32(512), code(fn), []byte{0x37, 3, 0}, i32(512), i32(8), callFn(fn["output_set"]))
	})
}

// extend turns the i32 on the stack into an i64.
var extend = []byte{0xad}

func ext(names ...string) []string {
	for i, n := range names {
		names[i] = "extism." + n
	}
	return names
}

func TestExtismValues(t *testing.T) {
	input := []byte("0123456789")
	tests := []struct {
		name  string
		names []string
		code  func(fn map[string]int) []byte
		want  uint64
	}{
		{"alloc of nothing", ext("alloc"), func(fn map[string]int) []byte { return join(i64(0), callFn(fn["alloc"])) }, 0},
		{"alloc of 2^64-1", ext("alloc"), func(fn map[string]int) []byte { return join(i64(-1), callFn(fn["alloc"])) }, 0},
		{"alloc of 2^63", ext("alloc"), func(fn map[string]int) []byte { return join(i64(-1<<63), callFn(fn["alloc"])) }, 0},
		{"length", ext("alloc", "length"), func(fn map[string]int) []byte { return join(i64(77), callFn(fn["alloc"]), callFn(fn["length"])) }, 77},
		{"length inside a block", ext("alloc", "length"), func(fn map[string]int) []byte {
			return join(i64(77), callFn(fn["alloc"]), i64(1), []byte{0x7c}, callFn(fn["length"]))
		}, 0},
		{"length of no block", ext("length"), func(fn map[string]int) []byte { return join(i64(-1), callFn(fn["length"])) }, 0},
		{"length_unsafe of no block", ext("length_unsafe"), func(fn map[string]int) []byte { return join(i64(1<<40), callFn(fn["length_unsafe"])) }, 0},
		{"store and load", ext("alloc", "store_u64", "load_u64"), func(fn map[string]int) []byte {
			return join(i64(8), callFn(fn["alloc"]), setLocal(0), get(0), i64(0x1122334455667788), callFn(fn["store_u64"]), get(0), callFn(fn["load_u64"]))
		}, 0x1122334455667788},
		{"store and load a byte", ext("alloc", "store_u8", "load_u8"), func(fn map[string]int) []byte {
			return join(i64(8), callFn(fn["alloc"]), i64(7), []byte{0x7c}, setLocal(0), get(0), i32(0x1ff), callFn(fn["store_u8"]), get(0), callFn(fn["load_u8"]), extend)
		}, 0xff},
		{"input_length", ext("input_length"), func(fn map[string]int) []byte { return callFn(fn["input_length"]) }, 10},
		{"input_load_u8", ext("input_load_u8"), func(fn map[string]int) []byte { return join(i64(9), callFn(fn["input_load_u8"]), extend) }, '9'},
		{"input_load_u8 past the end", ext("input_load_u8"), func(fn map[string]int) []byte { return join(i64(10), callFn(fn["input_load_u8"]), extend) }, 0},
		{"input_load_u8 of -1", ext("input_load_u8"), func(fn map[string]int) []byte { return join(i64(-1), callFn(fn["input_load_u8"]), extend) }, 0},
		{"input_load_u64", ext("input_load_u64"), func(fn map[string]int) []byte { return join(i64(1), callFn(fn["input_load_u64"])) }, binary.LittleEndian.Uint64(input[1:])},
		{"input_load_u64 over the end", ext("input_load_u64"), func(fn map[string]int) []byte { return join(i64(9), callFn(fn["input_load_u64"])) }, '9'},
		{"input_offset", ext("input_offset", "load_u8"), func(fn map[string]int) []byte {
			return join(callFn(fn["input_offset"]), i64(3), []byte{0x7c}, callFn(fn["load_u8"]), extend)
		}, '3'},
		{"freeing the input", ext("input_offset", "free", "input_length"), func(fn map[string]int) []byte {
			return join(callFn(fn["input_offset"]), callFn(fn["free"]), callFn(fn["input_length"]))
		}, 0},
		{"input_set", ext("alloc", "input_set", "input_length"), func(fn map[string]int) []byte {
			return join(i64(5), callFn(fn["alloc"]), i64(5), callFn(fn["input_set"]), callFn(fn["input_length"]))
		}, 5},
		{"reset", ext("reset", "input_length", "memory_bytes"), func(fn map[string]int) []byte {
			return join(callFn(fn["reset"]), callFn(fn["input_length"]), callFn(fn["memory_bytes"]), []byte{0x84})
		}, 0},
		{"output_length", ext("alloc", "output_set", "output_length"), func(fn map[string]int) []byte {
			return join(i64(8), callFn(fn["alloc"]), i64(6), callFn(fn["extism.output_set"]), callFn(fn["output_length"]))
		}, 6},
		{"free twice and what is no block", ext("alloc", "free", "length"), func(fn map[string]int) []byte {
			return join(i64(8), callFn(fn["alloc"]), setLocal(0), get(0), callFn(fn["free"]), get(0), callFn(fn["free"]), i64(0), callFn(fn["free"]),
				i64(-1), callFn(fn["free"]), get(0), callFn(fn["length"]))
		}, 0},
		{"error_set and cleared", ext("alloc", "error_set", "error_get"), func(fn map[string]int) []byte {
			return join(i64(8), callFn(fn["alloc"]), callFn(fn["error_set"]), i64(0), callFn(fn["error_set"]), callFn(fn["error_get"]))
		}, 0},
		{"config_get without a key", ext("config_get"), func(fn map[string]int) []byte { return join(i64(0), callFn(fn["config_get"])) }, 0},
		{"config_get", ext("alloc", "store_u8", "config_get", "load_u8"), func(fn map[string]int) []byte {
			return join(i64(1), callFn(fn["alloc"]), setLocal(0), get(0), i32('k'), callFn(fn["store_u8"]), get(0), callFn(fn["config_get"]), callFn(fn["load_u8"]), extend)
		}, 'v'},
		{"variables", ext("alloc", "store_u8", "var_set", "var_get", "load_u8"), func(fn map[string]int) []byte {
			key := join(i64(1), callFn(fn["alloc"]), setLocal(0), get(0), i32('x'), callFn(fn["store_u8"]))
			return join(key, i64(1), callFn(fn["alloc"]), setLocal(1), get(1), i32('y'), callFn(fn["store_u8"]), get(0), get(1), callFn(fn["var_set"]),
				key, get(0), callFn(fn["var_get"]), callFn(fn["load_u8"]), extend)
		}, 'y'},
		{"a deleted variable", ext("alloc", "var_set", "var_get"), func(fn map[string]int) []byte {
			block := join(i64(1), callFn(fn["alloc"]))
			return join(block, block, callFn(fn["var_set"]), block, i64(0), callFn(fn["var_set"]), block, callFn(fn["var_get"]))
		}, 0},
		{"a variable written often", ext("alloc", "var_set", "memory_bytes"), func(fn map[string]int) []byte {
			set := join(i64(1), callFn(fn["alloc"]), i64(100<<10), callFn(fn["alloc"]), callFn(fn["var_set"]))
			var all []byte
			for range 50 {
				all = append(all, set...)
			}
			// 100 entries of freed blocks and one variable.
			return join(all, callFn(fn["memory_bytes"]))
		}, 100*blockCost + blockCost + 1 + 100<<10},
		{"no log", ext("get_log_level"), func(fn map[string]int) []byte { return join(callFn(fn["get_log_level"]), extend) }, 1<<31 - 1},
		{"no status yet", ext("http_status_code", "http_headers"), func(fn map[string]int) []byte {
			return join(callFn(fn["http_status_code"]), extend, callFn(fn["http_headers"]), []byte{0x84})
		}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := load(t, word(test.names, test.code).bytes())
			reply, err := m.Call(t.Context(), &Call{Export: "call", Input: input, Config: map[string]string{"k": "v"}})
			if err != nil {
				t.Fatal(err)
			}
			if got := binary.LittleEndian.Uint64(reply.Output); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestBadPointers: a pointer, length or handle that is none ends the call, for
// every function that takes one.
func TestBadPointers(t *testing.T) {
	type bad struct {
		name string
		args [][]byte
	}
	far, negative, page := i64(1<<40), i64(-1), i32(1<<16)
	tests := []bad{
		{"extism.load_u8", [][]byte{far}}, {"extism.load_u8", [][]byte{negative}}, {"extism.load_u8", [][]byte{i64(0)}},
		{"extism.load_u64", [][]byte{far}}, {"extism.load_u64", [][]byte{negative}}, {"extism.load_u64", [][]byte{i64(17)}},
		{"extism.store_u8", [][]byte{far, i32(1)}}, {"extism.store_u64", [][]byte{negative, i64(1)}}, {"extism.store_u64", [][]byte{i64(17), i64(1)}},
		{"extism.input_set", [][]byte{far, i64(1)}}, {"extism.input_set", [][]byte{i64(16), i64(9)}}, {"extism.input_set", [][]byte{i64(16), negative}},
		{"extism.output_set", [][]byte{i64(3), i64(5)}}, {"extism.output_set", [][]byte{i64(16), i64(9)}}, {"extism.output_set", [][]byte{negative, i64(2)}},
		{"extism.error_set", [][]byte{far}}, {"extism.error_set", [][]byte{i64(17)}},
		{"extism.config_get", [][]byte{negative}}, {"extism.var_get", [][]byte{far}},
		{"extism.var_set", [][]byte{far, i64(0)}}, {"extism.var_set", [][]byte{i64(16), far}},
		{"extism.http_request", [][]byte{far, i64(0)}}, {"extism.http_request", [][]byte{i64(16), negative}},
		{"extism.log_trace", [][]byte{far}}, {"extism.log_debug", [][]byte{far}}, {"extism.log_info", [][]byte{far}},
		{"extism.log_warn", [][]byte{far}}, {"extism.log_error", [][]byte{i64(18)}},
		{"input_read", [][]byte{page, i32(0), i32(1)}}, {"input_read", [][]byte{i32(1), i32(0), i32(-1)}}, {"input_read", [][]byte{i32(-1), i32(0), i32(-1)}},
		{"reply_read", [][]byte{page, i32(0), i32(1)}}, {"reply_read", [][]byte{i32(-1), i32(0), i32(2)}},
		{"output_set", [][]byte{page, i32(1)}}, {"output_set", [][]byte{i32(1), i32(1 << 16)}},
		{"wasi.args_sizes_get", [][]byte{i32(1<<16 - 3), i32(0)}}, {"wasi.args_sizes_get", [][]byte{i32(0), page}},
		{"wasi.environ_sizes_get", [][]byte{page, i32(0)}},
		{"wasi.clock_res_get", [][]byte{i32(0), i32(1<<16 - 7)}}, {"wasi.clock_time_get", [][]byte{i32(0), i64(0), page}},
		{"wasi.random_get", [][]byte{i32(1), i32(1 << 16)}}, {"wasi.random_get", [][]byte{i32(-1), i32(1)}},
		{"wasi.fd_write", [][]byte{i32(1), i32(1<<16 - 4), i32(1), i32(0)}}, {"wasi.fd_write", [][]byte{i32(1), i32(0), i32(-1), i32(0)}},
		{"wasi.fd_write", [][]byte{i32(1), i32(0), i32(1), i32(0)}}, // the vector is the text in memory
		{"wasi.fd_write", [][]byte{i32(1), i32(1024), i32(1), page}},
		{"wasi.fd_read", [][]byte{i32(0), i32(0), i32(0), page}}, {"wasi.fd_fdstat_get", [][]byte{i32(1), i32(1<<16 - 23)}},
		{"wasi.poll_oneoff", [][]byte{i32(1<<16 - 47), i32(0), i32(1), i32(0)}}, {"wasi.poll_oneoff", [][]byte{i32(1024), i32(1<<16 - 31), i32(1), i32(0)}},
		{"wasi.poll_oneoff", [][]byte{i32(1024), i32(2048), i32(1), page}},
	}
	for _, f := range hostFunctions {
		switch f.typ {
		case "ii:I":
			tests = append(tests, bad{f.name, [][]byte{page, i32(1)}}, bad{f.name, [][]byte{i32(-1), i32(-1)}})
		case "iiii:I":
			tests = append(tests, bad{f.name, [][]byte{page, i32(1), i32(0), i32(0)}}, bad{f.name, [][]byte{i32(0), i32(2), i32(2), i32(-1)}})
		}
	}
	covered := map[string]bool{}
	for i, test := range tests {
		t.Run(fmt.Sprint(i, " ", test.name), func(t *testing.T) {
			f, _ := lookup(split(test.name))
			covered[test.name] = true
			// A block of 8 bytes lies at 16, for handles that are nearly right.
			m := load(t, one(":", []string{"extism.alloc", test.name}, func(fn map[string]int) []byte {
				code := join(i64(8), callFn(fn["alloc"]), drop, join(test.args...), callFn(fn[test.name]))
				if !strings.HasSuffix(f.typ, ":") {
					code = append(code, drop...)
				}
				return code
			}).bytes())
			e := fails(t, m, &Call{Export: "call", Grants: grants(t, "log"), Access: Access{Log: func(string, string) {}}}, abi.GuestTrap)
			if !strings.Contains(e.Detail, "bad pointer") && !strings.Contains(e.Detail, "bad handle") && !strings.Contains(e.Detail, "vectors exceed") {
				t.Errorf("detail %q", e.Detail)
			}
			if len(e.Receipt.Used)+len(e.Receipt.Denied) > 0 {
				t.Errorf("a call with a bad pointer had an effect: %+v", e.Receipt)
			}
		})
	}
	for module, funcs := range hostModules {
		for _, f := range funcs {
			// These take no address, answer any address with 0, or never use theirs.
			if f.traits&onMemory == 0 && (module != abi.ImportExtism || !strings.HasPrefix(f.typ, "I") || strings.Contains(" alloc free length length_unsafe input_load_u8 input_load_u64 ", " "+f.name+" ")) {
				continue
			}
			full := map[string]string{abi.ImportExtism: "extism.", abi.ImportWASI: "wasi."}[module] + f.name
			if !covered[full] {
				t.Errorf("%s has no case", full)
			}
		}
	}
}

func TestExtismErrorSet(t *testing.T) {
	b := &builder{}
	alloc, store := b.use(abi.ImportExtism, "alloc"), b.use(abi.ImportExtism, "store_u8")
	setError, setOutput := b.use(abi.ImportExtism, "error_set"), b.use(abi.ImportExtism, "output_set")
	b.fn("call", ":i", 1, i64(8<<10), callFn(alloc), setLocal(0),
		get(0), i32('n'), callFn(store), get(0), i64(1), []byte{0x7c}, i32('\n'), callFn(store),
		get(0), i64(2), []byte{0x7c}, i32(0x1b), callFn(store), get(0), i64(3), []byte{0x7c}, i32(0xff), callFn(store),
		get(0), i64(4), callFn(setOutput), get(0), callFn(setError), i32(0))
	m := load(t, b.bytes())
	e := fails(t, m, &Call{Export: "call"}, abi.GuestError)
	if want := fmt.Sprintf("n\\n\\u{1b}\uFFFD\\u{0}×%d", maxFailureBytes-4); e.Message != want { // a run of hidden characters is counted
		t.Errorf("message of %d bytes: %q", len(e.Message), e.Message[:min(len(e.Message), 60)])
	}
}

func TestExtismLog(t *testing.T) {
	b := &builder{}
	alloc, store := b.use(abi.ImportExtism, "alloc"), b.use(abi.ImportExtism, "store_u8")
	warn, level := b.use(abi.ImportExtism, "log_warn"), b.use(abi.ImportExtism, "get_log_level")
	set := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.put(0, "{}")
	b.fn("call", ":i", 1, i64(1), callFn(alloc), setLocal(0), get(0), i32('!'), callFn(store), get(0), callFn(warn),
		i32(0), i32(2), callFn(set), callFn(level))
	m := load(t, b.bytes())
	var got []string
	var traced []HostCall
	c := &Call{Export: "call", Grants: grants(t, "log"), Access: Access{Log: func(level, message string) { got = append(got, level+" "+message) }},
		Trace: func(h HostCall) { traced = append(traced, h) }}
	reply := succeeds(t, m, c, &struct{}{})
	if fmt.Sprint(got) != "[warn !]" || fmt.Sprint(reply.Receipt.Used) != "[log]" || reply.Receipt.LogBytes != 1 {
		t.Errorf("log %q, receipt %+v", got, reply.Receipt)
	}
	if len(traced) != 1 || traced[0].Name != "log" || traced[0].Code != abi.OK || traced[0].Need != "log" {
		t.Errorf("trace %+v", traced)
	}
	got = nil
	c.Grants = grants(t)
	e := fails(t, m, c, abi.GuestError) // the level, "off", is the return code
	if len(got) != 0 || fmt.Sprint(e.Receipt.Denied) != "[log]" {
		t.Errorf("log %q, receipt %+v", got, e.Receipt)
	}
}

// The values of all variables are bounded together; overwriting and deleting gives
// back what was there.
func TestExtismVariableLimit(t *testing.T) {
	b := &builder{}
	alloc, store := b.use(abi.ImportExtism, "alloc"), b.use(abi.ImportExtism, "store_u8")
	setVar, set := b.use(abi.ImportExtism, "var_set"), b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.put(0, "{}")
	// put sets the variable named by a letter to n bytes; n < 0 deletes it.
	put := func(name byte, n int64) []byte {
		value := i64(0)
		if n >= 0 {
			value = join(i64(n), callFn(alloc))
		}
		return join(i64(1), callFn(alloc), setLocal(0), get(0), i32(int64(name)), callFn(store), get(0), value, callFn(setVar))
	}
	done := join(i32(0), i32(2), callFn(set))
	b.fn("call", ":", 1, put('a', 60), put('b', 40), done)
	b.fn("over", ":", 1, put('a', 60), put('b', 41), done)
	b.fn("overwritten", ":", 1, put('a', 100), put('a', 100), put('a', 1), put('b', 99), done)
	b.fn("deleted", ":", 1, put('a', 100), put('a', -1), put('b', 100), done)
	m := load(t, b.bytes())
	for _, export := range []string{"call", "overwritten", "deleted"} {
		succeeds(t, m, &Call{Export: export, Limits: Limits{VarBytes: 100}}, &struct{}{})
	}
	e := fails(t, m, &Call{Export: "over", Limits: Limits{VarBytes: 100}}, abi.GuestTrap)
	if !strings.Contains(e.Detail, "variables of 101 bytes exceed limit 100") {
		t.Errorf("detail %q", e.Detail)
	}
	succeeds(t, m, &Call{Export: "over"}, &struct{}{})
}
