package policies_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func allowAll(context.Context, *abi.Question) abi.Verdict { return abi.Allow() }

// onlyTool asks a guard about calls of "tool" alone.
type onlyTool struct{ flow.Guard }

func (g onlyTool) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	if q.Call.Tool != "tool" {
		v := abi.Allow()
		v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
		return v, nil
	}
	return g.Guard.Judge(ctx, q)
}

// sees is a guard on results that notes what a call of "tool" was granted.
type sees struct{ grants *[]string }

func (sees) Name() string         { return "sees" }
func (sees) Version() string      { return "1" }
func (sees) Phases() []abi.Phase  { return []abi.Phase{abi.PhaseResult} }
func (sees) Mutates() []abi.Phase { return nil }

func (s sees) Judge(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	if q.Call.Tool == "tool" {
		*s.grants = q.Grants
	}
	v := abi.Allow()
	v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
	return v, nil
}

// Go functions are guards like any other: what is no verdict denies.
func TestFunc(t *testing.T) {
	for _, c := range []struct {
		name  string
		judge func(context.Context, *abi.Question) abi.Verdict
		phase abi.Phase
		want  string
	}{
		{"allows", allowAll, abi.PhaseCall, okResponse},
		{"denies", func(context.Context, *abi.Question) abi.Verdict { return abi.Deny("no", "no") }, abi.PhaseCall, `{"error":"policy_denied: no"}`},
		{"denies a result", func(context.Context, *abi.Question) abi.Verdict { return abi.Deny("no", "no") }, abi.PhaseResult, `{"error":"policy_denied: no"}`},
		{"gives the zero verdict", func(context.Context, *abi.Question) abi.Verdict { return abi.Verdict{} }, abi.PhaseCall, unavailable},
		{"panics", func(context.Context, *abi.Question) abi.Verdict { panic("x") }, abi.PhaseCall, unavailable},
		{"rewrites", func(context.Context, *abi.Question) abi.Verdict { return abi.Rewrite([]byte(`{}`)) }, abi.PhaseCall, unavailable},
		{"says too much", func(context.Context, *abi.Question) abi.Verdict { return abi.Deny("no", strings.Repeat("é", 1000)) }, abi.PhaseCall,
			`{"error":"policy_denied: ` + strings.Repeat("é", abi.MaxReasonChars) + `"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := run(t, flow.Spec{}, onlyTool{policies.Func("f", c.judge, c.phase)})
			if got := d.response("c1"); got != c.want {
				t.Errorf("the model reads %s, want %s", got, c.want)
			}
			ran := 0
			if c.want == okResponse || c.phase == abi.PhaseResult {
				ran = 1
			}
			if got := len(d.witness.Calls()); got != ran {
				t.Errorf("the handler ran %d times, want %d", got, ran)
			}
		})
	}
	for name, make := range map[string]func(){
		"no name":       func() { policies.Func("", allowAll, abi.PhaseCall) },
		"no function":   func() { policies.Func("f", nil, abi.PhaseCall) },
		"no phase":      func() { policies.Func("f", allowAll) },
		"unknown phase": func() { policies.Func("f", allowAll, "later") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			make()
		})
	}
}
