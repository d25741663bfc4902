package session

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"
)

// Decide applies a decision to a question that a store holds: see
// [Store.Decide]. Stores call it inside their own transaction.
func (q *Question) Decide(d Decision) error {
	switch {
	case q.State != Pending:
		return fmt.Errorf("question %s: %w: %s", q.ID, ErrDecided, q.State)
	case !q.Expires.IsZero() && d.At.After(q.Expires):
		return fmt.Errorf("question %s: %w at %s", q.ID, ErrExpired, q.Expires.Format(time.RFC3339))
	case d.ArgsSHA256 != "" && d.ArgsSHA256 != q.ArgsSHA256:
		return fmt.Errorf("question %s: args_sha256 %w", q.ID, ErrMismatch)
	}
	q.State = Rejected
	if d.Approve {
		q.State = Approved
	}
	q.By, q.ByRoles, q.Decided, q.Payload, q.Via, q.Reason = d.By, slices.Clone(d.Roles), d.At, slices.Clone(d.Payload), d.Via, d.Reason
	return nil
}

// Spend uses an approved question up: see [Store.BeginCall].
func (q *Question) Spend() error {
	switch q.State {
	case Approved:
		q.State = Used
		return nil
	case Used:
		return fmt.Errorf("question %s: %w", q.ID, ErrUsed)
	}
	return fmt.Errorf("question %s: %w: %s", q.ID, ErrDecided, q.State)
}

// OwnTo reports whether a question is somebody's own: they started the run that
// asks, or it runs for them. Where four eyes are wanted, they do not decide it.
func (q *Question) OwnTo(who string) bool { return who == q.AskedBy || who == q.Session.User }

// In reports whether the question is in one of these states; without any it is.
func (q *Question) In(states ...QuestionState) bool {
	return len(states) == 0 || slices.Contains(states, q.State)
}

// CompareAsked orders questions as [Store.AppQuestions] does.
func CompareAsked(a, b Question) int {
	return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Session.User, b.Session.User),
		cmp.Compare(a.Session.ID, b.Session.ID), cmp.Compare(a.ID, b.ID))
}

func (q Question) clone() Question {
	q.Args = slices.Clone(q.Args)
	q.Given = slices.Clone(q.Given)
	q.Payload = slices.Clone(q.Payload)
	q.ByRoles = slices.Clone(q.ByRoles)
	return q
}

// Validate reports what is wrong with a key: app, user and id must be 1 to 128
// bytes of printable UTF-8, and a tenant at most 128.
func (k Key) Validate() error {
	for _, f := range []struct {
		name, value string
		empty       bool
	}{{"tenant", k.Tenant, true}, {"app", k.App, false}, {"user", k.User, false}, {"id", k.ID, false}} {
		if f.value == "" && f.empty {
			continue
		}
		if len(f.value) == 0 || len(f.value) > 128 || !utf8.ValidString(f.value) {
			return fmt.Errorf("session key: %s has %d bytes: want 1 to 128 of UTF-8", f.name, len(f.value))
		}
		for _, r := range f.value {
			if !unicode.IsPrint(r) {
				return fmt.Errorf("session key: %s holds %U", f.name, r)
			}
		}
	}
	return nil
}
