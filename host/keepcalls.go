package host

import (
	"errors"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// keepFunctions are the host calls for what outlives a call beside the session: kv
// and memory.
var keepFunctions = []hostFunction{
	{"kv_get", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.KVKey
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "kv_get: %v", err)
		}
		kv, no := u.kv(h, "kv read", u.grants().KVRead(), r.Key, 0)
		if no != nil {
			return nil, no
		}
		value, found, err := kv.Get(u.lend(), r.Key)
		switch {
		case err != nil:
			return nil, u.kvFailed(h, err)
		case len(value) > abi.MaxKVBytes:
			return nil, refuse(abi.ArgsInvalid, "kv %s: value of %d bytes exceeds %d", r.Key, len(value), abi.MaxKVBytes)
		}
		return reply(abi.StateValue{Found: found, Value: value})
	}},
	{"kv_set", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.KVSet
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "kv_set: %v", err)
		}
		kv, no := u.kv(h, "kv write", u.grants().KVWrite(), r.Key, r.TTLMillis)
		switch {
		case no != nil:
			return nil, no
		case len(r.Value) == 0 || len(r.Value) > abi.MaxKVBytes:
			return nil, refuse(abi.ArgsInvalid, "kv %s: value of %d bytes: want 1 to %d", r.Key, len(r.Value), abi.MaxKVBytes)
		}
		if full := u.store("kv_set", int64(len(r.Key)+len(r.Value))); full != nil {
			return nil, full
		}
		return nil, u.kvFailed(h, kv.Set(u.lend(), r.Key, r.Value, ttl(r.TTLMillis)))
	}},
	{"kv_delete", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.KVKey
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "kv_delete: %v", err)
		}
		kv, no := u.kv(h, "kv write", u.grants().KVWrite(), r.Key, 0)
		if no != nil {
			return nil, no
		}
		return nil, u.kvFailed(h, kv.Delete(u.lend(), r.Key))
	}},
	{"kv_add", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.KVAdd
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "kv_add: %v", err)
		}
		kv, no := u.kv(h, "kv write", u.grants().KVWrite(), r.Key, r.TTLMillis)
		switch {
		case no != nil:
			return nil, no
		case r.N < -abi.MaxCount || r.N > abi.MaxCount || r.Most < 0 || r.Most > abi.MaxCount:
			return nil, refuse(abi.ArgsInvalid, "kv %s: n %d and most %d: want at most %d, and most not negative", r.Key, r.N, r.Most, int64(abi.MaxCount))
		}
		if full := u.store("kv_add", int64(len(r.Key))); full != nil {
			return nil, full
		}
		count, added, err := kv.Add(u.lend(), r.Key, r.N, r.Most, ttl(r.TTLMillis))
		if err != nil {
			return nil, u.kvFailed(h, err)
		}
		return reply(abi.KVCount{Added: added, Count: count})
	}},
	{"memory_search", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.MemorySearch
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "memory_search: %v", err)
		}
		h.Detail, h.Need = printable(r.Query, 80), "memory search"
		if no := u.permit(h.Need, u.grants().Has("memory"), u.call.Access.Memory != nil); no != nil {
			return nil, no
		}
		if len(r.Query) > abi.MaxQueryBytes {
			return nil, refuse(abi.ArgsInvalid, "memory_search: query of %d bytes exceeds %d", len(r.Query), abi.MaxQueryBytes)
		}
		found, err := u.call.Access.Memory.Search(u.lend(), r.Query)
		if err != nil {
			return nil, u.broken("memory_search", err)
		}
		return reply(abi.MemoryEntries{Entries: fitting(found)})
	}},
}

// kv judges one use of kv.
func (u *use) kv(h *HostCall, need string, granted bool, key string, ttlMillis int64) (KV, *refusal) {
	if bad := validName("kv key", key); bad != nil {
		return nil, bad
	}
	if ttlMillis < 0 || ttlMillis > abi.MaxTTLMillis {
		return nil, refuse(abi.ArgsInvalid, "kv %s: ttl_ms %d: want 0 to %d", key, ttlMillis, int64(abi.MaxTTLMillis))
	}
	h.Detail, h.Need = key, need
	return u.call.Access.KV, u.permit(need, granted, u.call.Access.KV != nil)
}

// kvFailed says why kv did not do what it was asked to, nil if it did.
func (u *use) kvFailed(h *HostCall, err error) *refusal {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrFull):
		return refuse(abi.QuotaExceeded, "%s: no room for %s: delete values, or let them end", h.Name, h.Detail)
	case errors.Is(err, ErrNoCounter):
		return refuse(abi.ArgsInvalid, "%s: %s is no counter", h.Name, h.Detail)
	}
	return u.broken(h.Name, err)
}

func ttl(millis int64) time.Duration { return time.Duration(millis) * time.Millisecond }

// fitting returns the first entries that fit into a reply, in UTF-8.
func fitting(found []abi.MemoryEntry) []abi.MemoryEntry {
	out, left := []abi.MemoryEntry{}, abi.MaxMemoryBytes
	for _, e := range found {
		e.Author, e.Text = strings.ToValidUTF8(e.Author, "\uFFFD"), strings.ToValidUTF8(e.Text, "\uFFFD")
		if left -= len(e.Author) + len(e.Text); left < 0 || len(out) == abi.MaxMemoryEntries {
			break
		}
		out = append(out, e)
	}
	return out
}
