package policies_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A guard in a guest judges whatever may be said, however deep that may be, in the
// call and in every request and message that has it in its history.
func TestDepthOfQuestions(t *testing.T) {
	for _, phase := range []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult} {
		for n, reads := range map[int]string{63: okResponse, 64: okResponse, 65: `{"error":"args_invalid: document: nesting exceeds 64 at byte 68"}`} {
			t.Run(fmt.Sprint(phase, " ", n), func(t *testing.T) {
				nested := `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
				g := guard(t, abi.Guard{Phases: []abi.Phase{phase}}, hosttest.Guest{Good: allow(), Says: allow()}, patient)
				d := &desk{t: t, store: session.NewMemory(), audit: audit.NewMemory(), witness: &flowtest.Tool{Describe: flow.Spec{Name: "tool"}}}
				deep := &flowtest.Tool{Describe: flow.Spec{Name: "sibling"}, Do: func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
					return flow.Outcome{Result: []byte(nested)}, nil
				}}
				agent := &flow.Agent{Name: "agent", Tools: []flow.Tool{d.witness, deep}, Model: &flowtest.Model{Steps: [][]flowtest.Reply{
					flowtest.Call(call("c1", "tool", nested), call("c2", "sibling", `{}`)), flowtest.Say("done"), flowtest.Say("done")}}}
				runner, err := flow.NewRunner(agent, d.store, flow.Config{Guards: []flow.Guard{g}, Audit: d.audit, Limits: flow.Limits{Guard: time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.store.Create(t.Context(), home, nil); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					for ev, err := range runner.Run(t.Context(), home, flow.Text("go")) {
						if err != nil {
							t.Fatal(err)
						}
						d.events = append(d.events, ev)
					}
					if last := d.events[len(d.events)-1]; last.Text() != "done" {
						t.Errorf("the run ends with %s: %s", last.ErrorCode, last.ErrorMessage)
					}
				}
				want := map[bool]string{true: nested, false: `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`}[n <= abi.MaxDepth]
				if got := d.response("c1"); got != reads || d.response("c2") != want {
					t.Errorf("the model reads %s and %s, want %s and %s", got, d.response("c2"), reads, want)
				}
			})
		}
	}
}
