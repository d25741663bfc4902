package flow

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// A DirectCall is a call of a tool that no model asked for.
type DirectCall struct {
	Agent string         // whose tool it is; default the runner's root agent
	Tool  string         // a name as the agent's model would use it
	Args  map[string]any // nil means none; not kept
	Roles []string       // of the user, as the host authenticated them; for guards
	By    string         // who makes the call, as the host authenticated them; default the session's user
}

// Call makes one call of an agent's tool in an existing session, as if the agent's
// model had asked for it: hooks of tools, guards, confirmation, intent and audit
// are those of any other call. It yields, and stores, an event with the call, one
// with the response, and one with the question if a person is asked; an answer to
// that goes to [Runner.Run]. A call that hands the conversation over does not: no
// agent runs. No model is asked, and messages, requests and responses, of which
// there are none but a result that is shown as text, meet no guards.
//
// An agent that is none of the runner's, or runs no tools, is an error; a tool that
// does not exist is a failed call. The sequence is like that of [Runner.Run].
func (r *Runner) Call(ctx context.Context, key session.Key, in DirectCall) iter.Seq2[*session.Event, error] {
	return func(yield func(*session.Event, error) bool) {
		ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Limits.Wall, errWall)
		defer cancel()
		c := &consumer{to: yield}
		defer c.contain(r.cfg.Logger)
		if err := r.call(ctx, key, in, c.yield); err != nil {
			c.yield(nil, err)
		}
	}
}

func (r *Runner) call(ctx context.Context, key session.Key, in DirectCall, yield yieldFunc) error {
	agent := r.tree.root
	if in.Agent != "" {
		agent = r.tree.named[in.Agent]
	}
	if agent == nil || agent.Type != ModelAgent {
		return fmt.Errorf("direct call: agent %q: want an agent of this app that has tools", in.Agent)
	}
	sess, err := r.store.Get(ctx, key)
	if err != nil {
		return err
	}
	run := r.newRun(key, sess, Input{Roles: in.Roles, By: in.By})
	run.id = "e-" + newID()
	p := place{run: run}
	if agent.Mode == Task {
		p.task = &task{}
	}
	f := &agentRun{place: p, agent: agent, hooks: run.hooks(agent)}
	deliver := func(ev *session.Event, err error) bool { return run.deliver(ctx, ev, err, yield) }
	s := &step{agentRun: f, number: run.steps.take(r.cfg.Limits.Steps), to: deliver}
	if err := s.listTools(ctx); err != nil {
		return err
	}
	req := &Request{Config: &genai.GenerateContentConfig{}, tools: s.table()}
	said := &session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
		{FunctionCall: &genai.FunctionCall{Name: in.Tool, Args: session.CloneMap(in.Args)}}}}}
	acts := &actions{}
	defer acts.end()
	_, err = s.take(ctx, req, said, acts)
	return err
}
