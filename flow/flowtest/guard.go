package flowtest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Guard judges as it is told to and remembers what it was asked. It is safe
// for concurrent use.
type Guard struct {
	Label   string      // its name
	Edition string      // its version; default "1"
	In      []abi.Phase // default [abi.PhaseCall]
	Rewrite []abi.Phase // in which it mutates
	// Answer, if set, is the judgement, down to nonce and digest; see [Echo]. Else
	// everything is allowed.
	Answer func(ctx context.Context, q *abi.Question) (abi.Verdict, error)

	mu    sync.Mutex
	asked []abi.Question
}

// Name implements [flow.Guard].
func (g *Guard) Name() string { return g.Label }

// Version implements [flow.Guard].
func (g *Guard) Version() string { return cmp.Or(g.Edition, "1") }

// Phases implements [flow.Guard].
func (g *Guard) Phases() []abi.Phase {
	if len(g.In) == 0 {
		return []abi.Phase{abi.PhaseCall}
	}
	return g.In
}

// Mutates implements [flow.Guard].
func (g *Guard) Mutates() []abi.Phase { return g.Rewrite }

// Judge implements [flow.Guard].
func (g *Guard) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	g.mu.Lock()
	g.asked = append(g.asked, *q)
	g.mu.Unlock()
	if g.Answer == nil {
		return Echo(q, abi.Allow()), nil
	}
	return g.Answer(ctx, q)
}

// Asked returns the questions so far, in the order they came.
func (g *Guard) Asked() []abi.Question {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked)
}

// Echo returns the verdict as an answer to q.
func Echo(q *abi.Question, v abi.Verdict) abi.Verdict {
	v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
	return v
}

// Always returns a judgement that is the same whatever is asked.
func Always(v abi.Verdict) func(context.Context, *abi.Question) (abi.Verdict, error) {
	return func(_ context.Context, q *abi.Question) (abi.Verdict, error) { return Echo(q, v), nil }
}
