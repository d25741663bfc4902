package host

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// asksRego is a guest whose output is the length of the reply of rego_builtin and the
// reply.
func asksRego(request, args string) []byte {
	b := one(":", []string{abi.RegoBuiltin, "reply_read", "output_set"}, func(fn map[string]int) []byte {
		return join(
			i32(512), i32(1024), i32(int64(len(request))), i32(4096), i32(int64(len(args))), callFn(fn[abi.RegoBuiltin]), []byte{0x37, 3, 0},
			i32(520), i32(0), i32(256), callFn(fn["reply_read"]), drop,
			i32(512), i32(264), callFn(fn["output_set"]))
	})
	b.put(1024, request)
	b.put(4096, args)
	return b.bytes()
}

func TestRegoBuiltin(t *testing.T) {
	for _, c := range []struct {
		name, request, args string
		kind                abi.Kind
		want, detail        string // the reply, or else what the operator reads
	}{
		{"a value", `{"builtin":"sprintf"}`, `["%d of %v",[1,{2}]]`, abi.KindGuard, `"1 of {2}"`, ""},
		{"a check of settings", `{"builtin":"hex.encode"}`, `["a"]`, abi.KindSettings, `"61"`, ""},
		{"the time of the question", `{"builtin":"time.now_ns"}`, `[]`, abi.KindGuard, `7000000000`, ""},
		{"no value", `{"builtin":"hex.decode"}`, `["x"]`, abi.KindGuard, "", ""},
		{"what the host does not have", `{"builtin":"http.send"}`, `[{}]`, abi.KindGuard, "", `rego_builtin: "http.send": not a function that the host has`},
		{"no request", `{}`, `[]`, abi.KindGuard, "", "not a function that the host has"},
		{"more than a request", `{"builtin":"sprintf","x":1}`, `["",[]]`, abi.KindGuard, "", "rego_builtin: "},
		{"a tool", `{"builtin":"hex.encode"}`, `["a"]`, abi.KindTool, "", "rego_builtin: for guards only"},
		{"a hook", `{"builtin":"hex.encode"}`, `["a"]`, abi.KindHook, "", "rego_builtin: for guards only"},
	} {
		m := load(t, asksRego(c.request, c.args))
		reply, err := m.Call(t.Context(), &Call{Kind: c.kind, Export: "call", Now: time.Unix(7, 0), Limits: Limits{Wall: time.Minute}})
		if c.detail != "" {
			if failure, ok := errors.AsType[*GuestError](err); !ok || failure.Code != abi.GuestTrap || !strings.Contains(failure.Detail, c.detail) {
				t.Errorf("%s: %v, %v, want a trap because of %q", c.name, reply, err, c.detail)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		n := binary.LittleEndian.Uint64(reply.Output)
		if got := string(reply.Output[8 : 8+min(n, 256)]); n > 256 || got != c.want || reply.Receipt.HostCalls != 2 || len(reply.Receipt.Denied) > 0 {
			t.Errorf("%s: %q of %d bytes, receipt %+v, want %q", c.name, got, n, reply.Receipt, c.want)
		}
	}
}

// Only a module whose every offer is a guard may import what is for guards.
func TestForGuardsAlone(t *testing.T) {
	guards := []abi.Guard{{Name: "guard", Phases: []abi.Phase{abi.PhaseCall}}}
	for name, c := range map[string]struct {
		manifest abi.Manifest
		refused  bool
	}{
		"guards":           {abi.Manifest{Guards: guards}, false},
		"guards and tools": {abi.Manifest{Guards: guards, Tools: []abi.Tool{{Name: "tool"}}}, true},
		"guards and hooks": {abi.Manifest{Guards: guards, Hooks: []abi.HookPoint{abi.BeforeTool}}, true},
		"tools":            {abi.Manifest{Tools: []abi.Tool{{Name: "tool"}}}, true},
	} {
		c.manifest.ABI, c.manifest.Name, c.manifest.Version = abi.Version, "test", "1"
		section, err := c.manifest.Encode()
		if err != nil {
			t.Fatal(err)
		}
		wasm, err := wasmbin.SetCustom(asksRego(`{}`, `[]`), abi.ManifestSection, section)
		if err != nil {
			t.Fatal(err)
		}
		engine, _ := openEngine(t)
		_, err = engine.Load(t.Context(), wasm)
		refused, ok := errors.AsType[*RejectError](err)
		if ok != c.refused || !ok && err != nil || ok && (refused.Reasons[0].Code != abi.ModuleImportDenied || !strings.Contains(err.Error(), "imports sandboxd:host.rego_builtin: for modules that offer guards alone")) {
			t.Errorf("%s: error %v, refused %t", name, err, c.refused)
		}
	}
}
