package host

import (
	"github.com/sandboxd/sandboxd/host/rego"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// guardFunctions are the imports of sandboxd:host for guards alone.
var guardFunctions = []hostFunction{{abi.RegoBuiltin, withBody | forGuards, func(u *use, h *HostCall, request, body []byte) ([]byte, *refusal) {
	var r abi.RegoRequest
	if err := abi.Decode(request, &r); err != nil {
		trap("%s: %v", abi.RegoBuiltin, err)
	}
	if !u.guard {
		trap("%s: for guards only", abi.RegoBuiltin)
	}
	h.Detail = printable(r.Builtin, 80)
	result, err := rego.Call(r.Builtin, body, u.now)
	if err != nil {
		trap("%s: %v", abi.RegoBuiltin, err)
	}
	return result, nil
}}}
