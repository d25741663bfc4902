package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// benchRun times runs of so many steps, each but the last with one call.
func benchRun(b *testing.B, steps int, guards ...flow.Guard) {
	noop := &quietTool{flow.Spec{Name: "tool"}}
	store := session.NewMemory()
	agent := &flow.Agent{Name: "agent", Tools: []flow.Tool{noop}}
	var script [][]flowtest.Reply
	for i := range steps - 1 {
		script = append(script, flowtest.Call(call(fmt.Sprint("c", i), "tool", `{"n":1}`)))
	}
	script = append(script, flowtest.Say("done"))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		agent.Model = &flowtest.Model{Steps: script}
		r, err := flow.NewRunner(agent, store, flow.Config{Guards: guards, Limits: flow.Limits{Steps: steps + 1}})
		if err != nil {
			b.Fatal(err)
		}
		n++
		key := session.Key{App: "a", User: "u", ID: fmt.Sprint(n)}
		if _, err := store.Create(b.Context(), key, nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for _, err := range r.Run(b.Context(), key, flow.Text("go")) {
			if err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		if err := store.Delete(b.Context(), key); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkRun(b *testing.B) {
	for _, steps := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(steps), func(b *testing.B) { benchRun(b, steps) })
	}
}

// BenchmarkDispatch times one no-op call: a run of two steps, less one of one
// step, which BenchmarkRun/1 has.
func BenchmarkDispatch(b *testing.B) {
	b.Run("no guard", func(b *testing.B) { benchRun(b, 2) })
	b.Run("two guards", func(b *testing.B) {
		benchRun(b, 2, &quietGuard{"a"}, &quietGuard{"b"})
	})
}

type quietTool struct{ spec flow.Spec }

func (t *quietTool) Spec() *flow.Spec { return &t.spec }

func (t *quietTool) Run(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
	return flow.Outcome{Result: json.RawMessage(`{}`)}, nil
}

type quietGuard struct{ name string }

func (g *quietGuard) Name() string         { return g.name }
func (g *quietGuard) Version() string      { return "1" }
func (g *quietGuard) Phases() []abi.Phase  { return bothPhases }
func (g *quietGuard) Mutates() []abi.Phase { return nil }

func (g *quietGuard) Judge(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	return flowtest.Echo(q, abi.Allow()), nil
}
