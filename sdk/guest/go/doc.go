// Package guest is what authors of plugins and policies import. It turns typed
// Go functions into a WebAssembly module that speaks the contract of package
// abi. It needs the plain Go toolchain, the standard library and package abi:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o weather.wasm .
//
// A plugin is a main package with an empty main function and one call of [Serve]
// in an init function. What it offers is one struct literal of tools ([Tool],
// [Stream], [Job]), [Hooks] and guards ([Guard]). Zero values are the safe ones.
// The two functions that the host calls, abi.ExportCall and abi.ExportDescribe,
// are exported by this package.
//
// # Types and schemas
//
// The JSON Schemas in the manifest are made from Go types. A struct is an object
// that has no other members; a member is required unless its json tag says
// omitempty or omitzero, its type is a pointer, or it has a default. Pointers,
// slices and maps may be null. [json.RawMessage], [Document], interfaces and types with a
// MarshalJSON of their own may be anything; types with MarshalText are text, as
// [time.Time] is; []byte is base64 text. Maps need keys that are text. Types
// that contain themselves, channels, functions and complex numbers panic in
// [Serve]. Struct tags say more:
//
//	doc      description
//	min max  bounds: of a number its value, of text its characters, of a list or map its members
//	enum     the values allowed, separated by commas; in a list it speaks of the elements
//	pattern  regular expression for text; in a list it speaks of the elements
//	default  the value of a member that is absent: plain text for text, else JSON
//
// The host checks arguments against the schema before the guest runs. Defaults
// are filled in by this package, so a handler sees them and a guard does not.
// A whole number may be written 3.0 or 3e0, as JSON Schema allows. Numbers that
// land in an interface are [json.Number].
//
// # Failing
//
// An error that a tool returns is read by the model: make it one with [Fail] if
// the model should be able to tell it from others. A panic is not recovered: the
// module traps, the operator finds the stack in the log, the model reads that the
// tool stopped, and a guard that traps denies. A host call that was refused is an
// error that matches [ErrDenied].
//
// # Randomness and time
//
// The memory of an initialised module may be kept and used for many calls, and
// with it the seeds of math/rand and hash/maphash and the order of maps: they are
// the same in every call. Use [Call.Random] or crypto/rand. time.Now is the start
// of the call unless the call was granted the clock.
//
// # Testing
//
// On other platforms than wasip1 the package compiles, so that handlers can be
// tested like any function. Package guesttest calls them as a host does, and answers
// their host calls as strictly.
package guest
