// Command ceiling is a guard as authors write it in Go: it lets payments pass up
// to a limit, asks a person above that, and looks at everything else that it may.
package main

import (
	"strings"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

type settings struct {
	Limit string `json:"limit" pattern:"^[0-9]+$"`
	Word  string `json:"word,omitempty" doc:"what nobody may say"`
}

func judge(q *guest.Question, s settings) guest.Verdict {
	switch q.Phase {
	case guest.PhaseCall:
		limit, err := guest.ParseDecimal(s.Limit)
		if err != nil {
			return guest.Deny("bad_settings", "")
		}
		amount, err := q.Args.Decimal("amount")
		if err != nil {
			return guest.Deny("no_amount", "name the amount")
		}
		if amount.Cmp(limit) > 0 {
			return guest.Confirm("more than " + s.Limit)
		}
	case guest.PhaseRequest:
		for i := range q.Request.Contents {
			if s.Word != "" && strings.Contains(q.Request.Contents[i].Text(), s.Word) {
				return guest.Deny("word", "")
			}
		}
	}
	return guest.Allow()
}

func init() {
	guest.Serve(guest.Plugin{Name: "ceiling", Version: "1.0.0", Exports: []guest.Export{guest.Guard[settings]{
		Name: "ceiling", Phases: []guest.Phase{guest.PhaseCall, guest.PhaseRequest}, Judge: judge}}})
}

func main() {}
