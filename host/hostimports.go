package host

import (
	"slices"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// hostFunctions are the imports of sandboxd:host, see [abi.HostFunctions].
var hostFunctions = slices.Concat(memoryFunctions, imported(callFunctions), imported(keepFunctions), imported(guardFunctions))

// memoryFunctions are those by which documents come into the guest's memory and out
// of it.
var memoryFunctions = []function{
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
}

// imported makes imports of host functions.
func imported(all []hostFunction) []function {
	var out []function
	for _, h := range all {
		run, typ := h.run, "ii:I"
		if h.traits&withBody != 0 {
			typ = "iiii:I"
		}
		name, body := h.name, h.traits&withBody != 0
		out = append(out, function{name, typ, h.traits | counted | onMemory, func(f *frame, mem api.Memory, s []uint64) {
			if body {
				s[0] = f.answer(name, run, mem, s[0], s[1], s[2], s[3])
				return
			}
			s[0] = f.answer(name, run, mem, s[0], s[1], 0, 0)
		}})
	}
	return out
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
	refused := f.tooLong(name, int64(n), int64(bodyLen), f.memory.limit-f.memory.linear-f.memory.blocks)
	if refused == nil {
		f.charge(n + bodyLen)
		request, body := append([]byte(nil), shared...), append([]byte(nil), sharedBody...)
		out, refused = run(&f.use, &h, request, body)
		f.carries(&h, request, body, out)
	}
	f.traced(h, from, refused)
	sign := uint64(0)
	if refused != nil {
		sign = replyIsError
		out = refused.told()
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
