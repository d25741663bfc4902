package hostile

import (
	"cmp"
	"context"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// An ungated guard is one that its gates refuse: it shows that the dispatcher would
// deny without them, too.
type ungated struct {
	module *host.Module
	limits host.Limits
}

func (g *ungated) def() abi.Guard { return g.module.Manifest().Guards[0] }

func (g *ungated) Name() string         { return g.def().Name }
func (g *ungated) Version() string      { return g.module.Digest().String() }
func (g *ungated) Phases() []abi.Phase  { return g.def().Phases }
func (g *ungated) Mutates() []abi.Phase { return g.def().Mutates }

func (g *ungated) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	asked := *q
	asked.Guard = g.Name()
	input, err := abi.Marshal(&asked)
	if err != nil {
		return abi.Verdict{}, err
	}
	reply, err := g.module.Call(ctx, &host.Call{Kind: abi.KindGuard, Export: cmp.Or(g.def().Export, abi.ExportCall), Input: input, Limits: g.limits})
	if err != nil {
		return abi.Verdict{}, err
	}
	return abi.ParseVerdict(reply.Output, &asked)
}
