package host

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Bounds of what a host call may name or carry.
const (
	maxRequestBytes = 1 << 20   // a request document
	maxKeyBytes     = 256       // a state key or an artifact name
	maxStateBytes   = 256 << 10 // one state value that is read
	maxNames        = 10_000    // names in one artifact list
)

// callFunctions are those for the call itself, its session and its flow.
var callFunctions = []hostFunction{
	{"log", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.LogRequest
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "log: %v", err)
		}
		switch r.Level {
		case "":
			r.Level = "info"
		case "debug", "info", "warn", "error":
		default:
			return nil, refuse(abi.ArgsInvalid, "log: level %q: want debug, info, warn or error", printable(r.Level, 40))
		}
		h.Detail = printable(u.clean(r.Message), 80)
		return nil, u.writeLog(r.Level, r.Message)
	}},
	{"http", withBody, func(u *use, h *HostCall, request, body []byte) ([]byte, *refusal) {
		var r abi.HTTPRequest
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "http: %v", err)
		}
		answer, refused := u.send(&r, body, h)
		if refused != nil {
			return nil, refused
		}
		return answer.encode(), nil
	}},
	{"state_get", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.StateGet
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "state_get: %v", err)
		}
		if bad := validName("state key", r.Key); bad != nil {
			return nil, bad
		}
		h.Detail, h.Need = r.Key, "state read "+r.Key
		if no := u.permit(h.Need, u.grants().StateRead(r.Key), u.call.Access.State != nil); no != nil {
			return nil, no
		}
		value, found, err := u.call.Access.State.Get(u.lend(), r.Key)
		switch {
		case err != nil:
			return nil, u.broken("state_get", err)
		case len(value) > maxStateBytes:
			return nil, refuse(abi.ArgsInvalid, "state %s: value of %d bytes exceeds %d", r.Key, len(value), maxStateBytes)
		}
		return reply(abi.StateValue{Found: found, Value: value})
	}},
	{"state_set", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.StateSet
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "state_set: %v", err)
		}
		// All keys are judged before one is written.
		keys := slices.Sorted(maps.Keys(r.Values))
		h.Detail = printable(strings.Join(keys, " "), 200)
		for _, key := range keys {
			if bad := validName("state key", key); bad != nil {
				return nil, bad
			}
			if len(r.Values[key]) > maxStateBytes {
				return nil, refuse(abi.ArgsInvalid, "state %s: value of %d bytes exceeds %d", key, len(r.Values[key]), maxStateBytes)
			}
			if need := "state write " + key; u.guard || !u.live || u.call.Access.State == nil || !u.grants().StateWrite(key) {
				return nil, missing(need)
			}
		}
		for _, key := range keys {
			h.Need = "state write " + key
			u.used = listed(u.used, h.Need)
		}
		if len(keys) == 0 {
			return nil, nil
		}
		var total int64
		for _, key := range keys {
			total += int64(len(key) + len(r.Values[key]))
		}
		if full := u.store("state_set", total); full != nil {
			return nil, full
		}
		if err := u.call.Access.State.Set(u.lend(), r.Values); err != nil {
			return nil, u.broken("state_set", err)
		}
		return nil, nil
	}},
	{"artifact_list", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		if err := abi.Decode(request, &struct{}{}); err != nil {
			return nil, refuse(abi.ArgsInvalid, "artifact_list: %v", err)
		}
		h.Need = "artifact read *"
		if u.guard || !u.live || u.call.Access.Artifacts == nil {
			return nil, missing(h.Need)
		}
		all, err := u.call.Access.Artifacts.List(u.lend())
		if err != nil {
			return nil, u.broken("artifact_list", err)
		}
		// Without any grant for artifacts the list is empty, and so says nothing.
		names := []string{}
		for _, name := range all {
			if u.grants().ArtifactRead(name) && len(names) < maxNames {
				names = append(names, name)
			}
		}
		for _, line := range u.grants().Lines() {
			if len(names) > 0 && strings.HasPrefix(line, "artifact read") {
				u.used = listed(u.used, line)
			}
		}
		return reply(abi.ArtifactNames{Names: names})
	}},
	{"artifact_read", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.ArtifactRead
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "artifact_read: %v", err)
		}
		if bad := validName("artifact", r.Name); bad != nil {
			return nil, bad
		}
		if r.Version < 0 || r.Offset < 0 {
			return nil, refuse(abi.ArgsInvalid, "artifact %s: version %d and offset %d must not be negative", r.Name, r.Version, r.Offset)
		}
		h.Detail, h.Need = r.Name, "artifact read "+r.Name
		if no := u.permit(h.Need, u.grants().ArtifactRead(r.Name), u.call.Access.Artifacts != nil); no != nil {
			return nil, no
		}
		data, err := u.call.Access.Artifacts.Read(u.lend(), r.Name, r.Version, r.Offset, abi.MaxChunk)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, refuse(abi.NotFound, "artifact %s: no version %d", r.Name, r.Version)
		case err != nil:
			return nil, u.broken("artifact_read", err)
		}
		return data[:min(len(data), abi.MaxChunk)], nil
	}},
	{"artifact_save", withBody, func(u *use, h *HostCall, request, body []byte) ([]byte, *refusal) {
		var r abi.ArtifactSave
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "artifact_save: %v", err)
		}
		if bad := validName("artifact", r.Name); bad != nil {
			return nil, bad
		}
		if bad := validName("MIME type", r.Type); r.Type != "" && bad != nil {
			return nil, bad
		}
		h.Detail, h.Need, h.Bytes = r.Name, "artifact write "+r.Name, int64(len(body))
		if no := u.permit(h.Need, u.grants().ArtifactWrite(r.Name), u.call.Access.Artifacts != nil); no != nil {
			return nil, no
		}
		if full := u.store("artifact_save", int64(len(body))); full != nil {
			return nil, full
		}
		version, err := u.call.Access.Artifacts.Save(u.lend(), r.Name, r.Type, body)
		if err != nil {
			return nil, u.broken("artifact_save", err)
		}
		return reply(abi.ArtifactVersion{Version: version})
	}},
	{"emit", 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.EmitRequest
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "emit: %v", err)
		}
		if len(r.Chunk) == 0 {
			return nil, refuse(abi.ArgsInvalid, "emit: chunk is missing")
		}
		h.Need, h.Bytes = "emit", int64(len(r.Chunk))
		if no := u.permit(h.Need, u.grants().Has("emit"), u.call.Access.Emit != nil); no != nil {
			return nil, no
		}
		if full := u.store("emit", int64(len(r.Chunk))); full != nil {
			return nil, full
		}
		if err := u.call.Access.Emit(u.lend(), r.Chunk); err != nil {
			u.checkTime()
			panic(&abort{abi.Cancelled, "emit: " + err.Error()})
		}
		return nil, nil
	}},
	action("confirm", "confirm", func(a Actions, request []byte) error {
		var r abi.ConfirmRequest
		if err := abi.Decode(request, &r); err != nil {
			return err
		}
		return a.Confirm(r.Hint, r.Payload)
	}),
	action("transfer", "transfer", func(a Actions, request []byte) error {
		var r abi.TransferRequest
		if err := abi.Decode(request, &r); err != nil {
			return err
		}
		return a.Transfer(r.Agent)
	}),
	action("escalate", "escalate", func(a Actions, request []byte) error {
		if err := abi.Decode(request, &struct{}{}); err != nil {
			return err
		}
		return a.Escalate()
	}),
	action("skip_summary", "skip-summary", func(a Actions, request []byte) error {
		if err := abi.Decode(request, &struct{}{}); err != nil {
			return err
		}
		return a.SkipSummary()
	}),
}

