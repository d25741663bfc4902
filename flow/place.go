package flow

//adk:errors what begins "failed to" is the text that the vectors pin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A place is where in a run an agent works: what it sees of the history, and how
// many agents have it run inside calls of their tools.
type place struct {
	*run
	branch string
	scope  string
	depth  int
	given  map[string]any // arguments of the call that made the scope, as the handler got them; nil if none did in this run
	task   *task          // what the agent was given there, nil for an agent that is in the conversation
}

// newEvent returns an event of an agent at this place.
func (p place) newEvent(author string) *session.Event {
	return &session.Event{ID: newID(), Time: p.cfg.Now(), InvocationID: p.id, Author: author, Branch: p.branch}
}

// deeper returns the place of an agent that runs inside a call of a tool.
func (p place) deeper() (place, error) {
	if p.depth >= p.cfg.Limits.Depth {
		return p, &CallError{Code: abi.BudgetExhausted, Err: fmt.Errorf("agents run %d deep in calls of tools: at most %d", p.depth+1, p.cfg.Limits.Depth)}
	}
	p.depth++
	return p, nil
}

// runAgent runs one agent between its hooks. bound is the mode in which it was put
// here, if it was not its own choice. It reports whether the run may go on, which
// it may not after an error, when the consumer has stopped or when a limit is met.
func (p place) runAgent(ctx context.Context, a *Agent, bound Mode, yield yieldFunc) bool {
	hooks := p.hooks(a)
	answered, ok := p.agentHooks(ctx, a, hooks, "before agent callback",
		func(h Hooks) func(*CallbackContext) (*genai.Content, error) { return h.BeforeAgent }, yield)
	if !ok || answered {
		return ok
	}
	switch a.Type {
	case SequentialAgent:
		ok = p.sequence(ctx, a, yield)
	case ParallelAgent:
		ok = p.parallel(ctx, a, yield)
	case LoopAgent:
		ok = p.repeat(ctx, a, yield)
	default:
		ok = (&agentRun{place: p, agent: a, hooks: hooks, bound: bound}).loop(ctx, yield)
	}
	if !ok {
		return false
	}
	_, ok = p.agentHooks(ctx, a, hooks, "after agent callback",
		func(h Hooks) func(*CallbackContext) (*genai.Content, error) { return h.AfterAgent }, yield)
	if ok && p.isSpent() { // perhaps inside a call
		p.tellLimit(a.Name, yield)
		return false
	}
	return ok
}

// agentHooks runs the hooks before or after an agent. A content, or state alone,
// becomes an event. It reports whether there was a content, and whether the run
// goes on.
func (p place) agentHooks(ctx context.Context, a *Agent, hooks []Hooks, where string,
	pick func(Hooks) func(*CallbackContext) (*genai.Content, error), yield yieldFunc,
) (answered, ok bool) {
	acts := &actions{}
	cc := p.callbackContext(ctx, a.Name, acts)
	content, err := first(hooks, func(h Hooks) (*genai.Content, error) {
		if f := pick(h); f != nil {
			return f(cc)
		}
		return nil, nil
	})
	set := acts.end()
	if err != nil {
		yield(nil, fmt.Errorf("failed to run %s: %w", where, err))
		return false, false
	}
	if content == nil && len(set.StateDelta) == 0 && len(set.ArtifactDelta) == 0 {
		return false, true
	}
	ev := p.newEvent(a.Name)
	ev.Actions = set
	if content != nil {
		ev.Content = withRole(content, genai.RoleModel)
		ev = p.judged(ctx, ev, 0)
	}
	return content != nil, yield(ev, nil)
}

func (r *run) hooks(a *Agent) []Hooks {
	return append(slices.Clip(slices.Clone(r.cfg.Hooks)), a.Hooks...)
}

// exhausted ends the agent's turn and the run because that has met a limit, which
// message names unless an earlier one does. See tellLimit.
func (p place) exhausted(author, message string, yield yieldFunc) bool {
	p.mu.Lock()
	p.limit = cmp.Or(p.limit, message)
	p.mu.Unlock()
	if p.task != nil {
		p.task.cut = true
	}
	return p.tellLimit(author, yield)
}

// tellLimit says in one event that the run has met its limit; an agent that runs inside
// a call leaves that to the one that made the call. It reports whether the agent's
// own hooks may still run; no other agent does.
func (p place) tellLimit(author string, yield yieldFunc) bool {
	p.mu.Lock()
	says := !p.said && p.depth == p.run.depth
	p.said = p.said || says
	message := p.limit
	p.mu.Unlock()
	if !says {
		return true
	}
	ev := p.newEvent(author)
	ev.ErrorCode, ev.ErrorMessage = string(abi.BudgetExhausted), message
	p.note(ev)
	return yield(ev, nil)
}

// tellsLimit reports whether an event says that the run has met a limit.
func tellsLimit(ev *session.Event, err error) bool {
	return err == nil && ev.ErrorCode == string(abi.BudgetExhausted)
}

// isSpent reports whether the run has met a limit.
func (r *run) isSpent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit != ""
}

// over ends the run with an error, or with an event if its time is up. It returns
// false.
func (p place) over(ctx context.Context, author string, err error, yield yieldFunc) bool {
	if outOfTime(ctx) {
		p.exhausted(author, fmt.Sprintf("the run reached its limit of %s", p.cfg.Limits.Wall), yield)
	} else {
		yield(nil, err)
	}
	return false
}

// outOfSteps ends the run because it has made all its model calls; see exhausted.
func (p place) outOfSteps(author string, yield yieldFunc) bool {
	return p.exhausted(author, fmt.Sprintf("the run reached its limit of %d steps", p.cfg.Limits.Steps), yield)
}
