package host

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Bounds of what a host call may name or carry.
const (
	maxKeyBytes   = 256       // a state key or an artifact name
	maxStateBytes = 256 << 10 // one state value that is read
	maxNames      = 10_000    // names in one artifact list
)

// hostFunctions are the imports of sandboxd:host, see [abi.HostFunctions].
var hostFunctions = slices.Concat(callFunctions, keepFunctions, guardFunctions)

// callFunctions are those for the call itself, its session and its flow.
var callFunctions = []function{
	{"input_length", ":I", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = uint64(len(f.input)) }},
	{"input_read", "iii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) { s[0] = copyOut(f, mem, s, f.input) }},
	{"output_set", "ii:", counted | onMemory, func(f *frame, mem api.Memory, s []uint64) {
		b := bytesAt(mem, uint64(uint32(s[0])), uint64(uint32(s[1])))
		if int64(len(b)) > f.limits.OutputBytes {
			f.tooLarge(uint64(len(b)))
		}
		f.setOutput(b)
	}},
	{"reply_read", "iii:i", onMemory, func(f *frame, mem api.Memory, s []uint64) { s[0] = copyOut(f, mem, s, f.reply) }},

	hostCall("log", func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
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
		h.Detail = printable(f.clean(r.Message), 80)
		return nil, f.writeLog(r.Level, r.Message)
	}),
	hostCallBody("http", func(f *frame, h *HostCall, request, body []byte) ([]byte, *refusal) {
		var r abi.HTTPRequest
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "http: %v", err)
		}
		answer, refused := f.send(&r, body, h)
		if refused != nil {
			return nil, refused
		}
		return answer.encode(), nil
	}),
	hostCall("state_get", func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.StateGet
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "state_get: %v", err)
		}
		if bad := validName("state key", r.Key); bad != nil {
			return nil, bad
		}
		h.Detail, h.Need = r.Key, "state read "+r.Key
		if no := f.permit(h.Need, f.grants().StateRead(r.Key), f.call.Access.State != nil); no != nil {
			return nil, no
		}
		value, found, err := f.call.Access.State.Get(f.ctx, r.Key)
		switch {
		case err != nil:
			return nil, f.broken("state_get", err)
		case len(value) > maxStateBytes:
			return nil, refuse(abi.ArgsInvalid, "state %s: value of %d bytes exceeds %d", r.Key, len(value), maxStateBytes)
		}
		return reply(abi.StateValue{Found: found, Value: value})
	}),
	hostCall("state_set", func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
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
			if need := "state write " + key; f.guard || !f.live || f.call.Access.State == nil || !f.grants().StateWrite(key) {
				return nil, missing(need)
			}
		}
		for _, key := range keys {
			h.Need = "state write " + key
			f.used = listed(f.used, h.Need)
		}
		if len(keys) == 0 {
			return nil, nil
		}
		var total int64
		for _, key := range keys {
			total += int64(len(key) + len(r.Values[key]))
		}
		if full := f.store("state_set", total); full != nil {
			return nil, full
		}
		if err := f.call.Access.State.Set(f.ctx, r.Values); err != nil {
			return nil, f.broken("state_set", err)
		}
		return nil, nil
	}),
	hostCall("artifact_list", func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		if err := abi.Decode(request, &struct{}{}); err != nil {
			return nil, refuse(abi.ArgsInvalid, "artifact_list: %v", err)
		}
		h.Need = "artifact read *"
		if f.guard || !f.live || f.call.Access.Artifacts == nil {
			return nil, missing(h.Need)
		}
		all, err := f.call.Access.Artifacts.List(f.ctx)
		if err != nil {
			return nil, f.broken("artifact_list", err)
		}
		// Without any grant for artifacts the list is empty, and so says nothing.
		names := []string{}
		for _, name := range all {
			if f.grants().ArtifactRead(name) && len(names) < maxNames {
				names = append(names, name)
			}
		}
		for _, line := range f.grants().Lines() {
			if len(names) > 0 && strings.HasPrefix(line, "artifact read") {
				f.used = listed(f.used, line)
			}
		}
		return reply(abi.ArtifactNames{Names: names})
	}),
	hostCall("artifact_read", func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
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
		if no := f.permit(h.Need, f.grants().ArtifactRead(r.Name), f.call.Access.Artifacts != nil); no != nil {
			return nil, no
		}
		data, err := f.call.Access.Artifacts.Read(f.ctx, r.Name, r.Version, r.Offset, abi.MaxChunk)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, refuse(abi.NotFound, "artifact %s: no version %d", r.Name, r.Version)
		case err != nil:
			return nil, f.broken("artifact_read", err)
		}
		return data[:min(len(data), abi.MaxChunk)], nil
	}),
	hostCallBody("artifact_save", func(f *frame, h *HostCall, request, body []byte) ([]byte, *refusal) {
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
		if no := f.permit(h.Need, f.grants().ArtifactWrite(r.Name), f.call.Access.Artifacts != nil); no != nil {
			return nil, no
		}
		if full := f.store("artifact_save", int64(len(body))); full != nil {
			return nil, full
		}
		version, err := f.call.Access.Artifacts.Save(f.ctx, r.Name, r.Type, body)
		if err != nil {
			return nil, f.broken("artifact_save", err)
		}
		return reply(abi.ArtifactVersion{Version: version})
	}),
	hostCall("emit", func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		var r abi.EmitRequest
		if err := abi.Decode(request, &r); err != nil {
			return nil, refuse(abi.ArgsInvalid, "emit: %v", err)
		}
		if len(r.Chunk) == 0 {
			return nil, refuse(abi.ArgsInvalid, "emit: chunk is missing")
		}
		h.Need, h.Bytes = "emit", int64(len(r.Chunk))
		if no := f.permit(h.Need, f.grants().Has("emit"), f.call.Access.Emit != nil); no != nil {
			return nil, no
		}
		if full := f.store("emit", int64(len(r.Chunk))); full != nil {
			return nil, full
		}
		if err := f.call.Access.Emit(f.ctx, r.Chunk); err != nil {
			f.checkTime()
			panic(&abort{abi.Cancelled, "emit: " + err.Error()})
		}
		return nil, nil
	}),
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
func (f *frame) store(what string, n int64) *refusal {
	if n > f.limits.StoredBytes-f.stored {
		return refuse(abi.QuotaExceeded, "%s: %d bytes, and %d before, exceed %d for one call", what, n, f.stored, f.limits.StoredBytes)
	}
	f.stored += n
	return nil
}

