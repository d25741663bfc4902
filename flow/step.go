package flow

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
			return yield(f.exhausted(fmt.Sprintf("the run reached its limit of %d steps", f.cfg.Limits.Steps)), nil)
		}
		if ctx.Err() != nil {
			return f.over(ctx, context.Cause(ctx), yield)
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
			return f.over(ctx, err, yield)
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

// over ends the run with an error, or with an event if its time is up.
func (f *agentRun) over(ctx context.Context, err error, yield yieldFunc) bool {
	if errors.Is(context.Cause(ctx), errWall) {
		yield(f.exhausted(fmt.Sprintf("the run reached its limit of %s", f.cfg.Limits.Wall)), nil)
	} else {
		yield(nil, err)
	}
	return false
}

// exhausted is the event that ends a run that used up its steps or its time.
func (f *agentRun) exhausted(message string) *session.Event {
	ev := f.newEvent(f.agent.Name)
	ev.ErrorCode, ev.ErrorMessage = string(abi.BudgetExhausted), message
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
		return s.take(ctx, req, resp, acts)
	})
	return failed
}

// take turns one response into an event and runs the calls in it. It reports
// whether the rest of the model's stream is wanted.
func (s *step) take(ctx context.Context, req *Request, resp *session.Response, acts *actions) bool {
	if resp.Content == nil && resp.ErrorCode == "" && !resp.Interrupted {
		return true
	}
	ev := s.modelEvent(req, resp, acts)
	if !s.emit(ev) {
		return false
	}
	if resp.Partial {
		return true
	}
	calls := ev.Calls()
	if len(calls) == 0 {
		return true
	}
	result := s.dispatch(ctx, req.tools, calls, nil)
	if result == nil {
		return true
	}
	s.show(result)
	return false
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
	if again := nameCalls(ev.Content); len(again) > 0 {
		s.cfg.Logger.Warn("model repeats ids of calls: renamed", "ids", again)
	}
	acts.mu.Lock()
	ev.Actions.StateDelta = session.CloneMap(acts.set.StateDelta)
	ev.Actions.ArtifactDelta = nil // as in ADK: versions saved by model hooks are not in the event
	acts.mu.Unlock()
	for _, call := range ev.Calls() {
		if t, spec := req.tools.lookup(call.Name); t != nil && spec.LongRunning {
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

// nameCalls gives an id to calls that have none, or one that an earlier call of
// the content has. It returns the repeated ids.
func nameCalls(c *genai.Content) (again []string) {
	seen := map[string]bool{}
	for _, p := range parts(c) {
		if p == nil || p.FunctionCall == nil {
			continue
		}
		call := p.FunctionCall
		if seen[call.ID] {
			again = append(again, call.ID)
			call.ID = ""
		}
		if call.ID == "" {
			call.ID = callIDPrefix + newID()
		}
		seen[call.ID] = true
	}
	return again
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
	for resp, err := range s.generate(cc, req) {
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

// generate asks the model. A panic of the model is an error of it; one of the
// loop that ranges over its answer is not its business.
func (s *step) generate(ctx context.Context, req *Request) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		inside, stopped := false, false
		defer func() {
			if inside {
				return
			}
			if p := recover(); p != nil && !stopped {
				yield(nil, fmt.Errorf("model %s: panic: %v", req.Model, p))
			}
		}()
		for resp, err := range s.agent.Model.Generate(ctx, req, s.stream) {
			inside = true
			stopped = !yield(resp, err)
			inside = false
			if stopped {
				return
			}
		}
	}
}

func cloneResponse(r *session.Response) *session.Response {
	c := *r
	c.Content = session.CloneContent(r.Content)
	return &c
}
