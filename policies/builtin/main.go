// Command builtin is the module that holds all first-party guards.
package main

import (
	"runtime/debug"

	"github.com/sandboxd/sandboxd/policies/amountlimit"
	"github.com/sandboxd/sandboxd/policies/argumentrules"
	"github.com/sandboxd/sandboxd/policies/callquota"
	"github.com/sandboxd/sandboxd/policies/changewindow"
	"github.com/sandboxd/sandboxd/policies/dataflow"
	"github.com/sandboxd/sandboxd/policies/egressallow"
	"github.com/sandboxd/sandboxd/policies/injectionquarantine"
	"github.com/sandboxd/sandboxd/policies/modelbudget"
	"github.com/sandboxd/sandboxd/policies/outputshape"
	"github.com/sandboxd/sandboxd/policies/piiredact"
	"github.com/sandboxd/sandboxd/policies/readonly"
	"github.com/sandboxd/sandboxd/policies/roleaccess"
	"github.com/sandboxd/sandboxd/policies/secretscan"
	"github.com/sandboxd/sandboxd/policies/toolpin"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	// An instance lives for one question, which leaves little behind: collecting it
	// would cost more fuel than the judgement. The first collection is at 8 MiB, well
	// below the 16 that a guard has.
	debug.SetGCPercent(200)
	guest.Serve(guest.Plugin{
		Name: "builtin", Version: "1.0.0",
		Description: "The guards that come with sandboxd.",
		Requests:    []string{"kv read,write"},
		Exports: []guest.Export{
			egressallow.Guard(),
			argumentrules.Guard(),
			amountlimit.Guard(),
			callquota.Guard(),
			piiredact.Guard(),
			secretscan.Guard(),
			injectionquarantine.Guard(),
			dataflow.Guard(),
			changewindow.Guard(),
			toolpin.Guard(),
			modelbudget.Guard(),
			outputshape.Guard(),
			readonly.Guard(),
			roleaccess.Guard(),
		},
	})
}

func main() {}
