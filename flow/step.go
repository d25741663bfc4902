package flow

//adk:errors what begins "failed to" is the text that the vectors pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// maxThoughtOnly is how many steps in a row may end in nothing but thoughts.
const maxThoughtOnly = 10

// An agentRun is one agent's turn: steps until one ends in a final event.
type agentRun struct {
	place
	agent *Agent
	bound Mode // in which the agent was put where it is; "": none, it runs as it declares
	hooks []Hooks
	own   []Tool  // the framework's, such as transfer_to_agent
	tools []offer // listed once; nil before the first step
	sets  []Toolset

	settled settled // of what the model is sent
}

// mode is the mode in which the agent runs here.
func (f *agentRun) mode() Mode { return cmp.Or(f.bound, f.agent.Mode, Chat) }

// loop runs steps. It reports whether the run may go on, which it may not after
// an error, when the consumer has stopped or when a limit is met.
func (f *agentRun) loop(ctx context.Context, yield yieldFunc) bool {
	if f.agent.Mode == Task && f.task == nil {
		f.task = &task{}
	}
	thoughts := 0
	for {
		if ctx.Err() != nil {
			return f.over(ctx, f.agent.Name, context.Cause(ctx), yield)
		}
		number := f.steps.take(f.cfg.Limits.Steps)
		if number == 0 {
			return f.outOfSteps(f.agent.Name, yield)
		}
		s := &step{agentRun: f, number: number, to: yield}
		if err := s.execute(ctx); err != nil && !s.stopped {
			return f.over(ctx, f.agent.Name, err, yield)
		}
		switch {
		case s.stopped:
			return false
		case s.last != nil && isRefusal(&s.last.Response) && ctx.Err() != nil:
			continue // no guard could answer any more: that the run has ended is told, too
		case s.last == nil || s.ended:
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

// outOfTime reports whether a context ended because the run's time was over.
func outOfTime(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errWall) }

func thoughtOnly(ev *session.Event) bool {
	if ev.Content == nil || len(ev.Content.Parts) == 0 {
		return false
	}
	return !slices.ContainsFunc(ev.Content.Parts, func(p *genai.Part) bool { return p == nil || !p.Thought })
}

// A step is one model call and the tool calls it asks for.
type step struct {
	*agentRun
	number int
	to     yieldFunc
	last   *session.Event // that was yielded
	calls  int            // that were looked at

	approved []*approval // of tasks that have not had their turn yet

	stopped bool   // nothing more may be yielded
	ended   bool   // the agent's turn ends with this step
	next    *Agent // to which the conversation is handed when the step is over
}

// execute is one step: request, model, event, tools, questions, and another
// agent's turn if the conversation was handed over. An error ends the run.
func (s *step) execute(ctx context.Context) error {
	f := s.agentRun
	if f.agent.Model == nil {
		return fmt.Errorf("agent %q: model not configured; ensure Model is set in llmagent.Config", f.agent.Name)
	}
	req := &Request{Model: f.agent.Model.Name()}
	waiting, err := s.buildRequest(ctx, req)
	if err == nil && !waiting && !s.stopped {
		err = s.askModel(ctx, req)
	}
	if err != nil || s.stopped || s.next == nil {
		return err
	}
	if p := f.place; !p.runAgent(ctx, s.next, "", s.yield) {
		s.stopped = true
	}
	return nil
}

// askModel calls the model and deals with what it says.
func (s *step) askModel(ctx context.Context, req *Request) error {
	acts := &actions{} // state that model hooks write goes into each model event
	defer acts.end()
	cc := s.callbackContext(ctx, s.agent.Name, acts)
	var failed error
	said := speech{step: s}
	s.callModel(cc, req, func(resp *session.Response, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		shown, refused := said.pass(ctx, resp)
		more := true
		for _, resp := range shown {
			if more, failed = s.take(ctx, req, resp, acts); !more || failed != nil {
				return false
			}
		}
		if refused != nil {
			s.emit(s.refusal(s.agent.Name, refused))
		}
		return refused == nil
	})
	return failed
}

// take turns one response into an event and runs the calls in it. It reports
// whether the rest of the model's stream is wanted.
func (s *step) take(ctx context.Context, req *Request, resp *session.Response, acts *actions) (more bool, err error) {
	if isNothing(resp) {
		return true, nil
	}
	ev := s.modelEvent(req, resp, acts)
	s.note(ev)
	if !s.emit(ev) {
		return false, nil
	}
	calls := ev.Calls()
	if resp.Partial || len(calls) == 0 {
		return true, nil
	}
	calls, tasks := splitTasks(req.tools, calls)
	b := s.dispatch(ctx, req.tools, calls, nil)
	if b == nil && len(tasks) == 0 {
		return true, nil
	}
	ends, err := s.settle(ctx, b)
	if err == nil && !ends {
		_, err = s.runTasks(ctx, req.tools, tasks, nil)
	}
	return false, err
}

// isNothing reports whether a response becomes no event.
func isNothing(r *session.Response) bool {
	return r.Content == nil && r.ErrorCode == "" && !r.Interrupted
}

// settle shows what calls led to and does what they decided: an answer that was
// given through a tool becomes the agent's last event, and a transfer names who
// goes on. It reports whether the step ends here.
func (s *step) settle(ctx context.Context, b *batch) (ends bool, err error) {
	if b == nil {
		return s.stopped, nil
	}
	asked := s.show(ctx, b)
	if s.stopped {
		return true, nil
	}
	if b.open {
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		s.ended = true
	}
	if b.event == nil {
		return asked || s.ended, nil
	}
	if s.finished(b.event) {
		s.ended = true
	}
	if ev := s.structuredAnswer(b.event); ev != nil && !asked {
		s.emit(s.judged(ctx, ev, s.number))
		s.ended = true
	}
	if name := b.event.Actions.TransferToAgent; name != "" && !s.stopped {
		if s.next = s.target(name); s.next == nil {
			return true, fmt.Errorf("failed to find agent: %s", name)
		}
	}
	return asked || s.ended || s.next != nil, nil
}

// show yields what calls led to: their merged results, then the questions to a
// person, so that a consumer who stops at a question has all results. It reports
// whether anyone was asked.
func (s *step) show(ctx context.Context, b *batch) (asked bool) {
	if b == nil {
		return false
	}
	if b.event != nil {
		refused := s.judgeShown(ctx, b.event)
		s.note(b.event)
		if !s.emit(b.event) {
			return false
		}
		if refused != nil && !s.emit(s.refusal(s.agent.Name, refused)) {
			return false
		}
	}
	if len(b.questions) > 0 {
		ev := s.questionEvent(b.questions)
		s.note(ev)
		s.emit(ev)
	}
	return len(b.questions) > 0
}

// emit yields an event of the agent and reports whether the run goes on.
func (s *step) emit(ev *session.Event) bool {
	s.keepOutput(ev)
	return s.yield(ev, nil)
}

// yield passes on an event of this agent, or of one that runs inside this step.
// After the run has stopped only what calls led to is passed on, to be stored: the
// model has to learn what has happened.
func (s *step) yield(ev *session.Event, err error) bool {
	if s.stopped && !tellsResults(ev, err) {
		return false
	}
	if err == nil {
		s.last = ev
	}
	stopped := s.stopped
	s.stopped = true // it stays so if the consumer panics
	s.stopped = !s.to(ev, err) || err != nil || stopped
	return !s.stopped
}

// tellsResults reports whether an event holds what calls led to.
func tellsResults(ev *session.Event, err error) bool {
	return err == nil && !ev.Partial && len(ev.Responses()) > 0
}

// keepOutput writes the agent's final text to the state key that it names.
func (s *step) keepOutput(ev *session.Event) {
	key := s.agent.OutputKey
	if key == "" || ev.Author != s.agent.Name || ev.Partial || !ev.Final() {
		return
	}
	if text := ev.Text(); text != "" {
		if ev.Actions.StateDelta == nil {
			ev.Actions.StateDelta = map[string]any{}
		}
		ev.Actions.StateDelta[key] = text
	}
}

// modelEvent wraps a response. Calls without an id get one.
func (s *step) modelEvent(req *Request, resp *session.Response, acts *actions) *session.Event {
	ev := s.newEvent(s.agent.Name)
	ev.Response = *resp
	ev.Content = session.CloneContent(resp.Content)
	s.nameCalls(&ev.Response, true)
	acts.mu.Lock()
	ev.Actions.StateDelta = session.CloneMap(acts.set.StateDelta)
	ev.Actions.ArtifactDelta = nil // as in ADK: versions saved by model hooks are not in the event
	acts.mu.Unlock()
	for _, call := range ev.Calls() {
		if t, spec := req.tools.lookup(call.Name); t != nil && spec.LongRunning {
			ev.LongRunningToolIDs = append(ev.LongRunningToolIDs, call.ID)
		}
	}
	return ev
}

// callIDPrefix marks ids that the host gave; they are not sent to the model.
const callIDPrefix = "adk-"

// nameCalls gives an id to calls that have none, or one that an earlier call of the
// content or of the session has: results, answers and tasks have to find their
// calls. With keep no later call can have the ids of a whole response.
func (r *run) nameCalls(resp *session.Response, keep bool) {
	var own map[string]bool
	var again []string
	r.mu.Lock()
	for _, call := range resp.Calls() {
		if own == nil {
			own = map[string]bool{}
			r.readCallIDs()
		}
		if own[call.ID] || r.callIDs[call.ID] {
			again = append(again, escape(call.ID, 80))
			call.ID = ""
		}
		if call.ID == "" {
			call.ID = callIDPrefix + newID()
		}
		own[call.ID] = true
	}
	if keep && !resp.Partial {
		maps.Copy(r.callIDs, own)
	}
	r.mu.Unlock()
	if len(again) > 0 && !resp.Partial {
		r.cfg.Logger.Warn("model repeats ids of calls: renamed", "ids", again)
	}
}

// readCallIDs collects the ids of the session's calls, once. r.mu is held.
func (r *run) readCallIDs() {
	if r.callIDs != nil {
		return
	}
	r.callIDs = map[string]bool{}
	for _, ev := range r.sess.Events {
		for _, call := range ev.Calls() {
			r.callIDs[call.ID] = true
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
	if refused := s.judgeRequest(cc, s.agent.Name, s.number, req); refused != nil {
		s.emit(s.refusal(s.agent.Name, refused))
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
		s.nameCalls(resp, false)
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
