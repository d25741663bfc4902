package host

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// named adds a name section with the names of some functions.
func named(t *testing.T, wasm []byte, names ...any) []byte {
	t.Helper()
	var list [][]byte
	for i := 0; i < len(names); i += 2 {
		list = append(list, slices.Concat(leb(names[i].(int)), str(names[i+1].(string))))
	}
	out, err := wasmbin.SetCustom(wasm, "name", section(1, vec(list...)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The receipt of a guest that was stopped names the function it was stopped in, as the author's own
// module numbers it, whatever stopped it; a model reads nothing of it.
func TestReceiptNamesWhereAGuestWasStopped(t *testing.T) {
	inner := func(typ string, code func(fn map[string]int) []byte, imports ...string) func() (*builder, int) {
		return func() (*builder, int) {
			b, fn := &builder{}, map[string]int{}
			for _, i := range imports {
				fn[i] = b.use("extism:host/env", i)
			}
			b.pages(2)
			b.fn("call", ":", 0)
			f := b.fn("", typ, 0, code(fn))
			b.fn("outer", ":", 0, callFn(f))
			return b, f
		}
	}
	spins := inner(":", func(map[string]int) []byte { return loop() })
	for _, c := range []struct {
		name   string
		make   func() (*builder, int)
		limits Limits
		code   abi.Code
	}{
		{"fuel", spins, Limits{Fuel: 5_000_000}, abi.GuestFuel},
		{"fuel beside imports", inner(":", func(map[string]int) []byte { return loop() }, "alloc", "length"), Limits{Fuel: 5_000_000}, abi.GuestFuel},
		{"time", spins, Limits{Wall: 20 * time.Millisecond, Fuel: endless}, abi.GuestTimeout},
		{"a long instruction", inner(":", func(map[string]int) []byte {
			return loop(i32(0), i32(0), i32(1<<16), []byte{0xfc, 11, 0}) // memory.fill
		}), Limits{Fuel: 5_000_000}, abi.GuestFuel},
		{"a window", inner(":", func(fn map[string]int) []byte {
			return loop(i64(0), callFn(fn["input_load_u8"]), []byte{0x1a})
		}, "input_load_u8"), Limits{Fuel: 5_000_000}, abi.GuestFuel},
		{"depth", func() (*builder, int) {
			b := plain()
			b.fn("outer", ":", 0, callFn(b.count+1))
			return b, b.fn("", ":", 0, callFn(b.count))
		}, Limits{Depth: 10}, abi.GuestStack},
		{"memory", inner(":", func(fn map[string]int) []byte {
			return loop(i64(1<<20), callFn(fn["alloc"]), []byte{0x50, 0x04, 0x40, 0x00, 0x0b})
		}, "alloc"), Limits{}, abi.GuestMemory},
		{"trap", inner(":", func(map[string]int) []byte { return []byte{0x00} }), Limits{}, abi.GuestTrap},
		{"a bad handle", inner(":", func(fn map[string]int) []byte {
			return join(i64(77), i64(1), callFn(fn["output_set"]))
		}, "output_set"), Limits{}, abi.GuestTrap},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, index := c.make()
			wasm := b.bytes()
			for name, want := range map[string]string{
				"": "", "main.spin": " main.spin", "x(i32)\n\t.0 \"y\"()\u202e": ` x(i32)\n\t.0 "y"()\u{202e}`,
				strings.Repeat("n", 500): " " + strings.Repeat("n", maxNameBytes-len("…truncated")) + "…truncated",
			} {
				code := wasm
				if name != "" {
					code = named(t, wasm, index, name)
				}
				e := fails(t, load(t, code), &Call{Export: "outer", Input: []byte("in"), Limits: c.limits}, c.code)
				if want := "func[" + strconv.Itoa(index) + "]" + want; e.Receipt.In != want {
					t.Errorf("in %q, want %q; detail %q", e.Receipt.In, want, e.Detail)
				}
				if !strings.Contains(e.Detail, "in "+e.Receipt.In) || strings.Contains(e.Message, "func[") {
					t.Errorf("detail %q, message %q", e.Detail, e.Message)
				}
			}
		})
	}
	b := plain()
	b.fn("outer", ":i", 0, i32(7))
	if e := fails(t, load(t, b.bytes()), &Call{Export: "outer"}, abi.GuestError); e.Receipt.In != "" {
		t.Errorf("in %q of a guest that was not stopped", e.Receipt.In)
	}
}

// What comes before a call is named likewise.
func TestReceiptNamesWhereAStartWasStopped(t *testing.T) {
	b := plain()
	b.start = leb(b.fn("", ":", 0, loop()))
	m := loadIn(t, openPooled(t, true), b.bytes())
	call := &Call{Export: "call", Limits: Limits{Fuel: 1000}}
	e := fails(t, m, call, abi.GuestFuel)
	if again := fails(t, m, call, abi.GuestFuel); !strings.HasPrefix(e.Receipt.In, "func[") || again.Receipt.In != e.Receipt.In {
		t.Errorf("in %q, then %q", e.Receipt.In, again.Receipt.In)
	}
}
