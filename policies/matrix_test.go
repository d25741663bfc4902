package policies_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Every kind of bad guard, at every entrance, in the phases that it passes, as
// first, middle and last of three: what it stands before does not happen, it has
// one record that says why, each other guard has one of its own, and the other
// calls of the step are kept. With a good guard in its place it happens once.
func TestMatrix(t *testing.T) {
	m := &matrix{}
	limits := patient
	limits.Fuel = 3e6 // is soon used up
	m.try(t, "a good one", ofAKind(t, kind{guest: hosttest.Guest{Says: allow()}}, limits), func(c *cell, e *entrance, phase abi.Phase) string {
		if got := c.witness(e, phase); got != 1 {
			return fmt.Sprintf("witness %d, want 1", got)
		}
		return c.lost(e, phase)
	})
	for _, k := range badGuards {
		m.bad(t, k, limits)
	}
	for _, k := range lateGuards {
		synctest.Test(t, func(t *testing.T) { // its clock goes on when all wait
			limits.Wall = k.wall
			m.bad(t, k.kind, limits)
		})
	}
	t.Logf("witness of what a guard stands before, as first, middle and last of three\n%s", m)
}

// A matrix is a table of entrances and phases, and kinds of guards.
type matrix struct {
	names, rows  []string // of the rows: one for each entrance and phase
	head, legend string
	kinds, cells int
}

// try puts a guard into each cell of a column, and notes what wrong says of it.
func (m *matrix) try(t *testing.T, kind string, guards map[abi.Phase]flow.Guard, wrong func(c *cell, e *entrance, phase abi.Phase) string) {
	var armed atomic.Bool
	m.kinds++
	m.head += fmt.Sprintf(" %3d", m.kinds)
	m.legend += fmt.Sprintf("%d %s; ", m.kinds, kind)
	row := 0
	for i := range entrances {
		e := &entrances[i]
		for _, phase := range e.phases {
			if row == len(m.rows) {
				m.names, m.rows = append(m.names, e.name+", "+string(phase)), append(m.rows, "")
			}
			m.rows[row] += " "
			for position := range 3 {
				c := newCell(t, &armed, chain(e, phase, position, guards[phase], &armed)...)
				e.goes(c)
				why := wrong(c, e, phase)
				if why != "" {
					t.Errorf("%s at %s, %s, position %d: %s", kind, e.name, phase, position, why)
				}
				m.rows[row] += map[bool]string{true: fmt.Sprint(c.witness(e, phase)), false: "X"}[why == ""]
				m.cells++
			}
			row++
		}
	}
}

func (m *matrix) String() string {
	lines := make([]string, len(m.rows))
	for i := range lines {
		lines[i] = fmt.Sprintf("%-29s%s", m.names[i], m.rows[i])
	}
	return fmt.Sprintf("%s\n%29s%s\n%s\n%d cells", m.legend, "", m.head, strings.Join(lines, "\n"), m.cells)
}

// bad tries a kind of bad guard.
func (m *matrix) bad(t *testing.T, k kind, limits host.Limits) {
	guards := ofAKind(t, k, limits)
	m.try(t, k.name, guards, func(c *cell, e *entrance, phase abi.Phase) string { return c.wrong(e, phase, guards[phase], k.cause) })
}

// wrong says what a bad guard did not prevent, or how it was not recorded.
func (c *cell) wrong(e *entrance, phase abi.Phase, bad flow.Guard, cause string) string {
	if got := c.witness(e, phase); got != 0 {
		return fmt.Sprintf("witness %d", got)
	}
	var denied *audit.Record
	records := c.audit.Records()[c.from:]
	for i := range records {
		if records[i].Action == "guard.deny" {
			if denied != nil {
				return fmt.Sprintf("two denials: %+v and %+v", *denied, records[i])
			}
			denied = &records[i]
		}
	}
	if denied == nil || denied.Target != "bad" || denied.Code != string(abi.PolicyUnavailable) || denied.Why == "" || !strings.Contains(denied.Why, cause) ||
		denied.Module != bad.Version() || !strings.HasPrefix(denied.Module, "sha256:") || len(denied.ArgsSHA256) != 64 {
		return fmt.Sprintf("denial %+v", denied)
	}
	for _, name := range []string{"good1", "good2", "bad"} {
		n := 0
		for _, r := range records {
			if r.Target == name && strings.HasPrefix(r.Action, "guard.") && r.Call == denied.Call && r.ArgsSHA256 == denied.ArgsSHA256 && (name == "bad" || r.Action == "guard.allow") {
				n++
			}
		}
		if n != 1 {
			return fmt.Sprintf("%s has %d records", name, n)
		}
	}
	for _, r := range records {
		if r.Action == "call.intent" && r.Call == denied.Call && phase == abi.PhaseCall {
			return "an intent was recorded"
		}
	}
	return c.lost(e, phase)
}
