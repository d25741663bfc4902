package flow_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// textOf is the judged document of a question.
func textOf(q *abi.Question) string {
	return string(q.Message) + string(q.Request) + string(q.Response) + string(q.Result)
}

// noSecret denies what says "secret".
func noSecret(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	if strings.Contains(textOf(q), "secret") {
		return flowtest.Echo(q, abi.Deny("secret", "say no secrets")), nil
	}
	return flowtest.Echo(q, abi.Allow()), nil
}

// mask writes "masked" for "secret".
func mask(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	if doc := textOf(q); strings.Contains(doc, "secret") {
		return flowtest.Echo(q, abi.Rewrite(json.RawMessage(strings.ReplaceAll(doc, "secret", "masked")))), nil
	}
	return flowtest.Echo(q, abi.Allow()), nil
}

// refusedBy fails the test unless a run ended with the one event that stands for
// what guards refused.
func refusedBy(t *testing.T, o outcome, code abi.Code, text string) {
	t.Helper()
	last := o.events[len(o.events)-1]
	if len(o.errs) > 0 || last.ErrorCode != string(code) || last.ErrorMessage != text || last.Content != nil || last.Author != "agent" {
		t.Errorf("the last event is %+v (errors %v), want %s: %s", last, o.errs, code, text)
	}
}

func TestMessagePhase(t *testing.T) {
	for _, c := range []struct {
		name   string
		judge  judge
		says   string
		stored string // of the user's messages
		model  int    // requests
		code   abi.Code
		text   string
	}{
		{"allowed", noSecret, "hello", "hello", 1, "", ""},
		{"denied", noSecret, "the secret", "", 0, abi.PolicyDenied, "say no secrets"},
		{"denied without a reason", flowtest.Always(abi.Deny("", "")), "hello", "", 0, abi.PolicyDenied, "a policy refused the message"},
		{"rewritten", mask, "the secret", "the masked", 1, "", ""},
		{"failed", func(context.Context, *abi.Question) (abi.Verdict, error) { return abi.Verdict{}, errors.New("no") }, "hello", "", 0,
			abi.PolicyUnavailable, "a policy could not decide, so the message was refused"},
		{"asked", flowtest.Always(abi.Confirm("", "sure?")), "hello", "", 0, abi.PolicyUnavailable, "a policy could not decide, so the message was refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			guard := &flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseMessage}, Rewrite: []abi.Phase{abi.PhaseMessage}, Answer: c.judge}
			other := &flowtest.Guard{Label: "other", In: []abi.Phase{abi.PhaseMessage}}
			w.cfg.Guards = []flow.Guard{guard, other}
			o := w.run(flow.Text(c.says))
			if c.code != "" {
				refusedBy(t, o, c.code, c.text)
			}
			var stored []string
			for _, ev := range w.stored().Events {
				if ev.Author == "user" {
					stored = append(stored, ev.Text())
				}
			}
			if got := strings.Join(stored, "|"); got != c.stored || w.model.Requests() != c.model {
				t.Errorf("stored %q, model asked %d times, want %q and %d", got, w.model.Requests(), c.stored, c.model)
			}
			if len(other.Asked()) != 1 || len(w.records("guard.")) != 2 {
				t.Errorf("the other guard was asked %d times, records %+v", len(other.Asked()), w.records("guard."))
			}
		})
	}
}

// A guard of messages decides what is said, not what people answer.
func TestMessagePhaseKeepsAnswers(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
	witness := tool("tool")
	witness.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{witness}
	asked := w.say("go").questions()
	w.cfg.Guards = nil
	forge := &flowtest.Guard{Label: "forge", In: []abi.Phase{abi.PhaseMessage}, Rewrite: []abi.Phase{abi.PhaseMessage},
		Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			return flowtest.Echo(q, abi.Rewrite(json.RawMessage(strings.ReplaceAll(string(q.Message), `"confirmed":false`, `"confirmed":true`)))), nil
		}}
	w.cfg.Guards = []flow.Guard{forge}
	refusedBy(t, w.run(answer(asked[0].ID, `{"confirmed":false}`)), abi.PolicyUnavailable, "a policy could not decide, so the message was refused")
	if len(witness.Calls()) != 0 {
		t.Error("a guard approved a call")
	}
}

