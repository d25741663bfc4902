package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

var (
	scratch string  // of this run of the tests: built guests and compiled code
	shared  *Engine // of this run of the tests
)

// scratchVar names the scratch of a parent process that runs one test in a child.
const scratchVar = "HOST_TEST_SCRATCH"

func TestMain(m *testing.M) {
	if os.Getenv(burnVar) != "" {
		burn()
	}
	if os.Getenv(withoutMainVar) != "" {
		os.Exit(withoutMain())
	}
	Main()
	os.Exit(func() int {
		var err error
		if scratch = os.Getenv(scratchVar); scratch == "" {
			if scratch, err = os.MkdirTemp("", "host-test-"); err != nil {
				panic(err)
			}
			defer os.RemoveAll(scratch)
		}
		if shared, err = Open(context.Background(), Config{Cache: filepath.Join(scratch, "cache")}); err != nil {
			panic(err)
		}
		code := m.Run()
		if err := shared.Close(); err != nil {
			panic(err)
		}
		if code == 0 {
			if err := goleak.Find(); err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
				return 1
			}
		}
		return code
	}())
}

// goGuest returns testdata/guest, built once, without its manifest.
var goGuest = sync.OnceValues(func() ([]byte, error) {
	out := filepath.Join(scratch, "guest.wasm")
	if os.Getenv(scratchVar) != "" {
		return os.ReadFile(out)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -buildid=",
		"-o", out, "./testdata/guest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.New(string(text))
	}
	return os.ReadFile(out)
})

// openEngine opens an engine of the test's own and returns its log.
func openEngine(t testing.TB) (*Engine, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	e, err := Open(t.Context(), Config{Cache: filepath.Join(scratch, "cache"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
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

func load(t testing.TB, wasm []byte) *Module {
	t.Helper()
	m, err := shared.Load(t.Context(), packed(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// loadGo returns the Go guest.
func loadGo(t testing.TB) *Module {
	t.Helper()
	wasm, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	return load(t, wasm)
}

func grants(t testing.TB, lines ...string) capability.Set {
	t.Helper()
	set, err := capability.ParseSet(lines)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// fails runs a call that must end with code.
func fails(t testing.TB, m *Module, c *Call, code abi.Code) *GuestError {
	t.Helper()
	return failsIn(t, t.Context(), m, c, code)
}

func failsIn(t testing.TB, ctx context.Context, m *Module, c *Call, code abi.Code) *GuestError {
	t.Helper()
	reply, err := m.Call(ctx, c)
	if err == nil {
		t.Fatalf("call succeeded with %q, want %s", reply.Output, code)
	}
	e, ok := errors.AsType[*GuestError](err)
	if !ok {
		t.Fatalf("error is %T: %v", err, err)
	}
	if e.Code != code || e.Receipt.Code != code {
		t.Fatalf("code %s (receipt %s, detail %s), want %s", e.Code, e.Receipt.Code, e.Detail, code)
	}
	if e.Receipt.Module != m.Digest().String() {
		t.Fatalf("receipt of %s, want %s", e.Receipt.Module, m.Digest())
	}
	return e
}

// succeeds runs a call that must succeed and decodes its output into out.
func succeeds(t testing.TB, m *Module, c *Call, out any) *Reply {
	t.Helper()
	reply, err := m.Call(t.Context(), c)
	if err != nil {
		if e, ok := errors.AsType[*GuestError](err); ok {
			t.Fatalf("%v (%s)", err, e.Detail)
		}
		t.Fatal(err)
	}
	if reply.Receipt.Code != abi.OK {
		t.Fatalf("receipt says %s", reply.Receipt.Code)
	}
	if err := json.Unmarshal(reply.Output, out); err != nil {
		t.Fatalf("output %q: %v", reply.Output, err)
	}
	return reply
}

// reported checks that the operator can read of a failure of the host's in a call of a module.
func reported(t *testing.T, log *bytes.Buffer, what string, m *Module, why string) {
	t.Helper()
	for _, want := range []string{"level=ERROR", what, m.digest.Short(), why, "goroutine "} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %s, want %q in it", log, want)
		}
	}
}

func TestGoGuest(t *testing.T) {
	m := loadGo(t)
	var sum int
	reply := succeeds(t, m, &Call{Export: "call", Input: []byte(`{"do":"goroutines","n":20}`)}, &sum)
	if sum != 190 {
		t.Errorf("sum %d, want 190", sum)
	}
	if r := reply.Receipt; r.PeakBytes < 1<<20 || r.WallUS <= 0 || r.HostCalls != 1 {
		t.Errorf("receipt %+v", r)
	}
}
