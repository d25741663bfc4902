// Package hostile_test times the neighbour of the hostile app.
package hostile_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/session"
)

func TestMain(m *testing.M) {
	host.Main() // the engine compiles in a child, which is this program
	os.Exit(m.Run())
}

// attempts are the tools of the hostile plugin.
var attempts = []string{"loop", "recurse", "memory", "table", "output", "logs", "metadata", "redirect", "secret", "actions", "door"}

// unchanged is how many times as long the neighbour's 99th percentile may be beside the hostile
// plugin as beside plain work in Go.
const unchanged = 2

// BenchmarkNeighbour times calls of a tool alone, beside plain work in Go, and beside the hostile
// plugin, which does its worst in the same process without a pause. The three take turns, so
// that what else the machine does falls on all of them. It fails if the hostile plugin is a
// worse neighbour than that work. Nothing here waits for a disk, which the processes of a
// machine share in ways of their own.
func BenchmarkNeighbour(b *testing.B) {
	file, err := app.Load(".")
	if err != nil {
		b.Fatal(err)
	}
	file.Store.Audit = b.TempDir() + "/audit.log" // gets what host calls are refused
	engine, err := host.Open(b.Context(), host.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close()
	rt, err := app.Open(b.Context(), file, app.Options{Modules: app.Modules{Engine: engine}})
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	agent := &flow.Agent{Name: "target"}
	for _, p := range rt.Plugins {
		agent.Tools = append(agent.Tools, p.Tools()...)
	}
	store := session.NewMemory()
	runner, err := flow.NewRunner(agent, store, flow.Config{Guards: rt.Guards})
	if err != nil {
		b.Fatal(err)
	}
	var sessions atomic.Int64
	call := func(ctx context.Context, tool string, args map[string]any) error {
		key := session.Key{App: "hostile", User: "u", ID: fmt.Sprint(sessions.Add(1))}
		if _, err := store.Create(ctx, key, nil); err != nil {
			return err
		}
		for _, err := range runner.Call(ctx, key, flow.DirectCall{Tool: tool, Args: args}) {
			if err != nil {
				return err
			}
		}
		return store.Delete(ctx, key)
	}
	situations := []struct {
		name   string
		beside func(ctx context.Context)
		took   []time.Duration
	}{
		{name: "alone", beside: func(context.Context) {}},
		{name: "work", beside: func(ctx context.Context) {
			for x := 1.0; ctx.Err() == nil; {
				for range 1 << 20 {
					x = math.Sqrt(x) + 1
				}
			}
		}},
		{name: "hostile", beside: func(ctx context.Context) {
			for {
				for _, tool := range attempts {
					if err := call(ctx, tool, nil); ctx.Err() != nil {
						return
					} else if err != nil {
						b.Errorf("%s: %v", tool, err)
					}
				}
			}
		}},
	}
	const calls = 250 // a few of all attempts, of which one takes a second
	for b.Loop() {
		for i := range situations {
			s := &situations[i]
			ctx, cancel := context.WithCancel(b.Context())
			var beside sync.WaitGroup
			beside.Go(func() { s.beside(ctx) })
			for began, n := time.Now(), 0; n < calls || time.Since(began) < 2*time.Second; n++ {
				start := time.Now()
				if err := call(b.Context(), "add", map[string]any{"numbers": []any{1, 2, 3}}); err != nil {
					b.Fatal(err)
				}
				s.took = append(s.took, time.Since(start))
			}
			cancel()
			beside.Wait()
		}
	}
	p99 := map[string]time.Duration{}
	for _, s := range situations {
		slices.Sort(s.took)
		p99[s.name] = s.took[len(s.took)*99/100]
		b.Logf("%-8s %6d calls: 50%% %v, 99%% %v, longest %v", s.name, len(s.took), s.took[len(s.took)/2], p99[s.name], s.took[len(s.took)-1])
		b.ReportMetric(float64(s.took[len(s.took)/2].Microseconds()), s.name+"-p50-us")
		b.ReportMetric(float64(p99[s.name].Microseconds()), s.name+"-p99-us")
	}
	ratio := float64(p99["hostile"]) / float64(p99["work"])
	b.ReportMetric(ratio, "p99-hostile/work")
	if ratio > unchanged {
		b.Errorf("the neighbour's 99th percentile is %v beside the hostile plugin and %v beside plain work: %.1f times, want at most %d", p99["hostile"], p99["work"], ratio, unchanged)
	}
}