func TestRequestPhase(t *testing.T) {
	for _, c := range []struct {
		name  string
		judge judge
		model string // what the model was asked; "": nothing
		code  abi.Code
	}{
		{"allowed", flowtest.Always(abi.Allow()), "the secret", ""},
		{"denied", noSecret, "", abi.PolicyDenied},
		{"rewritten", mask, "the masked", ""},
		{"rewritten to nonsense", rewrite(`{"contents":1}`), "", abi.PolicyUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseRequest}, Rewrite: []abi.Phase{abi.PhaseRequest}, Answer: c.judge}}
			asked := ""
			w.model.OnRequest = func(req *flow.Request, _ bool) {
				asked = req.Contents[0].Parts[0].Text
				if req.Config.HTTPOptions == nil || req.Config.HTTPOptions.BaseURL != "http://model.example" {
					t.Error("the options of the connection are gone")
				}
			}
			w.agent.GenerateConfig = &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{BaseURL: "http://model.example"}}
			o := w.run(flow.Text("the secret"))
			if asked != c.model {
				t.Errorf("the model was asked %q, want %q", asked, c.model)
			}
			if last := o.events[len(o.events)-1]; last.ErrorCode != string(c.code) {
				t.Errorf("the last event is %+v, want code %q", last, c.code)
			}
			if text := w.stored().Events[0].Text(); text != "the secret" {
				t.Errorf("a guard of requests changed the history to %q", text)
			}
		})
	}
}

func TestRequestHidesTheConnection(t *testing.T) {
	req := &flow.Request{Config: &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{BaseURL: "http://model.example"}}}
	doc, err := req.Document()
	if err != nil || strings.Contains(string(doc), "example") {
		t.Errorf("document %s, error %v", doc, err)
	}
}

func TestResponsePhase(t *testing.T) {
	for _, c := range []struct {
		name  string
		judge judge
		final string
		ran   int
		code  abi.Code
	}{
		{"allowed", flowtest.Always(abi.Allow()), "the secret", 1, ""},
		{"denied", noSecret, "", 1, abi.PolicyDenied},
		{"rewritten", mask, "the masked", 1, ""},
		{"calls denied", flowtest.Always(abi.Deny("", "")), "", 0, abi.PolicyDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)), flowtest.Say("the secret"))
			witness := tool("tool")
			w.agent.Tools, w.agent.OutputKey = []flow.Tool{witness}, "said"
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Rewrite: []abi.Phase{abi.PhaseResponse}, Answer: c.judge}}
			o := w.run(flow.Text("go"))
			last := o.events[len(o.events)-1]
			if o.final() != c.final || last.ErrorCode != string(c.code) || len(witness.Calls()) != c.ran {
				t.Errorf("said %q, code %q, ran %d times; want %q, %q, %d", o.final(), last.ErrorCode, len(witness.Calls()), c.final, c.code, c.ran)
			}
			s := w.stored()
			if got, _ := s.State["said"].(string); got != c.final {
				t.Errorf("state holds %q, want %q", got, c.final)
			}
			if c.final != "the secret" && strings.Contains(toJSON(t, s.Events), "the secret") {
				t.Error("the secret is stored")
			}
		})
	}
}

