package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A KVScope says whose values they are. Scopes do not see each other.
type KVScope struct {
	Tenant, App string
	Owner       string // the plugin or guard, such as "guard quota"
}

// A KVStore keeps the values of all scopes, of each at most [MaxKVKeys] and
// [MaxKVScopeBytes]. It is safe for concurrent use.
type KVStore interface {
	Scope(s KVScope) KV
}

// Bounds of one scope of a [KVStore].
const (
	MaxKVKeys       = 10_000
	MaxKVScopeBytes = 16 << 20 // keys and values
)

// A MemoryKV is a [KVStore] that forgets when the process ends. Values whose time is
// up make room.
type MemoryKV struct {
	now func() time.Time

	mu     sync.Mutex
	scopes map[KVScope]*kvScope
}

// NewMemoryKV returns an empty store. now is the clock by which values end; nil is
// the real one.
func NewMemoryKV(now func() time.Time) *MemoryKV {
	if now == nil {
		now = time.Now
	}
	return &MemoryKV{now: now, scopes: map[KVScope]*kvScope{}}
}

// Scope implements [KVStore]. The scope is made when it is first asked for.
func (m *MemoryKV) Scope(s KVScope) KV {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scopes[s] == nil {
		m.scopes[s] = &kvScope{now: m.now, values: map[string]kvValue{}}
	}
	return m.scopes[s]
}

type kvScope struct {
	now func() time.Time

	mu     sync.Mutex
	values map[string]kvValue
	bytes  int
	latest time.Time // a clock that goes back opens no window again
}

type kvValue struct {
	data json.RawMessage
	ends time.Time // zero: never
}

// tick returns the time, which never goes back. The caller holds mu.
func (s *kvScope) tick() time.Time {
	if now := s.now(); now.After(s.latest) {
		s.latest = now
	}
	return s.latest
}

// get returns a value that has not ended. The caller holds mu.
func (s *kvScope) get(key string, now time.Time) (kvValue, bool) {
	v, ok := s.values[key]
	return v, ok && !v.ended(now)
}

func (v kvValue) ended(now time.Time) bool { return !v.ends.IsZero() && !now.Before(v.ends) }

// put writes a value if there is room. The caller holds mu.
func (s *kvScope) put(key string, v kvValue, now time.Time) error {
	fits := func() bool {
		old, there := s.values[key]
		keys, bytes := len(s.values), s.bytes
		if there {
			keys, bytes = keys-1, bytes-len(key)-len(old.data)
		}
		return keys < MaxKVKeys && bytes+len(key)+len(v.data) <= MaxKVScopeBytes
	}
	if !fits() {
		for k, old := range s.values {
			if old.ended(now) {
				s.drop(k)
			}
		}
		if !fits() {
			return fmt.Errorf("kv: %w: %d values with %d bytes", ErrFull, len(s.values), s.bytes)
		}
	}
	s.drop(key)
	s.values[key] = v
	s.bytes += len(key) + len(v.data)
	return nil
}

func (s *kvScope) drop(key string) {
	if v, ok := s.values[key]; ok {
		s.bytes -= len(key) + len(v.data)
		delete(s.values, key)
	}
}

// ends returns when a value ends that lives for ttl.
func ends(now time.Time, ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return now.Add(ttl)
}

// Get implements [KV].
func (s *kvScope) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.get(key, s.tick())
	if !ok {
		return nil, false, nil
	}
	return append(json.RawMessage(nil), v.data...), true, nil
}

// Set implements [KV].
func (s *kvScope) Set(_ context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	return s.put(key, kvValue{append(json.RawMessage(nil), value...), ends(now, ttl)}, now)
}

// Delete implements [KV].
func (s *kvScope) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
	return nil
}

// Add implements [KV].
func (s *kvScope) Add(_ context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	v, there := s.get(key, now)
	var count int64
	if there {
		var err error
		count, err = strconv.ParseInt(string(v.data), 10, 64)
		if err != nil || count < 0 || count > abi.MaxCount {
			return 0, false, fmt.Errorf("kv %s: %w", key, ErrNoCounter)
		}
	}
	if most = min(most, abi.MaxCount); n > 0 && (n > most || count > most-n) {
		return count, false, nil
	}
	sum := max(0, count+max(n, -abi.MaxCount))
	if sum == count {
		return count, true, nil
	}
	if !there {
		v.ends = ends(now, ttl)
	}
	v.data = strconv.AppendInt(nil, sum, 10)
	if err := s.put(key, v, now); err != nil {
		return 0, false, err
	}
	return sum, true, nil
}
