package flow_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

// A line is an event of a history: its author, then parts separated by blanks.
// "c:1" is a call with id 1, "r:1=x" a response with the value x, "!" a call that
// is long running, ":" stands for no parts, and everything else is a text with '_'
// for blanks. In "author/scope" and "author@branch" the rest is what it says.
type line string

func (l line) event(n int) *session.Event {
	who, what, _ := strings.Cut(string(l), " ")
	ev := &session.Event{ID: fmt.Sprint("e", n), InvocationID: "run"}
	who, ev.IsolationScope, _ = strings.Cut(who, "/")
	ev.Author, ev.Branch, _ = strings.Cut(who, "@")
	switch ev.Author {
	case "in":
		ev.Author, ev.InputTranscription = "user", &genai.Transcription{Text: what}
		return ev
	case "out":
		ev.Author, ev.OutputTranscription = "agent", &genai.Transcription{Text: what}
		return ev
	}
	c := &genai.Content{Role: genai.RoleModel}
	if ev.Author == "user" || strings.HasPrefix(what, "r:") {
		c.Role = genai.RoleUser
	}
	for _, word := range strings.Fields(what) {
		kind, id, isPart := strings.Cut(word, ":")
		id, value, _ := strings.Cut(id, "=")
		switch {
		case word == ":":
			c.Parts = append(c.Parts, &genai.Part{}, nil)
		case isPart && (kind == "c" || kind == "c!"):
			c.Parts = append(c.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "f" + value}})
			if kind == "c!" {
				ev.LongRunningToolIDs = append(ev.LongRunningToolIDs, id)
			}
		case isPart && kind == "ask":
			c.Parts = append(c.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "adk_request_confirmation"}})
		case isPart && kind == "told":
			c.Parts = append(c.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "adk_request_confirmation"}})
		case isPart && kind == "r":
			c.Parts = append(c.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "f", Response: map[string]any{"v": value}}})
		default:
			c.Parts = append(c.Parts, genai.NewPartFromText(strings.ReplaceAll(word, "_", " ")))
		}
	}
	ev.Content = c
	return ev
}

// shown writes what a model is sent in the same form.
func shown(contents []*genai.Content) []string {
	var out []string
	for _, c := range contents {
		words := []string{c.Role}
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				words = append(words, "c:"+p.FunctionCall.ID)
			case p.FunctionResponse != nil:
				words = append(words, fmt.Sprintf("r:%s=%v", p.FunctionResponse.ID, p.FunctionResponse.Response["v"]))
			default:
				words = append(words, strings.ReplaceAll(p.Text, " ", "_"))
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

const nudge = "user Continue_processing_previous_requests_as_instructed._Exit_or_provide_a_summary_if_no_more_outputs_are_needed."

func TestContents(t *testing.T) {
	for _, c := range []struct {
		name    string
		history []line
		include flow.IncludeContents
		want    []string
		fails   string
	}{
		// The examples of the reference, in its order.
		{name: "a late answer goes to the end", history: []line{"agent c!:1", "agent r:1=pending", "user hi", "agent c:2", "agent r:2=x", "user r:1=final"},
			want: []string{"model c:2", "user r:2=x", "model c:1", "user r:1=final"}},
		{name: "an answer to two events", history: []line{"agent c:1 c:2", "agent r:2=a", "agent c:3", "agent r:1=b r:3=c"},
			want: []string{"model c:1 c:2", "user r:2=a r:1=b r:3=c", "model c:3", "user r:1=b r:3=c"}},
		{name: "an orphan", history: []line{"user hi", "user r:9=x"}, want: []string{"user hi"}},
		{name: "an answer to another scope", history: []line{"user hi", "agent/X c:1", "user r:1=x"},
			fails: "no function call event found for function responses ids: [1]"},
		{name: "an orphan beside a note", history: []line{"user r:9=x note"}, want: []string{"user note"}},
		{name: "the model spoke last", history: []line{"user hi", "agent hello"}, want: []string{"user hi", "model hello", nudge}},

		{name: "nothing", want: nil},
		{name: "calls and answers apart", history: []line{"user hi", "agent c:1", "agent c:2", "agent r:2=b", "agent r:1=a", "user go_on"},
			want: []string{"user hi", "model c:1", "user r:1=a", "model c:2", "user r:2=b", "user go_on"}},
		{name: "the later answer counts", history: []line{"agent c!:1", "agent r:1=pending", "user r:1=final", "user thanks"},
			want: []string{"model c:1", "user r:1=final", "user thanks"}},
		{name: "between a call and its late answer only remnants of orphans stay", history: []line{"agent c!:1", "agent r:1=pending", "user r:9=x note", "user lost", "user r:1=final"},
			want: []string{"user note", "model c:1", "user r:1=final"}},
		{name: "empty parts", history: []line{"user :", "user hi", "agent :", "user on"}, want: []string{"user hi", "user on"}},
		{name: "ids of our own are not sent", history: []line{"agent c:adk-1 c:own", "agent r:adk-1=a r:own=b"}, want: []string{"model c: c:own", "user r:=a r:own=b"}},
		{name: "questions to people", history: []line{"user hi", "agent c:1", "agent r:1=wait", "agent ask:q", "user told:q", "agent r:1=done"},
			want: []string{"user hi", "model c:1", "user r:1=done"}},
		{name: "another agent", history: []line{"user hi", "other hello c:1", "other r:1=x", "user on"},
			want: []string{"user hi", "user For_context: [other]_said:_hello [other]_called_tool_`f`_with_parameters:_null", "user For_context: [other]_`f`_tool_returned_result:_{\"v\":\"x\"}", "user on"}},
		{name: "transcriptions", history: []line{"in what ", "in time?", "out it ", "out is ", "out noon", "in thanks"},
			want: []string{"user what_time?", "model it_is_noon", "user thanks"}},
		{name: "another branch, or none above", history: []line{"agent@a.b one", "user@ two", "agent@c three", "user four"},
			want: []string{"model one", "user two", "model three", "user four"}},
		{name: "another scope", history: []line{"user one", "agent/X two", "user/X three", "user four"}, want: []string{"user one", "user four"}},
		{name: "this turn only", include: flow.IncludeNone, history: []line{"user old", "agent older", "user new", "agent c:1", "agent r:1=x"},
			want: []string{"user new", "model c:1", "user r:1=x"}},
		{name: "this turn began with another agent", include: flow.IncludeNone, history: []line{"user old", "other said", "agent c:1", "agent r:1=x"},
			want: []string{"user For_context: [other]_said:_said", "model c:1", "user r:1=x"}},
		{name: "this turn answers a call that is not shown", include: flow.IncludeNone, history: []line{"agent c:1", "user r:1=x"}, want: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.agent.IncludeContents = c.include
			for i, l := range c.history {
				if err := w.store.Append(context.Background(), home, l.event(i)); err != nil {
					t.Fatal(err)
				}
			}
			before := toJSON(t, w.stored().Events)
			var got []string
			w.model.OnRequest = func(req *flow.Request, _ bool) { got = shown(req.Contents) }
			o := w.run(flow.Input{})
			var failed string
			if len(o.errs) > 0 {
				failed = o.errs[0].Error()
			}
			if failed != c.fails || !slices.Equal(got, c.want) {
				t.Errorf("history %q:\n got %q, error %q\nwant %q, error %q", c.history, got, failed, c.want, c.fails)
			}
			if n := len(c.history); toJSON(t, w.stored().Events[:n]) != before {
				t.Error("the history was changed")
			}
		})
	}
}

// Arguments that a hook rewrote are what the model is shown in the same run; the
// stored event keeps what the model said.
func TestRewrittenArgumentsAreShown(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.agent.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
		c.Args["n"] = 2
		return nil, nil
	}}}
	var requests []string
	w.model.OnRequest = func(req *flow.Request, _ bool) { requests = append(requests, toJSON(t, req.Contents)) }
	w.say("go")
	w.say("again")
	if !contains(requests[1], `{"n":2}`) || !contains(requests[2], `{"n":1}`) || !contains(toJSON(t, w.stored().Events), `{"n":1}`) {
		t.Errorf("requests %q", requests)
	}
}

