package flow_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

// Calls that change nothing leave nothing in their event but their results, and of
// those that ask all are in it.
func TestActionsOfAStep(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", ""), call("c2", "tool", "")), flowtest.Call(call("c3", "ask", ""), call("c4", "ask", "")))
	asks := tool("ask")
	asks.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{tool("tool"), asks}
	o := w.say("go")
	if a := o.events[1].Actions; len(o.events[1].Responses()) != 2 || !reflect.DeepEqual(a, session.Actions{}) {
		t.Errorf("%s: actions %+v", toJSON(t, o.events[1]), a)
	}
	if a := o.events[3].Actions.RequestedConfirmations; len(a) != 2 || a["c3"].Hint == "" || a["c4"].Hint == "" || len(o.questions()) != 2 {
		t.Errorf("asked %+v, %d questions", a, len(o.questions()))
	}
}

// A result of one member is shown as the text under result, or as what it is.
func TestResultOfOneMember(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", "")))
	sum := handler("tool", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		return `{"sum":4}`, ctx.SkipSummarization()
	})
	sum.Describe.ShowResult = true
	w.agent.Tools = []flow.Tool{sum}
	if got := w.say("go").final(); got != `{"sum":4}` {
		t.Errorf("shown %q", got)
	}
}

// Observers hear of each question that is asked, and of none that could not be stored.
func TestObserverHearsOfQuestions(t *testing.T) {
	for _, down := range []error{nil, errors.New("disk full")} {
		w := newWorld(t, flowtest.Call(call("c1", "ask", `{"n":1}`)))
		asks := tool("ask")
		asks.Describe.Confirm = true
		w.agent.Tools = []flow.Tool{asks}
		w.store = failingStore{Store: w.store, ask: down}
		var heard []session.Question
		w.cfg.Observer.Asked = func(q session.Question) { heard = append(heard, q) }
		w.say("go")
		if stored, err := w.store.Questions(t.Context(), home); err != nil || len(heard) != len(stored) || (len(heard) == 1) != (down == nil) || len(heard) == 1 && toJSON(t, heard) != toJSON(t, stored) {
			t.Errorf("the store fails with %v: heard %s, stored %s, %v", down, toJSON(t, heard), toJSON(t, stored), err)
		}
	}
}

// A person who is asked by a hook sees the arguments as the hook left them; where those
// of the model cannot be said, these are also what was given.
func TestArgumentsOfAQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		model any
		hooks bool // a hook asks, and not the tool
		given string
	}{
		"a hook asks":                        {json.Number("1"), true, `{"n":1}`},
		"a hook asks, the model's are bad":   {math.NaN(), true, `{"n":2}`},
		"the tool asks":                      {json.Number("1"), false, `{"n":1}`},
		"the tool asks, the model's are bad": {math.NaN(), false, `{"n":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "pay", `{"n":1}`)))
			w.model.Steps[0][0].Response.Content.Parts[0].FunctionCall.Args["n"] = c.model
			pay := tool("pay")
			pay.Describe.Confirm = !c.hooks
			w.agent.Tools = []flow.Tool{pay}
			w.agent.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
				call.Args["n"] = json.Number("2")
				if c.hooks {
					return map[string]any{"status": "waiting"}, ctx.RequestConfirmation("sure?", nil)
				}
				return nil, nil
			}}}
			w.say("go")
			qs, err := w.store.Questions(t.Context(), home)
			if err != nil || len(qs) != 1 || string(qs[0].Args) != `{"n":2}` || string(qs[0].Given) != c.given {
				t.Errorf("questions %s, %v, want given %s", toJSON(t, qs), err, c.given)
			}
			if len(pay.Calls()) != 0 {
				t.Errorf("ran %q", pay.Calls())
			}
		})
	}
}
