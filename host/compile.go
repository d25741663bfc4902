package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/host/jail"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Main must be the first thing in the main function of a program that opens an
// [Engine], and in TestMain of its tests. Modules are compiled in a child process,
// which is this program run again: there, Main compiles one module and exits.
// Elsewhere it returns at once. [Open] fails in a program that has not called it,
// unless [Config.InProcess] says so.
func Main() { jail.Main(compileFile) }

// maxNativeBytes bounds what compiling one module gives.
const maxNativeBytes = 256 << 20

// compileLimits bounds compiling one module: the limits of package jail, which are
// chosen for this.
var compileLimits = jail.Limits{FileBytes: maxNativeBytes}

// runtimeConfig is what code is compiled for, in the parent and in the child. The
// meter stops guests; the engine's own way makes loops many times slower and does
// not see calls without loops.
func runtimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithDebugInfoEnabled(false)
}

// compiles says whether the engine compiles here; elsewhere it interprets.
const compiles = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// compileFile is the work of a child: it compiles a module into a directory.
func compileFile(wasm []byte, dir string) (refusal string, err error) {
	ctx := context.Background()
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return "", err
	}
	r := wazero.NewRuntimeWithConfig(ctx, runtimeConfig().WithCompilationCache(cache))
	if _, err := r.CompileModule(ctx, wasm); err != nil {
		if errors.Is(err, syscall.EFBIG) {
			return fmt.Sprintf("native code exceeds limit %d", int64(maxNativeBytes)), nil
		}
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			return "", err
		}
		return err.Error(), nil
	}
	return "", nil
}

// A compiler makes native code of modules. It belongs to the holder of the
// engine's turn to compile, but for what the cache has, and for sources.
//
// Where it is jailed, no module is ever compiled in this process: the child's code
// is authenticated and kept, put alone into a directory that only this process
// uses, and read from there by the engine, which is told not to compile.
type compiler struct {
	runtime  wazero.Runtime
	engine   wazero.CompilationCache // nil until it is open
	cache    *codeCache              // nil keeps nothing
	jailed   bool
	run      func(ctx context.Context, limits jail.Limits, dir string, input []byte) (refusal string, err error) // jail.Run
	limits   jail.Limits
	denied   denials
	log      *slog.Logger
	work     string // the private directory of this process
	handover *handover
}

// openCompiler opens a compiler and its runtime.
func openCompiler(ctx context.Context, cfg Config, log *slog.Logger) (c *compiler, err error) {
	c = &compiler{jailed: !cfg.InProcess, run: jail.Run, limits: compileLimits, denied: newDenials(), log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	switch {
	case cfg.InProcess:
	case !jail.Supported || !compiles:
		log.Warn("no compile jail on this system: modules are compiled in this process, without limits")
		c.jailed = false
	case !jail.Called():
		return c, errors.New("engine: host.Main was not called, which must be the first thing in main; or set Config.InProcess")
	}
	if err := c.openWork(); err != nil {
		return c, err
	}
	if cfg.Cache != "" && compiles {
		engine := engineVersion() + " " + filepath.Base(c.handover.dir)
		if c.cache, err = openCodeCache(cfg.Cache, contextHere(engine), reporter(cfg.Audit, log)); err != nil {
			return c, fmt.Errorf("compilation cache: %w", err)
		}
	}
	c.runtime = wazero.NewRuntimeWithConfig(ctx, runtimeConfig().WithCompilationCache(c.engine))
	return c, nil
}

// reporter returns what tells the operator of discarded entries. A record that
// cannot be written fails the load.
func reporter(sink audit.Sink, log *slog.Logger) func(ctx context.Context, entry, why string) error {
	return func(ctx context.Context, entry, why string) error {
		log.Warn("an entry of the compilation cache was discarded", "entry", entry, "reason", why)
		if sink == nil {
			return nil
		}
		return sink.Append(ctx, audit.Record{Action: "cache.tamper", Target: entry, Decision: "discarded", Why: why})
	}
}

// openWork makes the private directory, where the engine makes one of its own.
func (c *compiler) openWork() error {
	temp, err := filepath.Abs(os.TempDir()) // the child has another working directory
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	info, err := os.Stat(temp)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("engine: %s has mode %#o: others could replace what lies there", temp, mode.Perm())
	}
	if c.work, err = os.MkdirTemp(temp, "sandboxd-"); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	code := filepath.Join(c.work, "code")
	if c.engine, err = wazero.NewCompilationCacheWithDir(code); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	dir, err := only(code)
	c.handover = newHandover(dir)
	return err
}

