package app

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

func openKept(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Two stores of one file are as two processes: what one keeps the other has.
func TestKeptKV(t *testing.T) {
	hosttest.TestKV(t, func(t *testing.T, now func() time.Time) []host.KVStore {
		path := filepath.Join(t.TempDir(), "s.db")
		return []host.KVStore{keptKV{openKept(t, path).KV(now)}, keptKV{openKept(t, path).KV(now)}}
	})
}

// A store that is down is neither full nor one with a bad counter, which a guest
// would be told: it reads storage_unavailable.
func TestKeptKVIsDown(t *testing.T) {
	s := openKept(t, filepath.Join(t.TempDir(), "s.db"))
	kv := keptKV{s.KV(nil)}.Scope(host.KVScope{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, get := kv.Get(t.Context(), "a")
	_, _, add := kv.Add(t.Context(), "a", 1, 1, 0)
	for call, err := range map[string]error{"get": get, "add": add, "set": kv.Set(t.Context(), "a", []byte("1"), 0), "delete": kv.Delete(t.Context(), "a")} {
		if err == nil || errors.Is(err, host.ErrFull) || errors.Is(err, host.ErrNoCounter) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// Counters live as long as sessions do.
func TestKVIsKept(t *testing.T) {
	for store, want := range map[string]int64{"memory": 1, "sqlite": 2} {
		f, err := Load(write(t, least+"store: {sessions: "+store+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var count int64
		for range 2 {
			rt := &Runtime{File: f}
			kv, err := rt.openStore(nil)
			if err != nil {
				t.Fatal(err)
			}
			if count, _, err = kv.Scope(host.KVScope{Tenant: "acme"}).Add(t.Context(), "n", 1, 9, 0); err != nil {
				t.Error(err)
			}
			if err := rt.Close(); err != nil {
				t.Error(err)
			}
		}
		if count != want {
			t.Errorf("%s: the second process counts %d, want %d", store, count, want)
		}
	}
}
