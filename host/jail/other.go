//go:build !linux

package jail

import "context"

// Supported says whether this system has a jail.
const Supported = false

// Run returns [ErrUnsupported].
func Run(context.Context, Limits, string, []byte) (refusal string, err error) {
	return "", ErrUnsupported
}

// serve is not reached: nobody starts a child here.
func serve(Work) int { return 1 }
