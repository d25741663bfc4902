package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// This file is the one door to tools. Every call, whichever way it came, passes
//
//	before-tool hooks → schema → mutating guards (schema again) → other guards →
//	confirmation → intent recorded → handler → result checked → on-error hooks →
//	after-tool hooks → guards on the result → end recorded
//
// A streaming tool skips the hooks; a tool that does not exist meets the guards
// and the on-error hooks only. A denial by a guard skips what is left but the
// record: nothing rewrites it.

// A batch is what the calls of one step led to.
type batch struct {
	event     *session.Event // the merged responses; nil if no call has one
	questions []asked        // to a person, in call order; already recorded
	open      bool           // a task is not finished: the user has the word
}

// asked is a question with what the call said about it.
type asked struct {
	question     session.Question
	confirmation session.Confirmation
}

// An approval is a person's answer with the question it answers.
type approval struct {
	question session.Question
	answer   session.Confirmation
	ended    *session.Call // the call was made before, and nobody was told of it
}

// dispatch runs calls in parallel and merges what they gave in call order. Events
// of agents that run inside calls are yielded meanwhile. It returns nil if no call
// has anything to show. Nothing outlives it.
func (s *step) dispatch(ctx context.Context, table *toolTable, calls []*genai.FunctionCall, approvals map[string]*approval) *batch {
	if len(calls) == 0 {
		return nil
	}
	wanted, halt := ctx, func() {}
	if len(calls) > 1 {
		wanted, halt = context.WithCancel(ctx) // over when the consumer has stopped: what runs may end, nothing more begins
		defer halt()
	}
	f := newFunnel(halt)
	results := make([]*call, len(calls))
	for i, fc := range calls {
		results[i] = s.newCall(ctx, table, fc, approvals[fc.ID], f.yield)
		if n := s.calls + i; n >= s.cfg.Limits.CallsPerStep {
			results[i].late = &CallError{Code: abi.BudgetExhausted, Err: fmt.Errorf("call %d of a step: at most %d are run", n+1, s.cfg.Limits.CallsPerStep)}
		}
	}
	s.calls += len(calls)
	go func() {
		defer close(f.items)
		s.begin(wanted, results)
	}()
	served := false
	defer func() {
		if !served { // the consumer panics: what has happened is stored all the same
			s.watched("results of calls", func() { s.show(ctx, s.joined(ctx, results)) })
		}
	}()
	f.serve(s.yield)
	served = true
	return s.joined(ctx, results)
}

// joined ends the calls that were not begun and merges all.
func (s *step) joined(ctx context.Context, results []*call) *batch {
	for _, c := range results {
		switch {
		case c.late == nil:
		case c.staysOpen(c.late):
			c.leaveOpen(c.late)
		default:
			c.refuse(c.late)
		}
	}
	return s.merge(ctx, results)
}

// begin makes the calls that are not late, in their order, and returns when all have ended. Those
// that have not begun when ctx ends are late.
func (s *step) begin(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		if calls[0].late == nil {
			roomy(calls[0].do)
		}
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, s.cfg.Limits.Parallel)
	for i, c := range calls {
		if c.late != nil {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // also if there is a slot, too
			c.late = gaveUp(ctx)
			continue
		}
		do := func() {
			defer func() { <-slots }()
			roomy(c.do)
		}
		if i == len(calls)-1 {
			do() // here: there is nothing left to begin
		} else {
			wg.Go(do)
		}
	}
}

// roomy runs f on a stack that has been grown for what a call or a guard takes. A goroutine
// begins with a few KiB, and to grow in several steps, deep in it, would move
// every frame each time.
//
//go:noinline
func roomy(f func()) {
	var room [8 << 10]byte
	f()
	runtime.KeepAlive(&room)
}

// gaveUp is the error of a call that is not made because its run has ended.
func gaveUp(ctx context.Context) *CallError {
	cause := context.Cause(ctx)
	if errors.Is(cause, errWall) {
		return &CallError{Code: abi.BudgetExhausted, Err: cause}
	}
	return &CallError{Code: abi.Cancelled, Err: cause}
}

