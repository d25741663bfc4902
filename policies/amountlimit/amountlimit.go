// Package amountlimit is the first-party guard that bounds what a tool pays: one
// amount, and the sum of a session or day. From one bound on a person is asked, from
// another on the call is refused. Amounts are exact decimals, never floats.
package amountlimit

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say what may be paid. Bounds are inclusive: an amount that is equal to
// one has reached it.
type Settings struct {
	Tool       string   `json:"tool" doc:"name of the tool that pays; * stands for any letters, digits, _ and -"`
	Amount     string   `json:"amount" doc:"JSON pointer to the amount: a number or text, digits with at most 4 after the point, above zero"`
	Currency   string   `json:"currency,omitempty" doc:"JSON pointer to the currency; absent: there is but one, and nobody names it"`
	Currencies []string `json:"currencies,omitempty" doc:"the currencies that may be named; bounds are in each of them"`
	AskFrom    string   `json:"ask_from,omitempty" doc:"from this amount on a person is asked; a decimal as text" pattern:"^[0-9]{1,11}([.][0-9]{1,4})?$"`
	DenyFrom   string   `json:"deny_from,omitempty" doc:"from this amount on the call is refused" pattern:"^[0-9]{1,11}([.][0-9]{1,4})?$"`
	Per        Per      `json:"per,omitzero" doc:"bounds of sums, which count every attempt, also one that deny_from refuses or a person declines, unless the sum would reach its own deny_from"`
}

// Per has the bounds of sums.
type Per struct {
	Session Bounds `json:"session,omitzero" doc:"of one session"`
	Day     Bounds `json:"day,omitzero" doc:"of one user on one day, UTC"`
}

// Bounds are like those of one amount.
type Bounds struct {
	AskFrom  string `json:"ask_from,omitempty" doc:"from this sum on a person is asked" pattern:"^[0-9]{1,11}([.][0-9]{1,4})?$"`
	DenyFrom string `json:"deny_from,omitempty" doc:"the sum stays below this" pattern:"^[0-9]{1,11}([.][0-9]{1,4})?$"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "amount-limit", Phases: []guest.Phase{guest.PhaseCall}, Check: Check, Judge: Judge}
}

// Check refuses bounds that contradict each other.
func Check(s Settings) error {
	var errs []error
	if !views.ValidPattern(s.Tool) {
		errs = append(errs, fmt.Errorf("tool %q: want a name of ASCII letters, digits, _, - and *", s.Tool))
	}
	for name, pointer := range map[string]string{"amount": s.Amount, "currency": s.Currency} {
		if pointer != "" && !strings.HasPrefix(pointer, "/") || name == "amount" && pointer == "" {
			errs = append(errs, fmt.Errorf("%s %q: want a JSON pointer, such as /%s", name, pointer, name))
		}
	}
	if (s.Currency == "") != (s.Currencies == nil) {
		errs = append(errs, errors.New("currency and currencies go together"))
	}
	if s.AskFrom == "" && s.DenyFrom == "" && s.Per == (Per{}) {
		errs = append(errs, errors.New("want one of ask_from, deny_from and per"))
	}
	for name, b := range map[string]Bounds{"": {s.AskFrom, s.DenyFrom}, "per.session: ": s.Per.Session, "per.day: ": s.Per.Day} {
		ask, deny := bound(b.AskFrom), bound(b.DenyFrom)
		if ask >= 0 && deny >= 0 && ask >= deny {
			errs = append(errs, fmt.Errorf("%sask_from %s is not below deny_from %s: nobody would be asked", name, b.AskFrom, b.DenyFrom))
		}
	}
	return errors.Join(errs...)
}

// Judge judges one call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if !views.Covers(s.Tool, q.Tool.Name) {
		return guest.Allow()
	}
	text, units, ok := amount(q, s.Amount)
	if !ok {
		return guest.Deny("bad_amount", "the amount must be written with plain digits, at most 4 after the point, and be above zero", guest.Why{Rule: "amount", At: s.Amount, Saw: text})
	}
	currency := ""
	if s.Currency != "" {
		var err error
		if currency, err = q.Args.Text(s.Currency); err != nil || !slices.Contains(s.Currencies, currency) {
			return guest.Deny("bad_currency", "that currency is not one of those that are allowed", guest.Why{Rule: "currency", At: s.Currency, Saw: currency})
		}
	}
	why := func(rule string) guest.Why { return guest.Why{Rule: rule, At: s.Amount, Saw: text} }
	deny := bound(s.DenyFrom)
	over := deny >= 0 && units >= deny // refused, but counted: it may come again in parts
	hint := strings.TrimSpace(fmt.Sprintf("Pay %s %s?", text, currency))
	asks := ""
	if ask := bound(s.AskFrom); ask >= 0 && units >= ask {
		asks = "ask_from"
	}
	for _, sum := range []struct {
		code  string
		key   string
		ttl   time.Duration
		bound Bounds
	}{
		{"per_session", views.Key("session", q.User.ID, q.Session, currency), 366 * 24 * time.Hour, s.Per.Session},
		{"per_day", views.Key("day", q.User.ID, q.Now.UTC().Format(time.DateOnly), currency), 72 * time.Hour, s.Per.Day},
	} {
		if sum.bound == (Bounds{}) {
			continue
		}
		n, most := units, int64(maxUnits)
		if deny := bound(sum.bound.DenyFrom); deny >= 0 {
			most = deny - 1
		}
		if q.Facts.Approved != nil { // it was counted when a person was asked
			n = 0
		}
		total, added, err := q.KV().Add(sum.key, n, max(most, 0), sum.ttl)
		if err != nil {
			return views.Unavailable(err)
		}
		if !added && !over {
			return guest.Deny(sum.code, "the amounts together are above what is allowed", why(sum.code))
		}
		if ask := bound(sum.bound.AskFrom); ask >= 0 && total >= ask && asks == "" {
			asks = sum.code
		}
	}
	if over {
		return guest.Deny("deny_from", "the amount is above what is allowed", why("deny_from"))
	}
	if asks == "" {
		return guest.Allow()
	}
	v := guest.Confirm(hint, why(asks))
	v.Code = asks
	return v
}

// Amounts are counted in units of a ten-thousandth.
const (
	places   = 4
	maxUnits = 1_000_000_000_000_000
)

var form = regexp.MustCompile(`^(0|[1-9][0-9]{0,10})(\.[0-9]{1,4})?$`)

// amount reads the amount, as a text or number.
func amount(q *guest.Question, at string) (text string, units int64, ok bool) {
	var v any
	if found, err := q.Args.Get(at, &v); err != nil || !found {
		return "", 0, false
	}
	text = fmt.Sprint(v)
	switch v.(type) {
	case string, interface{ Int64() (int64, error) }: // text, or a number as it was written
	default:
		return "", 0, false
	}
	if !form.MatchString(text) {
		return text, 0, false
	}
	units = inUnits(text)
	return text, units, units > 0
}

// inUnits returns a decimal in units; its form was checked.
func inUnits(text string) int64 {
	whole, fraction, _ := strings.Cut(text, ".")
	n := int64(0)
	for _, digit := range []byte(whole + (fraction + strings.Repeat("0", places))[:places]) { // at most 15
		n = 10*n + int64(digit-'0')
	}
	return n
}

// bound returns a bound in units, -1 if there is none.
func bound(text string) int64 {
	if text == "" {
		return -1
	}
	return inUnits(text)
}
