package flow

//adk:errors what begins "failed to" is the text that the vectors pin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A run is one message to its final answer.
type run struct {
	*Runner
	key         session.Key
	id          string
	outer       string // id of the outermost run, if this one is inside another; see outermost
	userContent *genai.Content
	stream      bool
	roles       []string
	by          string // who speaks in this run
	byRoles     []string
	steps       *budget // shared with the runs inside this one
	depth       int     // of tool calls in which this run runs

	mu        sync.Mutex
	sess      *session.Session  // the session as this run sees it; its events are only ever appended to
	rewrites  int               // how often an event was replaced, in a new list of events
	temp      map[string]any    // state in the temp: scope
	attempts  map[string]int    // how often each call id was tried
	callIDs   map[string]bool   // of the session's calls; nil: not collected yet
	branches  map[string]int    // how often each agent was given a single-turn task on a branch
	resumed   map[string]bool   // user events whose answers an agent dealt with, by both
	handed    map[string]bool   // ids of user's messages to tasks that were handed back in this run
	gates     map[string]*gate  // of tail retention, by agent and place
	compacted bool              // tail retention has stored a summary
	passed    map[string]string // what was noted of events, by their id; until the event is delivered
	asker     string            // who started it; not by, if a message answers a question of theirs
	limit     string            // that the run has met, as people read it
	said      bool              // and an event says so
}

// A budget counts the model calls of a run and of the runs inside it.
type budget struct {
	mu   sync.Mutex
	used int
}

// take takes one step and returns its number, or 0 if there are no more.
func (b *budget) take(most int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used >= most {
		return 0
	}
	b.used++
	return b.used
}

func (b *budget) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

type yieldFunc = func(*session.Event, error) bool

