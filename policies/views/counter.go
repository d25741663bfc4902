package views

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Key makes a key of kv of parts, whatever they hold: no two lists of parts have the
// same one.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Unavailable is the denial of a guard that cannot count or remember.
func Unavailable(err error) guest.Verdict {
	return guest.Deny("policy_unavailable", "a policy cannot look up what happened before", guest.Why{Rule: "kv", Saw: err.Error()})
}
