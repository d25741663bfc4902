//go:build !wasip1

package guest

import (
	"crypto/rand"
	"errors"
)

// exportCall and exportDescribe of wall_wasip1.go have no counterpart here: there
// is no host. Tests use server.serve with a wall of their own.

// imports is the wall of a guest outside a sandbox: no host, so no host call.
type imports struct{}

func (imports) call(function string, _, _ []byte) ([]byte, error) {
	return nil, errors.New(function + ": there is no host outside a sandbox")
}

func (imports) random(p []byte) { rand.Read(p) }

// makeRoom has nothing to do where no memory is kept between calls.
func makeRoom() {}
