package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/session"
)

// A scope holds 10,000 values; what has ended makes room.
func TestKVIsBounded(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	s := openStore(t, filepath.Join(t.TempDir(), "s.db"))
	if _, err := s.write.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO kv SELECT 'acme', 'desk', 'guard quota', i, x'31', length(i) + 1, ? FROM n`, maxValues-1, now.Add(time.Minute).UnixMicro()); err != nil {
		t.Fatal(err)
	}
	values := s.KV(func() time.Time { return now })
	kv := values.Scope("acme", "desk", "guard quota")
	set := func(key string) error { return kv.Set(t.Context(), key, json.RawMessage("1"), time.Minute) }
	if err := set("last"); err != nil {
		t.Fatal(err)
	}
	if err := set("more"); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("one value more: %v", err)
	}
	if _, _, err := kv.Add(t.Context(), "more", 1, 1, 0); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("one counter more: %v", err)
	}
	if err := kv.Set(t.Context(), "last", json.RawMessage("22"), 0); err != nil {
		t.Errorf("a value that is there: %v", err)
	}
	if err := values.Scope("acme", "desk", "guard other").Set(t.Context(), "more", json.RawMessage("1"), 0); err != nil {
		t.Errorf("another scope: %v", err)
	}
	now = now.Add(time.Minute)
	if err := set("more"); err != nil {
		t.Errorf("when the others have ended: %v", err)
	}
	var rows int
	if err := s.read.QueryRow(`SELECT count(*) FROM kv`).Scan(&rows); err != nil || rows != 3 {
		t.Errorf("%d rows are left (%v), want those of last, more and the other scope", rows, err)
	}
}

// What one process has seen end has ended for another, whose clock is behind.
func TestKVClockBehind(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "s.db")
	scope := func(now time.Time) *KVScope {
		return openStore(t, path).KV(func() time.Time { return now }).Scope("acme", "desk", "guard quota")
	}
	behind, ahead := scope(now), scope(now.Add(time.Minute))
	if _, _, err := behind.Add(t.Context(), "n", 3, 3, time.Minute); err != nil {
		t.Fatal(err)
	}
	if v, found, err := ahead.Get(t.Context(), "n"); found || err != nil {
		t.Errorf("the one ahead reads %s, %v", v, err)
	}
	if v, found, err := behind.Get(t.Context(), "n"); found || err != nil {
		t.Errorf("the one behind reads %s, %v", v, err)
	}
}

// A write that others hold up ends with its context, and has no effect.
func TestKVWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	kv := openStore(t, path).KV(nil).Scope("acme", "desk", "guard quota")
	holds, err := openStore(t, path).write.Begin()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := kv.Add(ctx, "n", 1, 9, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another holds the file: %v", err)
	}
	if err := holds.Rollback(); err != nil {
		t.Fatal(err)
	}
	if count, _, err := kv.Add(t.Context(), "n", 1, 9, 0); err != nil || count != 1 {
		t.Errorf("then: %d, %v", count, err)
	}
}

func BenchmarkKVAdd(b *testing.B) {
	s := openStore(b, filepath.Join(b.TempDir(), "s.db"))
	kv := s.KV(nil).Scope("acme", "desk", "guard quota")
	for b.Loop() {
		if _, _, err := kv.Add(b.Context(), "n", 1, maxCount, time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}
