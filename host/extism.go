package host

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// extism is the state of Extism's imports in one call.
type extism struct {
	blocks blocks
	vars   map[string][]byte // nil until one is set
	stored int64             // what vars cost of the call's memory
	values int64             // bytes of their values

	in                  []byte // the input; the caller's bytes while there is no block of it
	inputAt, inputLen   uint64 // the block, or part of one, that is the input; 0 while there is none
	outputAt, outputLen uint64
	errorAt             uint64

	failed  bool   // an error is set
	failure string // its text, bounded and escaped

	status  int32  // of the last HTTP answer, 0 if there is none
	headers []byte // JSON
}

const (
	maxFailureBytes = 4 << 10   // of the guest's own error text
	logOff          = 1<<31 - 1 // Extism's level for "no log"
)

// reset forgets everything.
func (x *extism) reset() {
	x.blocks.reset()
	x.blocks.memory.give(x.stored)
	*x = extism{blocks: x.blocks}
}

// input returns the input, until the next block is made.
func (x *extism) input() []byte {
	if x.inputAt == 0 {
		return x.in
	}
	b, _ := x.blocks.at(x.inputAt, x.inputLen) // nothing once it was freed
	return b
}

// inputBlock returns the handle of the input, and makes its block when it is
// first asked for: guests that read with input_read need none.
func (x *extism) inputBlock() uint64 {
	if x.inputAt == 0 && len(x.in) > 0 {
		if x.inputAt = x.blocks.put(x.in); x.inputAt == 0 {
			trap("input of %d bytes does not fit into memory", len(x.in))
		}
		x.inputLen, x.in = uint64(len(x.in)), nil
	}
	return x.inputAt
}

// free frees a block. Freeing the input empties it.
func (x *extism) free(h uint64) {
	if h != 0 && x.inputAt != 0 && x.blocks.find(h) == x.blocks.find(x.inputAt) {
		x.in, x.inputAt, x.inputLen = nil, 0, 0
	}
	x.blocks.free(h)
}

// bytes returns the n bytes at address a, or ends the call.
func (x *extism) bytes(a, n uint64) []byte {
	b, ok := x.blocks.at(a, n)
	if !ok {
		trap("bad handle: %d bytes at %d are not in a block", n, a)
	}
	return b
}

// text returns the whole block of a handle. Handle 0 is nothing.
func (x *extism) text(h uint64) []byte {
	if h == 0 {
		return nil
	}
	b, ok := x.blocks.whole(h)
	if !ok {
		trap("bad handle: %d is no block", h)
	}
	return b
}

