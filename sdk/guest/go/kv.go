package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A KV keeps small values and counters between calls, seen by this plugin or guard
// alone. Reading needs the grant kv read, everything else kv write. Keys are 1 to
// 256 bytes, values at most abi.MaxKVBytes (64 KiB). A ttl is how long a value
// lives, in milliseconds, rounded up, up to 366 days; 0: until it is deleted. A host
// call that had no effect returns a [*HostError].
type KV struct{ wall wall }

// KV returns the values and counters of the plugin.
func (c *Call) KV() KV { return KV{c.wall} }

// KV returns the values and counters of the guard. What it answers is recorded with
// the question, so that this can be judged again. A guard that cannot read or count
// should deny.
func (q *Question) KV() KV { return KV{q.wall} }

// Get reads a value into a pointer and reports whether it was there.
func (kv KV) Get(key string, into any) (bool, error) {
	reply, err := kv.ask("kv_get", abi.KVKey{Key: key})
	if err != nil {
		return false, err
	}
	return readValue("kv", key, reply, into)
}

// Set writes a value, at once and whatever becomes of the call.
func (kv KV) Set(key string, value any, ttl time.Duration) error {
	data, err := abi.Marshal(value)
	if err != nil {
		return fmt.Errorf("kv %s: %w", key, err)
	}
	_, err = kv.ask("kv_set", abi.KVSet{Key: key, Value: data, TTLMillis: millis(ttl)})
	return err
}

// Delete removes a value. What is not there is no error.
func (kv KV) Delete(key string) error {
	_, err := kv.ask("kv_delete", abi.KVKey{Key: key})
	return err
}

// Add adds n to a counter in one step, unless the sum would exceed most, and
// returns the counter and whether n was added. Of calls that run at the same time no
// two see the same sum. A counter that is not there is 0, and then lives for ttl,
// which later additions leave as it is. A negative n takes away, down to 0. Numbers
// are at most abi.MaxCount.
func (kv KV) Add(key string, n, most int64, ttl time.Duration) (count int64, added bool, err error) {
	reply, err := kv.ask("kv_add", abi.KVAdd{Key: key, N: n, Most: most, TTLMillis: millis(ttl)})
	if err != nil {
		return 0, false, err
	}
	var c abi.KVCount
	if err := json.Unmarshal(reply, &c); err != nil {
		return 0, false, fmt.Errorf("kv_add: reply: %w", err)
	}
	return c.Count, c.Added, nil
}

// millis rounds up, because 0 lives for ever.
func millis(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

func (kv KV) ask(function string, request any) ([]byte, error) {
	if kv.wall == nil {
		return nil, errors.New(function + ": a question made by hand has no host")
	}
	return (&Call{wall: kv.wall}).ask(function, request, nil)
}

// A MemoryEntry is one thing that was said in an earlier session of the user.
type MemoryEntry = abi.MemoryEntry

// SearchMemory finds what was said in earlier sessions of the user. The query is at
// most abi.MaxQueryBytes, and at most abi.MaxMemoryEntries are found.
func (c *Call) SearchMemory(query string) ([]MemoryEntry, error) {
	reply, err := c.ask("memory_search", abi.MemorySearch{Query: query}, nil)
	if err != nil {
		return nil, err
	}
	var found abi.MemoryEntries
	if err := json.Unmarshal(reply, &found); err != nil {
		return nil, fmt.Errorf("memory_search: reply: %w", err)
	}
	return found.Entries, nil
}
