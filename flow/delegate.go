package flow

//adk:errors "LlmAgent" is how the vectors' text begins

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// An agent gives tasks to the agents below it whose mode is task or single_turn:
// each is a tool of its name, and its turn runs inside the call. What such an agent
// says is yielded as it comes and is part of the session.

// A task is what an agent was given, and the outcome it reported.
type task struct {
	seed *session.Event // the task of a single turn, which the agent sees as the user's word; not stored
	at   int            // how many events there were before it

	said json.RawMessage // the arguments of the last finish_task that was well-formed
	done bool
	cut  bool // a limit of the run ended the agent's turn
}

// newDelegate returns the tool that gives a task to an agent, or nil if the agent
// takes none.
func newDelegate(a *Agent) Tool {
	spec := Spec{Name: a.Name, Description: a.Description, Input: a.InputSchema}
	request := &jsonschema.Schema{Type: "string"}
	switch {
	case a.Type != ModelAgent:
		return nil
	case a.Mode == SingleTurn:
	case a.Mode == Task:
		request.Description = "Detailed instructions or context for the task sub-agent."
		spec.Description += "\nIMPORTANT: This tool delegates execution to a specialized agent. Do NOT call this tool in parallel with any other tools."
		spec.Defers, spec.task = true, true
		spec.reply = &jsonschema.Schema{Type: "string"}
		if a.OutputSchema != nil {
			spec.reply.Type = a.OutputSchema.Type
		}
	default:
		return nil
	}
	if spec.Input == nil {
		spec.Input = &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"request": request}, Required: []string{"request"}}
	}
	if a.Mode == Task {
		return &taskTool{a, spec}
	}
	return &singleTurnTool{a, spec}
}

// A singleTurnTool runs an agent on a branch of its own; its answer is the result.
type singleTurnTool struct {
	agent *Agent
	spec  Spec
}

func (t *singleTurnTool) Spec() *Spec { return &t.spec }

func (t *singleTurnTool) Run(ctx *ToolContext, permit Permit) (Outcome, error) {
	p, err := ctx.place.deeper()
	if err != nil {
		return Outcome{}, err
	}
	p.branch = p.newBranch(t.agent.Name)
	seed := p.newEvent(userAuthor)
	seed.IsolationScope = p.scope
	seed.Content = genai.NewContentFromText(string(permit.Args()), genai.RoleUser)
	p.task = &task{seed: seed, at: len(p.events())}
	w := &watch{ctx: ctx}
	var output any
	if err := w.run(p, t.agent, SingleTurn, func(ev *session.Event) error {
		if ev.Author != t.agent.Name || ev.Content == nil || ev.Content.Role != genai.RoleModel || ev.Partial || len(ev.Calls()) > 0 {
			return nil
		}
		var err error
		output, err = answerOf(t.agent, ev.Text())
		return err
	}); err != nil {
		return Outcome{}, err
	}
	if len(w.open) > 0 { // somebody is asked; the agent goes on when there is an answer
		return Outcome{}, w.wait()
	}
	result, err := abi.Marshal(map[string]any{"result": output})
	return Outcome{Result: result}, err
}

// answerOf reads an agent's answer: a text, or what its output schema allows.
func answerOf(a *Agent, text string) (any, error) {
	if a.OutputSchema == nil || text == "" {
		return text, nil
	}
	schema, err := a.OutputSchema.Resolve(nil)
	if err == nil {
		err = Validate(schema, json.RawMessage(text))
	}
	if err != nil {
		return nil, fmt.Errorf("LlmAgent %q output validation failed: %w", a.Name, err)
	}
	return abi.Unmarshal([]byte(text))
}

// A taskTool runs an agent in an isolation scope that is the call's id, until the
// agent calls finish_task. A task that is not finished then stays open: the call
// has no response, and the user's next message goes to the agent.
type taskTool struct {
	agent *Agent
	spec  Spec
}

func (t *taskTool) Spec() *Spec { return &t.spec }

