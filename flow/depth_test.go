package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// nested is an object that nests n deep.
func nested(n int) string {
	return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
}

// What a model, a tool, a guard or a hook says may be 64 deep, whoever looks at it on
// its way and whatever comes of it in later steps, and not deeper.
func TestDepth(t *testing.T) {
	every := []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult}
	const (
		badArgs   = "args_invalid: document: nesting exceeds 64 at byte "
		badResult = "guest_output_invalid: the tool gave an answer that cannot be used"
	)
	for name, c := range map[string]struct {
		args, result func(n int) string
		guard        func(q *abi.Question, n int) *abi.Verdict
		hooks        func(n int) flow.Hooks
		reads        string // what the model reads of too much
	}{
		"arguments": {args: nested, reads: badArgs},
		"result":    {result: nested, reads: badResult},
		"list":      {result: func(n int) string { return strings.Repeat("[", n-1) + strings.Repeat("]", n-1) }, reads: badResult},
		"arguments of a guard": {reads: unavailable, guard: func(q *abi.Question, n int) *abi.Verdict {
			if q.Phase != abi.PhaseCall {
				return nil
			}
			v := abi.Rewrite(json.RawMessage(nested(n)))
			return &v
		}},
		"result of a guard": {reads: unavailable, guard: func(q *abi.Question, n int) *abi.Verdict {
			if q.Phase != abi.PhaseResult {
				return nil
			}
			v := abi.Rewrite(json.RawMessage(nested(n)))
			return &v
		}},
		"arguments of a hook": {reads: badArgs, hooks: func(n int) flow.Hooks {
			return flow.Hooks{BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
				c.Args = call("x", "x", nested(n)).Args
				return nil, nil
			}}
		}},
		"result of a hook": {reads: badResult, hooks: func(n int) flow.Hooks {
			return flow.Hooks{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
				return call("x", "x", nested(n)).Args, nil
			}}
		}},
		"state": {reads: `state "deep": document: nesting exceeds 64 at byte `, hooks: func(n int) flow.Hooks {
			return flow.Hooks{BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
				return nil, ctx.SetState(map[string]any{"deep": call("x", "x", nested(n)).Args})
			}}
		}},
	} {
		for _, guarded := range []bool{false, true} {
			for _, n := range []int{63, 64, 65} {
				t.Run(fmt.Sprint(name, " ", n, " ", guarded), func(t *testing.T) {
					args, result := `{}`, okResponse
					if c.args != nil {
						args = c.args(n)
					}
					if c.result != nil {
						result = c.result(n)
					}
					w := newWorld(t, flowtest.Call(call("c1", "tool", args)))
					w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return result, nil })}
					if c.hooks != nil {
						w.agent.Hooks = []flow.Hooks{c.hooks(n)}
					}
					if guarded || c.guard != nil {
						w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: every, Rewrite: every, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
							if data, err := abi.Marshal(q); err != nil || len(data) == 0 {
								return abi.Verdict{}, fmt.Errorf("the question is no document: %w", err)
							}
							v := abi.Allow()
							if c.guard != nil {
								if other := c.guard(q, n); other != nil {
									v = *other
								}
							}
							return flowtest.Echo(q, v), nil
						}}}
					}
					o := w.say("go")
					got := o.errorOf("c1")
					if n <= abi.MaxDepth && got != "" || n > abi.MaxDepth && !strings.HasPrefix(got, c.reads) {
						t.Errorf("the model reads %q of the call, want an error: %t (%s)", got, n > abi.MaxDepth, c.reads)
					}
					if o.final() != "done" || w.say("and now?").final() != "done" {
						t.Errorf("the run ends with %s", o.authors())
					}
				})
			}
		}
	}
}

