package flow

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A Config is what a [Runner] needs beside its agent and its store. The zero
// value works: no hooks, no guards, no artifacts, nothing audited, the default
// limits.
type Config struct {
	Hooks     []Hooks   // go before the agent's own; ADK's plugins
	Guards    []Guard   // judge in the phases that they list; names must differ
	Monitors  []Guard   // are asked like guards, and what they say is recorded and changes nothing; names must differ, also from guards'
	Artifacts Artifacts // nil: there are none
	Memory    Memory    // nil: there is none
	// Compaction, if set, keeps requests short. Without it summaries that a
	// session holds are ignored.
	Compaction *Compaction
	Audit      audit.Sink // nil: nothing is recorded; an error of the sink refuses the call
	// SecretHits, if set, finds the app's secrets in the canonical document of a
	// question, which keeps the first abi.MaxSecretHits of them. It must not keep or
	// change the document, and is called for several documents at the same time.
	SecretHits func(document json.RawMessage) []abi.SecretHit
	Observer   Observer
	Logger     *slog.Logger // nil: silent
	Limits     Limits
	Expires    time.Duration // how long a question to a person stays open; default 24 h
	FourEyes   bool          // whoever started a run, and whom it runs for, may not decide its questions; an answer comes in a message of its own
	// Deciders, if set, are all who may decide questions, by [Runner.Decide] or in a
	// message; a list without entries is an error. nil: anybody. FourEyes holds for
	// them, too. What somebody else approved before they were set is asked about again.
	Deciders []Decider
	Now      func() time.Time
}

// DefaultExpires is how long a question to a person stays open by default.
const DefaultExpires = 24 * time.Hour

// Limits bound one run. A zero field takes its default; nothing means unlimited.
type Limits struct {
	Steps        int           // model calls of one run, those of agents that run as tools included; default 50
	Depth        int           // agents that run inside calls of tools, one inside the other; default 5
	CallsPerStep int           // tool calls of one step that are looked at; default 64
	Parallel     int           // tool calls that run at the same time; default 64
	Wall         time.Duration // the whole run; default 10 min
	Guard        time.Duration // one judgement, waiting included; default 1 s
}

// WithDefaults returns l with its zero fields filled in.
func (l Limits) WithDefaults() Limits {
	l.Steps = cmp.Or(l.Steps, 50)
	l.Depth = cmp.Or(l.Depth, 5)
	l.CallsPerStep = cmp.Or(l.CallsPerStep, 64)
	l.Parallel = cmp.Or(l.Parallel, 64)
	l.Wall = cmp.Or(l.Wall, 10*time.Minute)
	l.Guard = cmp.Or(l.Guard, time.Second)
	return l
}

// A Runner runs an agent. It is safe for concurrent use.
type Runner struct {
	tree   *tree
	store  session.Store
	cfg    Config
	policy string // version of the guards
}

// NewRunner checks an agent and its configuration. A nil tool, toolset, store or
// guard is a mistake of the program and panics; everything else is an error.
func NewRunner(agent *Agent, store session.Store, cfg Config) (*Runner, error) {
	if store == nil {
		panic("flow: NewRunner: no session store")
	}
	tree, err := newTree(agent)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i, g := range slices.Concat(cfg.Guards, cfg.Monitors) {
		if g == nil {
			panic(fmt.Sprintf("flow: NewRunner: guard %d is nil", i))
		}
		if names[g.Name()] {
			return nil, fmt.Errorf("guard %s: there are two of that name", g.Name())
		}
		names[g.Name()] = true
		if err := checkGuard(g); err != nil {
			return nil, fmt.Errorf("guard %s: %w", g.Name(), err)
		}
	}
	if l := cfg.Limits; l.Steps < 0 || l.Depth < 0 || l.CallsPerStep < 0 || l.Parallel < 0 || l.Wall < 0 || l.Guard < 0 || cfg.Expires < 0 {
		return nil, errors.New("limits: negative")
	}
	if err := checkDeciders(cfg.Deciders); err != nil {
		return nil, err
	}
	if cfg.Compaction, err = cfg.Compaction.validate(agent); err != nil {
		return nil, fmt.Errorf("invalid Compaction: %w", err)
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	cfg.Expires = cmp.Or(cfg.Expires, DefaultExpires)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{tree: tree, store: store, cfg: cfg, policy: policyVersion(cfg.Guards)}, nil
}

// checkGuard refuses a guard that would never be asked, or a group that is not
// well-formed.
func checkGuard(g Guard) error {
	if group, ok := g.(*Group); ok {
		if err := group.check(); err != nil {
			return err
		}
		for _, m := range group.Guards {
			if err := checkGuard(m); err != nil {
				return fmt.Errorf("member %s: %w", m.Name(), err)
			}
		}
	}
	if len(g.Phases()) == 0 {
		return errors.New("no phases")
	}
	for _, p := range g.Phases() {
		if !abi.ValidPhase(p) {
			return fmt.Errorf("phase %q: unknown", p)
		}
	}
	for _, p := range g.Mutates() {
		if !slices.Contains(g.Phases(), p) {
			return fmt.Errorf("mutates %q, which is not one of its phases", p)
		}
	}
	return nil
}

// An Input starts a run.
type Input struct {
	// Content is the user's message: text, files, or function responses that
	// answer a question or a long-running call. nil runs the agent on the
	// history as it is.
	Content    *genai.Content
	StateDelta map[string]any // applied with the message
	Stream     bool           // ask the model for partial responses
	SaveBlobs  bool           // keep inline files of the message as artifacts
	Roles      []string       // of the user, as the host authenticated them; for guards
	By         string         // who starts the run, or answers, as the host authenticated them; default the session's user
	ByRoles    []string       // of By, for [Config].Deciders; default Roles if By is the session's user, else none

	// Direct, if set, runs the root agent itself at a place in the history,
	// whoever spoke last and whatever its mode. The message is stored there. As
	// in ADK the agent's events carry the branch, and whoever runs an agent in a
	// scope marks what it says with the scope.
	Direct *Placement
}

// A Placement is a part of a history: an agent sees events without a branch, on its
// branch and on those above it (branches are names joined by '.'), and of exactly
// its isolation scope.
type Placement struct {
	Branch         string
	IsolationScope string
}

// Text returns the input of a plain text message.
func Text(s string) Input { return Input{Content: genai.NewContentFromText(s, genai.RoleUser)} }

// Run runs the agent on one message in an existing session, and yields events in
// the order they happen. An event that is not partial is stored before it is
// yielded. An error ends the run, unless it comes from an on-event hook; what
// was yielded before is stored. A run that uses up its steps or its time ends
// with an event whose error code is budget_exhausted. Nothing happens before the sequence is ranged
// over, and nothing outlives it: a consumer that stops, or panics, ends the run between
// two events, no call that was shown but not begun is run, and what calls that ran
// beside the agent at which it stopped led to is stored, though not yielded.
func (r *Runner) Run(ctx context.Context, key session.Key, in Input) iter.Seq2[*session.Event, error] {
	return func(yield func(*session.Event, error) bool) {
		ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Limits.Wall, errWall)
		defer cancel()
		c := &consumer{to: yield}
		defer c.contain(r.cfg.Logger)
		if err := r.start(ctx, key, in, c.yield); err != nil {
			c.yield(nil, err)
		}
	}
}

