package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A scope holds 10,000 values; what has ended makes room.
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
	if err := kv.Set(t.Context(), "more", json.RawMessage("1"), 0); err != nil {
		t.Errorf("when the others have ended: %v", err)
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
