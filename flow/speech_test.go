package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

const key = "sk-0123456789"

// leaks judges like a guard against keys: it denies a whole one, and holds back
// the end of a text that may be the beginning of one.
func leaks(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	text := said(q.Response)
	if strings.Contains(text, key) {
		return flowtest.Echo(q, abi.Deny("key", "a key")), nil
	}
	return flowtest.Echo(q, abi.AllowBut(tailOf(text))), nil
}

// masks judges like leaks, but writes stars.
func masks(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	text := said(q.Response)
	v := abi.AllowBut(tailOf(text))
	if strings.Contains(text, key) {
		v = abi.Rewrite(json.RawMessage(strings.ReplaceAll(string(q.Response), key, "***")))
		v.Hold = tailOf(text)
	}
	return flowtest.Echo(q, v), nil
}

// tailOf is how much of the end of a text is the beginning of a key.
func tailOf(text string) int {
	for n := min(len(key)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, key[:n]) {
			return n
		}
	}
	return 0
}

func said(doc json.RawMessage) string {
	var r session.Response
	if err := json.Unmarshal(doc, &r); err != nil {
		return err.Error()
	}
	text := ""
	if r.Content != nil {
		for _, p := range r.Content.Parts {
			text += p.Text
		}
	}
	return text
}

// stream is a step that says chunks, and then the whole.
func streamed(chunks ...string) []flowtest.Reply {
	var out []flowtest.Reply
	for _, c := range chunks {
		out = append(out, flowtest.Reply{Response: &session.Response{Partial: true, Content: genai.NewContentFromText(c, genai.RoleModel)}})
	}
	return append(out, flowtest.Say(strings.Join(chunks, ""))...)
}

// A logModel notes when it says something.
type logModel struct {
	*flowtest.Model
	log *[]string
}

func (m logModel) Generate(ctx context.Context, req *flow.Request, stream bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		for resp, err := range m.Model.Generate(ctx, req, stream) {
			if resp != nil && resp.Partial {
				*m.log = append(*m.log, "model "+resp.Content.Parts[0].Text)
			}
			if !yield(resp, err) {
				return
			}
		}
	}
}

// A secret that is split over the pieces of a stream never leaves; what is no part
// of one leaves at once, before the model says more.
func TestStreamIsHeldBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks []string
		judge  judge
		want   []string // what the model said and what was shown, in order
	}{
		{"ordinary text", []string{"one ", "two ", "three"}, leaks,
			[]string{"model one ", "one ", "model two ", "two ", "model three", "three", "= one two three"}},
		{"a secret in pieces", []string{"it is sk-", "01234", "56789", " ok"}, leaks,
			[]string{"model it is sk-", "it is ", "model 01234", "model 56789", "! policy_denied"}},
		{"a secret in one piece", []string{"it is " + key}, leaks, []string{"model it is " + key, "! policy_denied"}},
		{"what looked like one", []string{"ask s", "k", "-ill"}, leaks,
			[]string{"model ask s", "ask ", "model k", "model -ill", "sk-ill", "= ask sk-ill"}},
		{"the end is held", []string{"ask ", "s"}, leaks, []string{"model ask ", "ask ", "model s", "s", "= ask s"}},
		{"all is held", []string{"s", "k"}, leaks, []string{"model s", "model k", "sk", "= sk"}},
		{"masked in pieces", []string{"it is sk-", "01234", "56789", " ok"}, masks,
			[]string{"model it is sk-", "it is ", "model 01234", "model 56789", "***", "model  ok", " ok", "= it is *** ok"}},
		{"characters, not bytes", []string{"äöü", "äö"}, func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			return flowtest.Echo(q, abi.AllowBut(2)), nil
		}, []string{"model äöü", "ä", "model äö", "öü", "äö", "= äöüäö"}},
		{"held more later", []string{"abc", "d", "ef"}, func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			return flowtest.Echo(q, abi.AllowBut(map[string]int{"abcd": 4}[said(q.Response)])), nil
		}, []string{"model abc", "abc", "model d", "model ef", "def", "= abcdef"}},
		{"rewritten too late", []string{"sk-", "0123456789"}, func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			v, err := masks(context.Background(), q)
			v.Hold = 0
			return v, err
		}, []string{"model sk-", "sk-", "model 0123456789", "! policy_unavailable"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.model.Steps = [][]flowtest.Reply{streamed(c.chunks...)}
			var log []string
			w.agent.Model = logModel{w.model, &log}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Rewrite: []abi.Phase{abi.PhaseResponse}, Answer: c.judge},
				&flowtest.Guard{Label: "other", In: []abi.Phase{abi.PhaseResponse}}}
			for ev, err := range w.runner().Run(t.Context(), home, flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser), Stream: true}) {
				switch {
				case err != nil:
					t.Fatal(err)
				case ev.ErrorCode != "":
					log = append(log, "! "+ev.ErrorCode)
				case ev.Partial:
					log = append(log, ev.Text())
				default:
					log = append(log, "= "+ev.Text())
				}
			}
			if !slices.Equal(log, c.want) {
				t.Errorf("got  %q\nwant %q", log, c.want)
			}
			if all := toJSON(t, w.stored().Events); strings.Contains(all, key) {
				t.Errorf("the key is stored: %s", all)
			}
			allowed := 0
			for _, r := range w.records("guard.") {
				if r.Target == "g" {
					allowed++
				}
			}
			if allowed > 1 {
				t.Errorf("%d records of one answer: %+v", allowed, w.records("guard."))
			}
		})
	}
}

