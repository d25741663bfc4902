package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

// A summarizer does what it is told to and counts.
type summarizer struct {
	do func(events []*session.Event) (flow.Summary, error)
	n  int
}

func (s *summarizer) Summarize(_ context.Context, events []*session.Event) (flow.Summary, error) {
	s.n++
	if s.do != nil {
		return s.do(events)
	}
	return flow.Summary{Content: genai.NewContentFromText("SUMMARY", genai.RoleModel)}, nil
}

// large is a step of which the model says that the request was large.
func large(step []flowtest.Reply) []flowtest.Reply {
	r := *step[0].Response
	r.Usage = &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 1000}
	return []flowtest.Reply{{Response: &r}}
}

// busy is a world whose model makes so many calls, each in a large request.
func busy(t *testing.T, calls int, s *summarizer) *world {
	var steps [][]flowtest.Reply
	for i := range calls {
		steps = append(steps, large(flowtest.Call(call(fmt.Sprint("c", i), "tool", `{}`))))
	}
	w := newWorld(t, append(steps, large(flowtest.Say("done")))...)
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Compaction = &flow.Compaction{TokenThreshold: 100, Retention: 1, Summarizer: s}
	return w
}

func (w *world) summaries() []*session.Event {
	var out []*session.Event
	for _, ev := range w.stored().Events {
		if ev.Actions.Compaction != nil {
			out = append(out, ev)
		}
	}
	return out
}

// A run gives up after three failures; the next one tries again (example 27).
func TestTailGivesUp(t *testing.T) {
	for name, do := range map[string]func([]*session.Event) (flow.Summary, error){
		"fails":    func([]*session.Event) (flow.Summary, error) { return flow.Summary{}, errors.New("down") },
		"declines": func([]*session.Event) (flow.Summary, error) { return flow.Summary{}, nil },
		"panics":   func([]*session.Event) (flow.Summary, error) { panic("lost it") },
		"only thinks": func([]*session.Event) (flow.Summary, error) {
			return flow.Summary{Content: &genai.Content{Parts: []*genai.Part{{Text: "hm", Thought: true}}}}, nil
		},
	} {
		s := &summarizer{do: do}
		w := busy(t, 6, s)
		if w.say("go"); s.n != 3 {
			t.Errorf("%s: tried %d times, want 3", name, s.n)
		}
		if w.say("again"); s.n <= 3 || len(w.summaries()) != 0 {
			t.Errorf("%s: tried %d times, %d summaries", name, s.n, len(w.summaries()))
		}
	}
}

// After a summary the run makes no other before its requests were short again.
func TestTailOnce(t *testing.T) {
	s := &summarizer{}
	w := busy(t, 6, s)
	w.cfg.Hooks = []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
		if ev.Actions.Compaction != nil {
			t.Error("a hook saw a summary of tail retention")
		}
		return nil, nil
	}}}
	o := w.say("go")
	if s.n != 1 || len(w.summaries()) != 1 {
		t.Errorf("%d summaries, %d are stored", s.n, len(w.summaries()))
	}
	for _, ev := range o.events {
		if ev.Actions.Compaction != nil {
			t.Error("a summary was shown")
		}
	}
}

// An agent that sees the current turn only sees the question that began it, also when
// a summary is stored in the middle of the turn: its record is no message of the user.
func TestSummaryIsNoTurn(t *testing.T) {
	s := &summarizer{}
	w := busy(t, 4, s)
	w.agent.IncludeContents = flow.IncludeNone
	w.model.Steps = append([][]flowtest.Reply{flowtest.Say("hi")}, w.model.Steps...)
	after := 0 // requests
	w.model.OnRequest = func(req *flow.Request, _ bool) {
		if len(w.summaries()) == 0 {
			return
		}
		after++
		if got := shown(req.Contents); len(got) < 2 || got[0] != "user go" {
			t.Errorf("request %d behind the summary is %q", after, got)
		}
	}
	w.say("before")
	if w.say("go"); after < 3 {
		t.Errorf("%d requests behind the summary", after)
	}
}

// A summary is thrown away if an event came into its span meanwhile (example 36).
func TestTailRace(t *testing.T) {
	s := &summarizer{}
	w := busy(t, 3, s)
	s.do = func(events []*session.Event) (flow.Summary, error) {
		ev := &session.Event{ID: fmt.Sprint("late", s.n), Time: events[0].Time.Add(time.Nanosecond), InvocationID: "other", Author: "user"}
		ev.Content = genai.NewContentFromText("late", genai.RoleUser)
		if err := w.store.Append(context.Background(), home, ev); err != nil {
			t.Error(err)
		}
		return flow.Summary{Content: genai.NewContentFromText("SUMMARY", genai.RoleModel)}, nil
	}
	if w.say("go"); s.n < 2 || len(w.summaries()) != 0 {
		t.Errorf("%d tries, %d summaries are stored", s.n, len(w.summaries()))
	}
}

// lateStore stores an event just before it stores a summary, in the summary's span.
type lateStore struct {
	session.Store
	done bool
}

func (s *lateStore) Append(ctx context.Context, key session.Key, ev *session.Event) error {
	if c := ev.Actions.Compaction; c != nil && !s.done {
		s.done = true
		late := &session.Event{ID: "late", Time: c.Start.Add(time.Nanosecond), InvocationID: "other", Author: "user"}
		late.Content = genai.NewContentFromText("late", genai.RoleUser)
		if err := s.Store.Append(ctx, key, late); err != nil {
			return err
		}
	}
	return s.Store.Append(ctx, key, ev)
}