func (t *taskTool) Run(ctx *ToolContext, permit Permit) (Outcome, error) {
	p, err := ctx.place.deeper()
	if err != nil {
		return Outcome{}, err
	}
	given, err := abi.Unmarshal(permit.Args())
	if err != nil {
		return Outcome{}, err
	}
	p.scope, p.task = ctx.callID, &task{}
	p.given, _ = given.(map[string]any)
	w := &watch{ctx: ctx}
	if err := w.run(p, t.agent, Task, func(ev *session.Event) error {
		if ev.IsolationScope == "" {
			ev.IsolationScope = p.scope
		}
		return nil
	}); err != nil {
		return Outcome{}, err
	}
	if !p.task.done {
		return Outcome{}, nil
	}
	said, err := abi.Unmarshal(p.task.said)
	if err != nil {
		return Outcome{}, err
	}
	_, wrapped := finishSchema(t.agent)
	output := unwrapped(said.(map[string]any), wrapped)
	if _, ok := output.(map[string]any); !ok {
		output = map[string]any{"output": output}
	}
	result, err := abi.Marshal(output)
	return Outcome{Result: result}, err
}

// A watch runs an agent inside a call and passes on what it says.
type watch struct {
	ctx  *ToolContext
	open []string // ids of long-running calls and questions without an answer yet
}

// run returns the agent's error, or see's.
func (w *watch) run(p place, a *Agent, bound Mode, see func(*session.Event) error) error {
	var failed error
	stopped := false
	ok := p.runAgent(w.ctx, a, bound, func(ev *session.Event, err error) bool {
		if err == nil {
			err = see(ev)
		}
		if err != nil {
			failed = err
			return false
		}
		w.open = append(w.open, ev.LongRunningToolIDs...)
		for _, r := range ev.Responses() {
			w.open = slices.DeleteFunc(w.open, func(id string) bool { return id == r.ID })
		}
		stopped = !w.ctx.emit(ev, nil)
		return !stopped
	})
	switch {
	case failed != nil:
		return failed
	case ok, p.isSpent() && !p.task.cut && !stopped: // another agent has met the limit
		return nil
	case outOfTime(w.ctx), p.isSpent():
		return &CallError{Code: abi.BudgetExhausted, Err: fmt.Errorf("agent %s: the run is over", a.Name)}
	}
	return &CallError{Code: abi.Cancelled, Err: fmt.Errorf("agent %s: the run is over", a.Name)}
}

// wait ends the run until somebody has answered.
func (w *watch) wait() error {
	if err := w.ctx.SkipSummarization(); err != nil {
		return err
	}
	return &CallError{Code: abi.ConfirmationPending, Err: fmt.Errorf("waiting for %s", strings.Join(w.open, ", "))}
}

// newBranch returns a branch for the next task of an agent.
func (p place) newBranch(agent string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	branch := under(p.branch, agent)
	p.branches[branch]++
	return fmt.Sprintf("%s@%d", branch, p.branches[branch])
}

// history returns the events as the agent may see them, with the task it was given,
// and how often events were rewritten until then.
func (f *agentRun) history() ([]*session.Event, int) {
	f.mu.Lock()
	events, rewrites := slices.Clip(f.sess.Events), f.rewrites
	f.mu.Unlock()
	if f.task == nil || f.task.seed == nil {
		return events, rewrites
	}
	at := min(f.task.at, len(events))
	return slices.Concat(events[:at], []*session.Event{f.task.seed}, events[at:]), rewrites
}

const noReplies = "Important: You will not receive any user replies or clarifications. Complete the task using only the information provided above."

// taskInput is what an agent in a scope is told first: the arguments of the call
// that gave the scope its task, as they were judged if that was in this run, else
// the user's message.
func (f *agentRun) taskInput(events []*session.Event) *genai.Content {
	if f.scope == "" {
		return nil
	}
	c := &genai.Content{Role: genai.RoleUser}
	args, made := taskArgs(events, f.scope)
	if made && f.given != nil {
		args = f.given
	}
	if len(args) > 0 {
		c.Parts = append(c.Parts, genai.NewPartFromText(jsonText(args)))
	} else if f.userContent != nil {
		c.Parts = append(c.Parts, session.CloneContent(f.userContent).Parts...)
	}
	if len(c.Parts) == 0 {
		return nil
	}
	if f.mode() == SingleTurn {
		c.Parts = append(c.Parts, genai.NewPartFromText(noReplies))
	}
	return c
}

// taskArgs returns the arguments of the first call of an id that has any, and
// whether there is a call of that id.
func taskArgs(events []*session.Event, id string) (args map[string]any, made bool) {
	for _, ev := range events {
		for _, call := range ev.Calls() {
			if call.ID != id {
				continue
			}
			if made = true; len(call.Args) > 0 {
				return call.Args, true
			}
		}
	}
	return nil, made
}