// Whatever is said passes the guards of responses, also what hooks say.
func TestHooksSayNothingPastGuards(t *testing.T) {
	secret := func(*flow.CallbackContext) (*genai.Content, error) {
		return genai.NewContentFromText("the secret", genai.RoleModel), nil
	}
	as := func(p *genai.Part) func(*flow.CallbackContext) (*genai.Content, error) {
		return func(*flow.CallbackContext) (*genai.Content, error) {
			return &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{p}}, nil
		}
	}
	words := map[string]any{"text": "the secret"}
	event := func(r session.Response) flow.Hooks {
		return flow.Hooks{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			ev = ev.Clone()
			ev.Response = r
			return ev, nil
		}}
	}
	beside := func(*flow.CallbackContext) (*genai.Content, error) {
		return &genai.Content{Parts: []*genai.Part{genai.NewPartFromText("the secret"), {FunctionResponse: &genai.FunctionResponse{Name: "x"}}}}, nil
	}
	for name, h := range map[string]flow.Hooks{
		"before run, in a call":       {BeforeRun: as(&genai.Part{FunctionCall: &genai.FunctionCall{Name: "tool", Args: words}})},
		"before agent, beside a call": {BeforeAgent: as(&genai.Part{Text: "the secret", FunctionCall: &genai.FunctionCall{Name: "tool"}})},
		"after agent, as a result":    {AfterAgent: as(&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "tool", Response: words}})},
		"before model, as heard words": {BeforeModel: func(*flow.CallbackContext, *flow.Request) (*session.Response, error) {
			return &session.Response{Interrupted: true, OutputTranscription: &genai.Transcription{Text: "the secret"}}, nil
		}},
		"after model, as a source": {AfterModel: func(_ *flow.CallbackContext, resp *session.Response) (*session.Response, error) {
			resp.Grounding = &genai.GroundingMetadata{WebSearchQueries: []string{"the secret"}}
			return nil, nil
		}},
		"on event, as an error":    event(session.Response{ErrorCode: "e", ErrorMessage: "the secret"}),
		"on event, as a message":   event(session.Response{ErrorMessage: "the secret"}),
		"on event, as a refusal":   event(session.Response{ErrorCode: "policy_denied", ErrorMessage: "the secret"}),
		"on event, as heard words": event(session.Response{OutputTranscription: &genai.Transcription{Text: "the secret"}}),
		"on event, as a source":    event(session.Response{Grounding: &genai.GroundingMetadata{WebSearchQueries: []string{"the secret"}}}),
		"on event, beside the words": {OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			ev.Citation = &genai.CitationMetadata{Citations: []*genai.Citation{{Title: "the secret"}}}
			return nil, nil
		}},
		"before run":                    {BeforeRun: secret},
		"before run, beside a response": {BeforeRun: beside},
		"before agent":                  {BeforeAgent: secret},
		"after agent":                   {AfterAgent: secret},
		"before model": {BeforeModel: func(*flow.CallbackContext, *flow.Request) (*session.Response, error) {
			return &session.Response{Content: genai.NewContentFromText("the secret", genai.RoleModel)}, nil
		}},
		"after model": {AfterModel: func(*flow.CallbackContext, *session.Response) (*session.Response, error) {
			return &session.Response{Content: genai.NewContentFromText("the secret", genai.RoleModel)}, nil
		}},
		"on event": {OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			ev = ev.Clone()
			ev.Response = session.Response{Content: genai.NewContentFromText("the secret", genai.RoleModel)}
			return ev, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Hooks = []flow.Hooks{h}
			if said := w.say("go").events; !strings.Contains(toJSON(t, said), "secret") {
				t.Fatal("without a guard the hook says nothing")
			}
			w = newWorld(t)
			w.cfg.Hooks = []flow.Hooks{h}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Answer: noSecret}}
			o := w.say("go")
			refusedBy(t, o, abi.PolicyDenied, "say no secrets")
			if all := toJSON(t, []any{o.events, w.stored()}); strings.Contains(all, "the secret") {
				t.Errorf("the secret is out: %s", all)
			}
		})
	}
}

// An event hook changes nothing of an event with calls, results or questions: what it
// would say there no guard of responses would see.
func TestEventHooksSayNothingBesideCalls(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "pay", `{}`), call("c2", "tool", `{}`)))
	pay := tool("pay")
	pay.Describe.Confirm = true
	w.agent.Tools = []flow.Tool{pay, tool("tool")}
	var seen []string
	w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
		if len(ev.Calls())+len(ev.Responses()) > 0 {
			seen = append(seen, fmt.Sprintf("%d %d", len(ev.Calls()), len(ev.Responses())))
			ev.ErrorMessage, ev.OutputTranscription = "the secret", &genai.Transcription{Text: "the secret"}
		}
		return nil, nil
	}}}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Answer: noSecret}}
	o := w.say("go")
	if got := strings.Join(seen, ", "); got != "2 0, 0 2, 1 0" { // the calls, their results, the question
		t.Errorf("the hook has seen events with calls and responses: %s", got)
	}
	if all := toJSON(t, []any{o.events, w.stored()}); strings.Contains(all, "secret") || strings.Contains(all, "policy_denied") || o.response("c2") != okResponse {
		t.Errorf("said %s", all)
	}
}

