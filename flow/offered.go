package flow

import (
	"context"
	"fmt"

	"github.com/sandboxd/sandboxd/session"
)

// An Offered is a tool that an agent declares to its model.
type Offered struct {
	Agent string
	Spec  *Spec // the caller's own; its definition is what guards are told of the tool
}

// Offered returns every tool that the agents of the tree, and those that are tools of
// theirs, declare to their models: their own, the framework's and those of toolsets, which
// it asks as a run does. Tools that a hook or a provider of models adds to requests are not
// among them. A toolset that cannot be listed is an error, and nothing is returned.
// Nothing is run or stored.
func (r *Runner) Offered(ctx context.Context) ([]Offered, error) {
	return r.offered(ctx, r.tree, map[*Agent]bool{})
}

func (r *Runner) offered(ctx context.Context, t *tree, seen map[*Agent]bool) ([]Offered, error) {
	of := *r
	of.tree = t
	var out []Offered
	var add func(a *Agent) error
	add = func(a *Agent) error {
		if seen[a] {
			return nil
		}
		seen[a] = true
		f := &agentRun{place: place{run: of.newRun(session.Key{}, &session.Session{}, Input{})}, agent: a}
		if err := f.listTools(ctx); err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
		table := &toolTable{}
		for _, tool := range f.own {
			f.tools = append(f.tools, offer{tool, byFramework})
		}
		for _, o := range f.tools {
			if at, ok := o.tool.(*agentTool); ok && !seen[at.agent] {
				below, err := newTree(at.agent)
				if err != nil {
					return err
				}
				inner, err := r.offered(ctx, below, seen)
				if err != nil {
					return err
				}
				out = append(out, inner...)
			}
			if !executable(o.tool) {
				continue
			}
			spec, err := table.add(o.tool, o.by)
			if err != nil {
				return fmt.Errorf("agent %s: %w", a.Name, err)
			}
			if !spec.Undeclared {
				out = append(out, Offered{a.Name, spec})
			}
		}
		for _, b := range a.Agents {
			if err := add(b); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(t.root); err != nil {
		return nil, err
	}
	return out, nil
}
