package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// What guards of words are asked about, which words those are, and what becomes of
// what they cannot read or what cannot be recorded.

// listens is a guard of one phase that may rewrite in it.
func listens(phase abi.Phase, judge judge) *flowtest.Guard {
	return &flowtest.Guard{Label: "g", In: []abi.Phase{phase}, Rewrite: []abi.Phase{phase}, Answer: judge}
}

// Bytes that are no UTF-8 are for guards what they are for everybody after them; what
// guards of requests read changes no history.
func TestWordsAreWhatGuardsRead(t *testing.T) {
	const raw, clean = "a\xffb", "a\uFFFDb"
	for phase, c := range map[abi.Phase]struct{ heard, stored string }{
		abi.PhaseMessage: {raw, raw}, abi.PhaseRequest: {clean, raw}, abi.PhaseResponse: {clean, clean},
	} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps = [][]flowtest.Reply{flowtest.Say(raw), flowtest.Say("done")}
			guard := listens(phase, nil)
			w.cfg.Guards = []flow.Guard{guard}
			w.say(raw)
			heard := ""
			w.model.OnRequest = func(req *flow.Request, _ bool) { heard = req.Contents[1].Parts[0].Text }
			w.say("go on")
			if q := guard.Asked(); len(q) != 2 || !contains(textOf(&q[0]), clean) {
				t.Errorf("asked %+v", q)
			}
			if heard != c.heard {
				t.Errorf("the model heard that it said %q, want %q", heard, c.heard)
			}
			if events := w.stored().Events; events[0].Text() != clean || events[1].Text() != c.stored {
				t.Errorf("stored %q and %q, want %q and %q", events[0].Text(), events[1].Text(), clean, c.stored)
			}
		})
	}
}

// Likewise what hooks say.
func TestWordsOfHooksAreWhatGuardsRead(t *testing.T) {
	w := newWorld(t)
	w.agent.Hooks = []flow.Hooks{{BeforeAgent: func(*flow.CallbackContext) (*genai.Content, error) {
		return genai.NewContentFromText("a\xffb", genai.RoleModel), nil
	}}}
	w.cfg.Guards = []flow.Guard{listens(abi.PhaseResponse, nil)}
	if got := w.say("go").final(); got != "a\uFFFDb" {
		t.Errorf("said %q", got)
	}
}

// What JSON cannot say no guard can judge, so it does not pass; nor does what was
// judged and could not be recorded.
func TestWordsThatCannotBeJudged(t *testing.T) {
	noNumber := map[string]any{"n": math.NaN()}
	for name, c := range map[string]struct {
		phase   abi.Phase
		in      flow.Input
		prepare func(*world)
		model   int // requests
		text    string
	}{
		"message": {abi.PhaseMessage, flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "slow", Response: noNumber}}}}}, nil, 0, "a policy could not decide, so the message was refused"},
		"request": {abi.PhaseRequest, flow.Text("go"), func(w *world) {
			w.agent.Hooks = []flow.Hooks{{BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
				req.Contents[0].Parts[0].FunctionCall = &genai.FunctionCall{Name: "tool", Args: noNumber}
				return nil, nil
			}}}
		}, 0, "a policy could not decide, so the request was refused"},
		"message, not recorded":  {abi.PhaseMessage, flow.Text("go"), func(w *world) { w.cfg.Audit = failingAudit{w.audit, "guard.allow"} }, 0, ""},
		"request, not recorded":  {abi.PhaseRequest, flow.Text("go"), func(w *world) { w.cfg.Audit = failingAudit{w.audit, "guard.allow"} }, 0, ""},
		"response, not recorded": {abi.PhaseResponse, flow.Text("go"), func(w *world) { w.cfg.Audit = failingAudit{w.audit, "guard.allow"} }, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Guards = []flow.Guard{listens(c.phase, nil)}
			if c.prepare != nil {
				c.prepare(w)
			}
			o := w.run(c.in)
			if len(o.events) == 0 || len(o.errs) > 0 {
				t.Fatalf("%d events, errors %v", len(o.events), o.errs)
			}
			last := o.events[len(o.events)-1]
			if last.ErrorCode != string(abi.PolicyUnavailable) || c.text != "" && !contains(last.ErrorMessage, "policy") || w.model.Requests() != c.model {
				t.Errorf("the last event is %+v after %d requests", last, w.model.Requests())
			}
		})
	}
	req := &flow.Request{Model: "m"}
	if err := req.SetDocument(json.RawMessage(`{"contents":1}`)); err == nil || req.Model != "m" || req.Contents != nil {
		t.Errorf("error %v, request %+v", err, req)
	}
}

