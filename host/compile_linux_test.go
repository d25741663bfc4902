package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/host/jail"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// open opens an engine of the test's own on a cache.
func openOn(t *testing.T, cfg Config) (*Engine, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, &log
}

// noTime lets no child live.
var noTime = jail.Limits{Wall: 1}

func goWasm(t *testing.T) []byte {
	t.Helper()
	wasm, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	return packed(t, wasm)
}

// rejected returns the one reason that a module was refused for.
func rejected(t *testing.T, err error) Reason {
	t.Helper()
	reject, ok := errors.AsType[*RejectError](err)
	if !ok || len(reject.Reasons) != 1 {
		t.Fatalf("error %v, want one reason", err)
	}
	return reject.Reasons[0]
}

// A Go guest is compiled in the child and nowhere else, and then read from the
// cache by another engine.
func TestCompileInChild(t *testing.T) {
	dir, wasm := t.TempDir(), goWasm(t)
	first, _ := openOn(t, Config{Cache: dir})
	first.compiler.limits = noTime
	_, err := first.Load(t.Context(), wasm)
	if why := rejected(t, err); why.Code != abi.ModuleCompileTimeout || why.Text != "compiling: time reached the limit of 1ns" {
		t.Errorf("without a child: %+v", why)
	}
	first.compiler.limits = compileLimits
	clear(first.compiler.denied.seen)
	if _, err := first.Load(t.Context(), wasm); err != nil {
		t.Fatal(err)
	}
	if n := len(names(t, filepath.Join(dir, "native"))); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
	second, log := openOn(t, Config{Cache: dir})
	second.compiler.limits = noTime
	m, err := second.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	var sum int
	if succeeds(t, m, &Call{Export: "call", Input: []byte(`{"do":"goroutines","n":20}`)}, &sum); sum != 190 {
		t.Errorf("sum %d, want 190", sum)
	}
	for _, e := range []*Engine{first, second} {
		if files := names(t, e.compiler.handover.dir); len(files) != 0 {
			t.Errorf("files %q are left", files)
		}
		if files := names(t, e.compiler.work); !slices.Equal(files, []string{"code", filepath.Base(e.compiler.sourceFile(m.code))}) {
			t.Errorf("private directory holds %q", files)
		}
	}
	if log.Len() > 0 {
		t.Errorf("log %s", log)
	}
}

// An ordinary Go guest is within the limits every time.
func TestCompileRepeats(t *testing.T) {
	wasm := goWasm(t)
	for i := range 5 {
		dir := t.TempDir()
		refusal, err := jail.Run(t.Context(), compileLimits, dir, wasm)
		if refusal != "" || err != nil {
			t.Fatalf("time %d of 5: refusal %q, error %v", i+1, refusal, err)
		}
		made, err := only(dir)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := readNative(made); err != nil || len(n.code) < len(wasm)/2 {
			t.Errorf("%d bytes of code, error %v", len(n.code), err)
		}
	}
}

