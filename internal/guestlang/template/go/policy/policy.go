// A policy with one guard. It is built and tested with the plain Go toolchain:
//
//	sandboxd policy test
package main

import (
	"errors"
	"slices"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "office", Version: "0.1.0",
		Exports: []guest.Export{guest.Guard[Settings]{
			Name: "office", Phases: []guest.Phase{guest.PhaseCall}, Check: check, Judge: judge,
		}},
	})
}

func main() {}

// Settings are the operator's.
type Settings struct {
	Tools []string `json:"tools" doc:"tools that wait for office hours"`
	From  int      `json:"from" doc:"the hour at which the office opens, in UTC" min:"0" max:"23"`
	Until int      `json:"until" doc:"the hour at which it closes" min:"1" max:"24"`
}

// check runs when the guard is installed.
func check(s Settings) error {
	if s.From >= s.Until {
		return errors.New("until is not after from, so the office would never open")
	}
	return nil
}

// judge runs for every call of a tool. A judge that panics or loops denies.
func judge(q *guest.Question, s Settings) guest.Verdict {
	if !slices.Contains(s.Tools, q.Tool.Name) {
		return guest.Allow()
	}
	now := q.Now.UTC() // the only time there is
	// The row "weekend" waits for this, and for an import of "time":
	//
	//	if day := now.Weekday(); day == time.Saturday || day == time.Sunday {
	//		return guest.Deny("closed", "the office is closed at weekends")
	//	}
	if now.Hour() < s.From || now.Hour() >= s.Until {
		return guest.Deny("closed", "the office is closed now")
	}
	return guest.Allow()
}
