package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// A keptKV is the kv of a session store, seen as the host's.
type keptKV struct{ kv *sqlite.KV }

// Scope implements [host.KVStore].
func (k keptKV) Scope(s host.KVScope) host.KV {
	return keptScope{k.kv.Scope(s.Tenant, s.App, s.Owner)}
}

type keptScope struct{ *sqlite.KVScope }

// Set implements [host.KV].
func (s keptScope) Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	return hostError(s.KVScope.Set(ctx, key, value, ttl))
}

// Add implements [host.KV].
func (s keptScope) Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	count, added, err := s.KVScope.Add(ctx, key, n, most, ttl)
	return count, added, hostError(err)
}

// hostError tells the host's kinds of errors apart, as guests do; every other one is
// a store that cannot be used.
func hostError(err error) error {
	switch {
	case errors.Is(err, session.ErrTooLarge):
		return fmt.Errorf("%w: %w", host.ErrFull, err)
	case errors.Is(err, sqlite.ErrNoCounter):
		return fmt.Errorf("%w: %w", host.ErrNoCounter, err)
	}
	return err
}