// editing is a toolset that edits requests, and so is its tool.
type editing struct {
	*flowtest.Tool
	edit func(*flow.Request)
}

func (e editing) ProcessRequest(_ *flow.CallbackContext, req *flow.Request) error {
	e.edit(req)
	return nil
}

type editingSet struct{ editing }

func (s editingSet) Name() string                             { return "set" }
func (s editingSet) Tools(*flow.Context) ([]flow.Tool, error) { return nil, nil }

// Who edits the contents of a request in place changes that request, and neither
// the next one nor the history.
func TestRequestsAreEditedOnce(t *testing.T) {
	edit := func(req *flow.Request) {
		for _, c := range req.Contents {
			c.Role += "!"
			for _, p := range c.Parts {
				p.Text += "!"
				if p.FunctionCall != nil {
					p.FunctionCall.Args["edited"] = fmt.Sprint(p.FunctionCall.Args["edited"], "!")
				}
				if p.FunctionResponse != nil {
					p.FunctionResponse.Response["edited"] = fmt.Sprint(p.FunctionResponse.Response["edited"], "!")
				}
			}
		}
	}
	editor := editing{tool("editor"), edit}
	for name, by := range map[string]func(*flow.Agent){
		"nobody": func(*flow.Agent) {},
		"hook before the model": func(a *flow.Agent) {
			a.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
				edit(req)
				return nil, nil
			}}}
		},
		"tool":    func(a *flow.Agent) { a.Tools = append(a.Tools, editor) },
		"toolset": func(a *flow.Agent) { a.Toolsets = []flow.Toolset{editingSet{editor}} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps = nil
			for i := range 4 {
				w.model.Steps = append(w.model.Steps, flowtest.Call(call(fmt.Sprint("c", i), "tool", `{}`)))
			}
			w.model.Steps = append(w.model.Steps, flowtest.Say("done"))
			w.agent.Tools = []flow.Tool{tool("tool")}
			by(&w.agent)
			requests := 0
			w.model.OnRequest = func(req *flow.Request, _ bool) {
				requests++
				if text := toJSON(t, req.Contents); contains(text, "!!") || contains(text, "!") == (name == "nobody") {
					t.Errorf("request %d: %s", requests, text)
				}
			}
			w.say("go")
			if text := toJSON(t, w.stored().Events); requests != 5 || contains(text, "!") {
				t.Errorf("%d requests, history %s", requests, text)
			}
		})
	}
}
