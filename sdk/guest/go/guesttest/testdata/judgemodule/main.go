// The judge as a module, for the real host.
package main

import (
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest/testdata/judge"
)

func init() { guest.Serve(judge.Plugin) }

func main() {}
