package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestMemoryKV(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	store := NewMemoryKV(func() time.Time { return now })
	kv, ctx := store.Scope(KVScope{Tenant: "acme", App: "desk", Owner: "guard quota"}), t.Context()
	get := func(kv KV, key string) string {
		v, found, err := kv.Get(ctx, key)
		if err != nil || found != (v != nil) {
			t.Fatalf("%s: %s %v, %v", key, v, found, err)
		}
		return string(v)
	}
	add := func(n, most int64, ttl time.Duration) string {
		count, added, err := kv.Add(ctx, "n", n, most, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(count, added)
	}
	value := json.RawMessage("1.50")
	for _, err := range []error{kv.Set(ctx, "a", value, 0), kv.Set(ctx, "b", value, time.Minute), kv.Delete(ctx, "none")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	value[0] = '9' // the caller's
	for _, s := range []KVScope{{Tenant: "other", App: "desk", Owner: "guard quota"}, {Tenant: "acme", App: "other", Owner: "guard quota"}, {Tenant: "acme", App: "desk", Owner: "plugin quota"}} {
		if got := get(store.Scope(s), "a"); got != "" {
			t.Errorf("%+v reads %s", s, got)
		}
	}
	if a, b := get(kv, "a"), get(kv, "b"); a != "1.50" || b != "1.50" {
		t.Errorf("read %s and %s", a, b)
	}
	// A window begins with its first addition, and does not move.
	got := []string{add(2, 3, time.Minute), add(2, 3, time.Hour), add(1, 3, time.Hour), add(-5, 0, 0), add(0, 0, 0), add(3, 3, 0)}
	now = now.Add(59 * time.Second)
	got = append(got, add(1, 3, time.Minute))
	now = now.Add(time.Second)
	got = append(got, add(1, 3, 0))
	now = now.Add(-time.Hour) // a clock that goes back opens no window again
	got = append(got, add(1, 3, 0), get(kv, "b"))
	if all := strings.Join(got, ", "); all != "2 true, 2 false, 3 true, 0 true, 0 true, 3 true, 3 false, 1 true, 2 true, " {
		t.Errorf("counter: %s", all)
	}
	if err := kv.Delete(ctx, "a"); err != nil || get(kv, "a") != "" {
		t.Errorf("deleted: %s, %v", get(kv, "a"), err)
	}
	const most = 1<<63 - 1
	for _, c := range []struct {
		value   string
		n, most int64
		want    string
	}{
		{"", most, most, "0 false"},
		{"", -most - 1, 0, "0 true"},
		{"9007199254740991", 1, most, "9007199254740991 false"},
		{"5", 1, 5, "5 false"},
		{"5", 1, 0, "5 false"},
		{"9", -1, 5, "8 true"}, // taking away is always possible
		{"9007199254740992", 1, most, "no counter"},
		{"-1", 1, 5, "no counter"},
		{"1.0", 1, 5, "no counter"},
		{`"1"`, 1, 5, "no counter"},
	} {
		if err := kv.Delete(ctx, "c"); err != nil {
			t.Fatal(err)
		}
		if c.value != "" {
			if err := kv.Set(ctx, "c", json.RawMessage(c.value), 0); err != nil {
				t.Fatal(err)
			}
		}
		count, added, err := kv.Add(ctx, "c", c.n, c.most, 0)
		if got := fmt.Sprint(count, added); err == nil && got != c.want || err != nil && (c.want != "no counter" || !errors.Is(err, ErrNoCounter)) {
			t.Errorf("%s + %d, most %d: %s, %v, want %s", c.value, c.n, c.most, got, err, c.want)
		}
	}
}

// Additions that happen at the same time are all counted, and none past the most.
func TestMemoryKVTogether(t *testing.T) {
	kv := NewMemoryKV(nil).Scope(KVScope{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	added := 0
	seen := map[int64]bool{}
	for range 8 {
		wg.Go(func() {
			for range 250 {
				count, ok, err := kv.Add(t.Context(), "n", 1, 1000, time.Hour)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if ok {
					added++
					if seen[count] {
						t.Errorf("two saw the sum %d", count)
					}
					seen[count] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if added != 1000 {
		t.Errorf("%d of 2000 were added, want 1000", added)
	}
}

func TestMemoryKVIsBounded(t *testing.T) {
	now := time.Now()
	kv := NewMemoryKV(func() time.Time { return now }).Scope(KVScope{})
	for i := range MaxKVKeys {
		if err := kv.Set(t.Context(), fmt.Sprint(i), json.RawMessage("1"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := kv.Set(t.Context(), "more", json.RawMessage("1"), 0); !errors.Is(err, ErrFull) {
		t.Errorf("one value more: %v", err)
	}
	if _, _, err := kv.Add(t.Context(), "more", 1, 1, 0); !errors.Is(err, ErrFull) {
		t.Errorf("one counter more: %v", err)
	}
	if err := kv.Set(t.Context(), "0", json.RawMessage("2"), time.Minute); err != nil {
		t.Errorf("a value that is there: %v", err)
	}
	now = now.Add(time.Minute)
	big := json.RawMessage(strings.Repeat("1", MaxKVScopeBytes-10))
	if err := kv.Set(t.Context(), "more", big, 0); err != nil {
		t.Errorf("when the others have ended: %v", err)
	}
	if err := kv.Set(t.Context(), "0123456789", json.RawMessage("1"), 0); !errors.Is(err, ErrFull) {
		t.Errorf("more bytes: %v", err)
	}
}

// brokenKV is a store that is down.
type brokenKV struct{ err error }

func (b brokenKV) Get(context.Context, string) (json.RawMessage, bool, error) {
	return nil, false, b.err
}
func (b brokenKV) Set(context.Context, string, json.RawMessage, time.Duration) error {
	return b.err
}
func (b brokenKV) Delete(context.Context, string) error { return b.err }
func (b brokenKV) Add(context.Context, string, int64, int64, time.Duration) (int64, bool, error) {
	return 0, false, b.err
}

var kvCalls = []string{"kv_get", `{"key":"a"}`, "kv_set", `{"key":"a","value":1}`, "kv_add", `{"key":"a","n":1,"most":1}`, "kv_delete", `{"key":"a"}`}

func TestKVFails(t *testing.T) {
	m := loadGo(t)
	for _, c := range []struct {
		err  error
		code abi.Code
	}{
		{errors.New("disk /var/lib/kv is full"), abi.StorageUnavailable},
		{fmt.Errorf("kv: %w", ErrFull), abi.QuotaExceeded},
		{fmt.Errorf("kv: %w", ErrNoCounter), abi.ArgsInvalid},
	} {
		out, _ := ask(t, m, &Call{Grants: grants(t, "kv read,write"), Access: Access{KV: brokenKV{c.err}}}, kvCalls...)
		for i, r := range out {
			if code := r.code(t); code != c.code || strings.Contains(r.Text, "/var") {
				t.Errorf("%s: %s %s, want %s", kvCalls[2*i], code, r.Text, c.code)
			}
		}
	}
}

// Each verb has its own grant, and writing is not reading.
func TestKVGrants(t *testing.T) {
	for line, want := range map[string]string{"kv read": "read", "kv write": "write", "memory search": "", "kv read,write": "read write"} {
		w := newWorld()
		out, _ := ask(t, loadGo(t), &Call{Grants: grants(t, line), Access: w.access()}, kvCalls...)
		for i, r := range out {
			verb := "write"
			if kvCalls[2*i] == "kv_get" {
				verb = "read"
			}
			if allowed := strings.Contains(want, verb); r.Error == allowed {
				t.Errorf("%s: %s %+v", line, kvCalls[2*i], r)
			}
		}
	}
}

// What a call leaves counts to what it may have kept, whichever way it is kept. What
// does not fit leaves nothing.
func TestStored(t *testing.T) {
	w := newWorld()
	c := &Call{Grants: grants(t, everyGrant...), Access: w.access(), Limits: Limits{StoredBytes: 60}}
	calls := []string{
		"kv_set", `{"key":"a","value":"0123456789"}`, // 13 bytes
		"artifact_save", "{\"name\":\"b.csv\"}\x000123456789", // 10
		"state_set", `{"values":{"session:x":1}}`, // 10
		"emit", `{"chunk":"0123456789"}`, // 12
		"kv_set", `{"key":"b","value":"0123456789012"}`, // 16 do not fit
		"artifact_save", "{\"name\":\"c.csv\"}\x000123456789012345", // 16
		"state_set", `{"values":{"session:y":"01234"}}`, // 16
		"emit", `{"chunk":"01234567890123"}`, // 16
		"kv_add", `{"key":"0123456789012345","n":1,"most":1}`, // 16
		"kv_add", `{"key":"n","n":1,"most":1}`,
	}
	out, _ := ask(t, loadGo(t), c, calls...)
	for i, r := range out {
		want := abi.Code("")
		if i >= 4 && i <= 8 {
			want = abi.QuotaExceeded
		}
		if got := r.code(t); got != want {
			t.Errorf("%s %s: %q, want %q", calls[2*i], calls[2*i+1], got, want)
		}
	}
	_, there, _ := w.kv.Scope(KVScope{}).Get(t.Context(), "b")
	if there || w.state["session:y"] != nil || w.artifacts["c.csv "] != nil || len(w.chunks) != 1 {
		t.Error("what does not fit was kept")
	}
}

func TestMemorySearch(t *testing.T) {
	w := newWorld()
	c := &Call{Grants: grants(t, "memory search"), Access: w.access()}
	long, _ := abi.Marshal(abi.MemorySearch{Query: strings.Repeat("x", abi.MaxQueryBytes+1)})
	out, _ := ask(t, loadGo(t), c, "memory_search", `{"query":"much"}`, "memory_search", `{"query":"broken"}`, "memory_search", string(long))
	var found abi.MemoryEntries
	if err := abi.Decode([]byte(out[0].Text), &found); err != nil || len(found.Entries) != abi.MaxMemoryBytes/(10<<10) {
		t.Errorf("found %d, %v", len(found.Entries), err)
	}
	if out[1].code(t) != abi.StorageUnavailable || strings.Contains(out[1].Text, "/var") || out[2].code(t) != abi.ArgsInvalid {
		t.Errorf("broken: %+v, long: %+v", out[1], out[2])
	}
}
