package regobuild

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// update has OPA build the fixtures and say what it thinks of every question.
var update = flag.Bool("update", false, "rewrite testdata and the example's module with OPA")

func TestMain(m *testing.M) {
	host.Main()
	os.Exit(m.Run())
}

// load loads a linked guest under a manifest of one guard.
func load(t testing.TB, wasm []byte) *host.Module {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	manifest := &abi.Manifest{ABI: abi.Version, Name: "probe", Version: "1", Guards: []abi.Guard{{Name: "probe", Phases: []abi.Phase{abi.PhaseCall}}}}
	section, err := manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := wasmbin.SetCustom(wasm, abi.ManifestSection, section)
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), packed)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// ask calls a guest as a guard, at 1 s and 2 ns.
func ask(t testing.TB, m *host.Module, input string, limits host.Limits) (*host.Reply, error) {
	return m.Call(t.Context(), &host.Call{Kind: abi.KindGuard, Export: abi.ExportCall, Input: []byte(input), Limits: limits, Now: time.Unix(1, 2)})
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// probe is the guest that the tests ask to compute things.
func probe(t testing.TB) *host.Module {
	t.Helper()
	wasm, err := LinkBundle(read(t, "testdata/probe.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return load(t, wasm)
}
