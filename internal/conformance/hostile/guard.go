package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A handler is a tool behind a guard. It knows how often it was started.
type handler interface {
	flow.Tool
	began() (times int, input json.RawMessage) // no input if it cannot be known
	reset()
}

// native is a handler in Go.
type native struct {
	spec   flow.Spec
	starts atomic.Int64
	input  atomic.Value // of the last start
}

func (n *native) Spec() *flow.Spec { return &n.spec }

func (n *native) Run(_ *flow.ToolContext, permit flow.Permit) (flow.Outcome, error) {
	n.starts.Add(1)
	n.input.Store(slices.Clone(permit.Args()))
	return flow.Outcome{Result: json.RawMessage(`{"n":1}`)}, nil
}

func (n *native) began() (int, json.RawMessage) {
	input, _ := n.input.Load().(json.RawMessage)
	return int(n.starts.Load()), input
}

func (n *native) reset() { n.starts.Store(0) }

// guest is the corpus's witness, a module that logs and answers {"n":1}. Its host
// call, granted or not, is what shows that it was started.
type guest struct {
	flow.Handler
	starts *atomic.Int64
}

func (g *guest) began() (int, json.RawMessage) { return int(g.starts.Load()), nil }
func (g *guest) reset()                        { g.starts.Store(0) }

// witness uploads the witness.
func (s *subject) witness(ctx context.Context, c Corpus) (*guest, error) {
	starts := &atomic.Int64{}
	grants := grantable([]string{"log"})
	tools, err := s.named(ctx, c, "witness", plugins.Config{Grants: grants, Ceiling: grants, Audit: s.audit, Logger: slog.New(&s.logs),
		Trace: func(string, string, host.HostCall) { starts.Add(1) }})
	if err != nil {
		return nil, err
	}
	tool, ok := tools[0].(flow.Handler)
	if !ok {
		return nil, errors.New("witness: no handler")
	}
	return &guest{tool, starts}, nil
}

// guardAll calls a tool behind the guard: the tool in Go and as a guest, the guard
// at each place among three, through each entrance.
func (t *trial) guardAll(ctx context.Context, up *upload) (string, error) {
	if up.gated != nil && !slices.Contains(t.Expect.Outcome, abi.PolicyUnavailable) {
		return fmt.Sprintf("not let in: %v", up.gated), nil
	}
	allow := func(name string) flow.Guard {
		return policies.Func(name, func(context.Context, *abi.Question) abi.Verdict { return abi.Allow() }, t.Manifest.Guard.Phases...)
	}
	handlers := map[string]handler{
		"native":  &native{spec: flow.Spec{Name: t.witness.Spec().Name, Grants: t.witness.Spec().Grants}},
		"witness": t.witness,
	}
	for _, kind := range []string{"native", "witness"} {
		for place, where := range []string{"first", "middle", "last"} {
			for _, entrance := range t.Expect.entrances() {
				h := handlers[kind]
				h.reset()
				a := *t.calls[0]
				a.tool, a.tools, a.entrance = h.Spec().Name, []flow.Tool{h}, entrance
				a.guards = slices.Insert([]flow.Guard{allow("one"), allow("other")}, place, flow.Guard(placed{up.guard, &a}))
				seen := len(t.actions())
				if err := t.subject.run(ctx, &a); err != nil {
					return "", err
				}
				difference := t.compare(&a, t.specs[0], 0)
				if difference == "" {
					difference = t.behind(&a, h)
				}
				if difference == "" {
					difference = t.Expect.audited(t.actions()[seen:])
				}
				if difference != "" {
					return fmt.Sprintf("guard %s, handler %s, entrance %s: %s", where, kind, entrance, difference), nil
				}
			}
		}
	}
	return t.Expect.logged(&t.logs), nil
}

// behind compares what the handler saw and gave.
func (t *trial) behind(a *attempt, h handler) string {
	starts, input := h.began()
	if want := t.Expect.HandlerStarted; want != nil && (*want != (starts > 0) || a.ran != *want) {
		return fmt.Sprintf("the handler was started %d times", starts)
	}
	same := func(what string, got any, want json.RawMessage) string {
		if len(want) == 0 {
			return ""
		}
		expected, err := decoded(want, 0)
		if err != nil {
			return err.Error()
		}
		if !equal(got, expected) {
			return fmt.Sprintf("%s of the handler %s, want %s", what, show(got), show(expected))
		}
		return ""
	}
	if len(input) > 0 {
		got, err := decoded(input, 0)
		if err != nil {
			return err.Error()
		}
		if difference := same("input", got, t.Expect.HandlerInput); difference != "" {
			return difference
		}
	}
	return same("output", a.response, t.Expect.HandlerOutput)
}
