package authortest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/host"
)

// A rowKV is the store of one guard. Each row begins with its own, by the clock of
// its questions.
type rowKV struct {
	mu    sync.Mutex
	clock time.Time
	store *host.MemoryKV
	row   *storage
	begun map[host.KVScope]bool
	last  host.KV // the scope that was asked last
	used  bool    // since it was last looked at
}

// ErrDown is what a store says that a row makes unavailable.
var ErrDown = errors.New("the store of this row is unavailable")

// reset begins a row.
func (k *rowKV) reset(row *storage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if row == nil {
		row = &storage{}
	}
	k.row, k.begun, k.last, k.used = row, map[host.KVScope]bool{}, nil, false
	k.store = host.NewMemoryKV(func() time.Time {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.clock
	})
}

// at sets the clock.
func (k *rowKV) at(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clock = now
}

// wasUsed reports whether the store was asked since it was last looked at.
func (k *rowKV) wasUsed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	used := k.used
	k.used = false
	return used
}

// get returns a value of the scope that was asked last.
func (k *rowKV) get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	k.mu.Lock()
	last := k.last
	k.mu.Unlock()
	if last == nil {
		return nil, false, nil
	}
	return last.Get(ctx, key)
}

// Scope implements [host.KVStore].
func (k *rowKV) Scope(s host.KVScope) host.KV {
	k.mu.Lock()
	scope, row, begun := k.store.Scope(s), k.row, k.begun[s]
	k.begun[s], k.last = true, scope
	k.mu.Unlock()
	if !begun {
		for key, value := range row.values {
			_ = scope.Set(context.Background(), key, value, 0) // a scope that is new has room
		}
	}
	return scopedKV{scope, k}
}

// A scopedKV is what a guard sees of a rowKV.
type scopedKV struct {
	kv   host.KV
	rows *rowKV
}

func (s scopedKV) ask() error {
	s.rows.mu.Lock()
	defer s.rows.mu.Unlock()
	s.rows.used = true
	if s.rows.row.down {
		return ErrDown
	}
	return nil
}

func (s scopedKV) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	if err := s.ask(); err != nil {
		return nil, false, err
	}
	return s.kv.Get(ctx, key)
}

func (s scopedKV) Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	if err := s.ask(); err != nil {
		return err
	}
	return s.kv.Set(ctx, key, value, ttl)
}

func (s scopedKV) Delete(ctx context.Context, key string) error {
	if err := s.ask(); err != nil {
		return err
	}
	return s.kv.Delete(ctx, key)
}

func (s scopedKV) Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	if err := s.ask(); err != nil {
		return 0, false, err
	}
	return s.kv.Add(ctx, key, n, most, ttl)
}
