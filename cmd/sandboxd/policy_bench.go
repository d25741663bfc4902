package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

type benchFlags struct {
	n    int
	p99  time.Duration
	json bool
}

func policyBenchCommand(e *env) *cobra.Command {
	f := &benchFlags{}
	c := &cobra.Command{
		Use: "bench [DIR]", Short: "Measure the guards of a policy",
		Long: "Ask the guards that the tables below DIR name, the current folder if it is left out, the\nquestions of those tables over and over, and say for each guard and phase " +
			"how long a\njudgement takes and how much fuel. Then ask them on all processors at once, and say how\nmany judgements a second there are.",
		Example: "sandboxd policy bench\nsandboxd policy bench --n 10000 --p99 1ms policies/office",
		Args:    exactly("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if f.n < 1 || f.n > 1_000_000 {
				return misuse("", "--n %d: want 1 to 1,000,000", f.n)
			}
			t := &testFlags{json: f.json}
			return e.tests(c.Context(), "policy bench", dir, t, func(ctx context.Context, r *testRun) error { return r.benchTables(ctx, dir, f) })
		},
	}
	c.Flags().IntVar(&f.n, "n", 2000, "judgements of each guard and phase, `COUNT`")
	c.Flags().DurationVar(&f.p99, "p99", 0, "exit 1 if a hundredth of the judgements takes longer than `TIME`")
	jsonFlag(c, &f.json)
	e.verboseFlag(c)
	groupFlags(c, "limits", "n", "p99")
	return c
}

// A benchLine is what is said of one guard in one phase.
type benchLine struct {
	Kind      string    `json:"kind"`
	Guard     string    `json:"guard"`
	Phase     abi.Phase `json:"phase"`
	N         int       `json:"n"`
	P50US     float64   `json:"p50_us"`
	P99US     float64   `json:"p99_us"`
	WorstUS   float64   `json:"worst_us"`
	FuelMin   int64     `json:"fuel_min"`
	FuelMax   int64     `json:"fuel_max"`
	PerSecond int64     `json:"per_second"` // on all processors at once

	FuelCauses []string `json:"fuel_causes,omitempty"` // why that of one question differs from one time to the next: kv, or nonce
}

// benchTables measures the guards of all tables below a folder.
func (r *testRun) benchTables(ctx context.Context, dir string, f *benchFlags) error {
	tables, _, err := r.readTables(dir)
	if err != nil {
		return err
	}
	var late []error
	for _, t := range tables {
		g, err := r.guest(ctx, t.File, t.Guard)
		if err != nil {
			return err
		}
		m := g.module.Manifest()
		info := guardOf(m, t.Name)
		if info == nil {
			return errNoGuard(t.File, t.Name, m)
		}
		answers, err := t.Run(ctx, authortest.ModuleGuard(g.module, t.Name, host.Limits{}), nil, func(authortest.Result) {})
		if err != nil {
			return err
		}
		for _, phase := range info.Phases {
			asked := slices.DeleteFunc(slices.Clone(answers), func(a authortest.Answer) bool { return a.Question.Phase != phase })
			if len(asked) == 0 {
				continue
			}
			line, err := bench(ctx, g.module, t.Name, asked, f.n)
			if err != nil {
				return fmt.Errorf("%s: %w", t.File, err)
			}
			line.Kind, line.Guard, line.Phase = "bench", info.Name, phase
			r.passed++ // something was measured
			r.bench = true
			r.line(line)
			r.say("%s  %s  p50 %s  p99 %s  worst %s  fuel %s to %s  %s a second%s\n", foreign(line.Guard, true), phase, micros(line.P50US), micros(line.P99US),
				micros(line.WorstUS), fuel(line.FuelMin), fuel(line.FuelMax), count(line.PerSecond), line.causeText())
			if f.p99 > 0 && line.P99US > float64(f.p99.Nanoseconds())/1e3 {
				late = append(late, &commandError{What: fmt.Sprintf("guard %s, phase %s: p99 %s exceeds %s", line.Guard, phase, micros(line.P99US), f.p99), Exit: exitNotDone})
			}
		}
	}
	return errors.Join(late...)
}

// causeText says why the fuel of one question differs; empty if it does not.
func (l *benchLine) causeText() string {
	switch {
	case len(l.FuelCauses) == 0:
		return ""
	case l.FuelCauses[0] == causeKV:
		return "  the fuel of one question differs: by what earlier ones left in kv"
	}
	return "  the fuel of one question differs: by its nonce, which is another each time"
}

// micros returns a time in microseconds for people.
func micros(us float64) string { return quick(time.Duration(us * float64(time.Microsecond))) }

// bench asks a guard the questions, over and over, n times one after the other and n
// times on all processors.
func bench(ctx context.Context, module *host.Module, name string, asked []authortest.Answer, n int) (benchLine, error) {
	line := benchLine{N: n}
	var mu sync.Mutex
	last := int64(0)
	spent := func(r host.Receipt) {
		mu.Lock()
		defer mu.Unlock()
		last = r.Fuel
		if line.FuelMin == 0 || r.Fuel < line.FuelMin {
			line.FuelMin = r.Fuel
		}
		line.FuelMax = max(line.FuelMax, r.Fuel)
	}
	guards := map[string]flow.Guard{}
	for _, a := range asked {
		if guards[string(a.Settings)] != nil {
			continue
		}
		g, err := authortest.ModuleGuard(module, name, host.Limits{})(ctx, a.Settings, host.NewMemoryKV(nil), spent)
		if err != nil {
			return line, err
		}
		guards[string(a.Settings)] = g
	}
	line.FuelMin, line.FuelMax = 0, 0 // so far they were only installed
	judge := func(i int) {
		a := asked[i%len(asked)]
		flow.Ask(ctx, guards[string(a.Settings)], a.Question, authortest.GuardWall)
	}
	took := make([]float64, n)
	before, unequal := make([]int64, len(asked)), -1 // fuel of each question, and when it first differed
	for i := range n {
		start := time.Now()
		judge(i)
		took[i] = float64(time.Since(start).Nanoseconds()) / 1e3
		if of := &before[i%len(asked)]; i < len(asked) {
			*of = last
		} else if last != *of && unequal < 0 {
			unequal = i
		}
		if ctx.Err() != nil {
			return line, context.Cause(ctx)
		}
	}
	start := time.Now()
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				judge(i)
			}
		})
	}
	wg.Wait()
	line.PerSecond = int64(float64(n) / time.Since(start).Seconds())
	slices.Sort(took)
	line.P50US, line.P99US, line.WorstUS = percentile(took, 50), percentile(took, 99), took[n-1]
	if unequal < 0 {
		return line, nil
	}
	// A guard has no clock, and its randomness repeats: what can differ is what it finds in kv and
	// the nonce of the question, whose letters count where they are hashed, as in Rego.
	line.FuelCauses = []string{causeKV}
	a := asked[unequal%len(asked)]
	for i := range min(n, 10*unequal/len(asked)+20) {
		g, err := authortest.ModuleGuard(module, name, host.Limits{})(ctx, a.Settings, host.NewMemoryKV(nil), func(r host.Receipt) { last = r.Fuel })
		if err != nil {
			return line, err
		}
		flow.Ask(ctx, g, a.Question, authortest.GuardWall)
		if i > 0 && last != before[0] {
			line.FuelCauses = []string{causeNonce}
			break
		}
		before[0] = last
	}
	return line, nil
}
