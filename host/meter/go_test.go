package meter

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// goModule is what the Go compiler makes of a program whose "run" encodes and sorts.
func goModule(t testing.TB) []byte {
	t.Helper()
	return buildGo(t, `package main

import (
	"encoding/json"
	"slices"
)

//go:wasmexport run
func run() uint32 {
	all := map[string][]int{}
	for i := range 300 {
		k := string(rune('a' + i%26))
		all[k] = append(all[k], i*7919%1000)
	}
	for _, v := range all {
		slices.Sort(v)
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	h := uint32(0)
	for _, c := range b {
		h = h*31 + uint32(c)
	}
	return h
}

func main() {}
`)
}

// buildGo builds a guest of the text of a main package.
func buildGo(t testing.TB, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "main.wasm")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, src)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A module of the Go compiler computes the same when it is metered, in the same
// fuel every time, and its ten thousand data segments become few.
func TestGoModule(t *testing.T) {
	x := newMachine(t, wazero.NewRuntimeConfig())
	x.slice = 100_000
	wasm := goModule(t)
	metered := rewritten(t, wasm)
	want, err := x.run(wasm)
	if err != nil || want.trap != "" {
		t.Fatal(want, err)
	}
	first, err := x.run(metered)
	if err != nil || first.trap != "" {
		t.Fatal(first, err)
	}
	if !slices.Equal(first.result, want.result) {
		t.Errorf("metered: %d, want %d", first.result, want.result)
	}
	again, err := x.run(metered)
	if err != nil || again.fuel != first.fuel || first.fuel < 1_000_000 {
		t.Errorf("fuel %d, then %d, error %v", first.fuel, again.fuel, err)
	}
	before, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	after, err := wasmbin.Decode(metered)
	if err != nil {
		t.Fatal(err)
	}
	if before.Data < 5000 || after.Data > before.Data/10 {
		t.Errorf("%d data segments became %d", before.Data, after.Data)
	}
}

// BenchmarkRewrite times the rewriting of a Go module.
func BenchmarkRewrite(b *testing.B) {
	m, err := wasmbin.Decode(goModule(b))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(m.Bytes())))
	for b.Loop() {
		if _, err := Rewrite(m); err != nil {
			b.Fatal(err)
		}
	}
}