// A result that is shown to the user as text is said, too.
func TestShownResultIsJudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		judge judge
		shown []string
	}{
		{"allowed", flowtest.Always(abi.Allow()), []string{"the secret"}},
		{"rewritten", mask, []string{"the masked"}},
		{"denied", noSecret, []string{"", "! policy_denied"}},
		{"failed", flowtest.Always(abi.Verdict{}), []string{"! policy_unavailable"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "show", `{}`)))
			show := handler("show", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
				return `{"result":"the secret"}`, ctx.SkipSummarization()
			})
			show.Describe.ShowResult = true
			w.agent.Tools = []flow.Tool{show}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Rewrite: []abi.Phase{abi.PhaseResponse}, Answer: c.judge}}
			var shown []string
			for _, ev := range w.say("go").events {
				switch {
				case ev.ErrorCode != "":
					shown = append(shown, "! "+ev.ErrorCode)
				case len(ev.Responses()) > 0:
					shown = append(shown, ev.Text())
				}
			}
			if !slices.Equal(shown, c.shown) {
				t.Errorf("shown %q, want %q", shown, c.shown)
			}
		})
	}
}

// What a hook puts in an agent's or its model's place is judged before anything is
// made of it, wherever the agent works: nothing of what guards refuse or rewrite
// reaches an event, a store, a result or a model, not even beside a response.
func TestHooksOfAgentsAreJudged(t *testing.T) {
	text := genai.NewContentFromText("the secret", genai.RoleModel)
	beside := &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
		genai.NewPartFromText("the secret"), {FunctionResponse: &genai.FunctionResponse{ID: "x", Name: "x", Response: map[string]any{"a": "b"}}}}}
	hooks := map[string]func(*genai.Content) flow.Hooks{
		"before agent": func(c *genai.Content) flow.Hooks {
			return flow.Hooks{BeforeAgent: func(ctx *flow.CallbackContext) (*genai.Content, error) { return c, nil }}
		},
		"after agent": func(c *genai.Content) flow.Hooks {
			return flow.Hooks{AfterAgent: func(*flow.CallbackContext) (*genai.Content, error) { return c, nil }}
		},
		"before model": func(c *genai.Content) flow.Hooks {
			return flow.Hooks{BeforeModel: func(*flow.CallbackContext, *flow.Request) (*session.Response, error) {
				return &session.Response{Content: c}, nil
			}}
		},
		"after model": func(c *genai.Content) flow.Hooks {
			return flow.Hooks{AfterModel: func(*flow.CallbackContext, *session.Response) (*session.Response, error) {
				return &session.Response{Content: c}, nil
			}}
		},
		"on model error": func(c *genai.Content) flow.Hooks {
			return flow.Hooks{OnModelError: func(*flow.CallbackContext, *flow.Request, error) (*session.Response, error) {
				return &session.Response{Content: c}, nil
			}}
		},
	}
	places := map[string]func(w *world, below *flow.Agent){
		"single turn": func(w *world, below *flow.Agent) { below.Mode = flow.SingleTurn },
		"task":        func(w *world, below *flow.Agent) { below.Mode = flow.Task },
		"chat":        func(w *world, below *flow.Agent) { w.model.Steps[0] = toKid() },
		"agent as tool": func(w *world, below *flow.Agent) {
			w.agent.Agents, w.agent.Tools = nil, []flow.Tool{flow.AgentTool(below, flow.AgentToolOptions{SkipSummarization: true, ShowResult: true})}
		},
		"sequence": func(w *world, below *flow.Agent) { w.agent.Type, w.agent.Model = flow.SequentialAgent, nil },
		"loop": func(w *world, below *flow.Agent) {
			w.agent.Type, w.agent.Model, w.agent.MaxIterations = flow.LoopAgent, nil, 2
		},
		"parallel": func(w *world, below *flow.Agent) { w.agent.Type, w.agent.Model = flow.ParallelAgent, nil },
	}
	for place, put := range places {
		for hook, of := range hooks {
			forms := map[string]*genai.Content{"text": text}
			if strings.HasSuffix(hook, "agent") { // a step with a response is not the last
				forms["beside a response"] = beside
			}
			for form, content := range forms {
				for guard, judge := range map[string]judge{"": nil, "denied": noSecret, "rewritten": mask} {
					t.Run(strings.Join([]string{place, hook, form, guard}, "/"), func(t *testing.T) {
						w := newWorld(t, flowtest.Call(give("d1", `{"request":"x"}`)))
						w.agent.Model = w.model
						below := kid("kid", flowtest.Say("hi"), flowtest.Say("hi"))
						if hook == "on model error" {
							below.Model.(*flowtest.Model).Steps = [][]flowtest.Reply{{{Err: errors.New("503")}}, {{Err: errors.New("503")}}}
						}
						below.Hooks = []flow.Hooks{of(content)}
						var heard []any
						for _, m := range []*flowtest.Model{w.model, below.Model.(*flowtest.Model)} {
							m.OnRequest = func(req *flow.Request, _ bool) { heard = append(heard, req.Contents) }
						}
						w.agent.Agents = []*flow.Agent{below}
						put(w, below)
						if judge != nil {
							w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Rewrite: []abi.Phase{abi.PhaseResponse}, Answer: judge}}
						}
						o := w.say("go")
						all := toJSON(t, []any{o.events, w.stored(), w.calls(), heard})
						if said := strings.Contains(all, "the secret"); said == (judge != nil) {
							t.Errorf("the secret is out: %t; %s", said, all)
						}
						if masked := strings.Contains(all, "the masked"); masked != (guard == "rewritten") {
							t.Errorf("what the guard wrote is out: %t; %s", masked, all)
						}
					})
				}
			}
		}
	}
}

