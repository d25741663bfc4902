package host

import (
	"testing"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Modules that differ in custom sections alone are different modules with one
// compilation.
func TestSharedCode(t *testing.T) {
	e, _ := openEngine(t)
	guest := func(says string) []byte {
		b := &builder{}
		set := b.use(abi.ImportHost, "output_set")
		b.pages(1)
		b.put(0, says)
		b.fn("call", ":", 0, i32(0), i32(int64(len(says))), callFn(set))
		return packed(t, b.bytes())
	}
	renamed := func(wasm []byte, name string) []byte {
		manifest := *testManifest
		manifest.Name = name
		data, err := manifest.Encode()
		if err != nil {
			t.Fatal(err)
		}
		out, err := wasmbin.SetCustom(wasm, abi.ManifestSection, data)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	named, err := wasmbin.SetCustom(guest("one"), "name", []byte{0, 2, 1, 'm'})
	if err != nil {
		t.Fatal(err)
	}
	digests := map[Digest]*Module{}
	for _, c := range []struct {
		what, says, name string
		wasm             []byte
		compiled         int // compilations so far
	}{
		{"first", "one", "test", guest("one"), 1},
		{"other manifest", "one", "other", renamed(guest("one"), "other"), 1},
		{"other code", "two", "test", guest("two"), 2},
		{"names of functions", "one", "test", named, 3},
	} {
		m, err := e.Load(t.Context(), c.wasm)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		digests[m.Digest()] = m // which keeps it
		if m.Manifest().Name != c.name {
			t.Errorf("%s: manifest of %q, want %q", c.what, m.Manifest().Name, c.name)
		}
		reply, err := m.Call(t.Context(), &Call{Export: "call"})
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if string(reply.Output) != c.says || reply.Receipt.Module != m.Digest().String() {
			t.Errorf("%s: output %q of %s, want %q of %s", c.what, reply.Output, reply.Receipt.Module, c.says, m.Digest())
		}
		if n := len(e.codes.codes); n != c.compiled {
			t.Errorf("%s: %d compilations, want %d", c.what, n, c.compiled)
		}
	}
	if len(digests) != 4 {
		t.Errorf("%d digests of 4 modules", len(digests))
	}
}
