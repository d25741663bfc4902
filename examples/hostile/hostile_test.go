// Package hostile_test times the neighbour of the hostile app.
package hostile_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
)

func TestMain(m *testing.M) {
	host.Main() // the engine compiles in a child, which is this program
	os.Exit(m.Run())
}

// BenchmarkNeighbour is one call of a tool, alone and while the hostile plugin does its
// worst, one attempt after the other, in the same process.
func BenchmarkNeighbour(b *testing.B) {
	file, err := app.Load(".")
	if err != nil {
		b.Fatal(err)
	}
	file.Store.Audit = b.TempDir() + "/audit.log"
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
	call := func(ctx context.Context, tool string, args map[string]any) error {
		key, err := rt.Session(ctx, "u", fmt.Sprintf("%s-%d", tool, time.Now().UnixNano()))
		if err != nil {
			return err
		}
		for _, err := range rt.Runner.Call(ctx, key, flow.DirectCall{Tool: tool, Args: args}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	measure := func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			if err := call(b.Context(), "add", map[string]any{"numbers": []any{1, 2, 3}}); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	}
	b.Run("alone", measure)
	b.Run("beside", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		var attempts sync.WaitGroup
		attempts.Go(func() {
			for ctx.Err() == nil {
				for _, tool := range []string{"loop", "recurse", "memory", "table", "output", "logs", "metadata", "redirect", "secret", "actions", "door"} {
					if err := call(ctx, tool, nil); err != nil && ctx.Err() == nil {
						b.Errorf("%s: %v", tool, err)
					}
				}
			}
		})
		measure(b)
		cancel()
		attempts.Wait()
	})
}
