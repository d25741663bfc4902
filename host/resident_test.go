package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/host/jail"
	"github.com/sandboxd/sandboxd/host/wasmbin"
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

// loadAway returns two modules of one engine, of which the first is the one whose code is not in memory.
func loadAway(t *testing.T, e *Engine) (away, other *Module) {
	t.Helper()
	var all [2]*Module
	for i := range all {
		m, err := e.Load(t.Context(), saying(t, i))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = m
	}
	if e.isResident(all[0].code) {
		t.Fatal("the code of both is in memory")
	}
	return all[0], all[1]
}

// spoil changes the entry that the cache has of a module.
func spoil(t *testing.T, e *Engine, m *Module) (entry string) {
	t.Helper()
	entry = e.compiler.cache.entry(m.code.source)
	truncate(t, filepath.Join(e.compiler.cache.root.Name(), entry), header)
	return entry
}

// TestCodeIsNotBroughtBack: that the host cannot get code back that it had is no failure of the guest's,
// and the operator reads what it was.
func TestCodeIsNotBroughtBack(t *testing.T) {
	remove := func(t *testing.T, file string) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	child := func(e *Engine, err error) {
		e.compiler.run = func(context.Context, jail.Limits, string, []byte) (string, error) { return "", err }
	}
	for _, c := range []struct {
		name  string
		cache bool
		sink  audit.Sink
		spoil func(t *testing.T, e *Engine, away, other *Module)
		why   string
	}{
		{name: "source is gone", spoil: func(t *testing.T, e *Engine, away, _ *Module) { remove(t, e.compiler.sourceFile(away.code)) },
			why: "no such file"},
		{name: "source is another's", spoil: func(t *testing.T, e *Engine, away, other *Module) {
			data, err := os.ReadFile(e.compiler.sourceFile(other.code))
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, e.compiler.sourceFile(away.code), data)
		}, why: "is not what was written"},
		{name: "cache cannot be read", cache: true, spoil: func(t *testing.T, e *Engine, _, _ *Module) {
			if err := e.compiler.cache.close(); err != nil {
				t.Fatal(err)
			}
		}, why: "compilation cache: "},
		{name: "cache cannot be written", cache: true, spoil: func(t *testing.T, e *Engine, away, _ *Module) {
			spoil(t, e, away)
			run := e.compiler.run
			e.compiler.run = func(ctx context.Context, l jail.Limits, dir string, in []byte) (string, error) {
				defer e.compiler.cache.close()
				return run(ctx, l, dir, in)
			}
		}, why: "compilation cache: "},
		{name: "discarded and not audited", cache: true, sink: sinkFunc(func(context.Context, audit.Record) error { return errors.New("disk full") }),
			spoil: func(t *testing.T, e *Engine, away, _ *Module) { spoil(t, e, away) }, why: "disk full"},
		{name: "handover is gone", cache: true, spoil: func(t *testing.T, e *Engine, _, _ *Module) { remove(t, e.compiler.handover.dir) },
			why: "no such file"},
		{name: "no child", spoil: func(_ *testing.T, e *Engine, _, _ *Module) { child(e, errors.New("fork: no processes")) }, why: "fork: no processes"},
		{name: "child is stopped", spoil: func(_ *testing.T, e *Engine, _, _ *Module) { e.compiler.limits = noTime }, why: "time reached the limit"},
		{name: "child crashes", spoil: func(_ *testing.T, e *Engine, _, _ *Module) { child(e, &jail.CrashError{State: "exit status 2"}) },
			why: "the compiler failed"},
	} {
		for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
			t.Run(c.name+" for a "+string(kind), func(t *testing.T) {
				cfg := Config{CodeBytes: 1, Audit: c.sink}
				if c.cache {
					cfg.Cache = t.TempDir()
				}
				e, log := openOn(t, cfg)
				away, other := loadAway(t, e)
				c.spoil(t, e, away, other)
				failure := fails(t, away, &Call{Kind: kind, Export: "call"}, abi.StorageUnavailable)
				if !strings.HasPrefix(failure.Detail, "module "+away.digest.Short()+": bringing code back: ") || !strings.Contains(failure.Detail, c.why) {
					t.Errorf("detail %q, want %q in it", failure.Detail, c.why)
				}
				if failure.Message != abi.StorageUnavailable.Sentence() {
					t.Errorf("message %q", failure.Message)
				}
				if text := log.String(); !strings.Contains(text, "was not brought back") || !strings.Contains(text, away.digest.Short()) || !strings.Contains(text, c.why) {
					t.Errorf("log %s", text)
				}
				if away.code.calls != 0 {
					t.Errorf("%d calls are left", away.code.calls)
				}
				says(t, other, 1)
			})
		}
	}
}

type sinkFunc func(context.Context, audit.Record) error

func (f sinkFunc) Append(ctx context.Context, r audit.Record) error { return f(ctx, r) }

