// Smallest is the least that a plugin can be.
package main

import "github.com/sandboxd/sandboxd/sdk/guest/go"

func init() {
	guest.Serve(guest.Plugin{Name: "smallest", Version: "1.0.0", Exports: []guest.Export{
		guest.Tool[struct{}, struct{}]{Name: "nothing", Handle: func(*guest.Call, struct{}) (struct{}, error) { return struct{}{}, nil }},
	}})
}

func main() {}
