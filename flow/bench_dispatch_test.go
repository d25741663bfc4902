package flow

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// BenchmarkDispatch times one call of a tool that does nothing, from the model's
// call to the merged response, with store and audit in memory.
func BenchmarkDispatch(b *testing.B) {
	b.Run("no guard", func(b *testing.B) { benchDispatch(b) })
	b.Run("two guards", func(b *testing.B) { benchDispatch(b, quietGuard("a"), quietGuard("b")) })
}

func benchDispatch(b *testing.B, guards ...Guard) {
	tool := quietTool{&Spec{Name: "tool"}}
	store, log := session.NewMemory(), &latest{}
	r, err := NewRunner(&Agent{Name: "agent", Tools: []Tool{tool}}, store, Config{Guards: guards, Audit: log})
	if err != nil {
		b.Fatal(err)
	}
	key := session.Key{App: "a", User: "u", ID: "s"}
	table := &toolTable{}
	if _, err := table.add(tool, ""); err != nil {
		b.Fatal(err)
	}
	var s *step
	n := 0
	renew := func() { // so that neither the session nor the log grows for ever
		if s != nil {
			if err := store.Delete(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
		sess, err := store.Create(b.Context(), key, nil)
		if err != nil {
			b.Fatal(err)
		}
		log.Memory = audit.NewMemory()
		s = &step{agentRun: &agentRun{place: place{run: r.newRun(key, sess, Text("go"))}, agent: r.tree.root}, number: 1}
	}
	b.ReportAllocs()
	for b.Loop() {
		if n%1000 == 0 {
			renew()
		}
		n++
		s.calls = 0
		call := &genai.FunctionCall{ID: strconv.Itoa(n), Name: "tool", Args: map[string]any{"n": json.Number("1")}}
		if got := s.dispatch(b.Context(), table, []*genai.FunctionCall{call}, nil); got.event.Responses()[0].Response["error"] != nil {
			b.Fatal(got.event.Responses()[0].Response)
		}
	}
}

// latest is a log that is thrown away now and then.
type latest struct{ *audit.Memory }

type quietTool struct{ spec *Spec }

func (t quietTool) Spec() *Spec { return t.spec }

func (t quietTool) Run(*ToolContext, Permit) (Outcome, error) {
	return Outcome{Result: json.RawMessage(`{}`)}, nil
}

type quietGuard string

func (g quietGuard) Name() string         { return string(g) }
func (g quietGuard) Version() string      { return "1" }
func (g quietGuard) Phases() []abi.Phase  { return []abi.Phase{abi.PhaseCall, abi.PhaseResult} }
func (g quietGuard) Mutates() []abi.Phase { return nil }

func (g quietGuard) Judge(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	v := abi.Allow()
	v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
	return v, nil
}
