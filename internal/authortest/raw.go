package authortest

import (
	"cmp"
	"context"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// raw lets the guest answer any bytes, and takes the answer for one to q.
func (c *closed) raw(ctx context.Context, input []byte, q abi.Question) string {
	kv := &rowKV{}
	kv.reset(nil)
	reply, err := c.module.Call(ctx, &host.Call{Kind: abi.KindGuard, Export: cmp.Or(c.guard.Export, abi.ExportCall), Input: input, Grants: c.grants,
		Limits: host.Limits{Wall: GuardWall}, Access: host.Access{KV: kv.Scope(host.KVScope{})}})
	if err != nil {
		return ""
	}
	v, err := abi.ParseVerdict(reply.Output, &q)
	return passed(flow.Judgement{Verdict: v, Err: err})
}
