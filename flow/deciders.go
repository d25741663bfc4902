package flow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/session"
)

// A Decider is somebody who may decide questions to people: whoever has a role, or
// one user. One of the fields is set, to 1 to 128 bytes of printable text without
// spaces around it; names are compared byte for byte.
type Decider struct {
	Role string // as the host authenticated it: see [session.Decision].Roles
	User string // as the host authenticated them: see [session.Decision].By
}

// ParseDecider reads role:NAME or user:NAME. The error names the text and what is
// wanted.
func ParseDecider(text string) (Decider, error) {
	kind, name, _ := strings.Cut(text, ":")
	var d Decider
	switch kind {
	case "role":
		d.Role = name
	case "user":
		d.User = name
	default:
		return Decider{}, fmt.Errorf("%q: want role:NAME or user:NAME", text)
	}
	if err := d.check(); err != nil {
		return Decider{}, fmt.Errorf("%q: %w", text, err)
	}
	return d, nil
}

// String returns the text that [ParseDecider] reads.
func (d Decider) String() string {
	if d.Role != "" {
		return "role:" + d.Role
	}
	return "user:" + d.User
}

func (d Decider) check() error {
	name := d.Role + d.User
	switch {
	case d.Role != "" && d.User != "":
		return fmt.Errorf("role %q and user %q: want one of them", d.Role, d.User)
	case len(name) < 1 || len(name) > 128:
		return fmt.Errorf("name of %d bytes: want 1 to 128", len(name))
	case !utf8.ValidString(name) || strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }):
		return fmt.Errorf("name %q: want printable text without spaces around it", name)
	}
	return nil
}

// is reports whether somebody is this decider.
func (d Decider) is(who string, roles []string) bool {
	return d.User != "" && d.User == who || d.Role != "" && slices.Contains(roles, d.Role)
}

// checkDeciders refuses a list that lets nobody decide.
func checkDeciders(list []Decider) error {
	if list != nil && len(list) == 0 {
		return errors.New("deciders: none: nobody could decide; want one or more, or nil for anybody")
	}
	for i, d := range list {
		if err := d.check(); err != nil {
			return fmt.Errorf("deciders[%d]: %w", i, err)
		}
	}
	return nil
}

// MayDecide reports whether somebody with these roles may decide a question: they are
// among [Config].Deciders and, where four eyes are wanted, the question is not their
// own. It says nothing of what has become of the question, and is not audited. who
// and roles are as the host authenticated them.
//
// [Runner.Decide] and answers in messages go by it, and an approval from before is
// held to it once more when its call is to run, with the roles that were kept.
func (r *Runner) MayDecide(q session.Question, who string, roles []string) bool {
	return r.mayDecide(q, who, roles) == nil
}

var errMayNotDecide = errors.New("may not decide")

// mayDecide is MayDecide with the reason, for the operator.
func (r *Runner) mayDecide(q session.Question, who string, roles []string) error {
	switch {
	case r.cfg.FourEyes && q.OwnTo(who):
		return fmt.Errorf("question %s: whoever asks %w: %s", q.ID, errMayNotDecide, who)
	case r.cfg.Deciders != nil && !slices.ContainsFunc(r.cfg.Deciders, func(d Decider) bool { return d.is(who, roles) }):
		return fmt.Errorf("question %s: %s %w: want one of %v", q.ID, who, errMayNotDecide, r.cfg.Deciders)
	}
	return nil
}
