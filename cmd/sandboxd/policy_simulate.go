package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

type simulateFlags struct {
	module  string
	guard   guardFlags
	exports []string
	session string
	since   string
	last    int
	roles   []string
	fail    bool
	json    bool
}

func policySimulateCommand(e *env) *cobra.Command {
	f := &simulateFlags{}
	c := &cobra.Command{
		Use: "simulate APP", Short: "Ask a guard about everything that was said and done so far",
		Long: "Ask a guard the questions of the sessions that an app has kept, or of exported ones, and\nsay what would have been different. No tool is called, no model asked, nothing written.\n\n" +
			"Questions are made of the sessions' events: calls as the model gave them, results,\nmessages and answers. What no session holds is not judged: requests, and the roles of\nusers, which --role gives. Counters of " +
			"the guard begin empty and go by the time of the\nquestions. What guards refused or a person was asked is compared with this guard alone.",
		Example: "sandboxd policy simulate . --guard office.wasm --settings new.yaml --since 7d\nsandboxd policy simulate . --guard office.wasm --last 20 --fail-on-change\nsandboxd policy simulate . --guard builtin/role-access --settings roles.yaml\nsandboxd policy simulate . --guard policies/office --settings new.yaml --export demo.jsonl --json",
		Args:    exactly("APP"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("last") && (f.last < 1 || f.session != "") {
				return misuse("--last 20 for the last 20 sessions, --session ID for one of them", "--last %d: want 1 or more, and no --session", f.last)
			}
			return e.simulate(c.Context(), args[0], f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.module, "guard", "", "the module, or the folder of its source, `FILE`, or builtin/NAME")
	flags.StringVar(&f.guard.guard, "name", "", "the guard `NAME`, if the module has several")
	flags.StringVar(&f.guard.settings, "settings", "", "its settings: `JSON`, or a file in JSON or YAML")
	flags.StringArrayVar(&f.exports, "export", nil, "a `FILE` of session export instead of what the app has kept; may be repeated")
	flags.StringVar(&f.session, "session", "", "only the session `ID`")
	flags.StringVar(&f.since, "since", "", "not before `TIME`, which may be a span back from now, such as 7d")
	flags.IntVar(&f.last, "last", 0, "only the `COUNT` sessions in which something was said last")
	flags.StringArrayVar(&f.roles, "role", nil, "a `ROLE` of every user; may be repeated")
	flags.BoolVar(&f.fail, "fail-on-change", false, "exit 1 if anything would have been different, or cannot be judged")
	jsonFlag(c, &f.json)
	e.verboseFlag(c)
	groupFlags(c, "input", "guard", "name", "settings", "export", "session", "since", "last", "role")
	groupFlags(c, "output", "fail-on-change")
	return c
}

// A simulated question is one that would have been answered differently.
type simulated struct {
	Kind    string     `json:"kind"`
	Session string     `json:"session"`
	User    string     `json:"user"`
	Phase   abi.Phase  `json:"phase"`
	Call    string     `json:"call,omitempty"`
	Tool    string     `json:"tool,omitempty"`
	Was     abi.Ruling `json:"was"`
	Now     abi.Ruling `json:"now"`
	Code    string     `json:"code,omitempty"`
	Why     []abi.Why  `json:"why,omitempty"`
}

// A notJudged question cannot be made of what was kept.
type notJudged struct {
	Kind    string    `json:"kind"`
	Session string    `json:"session"`
	User    string    `json:"user"`
	Phase   abi.Phase `json:"phase"`
	Call    string    `json:"call,omitempty"`
	Tool    string    `json:"tool,omitempty"`
	Error   string    `json:"error"`
}

func (e *env) simulate(ctx context.Context, name string, f *simulateFlags) error {
	began := time.Now()
	if f.module == "" {
		return misuse("sandboxd policy simulate APP --guard FILE", "--guard: missing")
	}
	var after time.Time
	if f.since != "" {
		var err error
		if after, err = when(f.since, e.now()); err != nil {
			return misuse("2026-03-01T09:00:00Z, 90m, 12h, 7d", "--since %q: no time and no span of time", f.since)
		}
	}
	file, err := app.Load(e.path(name))
	if err != nil {
		return err
	}
	rt, closeAll, err := e.openApart(ctx, name)
	if err != nil {
		return err
	}
	defer closeAll()
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	g, err := e.openGuest(ctx, modules, f.module, "")
	if err != nil {
		return err
	}
	if err := f.guard.choose(g, "name"); err != nil {
		return err
	}
	module, err := g.load(ctx, modules)
	if err != nil {
		return err
	}
	clock := time.Time{}
	kv := host.NewMemoryKV(func() time.Time { return clock })
	guard, err := e.guardWith(ctx, module, f.guard, policies.Config{KV: kv})
	if err != nil {
		return err
	}
	sessions, err := e.sessionsOf(ctx, file, f)
	if err != nil {
		return err
	}
	if f.last > 0 {
		slices.SortStableFunc(sessions, func(a, b *session.Session) int { return lastSaid(b).Compare(lastSaid(a)) })
		sessions = sessions[:min(f.last, len(sessions))]
	}
	s := &simulation{env: e, json: f.json}
	var asked []authortest.Stored
	for _, sess := range sessions {
		list, unread := authortest.StoredQuestions(sess, f.roles, specs(rt), rt.SecretHits)
		asked = append(asked, list...)
		for _, u := range unread {
			if !u.At.Before(after) && slices.Contains(guard.Phases(), u.Phase) {
				s.unread = append(s.unread, notJudged{"not_judged", sess.Key.ID, sess.Key.User, u.Phase, u.Call, u.Tool, u.Err.Error()})
			}
		}
	}
	asked = slices.DeleteFunc(asked, func(s authortest.Stored) bool {
		return s.At.Before(after) || !slices.Contains(guard.Phases(), s.Question.Phase)
	})
	slices.SortStableFunc(asked, func(a, b authortest.Stored) int { return a.At.Compare(b.At) })
	if len(asked)+len(s.unread) == 0 {
		return misuse("the guard judges in "+phasesText(guard.Phases()), "policy simulate: no question found in %s", plural(len(sessions), "session"))
	}
	s.line(map[string]any{"format": 1, "kind": "start", "questions": len(asked) + len(s.unread), "sessions": len(sessions), "guard": module.Digest().String()})
	for _, u := range s.unread {
		s.line(u)
	}
	for _, q := range asked {
		clock = q.At
		s.take(q, flow.Ask(ctx, guard, q.Question, authortest.GuardWall))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	s.line(map[string]any{"kind": "end", "unchanged": s.unchanged, "changed": s.changed(), "not_judged": len(s.unread)})
	if !f.json {
		fmt.Fprintf(e.stdout, "%s of %s judged again · guard %s · %s\n", plural(len(asked), "stored question"), plural(len(sessions), "session"), module.Digest().Short(), took(time.Since(began)))
		fmt.Fprint(e.stdout, s.text())
	}
	if slices.Contains(guard.Phases(), abi.PhaseRequest) {
		fmt.Fprintln(e.stderr, "warning: requests are not judged: no session holds them")
	}
	switch all := plural(len(asked)+len(s.unread), "question"); {
	case f.fail && s.changed() > 0:
		return &commandError{What: fmt.Sprintf("policy simulate: %d of %s would be different", s.changed(), all), Code: abi.PolicyDenied, Exit: exitNotDone}
	case f.fail && len(s.unread) > 0:
		return &commandError{What: fmt.Sprintf("policy simulate: %d of %s cannot be judged", len(s.unread), all), Code: abi.PolicyDenied, Exit: exitNotDone}
	}
	return nil
}

// lastSaid returns when something was last said in a session; zero if nothing was.
func lastSaid(s *session.Session) time.Time {
	if len(s.Events) == 0 {
		return time.Time{}
	}
	return s.Events[len(s.Events)-1].Time
}

func phasesText(phases []abi.Phase) string {
	var names []string
	for _, p := range phases {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// specs returns what an app says of its tools.
func specs(rt *app.Runtime) func(string) *flow.Spec {
	known := map[string]*flow.Spec{}
	for _, p := range rt.Plugins {
		for _, t := range p.Tools() {
			known[t.Spec().Name] = t.Spec()
		}
	}
	for _, name := range rt.File.AllTools() {
		if known[name] == nil {
			known[name] = &flow.Spec{Name: name}
		}
	}
	return func(tool string) *flow.Spec { return known[tool] }
}

// sessionsOf returns the sessions that are judged again.
func (e *env) sessionsOf(ctx context.Context, file *app.File, f *simulateFlags) ([]*session.Session, error) {
	var list []*session.Session
	for _, name := range f.exports {
		data, err := e.readFile(name)
		if err != nil {
			return nil, err
		}
		header, events, err := readExport(data)
		if err != nil {
			return nil, &fileError{name, err}
		}
		if f.session == "" || f.session == header.Session.ID {
			list = append(list, &session.Session{Key: header.Session, State: header.State, Events: events})
		}
	}
	if f.exports != nil {
		return list, nil
	}
	if file.KeepsSessions() {
		if _, err := os.Stat(file.SessionsPath()); errors.Is(err, fs.ErrNotExist) {
			return nil, misuse("sandboxd run APP keeps some", "app %s: has kept no sessions yet", file.Name)
		}
	}
	store, err := file.OpenSessions()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	users, err := store.Users(ctx, "", file.Name)
	if err != nil {
		return nil, err
	}
	for _, user := range users {
		keys, err := store.List(ctx, "", file.Name, user)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if f.session != "" && f.session != key.ID {
				continue
			}
			sess, err := store.Get(ctx, key)
			if err != nil {
				return nil, err
			}
			list = append(list, sess)
		}
	}
	return list, nil
}

// A simulation counts what would be different.
type simulation struct {
	*env
	json      bool
	unchanged int
	unread    []notJudged
	kinds     []*simulatedKind
}

// simulatedKind are the changes from one verdict to another.
type simulatedKind struct {
	was, now abi.Ruling
	n        int
	tools    map[string]int
	first    simulated
}

func (s *simulation) line(v any) {
	if s.json {
		_ = json.NewEncoder(s.stdout).Encode(v) // a pipe that nobody reads ends the process
	}
}

func (s *simulation) changed() int {
	n := 0
	for _, k := range s.kinds {
		n += k.n
	}
	return n
}

// take takes the answer to one question. Narrowing and rewriting let a call pass.
func (s *simulation) take(q authortest.Stored, j flow.Judgement) {
	now := j.Verdict.Ruling
	if now == abi.RulingNarrow || now == abi.RulingRewrite {
		now = abi.RulingAllow
	}
	if now == q.Was {
		s.unchanged++
		return
	}
	one := simulated{Kind: "changed", Session: q.Question.Session, User: q.Question.User.ID, Phase: q.Question.Phase, Was: q.Was, Now: now, Code: j.Verdict.Code, Why: j.Verdict.Why}
	if j.Err != nil {
		one.Code = string(abi.PolicyUnavailable)
	}
	if c := q.Question.Call; c != nil {
		one.Call, one.Tool = c.ID, c.Tool
	}
	s.line(one)
	i := slices.IndexFunc(s.kinds, func(k *simulatedKind) bool { return k.was == one.Was && k.now == now })
	if i < 0 {
		s.kinds, i = append(s.kinds, &simulatedKind{was: one.Was, now: now, tools: map[string]int{}, first: one}), len(s.kinds)
	}
	s.kinds[i].n++
	s.kinds[i].tools[cmp.Or(one.Tool, string(one.Phase))]++
}

func (s *simulation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  unchanged        %s\n", count(int64(s.unchanged)))
	for _, k := range s.kinds {
		var tools []string
		for tool, n := range k.tools {
			tools = append(tools, fmt.Sprintf("%s %d", foreign(tool, false), n))
		}
		slices.Sort(tools)
		fmt.Fprintf(&b, "  %-5s → %-7s  %s   %s   first %s %s", s.rulingWord(k.was), s.rulingWord(k.now), count(int64(k.n)), strings.Join(tools, ", "),
			foreign(k.first.Session, false), foreign(cmp.Or(k.first.Call, string(k.first.Phase)), false))
		for _, w := range k.first.Why {
			fmt.Fprintf(&b, "   %s %q", foreign(w.At, false), foreign(w.Saw, false))
		}
		if k.first.Code != "" {
			fmt.Fprintf(&b, "   %s", foreign(k.first.Code, false))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "  not judged       %s\n", count(int64(len(s.unread))))
	for _, u := range s.unread {
		fmt.Fprintf(&b, "    %s %s   %s\n", foreign(u.Session, false), foreign(cmp.Or(u.Call, string(u.Phase)), false), foreign(u.Error, false))
	}
	return b.String()
}
