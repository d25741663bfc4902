// Package changewindow is the first-party guard that keeps changes to certain hours.
// The time is that of the question: when the call is about to be made, not when
// somebody approved it.
package changewindow

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings say when what may be called.
type Settings struct {
	Zone    string   `json:"zone" doc:"time zone, such as Europe/Oslo or UTC"`
	Tools   []string `json:"tools,omitempty" doc:"names of the tools that are kept to the hours; * stands for any letters, digits, _ and -"`
	Effects []string `json:"effects,omitempty" doc:"so are all tools with these effects" enum:"none,idempotent,once"`
	Open    []Window `json:"open" doc:"when they may be called; empty: never"`
	Freeze  []Freeze `json:"freeze,omitempty" doc:"when they may not, whatever open says"`
	Outside string   `json:"outside,omitempty" doc:"what becomes of a call outside of the hours: it is refused, or a person is asked; in a freeze it is always refused" enum:"deny,confirm" default:"deny"`
}

// A Window is some hours of some days of the week.
type Window struct {
	Days []string `json:"days" doc:"the days on which it begins" enum:"mon,tue,wed,thu,fri,sat,sun"`
	From string   `json:"from" doc:"local time at which it begins, 00:00 to 23:59" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$"`
	To   string   `json:"to" doc:"and at which it is over, to 24:00; one that is not after from is on the next day" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$"`
}

// A Freeze is some days, the first and last included.
type Freeze struct {
	From string `json:"from" doc:"first day, YYYY-MM-DD, local" pattern:"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"`
	To   string `json:"to" doc:"last day" pattern:"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"`
	Why  string `json:"why" doc:"for those who are refused" max:"200"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "change-window", Phases: []guest.Phase{guest.PhaseCall}, Check: Check, Judge: Judge}
}

// Check refuses what is no time, and rules that speak of nothing.
func Check(s Settings) error {
	var errs []error
	if _, err := zone(s.Zone); err != nil {
		errs = append(errs, fmt.Errorf("zone %q: not known", s.Zone))
	}
	if s.Tools == nil && s.Effects == nil {
		errs = append(errs, errors.New("want one of tools and effects"))
	}
	for i, t := range s.Tools {
		if !views.ValidPattern(t) {
			errs = append(errs, fmt.Errorf("tools[%d]: %q: want a name of ASCII letters, digits, _, - and *", i, t))
		}
	}
	for i, f := range s.Freeze {
		_, errFrom := time.Parse(time.DateOnly, f.From)
		_, errTo := time.Parse(time.DateOnly, f.To)
		if errFrom != nil || errTo != nil || f.From > f.To {
			errs = append(errs, fmt.Errorf("freeze[%d]: %s to %s: want two days in order", i, f.From, f.To))
		}
	}
	return errors.Join(errs...)
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// Judge judges one call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	if !views.AnyCovers(s.Tools, q.Tool.Name) && !slices.Contains(s.Effects, string(q.Tool.Effects)) {
		return guest.Allow()
	}
	where, err := zone(s.Zone)
	if err != nil {
		panic(err) // which denies; Check has found the zone
	}
	now := q.Now.In(where)
	today, clock := now.Format(time.DateOnly), now.Format("15:04")
	saw := now.Format("Mon 2006-01-02 15:04 MST")
	for _, f := range s.Freeze {
		if today >= f.From && today <= f.To {
			return guest.Deny("freeze", "changes are frozen now: "+f.Why, guest.Why{Rule: "freeze", Saw: saw})
		}
	}
	day := int(now.Weekday())
	for _, w := range s.Open {
		on, before := slices.Contains(w.Days, days[day]), slices.Contains(w.Days, days[(day+6)%7])
		overnight := w.To <= w.From
		if on && clock >= w.From && (overnight || clock < w.To) || before && overnight && clock < w.To {
			return guest.Allow()
		}
	}
	why := guest.Why{Rule: "outside_window", Saw: saw}
	if s.Outside == "confirm" {
		v := guest.Confirm(fmt.Sprintf("It is %s, outside of the hours for changes. Call %s now?", saw, q.Tool.Name), why)
		v.Code = "outside_window"
		return v
	}
	return guest.Deny("outside_window", "that may not be called at this time", why)
}
