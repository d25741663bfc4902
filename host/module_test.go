package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// plain is a module that answers {}.
func plain() *builder {
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.put(0, "{}")
	b.fn("call", ":", 0, i32(0), i32(2), callFn(set))
	return b
}

func TestLoadRejects(t *testing.T) {
	manifest := func(edit func(*abi.Manifest)) func(testing.TB, []byte) []byte {
		return func(t testing.TB, wasm []byte) []byte {
			m := *testManifest
			edit(&m)
			data, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			out, err := wasmbin.SetCustom(wasm, abi.ManifestSection, data)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	tests := []struct {
		name  string
		build func(b *builder)
		pack  func(testing.TB, []byte) []byte // default packed
		want  []Reason                        // Text is a part of it
	}{
		{"unknown imports", func(b *builder) {
			b.importFunc("env", "system", "i:i")
			b.importFunc(abi.ImportWASI, "path_open", "iiiiiIIii:i")
			b.importFunc("env", "extism_alloc", "I:I")
		}, nil, []Reason{{abi.ModuleImportDenied, "env.system"}, {abi.ModuleImportDenied, "wasi_snapshot_preview1.path_open"},
			{abi.ModuleABI, "env.extism_alloc: Extism's ABI before 1.0"}}},
		{"wrong type", func(b *builder) { b.importFunc(abi.ImportExtism, "length", "i:i") }, nil,
			[]Reason{{abi.ModuleABI, "extism:host/env.length: type is (i32) -> (i32), want (i64) -> (i64)"}}},
		{"imported memory", func(b *builder) {
			b.imports = append(b.imports, append(append(str("env"), str("memory")...), 2, 0, 1))
		}, nil, []Reason{{abi.ModuleImportDenied, "env.memory: a memory cannot be imported"}}},
		{"imported global", func(b *builder) {
			b.imports = append(b.imports, append(append(str("env"), str("g")...), 3, 0x7f, 0))
		}, nil, []Reason{{abi.ModuleImportDenied, "env.g: a global cannot be imported"}}},
		{"no memory", func(b *builder) {
			b.use(abi.ImportHost, "input_read")
			b.memory, b.data = nil, nil
		}, nil, []Reason{{abi.ModuleABI, "output_set: the module has no memory"}, {abi.ModuleABI, "input_read: the module has no memory"}}},
		{"large memory", func(b *builder) { b.pages(1025) }, nil, []Reason{{abi.ModuleLimit, "begins with 67174400 bytes"}}},
		{"large memory for a guard", func(b *builder) { b.pages(257) }, nil, []Reason{{abi.ModuleLimit, "limit of hooks and guards 16777216"}}},
		{"initialize takes a parameter", func(b *builder) { b.fn("_initialize", "i:", 0) }, nil, []Reason{{abi.ModuleABI, "_initialize"}}},
		{"hidden export", func(b *builder) { b.fn("a\x00b", ":", 0) }, nil, []Reason{{abi.ModuleABI, "cannot be seen"}}},
		{"reserved export", func(b *builder) { b.fn("sandboxd:meter.fuel", ":", 0) }, nil, []Reason{{abi.ModuleABI, `"sandboxd:" are the host's`}}},
		{"reserved export of a global", func(b *builder) { b.exports = append(b.exports, append(str("sandboxd:x"), 3, 0)) }, nil,
			[]Reason{{abi.ModuleABI, `export "sandboxd:x"`}}},
		{"reserved import", func(b *builder) { b.importFunc("sandboxd:rt", "refuel", ":") }, nil,
			[]Reason{{abi.ModuleImportDenied, "sandboxd:rt.refuel: not a host function"}}},
		{"code that costs too much", func(b *builder) {
			b.fn("deep", ":", 0, bytes.Repeat([]byte{2, 0x40}, wasmbin.MaxNesting+1), bytes.Repeat([]byte{0x0b}, wasmbin.MaxNesting+1))
		}, nil, []Reason{{abi.ModuleLimit, "function 1: 1001 blocks inside each other exceed 1000"}}},
		{"all reasons at once", func(b *builder) {
			b.importFunc("env", "system", ":")
			b.fn("deep", ":", 0, bytes.Repeat([]byte{2, 0x40}, wasmbin.MaxNesting+1), bytes.Repeat([]byte{0x0b}, wasmbin.MaxNesting+1))
			b.fn("tail", ":", 0, []byte{0x12, 0})
			b.pages(1025)
		}, manifest(func(m *abi.Manifest) { m.Tools = []abi.Tool{{Name: "a", Export: "one"}} }), []Reason{
			{abi.ModuleLimit, "function 2: 1001 blocks"}, {abi.ModuleMalformed, "function 3: instruction 0x12: tail calls: not enabled"},
			{abi.ModuleImportDenied, "env.system"}, {abi.ModuleLimit, "begins with 67174400 bytes"}, {abi.ModuleABI, `no export "one"`}}},
		{"past caps, and more", func(b *builder) {
			b.importFunc("env", "system", ":")
			b.globals = slices.Repeat([][]byte{{0x7f, 0, 0x41, 0, 0x0b}}, wasmbin.MaxGlobals+1)
			b.fn("wide", ":", wasmbin.MaxLocals+1)
			b.fn("wider", ":", 4<<20)
			b.fn("tail", ":", 0, []byte{0x12, 0})
			b.exports = append(b.exports, append(str("sandboxd:x"), 3, 0))
			b.pages(1025)
		}, func(_ testing.TB, wasm []byte) []byte { // as it is: nobody packs what is past a cap
			section := append(str(abi.ManifestSection), `{"abi":1,"name":"test","version":"1","tools":[{"name":"a","export":"one"}]}`...)
			return append(append(append(wasm, 0), leb(len(section))...), section...)
		}, []Reason{{abi.ModuleLimit, "4001 globals exceed 4000"}, {abi.ModuleLimit, "1001 locals in body 0"}, {abi.ModuleLimit, "4194304 locals in body 1"},
			{abi.ModuleLimit, "locals in all bodies"}, {abi.ModuleMalformed, "function 4: instruction 0x12"}, {abi.ModuleImportDenied, "env.system"},
			{abi.ModuleLimit, "begins with 67174400"}, {abi.ModuleABI, "sandboxd:x"}, {abi.ModuleABI, `no export "one"`}}},
		{"more than is read", func(b *builder) {
			for range wasmbin.MaxExports {
				b.exports = append(b.exports, append(str(fmt.Sprint(len(b.exports))), 0, 1))
			}
			b.importFunc("env", "system", ":")
		}, func(t testing.TB, wasm []byte) []byte {
			section := append(str(abi.ManifestSection), `{"abi":1,"name":"test","version":"1","tools":[{"name":"a"}]}`...)
			return append(append(append(wasm, 0), leb(len(section))...), section...)
		}, []Reason{{abi.ModuleLimit, "1001 exports"}, {abi.ModuleImportDenied, "env.system"}}},
		{"body does not validate", func(b *builder) { b.fn("bad", ":i", 0) }, nil, []Reason{{abi.ModuleMalformed, ""}}},
		{"no manifest", nil, func(_ testing.TB, wasm []byte) []byte { return wasm }, []Reason{{abi.ModuleABI, "no manifest"}}},
		{"two manifests", nil, func(t testing.TB, wasm []byte) []byte {
			one := packed(t, wasm)
			return append(one, one[len(wasm):]...)
		}, []Reason{{abi.ModuleABI, "2 manifests"}}},
		{"manifest is not one", nil, func(t testing.TB, wasm []byte) []byte {
			out, err := wasmbin.SetCustom(wasm, abi.ManifestSection, []byte(`{"abi":2,"name":"X","version":"1","tools":[{"name":"t"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			return out
		}, []Reason{{abi.ModuleABI, "abi 2"}, {abi.ModuleABI, `name "X"`}}},
		{"exports missing", func(b *builder) { b.fn("three", ":f", 0) }, manifest(func(m *abi.Manifest) {
			m.Tools = []abi.Tool{{Name: "a", Export: "one"}, {Name: "b", Export: "two"}, {Name: "c", Export: "two"}}
		}), []Reason{{abi.ModuleABI, `no export "one"`}, {abi.ModuleABI, `no export "two"`}}},
		{"export is an import", func(b *builder) {
			b.exports = append(b.exports, append(str("alias"), 0, 0))
		}, manifest(func(m *abi.Manifest) { m.Tools = []abi.Tool{{Name: "a", Export: "alias"}} }), []Reason{{abi.ModuleABI, `no export "alias"`}}},
		{"not a module", nil, func(testing.TB, []byte) []byte { return []byte("\x7fELF") }, []Reason{{abi.ModuleMalformed, "ELF"}}},
		{"bomb", nil, func(testing.TB, []byte) []byte { return []byte("\x00asm\x01\x00\x00\x00\x06\x05\xff\xff\xff\xff\x0f") },
			[]Reason{{abi.ModuleMalformed, "4294967295 globals"}}},
	}
	e, _ := openEngine(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := &builder{}
			set := b.use(abi.ImportHost, "output_set")
			b.pages(1)
			if test.build != nil {
				test.build(b)
			}
			b.fn("call", ":", 0, i32(0), i32(2), callFn(set))
			pack := test.pack
			if pack == nil {
				pack = packed
			}
			m, err := e.Load(t.Context(), pack(t, b.bytes()))
			reject, ok := errors.AsType[*RejectError](err)
			if !ok || m != nil {
				t.Fatalf("module %v, error %v", m, err)
			}
			if len(reject.Reasons) != len(test.want) {
				t.Fatalf("reasons %+v, want %+v", reject.Reasons, test.want)
			}
			for i, want := range test.want {
				if got := reject.Reasons[i]; got.Code != want.Code || !strings.Contains(got.Text, want.Text) {
					t.Errorf("reason %+v, want %+v", got, want)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	e, _ := openEngine(t)
	wasm := packed(t, plain().bytes())
	m, err := e.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Load(t.Context(), wasm)
	if err != nil || again != m {
		t.Errorf("loading again gives another module, error %v", err)
	}
	if m.Size() != len(wasm) || m.Manifest().Name != "test" || !strings.HasPrefix(m.Digest().String(), m.Digest().Short()) {
		t.Errorf("size %d, name %s, digest %s", m.Size(), m.Manifest().Name, m.Digest())
	}
	if want := []Import{{abi.ImportHost, "output_set"}}; len(m.Imports()) != 1 || m.Imports()[0] != want[0] {
		t.Errorf("imports %v, want %v", m.Imports(), want)
	}
	// What is loaded waits for no compilation of others.
	e.compile.take(t.Context(), "another")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if again, err = e.LoadFor(gone, "one", wasm); err != nil || again != m {
		t.Errorf("loading again while another tenant's module is compiled: error %v", err)
	}
	e.compile.give()
	clear(wasm) // Load kept nothing of it
	var out struct{}
	succeeds(t, m, &Call{Export: "call"}, &out)

	e.compile.take(t.Context(), "")
	if _, err := e.Load(gone, wasm); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the compiler: error %v, want it to end with ctx", err)
	}
	e.compile.give()
}

func TestDescribe(t *testing.T) {
	e, _ := openEngine(t)
	describe := func(document string) []byte {
		b := &builder{}
		set := b.use(abi.ImportHost, "output_set")
		b.pages(1)
		b.put(0, document)
		b.fn("describe", ":", 0, i32(0), i32(int64(len(document))), callFn(set))
		return b.bytes()
	}
	m, err := e.Describe(t.Context(), describe(`{"abi":1,"name":"weather","version":"2","tools":[{"name":"today"}]}`))
	if err != nil || m.Name != "weather" || len(m.Tools) != 1 || m.Tools[0].Name != "today" {
		t.Errorf("manifest %+v, error %v", m, err)
	}
	if _, err := e.Describe(t.Context(), plain().bytes()); err == nil || !strings.Contains(err.Error(), "describe") {
		t.Errorf("no export: error %v", err)
	}
	_, err = e.Describe(t.Context(), describe(`{"abi":1}`))
	if reject, ok := errors.AsType[*RejectError](err); !ok || len(reject.Reasons) != 3 {
		t.Errorf("incomplete manifest: error %v", err)
	}
	if _, err := e.Describe(t.Context(), describe("[")); !strings.Contains(fmt.Sprint(err), string(abi.ModuleABI)) {
		t.Errorf("no manifest: error %v", err)
	}
}

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := Open(t.Context(), Config{Cache: dir})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("cache has mode %v, error %v; want 0700", info.Mode(), err)
	}
	m, err := e.Load(t.Context(), packed(t, plain().bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	fails(t, m, &Call{Export: "call"}, abi.Cancelled)
	if _, err := e.Load(t.Context(), packed(t, plain().bytes())); !errors.Is(err, errClosed) {
		t.Errorf("load after close: error %v", err)
	}
	if _, err := Open(t.Context(), Config{Cache: "/dev/null/cache"}); err == nil {
		t.Error("a cache that cannot be made was accepted")
	}
}

func TestHostFunctionsAreThere(t *testing.T) {
	names := map[string]bool{}
	for _, f := range hostFunctions {
		names[f.name] = true
	}
	for _, name := range append(abi.HostFunctions(), abi.RegoBuiltin) {
		if !names[name] {
			t.Errorf("%s is in the contract and not here", name)
		}
		delete(names, name)
	}
	for name := range names {
		t.Errorf("%s is here and not in the contract", name)
	}
}