// A result that comes with a later message is judged like one that a handler gave.
func TestCompletionIsJudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		judge judge
		model string
	}{
		{"allowed", flowtest.Always(abi.Allow()), `{"text":"the secret"}`},
		{"denied", noSecret, `{"error":"policy_denied: say no secrets"}`},
		{"rewritten", mask, `{"text":"the masked"}`},
		{"failed", flowtest.Always(abi.Verdict{}), unavailableResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "slow", `{"n":1}`)))
			slow := handler("slow", func(*flow.ToolContext, json.RawMessage) (string, error) { return `{"status":"begun"}`, nil })
			slow.Describe.LongRunning = true
			w.agent.Tools = []flow.Tool{slow}
			w.say("go")
			guard := &flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResult}, Rewrite: []abi.Phase{abi.PhaseResult}, Answer: c.judge}
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
				{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "slow", Response: map[string]any{"text": "the secret"}}}}}})
			if shown != c.model {
				t.Errorf("the model was shown %s, want %s", shown, c.model)
			}
			q := guard.Asked()
			if len(q) != 1 || q[0].Call.Tool != "slow" || string(q[0].Call.Args) != `{"n":1}` || !q[0].Call.Known || q[0].Agent != "agent" {
				t.Errorf("asked %+v", q)
			}
		})
	}
}

// What a result brings beside its document no guard can judge, so it does not pass
// where results are judged.
func TestCompletionWithParts(t *testing.T) {
	result := &flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResult}}
	for name, c := range map[string]struct {
		guards, monitors []flow.Guard
		passes           bool
	}{
		"results are judged":       {[]flow.Guard{result}, nil, false},
		"others are judged":        {[]flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseCall, abi.PhaseMessage}}}, nil, true},
		"results are only watched": {nil, []flow.Guard{result}, true},
		"nothing is judged":        {nil, nil, true},
	} {
		w := newWorld(t, flowtest.Call(call("c1", "slow", `{"n":1}`)))
		slow := handler("slow", func(*flow.ToolContext, json.RawMessage) (string, error) { return `{"status":"begun"}`, nil })
		slow.Describe.LongRunning = true
		w.agent.Tools = []flow.Tool{slow}
		w.say("go")
		w.cfg.Guards, w.cfg.Monitors = c.guards, c.monitors
		shown := ""
		w.model.OnRequest = func(req *flow.Request, _ bool) { shown = toJSON(t, req.Contents) }
		secret := []byte("the secret")
		o := w.run(flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "slow",
			Response: map[string]any{"text": "fine"}, Parts: []*genai.FunctionResponsePart{{InlineData: &genai.FunctionResponseBlob{MIMEType: "text/plain", Data: secret}}}}}}}})
		out := base64.StdEncoding.EncodeToString(secret)
		if got := strings.Contains(shown, out); got != c.passes || len(o.errs) > 0 || strings.Contains(toJSON(t, w.stored().Events), out) != c.passes {
			t.Errorf("%s: errors %v, the model was shown %s", name, o.errs, shown)
		}
		if !c.passes && !strings.Contains(shown, "policy_unavailable") {
			t.Errorf("%s: the model was shown %s", name, shown)
		}
	}
}