// extismFunctions are the imports of Extism, as reference implementations of
// version 1 behave where that is safe. Differences: an address outside a block
// ends the call, where Extism reads or writes what is there; the output is copied
// when it is set; variables live for one call; a failed http_request returns 0
// with status 0 and does not end the call; messages of a guest without the grant
// log are dropped.
var extismFunctions = []function{
	{"alloc", "I:I", counted, func(f *frame, _ api.Memory, s []uint64) {
		if s[0] <= uint64(f.memory.limit) { // else there is nothing to do
			f.charge(s[0])
		}
		x := &f.extism
		if s[0] = x.blocks.alloc(s[0]); s[0] != 0 && x.blocks.arena != nil { // it will be written next
			e := x.blocks.last()
			x.blocks.arena.open(meter.Store, e.base, e.at, e.size)
		}
	}},
	{"free", "I:", counted, func(f *frame, _ api.Memory, s []uint64) { f.extism.free(s[0]) }},
	{"length", "I:I", 0, extismLength},
	{"length_unsafe", "I:I", 0, extismLength},
	{"load_u8", "I:i", 0, func(f *frame, _ api.Memory, s []uint64) {
		s[0] = uint64(f.extism.look(meter.Load, s[0], 1)[0])
	}},
	{"load_u64", "I:I", 0, func(f *frame, _ api.Memory, s []uint64) {
		s[0] = binary.LittleEndian.Uint64(f.extism.look(meter.Load, s[0], 8))
	}},
	{"store_u8", "Ii:", 0, func(f *frame, _ api.Memory, s []uint64) {
		f.extism.look(meter.Store, s[0], 1)[0] = byte(s[1])
	}},
	{"store_u64", "II:", 0, func(f *frame, _ api.Memory, s []uint64) {
		binary.LittleEndian.PutUint64(f.extism.look(meter.Store, s[0], 8), s[1])
	}},
	{"input_length", ":I", 0, func(f *frame, _ api.Memory, s []uint64) {
		f.extism.openInput() // it will be read next
		s[0] = uint64(len(f.extism.input()))
	}},
	{"input_offset", ":I", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.extism.inputBlock() }},
	{"input_load_u8", "I:i", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.extism.inputWord(s[0]) & 0xff }},
	{"input_load_u64", "I:I", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.extism.inputWord(s[0]) }},
	{"input_set", "II:", counted, func(f *frame, _ api.Memory, s []uint64) {
		f.extism.bytes(s[0], s[1])
		f.extism.in, f.extism.inputAt, f.extism.inputLen = nil, s[0], s[1]
		f.extism.blocks.close(meter.Input)
	}},
	{"output_set", "II:", counted, func(f *frame, _ api.Memory, s []uint64) {
		if s[1] == 0 {
			f.setOutput(nil)
			return
		}
		if s[1] > uint64(f.limits.OutputBytes) {
			f.tooLarge(s[1])
		}
		f.setOutput(f.extism.bytes(s[0], s[1]))
		f.extism.outputAt, f.extism.outputLen = s[0], s[1]
	}},
	{"output_offset", ":I", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.extism.outputAt }},
	{"output_length", ":I", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.extism.outputLen }},
	{"error_set", "I:", counted, func(f *frame, _ api.Memory, s []uint64) {
		x := &f.extism
		text := x.text(s[0])
		x.errorAt, x.failed = s[0], s[0] != 0
		x.failure = printable(string(text[:min(len(text), maxFailureBytes)]), maxFailureBytes)
	}},
	{"error_get", ":I", 0, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.extism.errorAt }},
	{"reset", ":", counted, func(f *frame, _ api.Memory, _ []uint64) {
		f.input = nil
		f.extism.reset()
		f.setOutput(nil)
	}},
	{"memory_bytes", ":I", counted, func(f *frame, _ api.Memory, s []uint64) { s[0] = uint64(f.memory.blocks) }},
	{"config_get", "I:I", counted, func(f *frame, _ api.Memory, s []uint64) {
		key := f.extism.text(s[0])
		f.charge(uint64(len(key)))
		value, ok := f.call.Config[string(key)]
		s[0] = 0
		if ok {
			s[0] = f.put([]byte(value))
		}
	}},
	{"var_get", "I:I", counted, func(f *frame, _ api.Memory, s []uint64) {
		x := &f.extism
		key := x.text(s[0])
		f.charge(uint64(len(key)))
		value := x.vars[string(key)]
		x.free(s[0])
		s[0] = f.put(value)
	}},
	{"var_set", "II:", counted, func(f *frame, _ api.Memory, s []uint64) { f.setVar(s[0], s[1]) }},
	{"http_request", "II:I", counted, extismHTTP},
	{"http_status_code", ":i", counted, func(f *frame, _ api.Memory, s []uint64) { s[0] = uint64(uint32(f.extism.status)) }},
	{"http_headers", ":I", counted, func(f *frame, _ api.Memory, s []uint64) { s[0] = f.put(f.extism.headers) }},
	{"log_trace", "I:", counted, extismLog("debug")},
	{"log_debug", "I:", counted, extismLog("debug")},
	{"log_info", "I:", counted, extismLog("info")},
	{"log_warn", "I:", counted, extismLog("warn")},
	{"log_error", "I:", counted, extismLog("error")},
	{"get_log_level", ":i", counted, func(f *frame, _ api.Memory, s []uint64) {
		s[0] = logOff
		if f.grants().Has("log") && f.call.Access.Log != nil {
			s[0] = 0 // trace: everything
		}
	}},
}

func extismLength(f *frame, _ api.Memory, s []uint64) {
	b, _ := f.extism.blocks.whole(s[0])
	s[0] = uint64(len(b))
}

// look returns the n bytes at address a, and opens a window on their block. If they are not
// in one it ends the call.
func (x *extism) look(window int, a, n uint64) []byte {
	b := x.bytes(a, n)
	if e := x.blocks.find(a); x.blocks.arena != nil {
		x.blocks.arena.open(window, e.base, e.at, e.size)
	}
	return b
}

// openInput opens the window on the input, for guests that have one.
func (x *extism) openInput() {
	if x.blocks.arena == nil {
		return
	}
	if h := x.inputBlock(); h != 0 {
		if e := x.blocks.find(h); e != nil {
			x.blocks.arena.open(meter.Input, 0, e.at+int64(h-e.base), int64(x.inputLen))
		}
	}
}

// inputWord returns eight bytes of the input from index i. Behind its end are
// zeros.
func (x *extism) inputWord(i uint64) uint64 {
	x.openInput()
	in := x.input()
	if i >= uint64(len(in)) {
		return 0
	}
	var word [8]byte
	copy(word[:], in[i:])
	return binary.LittleEndian.Uint64(word[:])
}

