// The kit as a module, for the real host.
package main

import (
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest/testdata/kit"
)

func init() { guest.Serve(kit.Plugin) }

func main() {}
