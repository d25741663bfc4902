package host

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestLengthsAreCharged: whatever a host function does with as many bytes as the guest likes costs
// fuel for them, as the guest's own instructions with a length do.
func TestLengthsAreCharged(t *testing.T) {
	n := newInternet(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // else the connection may be closed before it is sent
		w.Write(make([]byte, 1<<20))
	})
	const size = 1 << 20
	block := func(fn map[string]int, n int64) []byte { return join(i64(n), callFn(fn["alloc"])) } // its handle
	text := func(fn map[string]int, local int, s string) []byte {
		code := join(block(fn, int64(len(s))), setLocal(local))
		for i, c := range []byte(s) {
			code = join(code, get(local), i64(int64(i)), []byte{0x7c}, i32(int64(c)), callFn(fn["store_u8"]))
		}
		return code
	}
	for _, c := range []struct {
		name   string
		names  []string // of Extism's imports, with alloc, free and store_u8
		host   string   // import of the host
		before func(fn map[string]int) []byte
		code   func(fn map[string]int) []byte // locals 0 and 1 hold what before has put there
		times  int64                          // that as many bytes are charged for
	}{
		{"alloc", nil, "", nil, func(fn map[string]int) []byte { return join(block(fn, size), callFn(fn["free"])) }, 1},
		{"output_set", []string{"output_set"}, "", func(fn map[string]int) []byte { return join(block(fn, size), setLocal(0)) },
			func(fn map[string]int) []byte { return join(get(0), i64(size), callFn(fn["output_set"])) }, 1},
		{"var_set", []string{"var_set"}, "", func(fn map[string]int) []byte { return join(block(fn, 8), setLocal(0), block(fn, size), setLocal(1)) },
			func(fn map[string]int) []byte { return join(get(0), get(1), callFn(fn["var_set"])) }, 1},
		{"var_get", []string{"var_set", "var_get"}, "", func(fn map[string]int) []byte {
			return join(block(fn, 8), block(fn, size), callFn(fn["var_set"]), block(fn, 8), setLocal(0))
		}, func(fn map[string]int) []byte { return join(get(0), callFn(fn["var_get"]), drop) }, 1},
		{"var_get with a long name", []string{"var_get"}, "", func(fn map[string]int) []byte { return join(block(fn, size), setLocal(0)) },
			func(fn map[string]int) []byte { return join(get(0), callFn(fn["var_get"]), drop) }, 1},
		{"config_get", []string{"config_get"}, "", func(fn map[string]int) []byte { return text(fn, 0, "long") },
			func(fn map[string]int) []byte { return join(get(0), callFn(fn["config_get"]), drop) }, 1},
		{"config_get with a long name", []string{"config_get"}, "", func(fn map[string]int) []byte { return join(block(fn, size), setLocal(0)) },
			func(fn map[string]int) []byte { return join(get(0), callFn(fn["config_get"]), drop) }, 1},
		{"http_request", []string{"http_request"}, "", func(fn map[string]int) []byte {
			return join(text(fn, 0, `{"url":"https://a.example/x","method":"POST"}`), block(fn, size), setLocal(1))
		}, func(fn map[string]int) []byte { return join(get(0), get(1), callFn(fn["http_request"]), drop) }, 2},
		{"the host's output_set", nil, "output_set", nil, func(fn map[string]int) []byte { return join(i32(0), i32(size), callFn(fn["host"])) }, 1},
		{"request of a host call", nil, "state_get", nil, func(fn map[string]int) []byte { return join(i32(0), i32(size), callFn(fn["host"]), drop) }, 1},
		{"body of a host call", nil, "http", nil, func(fn map[string]int) []byte {
			return join(i32(0), i32(0), i32(0), i32(size), callFn(fn["host"]), drop)
		}, 1},
	} {
		used := func(act bool) int64 {
			b := &builder{}
			fn := extismFuncs(b, append([]string{"alloc", "free", "store_u8"}, c.names...)...)
			if c.host != "" {
				fn["host"] = b.use(abi.ImportHost, c.host)
			}
			end := b.use(abi.ImportHost, "output_set")
			b.pages(32)
			b.put(0, "{}")
			var code []byte
			if c.before != nil {
				code = c.before(fn)
			}
			if act {
				code = join(code, c.code(fn))
			}
			b.fn("call", ":", 2, code, i32(0), i32(2), callFn(end))
			reply, err := load(t, b.bytes()).Call(t.Context(), &Call{Export: "call", Config: map[string]string{"long": strings.Repeat("x", size)},
				Grants: grants(t, "http POST a.example/*"), Access: Access{Egress: n.egress()}})
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			return reply.Receipt.Fuel
		}
		if got, want := used(true)-used(false), c.times*size/8; got < want || got > want+want/10 {
			t.Errorf("%s costs %d, want %d", c.name, got, want)
		}
	}
}

// TestTooLongBodyIsNotCopied: a body past the limit is refused as it lies there.
func TestTooLongBodyIsNotCopied(t *testing.T) {
	b := &builder{}
	fn := extismFuncs(b, "alloc", "store_u8", "http_request")
	end := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.put(0, "{}")
	request := `{"url":"https://a.example/x","method":"POST"}`
	code := join(i64(int64(len(request))), callFn(fn["alloc"]), setLocal(0))
	for i, c := range []byte(request) {
		code = join(code, get(0), i64(int64(i)), []byte{0x7c}, i32(int64(c)), callFn(fn["store_u8"]))
	}
	b.fn("call", ":", 1, code, get(0), i64(48<<20), callFn(fn["alloc"]), callFn(fn["http_request"]), drop, i32(0), i32(2), callFn(end))
	m := load(t, b.bytes())
	c := &Call{Export: "call", Grants: grants(t, "http POST a.example/*"), Access: Access{Egress: NewEgress(nil)}}
	if _, err := m.Call(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := m.Call(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("the host allocated %d bytes for a body that it does not send", took)
	}
}
