package regobuild

import (
	"os"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/guestcode"
)

// The names that tests of a policy use are those of its rules, and each is of the code that
// OPA gave it to.
func TestNames(t *testing.T) {
	bundle, err := os.ReadFile("testdata/probe.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	policy, data, err := unpack(bundle)
	if err != nil {
		t.Fatal(err)
	}
	wasm, names, err := link(policy, data)
	if err != nil {
		t.Fatal(err)
	}
	named, err := wasmbin.SetCustom(wasm, "name", names)
	if err != nil {
		t.Fatal(err)
	}
	code, err := guestcode.Read(wasm, &guestbuild.Listing{Wasm: named})
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, f := range code.Functions {
		rules = append(rules, f.Name)
	}
	if want := []string{"undefined_when_it_fails", "nested", "value"}; !slices.Equal(rules, want) {
		t.Errorf("rules %q, want %q", rules, want)
	}
	before, err := wasmbin.Decode(policy)
	if err != nil {
		t.Fatal(err)
	}
	original, err := guestcode.Read(policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	ops := func(wasm []byte, function int) (all []wasmbin.Op) {
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range m.Bodies() {
			for s := b.Instructions(); i == function && s.Next(); {
				all = append(all, s.Instruction().Op)
			}
		}
		return all
	}
	for i, f := range original.Functions {
		if got, want := ops(wasm, code.Functions[i].Index), ops(before.Bytes(), f.Index); !slices.Equal(got, want) || f.Name != code.Functions[i].Name {
			t.Errorf("rule %s has another's code", f.Name)
		}
	}
}
