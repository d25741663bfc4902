package abi

import "encoding/json"

// HostFunctions are the functions of [ImportHost]. All take and return plain
// integers; pointers and lengths are offsets into the guest's memory, and one
// that does not lie inside it traps.
//
// Bulk transfer:
//
//	input_length() i64                 length of the input
//	input_read(ptr, off, len i32) i32  copies input[off:off+len] to ptr; returns the bytes copied
//	output_set(ptr, len i32)           the output is a copy of these bytes; a later call replaces it
//	reply_read(ptr, off, len i32) i32  copies part of the last host call's reply, as input_read does
//
// Host calls take a request document (ptr, len) and return an i64: its low 32
// bits are the length of the reply, which reply_read copies until the next host
// call; its sign bit is set if the reply is an [ErrorReply]. A refused call is
// such a reply: it has no effect and never traps.
//
//	function        request            reply               needs
//	log             LogRequest         nothing             log
//	http            HTTPRequest, body  see HTTPReply       http, and secret for each secret used
//	state_get       StateGet           StateValue          state read
//	state_set       StateSet           nothing             state write
//	artifact_list   nothing ("{}")     ArtifactNames       artifact read (names it covers)
//	artifact_read   ArtifactRead       bytes, at most MaxChunk; none at the end   artifact read
//	artifact_save   ArtifactSave, body ArtifactVersion     artifact write
//	kv_get          KVKey              StateValue          kv read
//	kv_set          KVSet              nothing             kv write
//	kv_delete       KVKey              nothing             kv write
//	kv_add          KVAdd              KVCount             kv write
//	memory_search   MemorySearch       MemoryEntries       memory search
//	emit            EmitRequest        nothing             emit, in a streaming tool
//	confirm         ConfirmRequest     nothing             confirm
//	transfer        TransferRequest    nothing             transfer
//	escalate        nothing ("{}")     nothing             escalate
//	skip_summary    nothing ("{}")     nothing             skip-summary
//
// http and artifact_save take four parameters: ptr and len of the request, ptr
// and len of the body.
func HostFunctions() []string {
	return []string{"input_length", "input_read", "output_set", "reply_read",
		"log", "http", "state_get", "state_set", "artifact_list", "artifact_read", "artifact_save",
		"kv_get", "kv_set", "kv_delete", "kv_add", "memory_search",
		"emit", "confirm", "transfer", "escalate", "skip_summary"}
}

// RegoBuiltin is the function of [ImportHost] that a module may import only if all it
// offers is guards: it computes a function of Rego that OPA leaves to its host. Its
// request is a [RegoRequest], its body the text of an array of arguments, its reply
// the text of the result, each as OPA writes values; a reply without bytes says that
// the function has no value for these arguments. What the host does not compute ends
// the call.
const RegoBuiltin = "rego_builtin"

// A RegoRequest names a function of Rego.
type RegoRequest struct {
	Builtin string `json:"builtin"` // such as sprintf
}

// Bounds of host calls.
const (
	MaxChunk         = 64 << 10           // bytes that one artifact_read returns
	MaxKVBytes       = 64 << 10           // a value of kv
	MaxCount         = 1<<53 - 1          // a counter of kv, and what is added to it, which every language can hold
	MaxTTLMillis     = 366 * 24 * 3600000 // how long a value of kv may be told to live: 366 days
	MaxQueryBytes    = 4 << 10            // a search of memory
	MaxMemoryEntries = 100                // that one search returns
	MaxMemoryBytes   = 256 << 10          // texts of all of them
)

// An ErrorReply is the reply of a host call that had no effect.
type ErrorReply struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // for the guest's author: what was needed
}

// A LogRequest writes one line to the operator's log.
type LogRequest struct {
	Level   string `json:"level,omitempty"` // debug, info (default), warn, error
	Message string `json:"message"`
}

// An HTTPRequest asks the host to send a request.
type HTTPRequest struct {
	Method  string            `json:"method,omitempty"` // default GET
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Secrets []UseSecret       `json:"secrets,omitempty"`
}

// UseSecret asks the host to put a secret into a request header. The guest never
// sees the value.
type UseSecret struct {
	Secret string `json:"secret"` // its name
	Header string `json:"header"`
	Prefix string `json:"prefix,omitempty"` // written before the value, such as "Bearer "
}

// An HTTPReply is the head of an answer. The reply of the host call is the
// length of this document as 4 bytes little endian, the document, and the body.
type HTTPReply struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"` // names in lower case, values joined with ", "
}

// StateGet reads one state value. Keys are written as grants write them, with
// their scope: session:, user:, app: or temp:.
type StateGet struct {
	Key string `json:"key"`
}

// A StateValue is the answer to StateGet, and to KVKey in kv_get.
type StateValue struct {
	Found bool            `json:"found"`
	Value json.RawMessage `json:"value,omitempty"`
}

// StateSet writes state values, all or none.
type StateSet struct {
	Values map[string]json.RawMessage `json:"values"`
}

// ArtifactNames lists the names of artifacts.
type ArtifactNames struct {
	Names []string `json:"names"`
}

// ArtifactRead reads a part of an artifact.
type ArtifactRead struct {
	Name    string `json:"name"`
	Version int64  `json:"version,omitempty"` // 0: the newest
	Offset  int64  `json:"offset,omitempty"`
}

// ArtifactSave saves a new version of an artifact.
type ArtifactSave struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"` // MIME type; "text/plain" saves text
}

// An ArtifactVersion is the version that the host gave a saved artifact.
type ArtifactVersion struct {
	Version int64 `json:"version"`
}

// A KVKey names a value of kv. Keys are the guest's own: no other plugin or guard
// sees them.
type KVKey struct {
	Key string `json:"key"`
}

// A KVSet writes a value.
type KVSet struct {
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	TTLMillis int64           `json:"ttl_ms,omitempty"` // 0: lives until it is deleted
}

// A KVAdd adds to a counter in one step. A counter that is not there is 0.
type KVAdd struct {
	Key       string `json:"key"`
	N         int64  `json:"n"`                // may be negative: the counter stops at 0
	Most      int64  `json:"most"`             // nothing is added if the sum would exceed it
	TTLMillis int64  `json:"ttl_ms,omitempty"` // of a counter that begins with this; 0: lives until it is deleted
}

// A KVCount is the answer to KVAdd.
type KVCount struct {
	Added bool  `json:"added"` // false: the sum would have exceeded the most
	Count int64 `json:"count"` // the counter as it is now
}

// A MemorySearch looks for what was said in earlier sessions of the user.
type MemorySearch struct {
	Query string `json:"query"`
}

// MemoryEntries are the answer to MemorySearch.
type MemoryEntries struct {
	Entries []MemoryEntry `json:"entries"`
}

// A MemoryEntry is one thing that was said.
type MemoryEntry struct {
	Author string `json:"author,omitempty"`
	Text   string `json:"text"`
	Time   string `json:"time,omitempty"` // RFC 3339
}

// An EmitRequest sends one chunk of a streaming tool.
type EmitRequest struct {
	Chunk json.RawMessage `json:"chunk"`
}

// A ConfirmRequest asks a person about this call. The tool should return at once;
// the call is made again with the answer.
type ConfirmRequest struct {
	Hint    string          `json:"hint,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// A TransferRequest hands the conversation to another agent after this step.
type TransferRequest struct {
	Agent string `json:"agent"`
}
