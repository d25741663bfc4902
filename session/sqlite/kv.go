package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/session"
)

// What one scope of a [KV] may keep, and the largest counter.
const (
	maxValues     = 10_000
	maxValueBytes = 16 << 20 // keys and values
	maxCount      = 1<<53 - 1
)

// ErrNoCounter matches what [KVScope.Add] returns for a value that is no counter.
var ErrNoCounter = errors.New("no counter")

// A KV keeps the small values and counters of guests in the file of a [Store], apart
// for every scope. No session they may tell of has to be there, and they stay when it
// is deleted. A value that has been seen to have ended has ended for every process,
// and for this one a clock that goes back has stopped. It is safe for concurrent use,
// by several processes too.
type KV struct {
	store *Store
	now   func() time.Time

	mu     sync.Mutex
	latest time.Time
}

// KV returns the values that the store keeps beside its sessions. now is the clock by
// which they end; nil is the real one.
func (s *Store) KV(now func() time.Time) *KV {
	if now == nil {
		now = time.Now
	}
	return &KV{store: s, now: now}
}

// Scope returns the values of one owner, such as a guard, in an app of a tenant.
func (k *KV) Scope(tenant, app, owner string) *KVScope {
	return &KVScope{k, tenant, app, owner}
}

// tick returns the time, which never goes back.
func (k *KV) tick() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.now(); now.After(k.latest) {
		k.latest = now
	}
	return k.latest
}

// A KVScope is what one owner keeps in a [KV]: at most 10,000 values and 16 MiB of
// keys and values. Those whose time is up make room. Values are JSON; a ttl is how
// long one lives, 0 until it is deleted. It is safe for concurrent use, by several
// processes too.
type KVScope struct {
	kv                 *KV
	tenant, app, owner string
}

// A kvValue is a row of kv.
type kvValue struct {
	data json.RawMessage
	ends sql.NullInt64 // as in the file
}

const inScope = ` tenant = ? AND app = ? AND owner = ?`

// args are the arguments of a statement that begins with those of inScope.
func (s *KVScope) args(more ...any) []any { return append([]any{s.tenant, s.app, s.owner}, more...) }

// get reads a value, ended or not; false means that there is none.
func (s *KVScope) get(ctx context.Context, tx *sql.Tx, key string) (kvValue, bool, error) {
	var v kvValue
	err := tx.QueryRowContext(ctx, `SELECT value, ends FROM kv WHERE`+inScope+` AND key = ?`, s.args(key)...).Scan((*[]byte)(&v.data), &v.ends)
	if errors.Is(err, sql.ErrNoRows) {
		return kvValue{}, false, nil
	}
	return v, err == nil, err
}

// write runs f on the values that have not ended, and deletes those that have.
func (s *KVScope) write(ctx context.Context, key string, f func(tx *sql.Tx, now time.Time) error) error {
	err := s.kv.store.update(ctx, func(tx *sql.Tx) error {
		now := s.kv.tick() // after the wait for others
		if _, err := tx.ExecContext(ctx, `DELETE FROM kv WHERE`+inScope+` AND ends <= ?`, s.args(now.UnixMicro())...); err != nil {
			return err
		}
		return f(tx, now)
	})
	return kvError(key, err)
}

// put writes a value if there is room. old is what it replaces.
func (s *KVScope) put(ctx context.Context, tx *sql.Tx, key string, v, old kvValue, there bool) error {
	if !there || len(v.data) > len(old.data) {
		var kept, bytes int
		if err := tx.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(size), 0) FROM kv WHERE`+inScope, s.args()...).Scan(&kept, &bytes); err != nil {
			return err
		}
		others, left := kept, maxValueBytes-bytes
		if there {
			others, left = kept-1, left+len(key)+len(old.data)
		}
		if others >= maxValues || len(key)+len(v.data) > left {
			return fmt.Errorf("%d values with %d bytes are kept: %d more bytes exceed limit %d values with %d bytes: %w",
				kept, bytes, len(key)+len(v.data), maxValues, maxValueBytes, session.ErrTooLarge)
		}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO kv (tenant, app, owner, key, value, size, ends) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET value = excluded.value, size = excluded.size, ends = excluded.ends`,
		s.args(key, []byte(v.data), len(key)+len(v.data), v.ends)...)
	return err
}

// kvEnds returns when a value ends that lives for ttl.
func kvEnds(now time.Time, ttl time.Duration) sql.NullInt64 {
	if ttl <= 0 {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: now.Add(ttl).UnixMicro(), Valid: true}
}

// Get returns a value; false means that there is none.
func (s *KVScope) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	var v kvValue
	var found bool
	err := s.kv.store.view(ctx, func(tx *sql.Tx) (err error) {
		v, found, err = s.get(ctx, tx, key)
		return err
	})
	switch {
	case err != nil:
		return nil, false, kvError(key, err)
	case v.ends.Valid && v.ends.Int64 <= s.kv.tick().UnixMicro():
		return nil, false, s.write(ctx, key, func(*sql.Tx, time.Time) error { return nil })
	}
	return v.data, found, nil
}

// Set replaces a value and its ttl. The value stays the caller's. No room is
// [session.ErrTooLarge].
func (s *KVScope) Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	return s.write(ctx, key, func(tx *sql.Tx, now time.Time) error {
		old, there, err := s.get(ctx, tx, key)
		if err != nil {
			return err
		}
		return s.put(ctx, tx, key, kvValue{value, kvEnds(now, ttl)}, old, there)
	})
}

// Delete removes a value. What is not there is no error.
func (s *KVScope) Delete(ctx context.Context, key string) error {
	return s.write(ctx, key, func(tx *sql.Tx, _ time.Time) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM kv WHERE`+inScope+` AND key = ?`, s.args(key)...)
		return err
	})
}

// Add adds n to a counter in one step, unless the sum of a positive n would exceed
// most or 2⁵³-1, and returns the counter and whether it was added. A counter that is
// not there is 0, and then takes ttl, which later additions leave as it is. A
// negative n takes away, down to 0. A value that is no whole number from 0 to 2⁵³-1
// is [ErrNoCounter]; no room is [session.ErrTooLarge].
func (s *KVScope) Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	var count int64
	var added bool
	err := s.write(ctx, key, func(tx *sql.Tx, now time.Time) error {
		v, there, err := s.get(ctx, tx, key)
		if err != nil {
			return err
		}
		if there {
			if count, err = strconv.ParseInt(string(v.data), 10, 64); err != nil || count < 0 || count > maxCount {
				return ErrNoCounter
			}
		}
		if most := min(most, maxCount); n > 0 && (n > most || count > most-n) {
			return nil
		}
		added = true
		sum := max(0, count+max(n, -maxCount))
		if sum == count {
			return nil
		}
		count = sum
		next := kvValue{strconv.AppendInt(nil, sum, 10), v.ends}
		if !there {
			next.ends = kvEnds(now, ttl)
		}
		return s.put(ctx, tx, key, next, v, there)
	})
	if err != nil {
		return 0, false, err
	}
	return count, added, nil
}

func kvError(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kv %s: %w", key, err)
}
