package plugins_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// nested is an object that nests n deep.
func nested(n int) string {
	return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
}

// A guest gets arguments and gives results as deep as the contract says, and what is
// deeper is told apart: the model's mistake or the guest's.
func TestDepthOfGuests(t *testing.T) {
	for _, n := range []int{63, 64, 65} {
		fits := n <= abi.MaxDepth
		made := call("c1", "tool", nested(n))
		for raw := range 2 {
			t.Run(fmt.Sprint("arguments ", n, " raw ", raw), func(t *testing.T) {
				manifest := hosttest.Manifest("tool")
				manifest.Tools[0].Raw = raw == 1
				z := newZoo(t, manifest, plugins.Config{}, map[string]hosttest.Guest{"tool": {Says: says(map[bool]string{true: `{"ok":true}`, false: `{"format":1,"result":{"ok":true}}`}[raw == 1])}})
				events := z.calls(made)
				if got := response(t, events, "c1"); fits && got != `{"ok":true}` || !fits && !strings.HasPrefix(got, `{"error":"args_invalid: document: nesting exceeds `) {
					t.Errorf("the model reads %s", got)
				}
				if end := z.ended["c1"]; (end.Code == abi.OK) != fits || !fits && end.Code != abi.ArgsInvalid || end.Ran != fits {
					t.Errorf("the operator reads %s, ran %t", end.Code, end.Ran)
				}
			})
			t.Run(fmt.Sprint("result ", n, " raw ", raw), func(t *testing.T) {
				manifest := hosttest.Manifest("tool")
				manifest.Tools[0].Raw = raw == 1
				text := nested(n)
				if raw == 0 {
					text = `{"format":1,"result":` + text + `}`
				}
				z := newZoo(t, manifest, plugins.Config{}, map[string]hosttest.Guest{"tool": {Says: says(text)}})
				got := response(t, z.calls(call("c1", "tool", "{}")), "c1")
				calls, err := z.store.Calls(t.Context(), home)
				if want := map[bool]abi.Code{true: abi.OK, false: abi.GuestOutputInvalid}[fits]; err != nil || len(calls) != 1 || calls[0].Code != string(want) || z.ended["c1"].Code != want {
					t.Errorf("stored %+v (%v), the operator reads %s, want %s", calls, err, z.ended["c1"].Code, want)
				}
				if want := map[bool]string{true: nested(n), false: errorText(invalidAnswer)}[fits]; got != want {
					t.Errorf("the model reads %s, want %s", got, want)
				}
			})
		}
		for _, point := range []abi.HookPoint{abi.OnUserMessage, abi.BeforeModel, abi.AfterModel, abi.BeforeTool, abi.AfterTool, abi.OnToolError, abi.OnEvent} {
			t.Run(fmt.Sprint("past ", point, " ", n), func(t *testing.T) {
				z, witness := hooked(t, point, hosttest.Guest{Says: says(`{"format":1}`)}, plugins.Config{})
				z.model = &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Call(made), flowtest.Say("done")}}
				events := z.calls()
				if got := response(t, events, "c1"); fits && got != `{"ok":true}` || !fits && !strings.HasPrefix(got, `{"error":"args_invalid: document: nesting exceeds 64`) {
					t.Errorf("the model reads %s", got)
				}
				if events[len(events)-1].Text() != "done" || (len(witness.Calls()) == 1) != fits {
					t.Errorf("%d calls ran, the run ends with %s", len(witness.Calls()), toJSON(t, events[len(events)-1]))
				}
			})
		}
	}
}
