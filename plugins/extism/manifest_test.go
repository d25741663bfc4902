package extism_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/extism/go-sdk"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/plugins/extism"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// plugin is a module with the exports run and Run, of the type () -> i32, and
// _start and asyncify_stop_unwind, of the type () -> ().
var plugin = func() []byte {
	export := func(name string, index byte) []byte {
		return append(append([]byte{byte(len(name))}, name...), 0, index)
	}
	exports := []byte{4}
	for _, e := range [][]byte{export("run", 0), export("Run", 0), export("_start", 1), export("asyncify_stop_unwind", 1)} {
		exports = append(exports, e...)
	}
	out := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x08\x02\x60\x00\x01\x7f\x60\x00\x00" + // () -> i32, () -> ()
		"\x03\x03\x02\x00\x01")
	out = append(append(out, 7, byte(len(exports))), exports...)
	return append(out, "\x0a\x09\x02\x04\x00\x41\x00\x0b\x02\x00\x0b"...)
}()

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// manifest returns an Extism manifest with the plugin and more members.
func manifest(more string) string {
	data, _ := json.Marshal(plugin)
	return fmt.Sprintf(`{"wasm":[{"data":%s}]%s}`, data, more)
}

func noFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

func TestImport(t *testing.T) {
	least := abi.Manifest{ABI: 1, Name: "p", Version: "0.0.0", Tools: []abi.Tool{{Name: "run", Export: "run", Output: json.RawMessage("{}"), Raw: true}}}
	tests := []struct {
		name, more string
		mapping    *abi.Manifest
		change     func(*abi.Manifest) // of least
	}{
		{"nothing asked", "", nil, func(*abi.Manifest) {}},
		{"empty members", `,"config":{},"allowed_hosts":[],"allowed_paths":{},"memory":{}`, nil, func(*abi.Manifest) {}},
		{"a host", `,"allowed_hosts":["API.example.com"]`, nil, func(m *abi.Manifest) {
			m.Requests = []string{"http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS api.example.com/*", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS http://api.example.com/*"}
		}},
		{"all names below", `,"allowed_hosts":["*.example.com"]`, nil, func(m *abi.Manifest) {
			m.Requests = []string{"http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS **.example.com/*", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS http://**.example.com/*"}
		}},
		{"every host, twice", `,"allowed_hosts":["*","*"]`, nil, func(m *abi.Manifest) {
			m.Requests = []string{"http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS **/*", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS http://**/*"}
		}},
		{"a private address", `,"allowed_hosts":["127.0.0.1"]`, nil, func(m *abi.Manifest) {
			m.Requests = []string{"http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS private 127.0.0.1/*", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS private http://127.0.0.1/*"}
		}},
		{"limits", `,"timeout_ms":250,"memory":{"max_pages":16,"max_http_response_bytes":1000,"max_var_bytes":2000}`, nil, func(m *abi.Manifest) {
			m.Limits = abi.Limits{WallMS: 250, MemoryBytes: 2 << 20, HTTPBytes: 1000, VarBytes: 2000}
		}},
		{"no answers, no variables", `,"memory":{"max_http_response_bytes":0,"max_var_bytes":0}`, nil, func(m *abi.Manifest) {
			m.Limits = abi.Limits{HTTPBytes: 1, VarBytes: 1}
		}},
		{"the host's own bounds", `,"memory":{"max_http_response_bytes":-1,"max_var_bytes":-1}`, nil, func(*abi.Manifest) {}},
		{"all the time there is", `,"timeout_ms":18446744073709551615`, nil, func(m *abi.Manifest) { m.Limits.WallMS = 1<<63 - 1 }},
		{"config", `,"config":{"k":"v"}`, nil, func(m *abi.Manifest) { m.Config = map[string]string{"k": "v"} }},
		{"a mapping", `,"config":{"k":"v","l":"w"},"timeout_ms":100,"memory":{"max_pages":16},"allowed_hosts":["a.example"]`,
			&abi.Manifest{ABI: 1, Name: "q", Version: "1", Tools: []abi.Tool{{Name: "t", Export: "Run", Raw: true}}, Requests: []string{"log"},
				Limits: abi.Limits{WallMS: 200, MemoryBytes: 1 << 20}, Config: map[string]string{"k": "mine"}},
			func(m *abi.Manifest) {
				m.Name, m.Version, m.Tools = "q", "1", []abi.Tool{{Name: "t", Export: "Run", Raw: true}}
				m.Requests = []string{"log", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS a.example/*", "http GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS http://a.example/*"}
				m.Limits = abi.Limits{WallMS: 100, MemoryBytes: 1 << 20}
				m.Config = map[string]string{"k": "mine", "l": "w"}
			}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			m, err := extism.Parse([]byte(manifest(c.more)))
			if err != nil {
				t.Fatal(err)
			}
			before, _ := json.Marshal(c.mapping)
			wasm, got, err := extism.Import(m, "p", c.mapping, noFile)
			if err != nil {
				t.Fatal(err)
			}
			want := least
			c.change(&want)
			if !reflect.DeepEqual(got, &want) {
				t.Errorf("got  %+v\nwant %+v", got, &want)
			}
			if string(wasm) != string(plugin) {
				t.Errorf("module of %d bytes, want the plugin", len(wasm))
			}
			if after, _ := json.Marshal(c.mapping); string(after) != string(before) {
				t.Errorf("the mapping became %s", after)
			}
		})
	}
}

// A module past a limit comes back with the reason, so that more of them can be found in it.
func TestImportPastLimits(t *testing.T) {
	wide := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x05\x02\x00\x01\x00\x01\x07\x0a\x01\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b")
	got, _, err := extism.Import(sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmData{Data: wide}}}, "p", nil, noFile)
	if _, ok := errors.AsType[wasmbin.Errors](err); !ok || string(got) != string(wide) {
		t.Errorf("module of %d bytes, error %v", len(got), err)
	}
}

func TestImportRefuses(t *testing.T) {
	command, err := wasmbin.SetCustom([]byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b"), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	data := func(b []byte) string { s, _ := json.Marshal(b); return string(s) }
	tests := []struct{ name, document, want string }{
		{"unknown member", manifest(`,"allowedHosts":["a.example"]`), `allowedHosts`},
		{"misspelt limit", manifest(`,"timeout":5`), `timeout`},
		{"unknown limit of memory", manifest(`,"memory":{"maxPages":5}`), `maxPages`},
		{"twice", manifest(`,"timeout_ms":5,"timeout_ms":6`), `duplicate member name`},
		{"negative bound", manifest(`,"memory":{"max_var_bytes":-2}`), `memory: a bound is negative`},
		{"pages past 32 bits", manifest(`,"memory":{"max_pages":4294967296}`), `max_pages`},
		{"files", manifest(`,"allowed_paths":{"/etc":"/etc"}`), `allowed_paths: plugins have no files here`},
		{"no module", `{"wasm":[]}`, `0 modules in wasm: want 1`},
		{"no wasm", `{}`, `0 modules in wasm: want 1`},
		{"two modules", `{"wasm":[{"data":` + data(plugin) + `},{"data":` + data(plugin) + `}]}`, `2 modules in wasm: want 1`},
		{"an empty entry", `{"wasm":[{"name":"main"}]}`, `wasm[0]: want one of data and path`},
		{"two places", `{"wasm":[{"data":` + data(plugin) + `,"path":"p.wasm"}]}`, `wasm[0]: want one of data and path`},
		{"a URL", `{"wasm":[{"url":"https://a.example/p.wasm"}]}`, `url https://a.example/p.wasm: nothing is fetched`},
		{"headers of a URL", `{"wasm":[{"url":"https://a.example/p.wasm","headers":{}}]}`, `headers`},
		{"a path without a hash", `{"wasm":[{"path":"p.wasm"}]}`, `p.wasm: hash is missing`},
		{"a path that is not there", `{"wasm":[{"path":"p.wasm","hash":"00"}]}`, fs.ErrNotExist.Error()},
		{"another hash", `{"wasm":[{"data":` + data(plugin) + `,"hash":"00"}]}`, `digest mismatch: extism manifest sha256:00, module sha256:` + hash(plugin)[:12]},
		{"no module's bytes", `{"wasm":[{"data":"AAAA"}]}`, `not a WebAssembly module`},
		{"a command", `{"wasm":[{"data":` + data(command) + `}]}`, `command module: exports _start and no tool`},
		{"no export", `{"wasm":[{"data":"AGFzbQEAAAA="}]}`, `no tool: no export takes nothing`},
		{"a hidden config key", manifest(`,"config":{"a\u200bb":"v"}`), `config: key`},
		{"not JSON", `wasm: []`, `extism manifest`},
	}
	for _, pattern := range []string{"*example.com", "example.*", "*.com", "a?.example.com", "{a,b}.example.com", "a.*.example.com", "*.a.*.example.com",
		"a.example:8080", "https://a.example", "a.example/x", "", "169.254.169.254", "10.*", "a b"} {
		quoted, _ := json.Marshal(pattern)
		tests = append(tests, struct{ name, document, want string }{"host " + pattern, manifest(`,"allowed_hosts":[` + string(quoted) + `]`),
			fmt.Sprintf("allowed_hosts: %q: want a host name", pattern)})
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			m, err := extism.Parse([]byte(c.document))
			if err == nil {
				_, _, err = extism.Import(m, "p", nil, noFile)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// A path is read once, and only with the hash of what is there.
func TestImportPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/p.wasm", plugin, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(path string) ([]byte, error) { return os.ReadFile(dir + "/" + path) }
	m := sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmFile{Path: "p.wasm", Hash: strings.ToUpper(hash(plugin))}}}
	if _, got, err := extism.Import(m, "p", nil, read); err != nil || got.Tools[0].Name != "run" {
		t.Errorf("got %v, %v", got, err)
	}
	m.Wasm = []sdk.Wasm{sdk.WasmFile{Path: "p.wasm", Hash: hash(plugin[1:])}}
	if _, _, err := extism.Import(m, "p", nil, read); err == nil {
		t.Error("another file is accepted")
	} else if e, ok := errors.AsType[*extism.HashError](err); !ok || e.Have != hash(plugin) {
		t.Errorf("error %v", err)
	}
}

// The type of the manifest is Extism's: a manifest made in Go, where an absent bound
// is 0 and means none of it, says here what it says there.
func TestImportFromGo(t *testing.T) {
	m := sdk.Manifest{Wasm: []sdk.Wasm{sdk.WasmData{Data: plugin}}, Memory: &sdk.ManifestMemory{MaxPages: 100}, Timeout: 9}
	_, got, err := extism.Import(m, "p", nil, noFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := (abi.Limits{MemoryBytes: 200 << 16, WallMS: 9, HTTPBytes: 1, VarBytes: 1}); got.Limits != want {
		t.Errorf("limits %+v, want %+v", got.Limits, want)
	}
	m.Wasm = []sdk.Wasm{nil}
	if _, _, err := extism.Import(m, "p", nil, noFile); err == nil {
		t.Error("a module that is nil is accepted")
	}
}

// FuzzParse: whatever Parse accepts, Extism's own reader reads as the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(manifest(`,"timeout_ms":250,"memory":{"max_pages":16,"max_var_bytes":2000},"config":{"k":"v"},"allowed_hosts":["*.example.com"]`)))
	f.Add([]byte(`{"wasm":[{"path":"p.wasm","hash":"00","name":"main"}],"memory":{}}`))
	f.Add([]byte(`{"wasm":[{"url":"https://a.example"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := extism.Parse(data)
		if err != nil {
			return
		}
		var want sdk.Manifest
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%s: Extism does not read it: %v", data, err)
		}
		if got.Wasm == nil {
			got.Wasm = []sdk.Wasm{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s:\nwe read      %+v\nExtism reads %+v", data, got, want)
		}
		_, m, err := extism.Import(got, "p", nil, noFile)
		if err == nil && m.Validate() != nil {
			t.Fatalf("%s: imported as %+v, which is invalid", data, m)
		}
	})
}
