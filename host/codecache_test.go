package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/cpu"
)

// A tamperedLog keeps what a cache reports.
type tamperedLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *tamperedLog) report(_ context.Context, entry, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, entry+" "+why)
	return nil
}

func openTestCache(t *testing.T, dir, engine string) (*codeCache, *tamperedLog) {
	t.Helper()
	return openCacheOf(t, dir, contextHere(engine))
}

func openCacheOf(t *testing.T, dir string, of codeContext) (*codeCache, *tamperedLog) {
	t.Helper()
	log := &tamperedLog{}
	c, err := openCodeCache(dir, of, log.report)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c, log
}

func testNative(b byte) native {
	return native{fmt.Sprintf("%064x", b), bytes.Repeat([]byte{b}, 1000)}
}

func mustPut(t *testing.T, c *codeCache, d Digest, n native) (file string) {
	t.Helper()
	if err := c.put(d, n); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(c.root.Name(), c.entry(d))
}

func TestCodeCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	c, log := openTestCache(t, dir, "engine 1")
	one, two := Digest{1}, Digest{2}
	if _, ok, err := c.get(t.Context(), one); ok || err != nil {
		t.Errorf("empty: %v, error %v", ok, err)
	}
	file := mustPut(t, c, one, testNative(1))
	mustPut(t, c, two, testNative(2))
	mustPut(t, c, one, testNative(3)) // replaces the first
	again, more := openTestCache(t, dir, "engine 1")
	for d, want := range map[Digest]native{one: testNative(3), two: testNative(2)} {
		if n, ok, err := again.get(t.Context(), d); !ok || err != nil || n.name != want.name || !bytes.Equal(n.code, want.code) {
			t.Errorf("%s: %q %v, error %v", d.Short(), n.name, ok, err)
		}
	}
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(file): 0o700, file: 0o600, filepath.Join(dir, "key"): 0o600} {
		if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v; error %v", name, info.Mode(), want, err)
		}
	}
	if all := append(log.lines, more.lines...); len(all) != 0 {
		t.Errorf("reports %q", all)
	}
}

// Code is found by all that it depends on: where one of these is another there is none, the entry stays for whom it was made for,
// and in the other's place it is discarded.
func TestCodeCacheKey(t *testing.T) {
	here := contextHere("engine 1")
	one, two := Digest{1}, Digest{2}
	for _, test := range []struct {
		name   string
		digest Digest
		of     codeContext
	}{
		{"another module", two, here},
		{"another engine", one, contextHere("engine 2")},
		{"another rewriter", one, codeContext{here.engine, "meter 0", here.system, here.features}},
		{"another system", one, codeContext{here.engine, here.rewriter, "plan9/mips", here.features}},
		{"another processor", one, codeContext{here.engine, here.rewriter, here.system, "{HasSSE41:false}"}},
		{"the same text in other places", one, codeContext{here.rewriter, here.engine, here.system, here.features}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			c, log := openCacheOf(t, dir, here)
			file := mustPut(t, c, one, testNative(1))
			other, more := openCacheOf(t, dir, test.of)
			if n, ok, err := other.get(t.Context(), test.digest); ok || err != nil || n.code != nil {
				t.Errorf("%d bytes of code, %v, error %v", len(n.code), ok, err)
			}
			if n, ok, err := c.get(t.Context(), one); !ok || err != nil || len(n.code) != 1000 {
				t.Errorf("where it was made: %d bytes of code, %v, error %v", len(n.code), ok, err)
			}
			if all := append(log.lines, more.lines...); len(all) != 0 {
				t.Errorf("reports %q", all)
			}
			moved := filepath.Join(other.root.Name(), other.entry(test.digest))
			if err := os.Rename(file, moved); err != nil {
				t.Fatal(err)
			}
			if n, ok, err := other.get(t.Context(), test.digest); ok || err != nil || n.code != nil {
				t.Errorf("moved: %d bytes of code, %v, error %v", len(n.code), ok, err)
			}
			if want := []string{other.entry(test.digest) + " was not written with this key for this module"}; !slices.Equal(more.lines, want) {
				t.Errorf("reports %q, want %q", more.lines, want)
			}
			if _, err := os.Lstat(moved); !os.IsNotExist(err) {
				t.Errorf("the entry is still there: %v", err)
			}
		})
	}
}

// The context of code is that of this process: its engine, the rewriter and every feature of the processor.
func TestCodeContext(t *testing.T) {
	here := contextHere("engine 1")
	if here.engine != "engine 1" || here.rewriter != rewriterVersion || here.system != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("context %+v", here)
	}
	for name, has := range map[string]*bool{"SSE4.1": &cpu.X86.HasSSE41, "BMI1": &cpu.X86.HasBMI1, "POPCNT": &cpu.X86.HasPOPCNT, "atomics": &cpu.ARM64.HasATOMICS} {
		*has = !*has
		other := contextHere("engine 1")
		*has = !*has
		if other.text() == here.text() {
			t.Errorf("a processor that differs in %s has the same context", name)
		}
	}
}

