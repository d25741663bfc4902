// Order-limit is a guard over orders: high prices need a person, higher ones are
// refused, and what is internal in a result does not leave. The examples of the other
// languages do the same.
package main

import (
	"encoding/json"
	"errors"
	"fmt"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "order-limit", Version: "1.0.0", Description: "Keeps the prices of orders in bounds.",
		Exports: []guest.Export{guest.Guard[Settings]{
			Name: "order-limit", Phases: []guest.Phase{guest.PhaseCall, guest.PhaseResult}, Mutates: []guest.Phase{guest.PhaseResult},
			Check: check, Judge: judge,
		}},
	})
}

func main() {}

// Settings are the operator's: decimals as text.
type Settings struct {
	Ask   string `json:"ask_from"`
	Never string `json:"deny_from"`
}

func check(s Settings) error {
	_, _, err := s.bounds()
	return err
}

func (s Settings) bounds() (ask, never guest.Decimal, err error) {
	ask, err = guest.ParseDecimal(s.Ask)
	if err == nil {
		never, err = guest.ParseDecimal(s.Never)
	}
	switch {
	case err != nil:
		err = errors.New("ask_from and deny_from are decimals")
	case ask.Cmp(never) > 0:
		err = errors.New("ask_from is above deny_from, so nothing would ever be asked")
	}
	return ask, never, err
}

func judge(q *guest.Question, s Settings) guest.Verdict {
	switch {
	case q.Phase == guest.PhaseCall:
		return order(q, s)
	case q.Phase != guest.PhaseResult:
		return guest.Deny("bad_phase", "this guard judges calls and results")
	case !q.Result.Has("internal"):
		return guest.Allow()
	}
	q.Result.Delete("internal")
	return guest.Rewrite(q.Result)
}

func order(q *guest.Question, s Settings) guest.Verdict {
	if q.Tool.Name != "price_order" {
		return guest.Allow()
	}
	ask, never, err := s.bounds()
	if err != nil {
		return guest.Deny("bad_settings", err.Error())
	}
	var lines []guest.Document // of which only the price is read
	if found, err := q.Args.Get("lines", &lines); err != nil || !found {
		return guest.Deny("bad_order", "an order has lines")
	}
	var highest *guest.Decimal
	for i, line := range lines {
		price, err := line.Decimal("price")
		if err != nil || price.Sign() < 0 {
			saw, _ := line.Text("price")
			return guest.Deny("bad_price", "a price is not a decimal from 0 on", guest.Why{At: place(i), Saw: saw})
		}
		if price.Cmp(never) >= 0 {
			return guest.Deny("over_limit", "prices of "+s.Never+" and more are not accepted", guest.Why{Rule: "deny_from", At: place(i), Saw: price.String()})
		}
		if highest == nil || price.Cmp(*highest) > 0 {
			highest = &price
		}
	}
	if highest != nil && highest.Cmp(ask) >= 0 {
		return guest.Confirm("Order at " + highest.String() + "?")
	}
	var rate json.RawMessage
	if _, err := q.Args.Get("rate", &rate); err == nil && string(rate) == "true" {
		return guest.Allow()
	}
	return guest.Narrow("log", "state read user:currency") // no rate is asked for, so no network is needed
}

// place is made for a line that is told of, and for no other: it costs as much as the rest.
func place(line int) string { return fmt.Sprintf("/lines/%d/price", line) }