// A module without functions has native code too: none.
func TestCompileNothing(t *testing.T) {
	e, _ := openOn(t, Config{Cache: t.TempDir()})
	for range 2 {
		compiled, err := e.compiler.compile(t.Context(), Digest{}, []byte("\x00asm\x01\x00\x00\x00"))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.compiled.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// ifs is a module whose one function is a long row of conditionals with many
// locals, which takes the register allocator minutes.
func ifs(n int) []byte {
	b := &builder{}
	one := slices.Concat(get(0), []byte{0xa7, 0x04, 0x40}, get(1), setLocal(2), []byte{0x0b})
	b.fn("call", ":", 64, bytes.Repeat(one, n))
	return b.bytes()
}

// locals is a module of many functions with many locals, which takes memory.
func locals(functions, each int) []byte {
	b := &builder{}
	for range functions {
		b.fn("", ":", each)
	}
	return b.bytes()
}

func residentBytes(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// What the check before the compiler would let through ends in the child.
func TestCompileBomb(t *testing.T) {
	e, log := openOn(t, Config{})
	c := e.compiler
	now := time.Unix(0, 0)
	c.denied.now = func() time.Time { return now }
	before := residentBytes(t)
	for _, bomb := range []struct {
		name   string
		wasm   []byte
		limits jail.Limits
		text   string
	}{
		{"time", ifs(20_000), jail.Limits{CPU: time.Second}, "compiling: processor time reached the limit of 1s"},
		{"memory", locals(2000, 50_000), jail.Limits{Resident: 200 << 20}, "compiling: resident memory of "},
	} {
		c.limits = bomb.limits
		from := Digest(sha256.Sum256(bomb.wasm))
		_, err := c.compile(t.Context(), Digest{1}, bomb.wasm)
		if why := rejected(t, err); why.Code != abi.ModuleCompileTimeout || !strings.HasPrefix(why.Text, bomb.text) {
			t.Errorf("%s: %+v, want %q", bomb.name, why, bomb.text)
		}
		if c.denied.seen[from].times != 1 {
			t.Errorf("%s: not remembered", bomb.name)
		}
		// Asking again starts no child.
		c.limits = noTime
		_, err = c.compile(t.Context(), Digest{1}, bomb.wasm)
		if why := rejected(t, err); !strings.Contains(why.Text, "failed 1 times, not tried again for 1m0s") {
			t.Errorf("%s again: %+v", bomb.name, why)
		}
		now = now.Add(time.Minute)
		_, err = c.compile(t.Context(), Digest{1}, bomb.wasm)
		if why := rejected(t, err); why.Text != "compiling: time reached the limit of 1ns" {
			t.Errorf("%s after a minute: %+v", bomb.name, why)
		}
		_, err = c.compile(t.Context(), Digest{1}, bomb.wasm)
		if why := rejected(t, err); !strings.Contains(why.Text, "failed 2 times, not tried again for 2m0s") {
			t.Errorf("%s after another: %+v", bomb.name, why)
		}
	}
	if grown := residentBytes(t) - before; grown > 64<<20 {
		t.Errorf("this process grew by %d bytes", grown)
	}
	if n := strings.Count(log.String(), "compiling was stopped"); n != 4 {
		t.Errorf("%d lines in the log, want 4: %s", n, log)
	}
	c.limits = compileLimits
	if _, err := e.Load(t.Context(), packed(t, plain().bytes())); err != nil {
		t.Errorf("another module: %v", err)
	}
}

// A module that ends a process that compiles it ends the child: here a function
// body that declares all locals there can be.
func TestCompilerCrash(t *testing.T) {
	e, log := openOn(t, Config{})
	body := []byte{0x01, 0xff, 0xff, 0xff, 0xff, 0x0f, byte(wasmbin.I64), 0x0b}
	wasm := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, vec([]byte{0x60, 0, 0})), section(3, vec([]byte{0})),
		section(10, vec(append(leb(len(body)), body...))))
	_, err := e.compiler.compile(t.Context(), Digest{1}, wasm)
	if why := rejected(t, err); why != (Reason{abi.ModuleMalformed, "the compiler failed"}) {
		t.Errorf("%+v", why)
	}
	if !strings.Contains(log.String(), "fatal error") {
		t.Errorf("the log does not say why: %s", log)
	}
}

// Whatever a child does, compile says what it means.
func TestCompileOutcomes(t *testing.T) {
	wasm := plain().bytes()
	files := func(names ...string) func(string) {
		return func(dir string) {
			made := filepath.Join(dir, "wazero")
			if err := os.Mkdir(made, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(made, name), []byte("code"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	name := strings.Repeat("0a", sha256.Size)
	for _, c := range []struct {
		name    string
		refusal string
		err     error
		write   func(dir string)
		code    abi.Code // of the one reason; empty for an error of ours
		text    string
		denied  bool
	}{
		{"limit", "", &jail.LimitError{What: "time", Text: "time is up"}, nil, abi.ModuleCompileTimeout, "compiling: time is up", true},
		{"killed", "", &jail.CrashError{State: "signal: killed"}, nil, abi.ModuleCompileTimeout, "the compiler was killed", true},
		{"crash", "", &jail.CrashError{State: "exit status 2", Stderr: "goroutine 1"}, nil, abi.ModuleMalformed, "the compiler failed", true},
		{"nonsense", "", &jail.CrashError{State: "its answer is none"}, nil, abi.ModuleMalformed, "the compiler failed", true},
		{"refusal", "type mismatch\x00", nil, nil, abi.ModuleMalformed, "type mismatch", false},
		{"no child", "", jail.ErrNoAnswer, nil, "", "Main must be the first", false},
		{"no directory", "", nil, func(string) {}, "", "want one directory", false},
		{"no file", "", nil, files(), "", "the compiler wrote nothing", false},
		{"two files", "", nil, files(name, strings.Repeat("0b", sha256.Size)), "", "wrote 2 files", false},
		{"a file of another name", "", nil, files("../code"[3:]), "", `the first "code"`, false},
		{"code of another module", "", nil, files(name), "", "does not know the code by its name", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := openOn(t, Config{})
			e.compiler.run = func(_ context.Context, _ jail.Limits, dir string, _ []byte) (string, error) {
				if c.write != nil {
					c.write(dir)
				}
				return c.refusal, c.err
			}
			_, err := e.compiler.compile(t.Context(), Digest{1}, wasm)
			if c.code == "" {
				if reject, ok := errors.AsType[*RejectError](err); ok || err == nil || !strings.Contains(err.Error(), c.text) {
					t.Errorf("error %v (%v), want %q", err, reject, c.text)
				}
			} else if why := rejected(t, err); why.Code != c.code || !strings.Contains(why.Text, c.text) {
				t.Errorf("%+v, want %s: %s", why, c.code, c.text)
			}
			if got := len(e.compiler.denied.seen) > 0; got != c.denied {
				t.Errorf("remembered: %v, want %v", got, c.denied)
			}
			if files := names(t, e.compiler.work); !slices.Equal(files, []string{"code"}) {
				t.Errorf("private directory holds %q", files)
			}
		})
	}
}

func TestCompileCancelled(t *testing.T) {
	e, _ := openOn(t, Config{})
	enough := errors.New("enough")
	e.compiler.run = func(ctx context.Context, limits jail.Limits, dir string, input []byte) (string, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(enough)
		return jail.Run(ctx, limits, dir, input)
	}
	if _, err := e.Load(t.Context(), packed(t, plain().bytes())); !errors.Is(err, enough) {
		t.Errorf("error %v, want %v", err, enough)
	}
	if len(e.compiler.denied.seen) != 0 {
		t.Error("a module is remembered for its caller's impatience")
	}
}

// A changed entry is discarded, reported and made anew; the code in it never runs.
func TestTamperedCode(t *testing.T) {
	dir, wasm := t.TempDir(), packed(t, plain().bytes())
	e, _ := openOn(t, Config{Cache: dir})
	if _, err := e.Load(t.Context(), wasm); err != nil {
		t.Fatal(err)
	}
	entry := names(t, filepath.Join(dir, "native"))[0]
	file := filepath.Join(dir, "native", entry)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	change := func() {
		if err := os.WriteFile(file, append(slices.Clone(good[:len(good)-1]), good[len(good)-1]^1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change()
	records := audit.NewMemory()
	second, log := openOn(t, Config{Cache: dir, Audit: records})
	m, err := second.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{}
	succeeds(t, m, &Call{Export: "call"}, &out)
	r := records.Records()
	if len(r) != 1 || r[0].Action != "cache.tamper" || r[0].Target != entry || r[0].Decision != "discarded" ||
		r[0].Why != "was not written with this key for this module" || !strings.Contains(log.String(), entry) {
		t.Errorf("records %+v, log %s", r, log)
	}
	if now, err := os.ReadFile(file); err != nil || len(now) != len(good) {
		t.Errorf("the entry was not made anew: %d bytes, error %v", len(now), err)
	}

	change()
	third, _ := openOn(t, Config{Cache: dir, Audit: fullSink{}})
	if _, err := third.Load(t.Context(), wasm); !errors.Is(err, errFull) {
		t.Errorf("without a record: error %v, want %v", err, errFull)
	}
}

var errFull = errors.New("no space")

// fullSink keeps nothing.
type fullSink struct{}

func (fullSink) Append(context.Context, audit.Record) error { return errFull }

// An entry of the right key under a name that this engine would not choose is
// written anew, without a report.
func TestCodeOfAnotherEngine(t *testing.T) {
	e, log := openOn(t, Config{Cache: t.TempDir()})
	wasm := plain().bytes()
	from := Digest(sha256.Sum256(wasm))
	other := native{strings.Repeat("0a", sha256.Size), []byte("code")}
	if err := e.compiler.cache.put(from, other); err != nil {
		t.Fatal(err)
	}
	if _, err := e.compiler.compile(t.Context(), from, wasm); err != nil {
		t.Fatal(err)
	}
	if n, ok, err := e.compiler.cache.get(t.Context(), from); !ok || err != nil || n.name == other.name {
		t.Errorf("entry %q, %v, error %v", n.name, ok, err)
	}
	if log.Len() > 0 {
		t.Errorf("log %s", log)
	}
}