// put returns the handle of a new block that holds a copy of data, or 0.
func (f *frame) put(data []byte) uint64 {
	f.charge(uint64(len(data)))
	return f.extism.blocks.put(data)
}

// setVar sets or, with value 0, deletes a variable, and frees both blocks.
func (f *frame) setVar(key, value uint64) {
	x, limit := &f.extism, f.limits.VarBytes
	name, data := x.text(key), x.text(value)
	f.charge(uint64(len(name) + len(data)))
	x.set(string(name), data, value != 0, limit)
	x.free(key)
	x.free(value)
}

// set sets or deletes a variable. The values of all variables may have limit bytes together.
func (x *extism) set(name string, data []byte, keep bool, limit int64) {
	m := x.blocks.memory
	old, had := x.vars[name]
	cost := func(v []byte) int64 { return int64(len(name)+len(v)) + blockCost }
	if had {
		x.stored -= cost(old)
		x.values -= int64(len(old))
		m.give(cost(old))
		delete(x.vars, name)
	}
	if keep {
		if x.values+int64(len(data)) > limit {
			trap("variables of %d bytes exceed limit %d", x.values+int64(len(data)), limit)
		}
		if !m.take(cost(data)) {
			trap("variable of %d bytes does not fit into memory", len(data))
		}
		x.stored += cost(data)
		x.values += int64(len(data))
		if x.vars == nil {
			x.vars = map[string][]byte{}
		}
		x.vars[name] = append([]byte(nil), data...)
	}
}

func extismLog(level string) func(*frame, api.Memory, []uint64) {
	return func(f *frame, _ api.Memory, s []uint64) {
		text := f.extism.text(s[0])
		f.log(level, text)
		f.extism.free(s[0])
	}
}

// log is Extism's log: what is refused is dropped.
func (f *frame) log(level string, text []byte) {
	from := time.Now()
	message := string(text[:min(int64(len(text)), f.limits.LogBytes+1)]) // one more, so that it is marked as cut
	f.traced(HostCall{Name: "log", Detail: printable(f.clean(message), 80), Need: "log", Sent: f.body([]byte(message))}, from, f.writeLog(level, message))
}

// extismHTTP sends a request. Where the Extism SDKs end the call, here the guest
// reads status 0 and no body.
func extismHTTP(f *frame, _ api.Memory, s []uint64) {
	x := &f.extism
	document, body := x.text(s[0]), x.text(s[1])
	x.status, x.headers = 0, nil
	var r struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
	}
	from := time.Now()
	f.charge(uint64(min(len(document), maxRequestBytes)))
	if len(document) > maxRequestBytes || json.Unmarshal(document, &r) != nil {
		f.traced(HostCall{Name: "http"}, from, refuse(abi.ArgsInvalid, "http: request is not a request document"))
		r.URL = ""
	}
	var answer *answer
	if r.URL != "" {
		if int64(len(body)) <= f.limits.HTTPBytes { // else nothing is sent
			// A copy: what sends it may be at it when the call is over.
			f.charge(uint64(len(body)))
			body = bytes.Clone(body)
		}
		answer, _ = f.fetch(&abi.HTTPRequest{Method: r.Method, URL: r.URL, Headers: r.Headers}, body)
	}
	x.free(s[0])
	x.free(s[1])
	s[0] = 0
	if answer == nil {
		return
	}
	x.status = int32(min(answer.status, math.MaxInt32))
	if h := f.put(answer.body); h != 0 || len(answer.body) == 0 {
		s[0] = h
	} else {
		trap("answer of %d bytes does not fit into memory", len(answer.body))
	}
	headers := map[string]string{}
	for name, values := range answer.header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	x.headers, _ = json.Marshal(headers) // strings always encode
}

// fetch sends a request for Extism's import and tells the tracer.
func (f *frame) fetch(r *abi.HTTPRequest, body []byte) (*answer, *refusal) {
	h := HostCall{Name: "http"}
	from := time.Now()
	answer, refused := f.send(r, body, &h)
	f.traced(h, from, refused)
	return answer, refused
}

// setOutput keeps a copy of the output.
func (f *frame) setOutput(b []byte) {
	f.charge(uint64(len(b)))
	f.output = append([]byte(nil), b...)
}

// tooLarge ends the call for an output past the limit.
func (f *frame) tooLarge(n uint64) {
	panic(&abort{abi.GuestOutputTooLarge, fmt.Sprintf("output of %d bytes exceeds limit %d", n, f.limits.OutputBytes)})
}