func TestSummaryIsRepaired(t *testing.T) {
	w := newWorld(t, flowtest.Say("one"), flowtest.Say("two"))
	w.store = &lateStore{Store: w.store}
	w.cfg.Compaction = &flow.Compaction{Interval: 1, Summarizer: &summarizer{}}
	w.say("hello")
	all := w.summaries()
	if len(all) != 2 || len(all[1].Actions.Compaction.Excluded) != 1 || all[1].Actions.Compaction.Excluded[0].InvocationID != "other" {
		t.Fatalf("summaries %s", toJSON(t, all))
	}
	var seen []string
	w.model.OnRequest = func(req *flow.Request, _ bool) { seen = shown(req.Contents) }
	w.say("and now?")
	if got, want := strings.Join(seen, " | "), "model SUMMARY | user late | user and_now?"; got != want {
		t.Errorf("the model saw %s, want %s", got, want)
	}
}

func TestSlidingWindowEnds(t *testing.T) {
	down := &summarizer{do: func([]*session.Event) (flow.Summary, error) { return flow.Summary{}, errors.New("down") }}
	hook := func(err error) []flow.Hooks {
		return []flow.Hooks{{OnEvent: func(_ *flow.CallbackContext, ev *session.Event) (*session.Event, error) {
			if ev.Actions.Compaction == nil {
				c := ev.Clone() // a hook cannot make a summary of what is none
				c.Actions.Compaction = &session.Compaction{Content: genai.NewContentFromText("FORGED", genai.RoleModel)}
				return c, nil
			}
			ev.Actions.Compaction.Content.Parts[0].Text = "FORGED" // nor change one in place
			ev.Content = genai.NewContentFromText("FORGED", genai.RoleModel)
			return nil, err
		}}}
	}
	for _, c := range []struct {
		name       string
		steps      []flowtest.Reply
		summarizer *summarizer
		hooks      []flow.Hooks
		stop       bool
		err        string
		summaries  int
	}{
		{"good", flowtest.Say("hi"), &summarizer{}, nil, false, "", 1},
		{"hooks that forge", flowtest.Say("hi"), &summarizer{}, hook(nil), false, "", 1},
		{"hook fails", flowtest.Say("hi"), &summarizer{}, hook(errors.New("no")), false, "context compaction failed: post-invocation: sliding-window summarization failed: no", 0},
		{"summarizer fails", flowtest.Say("hi"), down, nil, false, "context compaction failed: post-invocation: sliding-window summarization failed: down", 0},
		{"nothing to sum up", flowtest.Say("hi"), &summarizer{do: func([]*session.Event) (flow.Summary, error) { return flow.Summary{}, nil }}, nil, false, "", 0},
		{"the run fails", []flowtest.Reply{{Err: errors.New("503")}}, &summarizer{}, nil, false, "503", 0},
		{"the consumer stops", flowtest.Say("hi"), &summarizer{}, nil, true, "", 1},
		{"the consumer stops, summarizer fails", flowtest.Say("hi"), down, nil, true, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.steps)
			w.cfg.Hooks = c.hooks
			w.cfg.Compaction = &flow.Compaction{Interval: 1, Summarizer: c.summarizer}
			failed := ""
			for _, err := range w.runner().Run(t.Context(), home, flow.Text("go")) {
				if err != nil {
					failed = err.Error()
					if strings.HasPrefix(failed, "context") && !errors.Is(err, flow.ErrCompaction) {
						t.Error("the error does not match ErrCompaction")
					}
				}
				if c.stop {
					break
				}
			}
			all := w.summaries()
			if failed != c.err || len(all) != c.summaries {
				t.Fatalf("error %q, %d summaries, want %q and %d", failed, len(all), c.err, c.summaries)
			}
			for _, ev := range all {
				if got := ev.Actions.Compaction.Content.Parts[0].Text; got != "SUMMARY" || ev.Content != nil {
					t.Errorf("summary %q, content %v", got, ev.Content)
				}
			}
		})
	}
}

// The default is the agent's own model, with what shapes a text of its configuration.
func TestModelSums(t *testing.T) {
	for _, c := range []struct {
		reply   flowtest.Reply
		failure string
	}{
		{flowtest.Say("in short")[0], ""},
		{flowtest.Reply{Err: errors.New("503")}, "503"},
		{flowtest.Reply{Response: &session.Response{ErrorCode: "SAFETY", ErrorMessage: "no"}}, "model: SAFETY: no"},
		{flowtest.Reply{Response: &session.Response{Content: genai.NewContentFromText("in sho", genai.RoleModel), FinishReason: genai.FinishReasonMaxTokens}}, "model: stopped: MAX_TOKENS"},
	} {
		w := newWorld(t, flowtest.Say("answer"), []flowtest.Reply{c.reply})
		temperature := float32(0.5)
		w.agent.GenerateConfig = &genai.GenerateContentConfig{Temperature: &temperature, MaxOutputTokens: 7}
		w.cfg.Compaction = &flow.Compaction{Interval: 1}
		var last *flow.Request
		w.model.OnRequest = func(req *flow.Request, _ bool) { last = req }
		o := w.run(flow.Text("question"))
		if text := last.Contents[0].Parts[0].Text; !strings.HasSuffix(text, "\nuser: question\nagent: answer\n") ||
			*last.Config.Temperature != 0.5 || last.Config.MaxOutputTokens != 0 {
			t.Errorf("request %s", toJSON(t, last.Contents))
		}
		if c.failure != "" {
			if len(o.errs) != 1 || !strings.HasSuffix(o.errs[0].Error(), ": "+c.failure) {
				t.Errorf("errors %v, want %s", o.errs, c.failure)
			}
			continue
		}
		if all := w.summaries(); len(all) != 1 || all[0].Actions.Compaction.Content.Parts[0].Text != "in short" || len(o.errs) != 0 {
			t.Errorf("errors %v, summaries %s", o.errs, toJSON(t, all))
		}
	}
}
