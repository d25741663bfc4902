// Command guest is the Go guest of the tests of package host. It is built by
// them for wasip1 and speaks to the host through imports alone.
package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/maphash"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"
	"unsafe"
)

//go:wasmimport sandboxd:host input_length
func inputLength() uint64

//go:wasmimport sandboxd:host input_read
func inputRead(ptr unsafe.Pointer, off, n uint32) uint32

//go:wasmimport sandboxd:host output_set
func outputSet(ptr unsafe.Pointer, n uint32)

//go:wasmimport sandboxd:host reply_read
func replyRead(ptr unsafe.Pointer, off, n uint32) uint32

//go:wasmimport sandboxd:host log
func hostLog(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host state_get
func hostStateGet(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host state_set
func hostStateSet(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host artifact_list
func hostArtifactList(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host artifact_read
func hostArtifactRead(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host kv_get
func hostKVGet(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host kv_set
func hostKVSet(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host kv_delete
func hostKVDelete(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host kv_add
func hostKVAdd(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host memory_search
func hostMemorySearch(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host emit
func hostEmit(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host confirm
func hostConfirm(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host transfer
func hostTransfer(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host escalate
func hostEscalate(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host skip_summary
func hostSkipSummary(ptr unsafe.Pointer, n uint32) uint64

//go:wasmimport sandboxd:host http
func hostHTTP(ptr unsafe.Pointer, n uint32, body unsafe.Pointer, bodyLen uint32) uint64

//go:wasmimport sandboxd:host artifact_save
func hostArtifactSave(ptr unsafe.Pointer, n uint32, body unsafe.Pointer, bodyLen uint32) uint64

func main() {}

// A request is what the tests ask for: a list of host calls, or something else
// the guest can do.
type request struct {
	Do    string `json:"do"`
	Calls []struct {
		Name    string          `json:"name"`
		Request json.RawMessage `json:"request"`
		Body    string          `json:"body"`
	} `json:"calls"`
	N  int    `json:"n"`
	ID string `json:"id"`
}

type reply struct {
	Error bool   `json:"error"`
	Head  string `json:"head,omitempty"`
	Text  string `json:"text"`
}

//go:wasmexport call
func call() int32 {
	in := make([]byte, inputLength())
	if len(in) > 0 {
		inputRead(unsafe.Pointer(&in[0]), 0, uint32(len(in)))
	}
	var r request
	if err := json.Unmarshal(in, &r); err != nil {
		return 9
	}
	var out any
	switch r.Do {
	case "calls":
		var all []reply
		for _, c := range r.Calls {
			all = append(all, hostCall(c.Name, c.Request, []byte(c.Body)))
		}
		out = all
	case "echo":
		out = r.ID
	case "time":
		a, m := time.Now(), time.Now()
		time.Sleep(time.Duration(r.N) * time.Millisecond)
		out = map[string]any{"wall": a.UTC().Format(time.RFC3339Nano), "after": time.Now().UTC().Format(time.RFC3339Nano),
			"slept_ms": time.Since(m).Milliseconds()}
	case "random":
		b := make([]byte, 16)
		rand.Read(b)
		out = hex.EncodeToString(b)
	case "frozen":
		var h maphash.Hash
		out = fmt.Sprint(mathrand.Int64(), h.Sum64())
	case "panic":
		panic("on purpose")
	case "exit":
		set([]byte(`{"ok":true}`))
		os.Exit(r.N)
	case "hoard":
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
			_ = all
		}
	case "print":
		fmt.Println("standard output")
		fmt.Fprintln(os.Stderr, "standard error\x1b[31m")
		fmt.Print("no end")
		out = true
	case "goroutines":
		var wg sync.WaitGroup
		total := make(chan int, r.N)
		for i := range r.N {
			wg.Go(func() {
				time.Sleep(time.Millisecond)
				total <- i
			})
		}
		wg.Wait()
		sum := 0
		for range r.N {
			sum += <-total
		}
		out = sum
	default:
		return 8
	}
	b, err := json.Marshal(out)
	if err != nil {
		return 7
	}
	set(b)
	return 0
}

func set(b []byte) { outputSet(unsafe.Pointer(&b[0]), uint32(len(b))) }

func hostCall(name string, document json.RawMessage, body []byte) reply {
	if len(document) == 0 {
		document = json.RawMessage("{}")
	}
	p, n := unsafe.Pointer(&document[0]), uint32(len(document))
	var b unsafe.Pointer
	if len(body) > 0 {
		b = unsafe.Pointer(&body[0])
	}
	var status uint64
	switch name {
	case "log":
		status = hostLog(p, n)
	case "http":
		status = hostHTTP(p, n, b, uint32(len(body)))
	case "state_get":
		status = hostStateGet(p, n)
	case "state_set":
		status = hostStateSet(p, n)
	case "artifact_list":
		status = hostArtifactList(p, n)
	case "artifact_read":
		status = hostArtifactRead(p, n)
	case "artifact_save":
		status = hostArtifactSave(p, n, b, uint32(len(body)))
	case "kv_get":
		status = hostKVGet(p, n)
	case "kv_set":
		status = hostKVSet(p, n)
	case "kv_delete":
		status = hostKVDelete(p, n)
	case "kv_add":
		status = hostKVAdd(p, n)
	case "memory_search":
		status = hostMemorySearch(p, n)
	case "emit":
		status = hostEmit(p, n)
	case "confirm":
		status = hostConfirm(p, n)
	case "transfer":
		status = hostTransfer(p, n)
	case "escalate":
		status = hostEscalate(p, n)
	case "skip_summary":
		status = hostSkipSummary(p, n)
	}
	out := make([]byte, uint32(status))
	got := uint32(0)
	for got < uint32(len(out)) { // in pieces, to show that off counts
		got += replyRead(unsafe.Pointer(&out[got]), got, min(7<<10, uint32(len(out))-got))
	}
	r := reply{Error: status>>63 == 1, Text: string(out)}
	if name == "http" && !r.Error {
		n := binary.LittleEndian.Uint32(out)
		r.Head, r.Text = string(out[4:4+n]), string(out[4+n:])
	}
	return r
}

// warmUp has encoding/json learn the types, once.
//
//go:wasmexport warm_up
func warmUp() {
	var r request
	json.Unmarshal([]byte(`{"do":"","calls":[{"name":"","request":{},"body":""}],"n":1,"id":""}`), &r)
	json.Marshal([]reply{{}})
	json.Marshal(map[string]any{"a": 1})
}

//go:wasmexport describe
func describe() int32 {
	set([]byte(`{"abi":1,"name":"guest","version":"1","tools":[{"name":"do"}],"guards":[{"name":"judge","phases":["call"]}],"hooks":["before_tool"]}`))
	return 0
}
