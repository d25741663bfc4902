//go:build wasip1

package main

import (
	"encoding/json"
	"fmt"
	"unsafe"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

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

//go:wasmimport sandboxd:host state_get
func hostStateGet(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host state_set
func hostStateSet(ptr unsafe.Pointer, n uint32) int64

//go:wasmimport sandboxd:host artifact_save
func hostArtifactSave(ptr unsafe.Pointer, n uint32, body unsafe.Pointer, size uint32) int64

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

func readInput() []byte {
	input := make([]byte, inputLength())
	read(input, inputRead)
	return input
}

func writeOutput(output []byte) { outputSet(start(output), uint32(len(output))) }

// ask makes a host call. Its reply is decoded into reply, unless that is nil. A call
// that was refused is an error with the host's text.
func ask(function string, request any, body []byte, reply any) error {
	document := raw(request)
	ptr, n := start(document), uint32(len(document))
	var code int64
	switch function {
	case "log":
		code = hostLog(ptr, n)
	case "state_get":
		code = hostStateGet(ptr, n)
	case "state_set":
		code = hostStateSet(ptr, n)
	case "artifact_save":
		code = hostArtifactSave(ptr, n, start(body), uint32(len(body)))
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
		panic("no host function " + function)
	}
	text := make([]byte, uint32(code))
	read(text, replyRead)
	if code < 0 {
		var refused abi.ErrorReply
		must(json.Unmarshal(text, &refused))
		return fmt.Errorf("%s: %s: %s", function, refused.Code, refused.Message)
	}
	if reply != nil {
		must(json.Unmarshal(text, reply))
	}
	return nil
}

// read fills p through one of the functions that copy a part.
func read(p []byte, part func(ptr unsafe.Pointer, off, n uint32) uint32) {
	for off := 0; off < len(p); {
		n := part(start(p[off:]), uint32(off), uint32(len(p)-off))
		if n == 0 {
			panic("the host gave less than it announced")
		}
		off += int(n)
	}
}

func start(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }
