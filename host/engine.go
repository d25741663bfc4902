package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/audit"
)

// Config is what an [Engine] is made of. Its zero value is usable.
type Config struct {
	// Cache is a directory for compiled code, made with mode 0700 if it is not
	// there. It holds native code: who can write to it owns the process. Empty
	// keeps compiled code in memory only.
	Cache string
	// Logger gets what only the operator should know, such as a bug in a host
	// function. Nil is silent. Guests never write to it.
	Logger *slog.Logger
	// Audit gets a record "module.reject" of each module that Load refuses. Nil
	// records nothing.
	Audit audit.Sink
}

// An Engine compiles and runs modules. It is safe for concurrent use.
type Engine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	log     *slog.Logger
	audit   audit.Sink    // nil: nothing is recorded
	compile chan struct{} // holds one token while a module is compiled
	judging chan struct{} // holds a token for each guard that runs

	// compiled is the code that loaded modules share, by the digest of what it was
	// compiled from. It belongs to the holder of the token.
	compiled map[Digest]wazero.CompiledModule

	mu      sync.Mutex
	modules map[Digest]*Module // nil once closed
	running sync.WaitGroup     // calls; only added to while not closed
}

// Open makes an engine. Its maker closes it.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	e := &Engine{log: cfg.Logger, audit: cfg.Audit, compile: make(chan struct{}, 1),
		judging:  make(chan struct{}, runtime.GOMAXPROCS(0)),
		compiled: map[Digest]wazero.CompiledModule{}, modules: map[Digest]*Module{}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	// The meter stops guests; the engine's own way makes loops many times slower and
	// does not see calls without loops.
	config := wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithDebugInfoEnabled(false)
	if cfg.Cache != "" {
		var err error
		if e.cache, err = openCache(cfg.Cache); err != nil {
			return nil, err
		}
		config = config.WithCompilationCache(e.cache)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if err := installMeter(ctx, e.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("meter: %w", err), e.Close())
	}
	for name, funcs := range hostModules {
		if err := install(ctx, e.runtime, name, funcs); err != nil {
			return nil, errors.Join(fmt.Errorf("host module %s: %w", name, err), e.Close())
		}
	}
	return e, nil
}

func openCache(dir string) (wazero.CompilationCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	return cache, nil
}

// Close waits for the calls and loads that run, which their limits bound, and
// frees all compiled code. Later calls and loads fail.
func (e *Engine) Close() error {
	e.compile <- struct{}{}
	defer func() { <-e.compile }()
	e.mu.Lock()
	e.modules = nil
	e.mu.Unlock()
	e.running.Wait()
	ctx := context.Background()
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}

var errClosed = errors.New("engine: closed")

// enter counts a call that runs; the caller ends with running.Done.
func (e *Engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.modules == nil {
		return errClosed
	}
	e.running.Add(1)
	return nil
}