// only returns the one directory in dir, whose name the engine chose.
func only(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("engine: %w", err)
	}
	if len(entries) != 1 || !entries[0].IsDir() {
		return "", fmt.Errorf("engine: %d entries in %s, want one directory", len(entries), dir)
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// engineVersion names the version of the engine as this program was built with it.
// It is empty where the program does not say.
func engineVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/tetratelabs/wazero" {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			return dep.Path + " " + dep.Version + " " + dep.Sum
		}
	}
	return ""
}

// close frees all code and removes the private directory.
func (c *compiler) close(ctx context.Context) error {
	var err error
	if c.runtime != nil {
		err = c.runtime.Close(ctx)
	}
	if c.engine != nil {
		err = errors.Join(err, c.engine.Close(ctx))
	}
	if c.cache != nil {
		err = errors.Join(err, c.cache.close())
	}
	if c.work != "" {
		err = errors.Join(err, os.RemoveAll(c.work))
	}
	return err
}

// errNotRead says that the engine did not take the code it was given for that of
// the module.
var errNotRead = errors.New("the engine does not know the code by its name")

// What was made of a module.
type made struct {
	compiled wazero.CompiledModule
	native   int64  // bytes of its code
	source   []byte // what it was compiled from
}

// bytes is what it takes in memory.
func (m made) bytes() int64 { return m.native + int64(len(m.source)) }

// compile returns the compiled code of a module; of is the module's digest, for errors.
func (c *compiler) compile(ctx context.Context, of Digest, code []byte) (made, error) {
	from := Digest(sha256.Sum256(code))
	if m, err := c.cached(ctx, of, from, code); m.compiled != nil || err != nil {
		return m, err
	}
	if !c.jailed {
		return c.compileHere(ctx, of, from, code)
	}
	if err := c.denied.check(of, from); err != nil {
		return made{}, err
	}
	n, err := c.compileInChild(ctx, of, from, code)
	if err != nil {
		return made{}, err
	}
	c.denied.forget(from)
	if err := c.keep(of, from, n); err != nil {
		return made{}, err
	}
	return c.read(ctx, of, n, code)
}

// cached returns the code of a module that the cache has, or none. It needs no turn.
func (c *compiler) cached(ctx context.Context, of, from Digest, code []byte) (made, error) {
	if c.cache == nil {
		return made{}, nil
	}
	n, ok, err := c.cache.get(ctx, from)
	if err != nil {
		return made{}, fmt.Errorf("module %s: compilation cache: %w", of.Short(), err)
	}
	if !ok {
		return made{}, nil
	}
	m, err := c.read(ctx, of, n, code)
	if errors.Is(err, errNotRead) {
		return made{}, nil // another version of the engine knows it by another name: the entry is written anew
	}
	return m, err
}

// sourceFile is where the rewritten module of a code is kept, so that the code can be brought back into memory. The
// name is the code's own: modules of others can differ in what the meter leaves out alone, and be the same when rewritten.
func (c *compiler) sourceFile(of *code) string {
	return filepath.Join(c.work, "source-"+hex.EncodeToString(of.from[:]))
}

func (c *compiler) keepSource(of *code, source []byte) error {
	if err := os.WriteFile(c.sourceFile(of), source, 0o600); err != nil {
		return fmt.Errorf("engine: source: %w", err)
	}
	return nil
}

func (c *compiler) source(of *code) ([]byte, error) {
	source, err := os.ReadFile(c.sourceFile(of))
	if err == nil && Digest(sha256.Sum256(source)) != of.source {
		err = fmt.Errorf("engine: source: %s is not what was written", c.sourceFile(of))
	}
	return source, err
}

func (c *compiler) dropSource(of *code) error {
	if err := os.Remove(c.sourceFile(of)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("engine: source: %w", err)
	}
	return nil
}

func (c *compiler) keep(of, from Digest, n native) error {
	if c.cache == nil {
		return nil
	}
	if err := c.cache.put(from, n); err != nil {
		return fmt.Errorf("module %s: compilation cache: %w", of.Short(), err)
	}
	return nil
}

