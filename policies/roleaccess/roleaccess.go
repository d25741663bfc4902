// Package roleaccess is the first-party guard that lets users call the tools of
// their roles, as the host authenticated them. Other tools are left out of what the
// model is told, and refused if it calls them all the same.
package roleaccess

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxd/sandboxd/policies/views"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

// Settings are the tools of each role. Who has several roles has the tools of all; who
// has none has none.
type Settings struct {
	Roles map[string][]string `json:"roles" doc:"names of tools, by role; * stands for any lower-case letters, digits, _ and -; transfer_to_agent:NAME is a transfer to that agent, and an agent that is a tool goes by its name" max:"256"`
}

// Guard returns the guard.
func Guard() guest.Guard[Settings] {
	return guest.Guard[Settings]{Name: "role-access", Phases: []guest.Phase{guest.PhaseRequest, guest.PhaseCall},
		Mutates: []guest.Phase{guest.PhaseRequest}, Check: Check, Judge: Judge}
}

// Check refuses names that no tool can have.
func Check(s Settings) error {
	var errs []error
	for role, tools := range s.Roles {
		for _, t := range tools {
			if !views.ValidPattern(t) {
				errs = append(errs, fmt.Errorf("roles.%s: %q: want a name of ASCII letters, digits, _, - and *", role, t))
			}
			if t == transfer {
				errs = append(errs, fmt.Errorf("roles.%s: %s: name the agent: %s:NAME, or %s:*", role, t, t, t))
			}
		}
	}
	return errors.Join(errs...)
}

const transfer = "transfer_to_agent"

// Judge judges one request or call.
func Judge(q *guest.Question, s Settings) guest.Verdict {
	var may []string
	for _, r := range q.User.Roles {
		may = append(may, s.Roles[r]...)
	}
	if q.Phase == guest.PhaseRequest {
		request := views.Tree(q.Judged())
		if !views.KeepDeclared(request, func(d views.Declared) bool { return offered(may, d.Name) }) {
			return guest.Allow()
		}
		return guest.Rewrite(request)
	}
	name := q.Tool.Name
	if name == transfer {
		agent, err := q.Args.Text("agent_name")
		if err != nil {
			return guest.Deny("bad_argument", "the name of an agent is missing", guest.Why{Rule: "role", At: "/agent_name"})
		}
		name += ":" + agent
	}
	if !views.AnyAllows(may, name) {
		return guest.Deny("role", "your role does not allow that", guest.Why{Rule: "role", Saw: name + " by " + strings.Join(q.User.Roles, ", ")})
	}
	return guest.Allow()
}

// offered reports whether a tool may be named to the model: transfers are, if any is
// allowed.
func offered(may []string, name string) bool {
	if name != transfer {
		return views.AnyAllows(may, name)
	}
	for _, p := range may {
		if strings.HasPrefix(p, transfer+":") {
			return true
		}
	}
	return false
}
