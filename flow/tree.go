package flow

import (
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/session"
)

// A tree is an agent with all agents below it.
type tree struct {
	root   *Agent
	parent map[*Agent]*Agent
	named  map[string]*Agent
}

// newTree checks the agents below root, and those of its agent tools.
func newTree(root *Agent) (*tree, error) { return newTreeOf(root, map[*Agent]bool{}) }

func newTreeOf(root *Agent, seen map[*Agent]bool) (*tree, error) {
	t := &tree{root: root, parent: map[*Agent]*Agent{}, named: map[string]*Agent{}}
	if err := t.add(root, nil, seen); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *tree) add(a, parent *Agent, seen map[*Agent]bool) error {
	if err := a.validate(); err != nil {
		return err
	}
	switch other := t.named[a.Name]; {
	case other == a:
		return fmt.Errorf("agent %s: stands twice in the tree", a.Name)
	case other != nil:
		return fmt.Errorf("agent %s: there are two of that name", a.Name)
	}
	if slices.Contains(a.Agents, nil) {
		return fmt.Errorf("agent %s: an agent below it is nil", a.Name)
	}
	if err := a.checkOffers(); err != nil {
		return err
	}
	t.named[a.Name], t.parent[a] = a, parent
	seen[a] = true
	for _, tool := range a.Tools {
		if at, ok := tool.(*agentTool); ok && !seen[at.agent] { // an agent may use itself
			if _, err := newTreeOf(at.agent, seen); err != nil {
				return fmt.Errorf("tool %s: %w", at.spec.Name, err)
			}
		}
	}
	for _, sub := range a.Agents {
		if err := t.add(sub, a, seen); err != nil {
			return err
		}
	}
	return nil
}

// targets returns the agents to which one may hand the conversation: those below
// it, the one above, and the others below that one.
func (t *tree) targets(a *Agent) []*Agent {
	if a.Type != ModelAgent {
		return nil
	}
	var out []*Agent
	add := func(agents []*Agent) {
		for _, b := range agents {
			if b != a && (b.Type != ModelAgent || b.Mode == "" || b.Mode == Chat) {
				out = append(out, b)
			}
		}
	}
	add(a.Agents)
	parent := t.parent[a]
	if parent == nil || parent.Type != ModelAgent {
		return out
	}
	if !a.NoTransferToParent {
		out = append(out, parent)
	}
	if !a.NoTransferToPeers {
		add(parent.Agents)
	}
	return out
}

// returns reports whether the conversation can come back from an agent to the
// root: then the user's next message may go to it.
func (t *tree) returns(a *Agent) bool {
	for ; a != nil; a = t.parent[a] {
		if a.Type != ModelAgent || a.NoTransferToParent {
			return false
		}
	}
	return true
}

// addressee returns the agent that takes a message, in ADK's order: the root if it
// gives tasks or is no model agent, whoever asked for what the message answers,
// whoever spoke last, else the root.
func (r *run) addressee(message *session.Response) (*Agent, error) {
	root := r.tree.root
	if root.Type != ModelAgent {
		return root, nil
	}
	if root.Mode != "" && root.Mode != Chat {
		return nil, fmt.Errorf("root agent %s must be a chat LlmAgent, but has mode %s", root.Name, root.Mode)
	}
	if len(root.delegates(Task)) > 0 {
		return root, nil
	}
	if answers := message.Responses(); len(answers) > 0 {
		if ev := eventOfCall(r.events(), answers[0].ID); ev != nil {
			if a := r.tree.named[ev.Author]; a != nil {
				return a, nil
			}
		}
	}
	for _, ev := range slices.Backward(r.events()) {
		if a := r.tree.named[ev.Author]; a != nil && r.tree.returns(a) {
			return a, nil
		}
	}
	return root, nil
}

// eventOfCall returns the newest event that holds a call, or nil.
func eventOfCall(events []*session.Event, id string) *session.Event {
	if id == "" {
		return nil
	}
	for _, ev := range slices.Backward(events) {
		for _, call := range ev.Calls() {
			if call.ID == id {
				return ev
			}
		}
	}
	return nil
}
