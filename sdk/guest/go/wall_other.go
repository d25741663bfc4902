//go:build !wasip1

package guest

import "github.com/sandboxd/sandboxd/sdk/guest/go/internal/native"

// exportCall and exportDescribe of wall_wasip1.go have no counterpart here. What a
// plugin offers is left for package guesttest, which is the host there is.
func offer(s *server) {
	native.Served = &native.Module{Described: s.described, Call: func(w native.Wall, input []byte) ([]byte, error) {
		return s.serve(fake{w}, input)
	}}
}

// fake is the wall to package guesttest.
type fake struct{ wall native.Wall }

func (f fake) call(function string, request, body []byte) ([]byte, error) {
	reply, refused := f.wall.HostCall(function, request, body)
	if refused {
		return nil, hostError(function, reply)
	}
	return reply, nil
}

func (f fake) random(p []byte) { f.wall.Random(p) }

// makeRoom has nothing to do where no memory is kept between calls.
func makeRoom() {}
