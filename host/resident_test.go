package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/jail"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// saying is a module that answers with a number, of code of its own.
func saying(t testing.TB, n int) []byte {
	t.Helper()
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	log := b.use(abi.ImportExtism, "log_info")
	alloc := b.use(abi.ImportExtism, "alloc")
	b.pages(1)
	says := fmt.Sprint(n)
	b.put(0, says)
	b.fn("call", ":", 0, i32(0), i32(int64(len(says))), callFn(set))
	b.fn("logging", ":", 0, i64(4), callFn(alloc), callFn(log), i32(0), i32(int64(len(says))), callFn(set))
	return packed(t, b.bytes())
}

// says calls a module that saying made.
func says(t testing.TB, m *Module, n int) {
	t.Helper()
	reply, err := m.Call(t.Context(), &Call{Export: "call"})
	if err != nil {
		t.Fatal(err.(*GuestError).Detail)
	}
	if string(reply.Output) != fmt.Sprint(n) {
		t.Fatalf("output %q, want %d", reply.Output, n)
	}
}

// held returns how much code an engine has in memory, and checks that its count is right.
func held(t testing.TB, e *Engine) (codes int, bytes int64) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := int64(0)
	for _, c := range e.codes.codes {
		if (c.compiled != nil) != (c.bytes > 0) {
			t.Errorf("code in memory: %v, of %d bytes", c.compiled != nil, c.bytes)
		}
		if c.compiled != nil {
			codes++
		}
		sum += c.bytes
	}
	if sum != e.codes.bytes {
		t.Errorf("%d bytes are counted of %d", e.codes.bytes, sum)
	}
	return codes, sum
}

// TestCodeIsBounded: of many modules, as much code is in memory as may be, with its images; a call of
// one that left it is as any other. Where there is a cache nothing is compiled for that.
func TestCodeIsBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     Config
		compile bool // again
	}{
		{"cache", Config{Cache: t.TempDir()}, false},
		{"no cache", Config{}, true},
		{"in process", Config{InProcess: true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, err := Open(t.Context(), c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			one, err := first.Load(t.Context(), saying(t, 100))
			if err != nil {
				t.Fatal(err)
			}
			_, size := held(t, first)
			runtime.KeepAlive(one)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			c.cfg.CodeBytes = size*3 + size/2
			e, _ := openOn(t, c.cfg)
			run, children := e.compiler.run, 0
			e.compiler.run = func(ctx context.Context, l jail.Limits, dir string, in []byte) (string, error) {
				children++
				return run(ctx, l, dir, in)
			}
			var all []*Module
			for i := range 10 {
				m, err := e.Load(t.Context(), saying(t, 100+i))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
				says(t, m, 100+i)
			}
			compiled := children
			for range 2 {
				for i, m := range all {
					says(t, m, 100+i)
					if n, bytes := held(t, e); n != 3 || bytes > c.cfg.CodeBytes {
						t.Fatalf("%d codes of %d bytes are in memory, want 3 of at most %d", n, bytes, c.cfg.CodeBytes)
					}
				}
			}
			if n := children - compiled; (n > 0) != c.compile {
				t.Errorf("%d modules were compiled again", n)
			}
			// What was called last is there, and the others' images are not.
			if n := len(e.pool.images); n > 3 {
				t.Errorf("%d images, want at most 3", n)
			}
			before := children
			says(t, all[9], 109)
			says(t, all[7], 107)
			says(t, all[8], 108)
			says(t, all[9], 109)
			if children != before {
				t.Error("what was called last was not in memory")
			}
		})
	}
}