// The words of a message may be put otherwise, in as many parts as a guard likes.
func TestMessageInOtherParts(t *testing.T) {
	w := newWorld(t)
	w.cfg.Guards = []flow.Guard{listens(abi.PhaseMessage, rewrite(`{"role":"user","parts":[{"text":"one"},{"text":"two"}]}`))}
	o := w.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{nil, {Text: "onetwo"}}}})
	if got := w.stored().Events[0]; o.final() != "done" || len(got.Content.Parts) != 2 || got.Content.Parts[1].Text != "two" {
		t.Errorf("stored %s, errors %v", toJSON(t, got), o.errs)
	}
}

// A result that comes with a message is judged as that of the call that was made,
// whatever the message calls it, and is an object afterwards, or refused.
func TestCompletionIsOfItsCall(t *testing.T) {
	for name, c := range map[string]struct {
		judge judge
		gives map[string]any
		asked string
		model string
	}{
		"named otherwise": {nil, map[string]any{"v": "x"}, `{"v":"x"}`, `{"v":"x"}`},
		"nothing":         {nil, nil, `{}`, `{}`},
		"made a list":     {rewrite(`[1]`), map[string]any{"v": "x"}, `{"v":"x"}`, unavailableResponse},
		"made nothing":    {rewrite(``), map[string]any{"v": "x"}, `{"v":"x"}`, unavailableResponse},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "slow", `{"n":1}`)))
			slow := handler("slow", func(*flow.ToolContext, json.RawMessage) (string, error) { return `{"status":"begun"}`, nil })
			slow.Describe.LongRunning, slow.Describe.Description = true, "takes its time"
			w.agent.Tools = []flow.Tool{slow}
			w.say("go")
			guard := listens(abi.PhaseResult, c.judge)
			w.cfg.Guards = []flow.Guard{guard}
			shown := ""
			w.model.OnRequest = func(req *flow.Request, _ bool) {
				for _, content := range req.Contents {
					for _, p := range content.Parts {
						if p.FunctionResponse != nil {
							shown = toJSON(t, p.FunctionResponse.Response)
						}
					}
				}
			}
			w.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
				{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "fast", Response: c.gives}}}}})
			if shown != c.model {
				t.Errorf("the model was shown %s, want %s", shown, c.model)
			}
			definition, err := slow.Spec().Definition()
			if q := guard.Asked(); err != nil || len(q) != 1 || q[0].Call.Tool != "slow" || q[0].Call.DefinitionSHA256 != definition || string(q[0].Result) != c.asked {
				t.Errorf("asked %s, %v", toJSON(t, q), err)
			}
		})
	}
}

// No hook changes what stands for what guards refused.
func TestRefusalStays(t *testing.T) {
	for code, judge := range map[abi.Code]judge{abi.PolicyDenied: flowtest.Always(abi.Deny("", "")), abi.PolicyUnavailable: flowtest.Always(abi.Verdict{})} {
		w := newWorld(t)
		w.cfg.Guards = []flow.Guard{listens(abi.PhaseRequest, judge)}
		w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			ev.Response = session.Response{Content: genai.NewContentFromText("never mind", genai.RoleModel)}
			return ev, nil
		}}}
		if o := w.run(flow.Text("go")); o.events[len(o.events)-1].ErrorCode != string(code) || o.final() != "" {
			t.Errorf("%s: ended with %s", code, o.authors())
		}
	}
}

