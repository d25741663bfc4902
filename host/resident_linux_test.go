package host

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// executable returns the bytes of native code that this process has made itself.
func executable(t testing.TB) (n uint64) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) != 5 || !strings.Contains(fields[1], "x") { // a sixth is the file's name
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		a, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		b, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += b - a
	}
	return n
}

// TestCodeIsFreed: code that leaves memory is given back to the system.
func TestCodeIsFreed(t *testing.T) {
	e, _ := openOn(t, Config{Cache: t.TempDir(), CodeBytes: 1})
	wasm := goWasm(t)
	m, err := e.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Call(t.Context(), &Call{Export: "call", Input: []byte(`{"do":"echo"}`)}); err != nil {
		t.Fatal(err.(*GuestError).Detail)
	}
	size := uint64(m.code.bytes) / 2
	with := executable(t)
	small, err := e.Load(t.Context(), saying(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "native code is still there", func() bool {
		runtime.GC()
		return executable(t)+size < with
	})
	says(t, small, 1)
	if _, err := m.Call(t.Context(), &Call{Export: "call", Input: []byte(`{"do":"echo"}`)}); err != nil {
		t.Fatal(err.(*GuestError).Detail)
	}
}