// start loads the session and goes through the run.
func (r *Runner) start(ctx context.Context, key session.Key, in Input, yield yieldFunc) error {
	sess, err := r.store.Get(ctx, key)
	if err != nil {
		return err
	}
	run := r.newRun(key, sess, in)
	if run.id = run.resumedID(in.Content); run.id == "" {
		run.id = "e-" + newID()
	} else if err := run.countAttempts(ctx); err != nil {
		return err
	}
	run.main(ctx, in, yield)
	return nil
}

func (r *Runner) newRun(key session.Key, sess *session.Session, in Input) *run {
	by, byRoles := cmp.Or(in.By, key.User), in.ByRoles
	if byRoles == nil && by == key.User {
		byRoles = in.Roles
	}
	return &run{Runner: r, key: key, sess: sess, steps: &budget{}, temp: map[string]any{}, attempts: map[string]int{},
		branches: map[string]int{}, gates: map[string]*gate{}, passed: map[string]string{}, resumed: map[string]bool{}, handed: map[string]bool{},
		userContent: session.CloneContent(in.Content), stream: in.Stream, roles: in.Roles, by: by, byRoles: byRoles, asker: by}
}

// errWall is the cause with which the context of a run ends after [Limits].Wall.
var errWall = errors.New("the run's time is over")

// A consumer ranges over a run. After it has stopped it is not called again.
type consumer struct {
	to      yieldFunc
	inside  bool // its own code runs
	stopped bool
}

func (c *consumer) yield(ev *session.Event, err error) bool {
	if c.stopped {
		return false
	}
	c.inside, c.stopped = true, true // both stay so if it panics
	more := c.to(ev, err)
	c.inside, c.stopped = false, !more
	return more
}

// contain, deferred, turns a panic of the run into its last error. A panic of the
// consumer's own code goes on.
func (c *consumer) contain(log *slog.Logger) {
	if c.inside {
		return
	}
	if p := recover(); p != nil {
		log.Error("run failed", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		c.yield(nil, fmt.Errorf("run: panic: %v", p))
	}
}

// countAttempts continues the numbering of attempts where the stored calls of
// this run end.
func (r *run) countAttempts(ctx context.Context) error {
	calls, err := r.store.Calls(ctx, r.key)
	if err != nil {
		return err
	}
	for _, c := range calls {
		if c.ID.Run == r.id {
			r.attempts[c.ID.Call] = max(r.attempts[c.ID.Call], c.ID.Attempt+1)
		}
	}
	return nil
}

// resumedID returns the run that asked for what a message answers, or nothing.
func (r *run) resumedID(message *genai.Content) string {
	for _, answer := range (&session.Response{Content: message}).Responses() {
		if ev := eventOfCall(r.sess.Events, answer.ID); ev != nil {
			return ev.InvocationID
		}
	}
	return ""
}

// newID returns 128 random bits as text.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	digits := hex.EncodeToString(b[:])
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}
