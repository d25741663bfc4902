package host

import (
	"github.com/sandboxd/sandboxd/host/rego"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// guardFunctions are the imports of sandboxd:host for guards alone.
var guardFunctions = []function{forGuard(hostCallBody(abi.RegoBuiltin, func(f *frame, h *HostCall, request, body []byte) ([]byte, *refusal) {
	var r abi.RegoRequest
	if err := abi.Decode(request, &r); err != nil {
		trap("%s: %v", abi.RegoBuiltin, err)
	}
	if !f.guard {
		trap("%s: for guards only", abi.RegoBuiltin)
	}
	h.Detail = printable(r.Builtin, 80)
	result, err := rego.Call(r.Builtin, body, f.now)
	if err != nil {
		trap("%s: %v", abi.RegoBuiltin, err)
	}
	return result, nil
}))}

// forGuard keeps a function from modules that offer anything but guards.
func forGuard(f function) function {
	f.traits |= forGuards
	return f
}
