package conformance

import (
	"context"
	"errors"
	"fmt"
)

// A Verdict says how a vector did.
type Verdict string

// The verdicts.
const (
	Passed   Verdict = "passed"
	Failed   Verdict = "failed"
	Deviates Verdict = "deviates" // shows the behaviour that DEVIATIONS.md lists instead of the recorded one
)

// A Result is how one vector did.
type Result struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Difference is the first difference, or why the vector could not run.
	Difference string `json:"difference,omitempty"`
	// Ran counts the calls of handlers and hooks; Effects are what they asked of
	// their host. Served counts the calls that reached an MCP server instead.
	Ran     int      `json:"ran"`
	Served  int      `json:"served,omitempty"`
	Effects []Effect `json:"effects,omitempty"`
}

// Check runs one vector.
func Check(ctx context.Context, v *Vector, handlers Handlers) Result {
	r := Result{Name: v.Name, Verdict: Failed}
	rec := &recorder{}
	got, err := contained(func() (map[string]any, error) { return observe(ctx, v, handlers, rec) })
	r.Ran, r.Served, r.Effects = rec.ran(), rec.served, rec.effects
	if err != nil {
		r.Difference = err.Error()
		return r
	}
	expect := v.Expect
	deviation := deviations[v.Name]
	if deviation != nil {
		expect = generic(v.Expect).(map[string]any)
		if err := deviation(expect); err != nil {
			r.Difference = err.Error()
			return r
		}
	}
	if r.Difference = compare(v, expect, got); r.Difference == "" {
		r.Verdict = Passed
		if deviation != nil {
			r.Verdict = Deviates
		}
	}
	return r
}

func contained(f func() (map[string]any, error)) (out map[string]any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", p))
		}
	}()
	return f()
}
