package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A KVAnswer is what a [host.KV] answered to one host call of a guard.
type KVAnswer struct {
	Call  string          `json:"call"` // as in abi.HostFunctions
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"` // kv_get
	Count *abi.KVCount    `json:"count,omitempty"` // kv_add
	Error string          `json:"error,omitempty"`
}

// errNotRecorded is what a replay says of a call that is not the next of the
// recorded ones.
var errNotRecorded = errors.New("not recorded")

// maxKVRecord bounds the keys and values that one judgement may read and write, so
// that its record is short.
const maxKVRecord = 64 << 10

// A kvRecorder keeps what a kv answers, in order, so that a judgement can be made
// again.
type kvRecorder struct {
	kv      host.KV
	answers []KVAnswer
	size    int
	full    bool // an answer was not kept, so there can be no verdict
}

func (r *kvRecorder) kept(a KVAnswer, err error) {
	r.size += len(a.Key) + len(a.Value)
	if r.full = r.full || r.size > maxKVRecord; r.full {
		return
	}
	switch {
	case errors.Is(err, host.ErrFull):
		a.Error = host.ErrFull.Error()
	case errors.Is(err, host.ErrNoCounter):
		a.Error = host.ErrNoCounter.Error()
	case err != nil:
		a.Error = string(abi.StorageUnavailable)
	}
	r.answers = append(r.answers, a)
}

func (r *kvRecorder) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	value, found, err := r.kv.Get(ctx, key)
	r.kept(KVAnswer{Call: "kv_get", Key: key, Value: value}, err)
	return value, found, err
}

func (r *kvRecorder) Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	err := r.kv.Set(ctx, key, value, ttl)
	r.kept(KVAnswer{Call: "kv_set", Key: key}, err)
	return err
}

func (r *kvRecorder) Delete(ctx context.Context, key string) error {
	err := r.kv.Delete(ctx, key)
	r.kept(KVAnswer{Call: "kv_delete", Key: key}, err)
	return err
}

func (r *kvRecorder) Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	count, added, err := r.kv.Add(ctx, key, n, most, ttl)
	r.kept(KVAnswer{Call: "kv_add", Key: key, Count: &abi.KVCount{Added: added, Count: count}}, err)
	return count, added, err
}

// A kvReplay gives recorded answers, in their order, and changes nothing.
type kvReplay struct {
	left    []KVAnswer
	strayed error // the guard asked something else, so it does not judge as it did
}

func (r *kvReplay) next(call, key string) (KVAnswer, error) {
	if len(r.left) == 0 || r.left[0].Call != call || r.left[0].Key != key {
		r.strayed = fmt.Errorf("%s %s: %w", call, key, errNotRecorded)
		return KVAnswer{}, r.strayed
	}
	a := r.left[0]
	r.left = r.left[1:]
	switch a.Error {
	case "":
		return a, nil
	case host.ErrFull.Error():
		return a, host.ErrFull
	case host.ErrNoCounter.Error():
		return a, host.ErrNoCounter
	}
	return a, errors.New(a.Error)
}

func (r *kvReplay) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	a, err := r.next("kv_get", key)
	return a.Value, a.Value != nil, err
}

func (r *kvReplay) Set(_ context.Context, key string, _ json.RawMessage, _ time.Duration) error {
	_, err := r.next("kv_set", key)
	return err
}

func (r *kvReplay) Delete(_ context.Context, key string) error {
	_, err := r.next("kv_delete", key)
	return err
}

func (r *kvReplay) Add(_ context.Context, key string, _, _ int64, _ time.Duration) (int64, bool, error) {
	a, err := r.next("kv_add", key)
	if err != nil || a.Count == nil {
		return 0, false, cmp.Or(err, errNotRecorded)
	}
	return a.Count.Count, a.Count.Added, nil
}
