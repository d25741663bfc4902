package host

import (
	"crypto/rand"
	"crypto/sha256"
	randv2 "math/rand/v2"
)

const maxRandomBytes = 1 << 20 // randomness of one call

// randomness is what one call draws.
type randomness struct {
	seed   []byte
	repeat bool            // it comes from seed; else it is fit for secrets
	source *randv2.ChaCha8 // nil until it is needed
	drawn  uint64
}

// randomness returns the randomness of the call.
func (u *use) randomness() randomness {
	return randomness{seed: u.call.Seed, repeat: u.guard || u.call.Seed != nil}
}

// draw counts n bytes that are about to be drawn, and ends the call if it has had
// too many.
func (r *randomness) draw(n uint64) {
	if r.drawn+n > maxRandomBytes {
		trap("randomness of %d bytes exceeds %d", r.drawn+n, maxRandomBytes)
	}
	r.drawn += n
}

// random fills b.
func (r *randomness) random(b []byte) {
	if !r.repeat {
		rand.Read(b) // never fails
		return
	}
	if r.source == nil {
		r.source = randv2.NewChaCha8(sha256.Sum256(r.seed))
	}
	r.source.Read(b) // nor does this
}