const unavailableResponse = `{"error":"policy_unavailable: a policy could not decide, so the call was refused"}`

// What is summed up is asked and said past the guards, too.
func TestSummaryIsJudged(t *testing.T) {
	for _, phase := range []abi.Phase{abi.PhaseRequest, abi.PhaseResponse} {
		w := newWorld(t)
		w.model.Steps = [][]flowtest.Reply{flowtest.Say("fine"), flowtest.Say("a secret summary"), flowtest.Say("fine")}
		w.cfg.Compaction = &flow.Compaction{Interval: 1}
		w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{phase}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			if strings.Contains(textOf(q), "secret summary") || strings.Contains(textOf(q), "Write a summary") {
				return flowtest.Echo(q, abi.Deny("summary", "")), nil
			}
			return flowtest.Echo(q, abi.Allow()), nil
		}}}
		o := w.run(flow.Text("go"))
		if len(o.errs) != 1 || !errors.Is(o.errs[0], flow.ErrCompaction) || strings.Contains(toJSON(t, w.stored().Events), "secret") {
			t.Errorf("%s: errors %v, stored %s", phase, o.errs, toJSON(t, w.stored().Events))
		}
	}
}

func TestMonitor(t *testing.T) {
	for name, judge := range map[string]judge{
		"denies":   flowtest.Always(abi.Deny("no", "no")),
		"asks":     flowtest.Always(abi.Confirm("", "sure?")),
		"narrows":  flowtest.Always(abi.Narrow()),
		"rewrites": rewrite(`{"n":2}`),
		"fails":    flowtest.Always(abi.Verdict{}),
		"panics":   func(context.Context, *abi.Question) (abi.Verdict, error) { panic("x") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
			witness := tool("tool")
			w.agent.Tools = []flow.Tool{witness}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard"}}
			policy := w.policyOf()
			w.cfg.Monitors = []flow.Guard{&flowtest.Guard{Label: "new", Rewrite: []abi.Phase{abi.PhaseCall}, Answer: judge}}
			o := w.say("go")
			if got := witness.Calls(); !slices.Equal(got, []string{`{"n":1}`}) || o.response("c1") != okResponse || len(o.questions()) > 0 {
				t.Errorf("calls %q, response %s: a monitor changed something", got, o.response("c1"))
			}
			records := w.records("monitor.")
			want := map[string]string{"denies": "deny", "asks": "confirm", "narrows": "narrow", "rewrites": "rewrite"}[name]
			if want == "" {
				want = "deny"
			}
			if len(records) != 1 || records[0].Decision != want || records[0].Target != "new" || want == "deny" && records[0].Code == "" {
				t.Errorf("recorded %+v, want one %s", records, want)
			}
			if got := w.records("guard."); len(got) != 1 || got[0].Action != "guard.allow" {
				t.Errorf("recorded %+v", got)
			}
			if w.policyOf() != policy {
				t.Error("a monitor makes approvals invalid")
			}
		})
	}
}

// policyOf is the policy of a question that the world's runner asks.
func (w *world) policyOf() string {
	w.t.Helper()
	other := newWorld(w.t, flowtest.Call(call("c1", "ask", `{}`)))
	asks := tool("ask")
	asks.Describe.Confirm = true
	other.agent.Tools, other.cfg.Guards = []flow.Tool{asks}, w.cfg.Guards
	for _, m := range w.cfg.Monitors {
		other.cfg.Monitors = append(other.cfg.Monitors, &flowtest.Guard{Label: m.Name()})
	}
	other.say("go")
	questions, err := other.store.Questions(context.Background(), home)
	if err != nil || len(questions) != 1 {
		w.t.Fatalf("questions %+v, error %v", questions, err)
	}
	return questions[0].Policy
}

