// Package native is the door by which package guesttest reaches the plugin of a test
// binary: where a module exports functions to its host, a native build leaves them
// here.
package native

// A Wall is the host as seen from the guest.
type Wall interface {
	// HostCall makes a host call of abi.HostFunctions. The reply is the caller's; if
	// refused is true it is an abi.ErrorReply.
	HostCall(function string, request, body []byte) (reply []byte, refused bool)
	Random(p []byte)
}

// A Module is what guest.Serve was given.
type Module struct {
	Described []byte // the manifest, as abi.ExportDescribe gives it

	// Call answers one call, as abi.ExportCall does. An error is a trap.
	Call func(w Wall, input []byte) ([]byte, error)
}

// Served is what guest.Serve was given, nil until then.
var Served *Module
