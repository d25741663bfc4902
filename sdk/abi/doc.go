// Package abi is the contract between sandboxd and its guests: the names a
// module imports and exports, the JSON documents that cross the wall, and the
// version of both. It is used on both sides, by the host and by the Go guest
// SDK, and depends on the standard library only. docs/guest-abi.md describes
// the same contract for authors of SDKs in other languages.
//
// # One call
//
// A guest is a core WebAssembly module. The host makes a fresh instance, runs
// _initialize if the module exports it, and calls one export: the one the
// manifest names for a tool or guard, else [ExportCall]. The export takes no
// parameters and returns nothing or a return code, where 0 is success. Input
// and output are one JSON document each, moved through the Extism imports
// (module [ImportExtism]) or through the bulk imports (module [ImportHost]).
//
//	asked        input            output
//	a tool       [ToolCall]       [ToolResult]
//	a hook       [HookCall]       [HookAnswer]
//	a guard      [Question]       [Verdict]
//	its settings [SettingsCall]   [SettingsAnswer]
//	itself       nothing          [Manifest], from [ExportDescribe]
//
// Every input names its kind in the member "kind", so one export can serve all.
//
// # Rules for every document
//
// Documents are strict JSON (RFC 8259) in UTF-8: no duplicate member names, at
// most [MaxNesting] levels of nesting, of which what a document holds has at most
// [MaxDepth], no bytes after the value. Members that the
// contract does not name are errors in what a guest returns. Numbers keep their
// text. [Canonical] is the one form in which arguments and results are digested,
// judged and handed over.
package abi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the version of the contract that this package describes. A module
// whose manifest names another version is refused.
const Version = 1

// Names of the modules and functions a guest imports and exports.
const (
	ImportExtism = "extism:host/env"        // Extism's imports, for plugins of any Extism PDK
	ImportHost   = "sandboxd:host"          // bulk transfer and host calls, see [HostFunctions]
	ImportWASI   = "wasi_snapshot_preview1" // the subset a language runtime needs

	ExportCall       = "call"        // serves every kind of call
	ExportDescribe   = "describe"    // returns the manifest; called by packers, never at run time
	ExportInitialize = "_initialize" // runs before any other export, see [ExportWarmUp]
	ExportWarmUp     = "warm_up"     // optional: runs after it, to do once what calls need
	ExportStart      = "_start"      // of a command; a raw tool may name it as its export, see [Tool]

	ManifestSection = "sandboxd.manifest" // the custom section that holds the manifest
)

// A Kind says what a call asks of a guest.
type Kind string

// The kinds of call.
const (
	KindTool     Kind = "tool"
	KindHook     Kind = "hook"
	KindGuard    Kind = "guard"
	KindSettings Kind = "settings"
)

// A Failure tells the model why a call failed. Both texts are the guest's own:
// they are bounded, escaped and shown as data.
type Failure struct {
	Code    string `json:"code,omitempty"` // [a-z_]{1,40}, the guest's own; empty if it has none
	Message string `json:"message"`
}

// A ToolCall is the input of a tool.
type ToolCall struct {
	Format       int               `json:"format"` // Version
	Kind         Kind              `json:"kind"`   // KindTool
	Tool         string            `json:"tool"`   // the name in the manifest
	ID           string            `json:"id"`     // the call's id; equal when a call is sent again
	Args         json.RawMessage   `json:"args"`   // an object in canonical form, valid against the tool's input schema
	Config       map[string]string `json:"config,omitempty"`
	Confirmation *Confirmation     `json:"confirmation,omitempty"` // a person's answer, when there was a question
	Now          string            `json:"now,omitempty"`          // start of the call, RFC 3339
}

// A Confirmation is a person's answer to a question about one call.
type Confirmation struct {
	Confirmed bool            `json:"confirmed"`
	Hint      string          `json:"hint,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`
}

// A ToolResult is the output of a tool: a result, a failure, or neither when the
// tool has nothing to say yet. A result that is no object is wrapped by the host
// as {"result": …}.
type ToolResult struct {
	Format int             `json:"format"` // Version
	Result json.RawMessage `json:"result,omitempty"`
	Fail   *Failure        `json:"fail,omitempty"`
}

// ParseToolResult decodes what a tool returned. The result is in canonical form.
func ParseToolResult(data []byte) (ToolResult, error) {
	var r ToolResult
	if err := Decode(data, &r); err != nil {
		return ToolResult{}, err
	}
	switch {
	case r.Format != Version:
		return ToolResult{}, fmt.Errorf("tool result: format %d: want %d", r.Format, Version)
	case r.Fail != nil && r.Result != nil:
		return ToolResult{}, errors.New("tool result: result and fail exclude each other")
	case r.Fail != nil && r.Fail.Code != "" && !ValidCode(r.Fail.Code):
		return ToolResult{}, fmt.Errorf("tool result: code %q: want [a-z_]{1,40}", clip(r.Fail.Code, 60))
	}
	return r, nil
}

// A SettingsCall asks a guard whether it can work with settings. It is sent when
// an app is loaded, before any call can wait for the guard.
type SettingsCall struct {
	Format   int             `json:"format"` // Version
	Kind     Kind            `json:"kind"`   // KindSettings
	Guard    string          `json:"guard"`
	Settings json.RawMessage `json:"settings"` // valid against the guard's settings schema
}

// A SettingsAnswer is the answer: settings are good if Error is empty.
type SettingsAnswer struct {
	Format int    `json:"format"` // Version
	Error  string `json:"error,omitempty"`
}
