// Command egress is the first-party guard egress-allow as a guest.
package main

import (
	"github.com/sandboxd/sandboxd/policies/egressallow"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "egress-allow", Version: "1.0.0",
		Exports: []guest.Export{guest.Guard[egressallow.Settings]{
			Name: "egress-allow", Phases: []guest.Phase{guest.PhaseCall},
			Check: egressallow.Check, Judge: egressallow.Judge,
		}},
	})
}

func main() {}
