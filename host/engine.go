package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"weak"

	"github.com/tetratelabs/wazero"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/host/meter"
)

// Config is what an [Engine] is made of. Its zero value is usable.
type Config struct {
	// Cache is a directory for compiled code, made with mode 0700 if it is not
	// there. It holds native code: who can write to it owns the process. So what
	// others own or may write is refused, entries carry a MAC whose key lies in the
	// same directory, and an entry that does not fit its MAC is discarded. Engines
	// and processes may share it; nothing is ever removed from it by age or size.
	// Empty keeps compiled code in memory only.
	Cache string
	// InProcess compiles modules in this process and not in a child, for programs
	// that cannot call [Main]. There is no bound then on the time and memory that
	// compiling takes, other than the structural limits, and no way to end it.
	InProcess bool
	// CodeBytes bounds the compiled code in memory, in bytes, with what it was compiled from; zero is
	// 1 GiB. Past it goes the code that was not called for longest and that no call has, with its
	// images; code that calls have stays, however much it is. The module stays: its next call reads
	// the code from Cache again, or without one compiles it again, which takes as long as a load and
	// ends with the context of the call. A call whose code does not come back ends with storage_unavailable.
	CodeBytes int64
	// Logger gets what only the operator should know, such as a bug in a host
	// function. Nil is silent. Guests never write to it.
	Logger *slog.Logger
	// Audit gets a record "module.reject" of each module that Load refuses, and
	// "cache.tamper" of each entry of Cache that is discarded; an error of the latter
	// fails the load. Nil records nothing.
	Audit audit.Sink
}

// An Engine compiles and runs modules. It is safe for concurrent use.
type Engine struct {
	runtime  wazero.Runtime
	blocks   wazero.CompiledModule // of arenas
	compiler *compiler             // belongs to who has the turn to compile
	log      *slog.Logger
	compile  queue         // whose turn it is to compile
	audit    audit.Sink    // nil: nothing is recorded
	judging  chan struct{} // holds a token for each guard that runs

	reserve func(size int64) (*region, error) // address space
	pages   *pageMap                          // nil where instances cannot be set back
	pool    pool
	parked  parking

	moving chan struct{} // holds one token of who puts code into memory or takes it away

	mu      sync.Mutex
	modules map[Digest]weak.Pointer[Module] // nil once closed
	codes   codeList
	running sync.WaitGroup // calls; only added to while not closed
}

// Open makes an engine. Its maker closes it. It fails in a program that has not
// called [Main], unless [Config.InProcess] is set.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	e := &Engine{log: cfg.Logger, audit: cfg.Audit,
		reserve: reserve, judging: make(chan struct{}, runtime.GOMAXPROCS(0)), moving: make(chan struct{}, 1),
		pool: newPool(), parked: newParking(), modules: map[Digest]weak.Pointer[Module]{},
		codes: codeList{most: cmp.Or(cfg.CodeBytes, defaultCodeBytes), codes: map[Digest]*code{}}}
	if cfg.CodeBytes < 0 {
		return nil, fmt.Errorf("engine: CodeBytes is %d, want none or more", cfg.CodeBytes)
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if e.compiler, err = openCompiler(ctx, cfg, e.log); err != nil {
		return nil, err
	}
	e.runtime = e.compiler.runtime
	if compiles {
		if e.pages, err = openPageMap(); err != nil {
			e.log.Warn("instances cannot be set back on this system: every call begins with a new one, which takes longer", "reason", err)
		}
	}
	if err := installMeter(ctx, e.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("meter: %w", err), e.Close())
	}
	if e.blocks, _, err = e.compiler.own(ctx, meter.BlocksModule()); err != nil {
		return nil, errors.Join(fmt.Errorf("meter: module of blocks: %w", err), e.Close())
	}
	for name, funcs := range hostModules {
		if err := install(ctx, e.runtime, name, funcs); err != nil {
			return nil, errors.Join(fmt.Errorf("host module %s: %w", name, err), e.Close())
		}
	}
	return e, nil
}

// Close waits for the calls and loads that run, which their limits bound, and
// frees all compiled code. Later calls and loads fail.
func (e *Engine) Close() error {
	if err := e.compile.wait(context.Background(), "", math.MaxInt); err != nil { // for loads
		return err
	}
	e.mu.Lock()
	e.modules = nil
	e.mu.Unlock()
	e.compile.give() // calls may wait for a turn to bring code back
	e.parked.closed.Store(true)
	e.unpark(nil)
	e.running.Wait()
	e.pool.close()
	var err error
	if e.pages != nil {
		err = e.pages.close()
	}
	return errors.Join(err, e.compiler.close(context.Background()))
}

var errClosed = errors.New("engine: closed")
