// Package dataflow is the first-party guard that closes ways out once something
// confidential was read. It is coarse on purpose: after a call of a source the sinks
// are closed, whatever their arguments look like, so that encoding, copying and
// summarising help nobody.
package dataflow

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say what closes what.
type Settings struct {
	Scope   string   `json:"scope" doc:"for how long a sink stays closed" enum:"run,session"`
	Sources []Source `json:"sources" doc:"tools that read what is confidential"`
	Sinks   []Sink   `json:"sinks" doc:"tools that let something out"`
}

// A Source is some tools whose results have a label.
type Source struct {
	Tools []string `json:"tools" doc:"names; * stands for any letters, digits, _ and -"`
	Label string   `json:"label" doc:"what their results are called" pattern:"^[a-z_]{1,40}$"`
}

// A Sink is some tools that may not be called after some labels.
type Sink struct {
	Tools    []string `json:"tools" doc:"names; * stands for any letters, digits, _ and -"`
	NotAfter []string `json:"not_after" doc:"labels"`
	Verdict  string   `json:"verdict" doc:"what becomes of a call: it is refused, or a person is asked" enum:"deny,confirm"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "data-flow", Phases: []guest.Phase{guest.PhaseCall, guest.PhaseResult}, Check: Check, Judge: Judge}
}

// Check refuses labels that nothing has.
func Check(s Settings) error {
	var errs []error
	var labels []string
	names := func(where string, tools []string) {
		for _, t := range tools {
			if !views.ValidPattern(t) {
				errs = append(errs, fmt.Errorf("%s: tool %q: want a name of ASCII letters, digits, _, - and *", where, t))
			}
		}
	}
	for i, source := range s.Sources {
		names(fmt.Sprintf("sources[%d]", i), source.Tools)
		labels = append(labels, source.Label)
	}
	for i, sink := range s.Sinks {
		names(fmt.Sprintf("sinks[%d]", i), sink.Tools)
		for _, l := range sink.NotAfter {
			if !slices.Contains(labels, l) {
				errs = append(errs, fmt.Errorf("sinks[%d]: label %q: no source has it", i, l))
			}
		}
	}
	return errors.Join(errs...)
}

// Judge judges one call, or notes one result.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	verdict := guest.Allow()
	if q.Phase == guest.PhaseCall {
		for i, sink := range s.Sinks {
			if !views.AnyCovers(sink.Tools, q.Tool.Name) {
				continue
			}
			for _, label := range sink.NotAfter {
				var noted bool
				found, err := q.KV().Get(s.key(q, label), &noted)
				if err != nil {
					return views.Unavailable(err)
				}
				why := guest.Why{Rule: fmt.Sprintf("sinks[%d]", i), Saw: label}
				switch {
				case !found:
				case sink.Verdict == "confirm":
					verdict = guest.Confirm(fmt.Sprintf("Data called %s was read before. Call %s?", label, q.Tool.Name), why)
					verdict.Code = label
				default:
					return guest.Deny(label, "confidential data was read before, so nothing may be sent", why)
				}
			}
		}
	}
	// A call that is still running may answer at any time, so it counts from here
	// on, and again when its result is there, which may be in another run.
	for _, source := range s.Sources {
		if !views.AnyCovers(source.Tools, q.Tool.Name) {
			continue
		}
		if err := q.KV().Set(s.key(q, source.Label), true, 366*24*time.Hour); err != nil {
			return views.Unavailable(err)
		}
	}
	return verdict
}

func (s *Settings) key(q *guest.Question, label string) string {
	parts := []string{label, q.User.ID, q.Session}
	if s.Scope == "run" {
		parts = append(parts, q.Run)
	}
	return views.Key(parts...)
}