// TestBringingBackIsWaitedFor: while the code of one module is on its way, calls of others have theirs, and who waits for it
// may give up.
func TestBringingBackIsWaitedFor(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	e, _ := openOn(t, Config{Cache: t.TempDir(), CodeBytes: 1, Audit: sinkFunc(func(context.Context, audit.Record) error {
		close(began)
		<-release
		return nil
	})})
	away, other := loadAway(t, e)
	third, err := e.Load(t.Context(), saying(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, e, away)
	call := func(ctx context.Context, end chan<- error) {
		_, err := away.Call(ctx, &Call{Export: "call"})
		end <- err
	}
	cancelled := func(err error) {
		t.Helper()
		if failure, ok := errors.AsType[*GuestError](err); !ok || failure.Code != abi.Cancelled {
			t.Errorf("error %v, want %s", err, abi.Cancelled)
		}
	}
	first := make(chan error, 1)
	go call(t.Context(), first)
	<-began

	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go call(ctx, second)
	until(t, "the second call does not begin", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return away.code.calls == 2
	})
	says(t, other, 1) // which is not in memory either
	says(t, third, 2)
	says(t, other, 1)
	cancel()
	cancelled(<-second)
	late, end := context.WithDeadline(t.Context(), time.Now())
	defer end()
	_, err = away.Call(late, &Call{Export: "call"})
	cancelled(err)
	select {
	case err := <-first:
		t.Errorf("the first call ended: %v", err)
	default:
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	says(t, away, 0)
}

// TestBringingBackTogether: the code of two modules is brought back at the same time.
func TestBringingBackTogether(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	e, _ := openOn(t, Config{Cache: t.TempDir(), CodeBytes: 1, Audit: sinkFunc(func(context.Context, audit.Record) error {
		both.Done()
		met := make(chan struct{})
		go func() {
			both.Wait()
			close(met)
		}()
		select {
		case <-met:
			return nil
		case <-time.After(10 * time.Second):
			return errors.New("the other does not come")
		}
	})})
	var all []*Module
	for i := range 3 {
		m, err := e.Load(t.Context(), saying(t, i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	var wg sync.WaitGroup
	for i, m := range all[:2] {
		spoil(t, e, m)
		wg.Go(func() {
			if reply, err := m.Call(t.Context(), &Call{Export: "call"}); err != nil || string(reply.Output) != fmt.Sprint(i) {
				t.Errorf("module %d: reply %v, error %v", i, reply, err)
			}
		})
	}
	wg.Wait()
	held(t, e)
}

// TestMovingIsWaitedFor: who may not put code into memory yet may give up, and leaves nothing behind.
func TestMovingIsWaitedFor(t *testing.T) {
	e, _ := openOn(t, Config{Cache: t.TempDir(), CodeBytes: 1})
	away, _ := loadAway(t, e)
	if err := e.move(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := away.Call(ctx, &Call{Export: "call"})
		ended <- err
	}()
	until(t, "the call does not begin", func() bool { return len(away.code.bringing) == 1 })
	cancel()
	if failure, ok := errors.AsType[*GuestError](<-ended); !ok || failure.Code != abi.Cancelled {
		t.Errorf("error %v, want %s", failure, abi.Cancelled)
	}
	_, err := e.Load(ctx, saying(t, 2))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("load: error %v, want %v", err, context.Canceled)
	}
	e.moved()
	if n, _ := held(t, e); n != 1 || len(e.codes.codes) != 2 {
		t.Errorf("%d codes, %d of them in memory; want 2 and 1", len(e.codes.codes), n)
	}
	says(t, away, 0)
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

// Modules that differ only in what the meter leaves out are the same when rewritten; when one is forgotten the
// other's code can be brought back all the same.
func TestForgottenTwin(t *testing.T) {
	e, _ := openOn(t, Config{CodeBytes: 1})
	twin := func(local string) []byte {
		out, err := wasmbin.SetCustom(saying(t, 1), "name", slices.Concat([]byte{0}, leb(len(local)+1), str(local)))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	load := func(wasm []byte, n int) *Module {
		m, err := e.Load(t.Context(), wasm)
		if err != nil {
			t.Fatal(err)
		}
		says(t, m, n)
		return m
	}
	kept := load(twin("a"), 1)
	func() {
		other := load(twin("b"), 1)
		if other.code == kept.code || other.code.source != kept.code.source {
			t.Fatalf("code shared %v, source shared %v", other.code == kept.code, other.code.source == kept.code.source)
		}
	}()
	until(t, "the other is still known", func() bool {
		runtime.GC()
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.modules) == 1
	})
	last := load(saying(t, 7), 7) // takes away what nobody has, and what is too much
	if e.isResident(kept.code) {
		t.Error("code is in memory beside another's, of 1 byte")
	}
	says(t, kept, 1)
	if again := load(twin("a"), 1); again != kept {
		t.Error("the same bytes are another module")
	}
	runtime.KeepAlive(last)
}
