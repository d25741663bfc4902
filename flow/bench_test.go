package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

// A caller is a model that asks for a call of tool so often, and then says "done".
type caller struct{ calls, asked int }

func (c *caller) Name() string { return "caller" }

func (c *caller) Generate(context.Context, *flow.Request, bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		if c.asked == c.calls {
			c.asked = 0
			yield(flowtest.Say("done")[0].Response, nil)
			return
		}
		c.asked++
		yield(flowtest.Call(&genai.FunctionCall{Name: "tool", Args: map[string]any{"n": json.Number("1")}})[0].Response, nil)
	}
}

// benchRun times runs of so many steps with one call each, and one that ends them.
// Each run has a session of its own.
func benchRun(b *testing.B, steps int, cfg flow.Config) {
	cfg.Limits = flow.Limits{Steps: steps + 1}
	store := session.NewMemory()
	agent := &flow.Agent{Name: "agent", Model: &caller{calls: steps}, Tools: []flow.Tool{&quietTool{flow.Spec{Name: "tool"}}}}
	r, err := flow.NewRunner(agent, store, cfg)
	if err != nil {
		b.Fatal(err)
	}
	key := session.Key{App: "a", User: "u", ID: "s"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := store.Create(b.Context(), key, nil); err != nil {
			b.Fatal(err)
		}
		events := 0
		for _, err := range r.Run(b.Context(), key, flow.Text("go")) {
			if err != nil {
				b.Fatal(err)
			}
			events++
		}
		if want := 2*steps + 1; events != want {
			b.Fatalf("%d events, want %d", events, want)
		}
		if err := store.Delete(b.Context(), key); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, steps := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(steps), func(b *testing.B) { benchRun(b, steps, flow.Config{}) })
	}
}

// BenchmarkStep times one step with a call after so many events.
func BenchmarkStep(b *testing.B) {
	for _, before := range []int{10, 1000} {
		b.Run(fmt.Sprint(before), func(b *testing.B) { benchStep(b, before) })
	}
}

func benchStep(b *testing.B, before int) {
	store := session.NewMemory()
	key := session.Key{App: "a", User: "u", ID: "s"}
	agent := &flow.Agent{Name: "agent", Model: &caller{calls: 1 << 30}, Tools: []flow.Tool{&quietTool{flow.Spec{Name: "tool"}}}}
	r, err := flow.NewRunner(agent, store, flow.Config{Limits: flow.Limits{Steps: 1 << 30}})
	if err != nil {
		b.Fatal(err)
	}
	const steps = 5 // that are timed after the events; few, so that there is no telling them from the last
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		if _, err := store.Create(b.Context(), key, nil); err != nil {
			b.Fatal(err)
		}
		events := 1 // the message
		for _, err := range r.Run(b.Context(), key, flow.Text("go")) {
			if err != nil {
				b.Fatal(err)
			}
			if events++; events == before {
				b.StartTimer()
			}
			if events == before+2*steps {
				b.StopTimer()
				break
			}
		}
		if err := store.Delete(b.Context(), key); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*steps), "ns/step")
}

type quietTool struct{ spec flow.Spec }

func (t *quietTool) Spec() *flow.Spec { return &t.spec }

func (t *quietTool) Run(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
	return flow.Outcome{Result: json.RawMessage(`{}`)}, nil
}
