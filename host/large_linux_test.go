package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// largeGuest builds the Go guest with more packages of the standard library linked into it.
func largeGuest(b *testing.B, imports []string, uses string) []byte {
	b.Helper()
	dir := b.TempDir()
	source, err := os.ReadFile("testdata/guest/main.go")
	if err != nil {
		b.Fatal(err)
	}
	more := fmt.Sprintf("package main\n\nimport (\n\"fmt\"\n\"os\"\n\"%s\"\n)\n\nfunc init() {\n\tif len(os.Args) > 1000 { // never\n\t\tfmt.Println(%s)\n\t}\n}\n",
		strings.Join(imports, "\"\n\""), uses)
	for name, text := range map[string]string{"main.go": string(source), "more.go": more, "go.mod": "module large\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -buildid=", "-o", "guest.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	wasm, err := os.ReadFile(filepath.Join(dir, "guest.wasm"))
	if err != nil {
		b.Fatal(err)
	}
	return packedFor(b, wasm, "call")
}

// sorts names n functions that sort, each of a type of its own.
func sorts(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, ", slices.SortFunc[[][%d]uint64]", i+1)
	}
	return out.String()
}

// BenchmarkLargeGuests loads lawful Go guests, up to almost as large as a module may be, with nothing in a
// cache: every one is accepted and compiled within the limits of the jail, every time, and runs.
func BenchmarkLargeGuests(b *testing.B) {
	small, err := goGuest()
	if err != nil {
		b.Fatal(err)
	}
	// Packages that open no files, which guests cannot.
	packages := []string{"encoding/xml", "image/png", "image/jpeg", "image/gif", "encoding/gob", "regexp", "crypto/ed25519", "crypto/ecdsa", "math/big"}
	const uses = "xml.Unmarshal, png.Decode, jpeg.Decode, gif.DecodeAll, gob.NewDecoder, regexp.MustCompile, ed25519.Verify, ecdsa.VerifyASN1, new(big.Float).Sqrt"
	for _, c := range []struct {
		name  string
		wasm  []byte
		least int
	}{
		{"3-MB", packedFor(b, small, "call"), 3_000_000},
		{"6-MB", largeGuest(b, packages, uses), 6_000_000},
		{"8-MB", largeGuest(b, append(packages, "slices"), uses+sorts(70)), 7_400_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			if len(c.wasm) < c.least {
				b.Fatalf("guest of %d bytes, want %d or more", len(c.wasm), c.least)
			}
			var all []time.Duration
			for b.Loop() {
				e, err := Open(b.Context(), Config{})
				if err != nil {
					b.Fatal(err)
				}
				from := time.Now()
				m, err := e.Load(b.Context(), c.wasm)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(from))
				if _, err := m.Call(b.Context(), &Call{Export: "call", Input: []byte(`{"do":"echo"}`)}); err != nil {
					b.Fatal(err.(*GuestError).Detail)
				}
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(c.wasm)), "bytes")
			b.ReportMetric(milliseconds(percentile(all, 100)), "longest-ms")
		})
	}
}