// main is the order of a run: message, before-run hooks, agent, after-run hooks.
func (r *run) main(ctx context.Context, in Input, yield yieldFunc) {
	agent, p := r.tree.root, place{run: r, depth: r.depth}
	if in.Direct != nil {
		p.branch, p.scope = in.Direct.Branch, in.Direct.IsolationScope
	} else {
		var err error
		if agent, err = r.addressee(&session.Response{Content: in.Content}); err != nil {
			yield(nil, err)
			return
		}
	}
	cc := r.callbackContext(ctx, agent.Name, nil)
	if in.Content != nil && !r.takeMessage(cc, in, p, agent, yield) {
		return
	}
	afterRun := sync.OnceFunc(func() {
		for _, h := range r.cfg.Hooks {
			if h.AfterRun != nil {
				r.watched(hookTitle(h.Name).String(), func() { h.AfterRun(cc) })
			}
		}
	})
	defer afterRun()
	failed, stopped, over := false, false, false
	deliver := func(ev *session.Event, err error) bool {
		silent := over
		over = true // it stays so if the consumer, or what is on the way to it, panics
		ok := r.deliver(ctx, ev, err, func(ev *session.Event, err error) bool {
			if silent { // it is stored, and nobody is told
				if err != nil {
					r.cfg.Logger.Error("results of calls not stored", "err", err)
				}
				return false
			}
			failed = failed || err != nil
			more := yield(ev, err)
			stopped = stopped || !more
			return more
		})
		over = silent || !ok
		return ok
	}
	content, err := first(r.cfg.Hooks, func(h Hooks) (*genai.Content, error) {
		if h.BeforeRun == nil {
			return nil, nil
		}
		return h.BeforeRun(cc)
	})
	if err != nil {
		yield(nil, err)
		return
	}
	if content != nil {
		ev := p.newEvent(agent.Name)
		ev.Content = withRole(content, genai.RoleModel)
		deliver(p.judged(ctx, ev, 0), nil)
		return
	}
	p.runAgent(ctx, agent, "", deliver)
	switch {
	case failed:
	case stopped: // nobody is there to be told
		afterRun()
		if err := r.compactAfter(ctx); err != nil {
			r.cfg.Logger.Error("history not summarised", "err", err)
		}
	default:
		if err := r.compactAfter(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// takeMessage stores the user's message. It reports whether the run goes on.
func (r *run) takeMessage(cc *CallbackContext, in Input, p place, agent *Agent, yield yieldFunc) bool {
	message := session.CloneContent(in.Content)
	replaced, err := first(r.cfg.Hooks, func(h Hooks) (*genai.Content, error) {
		if h.OnUserMessage == nil {
			return nil, nil
		}
		return h.OnUserMessage(cc, message)
	})
	if err != nil {
		yield(nil, fmt.Errorf("error running on run user message callback : %w", err))
		return false
	}
	if replaced != nil {
		message = session.CloneContent(replaced)
	}
	keepAnswers(message, in.Content)
	if replaced != nil {
		r.userContent = session.CloneContent(message)
	}
	message, refused := r.judgeMessage(cc, agent.Name, withRole(message, genai.RoleUser))
	if refused != nil {
		ev := p.refusal(agent.Name, refused)
		err := r.append(cc, ev)
		if err == nil {
			yield(ev, nil)
		} else {
			yield(nil, fmt.Errorf("failed to append event to sessionService: %w", err))
		}
		return false
	}
	if r.guarded(abi.PhaseMessage) || r.guarded(abi.PhaseResult) {
		r.userContent = session.CloneContent(message)
	}
	if in.SaveBlobs && r.cfg.Artifacts != nil {
		if err := r.saveBlobs(cc, message); err != nil {
			yield(nil, err)
			return false
		}
	}
	ev := p.newEvent(userAuthor)
	ev.Content = message
	if ev.IsolationScope = p.scope; in.Direct == nil {
		ev.IsolationScope = r.openScope()
	}
	if in.StateDelta != nil {
		clean := make(map[string]any, len(in.StateDelta))
		for k, v := range in.StateDelta {
			if clean[k], err = generic(v); err != nil {
				yield(nil, fmt.Errorf("state %q: %w", k, err))
				return false
			}
		}
		ev.Actions.StateDelta = clean
	}
	if err := r.append(cc, ev); err != nil {
		yield(nil, fmt.Errorf("failed to append event to sessionService: %w", err))
		return false
	}
	return true
}

// keepAnswers puts a person's answers to questions back into a message that hooks
// may have changed, and takes out those that the person did not give: a hook does
// not decide for anyone.
func keepAnswers(message, given *genai.Content) {
	isAnswer := func(p *genai.Part) bool {
		return p != nil && p.FunctionResponse != nil && p.FunctionResponse.Name == confirmationCall
	}
	message.Parts = slices.DeleteFunc(message.Parts, isAnswer)
	for _, p := range session.CloneContent(given).Parts {
		if isAnswer(p) {
			message.Parts = append(message.Parts, p)
		}
	}
}

// saveBlobs replaces inline files of a message by a note and keeps them as artifacts.
func (r *run) saveBlobs(cc *CallbackContext, message *genai.Content) error {
	for i, p := range message.Parts {
		if p == nil || p.InlineData == nil {
			continue
		}
		name := fmt.Sprintf("artifact_%s_%d", r.id, i)
		if _, err := r.cfg.Artifacts.Save(cc, r.key, name, p); err != nil {
			return fmt.Errorf("failed to save artifact %s: %w", name, err)
		}
		message.Parts[i] = genai.NewPartFromText(fmt.Sprintf("Uploaded file: %s. It has been saved to the artifacts", name))
	}
	return nil
}

// deliver passes an event through the on-event hooks, stores it unless it is
// partial, and yields it.
func (r *run) deliver(ctx context.Context, ev *session.Event, err error, yield yieldFunc) bool {
	if err != nil {
		yield(nil, err)
		return false
	}
	ev, err = r.onEvent(ctx, ev)
	if err != nil {
		return yield(nil, err)
	}
	if ev = r.judgeSaid(ctx, ev); ev == nil {
		return true
	}
	if !ev.Partial {
		if err := r.append(ctx, ev); err != nil {
			yield(nil, fmt.Errorf("failed to add event to session: %w", err))
			return false
		}
	}
	return yield(ev.Clone(), nil)
}

// onEvent passes an event through the on-event hooks.
func (r *run) onEvent(ctx context.Context, ev *session.Event) (*session.Event, error) {
	if !r.editsEvents() {
		return ev, nil
	}
	cc := r.callbackContext(ctx, ev.Author, nil)
	shown := ev.Clone()
	replaced, err := first(r.cfg.Hooks, func(h Hooks) (*session.Event, error) {
		if h.OnEvent == nil {
			return nil, nil
		}
		return h.OnEvent(cc, shown)
	})
	if err != nil {
		return nil, err
	}
	if replaced == nil {
		replaced = shown
	}
	return r.asReplaced(ev, replaced), nil
}

// editsEvents reports whether there are on-event hooks.
func (r *run) editsEvents() bool {
	return slices.ContainsFunc(r.cfg.Hooks, func(h Hooks) bool { return h.OnEvent != nil })
}

// asReplaced returns what hooks made of an event, with the host's own fields kept:
// a hook decides what an event says, not whose or when it is. An event with calls
// or responses says what it said: guards have judged the one, and people read the
// other as a question. So does the record of a summary, which no guard sees.
func (r *run) asReplaced(ev, replaced *session.Event) *session.Event {
	if isRefusal(&ev.Response) {
		return ev
	}
	out := replaced.Clone()
	if isRecord(ev) || len(ev.Calls()) > 0 || len(ev.Responses()) > 0 || len(out.Calls()) > 0 || len(out.Responses()) > 0 {
		out.Response = ev.Response
		out.Actions.RequestedConfirmations = ev.Actions.RequestedConfirmations
	}
	out.LongRunningToolIDs, out.Actions.Compaction = ev.LongRunningToolIDs, ev.Actions.Compaction
	out.ID, out.Time, out.InvocationID = ev.ID, ev.Time, ev.InvocationID
	out.Author, out.Branch, out.IsolationScope = ev.Author, ev.Branch, ev.IsolationScope
	out.Partial = ev.Partial
	return out
}

// append stores an event and makes it part of the session as this run sees it.
func (r *run) append(ctx context.Context, ev *session.Event) error {
	if err := r.store.Append(context.WithoutCancel(ctx), r.key, ev); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sess.Events = append(r.sess.Events, ev.Clone())
	for key, value := range ev.Actions.StateDelta {
		into := r.sess.State
		if scope, _ := session.SplitKey(key); scope == session.ScopeTemp {
			into = r.temp
		}
		into[key] = session.CloneValue(value)
	}
	return nil
}

// events returns the history. Neither it nor the events must be changed.
func (r *run) events() []*session.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.sess.Events)
}

func (r *run) state(key string) (any, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.sess.State
	if scope, _ := session.SplitKey(key); scope == session.ScopeTemp {
		from = r.temp
	}
	v, ok := from[key]
	if !ok { // temp: keys of a session's initial state
		v, ok = r.sess.State[key]
	}
	return session.CloneValue(v), ok
}

// showRewritten makes later requests of this run show the arguments that hooks
// gave a call, as ADK's in-memory history does. The stored event keeps what the
// model said.
func (r *run) showRewritten(callID string, args map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range slices.Backward(r.sess.Events) {
		for j, p := range parts(e.Content) {
			if p != nil && p.FunctionCall != nil && p.FunctionCall.ID == callID {
				e = e.Clone()
				e.Content.Parts[j].FunctionCall.Args = session.CloneMap(args)
				r.sess.Events = slices.Clone(r.sess.Events) // others may hold the old list
				r.sess.Events[i] = e
				r.rewrites++
				return
			}
		}
	}
}

func parts(c *genai.Content) []*genai.Part {
	if c == nil {
		return nil
	}
	return c.Parts
}

func (r *run) callbackContext(ctx context.Context, agent string, acts *actions) *CallbackContext {
	return &CallbackContext{Context{Context: ctx, run: r, agent: agent, actions: acts}}
}

// attempt returns the number of the next attempt to run a call.
func (r *run) attempt(callID string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.attempts[callID]
	r.attempts[callID]++
	return n
}

// record returns an audit record about this run.
func (r *run) record(action, target string) audit.Record {
	return audit.Record{Tenant: r.key.Tenant, Session: r.key.ID, Run: r.id,
		Actor: r.key.User, Action: action, Target: target}
}

// audit keeps a record. A sink that panics has not kept it.
func (r *Runner) audit(ctx context.Context, rec audit.Record) (err error) {
	if r.cfg.Audit == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("audit: panic: %v", p)
		}
	}()
	if ctx.Done() != nil { // else it is one that does not end, as it should be
		ctx = context.WithoutCancel(ctx)
	}
	if err := r.cfg.Audit.Append(ctx, rec); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// first runs f over hooks until one returns something or fails. A panic is an
// error of its hook.
func first[T any](hooks []Hooks, f func(Hooks) (*T, error)) (*T, error) {
	for _, h := range hooks {
		v, err := contain(hookTitle(h.Name), func() (*T, error) { return f(h) })
		if v != nil || err != nil {
			return v, err
		}
	}
	return nil, nil
}

// contain runs a piece of someone else's code; a panic becomes an error that names
// what panicked.
func contain[W, T any](what W, f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			var none T
			v, err = none, fmt.Errorf("panic in %v: %v", what, p)
		}
	}()
	return f()
}

// watched runs code whose failure changes nothing.
func (r *run) watched(what string, f func()) {
	if _, err := contain(what, func() (struct{}, error) { f(); return struct{}{}, nil }); err != nil {
		r.cfg.Logger.Error("ignored", "err", err)
	}
}

// A hookTitle names hooks in errors, where there are any.
type hookTitle string

func (name hookTitle) String() string { return fmt.Sprintf("hook %q", string(name)) }

func withRole(c *genai.Content, role string) *genai.Content {
	c = session.CloneContent(c)
	if c.Role == "" {
		c.Role = role
	}
	return c
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Microsecond) }
