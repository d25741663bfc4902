package policies

import (
	"context"
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Func returns a guard that is a Go function. The echo of nonce and digest is
// filled in; everything else of the verdict is the function's. A panic or a late
// answer denies, as for a guest. A guard without a name, a function or a phase
// is a mistake of the program, and panics.
//
// The version of the guard is its name: an approval given before a change of
// the function stays valid after it, unless the name changes too.
func Func(name string, judge func(ctx context.Context, q *abi.Question) abi.Verdict, phases ...abi.Phase) flow.Guard {
	if name == "" || judge == nil || len(phases) == 0 {
		panic(fmt.Sprintf("policies: guard %q: needs a name, a function and a phase", name))
	}
	for _, p := range phases {
		if !abi.ValidPhase(p) {
			panic(fmt.Sprintf("policies: guard %q: %q is no phase", name, p))
		}
	}
	return &funcGuard{name: name, judge: judge, phases: slices.Clone(phases)}
}

type funcGuard struct {
	name   string
	judge  func(context.Context, *abi.Question) abi.Verdict
	phases []abi.Phase
}

func (g *funcGuard) Name() string         { return g.name }
func (g *funcGuard) Version() string      { return "go:" + g.name }
func (g *funcGuard) Phases() []abi.Phase  { return g.phases }
func (g *funcGuard) Mutates() []abi.Phase { return nil }

func (g *funcGuard) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	v := g.judge(ctx, q)
	v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
	return v, nil
}
