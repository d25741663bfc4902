// Package callquota is the first-party guard that bounds how often tools are called.
// It counts attempts, in one step that adds and compares, so that calls at the same
// time cannot pass together.
package callquota

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings are the quotas. A call that none speaks of is allowed.
type Settings struct {
	Limits []Limit `json:"limits" doc:"every one that speaks of the tool counts" max:"64"`
}

// A Limit is one quota. The first call opens a window, and the quota is fresh when the
// window is over.
type Limit struct {
	Tools  []string `json:"tools" doc:"names of the tools that share it; * stands for any letters, digits, _ and -" min:"1"`
	Per    string   `json:"per" doc:"whose calls are counted together" enum:"user,session,tenant,run"`
	Calls  int64    `json:"calls" doc:"so many may be made in a window" min:"0" max:"1000000000"`
	Window string   `json:"window" doc:"one minute, hour or day from the first call on, or the whole run" enum:"1m,1h,1d,run"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "call-quota", Phases: []guest.Phase{guest.PhaseCall}, Check: Check, Judge: Judge}
}

// Check refuses quotas of no tool.
func Check(s Settings) error {
	var errs []error
	for i, l := range s.Limits {
		for _, t := range l.Tools {
			if !views.ValidPattern(t) {
				errs = append(errs, fmt.Errorf("limits[%d]: tool %q: want a name of ASCII letters, digits, _, - and *", i, t))
			}
		}
	}
	return errors.Join(errs...)
}

// Judge judges one call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if q.Facts.Approved != nil {
		return guest.Allow() // it was counted when a person was asked
	}
	for i, l := range s.Limits {
		if !views.AnyCovers(l.Tools, q.Tool.Name) {
			continue
		}
		_, added, err := q.KV().Add(l.key(q), 1, l.Calls, l.window())
		if err != nil {
			return views.Unavailable(err)
		}
		if !added {
			return guest.Deny("quota", "that was called as often as it may be; try again later", guest.Why{Rule: fmt.Sprintf("limits[%d]", i), Saw: q.Tool.Name})
		}
	}
	return guest.Allow()
}

// key names the counter of a quota: its own, so that a change of other quotas leaves
// it as it is.
func (l *Limit) key(q *guest.Question) string {
	parts := []string{l.Per, l.Window, strings.Join(l.Tools, " ")}
	if l.Window == "run" || l.Per == "run" {
		parts = append(parts, "run", q.Session, q.Run)
	}
	switch l.Per {
	case "user":
		parts = append(parts, q.User.ID)
	case "session":
		parts = append(parts, q.User.ID, q.Session)
	}
	return views.Key(parts...)
}

// window is how long a counter lives. That of a run is never asked for again.
func (l *Limit) window() time.Duration {
	switch l.Window {
	case "1m":
		return time.Minute
	case "1h":
		return time.Hour
	}
	return 24 * time.Hour
}