// So it is for an agent below, whichever way it was reached. Of an agent as a tool
// nothing is shown before its result is whole.
func TestStreamOfInnerAgents(t *testing.T) {
	held := []string{"model it is sk-", "it is ", "model 01234", "model 56789", "! policy_denied"}
	flows := []string{"model one ", "one ", "model two ", "two ", "= one two "}
	for _, c := range []struct {
		name        string
		mode        flow.Mode
		by          string
		held, flows []string // what the model said and what was shown until the agent was done
	}{
		{"sub-agent", flow.Chat, "transfer_to_agent", held, flows},
		{"single turn", flow.SingleTurn, "below", held, flows},
		{"task", flow.Task, "below", held, flows},
		{"agent as tool", "", "below", []string{"model it is sk-", "model 01234", "model 56789"}, []string{"model one ", "model two "}},
	} {
		for _, chunks := range [][]string{{"it is sk-", "01234", "56789", " ok"}, {"one ", "two "}} {
			t.Run(c.name+", "+chunks[0], func(t *testing.T) {
				w := newWorld(t, flowtest.Call(call("t1", c.by, `{"agent_name":"below","request":"go"}`)), streamed(chunks...))
				var log []string
				below := &flow.Agent{Name: "below", Mode: c.mode, Model: logModel{w.model, &log}}
				if c.mode == "" {
					w.agent.Tools = []flow.Tool{flow.AgentTool(below, flow.AgentToolOptions{})}
				} else {
					w.agent.Agents = []*flow.Agent{below}
				}
				w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Answer: leaks}}
				var all []*session.Event
				for ev, err := range w.runner().Run(t.Context(), home, flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser), Stream: true}) {
					if err != nil {
						t.Fatal(err)
					}
					switch all = append(all, ev); {
					case ev.Author != "below":
					case ev.ErrorCode != "":
						log = append(log, "! "+ev.ErrorCode)
					case ev.Partial:
						log = append(log, ev.Text())
					default:
						log = append(log, "= "+ev.Text())
					}
				}
				want := c.flows
				if chunks[0] != "one " {
					want = c.held
				}
				if !slices.Equal(log, want) {
					t.Errorf("got  %q\nwant %q", log, want)
				}
				if out := content(t, all) + content(t, w.stored().Events); strings.Contains(out, "0123") {
					t.Errorf("a piece of the key is out: %s", out)
				}
			})
		}
	}
}

// content is what events say and do, without their ids and times: those may have any
// digits.
func content(t *testing.T, events []*session.Event) string {
	var all []any
	for _, ev := range events {
		all = append(all, ev.Response, ev.Actions)
	}
	return toJSON(t, all)
}