// A payload, with an answer or with a decision, and a message's state are bounded, too.
func TestDepthOfPeople(t *testing.T) {
	for _, n := range []int{64, 65} {
		w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)), flowtest.Call(call("c2", "tool", `{}`)))
		w.agent.Tools = []flow.Tool{&flowtest.Tool{Describe: flow.Spec{Name: "tool", Confirm: true}}}
		asked := append(w.say("go").questions(), w.say("go").questions()...)
		o := w.run(answer(asked[0].ID, `{"confirmed":true,"payload":`+nested(n)+`}`))
		if failed := len(o.errs) > 0; failed != (n > 64) || failed && !strings.Contains(o.errs[0].Error(), "nesting exceeds 64") {
			t.Errorf("answer, %d deep: %v", n, o.errs)
		}
		questions, err := w.store.Questions(t.Context(), home)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.runner().Decide(t.Context(), home, asked[1].ID, session.Decision{Approve: true, By: "bo", Via: "desk", ArgsSHA256: questions[1].ArgsSHA256, Payload: json.RawMessage(nested(n))})
		if (err != nil) != (n > 64) || err != nil && (!strings.Contains(err.Error(), "nesting exceeds 64") || errors.As(err, new(*flow.DecisionError))) {
			t.Errorf("decision, %d deep: %v", n, err)
		}
		in := flow.Text("state")
		in.StateDelta = map[string]any{"deep": call("x", "x", nested(n)).Args}
		if o := w.run(in); (len(o.errs) > 0) != (n > 64) {
			t.Errorf("state, %d deep: %v", n, o.errs)
		}
	}
}

// A model may say what no document can hold. Its call reads args_invalid, and nobody
// who looks at requests later stumbles over it: neither guards nor hooks.
func TestArgumentsThatNoDocumentHolds(t *testing.T) {
	deeper := func(n int) (v any) {
		for range n {
			v = []any{v}
		}
		return v
	}
	for name, value := range map[string]any{
		"a number out of range": json.Number("1e400"), "no number": math.NaN(), "an infinite one": []any{map[string]any{"x": math.Inf(1)}},
		"no digits": json.Number("x"), "too deep": deeper(64), "deeper than any document": deeper(200),
	} {
		t.Run(name, func(t *testing.T) {
			bad := call("c1", "tool", `{}`)
			bad.Args = map[string]any{"v": value}
			w := newWorld(t, flowtest.Call(bad, call("c2", "tool", `{"v":1}`)))
			witness := tool("tool")
			w.agent.Tools = []flow.Tool{witness}
			var asked []string
			w.model.OnRequest = func(req *flow.Request, _ bool) {
				doc, err := req.Document()
				if err != nil {
					t.Errorf("a hook cannot read the request: %v", err)
				}
				asked = append(asked, string(doc))
			}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseRequest, abi.PhaseCall, abi.PhaseResult}}}
			o := w.say("go")
			if got := o.errorOf("c1"); !strings.HasPrefix(got, "args_invalid: ") || o.response("c2") != okResponse || len(witness.Calls()) != 1 {
				t.Errorf("the model reads %q and %s", got, o.response("c2"))
			}
			if o.final() != "done" || w.say("and now?").final() != "done" {
				t.Errorf("the run ends with %s", o.authors())
			}
			if len(asked) != 3 || !strings.Contains(asked[2], `{"functionCall":{"id":"c1","name":"tool"}},{"functionCall":{"args":{"v":1},"id":"c2","name":"tool"}}`) {
				t.Errorf("the model is asked %s", asked)
			}
		})
	}
}

// The same holds for what a client says of a long-running call.
func TestResultThatNoDocumentHolds(t *testing.T) {
	for name, value := range map[string]any{"a number out of range": json.Number("1e400"), "too deep": call("x", "x", nested(64)).Args, "fits": call("x", "x", nested(63)).Args} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			w.agent.Tools = []flow.Tool{&flowtest.Tool{Describe: flow.Spec{Name: "tool", LongRunning: true}, Do: func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
				return flow.Outcome{}, nil
			}}}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseRequest}}}
			var asked string
			w.model.OnRequest = func(req *flow.Request, _ bool) { asked = toJSON(t, req.Contents) }
			w.say("go")
			o := w.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "tool", Response: map[string]any{"v": value}}}}}})
			if len(o.errs) > 0 || o.final() != "done" {
				t.Errorf("the run ends with %s, errors %v", o.authors(), o.errs)
			}
			if bad := strings.Contains(asked, `"response":{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`); bad != (name != "fits") {
				t.Errorf("the model is asked %s", asked)
			}
		})
	}
}