type hostCallFunc func(f *frame, h *HostCall, request, body []byte) ([]byte, *refusal)

// hostCall is a host function that takes a request document.
func hostCall(name string, run hostCallFunc) function {
	return function{name, "ii:I", counted | onMemory, func(f *frame, mem api.Memory, s []uint64) {
		s[0] = f.answer(name, run, mem, s[0], s[1], 0, 0)
	}}
}

// hostCallBody is a host function that takes a request document and a body.
func hostCallBody(name string, run hostCallFunc) function {
	return function{name, "iiii:I", counted | onMemory, func(f *frame, mem api.Memory, s []uint64) {
		s[0] = f.answer(name, run, mem, s[0], s[1], s[2], s[3])
	}}
}

// action is a host function that asks something of the flow.
func action(name, kind string, run func(Actions, []byte) error) function {
	return hostCall(name, func(f *frame, h *HostCall, request, _ []byte) ([]byte, *refusal) {
		h.Need = kind
		if no := f.permit(kind, f.grants().Has(kind), f.call.Access.Actions != nil); no != nil {
			return nil, no
		}
		if err := run(f.call.Access.Actions, request); err != nil {
			return nil, refuse(abi.ArgsInvalid, "%s: %v", name, err)
		}
		return nil, nil
	})
}

const replyIsError = 1 << 63

// answer runs one host call on copies of what the guest gave, so that nothing
// changes between check and use, and keeps its reply for reply_read.
func (f *frame) answer(name string, run hostCallFunc, mem api.Memory, ptr, n, bodyPtr, bodyLen uint64) uint64 {
	n, bodyLen = uint64(uint32(n)), uint64(uint32(bodyLen))
	shared := bytesAt(mem, uint64(uint32(ptr)), n)
	sharedBody := bytesAt(mem, uint64(uint32(bodyPtr)), bodyLen)
	h := HostCall{Name: name}
	from := time.Now()
	var out []byte
	var refused *refusal
	switch most := f.memory.limit - f.memory.linear - f.memory.blocks; {
	case n > maxRequestBytes:
		refused = refuse(abi.ArgsInvalid, "%s: request of %d bytes exceeds %d", name, n, maxRequestBytes)
	case int64(bodyLen) > max(most, f.limits.HTTPBytes):
		// The copy is the host's memory, so it has to fit into what is left.
		refused = refuse(abi.ArgsInvalid, "%s: body of %d bytes exceeds %d", name, bodyLen, max(most, f.limits.HTTPBytes))
	default:
		f.charge(n + bodyLen)
		request, body := append([]byte(nil), shared...), append([]byte(nil), sharedBody...)
		out, refused = run(f, &h, request, body)
		if name != "http" { // which has told of its bodies
			h.Sent, h.Got = append(f.body(request), f.body(body)...), f.body(out)
		}
	}
	f.traced(h, from, refused)
	sign := uint64(0)
	if refused != nil {
		sign = replyIsError
		out, _ = abi.Marshal(abi.ErrorReply{Code: refused.code, Message: refused.message}) // strings always encode
	}
	f.memory.give(int64(len(f.reply)))
	f.reply = nil
	if !f.memory.take(int64(len(out))) {
		panic(&abort{abi.GuestMemory, name + ": the reply does not fit into memory"})
	}
	f.charge(uint64(len(out)))
	f.reply = out
	return uint64(len(out)) | sign
}

// copyOut copies part of data to the guest: ptr, off and len from the stack.
func copyOut(f *frame, mem api.Memory, s []uint64, data []byte) uint64 {
	to := bytesAt(mem, uint64(uint32(s[0])), uint64(uint32(s[2])))
	off := uint64(uint32(s[1]))
	if off >= uint64(len(data)) {
		return 0
	}
	f.charge(min(uint64(len(to)), uint64(len(data))-off))
	return uint64(copy(to, data[off:]))
}

func reply(v any) ([]byte, *refusal) {
	b, err := abi.Marshal(v)
	if err != nil {
		return nil, refuse(abi.StorageUnavailable, "the stored value is not JSON")
	}
	return b, nil
}

// broken refuses because the host failed. The operator reads why.
func (f *frame) broken(name string, err error) *refusal {
	f.checkTime()
	f.module.engine.log.Error("host call failed", "module", f.module.digest.Short(), "call", name, "err", err)
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

// fetch sends a request for Extism's import and tells the tracer.
func (f *frame) fetch(r *abi.HTTPRequest, body []byte) (*answer, *refusal) {
	h := HostCall{Name: "http"}
	from := time.Now()
	answer, refused := f.send(r, body, &h)
	f.traced(h, from, refused)
	return answer, refused
}
