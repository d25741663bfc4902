//go:build wasip1

// Command guest is the scripted guest of the conformance vectors. It is what every
// handler and hook of a vector is made of when they run as guests: it does what the
// operations in its configuration say, through ordinary host imports, and first
// says on the log what it was called with. That line is the only evidence of a call
// that the runner accepts.
//
// The tools of vectors have any name and schema, so the guest speaks the documents
// of package abi and not the typed API of the SDK. It has no manifest of its own:
// the runner writes one for each handler and hook.
package main

import (
	"encoding/json"
	"fmt"
	"unicode/utf16"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func main() {}

// received begins a line of the log that says what a call received.
const received = "received "

//go:wasmexport call
func call() int32 {
	input := readInput()
	var head struct {
		Kind   abi.Kind          `json:"kind"`
		Config map[string]string `json:"config"`
	}
	must(json.Unmarshal(input, &head))
	do, err := abi.Unmarshal([]byte(head.Config["do"]))
	must(err)
	var answer any
	switch head.Kind {
	case abi.KindTool:
		var c abi.ToolCall
		must(json.Unmarshal(input, &c))
		seen := c
		seen.Config = nil
		say(seen)
		answer = tool(&c, operations(do))
	case abi.KindHook:
		var c abi.HookCall
		must(json.Unmarshal(input, &c))
		seen := c
		seen.Config, seen.Request = nil, nil
		say(seen)
		answer = hook(&c, operations(do))
	default:
		panic(fmt.Sprintf("kind %q is not known", head.Kind))
	}
	output, err := abi.Marshal(answer)
	must(err)
	writeOutput(output)
	return 0
}

// say tells the runner what a call received. The line is ASCII, so that the log
// leaves it as it is.
func say(document any) {
	data, err := json.Marshal(document)
	must(err)
	line := []byte(received)
	for _, r := range string(data) {
		if r < 0x7f {
			line = append(line, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) { // outside ASCII all are in strings
			line = fmt.Appendf(line, `\u%04x`, unit)
		}
	}
	must(ask("log", abi.LogRequest{Message: string(line)}, nil, nil))
}

// An operation is one step of a script.
type operation struct {
	name  string
	value any
}

// operations lists what a script does. Each member of the list has one operation.
func operations(do any) []operation {
	var all []operation
	list, _ := do.([]any)
	for _, step := range list {
		for name, value := range step.(map[string]any) {
			all = append(all, operation{name, value})
		}
	}
	return all
}

// must ends the call for what the runner got wrong.
func must(err error) {
	if err != nil {
		panic("scripted guest: " + err.Error())
	}
}

// raw encodes a value of a script.
func raw(v any) json.RawMessage {
	data, err := abi.Marshal(v)
	must(err)
	return data
}
