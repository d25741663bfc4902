package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Group is a [Guard] made of others, all of which are asked: AtLeast of them
// must let the document pass. It judges like a chain of the AtLeast mildest
// verdicts, the first in the list's order if two are alike: their worst ruling
// counts, their grants are intersected, their hints joined. A member that fails
// counts as one that denies. There is no group that turns a verdict around: the
// opposite of a guard that failed would be an allow.
//
// Members judge in the same phases, and none of them mutates. A runner refuses a
// group that is not well-formed.
type Group struct {
	Label   string // its name in the app
	AtLeast int    // 1: any of them; len(Guards): all of them
	Guards  []Guard
}

// Name implements [Guard].
func (g *Group) Name() string { return g.Label }

// Version implements [Guard]: it covers the versions of all members.
func (g *Group) Version() string {
	return fmt.Sprintf("%d of %s", g.AtLeast, policyVersion(g.Guards))
}

// Phases implements [Guard].
func (g *Group) Phases() []abi.Phase {
	if len(g.Guards) == 0 {
		return nil
	}
	return g.Guards[0].Phases()
}

// Mutates implements [Guard]: a group never does.
func (g *Group) Mutates() []abi.Phase { return nil }

// Judge implements [Guard].
func (g *Group) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	v, _, counted, err := g.ask(ctx, q)
	if err == nil && v.Ruling == abi.RulingConfirm && slices.ContainsFunc(counted, func(j Judgement) bool { return j.Verdict.Ruling == abi.RulingNarrow }) {
		err = errors.New("a verdict cannot narrow and ask a person") // a runner does both
	}
	return v, err
}

// check reports what is wrong with a group.
func (g *Group) check() error {
	if g.AtLeast < 1 || g.AtLeast > len(g.Guards) {
		return fmt.Errorf("at least %d of %d members: want 1 to %d", g.AtLeast, len(g.Guards), len(g.Guards))
	}
	names := map[string]bool{}
	for i, m := range g.Guards {
		switch {
		case m == nil:
			panic(fmt.Sprintf("flow: group %s: member %d is nil", g.Label, i))
		case names[m.Name()]:
			return fmt.Errorf("member %s: there are two of that name", m.Name())
		case len(m.Mutates()) > 0:
			return fmt.Errorf("member %s: rewrites documents, which a member of a group may not", m.Name())
		}
		names[m.Name()] = true
		if _, nested := m.(*Group); nested {
			return fmt.Errorf("member %s: a group in a group", m.Name())
		}
		for _, p := range m.Phases() {
			if !slices.Contains(g.Phases(), p) {
				return fmt.Errorf("member %s: judges in phase %s, member %s does not", m.Name(), p, g.Guards[0].Name())
			}
		}
		if len(m.Phases()) != len(g.Phases()) {
			return fmt.Errorf("member %s: judges in %d phases, member %s in %d", m.Name(), len(m.Phases()), g.Guards[0].Name(), len(g.Phases()))
		}
	}
	return nil
}

// ask asks all members at the same time, each a question of its own. It returns
// the verdict, what members said, and those of them that count. The error is that
// of a group that could not decide because members failed.
func (g *Group) ask(ctx context.Context, q *abi.Question) (v abi.Verdict, members, counted []Judgement, err error) {
	waiting := make([]func() Judgement, len(g.Guards))
	for i, m := range g.Guards {
		waiting[i] = beginAsk(ctx, m, *q)
	}
	for _, wait := range waiting {
		members = append(members, wait())
	}
	order := slices.Clone(members)
	slices.SortStableFunc(order, func(a, b Judgement) int { return rank(a.Verdict.Ruling) - rank(b.Verdict.Ruling) })
	counted = order[:g.AtLeast]
	if counted[g.AtLeast-1].Verdict.Ruling == abi.RulingDeny {
		v, err = g.denied(order)
	} else {
		v = combine(counted, q.Grants)
	}
	v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
	return v, members, counted, err
}

// combine makes one verdict of those that count, none of which denies.
func combine(counted []Judgement, granted []string) abi.Verdict {
	out := abi.Verdict{Ruling: abi.RulingAllow}
	var hints []string
	for _, j := range counted {
		v := j.Verdict
		if v.Hint != "" {
			hints = append(hints, v.Hint)
		}
		if rank(v.Ruling) > rank(out.Ruling) {
			out.Ruling, out.Code = v.Ruling, v.Code
		}
		out.Hold = max(out.Hold, v.Hold)
		out.Why = append(out.Why, v.Why...)
	}
	out.Why = out.Why[:min(len(out.Why), abi.MaxWhy)]
	switch out.Ruling {
	case abi.RulingConfirm:
		out.Hint = abi.Confirm("", strings.Join(hints, " ")).Hint // cut
	case abi.RulingNarrow:
		all, err := capability.ParseSet(granted)
		if err != nil { // no such grants were given
			all = capability.Set{}
		}
		out.Grants = narrowest(all, counted).Lines()
	}
	return out
}

// denied is the verdict of a group of which too few members let a document pass:
// what the first of those that judged says, or else what went wrong.
func (g *Group) denied(order []Judgement) (abi.Verdict, error) {
	var failed []error
	for _, j := range order {
		if j.Verdict.Ruling != abi.RulingDeny {
			continue
		}
		if j.Err == nil {
			return j.Verdict, nil
		}
		failed = append(failed, fmt.Errorf("member %s: %w", j.Guard, j.Err))
	}
	return abi.Verdict{}, errors.Join(failed...)
}
