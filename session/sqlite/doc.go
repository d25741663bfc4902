// Package sqlite keeps sessions, artifacts and small values of guests in a file, with SQLite
// compiled to Go: no cgo, no server.
//
// What a method of the [Store], its [Artifacts] or its [KV] has acknowledged survives the end of the process,
// kill -9 included, and the loss of power as far as the disk keeps what it was
// told to sync. Several processes may have one file open. The file must be on a
// local disk: its log needs shared memory, which network file systems lack.
//
// An event is kept as its JSON. What JSON cannot say comes back as JSON says it:
// a number in an open value is a [encoding/json.Number] with the text it had, an
// empty list or map may be nil, and genai writes the offsets in metadata of
// videos and transcriptions in whole seconds. The bytes of arguments, results
// and payloads are kept as they are.
package sqlite
