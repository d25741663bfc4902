//go:build linux && !race

// The race detector takes memory of its own for all that is touched.

package host

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// inChild runs a test again in a process of its own, so that what it measures is its own. It
// reports true in that process.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(scratchVar) != "" {
		return true
	}
	loadGo(t) // so that the child finds it compiled
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), scratchVar+"="+scratch)
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Logf("%s", text)
	return false
}

// resident returns the memory of this process, in bytes, after a collection. Pages that many
// mappings share, as instances share their image, count once.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(rollup), "\nPss:")
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[1] != "kB" {
		t.Fatalf("smaps_rollup: %s", rollup)
	}
	kb, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// TestManyCalls: a hundred thousand calls leave nothing behind.
func TestManyCalls(t *testing.T) {
	if !inChild(t) {
		return
	}
	small, inGo := load(t, counter().bytes()), loadGo(t)
	calls := func(n int) {
		for i := range n {
			m, c := small, &Call{Export: "call"}
			if i%10 == 0 {
				m, c.Input = inGo, []byte(`{"do":"echo","id":"x"}`)
			}
			if _, err := m.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls(2000)
	before, goroutines := resident(t), runtime.NumGoroutine()
	calls(100_000)
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	const most = 5 << 20
	if grown := resident(t) - before; grown > most {
		t.Errorf("resident memory grew by %d bytes, at most %d", grown, most)
	} else {
		t.Logf("resident memory grew by %d bytes", grown)
	}
}

// TestManyInstances: a thousand instances of a Go guest that wait for a call take little
// memory.
func TestManyInstances(t *testing.T) {
	if !inChild(t) {
		return
	}
	m := loadGo(t)
	echo := &Call{Export: "call", Input: []byte(`{"do":"echo","id":"x"}`)}
	for range 2 {
		if _, err := m.Call(t.Context(), echo); err != nil {
			t.Fatal(err)
		}
	}
	before := resident(t)
	const n = 1000
	all := &meeting{n: n, done: make(chan struct{})}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			_, err := m.Call(t.Context(), &Call{Export: "call", Grants: grants(t, "state read session:k"), Access: Access{State: all},
				Input: []byte(`{"do":"calls","calls":[{"name":"state_get","request":{"key":"session:k"}}]}`), Limits: Limits{Wall: 5 * time.Minute, Startup: 5 * time.Minute}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	waiting := 0
	for _, img := range m.images() {
		waiting += len(img.idle)
	}
	const most = 400 << 20
	grown := resident(t) - before
	if waiting < n || grown > most {
		t.Errorf("%d instances wait in %d bytes, want %d in at most %d", waiting, grown, n, most)
	} else {
		t.Logf("%d instances wait in %d bytes", waiting, grown)
	}
}

// A meeting is a state in which every call waits for all others.
type meeting struct {
	mu   sync.Mutex
	n    int // that are missing
	done chan struct{}
}

func (m *meeting) Get(ctx context.Context, _ string) (json.RawMessage, bool, error) {
	m.mu.Lock()
	if m.n--; m.n == 0 {
		close(m.done)
	}
	m.mu.Unlock()
	select {
	case <-m.done:
		return nil, false, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

func (m *meeting) Set(context.Context, map[string]json.RawMessage) error { return nil }