// Whoever can change, move or exchange entries gets them discarded, and what is not
// an entry with them.
func TestCodeCacheTampered(t *testing.T) {
	const wrong = "was not written with this key for this module"
	one, two := Digest{1}, Digest{2}
	flip := func(at int) func(t *testing.T, c *codeCache, file string) {
		return func(t *testing.T, _ *codeCache, file string) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			data[at] ^= 1
			overwrite(t, file, data)
		}
	}
	for _, test := range []struct {
		name string
		do   func(t *testing.T, c *codeCache, file string)
		why  string
	}{
		{"mac", flip(0), wrong},
		{"name", flip(sha256.Size), wrong},
		{"first byte of code", flip(header), wrong},
		{"last byte of code", flip(header + 999), wrong},
		{"cut code", func(t *testing.T, _ *codeCache, file string) { truncate(t, file, 500) }, wrong},
		{"cut header", func(t *testing.T, _ *codeCache, file string) { truncate(t, file, 50) }, "is cut off"},
		{"empty", func(t *testing.T, _ *codeCache, file string) { truncate(t, file, 0) }, "is cut off"},
		{"huge", func(t *testing.T, _ *codeCache, file string) { truncate(t, file, header+maxNativeBytes+1) }, "is not a file of an entry's size"},
		{"appended", func(t *testing.T, _ *codeCache, file string) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, file, append(data, 0))
		}, wrong},
		{"exchanged", func(t *testing.T, c *codeCache, file string) {
			if err := os.Rename(mustPut(t, c, two, testNative(2)), file); err != nil {
				t.Fatal(err)
			}
		}, wrong},
		{"code of another engine", func(t *testing.T, c *codeCache, file string) {
			other, _ := openTestCache(t, filepath.Dir(c.root.Name()), "engine 2")
			if err := os.Rename(mustPut(t, other, one, testNative(1)), file); err != nil {
				t.Fatal(err)
			}
		}, wrong},
		{"another key", func(t *testing.T, c *codeCache, _ string) { c.key = make([]byte, keyBytes) }, wrong},
		{"a directory", func(t *testing.T, _ *codeCache, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(file, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is not a file of an entry's size"},
		{"a link", func(t *testing.T, _ *codeCache, file string) {
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := os.Rename(file, elsewhere); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, file); err != nil {
				t.Fatal(err)
			}
		}, "is not a file of an entry's size"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, log := openTestCache(t, t.TempDir(), "engine 1")
			file := mustPut(t, c, one, testNative(1))
			test.do(t, c, file)
			if n, ok, err := c.get(t.Context(), one); ok || err != nil || n.code != nil {
				t.Errorf("%d bytes of code, %v, error %v", len(n.code), ok, err)
			}
			if want := []string{c.entry(one) + " " + test.why}; !slices.Equal(log.lines, want) {
				t.Errorf("reports %q, want %q", log.lines, want)
			}
			if _, err := os.Lstat(file); !os.IsNotExist(err) {
				t.Errorf("the entry is still there: %v", err)
			}
			if _, ok, err := c.get(t.Context(), one); ok || err != nil || len(log.lines) != 1 {
				t.Errorf("again: %v, error %v, %d reports", ok, err, len(log.lines))
			}
		})
	}
}

func overwrite(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, file string, size int64) {
	t.Helper()
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
}

// Opening discards what no cache writes, and what a writer left that is gone.
func TestCodeCacheSweep(t *testing.T) {
	dir := t.TempDir()
	c, _ := openTestCache(t, dir, "engine 1")
	entry := filepath.Base(mustPut(t, c, Digest{1}, testNative(1)))
	at := func(name string) string { return filepath.Join(dir, "native", name) }
	overwrite(t, at("wazero-v0"), nil)
	overwrite(t, at(strings.ToUpper(entry)), nil)
	overwrite(t, at("tmp-young"), nil)
	overwrite(t, at("tmp-old"), nil)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(at("tmp-old"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at(strings.Repeat("0", nameDigits)), 0o700); err != nil {
		t.Fatal(err)
	}
	_, log := openTestCache(t, dir, "engine 1")
	want := []string{strings.ToUpper(entry) + " is not an entry", strings.Repeat("0", nameDigits) + " is not an entry", "wazero-v0 is not an entry"}
	slices.Sort(log.lines)
	slices.Sort(want)
	if !slices.Equal(log.lines, want) {
		t.Errorf("reports %q, want %q", log.lines, want)
	}
	if left := names(t, at(".")); !slices.Equal(left, []string{entry, "tmp-young"}) {
		t.Errorf("left %q", left)
	}
}

// Caches on one directory, opened at the same time, have one key and each other's
// entries.
func TestCodeCacheShared(t *testing.T) {
	dir := t.TempDir()
	caches := make([]*codeCache, 8)
	log := &tamperedLog{}
	var wg sync.WaitGroup
	for i := range caches {
		wg.Go(func() {
			c, err := openCodeCache(dir, contextHere("engine 1"), log.report)
			if err != nil {
				t.Error(err)
				return
			}
			caches[i] = c
			for range 20 {
				if err := c.put(Digest{1}, testNative(byte(i))); err != nil {
					t.Error(err)
				}
				if n, ok, err := c.get(t.Context(), Digest{1}); !ok || err != nil || len(n.code) != 1000 {
					t.Errorf("%d bytes, %v, error %v", len(n.code), ok, err)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range caches {
		if c == nil || !bytes.Equal(c.key, caches[0].key) {
			t.Fatal("the keys differ")
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
	if len(log.lines) != 0 {
		t.Errorf("reports %q", log.lines)
	}
	if left := names(t, filepath.Join(dir, "native")); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}
