// A guard for tests of coverage and of changes: it denies amounts above a limit, the
// amount of a trial, and what is forbidden.
package main

import (
	"errors"
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{Name: "limit", Version: "1.0.0", Exports: []guest.Export{guest.Guard[settings]{
		Name: "limit", Phases: []guest.Phase{guest.PhaseCall}, Check: check, Judge: judge,
	}}})
}

func main() {}

type settings struct {
	Most      int64    `json:"most"`
	Forbidden []string `json:"forbidden"`
}

func check(s settings) error {
	if s.Most < 0 {
		return errors.New("most is below zero")
	}
	return nil
}

func judge(q *guest.Question, s settings) guest.Verdict {
	var amount int64
	if found, err := q.Args.Get("/amount", &amount); err != nil || !found {
		return guest.Deny("bad_amount", "no amount")
	}
	for _, name := range s.Forbidden {
		if strings.HasPrefix(q.Tool.Name, name) {
			return guest.Deny("forbidden", "not that tool")
		}
	}
	if amount > s.Most {
		return guest.Deny("too_much", "too much")
	}
	if amount == 7 {
		return guest.Deny("trial", "the amount of a trial")
	}
	return guest.Allow()
}
