package flow_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

func think(text string) []flowtest.Reply {
	return []flowtest.Reply{{Response: &session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{{Text: text, Thought: true}}}}}}
}

// Steps that are nothing but thoughts are counted in a row: a step that ends
// otherwise begins the count anew.
func TestThoughtsAreCountedAnew(t *testing.T) {
	var steps [][]flowtest.Reply
	for range 9 {
		steps = append(steps, think("hm"))
	}
	steps = append(steps, flowtest.Call(call("c", "tool", `{}`)))
	for range 9 {
		steps = append(steps, think("hm"))
	}
	w := newWorld(t, append(steps, flowtest.Say("answer"))...)
	w.agent.Tools = []flow.Tool{tool("tool")}
	if got := w.say("go").final(); got != "answer" {
		t.Errorf("%d requests, last %q", w.model.Requests(), got)
	}
}

// Calls that all defer their answers do not end the model's stream: what it says
// next is still of this step.
func TestDeferredCallReadsOn(t *testing.T) {
	reply := append(flowtest.Call(call("c", "later", `{}`)), flowtest.Say("you will hear from us")...)
	w := newWorld(t, reply)
	later := handler("later", func(*flow.ToolContext, json.RawMessage) (string, error) { return "", nil })
	later.Describe.Defers = true
	w.agent.Tools = []flow.Tool{later}
	o := w.say("go")
	if got := o.authors(); got != "agent(later) agent:you will hear from us" || w.model.Requests() != 1 {
		t.Errorf("%s in %d requests", got, w.model.Requests())
	}
}

// On-event hooks see partial events too; those are shown and never stored.
func TestPartialEvents(t *testing.T) {
	part := func(text string, partial bool) flowtest.Reply {
		return flowtest.Reply{Response: &session.Response{Partial: partial, Content: genai.NewContentFromText(text, genai.RoleModel)}}
	}
	w := newWorld(t, []flowtest.Reply{part("A", true), part("B", true), part("AB", false)})
	hooked := 0
	w.cfg.Hooks = []flow.Hooks{{OnEvent: func(*flow.CallbackContext, *session.Event) (*session.Event, error) {
		hooked++
		return nil, nil
	}}}
	in := flow.Text("go")
	in.Stream = true
	o := w.run(in)
	if stored := len(w.stored().Events); hooked != 3 || len(o.events) != 3 || stored != 2 {
		t.Errorf("%d hooked, %d yielded, %d stored; want 3, 3 and the message with the whole answer", hooked, len(o.events), stored)
	}
}

// A consumer that stops at the result of an approved call stops the run before the
// model is asked.
func TestConsumerStopsAtAnswer(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("p", "pay", `{}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay}
	question := w.say("pay").questions()[0]
	for ev, err := range w.runner().Run(t.Context(), home, answer(question.ID, `{"confirmed":true}`)) {
		if err != nil || len(ev.Responses()) != 1 || ev.Responses()[0].ID != "p" {
			t.Fatalf("first %s, %v; want the result of the call", toJSON(t, ev), err)
		}
		break
	}
	if w.model.Requests() != 1 {
		t.Errorf("%d requests, want only the one that asked for the call", w.model.Requests())
	}
}