// Guards of responses are asked about words, once, also where a result is shown as
// text: not about questions to a person, and results, which others judge.
func TestOnlyWordsAreResponses(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "ask", "")), flowtest.Call(call("c2", "sum", "")))
	asks := tool("ask")
	asks.Describe.Confirm = true
	sum := handler("sum", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		return `"four"`, ctx.SkipSummarization()
	})
	sum.Describe.ShowResult = true
	w.agent.Tools = []flow.Tool{asks, sum}
	guard := listens(abi.PhaseResponse, nil)
	w.cfg.Guards = []flow.Guard{guard}
	if o := w.say("go"); len(o.questions()) != 1 {
		t.Fatalf("%d questions", len(o.questions()))
	}
	if o := w.say("go on"); o.final() != "four" {
		t.Fatalf("said %q", o.final())
	}
	w.say("say it")
	var asked []string
	for _, q := range guard.Asked() {
		asked = append(asked, string(q.Response))
	}
	if len(asked) != 4 || !contains(asked[0], `"ask"`) || !contains(asked[1], `"sum"`) || asked[2] != `{"content":{"parts":[{"text":"four"}],"role":"model"}}` || !contains(asked[3], `"done"`) {
		t.Errorf("asked about %q", asked)
	}

	w = newWorld(t, flowtest.Call(call("c1", "set_model_response", `{"a":"x"}`)))
	w.model.ModelName, w.model.On = "gemini-1.5-pro", flow.GeminiAPI
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.agent.OutputSchema = schemaOf(t, `{"type":"object","properties":{"a":{"type":"string"}}}`)
	guard = listens(abi.PhaseResponse, nil)
	w.cfg.Guards = []flow.Guard{guard}
	if o := w.say("go"); o.final() != `{"a":"x"}` || len(guard.Asked()) != 2 {
		t.Errorf("said %q, asked %d times, want 2: the call, and the answer", o.final(), len(guard.Asked()))
	}
}

// What hooks make of the pieces of a stream is judged piece by piece: what would be
// held back is left out, and a piece stays one.
func TestHooksWordsInAStream(t *testing.T) {
	for name, c := range map[string]struct {
		judge judge
		want  []string
	}{
		"allowed":   {nil, []string{"partial: secret a", "partial: secret b", "secret ab"}},
		"held":      {flowtest.Always(abi.AllowBut(3)), []string{"secret ab"}},
		"rewritten": {mask, []string{"partial: masked a", "partial: masked b", "masked ab"}},
		"rewritten without a word of being a piece": {func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			if !contains(textOf(q), "secret") {
				return flowtest.Echo(q, abi.Allow()), nil
			}
			return flowtest.Echo(q, abi.Rewrite(json.RawMessage(`{"content":{"role":"model","parts":[{"text":"hm"}]}}`))), nil
		}, []string{"partial: hm", "partial: hm", "hm"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps = [][]flowtest.Reply{streamed("a", "b")}
			w.cfg.Guards = []flow.Guard{listens(abi.PhaseResponse, func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
				if c.judge == nil || !contains(textOf(q), "secret") { // what the model says passes as it comes
					return flowtest.Echo(q, abi.Allow()), nil
				}
				return c.judge(ctx, q)
			})}
			w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
				if ev.Author == "agent" {
					ev.Content = genai.NewContentFromText("secret "+ev.Text(), genai.RoleModel)
				}
				return ev, nil
			}}}
			in := flow.Text("go")
			in.Stream = true
			var got []string
			for _, ev := range w.run(in).events {
				got = append(got, map[bool]string{true: "partial: "}[ev.Partial]+ev.Text())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("said %q, want %q", got, c.want)
			}
			if n := len(w.stored().Events); n != 2 {
				t.Errorf("%d events are stored, want the message and the whole", n)
			}
		})
	}
}

// Observers hear what guards made of words: of the whole of a stream, and of a part
// that was refused.
func TestObserverHearsOfWords(t *testing.T) {
	for name, c := range map[string]struct {
		judge judge
		want  []string
	}{
		"allowed":       {nil, []string{"agent 1 response allow"}},
		"whole refused": {func(_ context.Context, q *abi.Question) (abi.Verdict, error) { return refuseIf(q, !q.Partial) }, []string{"agent 1 response deny"}},
		"part refused":  {func(_ context.Context, q *abi.Question) (abi.Verdict, error) { return refuseIf(q, q.Partial) }, []string{"agent 1 response deny"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps = [][]flowtest.Reply{streamed("a", "b")}
			w.cfg.Guards = []flow.Guard{listens(abi.PhaseResponse, c.judge)}
			var heard []string
			w.cfg.Observer.Decided = func(i flow.CallInfo, d *flow.Decision) {
				heard = append(heard, fmt.Sprintf("%s %d %s %s", i.Agent, i.Step, d.Phase, d.Ruling))
				if i.Session != home || i.Run == "" {
					t.Errorf("heard of session %+v, run %q", i.Session, i.Run)
				}
			}
			in := flow.Text("go")
			in.Stream = true
			w.run(in)
			if !slices.Equal(heard, c.want) {
				t.Errorf("heard %q, want %q", heard, c.want)
			}
			w.cfg.Observer.Decided = nil // nobody listens
			w.run(flow.Text("go"))
		})
	}
}

