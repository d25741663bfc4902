package guesttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// An access is what one call finds and changes of a Host. It implements the interfaces
// of package host, as a session does in an app.
type access struct {
	host     *Host
	res      *Result
	readOnly bool
	wrote    map[string]string // state
	kv       host.KV
	shows    *kept // kv, if it is what the field KV shows; or nil
}

// open makes the access of a call at a time; owner is whose kv it is.
func (h *Host) open(t *testing.T, owner string, now time.Time, res *Result) *access {
	t.Helper()
	for _, key := range sortedKeys(h.State) {
		if err := validKey(key); err != nil {
			t.Fatalf("guesttest: %v", err)
		}
		value, err := abi.Canonical([]byte(h.State[key]))
		if err != nil {
			t.Fatalf("guesttest: state %s: %v", key, err)
		}
		h.State[key] = string(value)
	}
	for _, name := range sortedKeys(h.Artifacts) {
		if err := validArtifact(name); err != nil {
			t.Fatalf("guesttest: %v", err)
		}
		if v := h.versions[name]; len(v) == 0 || v[len(v)-1] != h.Artifacts[name] {
			h.add(name, h.Artifacts[name])
		}
	}
	a := &access{host: h, res: res, wrote: map[string]string{}}
	if h.kv == nil {
		h.owner, h.kv = owner, host.NewMemoryKV(func() time.Time { return h.clock })
	}
	if h.owner != owner {
		t.Fatalf("guesttest: a Host that was used for %s is used for %s: make another", h.owner, owner)
	}
	h.clock = now
	scope := host.KVScope{App: "guesttest", Owner: owner}
	if h.KVStore != nil {
		if len(h.KV) > 0 {
			t.Fatal("guesttest: KV and KVStore exclude each other")
		}
		a.kv = h.KVStore.Scope(scope)
		return a
	}
	a.shows = &kept{host: h, KV: h.kv.Scope(scope)}
	a.kv = a.shows
	if err := a.shows.fill(); err != nil {
		t.Fatalf("guesttest: %v", err)
	}
	return a
}

// close makes what the call did part of the Host.
func (a *access) close() {
	if len(a.wrote) > 0 && a.host.State == nil {
		a.host.State = map[string]string{}
	}
	maps.Copy(a.host.State, a.wrote)
	if a.shows != nil {
		a.shows.read(append(slices.Collect(maps.Keys(a.host.KV)), a.shows.wrote...))
	}
}

func (h *Host) seed() []byte { return []byte(fmt.Sprint(h.Seed)) }

func (h *Host) secrets(t *testing.T) *host.Secrets {
	t.Helper()
	s, err := host.NewSecrets(h.Secrets)
	if err != nil {
		t.Fatalf("guesttest: %v", err)
	}
	return s
}

// validKey refuses keys of state that are in no scope.
func validKey(key string) error {
	scopes := []string{"user:", "app:", "temp:"}
	rest, unprefixed := strings.CutPrefix(key, "session:")
	scoped := slices.ContainsFunc(scopes, func(s string) bool { return strings.HasPrefix(rest, s) })
	switch {
	case unprefixed && (rest == "" || scoped):
		return fmt.Errorf("state key %q: not a key of the session", key)
	case !unprefixed && !scoped:
		return fmt.Errorf("state key %q: want session:, user:, app: or temp: in front", key)
	}
	return nil
}

// errReadOnly is why nothing can be changed at some points.
var errReadOnly = errors.New("state and artifacts cannot be changed here")

// Get implements [host.State].
func (a *access) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	if err := validKey(key); err != nil {
		return nil, false, err
	}
	if v, ok := a.wrote[key]; ok {
		return json.RawMessage(v), true, nil
	}
	v, ok := a.host.State[key]
	if !ok {
		return nil, false, nil
	}
	return json.RawMessage(v), true, nil
}

// Set implements [host.State].
func (a *access) Set(_ context.Context, values map[string]json.RawMessage) error {
	for key, value := range values {
		if err := errors.Join(validKey(key), abi.CheckDepth(value)); err != nil {
			return err
		}
	}
	if a.readOnly {
		return errReadOnly
	}
	for key, value := range values {
		a.wrote[key] = string(value)
	}
	return nil
}

// validArtifact refuses names that no artifact may have.
func validArtifact(name string) error {
	rest := strings.TrimPrefix(name, "user:")
	if len(name) > 512 || rest == "" {
		return fmt.Errorf("artifact name: %d bytes: want 1 to 512", len(name))
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("artifact name %.80q: segment %.80q is not allowed", name, segment)
		}
	}
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < ' ' || r == '\\' || r == ':' || r == 0x7f }); i >= 0 {
		return fmt.Errorf("artifact name %.80q: %q is not allowed", name, rest[i])
	}
	return nil
}

