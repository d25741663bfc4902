package flow_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// One verdict is made of those of the members that count.
func TestVerdictOfAGroup(t *testing.T) {
	why := func(n int) (all []abi.Why) {
		for i := range n {
			all = append(all, abi.Why{Rule: fmt.Sprint("r", i)})
		}
		return all
	}
	confirm := func(code, hint string) abi.Verdict {
		return abi.Verdict{Ruling: abi.RulingConfirm, Code: code, Hint: hint}
	}
	for _, c := range []struct {
		name    string
		phase   abi.Phase
		grants  []string
		members []abi.Verdict // all count
		want    abi.Verdict   // but for nonce and digest
		err     string
	}{
		{"all allow", abi.PhaseCall, nil, []abi.Verdict{abi.Allow(), abi.Allow()}, abi.Allow(), ""},
		{"two ask", abi.PhaseCall, nil, []abi.Verdict{abi.Allow(), confirm("one", "first?"), confirm("two", "second?")}, confirm("one", "first? second?"), ""},
		{"two ask, one says what", abi.PhaseCall, nil, []abi.Verdict{confirm("one", ""), confirm("two", "second?")}, confirm("one", "second?"), ""},
		{"they hold back", abi.PhaseResponse, nil, []abi.Verdict{abi.AllowBut(3), abi.AllowBut(7), abi.Allow()}, abi.AllowBut(7), ""},
		{"they narrow", abi.PhaseCall, []string{"clock", "log"}, []abi.Verdict{abi.Narrow("log", "clock"), abi.Narrow("log")}, abi.Narrow("log"), ""},
		{"they narrow what cannot be read", abi.PhaseCall, []string{"no grant"}, []abi.Verdict{abi.Narrow("log")}, abi.Verdict{Ruling: abi.RulingNarrow}, ""},
		{"they say why", abi.PhaseCall, nil, []abi.Verdict{{Ruling: abi.RulingAllow, Why: why(2)}, {Ruling: abi.RulingAllow, Why: why(1)}},
			abi.Verdict{Ruling: abi.RulingAllow, Why: append(why(2), why(1)...)}, ""},
		{"they say too much", abi.PhaseCall, nil, []abi.Verdict{{Ruling: abi.RulingAllow, Why: why(abi.MaxWhy)}, {Ruling: abi.RulingAllow, Why: why(1)}},
			abi.Verdict{Ruling: abi.RulingAllow, Why: why(abi.MaxWhy)}, ""},
		{"one narrows, one asks", abi.PhaseCall, []string{"log"}, []abi.Verdict{abi.Narrow("log"), confirm("one", "sure?")}, confirm("one", "sure?"), "cannot narrow and ask"},
		{"all failed", abi.PhaseCall, nil, []abi.Verdict{{}, {}}, abi.Verdict{}, "member a: verdict: "},
		{"one failed, one denies", abi.PhaseCall, nil, []abi.Verdict{{}, abi.Deny("no", "not so")}, abi.Deny("no", "not so"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &flow.Group{Label: "group", AtLeast: len(c.members)}
			for i, v := range c.members {
				g.Guards = append(g.Guards, &flowtest.Guard{Label: string(rune('a' + i)), In: []abi.Phase{c.phase}, Answer: flowtest.Always(v)})
			}
			q := abi.Question{Phase: c.phase, Nonce: "n", Grants: c.grants, Call: &abi.CallFacts{Tool: "tool"}}
			q.SetDocument(json.RawMessage("{}"))
			v, err := g.Judge(t.Context(), &q)
			if (err != nil) != (c.err != "") || err != nil && !contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if want := flowtest.Echo(&q, c.want); toJSON(t, v) != toJSON(t, want) {
				t.Errorf("verdict %s, want %s", toJSON(t, v), toJSON(t, want))
			}
			w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
			w.agent.Tools, w.cfg.Guards = []flow.Tool{tool("tool")}, []flow.Guard{g}
			if got, _ := finished(w); c.name == "all failed" && !contains(fmt.Sprint(got["c1"].Err), "guard group: member a: verdict: ") {
				t.Errorf("the operator reads %v", got["c1"].Err)
			}
		})
	}
}