func TestGroup(t *testing.T) {
	allow, deny := flowtest.Always(abi.Allow()), flowtest.Always(abi.Deny("no", "not so"))
	confirm, failed := flowtest.Always(abi.Confirm("", "sure?")), flowtest.Always(abi.Verdict{})
	for _, c := range []struct {
		name    string
		least   int
		members []judge
		want    string // response, "ask", or "ran"
		record  string
	}{
		{"any of: one allows", 1, []judge{deny, allow, failed}, "ran", "guard.allow"},
		{"any of: none", 1, []judge{deny, failed}, `{"error":"policy_denied: not so"}`, "guard.deny"},
		{"any of: all failed", 1, []judge{failed, failed}, unavailableResponse, "guard.deny"},
		{"any of: one asks", 1, []judge{deny, confirm}, "ask", "guard.confirm"},
		{"any of: one asks, one allows", 1, []judge{confirm, allow}, "ran", "guard.allow"},
		{"all of: one denies", 2, []judge{allow, deny}, `{"error":"policy_denied: not so"}`, "guard.deny"},
		{"all of: one failed", 2, []judge{allow, failed}, unavailableResponse, "guard.deny"},
		{"all of: one asks", 2, []judge{allow, confirm}, "ask", "guard.confirm"},
		{"all of: asks and narrows", 2, []judge{flowtest.Always(abi.Narrow()), confirm}, "ask", "guard.confirm"},
		{"two of three", 2, []judge{allow, failed, allow}, "ran", "guard.allow"},
		{"two of three: one", 2, []judge{allow, failed, deny}, `{"error":"policy_denied: not so"}`, "guard.deny"},
		{"narrows", 2, []judge{flowtest.Always(abi.Narrow()), allow}, "ran", "guard.narrow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			witness := tool("tool")
			w.agent.Tools = []flow.Tool{witness}
			g := &flow.Group{Label: "group", AtLeast: c.least}
			for i, j := range c.members {
				g.Guards = append(g.Guards, &flowtest.Guard{Label: string(rune('a' + i)), Answer: j})
			}
			last := &flowtest.Guard{Label: "last"}
			w.cfg.Guards = []flow.Guard{g, last}
			o := w.say("go")
			got := o.response("c1")
			switch {
			case len(o.questions()) > 0:
				got = "ask"
			case len(witness.Calls()) > 0:
				got = "ran"
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			var members, all []string
			for _, r := range w.records("guard.") {
				if strings.HasPrefix(r.Action, "guard.member.") {
					members = append(members, r.Target)
				} else {
					all = append(all, r.Target+" "+r.Action)
				}
			}
			if len(members) != len(c.members) || members[0] != "group/a" || !slices.Equal(all, []string{"group " + c.record, "last guard.allow"}) {
				t.Errorf("recorded members %q, and %q", members, all)
			}
		})
	}
}

