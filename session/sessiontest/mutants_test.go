package sessiontest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sessiontest"
)

// mutantVariable names the mutant that TestContract tests in a child process.
const mutantVariable = "SESSIONTEST_MUTANT"

// A mutant is a store with one bug, and the part of the contract that must find it.
type mutant struct {
	part string
	make func(session.Store) session.Store
}

var mutants = map[string]mutant{
	"create overwrites":                  {"create", func(s session.Store) session.Store { return overwrites{s} }},
	"append takes partial events":        {"append refuses", func(s session.Store) session.Store { return partials{s} }},
	"append keeps the caller's event":    {"copies of sessions", func(s session.Store) session.Store { return &keeps{Store: s} }},
	"temp state is stored":               {"state scopes", func(s session.Store) session.Store { return temps{s} }},
	"numbers become floats":              {"state numbers", func(s session.Store) session.Store { return floats{s} }},
	"a call begins twice":                {"calls", func(s session.Store) session.Store { return begins{s} }},
	"an ended call ends again":           {"call ends", func(s session.Store) session.Store { return ends{s} }},
	"questions are found across tenants": {"decide elsewhere", func(s session.Store) session.Store { return tenantless{s} }},
	"questions of all apps are listed":   {"questions of an app", func(s session.Store) session.Store { return appless{s} }},
	"an expired question can be decided": {"decide refuses", func(s session.Store) session.Store { return timeless{s} }},
	"the digest is not compared":         {"decide refuses", func(s session.Store) session.Store { return blind{s} }},
	"an approval is spent twice":         {"spend", func(s session.Store) session.Store { return spends{s} }},
	"an approval is spent before a call": {"spend", func(s session.Store) session.Store { return apart{s} }},
	"spend reads, then writes":           {"spend races", func(s session.Store) session.Store { return &unlocked{Store: s} }},
}

// TestContract tests the store in memory, or in a child process a mutant of it.
func TestContract(t *testing.T) {
	sessiontest.TestStore(t, func(*testing.T) session.Store {
		s := session.Store(session.NewMemory())
		if m, ok := mutants[os.Getenv(mutantVariable)]; ok {
			s = m.make(s)
		}
		return s
	})
}

func TestMutantsAreCaught(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestContract$")
			cmd.Env = append(os.Environ(), mutantVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); !failed {
				t.Fatalf("the contract does not notice: %v\n%s", err, out)
			}
			if part := "--- FAIL: TestContract/" + strings.ReplaceAll(m.part, " ", "_"); !strings.Contains(string(out), part) {
				t.Errorf("output has no %q:\n%s", part, out)
			}
		})
	}
}

type overwrites struct{ session.Store }

func (s overwrites) Create(ctx context.Context, key session.Key, state map[string]any) (*session.Session, error) {
	_ = s.Store.Delete(ctx, key)
	return s.Store.Create(ctx, key, state)
}

type appless struct{ session.Store }

func (s appless) AppQuestions(ctx context.Context, tenant, app string, states ...session.QuestionState) ([]session.Question, error) {
	mine, err := s.Store.AppQuestions(ctx, tenant, app, states...)
	others, err2 := s.Store.AppQuestions(ctx, tenant, app+"2", states...)
	return append(mine, others...), errors.Join(err, err2)
}

type partials struct{ session.Store }

func (s partials) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	c := ev.Clone()
	c.Partial = false
	return s.Store.Append(ctx, key, c)
}

type keeps struct {
	session.Store
	last *session.Event
}

func (s *keeps) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	s.last = ev
	return s.Store.Append(ctx, key, ev)
}

func (s *keeps) Get(ctx context.Context, key session.Key) (*session.Session, error) {
	sess, err := s.Store.Get(ctx, key)
	if err == nil && len(sess.Events) > 0 && s.last != nil {
		sess.Events[len(sess.Events)-1] = s.last
	}
	return sess, err
}

type temps struct{ session.Store }

func (s temps) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	c := ev.Clone()
	for k, v := range ev.Actions.StateDelta {
		if rest, ok := strings.CutPrefix(k, "temp:"); ok {
			c.Actions.StateDelta[rest] = v
		}
	}
	return s.Store.Append(ctx, key, c)
}

type floats struct{ session.Store }

func (s floats) Get(ctx context.Context, key session.Key) (*session.Session, error) {
	sess, err := s.Store.Get(ctx, key)
	if err == nil {
		for k, v := range sess.State {
			if n, ok := v.(interface{ Float64() (float64, error) }); ok {
				sess.State[k], _ = n.Float64()
			}
		}
	}
	return sess, err
}

type begins struct{ session.Store }

func (s begins) BeginCall(ctx context.Context, call session.Call) error {
	if err := s.Store.BeginCall(ctx, call); !errors.Is(err, session.ErrExists) {
		return err
	}
	return nil
}

type ends struct{ session.Store }

func (s ends) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	if err := s.Store.EndCall(ctx, key, id, end); !errors.Is(err, session.ErrDecided) {
		return err
	}
	return nil
}

type tenantless struct{ session.Store }

func (s tenantless) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	key.Tenant = "acme"
	return s.Store.Decide(ctx, key, id, d)
}

type timeless struct{ session.Store }

func (s timeless) Ask(ctx context.Context, q session.Question) error {
	q.Expires = q.Expires.AddDate(1, 0, 0)
	return s.Store.Ask(ctx, q)
}

type blind struct{ session.Store }

func (s blind) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	d.ArgsSHA256 = ""
	return s.Store.Decide(ctx, key, id, d)
}

type spends struct{ session.Store }

func (s spends) BeginCall(ctx context.Context, call session.Call) error {
	err := s.Store.BeginCall(ctx, call)
	if errors.Is(err, session.ErrUsed) {
		call.Approval = ""
		return s.Store.BeginCall(ctx, call)
	}
	return err
}

// apart spends an approval in a step of its own, before the call.
type apart struct{ session.Store }

func (s apart) BeginCall(ctx context.Context, call session.Call) error {
	if call.Approval != "" {
		first := session.Call{Session: call.Session, ID: session.CallID{Run: "apart", Call: call.ID.Call}, Approval: call.Approval}
		if err := s.Store.BeginCall(ctx, first); err != nil {
			return err
		}
	}
	call.Approval = ""
	return s.Store.BeginCall(ctx, call)
}

// unlocked looks at a question and changes it in two steps. Between them it lets
// another look, if one comes within a second.
type unlocked struct {
	session.Store
	looked atomic.Int32
}

func (s *unlocked) BeginCall(ctx context.Context, call session.Call) error {
	all, err := s.Questions(ctx, call.Session)
	if err != nil {
		return err
	}
	for _, q := range all {
		if q.ID == call.Approval && q.State == session.Approved {
			s.looked.Add(1)
			for began := time.Now(); s.looked.Load() < 2 && time.Since(began) < time.Second; {
				runtime.Gosched()
			}
			if err := s.Store.BeginCall(ctx, call); !errors.Is(err, session.ErrUsed) {
				return err
			}
			call.Approval = ""
		}
	}
	return s.Store.BeginCall(ctx, call)
}