// A call is one tool call on its way through the dispatcher. It belongs to one
// goroutine.
type call struct {
	*step
	ctx      context.Context
	past     context.Context // ctx without its end, for what is recorded
	fc       *genai.FunctionCall
	tool     Tool // nil: there is none of that name
	table    *toolTable
	approval *approval
	late     *CallError // why it is not begun
	info     CallInfo
	began    time.Time

	acts    *actions
	tc      *ToolContext
	spec    *Spec // of tool, or an empty one
	seen    *ToolCall
	args    json.RawMessage // canonical, as judged last
	grants  capability.Set
	spends  string            // id of the question whose approval lets the call pass
	asked   *session.Question // to be recorded
	again   bool              // what kept the call from being made leaves its approval as it was
	receipt any
	gated   bool // the gate for people has ended it
	begun   bool // its intent is recorded
	ran     bool
	refused bool
	ended   *CallResult

	response map[string]any // what the model is shown
	silent   bool           // no response at all
	set      session.Actions
}

func (s *step) newCall(ctx context.Context, table *toolTable, fc *genai.FunctionCall, ap *approval, emit yieldFunc) *call {
	c := &call{step: s, ctx: ctx, past: context.WithoutCancel(ctx), fc: fc, table: table, approval: ap, began: time.Now(), acts: &actions{}}
	if tool, spec := table.lookup(fc.Name); tool != nil && executable(tool) {
		c.tool, c.spec = tool, spec
	} else {
		c.spec = &Spec{Name: fc.Name}
	}
	c.info = CallInfo{Session: s.key, Run: s.id, Agent: s.agent.Name, Step: s.number, ID: fc.ID, Tool: fc.Name, Module: c.spec.Module}
	c.tc = &ToolContext{CallbackContext: *s.callbackContext(ctx, s.agent.Name, c.acts), callID: fc.ID, place: s.place, emit: emit}
	if ap != nil {
		answer := ap.answer
		c.tc.confirmation = &answer
	}
	c.seen = &ToolCall{ID: fc.ID, Name: fc.Name, Args: session.CloneMap(fc.Args)}
	if c.seen.Args == nil {
		c.seen.Args = map[string]any{}
	}
	if c.tool != nil {
		c.seen.Spec = c.spec
	}
	c.grants = c.spec.Grants
	return c
}

