package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// withoutMainVar makes the tests' process one that does not call Main.
const withoutMainVar = "HOST_TEST_WITHOUT_MAIN"

func withoutMain() int {
	ctx := context.Background()
	if _, err := Open(ctx, Config{}); err != nil {
		fmt.Println("refused:", err)
	}
	e, err := Open(ctx, Config{InProcess: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := e.Describe(ctx, plain().bytes()); err == nil {
		return 1
	}
	if err := e.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("in process: good")
	return 0
}

func TestOpenWithoutMain(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), withoutMainVar+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "refused: engine: host.Main was not called, which must be the first thing in main; or set Config.InProcess\nin process: good\n"
	if !strings.HasPrefix(string(out), want) {
		t.Errorf("output %q, want %q", out, want)
	}
}

// An engine in process compiles once too, and reads its own entries.
func TestInProcess(t *testing.T) {
	dir := t.TempDir()
	wasm := packed(t, plain().bytes())
	for range 2 {
		e, err := Open(t.Context(), Config{Cache: dir, InProcess: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time from the engine's memory
			if _, err := e.compiler.compile(t.Context(), Digest{1}, wasm); err != nil {
				t.Fatal(err)
			}
		}
		m, err := e.Load(t.Context(), wasm)
		if err != nil {
			t.Fatal(err)
		}
		var out struct{}
		succeeds(t, m, &Call{Export: "call"}, &out)
		if files := names(t, e.compiler.handover.dir); len(files) != 0 {
			t.Errorf("files %q are left", files)
		}
		work := e.compiler.work
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(work); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("directory %s is left, error %v", work, err)
		}
	}
}

// keptRuntime counts what it compiled and nobody has closed.
type keptRuntime struct {
	wazero.Runtime
	open *int
}

func (r keptRuntime) CompileModule(ctx context.Context, wasm []byte) (wazero.CompiledModule, error) {
	m, err := r.Runtime.CompileModule(ctx, wasm)
	if err == nil {
		*r.open++
	}
	return keptModule{m, r.open}, err
}

type keptModule struct {
	wazero.CompiledModule
	open *int
}

func (m keptModule) Close(ctx context.Context) error {
	*m.open--
	return m.CompiledModule.Close(ctx)
}

// TestInProcessNotKept: a module that was compiled in this process but cannot be kept is not left in the engine.
func TestInProcessNotKept(t *testing.T) {
	for name, spoil := range map[string]func(c *compiler) error{
		"the cache cannot be written":     func(c *compiler) error { return c.cache.close() },
		"the handover cannot be read":     func(c *compiler) error { c.handover.dir += "-gone"; return nil },
		"the compiler wrote another file": func(c *compiler) error { return os.WriteFile(filepath.Join(c.handover.dir, "x"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Open(t.Context(), Config{Cache: t.TempDir(), InProcess: true})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			open := 0
			e.compiler.runtime = keptRuntime{e.compiler.runtime, &open}
			wasm := packed(t, plain().bytes())
			if m, err := e.compiler.compileHere(t.Context(), Digest{1}, Digest{2}, wasm); err != nil || open != 1 {
				t.Fatalf("made %+v, error %v, %d modules open; want one", m, err, open)
			}
			if err := spoil(e.compiler); err != nil {
				t.Fatal(err)
			}
			b := plain()
			b.fn("other", ":", 0)
			m, err := e.compiler.compileHere(t.Context(), Digest{1}, Digest{3}, packed(t, b.bytes()))
			if err == nil || m.compiled != nil || open != 1 {
				t.Errorf("made %+v, error %v, %d modules open; want an error and the one from before", m, err, open)
			}
		})
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
