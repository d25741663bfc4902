//go:build wasip1

package guest

import (
	"runtime"
	"unsafe"
)

// The imports of module sandboxd:host, in the order of abi.HostFunctions.

//go:wasmimport sandboxd:host input_length
func inputLength() int64

//go:wasmimport sandboxd:host input_read
func inputRead(ptr unsafe.Pointer, off, n uint32) uint32

//go:wasmimport sandboxd:host output_set
func outputSet(ptr unsafe.Pointer, n uint32)

//go:wasmimport sandboxd:host reply_read
func replyRead(ptr unsafe.Pointer, off, n uint32) uint32

//go:wasmimport sandboxd:host log
func hostLog(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host http
func hostHTTP(ptr unsafe.Pointer, n uint32, body unsafe.Pointer, size uint32) int64

//go:wasmimport sandboxd:host state_get
func hostStateGet(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host state_set
func hostStateSet(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host artifact_list
func hostArtifactList(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host artifact_read
func hostArtifactRead(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host artifact_save
func hostArtifactSave(ptr unsafe.Pointer, n uint32, body unsafe.Pointer, size uint32) int64

//go:wasmimport sandboxd:host kv_get
func hostKVGet(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host kv_set
func hostKVSet(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host kv_delete
func hostKVDelete(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host kv_add
func hostKVAdd(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host memory_search
func hostMemorySearch(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host emit
func hostEmit(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host confirm
func hostConfirm(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host transfer
func hostTransfer(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host escalate
func hostEscalate(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host skip_summary
func hostSkipSummary(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport wasi_snapshot_preview1 random_get
func randomGet(ptr unsafe.Pointer, n uint32) uint32

// exportCall is abi.ExportCall. What cannot be served, and a panic of the author's
// code, traps.
//
//go:wasmexport call
func exportCall() int32 {
	input := make([]byte, inputLength())
	readAll(input, inputRead)
	if served == nil {
		panic("guest: no plugin: call guest.Serve in an init function")
	}
	output, err := served.serve(imports{}, input)
	if err != nil {
		panic("guest: " + err.Error())
	}
	outputSet(start(output), uint32(len(output)))
	return 0
}

// exportDescribe is abi.ExportDescribe.
//
//go:wasmexport describe
func exportDescribe() int32 {
	if served == nil {
		panic("guest: no plugin: call guest.Serve in an init function")
	}
	outputSet(start(served.described), uint32(len(served.described)))
	return 0
}

// offer has nothing to do: what a module offers it exports.
func offer(*server) {}

// imports is the wall of a real guest.
type imports struct{}

func (imports) call(function string, request, body []byte) ([]byte, error) {
	ptr, n := start(request), uint32(len(request))
	var code int64
	switch function {
	case "log":
		code = hostLog(ptr, n)
	case "http":
		code = hostHTTP(ptr, n, start(body), uint32(len(body)))
	case "state_get":
		code = hostStateGet(ptr, n)
	case "state_set":
		code = hostStateSet(ptr, n)
	case "artifact_list":
		code = hostArtifactList(ptr, n)
	case "artifact_read":
		code = hostArtifactRead(ptr, n)
	case "artifact_save":
		code = hostArtifactSave(ptr, n, start(body), uint32(len(body)))
	case "kv_get":
		code = hostKVGet(ptr, n)
	case "kv_set":
		code = hostKVSet(ptr, n)
	case "kv_delete":
		code = hostKVDelete(ptr, n)
	case "kv_add":
		code = hostKVAdd(ptr, n)
	case "memory_search":
		code = hostMemorySearch(ptr, n)
	case "emit":
		code = hostEmit(ptr, n)
	case "confirm":
		code = hostConfirm(ptr, n)
	case "transfer":
		code = hostTransfer(ptr, n)
	case "escalate":
		code = hostEscalate(ptr, n)
	case "skip_summary":
		code = hostSkipSummary(ptr, n)
	default:
		panic("guest: no host function " + function)
	}
	reply := make([]byte, uint32(code))
	readAll(reply, replyRead)
	if code < 0 {
		return nil, hostError(function, reply)
	}
	return reply, nil
}

func (imports) random(p []byte) {
	if errno := randomGet(start(p), uint32(len(p))); errno != 0 {
		panic("guest: random_get failed")
	}
}

// readAll fills p through read, one of the functions that copy a part.
func readAll(p []byte, read func(ptr unsafe.Pointer, off, n uint32) uint32) {
	for off := 0; off < len(p); {
		n := read(start(p[off:]), uint32(off), uint32(len(p)-off))
		if n == 0 {
			panic("guest: the host gave less than it announced")
		}
		off += int(n)
	}
}

// start returns where p begins in memory.
func start(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }

// headroom is what a call may allocate, at least, before memory grows.
const headroom = 1 << 20

// largest is the size of the largest objects that a call gets without looking for a place.
const largest = 4 << 10

// makeRoom lets the heap have free memory when a call begins, and a place at hand for
// objects of every size, with and without pointers: to grow or to look in a call
// costs more fuel than a small call does, and the host has to take it back.
func makeRoom() {
	room := make([]byte, headroom)
	runtime.KeepAlive(room)
	room = nil
	runtime.GC()
	for size := 8; size <= largest; size += max(8, size/8) {
		runtime.KeepAlive(make([]byte, size))
		runtime.KeepAlive(make([]*byte, size/8))
	}
}