// do takes the call all the way. A panic anywhere on it, or a goroutine that is
// ended, is a failed call.
func (c *call) do() {
	defer func() {
		if p := recover(); p != nil || c.ended == nil {
			c.cfg.Logger.Error("call failed", "tool", c.fc.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.refuse(&CallError{Code: abi.ToolError, Err: fmt.Errorf("panic: %v", p)})
		}
	}()
	result, err := c.attemptIt()
	c.again = mayComeAgain(err)
	var denied *denial
	cause := err
	if errors.As(err, &denied) {
		cause = denied.err
	}
	if c.staysOpen(cause) {
		c.leaveOpen(cause)
		return
	}
	if denied != nil {
		if denied.silent {
			c.refused = true
			c.finish(nil, denied.err, true)
		} else {
			c.refuse(denied.err)
		}
		return
	}
	pending := c.gated && (isCode(err, abi.ConfirmationPending) || isCode(err, abi.ConfirmationRejected))
	hooked := false
	if err != nil && !c.streams() {
		result, err, hooked = c.onError(err)
	}
	if c.tool != nil && !c.streams() {
		var changed bool
		result, err, changed = c.after(result, err)
		hooked = hooked || changed
	}
	response := result
	if err != nil {
		response = map[string]any{"error": modelText(err)}
	}
	if response == nil && (c.spec.LongRunning || c.spec.Defers) {
		c.finish(nil, nil, true)
		return
	}
	if response != nil && (!pending || hooked) {
		if response, denied = c.judgeResult(response, hooked); denied != nil {
			c.refuse(denied.err)
			return
		}
	}
	c.finish(response, err, false)
}

// A denial is the error of a guard. It passes no hook.
type denial struct {
	err    *CallError
	silent bool // the model is told nothing: another run tells it of this call
}

func (d *denial) Error() string { return d.err.Error() }

// staysOpen reports whether an error only says that the run ended in which a task
// was worked on. The next run goes on with it.
func (c *call) staysOpen(err error) bool {
	if !c.spec.task || err == nil || isCode(err, abi.PolicyDenied) || isCode(err, abi.ConfirmationPending) || isCode(err, abi.ConfirmationRejected) {
		return false
	}
	return c.ctx.Err() != nil || c.isSpent() || isCode(err, abi.Cancelled)
}

// leaveOpen ends the call without a response.
func (c *call) leaveOpen(err error) {
	c.refused = true
	c.finish(nil, err, true)
}

func (c *call) streams() bool {
	_, ok := c.tool.(Streamer)
	return ok
}

// attemptIt goes as far as the handler's result.
func (c *call) attemptIt() (map[string]any, error) {
	if c.approval != nil && c.approval.ended != nil {
		return c.left(c.approval.ended.CallEnd) // nothing will run: there is nothing to judge but what is stored
	}
	if c.tool == nil {
		args, err := canonicalArgs(c.seen.Args)
		if err != nil {
			args = json.RawMessage("{}")
		}
		if _, _, err := c.judgeCall(args); err != nil {
			return nil, err
		}
		if c.fc.Name == stopStreaming {
			name, _ := c.seen.Args["function_name"].(string)
			return map[string]any{"status": fmt.Sprintf("No active streaming function named %s found", escape(name, 128))}, nil
		}
		return nil, &CallError{Code: abi.ToolError, Text: c.notFound()}
	}
	if !c.streams() {
		result, err := c.firstTool(func(h Hooks) (map[string]any, error) {
			if h.BeforeTool == nil {
				return nil, nil
			}
			return h.BeforeTool(c.tc, c.seen)
		})
		if args, ok := c.rewritten(); ok {
			c.showRewritten(c.fc.ID, args)
		}
		if result != nil || err != nil {
			return result, err
		}
	}
	args, err := canonicalArgs(c.seen.Args)
	if err != nil {
		return nil, &CallError{Code: abi.ArgsInvalid, Text: string(abi.ArgsInvalid) + ": " + err.Error()}
	}
	if err := c.checkArgs(args); err != nil {
		return nil, err
	}
	args, decision, err := c.judgeCall(args)
	if err != nil {
		return nil, err
	}
	if err := c.gate(args, decision); err != nil {
		c.gated = true
		return nil, err
	}
	return c.handle(args)
}

// rewritten returns the arguments if hooks changed them.
func (c *call) rewritten() (map[string]any, bool) {
	if !slices.ContainsFunc(c.hooks, func(h Hooks) bool { return h.BeforeTool != nil }) {
		return nil, false
	}
	before, err := canonicalArgs(c.fc.Args)
	after, err2 := canonicalArgs(c.seen.Args)
	return c.seen.Args, err == nil && err2 == nil && string(before) != string(after)
}

func (c *call) checkArgs(args json.RawMessage) error {
	if c.spec.input == nil {
		return nil
	}
	if err := Validate(c.spec.input, args); err != nil {
		ce := &CallError{Code: abi.ArgsInvalid, Text: err.Error()} // ADK's text
		if found := FindMismatch(c.spec.input, args); found != nil {
			ce.Err = found
		}
		return ce
	}
	return nil
}

// handle records the intent and runs the handler.
func (c *call) handle(args json.RawMessage) (map[string]any, error) {
	if c.ctx.Err() != nil {
		return nil, &denial{err: gaveUp(c.ctx)}
	}
	id := session.CallID{Run: c.id, Call: c.fc.ID, Attempt: c.attempt(c.fc.ID)}
	rec := c.record("call.intent", c.fc.Name)
	rec.Call, rec.Module, rec.ArgsSHA256 = c.fc.ID, c.spec.Module, c.info.ArgsSHA256
	if err := c.audit(c.past, rec); err != nil {
		return nil, &CallError{Code: abi.StorageUnavailable, Err: err}
	}
	if err := c.store.BeginCall(c.ctx, session.Call{Session: c.key, ID: id, Agent: c.agent.Name, Tool: c.fc.Name,
		Module: c.spec.Module, ArgsSHA256: c.info.ArgsSHA256, Approval: c.spends, Began: c.cfg.Now()}); err != nil {
		if c.spends != "" && (errors.Is(err, session.ErrUsed) || errors.Is(err, session.ErrExists)) {
			return nil, c.spentElsewhere(err)
		}
		return nil, &CallError{Code: abi.StorageUnavailable, Err: err}
	}
	c.begun = true
	if err := c.lastLook(); err != nil {
		end := session.CallEnd{State: session.CallDenied, Code: string(err.Code), Ended: c.cfg.Now()}
		if err := c.store.EndCall(c.past, c.key, id, end); err != nil {
			return nil, &denial{err: &CallError{Code: abi.StorageUnavailable, Err: err}}
		}
		return nil, &denial{err: err}
	}
	c.ran = true
	outcome, err := c.runHandler(Permit{args: args, grants: c.grants, digest: c.info.ArgsSHA256})
	c.receipt = outcome.Receipt
	if ce, ok := errors.AsType[*CallError](err); ok && ce.Receipt != nil {
		c.receipt = ce.Receipt
	}
	if err == nil {
		if denied := c.notTooLarge(outcome.Result); denied != nil {
			err, outcome.Result = denied.err, nil
		}
	}
	if deep := abi.CheckDepth(outcome.Result); deep != nil && err == nil {
		err, outcome.Result = &CallError{Code: abi.GuestOutputInvalid, Err: deep}, nil
	}
	end := session.CallEnd{State: session.CallDone, Result: outcome.Result, Ended: c.cfg.Now()}
	if c.interrupted(err) {
		end.State = session.CallUnknown
		err = &CallError{Code: abi.OutcomeUnknown, Err: err, Receipt: c.receipt}
	}
	end.Code = string(codeOf(err))
	if err := c.store.EndCall(c.past, c.key, id, end); err != nil {
		return nil, &denial{err: &CallError{Code: abi.StorageUnavailable, Err: err}}
	}
	if err != nil {
		return nil, err
	}
	return c.checkResult(outcome.Result)
}

// spentElsewhere is the end of a call whose approval another run has spent: that run
// makes the call and shows its result.
func (c *call) spentElsewhere(err error) error {
	if err := c.audit(c.past, refusalRecord(c.approval.question, c.by, abi.ConfirmationDecided, err.Error())); err != nil {
		return &denial{err: &CallError{Code: abi.StorageUnavailable, Err: err}}
	}
	return &denial{err: &CallError{Code: abi.ConfirmationDecided, Err: err}, silent: true}
}

// lastLook refuses a call whose intent is recorded, but which must not run after
// all: because its run has ended meanwhile, or because nobody could be told by
// whose approval it runs.
func (c *call) lastLook() *CallError {
	if c.ctx.Err() != nil {
		return gaveUp(c.ctx)
	}
	if c.spends == "" {
		return nil
	}
	if err := c.audit(c.past, questionRecord("confirmation.used", c.approval.question, c.approval.question.By)); err != nil {
		return &CallError{Code: abi.StorageUnavailable, Err: err}
	}
	return nil
}

// interrupted reports whether a handler's error only says that its run ended, so
// that nobody knows how far it came.
func (c *call) interrupted(err error) bool {
	if err == nil || c.ctx.Err() == nil {
		return false
	}
	return isCode(err, abi.Cancelled) || errors.Is(err, c.ctx.Err()) || errors.Is(err, context.Cause(c.ctx))
}

func (c *call) runHandler(permit Permit) (outcome Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			text := strings.TrimSuffix(fmt.Sprint(p), "\n")
			err = &CallError{Code: abi.ToolError, Text: PanicText(c.fc.Name, text)}
		}
	}()
	if h, ok := c.tool.(Handler); ok {
		return h.Run(c.tc, permit)
	}
	var text strings.Builder
	for chunk, err := range c.tool.(Streamer).Stream(c.tc, permit) {
		if chunk.Receipt != nil {
			outcome.Receipt = chunk.Receipt
		}
		if err != nil {
			return outcome, err
		}
		if text.WriteString(chunk.Text); text.Len() > MaxResult {
			return outcome, c.tooLarge(text.Len(), MaxResult, nil).err
		}
	}
	outcome.Result, err = abi.Marshal(map[string]any{"result": text.String()})
	return outcome, err
}
