package hosttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
)

// TestKV tests the contract of [host.KVStore] as subtests of t. It calls open for
// each of them; open returns one empty store as each of its users sees it, such as
// one process each, with values that end by the clock now, and has t close what it
// opened. The number of values in one scope is not tested. Run it with the race
// detector.
func TestKV(t *testing.T, open func(t *testing.T, now func() time.Time) []host.KVStore) {
	for name, test := range map[string]func(*testing.T, func(func() time.Time) []host.KVStore){
		"values": testKVValues, "counters": testKVCounters, "no counters": testKVNoCounters, "time": testKVTime, "together": testKVTogether, "bytes": testKVBytes,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(now func() time.Time) []host.KVStore { return open(t, now) })
		})
	}
}

var kvScope = host.KVScope{Tenant: "acme", App: "desk", Owner: "guard quota"}

// kvUsers returns one scope of a store as its first and its last user see it.
func kvUsers(stores []host.KVStore) (first, last host.KV) {
	return stores[0].Scope(kvScope), stores[len(stores)-1].Scope(kvScope)
}

// kvText is the value of a key; empty: there is none.
func kvText(t *testing.T, kv host.KV, key string) string {
	t.Helper()
	v, found, err := kv.Get(t.Context(), key)
	if err != nil || found != (v != nil) {
		t.Fatalf("%s: %s %v, %v", key, v, found, err)
	}
	return string(v)
}

