package flowtest

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/sandboxd/sandboxd/flow"
)

// A Tool is a handler that does what it is told to and remembers that it was
// called. It is safe for concurrent use.
type Tool struct {
	Describe flow.Spec
	// Do, if set, handles calls; else the answer is {"ok":true}.
	Do func(ctx *flow.ToolContext, permit flow.Permit) (flow.Outcome, error)

	mu    sync.Mutex
	calls []string
}

// Spec implements [flow.Tool].
func (t *Tool) Spec() *flow.Spec { return &t.Describe }

// Run implements [flow.Handler].
func (t *Tool) Run(ctx *flow.ToolContext, permit flow.Permit) (flow.Outcome, error) {
	t.mu.Lock()
	t.calls = append(t.calls, string(permit.Args()))
	t.mu.Unlock()
	if t.Do == nil {
		return flow.Outcome{Result: json.RawMessage(`{"ok":true}`)}, nil
	}
	return t.Do(ctx, permit)
}

// Calls returns the arguments of all calls so far, in the order they began.
func (t *Tool) Calls() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}
