package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// maxThoughtOnly is how many steps in a row may end in nothing but thoughts.
const maxThoughtOnly = 10

// An agentRun is one agent's turn: steps until one ends in a final event.
type agentRun struct {
	*run
	agent *Agent
	hooks []Hooks
	tools []Tool // listed once; nil before the first step
	sets  []Toolset
}

// loop runs steps. It reports whether the run may go on, which it may not after
// an error or when the consumer has stopped.
func (f *agentRun) loop(ctx context.Context, yield yieldFunc) bool {
	thoughts := 0
	for {
		if f.steps >= f.cfg.Limits.Steps {
			return yield(f.exhausted(), nil)
		}
		f.steps++
		s := &step{agentRun: f, number: f.steps}
		stopped := false
		s.yield = func(ev *session.Event, err error) bool {
			if err == nil {
				s.last = ev
			}
			if !yield(ev, err) || err != nil {
				stopped = true
			}
			return !stopped
		}
		if err := s.execute(ctx); err != nil && !stopped {
			s.yield(nil, err)
		}
		switch {
		case stopped:
			return false
		case s.last == nil:
			return true
		case s.last.Final():
			if !thoughtOnly(s.last) {
				return true
			}
			if thoughts++; thoughts >= maxThoughtOnly {
				f.cfg.Logger.Warn("agent gave nothing but thoughts", "agent", f.agent.Name, "steps", thoughts)
				return true
			}
		default:
			thoughts = 0
		}
		if s.last.Partial {
			f.cfg.Logger.Warn("stream ended with a partial response", "agent", f.agent.Name)
			return true
		}
	}
}

// exhausted is the event that ends a run that used up its steps.
func (f *agentRun) exhausted() *session.Event {
	ev := f.newEvent(f.agent.Name)
	ev.ErrorCode = string(abi.BudgetExhausted)
	ev.ErrorMessage = fmt.Sprintf("the run reached its limit of %d steps", f.cfg.Limits.Steps)
	return ev
}

func thoughtOnly(ev *session.Event) bool {
	if ev.Content == nil || len(ev.Content.Parts) == 0 {
		return false
	}
	return !slices.ContainsFunc(ev.Content.Parts, func(p *genai.Part) bool { return p == nil || !p.Thought })
}

// A step is one model call and the tool calls it asks for.
type step struct {
	*agentRun
	number  int
	yield   yieldFunc
	last    *session.Event
	stopped bool
}

// execute is one step: request, model, event, tools, questions. An error ends the run.
func (s *step) execute(ctx context.Context) error {
	f := s.agentRun
	if f.agent.Model == nil {
		return fmt.Errorf("agent %q: model not configured; ensure Model is set in llmagent.Config", f.agent.Name)
	}
	req := &Request{Model: f.agent.Model.Name()}
	waiting, err := s.buildRequest(ctx, req)
	if err != nil || waiting || s.stopped {
		return err
	}
	acts := &actions{} // state that model hooks write goes into each model event
	defer acts.end()
	cc := f.callbackContext(ctx, f.agent.Name, acts)
	var failed error
	s.callModel(cc, req, func(resp *session.Response, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		more, err := s.take(ctx, req, resp, acts)
		failed = err
		return more && err == nil
	})
	return failed
}

// take turns one response into an event and runs the calls in it. It reports
// whether the rest of the model's stream is wanted.
func (s *step) take(ctx context.Context, req *Request, resp *session.Response, acts *actions) (bool, error) {
	if resp.Content == nil && resp.ErrorCode == "" && !resp.Interrupted {
		return true, nil
	}
	ev := s.modelEvent(req, resp, acts)
	if !s.emit(ev) {
		return false, nil
	}
	if resp.Partial {
		return true, nil
	}
	calls := ev.Calls()
	if len(calls) == 0 {
		return true, nil
	}
	result, err := s.dispatch(ctx, req.tools, calls, nil)
	if err != nil {
		return false, err
	}
	if result == nil {
		return true, nil
	}
	s.show(result)
	return false, nil
}

// show yields what calls led to: their merged results, then the questions to a
// person, so that a consumer who stops at a question has all results. It reports
// whether anyone was asked.
func (s *step) show(b *batch) (asked bool) {
	if b.event != nil && !s.emit(b.event) {
		return false
	}
	if len(b.questions) > 0 {
		s.emit(s.questionEvent(b.questions))
	}
	return len(b.questions) > 0
}

// emit yields an event and reports whether the run goes on.
func (s *step) emit(ev *session.Event) bool {
	if s.stopped {
		return false
	}
	if !s.yield(ev, nil) {
		s.stopped = true
	}
	return !s.stopped
}

// modelEvent wraps a response. Calls without an id get one.
func (s *step) modelEvent(req *Request, resp *session.Response, acts *actions) *session.Event {
	ev := s.newEvent(s.agent.Name)
	ev.Response = *resp
	ev.Content = session.CloneContent(resp.Content)
	nameCalls(ev.Content)
	acts.mu.Lock()
	ev.Actions.StateDelta = session.CloneMap(acts.set.StateDelta)
	ev.Actions.ArtifactDelta = nil // as in ADK: versions saved by model hooks are not in the event
	acts.mu.Unlock()
	for _, call := range ev.Calls() {
		if t := req.tools.lookup(call.Name); t != nil && t.Spec().LongRunning {
			ev.LongRunningToolIDs = append(ev.LongRunningToolIDs, call.ID)
		}
	}
	if key := s.agent.OutputKey; key != "" && !ev.Partial {
		if text := ev.Text(); text != "" {
			if ev.Actions.StateDelta == nil {
				ev.Actions.StateDelta = map[string]any{}
			}
			ev.Actions.StateDelta[key] = text
		}
	}
	return ev
}

// callIDPrefix marks ids that the host gave; they are not sent to the model.
const callIDPrefix = "adk-"

func nameCalls(c *genai.Content) {
	if c == nil {
		return
	}
	for _, p := range c.Parts {
		if p != nil && p.FunctionCall != nil && p.FunctionCall.ID == "" {
			p.FunctionCall.ID = callIDPrefix + newID()
		}
	}
}

// callModel calls the model between its hooks and passes on each response.
func (s *step) callModel(cc *CallbackContext, req *Request, yield func(*session.Response, error) bool) {
	resp, err := first(s.hooks, func(h Hooks) (*session.Response, error) {
		if h.BeforeModel == nil {
			return nil, nil
		}
		return h.BeforeModel(cc, req)
	})
	if resp != nil || err != nil {
		yield(resp, err)
		return
	}
	for resp, err := range s.agent.Model.Generate(cc, req, s.stream) {
		if err == nil && resp == nil {
			err = errors.New("model: neither a response nor an error")
		}
		if err != nil {
			cause := err
			resp, err = first(s.hooks, func(h Hooks) (*session.Response, error) {
				if h.OnModelError == nil {
					return nil, nil
				}
				return h.OnModelError(cc, req, cause)
			})
			if resp == nil && err == nil {
				err = cause
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
		resp = cloneResponse(resp)
		nameCalls(resp.Content)
		replaced, err := first(s.hooks, func(h Hooks) (*session.Response, error) {
			if h.AfterModel == nil {
				return nil, nil
			}
			return h.AfterModel(cc, resp)
		})
		if replaced != nil {
			resp = replaced
		}
		if !yield(resp, err) || err != nil {
			return
		}
	}
}

func cloneResponse(r *session.Response) *session.Response {
	c := *r
	c.Content = session.CloneContent(r.Content)
	return &c
}