func refuseIf(q *abi.Question, no bool) (abi.Verdict, error) {
	if no {
		return flowtest.Echo(q, abi.Deny("no", "")), nil
	}
	return flowtest.Echo(q, abi.Allow()), nil
}

// A summary that guards refuse is none, and says why; of an answer in several
// responses the last is the summary, and what the model fails with is its error.
func TestWhyThereIsNoSummary(t *testing.T) {
	for name, c := range map[string]struct {
		phase    abi.Phase
		reply    []flowtest.Reply
		want     string // error; "": there is a summary
		requests int
	}{
		"request refused":  {abi.PhaseRequest, flowtest.Say("in short"), "policy_denied", 1},
		"response refused": {abi.PhaseResponse, append(flowtest.Say("in secret"), flowtest.Say("in short")...), "policy_denied", 2},
		"model fails":      {abi.PhaseResponse, []flowtest.Reply{{Err: errors.New("503")}}, "503", 2},
		"two responses":    {abi.PhaseResponse, append(flowtest.Say("well"), flowtest.Say("in short")...), "", 2},
		"not guarded":      {abi.PhaseCall, append(flowtest.Say("well"), flowtest.Say("in short")...), "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps = [][]flowtest.Reply{flowtest.Say("fine"), c.reply}
			w.cfg.Compaction = &flow.Compaction{Interval: 1}
			w.cfg.Guards = []flow.Guard{listens(c.phase, func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
				return refuseIf(q, contains(textOf(q), "in secret") || contains(textOf(q), "Write a summary"))
			})}
			o := w.run(flow.Text("go"))
			if w.model.Requests() != c.requests {
				t.Errorf("%d requests, want %d", w.model.Requests(), c.requests)
			}
			if c.want == "" {
				if all := w.summaries(); len(o.errs) != 0 || len(all) != 1 || all[0].Actions.Compaction.Content.Parts[0].Text != "in short" {
					t.Errorf("errors %v, summaries %s", o.errs, toJSON(t, all))
				}
				return
			}
			if len(o.errs) != 1 || !strings.Contains(o.errs[0].Error(), c.want) || len(w.summaries()) != 0 {
				t.Errorf("errors %v, want %s", o.errs, c.want)
			}
		})
	}
}

// A stubbornModel sums up with a list of answers, errors among them, for as long as
// it is listened to.
type stubbornModel struct {
	*flowtest.Model
	answers []flowtest.Reply // an empty one is neither a response nor an error
}

func (m stubbornModel) Generate(ctx context.Context, req *flow.Request, stream bool) iter.Seq2[*session.Response, error] {
	if !contains(req.Contents[0].Parts[0].Text, "Write a summary") {
		return m.Model.Generate(ctx, req, stream)
	}
	return func(yield func(*session.Response, error) bool) {
		for _, a := range m.answers {
			if !yield(a.Response, a.Err) {
				return
			}
		}
	}
}

// Guards of responses are not asked about what is none, and an error is the end.
func TestSummaryOfAStubbornModel(t *testing.T) {
	for name, c := range map[string]struct {
		answers []flowtest.Reply
		want    string
	}{
		"nothing":             {[]flowtest.Reply{{}}, "model: no answer"},
		"an error, then more": {append([]flowtest.Reply{{Err: errors.New("503")}}, flowtest.Say("in short")...), "503"},
	} {
		w := newWorld(t)
		w.agent.Model = stubbornModel{w.model, c.answers}
		w.cfg.Compaction = &flow.Compaction{Interval: 1}
		w.cfg.Guards = []flow.Guard{listens(abi.PhaseResponse, nil)}
		if o := w.run(flow.Text("go")); len(o.errs) != 1 || !strings.HasSuffix(o.errs[0].Error(), ": "+c.want) || len(w.summaries()) != 0 {
			t.Errorf("%s: errors %v, want %s", name, o.errs, c.want)
		}
	}
}
