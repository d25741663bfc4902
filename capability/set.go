package capability

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxLines is the most lines that [ParseSet] reads.
const MaxLines = 256

// maxAtoms is the most lines of one verb that a set is made of; MaxLines lines
// never have more. Only an intersection can exceed it, when hundreds of lines
// each overlap with hundreds of others in part: hostile input, which must cost
// little time and grant nothing.
const maxAtoms = 2048

// A Set is what a call may do: the union of its lines. Sets are immutable, and
// the zero Set grants nothing.
type Set struct {
	lines []Capability // normal form, see newSet
}

// ParseSet parses lines into a set. An empty slice is the zero Set. The error
// joins a [*SyntaxError] for every line that is none.
func ParseSet(lines []string) (Set, error) {
	if len(lines) > MaxLines {
		return Set{}, fmt.Errorf("%w: %d lines exceed %d", ErrSyntax, len(lines), MaxLines)
	}
	var all []Capability
	var errs []error
	for _, line := range lines {
		c, err := Parse(line)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, c)
	}
	if errs != nil {
		return Set{}, errors.Join(errs...)
	}
	return newSet(all), nil
}

// newSet brings lines into normal form: taken apart into one verb each, without
// those that another one covers, joined again where only the verb differs, and
// sorted by text. Sets that allow the same have the same normal form.
func newSet(lines []Capability) Set {
	groups := map[Capability][]Capability{} // by what must be equal for one to cover the other
	seen := map[Capability]bool{}           // each atom once
	for _, c := range lines {
		for _, atom := range c.atoms() {
			if !seen[atom] {
				if len(seen) == maxAtoms {
					return Set{}
				}
				seen[atom] = true
				key := Capability{kind: atom.kind, verbs: atom.verbs, scheme: atom.scheme, port: atom.port}
				groups[key] = append(groups[key], atom)
			}
		}
	}
	joined := map[Capability]verbs{}
	for _, group := range groups {
		for _, atom := range maximal(group) {
			line := atom
			line.verbs = 0
			joined[line] |= atom.verbs
		}
	}
	var s Set
	for line, vs := range joined {
		line.verbs = vs
		s.lines = append(s.lines, line)
	}
	slices.SortFunc(s.lines, func(a, b Capability) int { return strings.Compare(a.String(), b.String()) })
	return s
}

// maximal returns the lines of a group that no other one covers. The lines
// differ, so no two cover each other.
func maximal(group []Capability) []Capability {
	var top []Capability
next:
	for _, c := range group {
		for _, t := range top {
			if inside(c, t) {
				continue next
			}
		}
		top = slices.DeleteFunc(top, func(t Capability) bool { return inside(t, c) })
		top = append(top, c)
	}
	return top
}

// atoms returns c as lines of one verb each.
func (c Capability) atoms() []Capability {
	if c.verbs == 0 {
		return []Capability{c}
	}
	var out []Capability
	for bit := verbs(1); bit != 0; bit <<= 1 {
		if c.verbs&bit != 0 {
			atom := c
			atom.verbs = bit
			out = append(out, atom)
		}
	}
	return out
}

// Lines returns the canonical lines, sorted, none of which is covered by the
// others. Two sets allow the same if and only if their lines are equal. The slice
// is the caller's; it is empty, not nil, for the empty set.
func (s Set) Lines() []string {
	out := make([]string, len(s.lines))
	for i, c := range s.lines {
		out[i] = c.String()
	}
	return out
}

// Capabilities returns the lines as values, in the order of [Set.Lines]. The
// slice is the caller's.
func (s Set) Capabilities() []Capability { return slices.Clone(s.lines) }

// Intersect returns the set that allows exactly what both s and t allow. If that
// would take more than 2048 lines of one verb each, far more than a person can
// read, it returns the zero Set.
func (s Set) Intersect(t Set) Set {
	var all []Capability
	for _, a := range s.lines {
		for _, b := range t.lines {
			all = append(all, meet(a, b)...)
		}
	}
	return newSet(all)
}

// Effective returns the grant of a call: the intersection of what the module
// requests, the ceiling it runs under, the operator's binding, and each
// narrowing. Each argument can only take away. It is the one place where a grant
// is computed.
func Effective(request, ceiling, binding Set, narrow ...Set) Set {
	s := request.Intersect(ceiling).Intersect(binding)
	for _, n := range narrow {
		s = s.Intersect(n)
	}
	return s
}

// Covers reports whether s allows all that c allows. Different verbs of c may be
// covered by different lines. The zero Capability is covered by no set.
func (s Set) Covers(c Capability) bool {
	if c.kind == "" {
		return false
	}
	for _, atom := range c.atoms() {
		if !slices.ContainsFunc(s.lines, func(line Capability) bool { return inside(atom, line) }) {
			return false
		}
	}
	return true
}

// Empty reports whether s grants nothing.
func (s Set) Empty() bool { return len(s.lines) == 0 }

// Has reports whether s has a line of the kind, such as "log" or "http".
func (s Set) Has(kind string) bool {
	return slices.ContainsFunc(s.lines, func(c Capability) bool { return c.kind == kind })
}
