package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"
	"weak"

	"github.com/tetratelabs/wazero"
)

// defaultCodeBytes is [Config.CodeBytes] where it is zero.
const defaultCodeBytes = 1 << 30

// A codeList is what an engine knows of the code that is in memory. Who puts code there, or takes it
// away, holds the engine's moving for that; fields belong to its mu.
type codeList struct {
	most  int64            // bytes
	bytes int64            // of all code in memory
	codes map[Digest]*code // that loaded modules share, by the digest of what it was made of
}

// A residency is what the engine knows of one code; it belongs to the engine's mu. Code that a module
// has to itself, such as those for tests, is not in the engine's list, and stays.
type residency struct {
	compiled wazero.CompiledModule // nil while it is not in memory
	bytes    int64                 // that it then takes
	calls    int                   // that run
	last     time.Time             // that the last call of it began, or that the last instance was parked
	modules  int                   // that have it
}

// enter counts a call that runs; the caller ends with leave. It is ready if the code is in memory,
// where it stays until then.
func (e *Engine) enter(c *code) (ready bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.modules == nil {
		return false, errClosed
	}
	e.running.Add(1)
	c.calls++
	c.last = time.Now()
	return c.compiled != nil, nil
}

func (e *Engine) leave(c *code) { e.leaveSince(c, time.Time{}) }

// leaveSince is leave for a call that was over before now.
func (e *Engine) leaveSince(c *code, since time.Time) {
	e.mu.Lock()
	c.calls--
	if since.After(c.last) {
		c.last = since
	}
	e.mu.Unlock()
	e.running.Done()
}

// bringBack brings the code of a module into memory. One call does it for all that wait for the same
// code, and those of other codes do not wait for it. It ends with ctx; any other error is a failure of
// the host's, since the code was compiled before.
func (e *Engine) bringBack(ctx context.Context, m *Module) error {
	fail := func(err error) error { return fmt.Errorf("module %s: bringing code back: %w", m.digest.Short(), err) }
	select {
	case m.code.bringing <- struct{}{}:
		defer func() { <-m.code.bringing }()
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	if e.isResident(m.code) {
		return nil
	}
	made, err := e.makeAgain(ctx, m)
	if err == nil {
		err = e.settle(ctx, m.code, made)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// makeAgain reads the code of a module from the cache, which needs no turn to compile, or compiles it
// again.
func (e *Engine) makeAgain(ctx context.Context, m *Module) (made, error) {
	source, err := e.compiler.source(m.code)
	if err != nil {
		return made{}, err
	}
	if made, err := e.compiler.cached(ctx, m.digest, m.code.source, source); made.compiled != nil || err != nil {
		return made, err
	}
	// A call waits behind the loads of a tenant, but is none of them: what others load does not make it fail.
	if err := e.compile.wait(ctx, m.tenant, math.MaxInt); err != nil {
		return made{}, err
	}
	defer e.compile.give()
	return e.compiler.compile(ctx, m.digest, source)
}

func (e *Engine) isResident(c *code) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.compiled != nil
}

// move begins to bring code into memory or to take it away, unless ctx ends before; the caller ends it
// with moved.
func (e *Engine) move(ctx context.Context) error {
	select {
	case e.moving <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine: waiting for other code to be moved: %w", context.Cause(ctx))
	}
}

func (e *Engine) moved() { <-e.moving }

// settle gives a code, which is not there yet, its place in memory, and takes others away for it. Unless
// it does, what was made is closed.
func (e *Engine) settle(ctx context.Context, c *code, made made) error {
	if err := e.move(ctx); err != nil {
		return errors.Join(err, made.compiled.Close(context.WithoutCancel(ctx)))
	}
	defer e.moved()
	return e.place(c, made)
}

// place is settle for who moves code. What it began it ends, whoever gave up.
func (e *Engine) place(c *code, made made) error {
	ctx := context.Background()
	e.mu.Lock()
	c.compiled, c.bytes = made.compiled, made.bytes()
	e.codes.bytes += c.bytes
	e.mu.Unlock()
	e.unpark(nil)
	for {
		away, compiled, orphan := e.choose(c)
		if away == nil {
			return nil
		}
		e.pool.forget(away)
		// What fails of another's code is not the caller's failure.
		var err error
		if compiled != nil {
			err = compiled.Close(ctx)
		}
		if orphan {
			err = errors.Join(err, e.compiler.dropSource(away))
		}
		if err != nil {
			e.log.LogAttrs(ctx, slog.LevelError, "code that was taken out of memory left something behind", slog.String("source", away.source.String()), slog.Any("err", err))
		}
	}
}

// choose takes one code from those in memory: one that no module has any more, or, while there is too
// much, the one that was not called for longest; but none with a call in it, and not the one to keep.
func (e *Engine) choose(keep *code) (away *code, compiled wazero.CompiledModule, orphan bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var name Digest
	for from, c := range e.codes.codes {
		switch {
		case c == keep || c.calls > 0:
		case c.modules == 0:
			name, away, orphan = from, c, true
		case !orphan && c.compiled != nil && e.codes.bytes > e.codes.most && (away == nil || c.last.Before(away.last)):
			name, away = from, c
		}
	}
	if away == nil {
		return nil, nil, false
	}
	if orphan {
		delete(e.codes.codes, name)
	}
	compiled = away.compiled
	e.codes.bytes -= away.bytes
	away.compiled, away.bytes = nil, 0
	return away, compiled, orphan
}

// sharedCode returns the code that was made of the same bytes, if there is some, for one module more.
func (e *Engine) sharedCode(from Digest) *code {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.codes.codes[from]
	if c != nil {
		c.modules++
	}
	return c
}

// newCode makes code known under its digest, and gives it its place in memory.
func (e *Engine) newCode(ctx context.Context, from Digest, c *code, made made) error {
	err := e.move(ctx)
	if err == nil {
		defer e.moved()
		// Now, since the source of code that is taken away goes, and may have been this one's.
		c.from = from
		err = e.compiler.keepSource(c, made.source)
	}
	if err != nil {
		return errors.Join(err, made.compiled.Close(context.WithoutCancel(ctx)))
	}
	e.mu.Lock()
	c.modules = 1
	e.codes.codes[from] = c
	e.mu.Unlock()
	return e.place(c, made)
}

// hold makes a module known as long as somebody has it. The caller holds mu.
func (e *Engine) hold(m *Module) {
	e.modules[m.digest] = weak.Make(m)
	runtime.AddCleanup(m, e.gone, goneModule{m.digest, m.code})
}

// A goneModule is what is known of a module that nobody has any more.
type goneModule struct {
	digest Digest
	code   *code
}

// gone forgets a module. Its code goes when the next comes into memory.
func (e *Engine) gone(m goneModule) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.code.modules--
	if e.modules[m.digest].Value() == nil { // else it was loaded anew meanwhile
		delete(e.modules, m.digest)
	}
}