// compileInChild compiles a module in a child process. What ends the child counts
// against the module.
func (c *compiler) compileInChild(ctx context.Context, of, from Digest, code []byte) (n native, err error) {
	dir, err := os.MkdirTemp(c.work, "job-")
	if err != nil {
		return n, fmt.Errorf("module %s: compiling: %w", of.Short(), err)
	}
	defer os.RemoveAll(dir)
	refusal, err := c.run(ctx, c.limits, dir, code)
	if limit, ok := errors.AsType[*jail.LimitError](err); ok {
		c.log.Warn("compiling was stopped", "module", of.Short(), "reason", limit.Text)
		return n, c.denied.add(of, from, Reason{abi.ModuleCompileTimeout, "compiling: " + limit.Text})
	}
	if crash, ok := errors.AsType[*jail.CrashError](err); ok {
		c.log.Error("the compiler crashed", "module", of.Short(), "state", crash.State, "stderr", crash.Stderr)
		why := Reason{abi.ModuleMalformed, "the compiler failed"}
		if strings.HasPrefix(crash.State, "signal: killed") {
			why = Reason{abi.ModuleCompileTimeout, "the compiler was killed"}
		}
		return n, c.denied.add(of, from, why)
	}
	if err != nil {
		return n, fmt.Errorf("module %s: compiling: %w", of.Short(), err)
	}
	if refusal != "" {
		return n, malformed(of, refusal)
	}
	made, err := only(dir)
	if err == nil {
		n, err = readNative(made)
	}
	if err != nil {
		return n, fmt.Errorf("module %s: compiling: %w", of.Short(), err)
	}
	return n, nil
}

// read has the engine read code that was made or checked before. The context has
// ended and there are two workers, of whom each looks at it first: so the engine
// takes the code or fails, and never compiles.
func (c *compiler) read(ctx context.Context, of Digest, n native, code []byte) (m made, err error) {
	defer c.recovered(of, &err)
	if err := c.handover.take(ctx, n.name); err != nil {
		return m, fmt.Errorf("module %s: %w", of.Short(), err)
	}
	defer c.handover.give(n.name)
	file := filepath.Join(c.handover.dir, n.name)
	if err := os.WriteFile(file, n.code, 0o600); err != nil {
		return m, fmt.Errorf("module %s: compiling: %w", of.Short(), err)
	}
	defer os.Remove(file)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	compiled, err := c.runtime.CompileModule(experimental.WithCompilationWorkers(ended, 2), code)
	if errors.Is(err, context.Canceled) {
		return m, fmt.Errorf("module %s: compiling: %w", of.Short(), errNotRead)
	}
	if err != nil {
		return m, malformed(of, err.Error())
	}
	return made{compiled, int64(len(n.code)), code}, nil
}

// compileHere compiles a module in this process.
func (c *compiler) compileHere(ctx context.Context, of, from Digest, code []byte) (m made, err error) {
	defer c.recovered(of, &err)
	compiled, n, err := c.own(ctx, code)
	switch {
	case compiled == nil && ctx.Err() != nil:
		return m, fmt.Errorf("module %s: %w", of.Short(), err)
	case compiled == nil:
		return m, malformed(of, err.Error())
	case err != nil:
		err = fmt.Errorf("module %s: compiling: %w", of.Short(), err)
	case n.name != "":
		err = c.keep(of, from, n)
	}
	if err != nil {
		return m, errors.Join(err, compiled.Close(context.Background()))
	}
	return made{compiled, int64(len(n.code)), code}, nil
}

// own compiles a module in this process. There is no native code of what the engine has in memory, and
// where it interprets.
func (c *compiler) own(ctx context.Context, code []byte) (compiled wazero.CompiledModule, n native, err error) {
	if err := c.handover.takeAll(ctx); err != nil {
		return nil, n, err
	}
	defer c.handover.giveAll()
	if compiled, err = c.runtime.CompileModule(context.Background(), code); err != nil {
		return nil, n, err
	}
	n, err = readNative(c.handover.dir)
	if errors.Is(err, errNoNative) {
		return compiled, n, nil
	}
	if err == nil {
		err = os.Remove(filepath.Join(c.handover.dir, n.name))
	}
	return compiled, n, err
}

// recovered turns a panic of the engine into an error.
func (c *compiler) recovered(of Digest, err *error) {
	if r := recover(); r != nil {
		c.log.Error("panic in the compiler", "module", of.Short(), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = malformed(of, "the compiler failed")
	}
}

// malformed says what the engine holds against a module: its validation is the
// last word on instructions and types.
func malformed(of Digest, text string) error {
	return &RejectError{of, []Reason{{abi.ModuleMalformed, printable(text, 500)}}}
}