// add adds a version of an artifact.
func (h *Host) add(name, data string) int64 {
	if h.versions == nil {
		h.versions = map[string][]string{}
	}
	h.versions[name] = append(h.versions[name], data)
	return int64(len(h.versions[name]))
}

// List implements [host.Artifacts].
func (a *access) List(context.Context) ([]string, error) {
	return sortedKeys(a.host.versions), nil
}

// Read implements [host.Artifacts].
func (a *access) Read(_ context.Context, name string, version, offset int64, n int) ([]byte, error) {
	all := a.host.versions[name]
	if version == 0 {
		version = int64(len(all))
	}
	if version < 1 || version > int64(len(all)) {
		return nil, host.ErrNotFound
	}
	data := all[version-1]
	if offset >= int64(len(data)) {
		return nil, nil
	}
	data = data[offset:]
	return []byte(data[:min(n, len(data))]), nil
}

// Save implements [host.Artifacts].
func (a *access) Save(_ context.Context, name, mime string, data []byte) (int64, error) {
	if err := validArtifact(name); err != nil {
		return 0, err
	}
	if a.readOnly {
		return 0, errReadOnly
	}
	text := string(data)
	if h := a.host; h.Artifacts == nil {
		h.Artifacts = map[string]string{}
	}
	a.host.Artifacts[name] = text
	return a.host.add(name, text), nil
}

// Search implements [host.Memory].
func (a *access) Search(_ context.Context, query string) ([]abi.MemoryEntry, error) {
	if a.host.Memory == nil {
		return nil, nil
	}
	return a.host.Memory(query), nil
}

// emit takes a chunk as the model reads it: a text as it is, anything else as JSON.
func (res *Result) emit(_ context.Context, chunk json.RawMessage) error {
	var text string
	if json.Unmarshal(chunk, &text) != nil {
		text = string(chunk)
	}
	res.Chunks = append(res.Chunks, text)
	return nil
}

// actions are what the call with that id may ask of the flow.
func (a *access) actions(id string) host.Actions { return &actions{a.res, id} }

type actions struct {
	res *Result
	id  string
}

// Confirm implements [host.Actions].
func (a *actions) Confirm(hint string, payload json.RawMessage) error {
	if err := abi.CheckDepth(payload); err != nil {
		return fmt.Errorf("confirmation: payload: %w", err)
	}
	a.res.Asked = &guest.Confirmation{Hint: hint, Payload: slices.Clone(payload)}
	a.res.SkipSummary = true
	return nil
}

// Transfer implements [host.Actions].
func (a *actions) Transfer(agent string) error {
	if agent == "" {
		return errors.New("transfer: no agent named")
	}
	a.res.Transfer = agent
	return nil
}

// Escalate implements [host.Actions].
func (a *actions) Escalate() error {
	a.res.Escalate = true
	return nil
}

// SkipSummary implements [host.Actions].
func (a *actions) SkipSummary() error {
	a.res.SkipSummary = true
	return nil
}

// kept is the kv of one owner, which the field KV of a Host shows.
type kept struct {
	host.KV
	host  *Host
	wrote []string // keys
}

// fill makes of the store what the field was made by the test.
func (k *kept) fill() error {
	ctx := context.Background()
	for _, key := range sortedKeys(k.host.KV) {
		text := k.host.KV[key]
		if shown, ok := k.host.shown[key]; ok && shown == text {
			continue // which may have an end
		}
		value, err := abi.Canonical([]byte(text))
		if err == nil && len(value) > abi.MaxKVBytes {
			err = fmt.Errorf("value of %d bytes exceeds %d", len(value), abi.MaxKVBytes)
		}
		if err == nil {
			err = k.KV.Set(ctx, key, value, 0)
		}
		if err != nil {
			return fmt.Errorf("kv %s: %w", key, err)
		}
	}
	for key := range k.host.shown {
		if _, ok := k.host.KV[key]; !ok {
			_ = k.KV.Delete(ctx, key) // this store never fails
		}
	}
	k.read(slices.Collect(maps.Keys(k.host.KV)))
	return nil
}

// read makes the field show what the store has under these keys.
func (k *kept) read(keys []string) {
	k.host.KV, k.host.shown = map[string]string{}, map[string]string{}
	for _, key := range keys {
		if value, found, _ := k.KV.Get(context.Background(), key); found {
			k.host.KV[key], k.host.shown[key] = string(value), string(value)
		}
	}
}

// Set implements [host.KV].
func (k *kept) Set(ctx context.Context, key string, value json.RawMessage, ttl time.Duration) error {
	k.wrote = append(k.wrote, key)
	return k.KV.Set(ctx, key, value, ttl)
}

// Add implements [host.KV].
func (k *kept) Add(ctx context.Context, key string, n, most int64, ttl time.Duration) (int64, bool, error) {
	k.wrote = append(k.wrote, key)
	return k.KV.Add(ctx, key, n, most, ttl)
}
