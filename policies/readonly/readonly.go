// Package readonly is the first-party guard that lets an agent look and not touch:
// tools that say that they change nothing, with grants that only read.
package readonly

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say what else is allowed.
type Settings struct {
	AlsoAllow []string `json:"also_allow,omitempty" doc:"names of tools that are allowed whatever they do, with all their grants; * stands for any lower-case letters, digits, _ and -"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "read-only", Phases: []guest.Phase{guest.PhaseCall}, Check: Check, Judge: Judge}
}

// Check refuses names that no tool can have.
func Check(s Settings) error {
	var errs []error
	for i, t := range s.AlsoAllow {
		if !views.ValidPattern(t) {
			errs = append(errs, fmt.Errorf("also_allow[%d]: %q: want a name of ASCII letters, digits, _, - and *", i, t))
		}
	}
	return errors.Join(errs...)
}

// steering are tools of the host that change where a conversation goes. They say
// of themselves that they change nothing outside of it.
var steering = []string{"transfer_to_agent", "exit_loop"}

// Judge judges one call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if views.AnyAllows(s.AlsoAllow, q.Tool.Name) {
		return guest.Allow()
	}
	if q.Tool.Effects != guest.None || slices.Contains(steering, q.Tool.Name) {
		return guest.Deny("has_effects", "only tools that change nothing may be called", guest.Why{Rule: "has_effects", Saw: string(q.Tool.Effects)})
	}
	narrowed := []string{}
	for _, line := range q.Grants {
		if reads, ok := reading(line); ok {
			narrowed = append(narrowed, reads)
		}
	}
	if slices.Equal(narrowed, q.Grants) {
		return guest.Allow()
	}
	return guest.Narrow(narrowed...)
}

// verbs are the reading ones of each kind of grant; nil: it has none and reads.
var verbs = map[string][]string{
	"http": {"GET", "HEAD"}, "state": {"read"}, "artifact": {"read"}, "kv": {"read"}, "memory": {"search"},
	"log": nil, "clock": nil, "random": nil,
}

// reading returns the part of a grant that reads.
func reading(line string) (string, bool) {
	kind, rest, _ := strings.Cut(line, " ")
	may, known := verbs[kind]
	if !known {
		return "", false
	}
	if may == nil {
		return line, true
	}
	list, rest, more := strings.Cut(rest, " ")
	var kept []string
	for verb := range strings.SplitSeq(list, ",") {
		if slices.Contains(may, verb) {
			kept = append(kept, verb)
		}
	}
	if kept == nil {
		return "", false
	}
	out := kind + " " + strings.Join(kept, ",")
	if more {
		out += " " + rest
	}
	return out, true
}