func TestGroupIsChecked(t *testing.T) {
	in := func(label string, phases ...abi.Phase) *flowtest.Guard {
		return &flowtest.Guard{Label: label, In: phases}
	}
	for _, c := range []struct {
		group *flow.Group
		want  string
	}{
		{&flow.Group{Label: "g", AtLeast: 1}, "at least 1 of 0"},
		{&flow.Group{Label: "g", Guards: []flow.Guard{in("a", abi.PhaseCall)}}, "at least 0 of 1"},
		{&flow.Group{Label: "g", AtLeast: 2, Guards: []flow.Guard{in("a", abi.PhaseCall)}}, "at least 2 of 1"},
		{&flow.Group{Label: "g", AtLeast: 1, Guards: []flow.Guard{in("a", abi.PhaseCall), in("a", abi.PhaseCall)}}, "two of that name"},
		{&flow.Group{Label: "g", AtLeast: 1, Guards: []flow.Guard{in("a", abi.PhaseCall), in("b", abi.PhaseResult)}}, "member b: judges in phase result"},
		{&flow.Group{Label: "g", AtLeast: 1, Guards: []flow.Guard{in("a", abi.PhaseCall, abi.PhaseResult), in("b", abi.PhaseResult)}}, "member b: judges in 1 phases"},
		{&flow.Group{Label: "g", AtLeast: 1, Guards: []flow.Guard{&flowtest.Guard{Label: "a", Rewrite: []abi.Phase{abi.PhaseCall}}}}, "rewrites documents"},
		{&flow.Group{Label: "g", AtLeast: 1, Guards: []flow.Guard{&flow.Group{Label: "h", AtLeast: 1, Guards: []flow.Guard{in("a", abi.PhaseCall)}}}}, "a group in a group"},
	} {
		w := newWorld(t)
		w.agent.Model = w.model
		_, err := flow.NewRunner(&w.agent, w.store, flow.Config{Guards: []flow.Guard{c.group}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "guard g: ") {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// A judgement is recorded with the version that gave it, whatever the guard has
// become since.
func TestVersionIsPinned(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	g := &flowtest.Guard{Label: "g", Edition: "one"}
	g.Answer = func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		g.Edition = "two"
		return flowtest.Echo(q, abi.Allow()), nil
	}
	w.cfg.Guards = []flow.Guard{g}
	w.say("go")
	if r := w.records("guard."); len(r) != 1 || r[0].Module != "one" {
		t.Errorf("recorded %+v", r)
	}
}

// What an agent keeps under its output key is what guards let it say, also where the
// answer came through a tool and hooks have written it, and whatever event hooks make
// of it afterwards.
func TestOutputIsWhatWasSaid(t *testing.T) {
	nothing := func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		return flowtest.Echo(q, abi.Rewrite(json.RawMessage(`{"content":{"role":"model","parts":[]}}`))), nil
	}
	for _, c := range []struct {
		name  string
		judge judge
		kept  string
	}{
		{"allowed", flowtest.Always(abi.Allow()), `{"a":"the secret"}`},
		{"rewritten", mask, `{"a":"the masked"}`},
		{"denied", noSecret, ""},
		{"taken out", func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
			if !strings.Contains(textOf(q), "secret") {
				return flowtest.Echo(q, abi.Allow()), nil
			}
			return nothing(ctx, q)
		}, ""},
	} {
		for _, edited := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: ", then edited"}[edited], func(t *testing.T) {
				w := newWorld(t, flowtest.Call(call("c1", "set_model_response", `{"a":"x"}`)))
				w.model.ModelName, w.model.On = "gemini-1.5-pro", flow.GeminiAPI
				w.agent.OutputKey, w.agent.Tools = "out", []flow.Tool{tool("tool")}
				w.agent.OutputSchema = schemaOf(t, `{"type":"object","properties":{"a":{"type":"string"}}}`)
				w.agent.Hooks = []flow.Hooks{{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
					return map[string]any{"a": "the secret"}, nil
				}}}
				if edited {
					w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
						if ev.Text() != "" {
							ev.Content.Parts[0].Text = "something else"
						}
						return nil, nil
					}}}
				}
				w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Rewrite: []abi.Phase{abi.PhaseResponse}, Answer: c.judge}}
				o := w.run(flow.Text("go"))
				if got, _ := w.stored().State["out"].(string); got != c.kept || len(o.errs) > 0 {
					t.Errorf("kept %q, want %q (errors %v)", got, c.kept, o.errs)
				}
				if !edited && o.final() != c.kept {
					t.Errorf("said %q, want %q", o.final(), c.kept)
				}
			})
		}
	}
}

// State and artifacts have no phase of their own: what they hold comes to a model in a
// request, and there a guard sees it.
func TestRequestGuardsSeeStateAndArtifacts(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "keep", `{}`)), flowtest.Call(call("c2", "load_artifacts", `{"artifact_names":["a.txt"]}`)))
	w.cfg.Artifacts = flow.NewMemoryArtifacts()
	w.agent.Instruction = "Mind {memo?}."
	w.agent.Tools = []flow.Tool{flow.LoadArtifacts(), handler("keep", func(ctx *flow.ToolContext, _ json.RawMessage) (string, error) {
		_, err := ctx.SaveArtifact("a.txt", genai.NewPartFromText("the kept text"))
		return okResponse, errors.Join(err, ctx.SetState(map[string]any{"memo": "the kept state"}))
	})}
	g := &flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseRequest}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if strings.Contains(string(q.Request), "the kept text") {
			return flowtest.Echo(q, abi.Deny("artifact", "not this file")), nil
		}
		return flowtest.Echo(q, abi.Allow()), nil
	}}
	w.cfg.Guards = []flow.Guard{g}
	o := w.say("go")
	asked := g.Asked()
	if len(asked) != 3 || strings.Contains(string(asked[0].Request), "the kept state") || !strings.Contains(string(asked[1].Request), "the kept state") {
		t.Errorf("%d requests were judged, the second is %s", len(asked), asked[min(1, len(asked)-1)].Request)
	}
	if last := o.events[len(o.events)-1]; last.ErrorCode != string(abi.PolicyDenied) || w.model.Requests() != 2 {
		t.Errorf("the run ends with %+v after %d requests", last.Response, w.model.Requests())
	}
}