// splitTasks takes the calls that give tasks out of a step's calls.
func splitTasks(table *toolTable, calls []*genai.FunctionCall) (others, tasks []*genai.FunctionCall) {
	for _, call := range calls {
		if _, spec := table.lookup(call.Name); spec != nil && spec.task {
			tasks = append(tasks, call)
		} else {
			others = append(others, call)
		}
	}
	return others, tasks
}

// runTasks gives tasks one after the other, until one ends the step: because it
// stays open, or because a person is asked about it.
func (s *step) runTasks(ctx context.Context, table *toolTable, tasks []*genai.FunctionCall, approvals map[string]*approval) (ends bool, err error) {
	for _, call := range tasks {
		if !validTaskID(call.ID) {
			return true, fmt.Errorf("task %s: call id %q: want no '/' and no '@', and not digits only", call.Name, escape(call.ID, 80))
		}
		if ends, err := s.settle(ctx, s.dispatch(ctx, table, []*genai.FunctionCall{call}, approvals)); err != nil || ends {
			return true, err
		}
	}
	return false, nil
}

// validTaskID reports whether a call's id can name a task, as in ADK.
func validTaskID(id string) bool {
	return strings.Trim(id, "0123456789") != "" && !strings.ContainsAny(id, "/@")
}

// resumeTasks goes on with tasks that are open, such as one whose agent asked the
// user something, and with those that a person has approved, in the order of their
// calls. It reports whether one still is open.
func (s *step) resumeTasks(ctx context.Context) (waiting bool, err error) {
	if len(s.agent.delegates(Task)) == 0 {
		return false, nil
	}
	table, events := s.table(), s.events()
	var tasks []*genai.FunctionCall
	for _, ev := range events {
		if ev.IsolationScope == s.scope && ev.Author == s.agent.Name {
			_, given := splitTasks(table, ev.Calls())
			tasks = append(tasks, given...)
		}
	}
	for _, ap := range s.approved {
		if !slices.ContainsFunc(tasks, func(call *genai.FunctionCall) bool { return call.ID == ap.question.Call }) {
			tasks = append(tasks, &genai.FunctionCall{ID: ap.question.Call}) // its event is not in the history
		}
	}
	if len(tasks) == 0 {
		return false, nil
	}
	approvals, err := s.approvedTasks(ctx, events, tasks)
	if err != nil {
		return false, err
	}
	answered := scopesOf(events).answered
	var open []*genai.FunctionCall
	for _, call := range tasks {
		ap := approvals[call.ID]
		if ap != nil {
			if call, err = askedCall(ap.question); err != nil {
				return false, err
			}
		}
		if ap != nil || !answered[call.ID] {
			open = append(open, call)
		}
	}
	return s.runTasks(ctx, table, open, approvals)
}

// approvedTasks returns the approvals that tasks have and did not spend, by the ids of
// their calls: those of the newest message, and earlier ones, because a task before
// it was open when it was approved.
func (s *step) approvedTasks(ctx context.Context, events []*session.Event, tasks []*genai.FunctionCall) (map[string]*approval, error) {
	approvals := map[string]*approval{}
	for _, ap := range s.approved {
		approvals[ap.question.Call] = ap
	}
	waits := map[string]bool{} // by the id of a call: its newest response says that a person is asked
	for _, ev := range events {
		for _, r := range ev.Responses() {
			_, waits[r.ID] = ev.Actions.RequestedConfirmations[r.ID]
		}
	}
	earlier := func(call *genai.FunctionCall) bool { return waits[call.ID] && approvals[call.ID] == nil }
	if !slices.ContainsFunc(tasks, earlier) {
		return approvals, nil
	}
	questions, err := s.store.Questions(ctx, s.key)
	if err != nil {
		return nil, err
	}
	now := s.cfg.Now()
	for _, q := range questions {
		if q.State != session.Approved || q.Agent != s.agent.Name || superseded(questions, q) || !q.Expires.IsZero() && now.After(q.Expires) ||
			!slices.ContainsFunc(tasks, func(call *genai.FunctionCall) bool { return call.ID == q.Call && earlier(call) }) {
			continue
		}
		ap := &approval{question: q, answer: session.Confirmation{Hint: q.Hint, Confirmed: true}}
		if q.Payload != nil {
			if ap.answer.Payload, err = abi.Unmarshal(q.Payload); err != nil {
				return nil, fmt.Errorf("question %s: payload: %w", q.ID, err)
			}
		}
		if err := s.audit(ctx, resumedRecord(q, s.by)); err != nil {
			return nil, err
		}
		approvals[q.Call] = ap
	}
	return approvals, nil
}