// TestCodeOfCallsStays: code that runs is not taken away, however much others need.
func TestCodeOfCallsStays(t *testing.T) {
	e, _ := openOn(t, Config{Cache: t.TempDir(), CodeBytes: 1})
	m, err := e.Load(t.Context(), saying(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	logged := false
	reply, err := m.Call(t.Context(), &Call{Export: "logging", Grants: grants(t, "log"), Access: Access{Log: func(string, string) {
		logged = true
		for i := range 3 {
			other, err := e.Load(t.Context(), saying(t, 10+i))
			if err != nil {
				t.Error(err)
				return
			}
			says(t, other, 10+i)
		}
		if n, _ := held(t, e); n != 2 {
			t.Errorf("%d codes are in memory, want the caller's and the last", n)
		}
	}}})
	if err != nil || string(reply.Output) != "1" || !logged {
		t.Errorf("reply %v, error %v, logged %v", reply, err, logged)
	}
}

// TestCodeMovesBesideCalls: callers of more modules than fit all get their answers.
func TestCodeMovesBesideCalls(t *testing.T) {
	e, _ := openOn(t, Config{Cache: t.TempDir(), CodeBytes: 1})
	var all []*Module
	for i := range 4 {
		m, err := e.Load(t.Context(), saying(t, i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 25 {
				n := (worker + i) % len(all)
				if reply, err := all[n].Call(t.Context(), &Call{Export: "call"}); err != nil || string(reply.Output) != fmt.Sprint(n) {
					t.Errorf("module %d: %v, error %v", n, reply, err)
				}
			}
		})
	}
	wg.Wait()
	held(t, e)
}

// TestForgottenModules: a module that nobody has any more is forgotten, and its code goes when the next
// comes, with all that was kept for it. The same bytes can be loaded again.
func TestForgottenModules(t *testing.T) {
	e, _ := openOn(t, Config{})
	sources := func() int { return len(names(t, e.compiler.work)) }
	before := sources()
	load := func(n int) *Module {
		m, err := e.Load(t.Context(), saying(t, n))
		if err != nil {
			t.Fatal(err)
		}
		says(t, m, n)
		return m
	}
	kept := load(1)
	for i := range 5 {
		load(10 + i)
	}
	until(t, "modules are kept that nobody has", func() bool {
		runtime.GC()
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.modules) == 1
	})
	last := load(20)
	if n, _ := held(t, e); n != 2 || len(e.codes.codes) != 2 || len(e.pool.images) != 2 || sources() != before+2 {
		t.Errorf("%d codes, %d of them in memory, %d images and %d sources, want 2 of each", len(e.codes.codes), n, len(e.pool.images), sources()-before)
	}
	if again := load(1); again != kept {
		t.Error("the same bytes are another module")
	}
	says(t, load(10), 10)
	runtime.KeepAlive(last)
}

// until waits for something that the collector brings about.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestCloseWaitsForCode: an engine that is closed waits for a call that waits for its code.
func TestCloseWaitsForCode(t *testing.T) {
	e, err := Open(t.Context(), Config{CodeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	var all []*Module
	for i := range 2 {
		m, err := e.Load(t.Context(), saying(t, i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if err := e.compile.take(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		until(t, "not as many wait for a turn as should", func() bool {
			e.compile.mu.Lock()
			defer e.compile.mu.Unlock()
			return len(e.compile.waiting[""]) == n
		})
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	waiting(1)
	wg.Go(func() {
		if reply, err := all[0].Call(t.Context(), &Call{Export: "call"}); err != nil || string(reply.Output) != "0" {
			t.Errorf("reply %v, error %v", reply, err)
		}
	})
	waiting(2)
	e.compile.give()
	wg.Wait()
	if _, err := all[1].Call(t.Context(), &Call{Export: "call"}); err == nil {
		t.Error("a closed engine runs calls")
	}
}

// TestSourceTampered: code is brought back from what was written, or not at all.
func TestSourceTampered(t *testing.T) {
	e, _ := openOn(t, Config{CodeBytes: 1})
	m, err := e.Load(t.Context(), saying(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	other, err := e.Load(t.Context(), saying(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(e.compiler.sourceFile(other.code.source))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.compiler.sourceFile(m.code.source), data, 0o600); err != nil {
		t.Fatal(err)
	}
	failure := fails(t, m, &Call{Export: "call"}, abi.GuestTrap)
	if !strings.Contains(failure.Detail, "is not what was written") || strings.Contains(failure.Message, filepath.Base(e.compiler.work)) {
		t.Errorf("detail %q, message %q", failure.Detail, failure.Message)
	}
	says(t, other, 2)
}

// TestDescribeFor: who has a module described waits in the line of its own tenant.
func TestDescribeFor(t *testing.T) {
	e, _ := openOn(t, Config{})
	b := &builder{}
	b.pages(1)
	b.fn("describe", ":", 0)
	wasm := b.bytes()
	if err := e.compile.take(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	describe := func() { wg.Go(func() { e.DescribeFor(ctx, "a", wasm) }) }
	waiting := func(tenant string) int {
		e.compile.mu.Lock()
		defer e.compile.mu.Unlock()
		return len(e.compile.waiting[tenant])
	}
	for range maxWaiting {
		describe()
	}
	until(t, "who asks for a does not wait as a", func() bool { return waiting("a") == maxWaiting })
	if _, err := e.DescribeFor(ctx, "a", wasm); !errors.Is(err, ErrQueueFull) {
		t.Errorf("error %v, want %v", err, ErrQueueFull)
	}
	wg.Go(func() { e.Describe(ctx, wasm) })
	until(t, "who asks for nobody does not wait", func() bool { return waiting("") == 1 })
	cancel()
	wg.Wait()
	e.compile.give()
}

// TestDescribeLeavesNothing: code that was compiled for its description alone is gone after it.
func TestDescribeLeavesNothing(t *testing.T) {
	e, _ := openOn(t, Config{})
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	const manifest = `{"abi":1,"name":"weather","version":"2","tools":[{"name":"today"}]}`
	b.put(0, manifest)
	b.fn("describe", ":", 0, i32(0), i32(int64(len(manifest))), callFn(set))
	b.fn("call", ":", 0)
	for range 2 {
		if _, err := e.Describe(t.Context(), b.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if n, bytes := held(t, e); n != 0 || bytes != 0 || len(e.pool.images) != 0 || e.pool.idle != 0 {
		t.Errorf("%d codes of %d bytes, %d images and %d instances are left", n, bytes, len(e.pool.images), e.pool.idle)
	}
}