// store counts bytes that the host will keep for the guest.
func (u *use) store(what string, n int64) *refusal {
	if n > u.limits.StoredBytes-u.stored {
		return refuse(abi.QuotaExceeded, "%s: %d bytes, and %d before, exceed %d for one call", what, n, u.stored, u.limits.StoredBytes)
	}
	u.stored += n
	return nil
}

// traits of a function.
type traits uint8

const (
	counted   traits = 1 << iota // as a host call
	onMemory                     // works on the guest's linear memory
	forGuards                    // a module may import it only if all it offers is guards
	withBody                     // takes a body beside its request document
)

// A hostFunction is what a host call does with its request document and, if it is
// [withBody], with what comes beside it. Both are its own.
type hostFunction struct {
	name   string
	traits traits
	run    hostCallFunc
}

type hostCallFunc func(u *use, h *HostCall, request, body []byte) ([]byte, *refusal)

// action is a host function that asks something of the flow.
func action(name, kind string, run func(Actions, []byte) error) hostFunction {
	return hostFunction{name, 0, func(u *use, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		h.Need = kind
		if no := u.permit(kind, u.grants().Has(kind), u.call.Access.Actions != nil); no != nil {
			return nil, no
		}
		if err := run(u.call.Access.Actions, request); err != nil {
			return nil, refuse(abi.ArgsInvalid, "%s: %v", name, err)
		}
		return nil, nil
	}}
}

// tooLong refuses a request document and a body that are too long. most is what of
// the guest's memory is left for a copy.
func (u *use) tooLong(name string, request, body, most int64) *refusal {
	switch most = max(most, u.limits.HTTPBytes); {
	case request > maxRequestBytes:
		return refuse(abi.ArgsInvalid, "%s: request of %d bytes exceeds %d", name, request, maxRequestBytes)
	case body > most:
		// The copy is the host's memory, so it has to fit into what is left.
		return refuse(abi.ArgsInvalid, "%s: body of %d bytes exceeds %d", name, body, most)
	}
	return nil
}

// told returns the reply that says why a host call had no effect.
func (r *refusal) told() []byte {
	out, _ := abi.Marshal(abi.ErrorReply{Code: r.code, Message: r.message}) // strings always encode
	return out
}

func reply(v any) ([]byte, *refusal) {
	b, err := abi.Marshal(v)
	if err != nil {
		return nil, refuse(abi.StorageUnavailable, "the stored value is not JSON")
	}
	return b, nil
}

// broken refuses because the host failed. The operator reads why.
func (u *use) broken(name string, err error) *refusal {
	u.checkTime()
	u.operator.report(slog.LevelError, "host call failed", "call", name, "err", err)
	return refuse(abi.StorageUnavailable, "%s: %s", name, abi.StorageUnavailable.Sentence())
}

// validName refuses names that no store should see.
func validName(what, s string) *refusal {
	switch {
	case s == "" || len(s) > maxKeyBytes:
		return refuse(abi.ArgsInvalid, "%s of %d bytes: want 1 to %d", what, len(s), maxKeyBytes)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return abi.Hidden(r) || r == '\n' || r == '\t' }):
		return refuse(abi.ArgsInvalid, "%s %q: has characters that cannot be seen", what, printable(s, 80))
	}
	return nil
}

// encode returns the reply of the host call http: the length of the head as four
// bytes, the head, and the body.
func (a *answer) encode() []byte {
	head := abi.HTTPReply{Status: a.status, Headers: map[string]string{}}
	for name, values := range a.header {
		head.Headers[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	document, _ := abi.Marshal(head) // strings and an integer always encode
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(document)+len(a.body)), uint32(len(document)))
	return append(append(out, document...), a.body...)
}
