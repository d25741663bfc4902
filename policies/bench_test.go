package policies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// ceiling is the guard of testdata/ceiling, built with the plain Go toolchain.
func ceiling(t testing.TB, limits host.Limits) *policies.Guard {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	wasm, _, err := app.Modules{Engine: engine}.Build(t.Context(), "testdata/ceiling", nil)
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	g, err := policies.New(t.Context(), module, policies.Config{Settings: json.RawMessage(`{"limit":"1000"}`), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// nativeCeiling judges calls as ceiling does, in Go.
func nativeCeiling(_ context.Context, q *abi.Question) abi.Verdict {
	var args struct{ Amount json.Number }
	if err := json.Unmarshal(q.Call.Args, &args); err != nil {
		return abi.Deny("no_amount", "name the amount")
	}
	if n, err := strconv.ParseFloat(string(args.Amount), 64); err != nil || n > 1000 {
		return abi.Confirm("", "more than 1000")
	}
	return abi.Allow()
}

func callQuestion(args string) *abi.Question {
	return &abi.Question{Format: 1, Kind: abi.KindGuard, Guard: "ceiling", Phase: abi.PhaseCall, Nonce: strings.Repeat("a", 32), DocumentSHA256: abi.Digest([]byte(args)),
		Now: "2026-03-02T09:00:00Z", Tenant: "acme", App: "shop", Agent: "agent", User: abi.User{ID: "ada"}, Session: "s1", Run: "r1", Step: 1,
		Call: &abi.CallFacts{ID: "c1", Tool: "pay", Known: true, Effects: abi.Once, Args: json.RawMessage(args)}, Grants: []string{"log"}}
}

// samples are the times of single operations.
type samples []time.Duration

func (s samples) at(quantile float64) float64 {
	slices.Sort(s)
	return float64(s[int(float64(len(s)-1)*quantile)]) / float64(time.Microsecond)
}

func timed(into *samples, f func()) {
	began := time.Now()
	f()
	*into = append(*into, time.Since(began))
}

// discard is an audit log that keeps nothing.
type discard struct{}

func (discard) Append(context.Context, audit.Record) error { return nil }

// BenchmarkGuard times a question to a guard in Go, from the question to the
// checked verdict, beside one that is a Go function of this process; and a direct
// call of a tool that does nothing behind five of each. What five add is against
// the same call without a guard. Times are in microseconds.
func BenchmarkGuard(b *testing.B) {
	guest := ceiling(b, host.Limits{Wall: 5 * time.Second})
	native := policies.Func("native", nativeCeiling, abi.PhaseCall)
	b.Run("one", func(b *testing.B) {
		q := callQuestion(`{"amount":12.50,"to":"alice"}`)
		var guests, natives samples
		ask := func(g flow.Guard) func() {
			return func() {
				if v, err := g.Judge(b.Context(), q); err != nil || v.Ruling != abi.RulingAllow {
					b.Fatal(v, err)
				}
			}
		}
		for range 100 {
			ask(guest)()
		}
		b.ReportAllocs()
		for b.Loop() {
			timed(&guests, ask(guest))
			timed(&natives, ask(native))
		}
		b.ReportMetric(guests.at(0.5), "p50-us")
		b.ReportMetric(guests.at(0.99), "p99-us")
		b.ReportMetric(guests.at(0.5)/natives.at(0.5), "x-native")
	})
	b.Run("five", func(b *testing.B) {
		var times [3]samples
		var calls [3]func()
		for i, g := range []flow.Guard{nil, native, guest} {
			var chain []flow.Guard
			for n := range 5 {
				if g != nil {
					chain = append(chain, renamed{g, fmt.Sprint("guard", n)})
				}
			}
			calls[i] = direct(b, chain)
		}
		for range 100 {
			calls[2]()
		}
		for b.Loop() {
			for i := range calls {
				timed(&times[i], calls[i])
			}
		}
		none := times[0].at(0.5)
		b.ReportMetric(times[2].at(0.5)-none, "added-p50-us")
		b.ReportMetric(times[2].at(0.99)-none, "added-p99-us")
		b.ReportMetric((times[2].at(0.5)-none)/(times[1].at(0.5)-none), "x-native")
	})
}

// renamed is a guard under another name.
type renamed struct {
	flow.Guard
	name string
}

func (r renamed) Name() string { return r.name }

// direct returns a function that makes one call behind guards.
func direct(b *testing.B, guards []flow.Guard) func() {
	agent := &flow.Agent{Name: "agent", Model: &flowtest.Model{}, Tools: []flow.Tool{&flowtest.Tool{Describe: flow.Spec{Name: "pay"}}}}
	n, key := 0, home
	var runner *flow.Runner
	return func() {
		if n%100 == 0 { // so that no session grows for ever
			b.StopTimer()
			store := session.NewMemory()
			var err error
			if runner, err = flow.NewRunner(agent, store, flow.Config{Guards: guards, Audit: discard{}}); err != nil {
				b.Fatal(err)
			}
			if _, err := store.Create(b.Context(), key, nil); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		n++
		for ev, err := range runner.Call(b.Context(), key, flow.DirectCall{Tool: "pay", Args: map[string]any{"amount": json.Number("12.50"), "to": "alice"}}) {
			if err != nil {
				b.Fatal(err)
			}
			for _, r := range ev.Responses() {
				if r.Response["error"] != nil {
					b.Fatal(r.Response)
				}
			}
		}
	}
}