// A streaming tool's result is judged when it is whole: nothing of it is shown before,
// to anybody.
func TestStreamingToolIsJudgedWhole(t *testing.T) {
	for _, c := range []struct {
		pieces []string
		want   string
	}{
		{[]string{"it is sk-", "01234", "56789"}, `{"error":"policy_denied: a key"}`},
		{[]string{"one ", "two"}, `{"result":"one two"}`},
	} {
		w := newWorld(t, flowtest.Call(call("c1", "tail", `{}`)))
		w.agent.Tools = []flow.Tool{pieces(c.pieces)}
		w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResult}, Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			if strings.Contains(string(q.Result), key) {
				return flowtest.Echo(q, abi.Deny("key", "a key")), nil
			}
			return flowtest.Echo(q, abi.Allow()), nil
		}}}
		var read string
		w.model.OnRequest = func(req *flow.Request, _ bool) { read = toJSON(t, req.Contents) }
		o := w.run(flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser), Stream: true})
		if got := o.response("c1"); got != c.want || len(o.errs) > 0 {
			t.Errorf("%q: the model is shown %s (errors %v), want %s", c.pieces, got, o.errs, c.want)
		}
		if out := content(t, o.events) + content(t, w.stored().Events) + toJSON(t, w.stored().State) + read; strings.Contains(out, "0123") {
			t.Errorf("a piece of the key is out: %s", out)
		}
	}
}

// pieces is a streaming tool that says them.
type pieces []string

func (pieces) Spec() *flow.Spec { return &flow.Spec{Name: "tail"} }

func (p pieces) Stream(*flow.ToolContext, flow.Permit) iter.Seq2[flow.Chunk, error] {
	return func(yield func(flow.Chunk, error) bool) {
		for _, text := range p {
			if !yield(flow.Chunk{Text: text}, nil) {
				return
			}
		}
	}
}

// A response that becomes no event, such as one that only says what was used, is
// asked about by nobody and does not end what is said.
func TestStreamGoesOnPastNothing(t *testing.T) {
	w := newWorld(t)
	chunks := streamed("it is sk-", "01234", "56789")
	w.model.Steps = [][]flowtest.Reply{slices.Insert(chunks, 1, flowtest.Reply{Response: &session.Response{FinishReason: genai.FinishReasonStop, ErrorMessage: "x",
		Usage: &genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 1}}})}
	guard := &flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Answer: leaks}
	w.cfg.Guards = []flow.Guard{guard}
	o := w.run(flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser), Stream: true})
	refusedBy(t, o, abi.PolicyDenied, "a key")
	if n := len(guard.Asked()); n != 3 || len(o.events) != 2 || o.events[0].Text() != "it is " {
		t.Errorf("asked %d times; said %s", n, toJSON(t, o.events))
	}
}

// Thoughts and parts that are no text stay in their order.
func TestStreamKeepsOrder(t *testing.T) {
	part := func(p *genai.Part) flowtest.Reply {
		return flowtest.Reply{Response: &session.Response{Partial: true, Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{p}}}}
	}
	picture := &genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("x")}}
	parts := []*genai.Part{{Text: "hm s", Thought: true}, picture, {Text: "done"}}
	w := newWorld(t)
	w.model.Steps = [][]flowtest.Reply{{part(parts[0]), part(parts[1]), part(parts[2]),
		{Response: &session.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: parts}}}}}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseResponse}, Answer: leaks}}
	var shown []string
	for ev, err := range w.runner().Run(t.Context(), home, flow.Input{Content: genai.NewContentFromText("go", genai.RoleUser), Stream: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ev.Content.Parts {
			shown = append(shown, fmt.Sprintf("partial=%t thought=%t text=%q picture=%t", ev.Partial, p.Thought, p.Text, p.InlineData != nil))
		}
	}
	want := []string{
		`partial=true thought=true text="hm " picture=false`,
		`partial=true thought=true text="s" picture=false`, // what follows shows that it is no key
		`partial=true thought=false text="" picture=true`,
		`partial=true thought=false text="done" picture=false`,
		`partial=false thought=true text="hm s" picture=false`,
		`partial=false thought=false text="" picture=true`,
		`partial=false thought=false text="done" picture=false`,
	}
	if !slices.Equal(shown, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
}