func testKVValues(t *testing.T, open func(func() time.Time) []host.KVStore) {
	stores := open(nil)
	kv, last := kvUsers(stores)
	value := json.RawMessage("1.50")
	for _, err := range []error{kv.Set(t.Context(), "a", value, 0), kv.Set(t.Context(), "b", value, time.Hour), kv.Delete(t.Context(), "none")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	value[0] = '9' // the caller's
	for _, s := range []host.KVScope{
		{Tenant: "other", App: "desk", Owner: "guard quota"}, {Tenant: "acme", App: "other", Owner: "guard quota"}, {Tenant: "acme", App: "desk", Owner: "plugin quota"},
		{App: "desk", Owner: "guard quota"}, {Tenant: "acmedesk", Owner: "guard quota"},
	} {
		kv := stores[0].Scope(s)
		if got := kvText(t, kv, "a"); got != "" {
			t.Errorf("%+v reads %s", s, got)
		}
		if err := kv.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := kvText(t, last, "a"), kvText(t, last, "b"); a != "1.50" || b != "1.50" {
		t.Errorf("read %s and %s", a, b)
	}
	got, _, err := last.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	got[0] = '9' // the caller's
	if err := kv.Set(t.Context(), "b", json.RawMessage(`"x"`), 0); err != nil {
		t.Fatal(err)
	}
	if a, b := kvText(t, last, "a"), kvText(t, last, "b"); a != "1.50" || b != `"x"` {
		t.Errorf("read %s and %s", a, b)
	}
	if err := kv.Delete(t.Context(), "a"); err != nil || kvText(t, last, "a") != "" || kvText(t, last, "b") == "" {
		t.Errorf("deleted: %s, %v", kvText(t, last, "a"), err)
	}
}

// A window begins with its first addition, and does not move.
func testKVCounters(t *testing.T, open func(func() time.Time) []host.KVStore) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	kv, last := kvUsers(open(func() time.Time { return now }))
	add := func(n, most int64, ttl time.Duration) string {
		kv, last = last, kv // whoever adds, it is the same counter
		count, added, err := kv.Add(t.Context(), "n", n, most, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(count, added)
	}
	got := []string{add(2, 3, time.Minute), add(2, 3, time.Hour), add(1, 3, time.Hour), add(-5, 0, 0), add(0, 0, 0), add(3, 3, 0)}
	now = now.Add(59 * time.Second)
	got = append(got, add(1, 3, time.Minute))
	now = now.Add(time.Second)
	got = append(got, add(1, 3, 0))
	now = now.Add(-time.Hour) // a clock that goes back opens no window again
	got = append(got, add(1, 3, 0))
	if all := strings.Join(got, ", "); all != "2 true, 2 false, 3 true, 0 true, 0 true, 3 true, 3 false, 1 true, 2 true" {
		t.Errorf("counter: %s", all)
	}
}

func testKVNoCounters(t *testing.T, open func(func() time.Time) []host.KVStore) {
	kv, _ := kvUsers(open(nil))
	const most = 1<<63 - 1
	for _, c := range []struct {
		value   string
		n, most int64
		want    string
	}{
		{"", most, most, "0 false"},
		{"", -most - 1, 0, "0 true"},
		{"9007199254740991", 1, most, "9007199254740991 false"},
		{"9007199254740990", 1, most, "9007199254740991 true"},
		{"5", 1, 5, "5 false"},
		{"5", 1, 0, "5 false"},
		{"9", -1, 5, "8 true"}, // taking away is always possible
		{"9007199254740992", 1, most, "no counter"},
		{"-1", 1, 5, "no counter"},
		{"1.0", 1, 5, "no counter"},
		{`"1"`, 1, 5, "no counter"},
	} {
		if err := kv.Delete(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if c.value != "" {
			if err := kv.Set(t.Context(), "c", json.RawMessage(c.value), 0); err != nil {
				t.Fatal(err)
			}
		}
		count, added, err := kv.Add(t.Context(), "c", c.n, c.most, 0)
		got := fmt.Sprint(count, added)
		if errors.Is(err, host.ErrNoCounter) {
			got = "no counter"
		} else if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%s + %d, most %d: %s, want %s", c.value, c.n, c.most, got, c.want)
		}
		if left := kvText(t, kv, "c"); got == "no counter" && left != c.value {
			t.Errorf("%s is %s after an addition that failed", c.value, left)
		}
	}
}

// What has ended is not there, and does not come back with a clock that goes back.
func testKVTime(t *testing.T, open func(func() time.Time) []host.KVStore) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	kv, last := kvUsers(open(func() time.Time { return now }))
	for key, ttl := range map[string]time.Duration{"short": time.Minute, "long": time.Hour, "endless": 0} {
		if err := kv.Set(t.Context(), key, json.RawMessage("1"), ttl); err != nil {
			t.Fatal(err)
		}
	}
	all := func(kv host.KV) string {
		return fmt.Sprintf("%q %q %q", kvText(t, kv, "short"), kvText(t, kv, "long"), kvText(t, kv, "endless"))
	}
	for _, c := range []struct {
		by   time.Duration
		want string
	}{
		{time.Minute - time.Millisecond, `"1" "1" "1"`},
		{time.Millisecond, `"" "1" "1"`},
		{-time.Minute, `"" "1" "1"`},
		{time.Hour, `"" "" "1"`},
		{-time.Hour, `"" "" "1"`},
	} {
		now = now.Add(c.by)
		if a, b := all(kv), all(last); a != c.want || b != c.want {
			t.Errorf("%v: %s and %s, want %s", c.by, a, b, c.want)
		}
	}
}

// Additions that happen at the same time are all counted, and none past the most.
func testKVTogether(t *testing.T, open func(func() time.Time) []host.KVStore) {
	stores := open(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	added := 0
	seen := map[int64]bool{}
	for i := range 8 {
		kv := stores[i%len(stores)].Scope(kvScope)
		wg.Go(func() {
			for range 25 {
				count, ok, err := kv.Add(t.Context(), "n", 1, 100, time.Hour)
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
	kv, _ := kvUsers(stores)
	if sum := kvText(t, kv, "n"); added != 100 || sum != "100" {
		t.Errorf("%d of 200 were added and the sum is %s, want 100", added, sum)
	}
}

// A scope holds 16 MiB of keys and values. What has ended makes room.
func testKVBytes(t *testing.T, open func(func() time.Time) []host.KVStore) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	stores := open(func() time.Time { return now })
	kv, last := kvUsers(stores)
	set := func(key string, size int, ttl time.Duration) error {
		return kv.Set(t.Context(), key, json.RawMessage(strings.Repeat("1", size)), ttl)
	}
	full := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, host.ErrFull) {
			t.Errorf("%s: %v, want %v", what, err, host.ErrFull)
		}
	}
	if err := set("big", host.MaxKVScopeBytes-4, time.Minute); err != nil { // with its key one byte is left
		t.Fatal(err)
	}
	full("one value more", set("k", 1, 0))
	_, _, err := last.Add(t.Context(), "n", 1, 1, 0)
	full("one counter more", err)
	full("two bytes more", set("big", host.MaxKVScopeBytes-2, time.Minute))
	if v := kvText(t, last, "big"); len(v) != host.MaxKVScopeBytes-4 {
		t.Errorf("%d bytes are left", len(v))
	}
	if err := stores[0].Scope(host.KVScope{}).Set(t.Context(), "k", json.RawMessage("1"), 0); err != nil {
		t.Errorf("another scope: %v", err)
	}
	if err := set("big", host.MaxKVScopeBytes-3, time.Minute); err != nil {
		t.Errorf("one byte more: %v", err)
	}
	now = now.Add(time.Minute)
	if err := set("k", host.MaxKVScopeBytes-1, 0); err != nil {
		t.Errorf("when the other has ended: %v", err)
	}
	full("an empty scope that is full", set("l", 1, 0))
}
