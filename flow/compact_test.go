package flow

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// The tables of this file are the worked examples of ADK's compaction. An event is
// written NAME@INVOCATION:TIME, followed by /BRANCH, #SCOPE, ! for an event that lists
// its calls as long-running, and ?ID for a requested confirmation. A NAME is a text (of
// the user, if it begins with u), or c:, r: and p: with ids of calls and responses.
// A summary is written S[START-END] with -INVOCATION:TIME for what it excludes.

func at(seconds string) time.Time {
	f, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		panic(err)
	}
	return time.Unix(0, int64(f*1e9)).UTC()
}

func parseEvents(text string) []*session.Event {
	var out []*session.Event
	for n, word := range strings.Fields(text) {
		if name, span, ok := strings.Cut(word, "["); ok {
			out = append(out, parseRecord(n, name, span))
			continue
		}
		name, rest, _ := strings.Cut(word, "@")
		e := &session.Event{ID: word, Author: "agent"}
		if i := strings.IndexByte(rest, '?'); i >= 0 {
			e.Actions.RequestedConfirmations = map[string]session.Confirmation{rest[i+1:]: {}}
			rest = rest[:i]
		}
		rest, long := strings.CutSuffix(rest, "!")
		rest, e.IsolationScope, _ = strings.Cut(rest, "#")
		rest, e.Branch, _ = strings.Cut(rest, "/")
		inv, when, _ := strings.Cut(rest, ":")
		e.InvocationID, e.Time = inv, at(when)
		e.Content = &genai.Content{Role: genai.RoleModel}
		kind, list, isCall := strings.Cut(name, ":")
		switch {
		case isCall:
			for id := range strings.SplitSeq(list, ",") {
				if kind == "c" {
					e.Content.Parts = append(e.Content.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "f"}})
				} else {
					e.Content.Role = genai.RoleUser
					e.Content.Parts = append(e.Content.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "f"}})
				}
				if long {
					e.LongRunningToolIDs = []string{id}
					long = false // the first
				}
			}
		case name[0] == 'u':
			e.Author, e.Content = "user", genai.NewContentFromText(name, genai.RoleUser)
		default:
			e.Content.Parts = []*genai.Part{genai.NewPartFromText(name)}
		}
		out = append(out, e)
	}
	return out
}

// parseRecord reads START-END]-INV:TIME…; nothing between the brackets has no content.
func parseRecord(n int, name, text string) *session.Event {
	span, holes, _ := strings.Cut(text, "]")
	start, end, _ := strings.Cut(span, "-")
	holes, branch, _ := strings.Cut(holes, "/")
	e := &session.Event{ID: fmt.Sprint(name, n), Author: "user", Branch: branch}
	e.Actions.Compaction = &session.Compaction{Start: at(start), End: at(end)}
	if name != "empty" {
		e.Actions.Compaction.Content = genai.NewContentFromText(name, genai.RoleModel)
	}
	for hole := range strings.SplitSeq(holes, "-") {
		if inv, when, ok := strings.Cut(hole, ":"); ok {
			e.Actions.Compaction.Excluded = append(e.Actions.Compaction.Excluded, session.EventRef{InvocationID: inv, Time: at(when)})
		}
	}
	return e
}

// nameOf writes a content as the tables do.
func nameOf(c *genai.Content, record bool) string {
	var kinds []string
	for _, p := range parts(c) {
		switch {
		case p.FunctionCall != nil:
			kinds = append(kinds, "c:"+p.FunctionCall.ID)
		case p.FunctionResponse != nil:
			kinds = append(kinds, "r:"+p.FunctionResponse.ID)
		case record:
			kinds = append(kinds, "<"+p.Text+">")
		default:
			kinds = append(kinds, p.Text)
		}
	}
	return strings.Join(kinds, "+")
}

func (w window) names() string {
	var out []string
	for _, e := range w {
		out = append(out, nameOf(e.Content, isRecord(e)))
	}
	return strings.Join(out, " ")
}

// seer is an agent at a place; on says whether its run compacts.
func seer(on bool, p Placement) *agentRun {
	r := &Runner{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}
	if on {
		r.cfg.Compaction = &Compaction{}
	}
	return &agentRun{place: place{run: &run{Runner: r}, branch: p.Branch, scope: p.IsolationScope}, agent: &Agent{Name: "agent"}}
}

// prompt is what the agent is shown of events, before calls and responses are sorted.
func (f *agentRun) prompt(events []*session.Event) string {
	in := f.visible(events)
	if f.cfg.Compaction != nil {
		in = applyRecords(in)
	}
	var out []string
	for _, v := range in {
		out = append(out, nameOf(v.content, isRecord(v.event)))
	}
	return strings.Join(out, " ")
}

// pass sums up a window, if there is one, and says what was summed up.
func pass(events []*session.Event, w window, name string) ([]*session.Event, string) {
	if len(w) == 0 {
		return events, "none"
	}
	e := &session.Event{ID: name, Author: "user", Branch: w[0].Branch, IsolationScope: w[0].IsolationScope}
	e.Actions.Compaction = w.record(genai.NewContentFromText(name, genai.RoleModel), events)
	c := e.Actions.Compaction
	said := fmt.Sprintf("%s [%s,%s]", w.names(), seconds(c.Start), seconds(c.End))
	for _, x := range c.Excluded {
		said += fmt.Sprintf(" -%s:%s", x.InvocationID, seconds(x.Time))
	}
	return append(events, e), said
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixNano())/1e9, 'f', -1, 64)
}

func TestSlidingWindow(t *testing.T) {
	const two = "u1@i1:1 m1@i1:2 u2@i2:3 m2@i2:4"
	const four = two + " S1[1-4] u3@i3:6 m3@i3:7 u4@i4:8 m4@i4:9"
	for _, c := range []struct {
		name, events      string
		interval, overlap int
		passes            []string
		prompt            string
	}{
		{"1", "u1@i1:1 m1@i1:2", 2, 0, []string{"none"}, "u1 m1"},
		{"2", two, 2, 0, []string{"u1 m1 u2 m2 [1,4]", "none"}, "<S1>"},
		{"3", two + " S1[1-4] u3@i3:6 m3@i3:7", 2, 0, []string{"none"}, "<S1> u3 m3"},
		{"4", four, 2, 0, []string{"u3 m3 u4 m4 [6,9]"}, "<S1> <S1>"},
		{"5", four, 2, 1, []string{"u2 m2 u3 m3 u4 m4 [3,9]"}, "<S1> <S1>"},
		{"6", two + " u3@i3:6 m3@i3:7 u4@i4:8 m4@i4:9 u5@i5:10 m5@i5:11", 2, 0,
			[]string{"u1 m1 u2 m2 [1,4]", "u3 m3 u4 m4 [6,9]", "none"}, "<S1> <S2> u5 m5"},
		{"7", "u1@i1:1 m1@i1:2 u2@i2:3 c:x@i2:4!", 2, 0, []string{"u1 m1 u2 [1,3]"}, "<S1> c:x"},
		{"8", "u1@i1:1 c:x@i1:2! u2@i2:3 m2@i2:4 u3@i3:5 m3@i3:6", 2, 0, []string{"u1 [1,1]", "u2 m2 [3,4]"}, "<S1> c:x <S2> u3 m3"},
		{"9", "c:x@i1:1 r:x@i1:2 c:y@i1:2", 1, 0, []string{"none"}, "c:x r:x c:y"},
		{"10", "u1@i1:1 c:x@i1:2 r:x@i1:3 m1@i1:3 c:y@i1:4", 1, 0, []string{"u1 c:x r:x m1 [1,3]"}, "<S1> c:y"},
		{"11", "u1@i1:1 a@i1:2 b1@i1:3/sub b2@i1:4/sub m1@i1:5 u2@i2:6 m2@i2:7", 2, 0,
			[]string{"u1 a [1,2]", "b1 b2 [3,4]", "m1 u2 m2 [5,7]", "none"}, "<S1> <S2> <S3>"},
		{"12", "u1@i1:1 c:x@i1:2 r:x@i1:3?x c:k@i1:4! u2@i2:5 m2@i2:6 u3@i3:7 m3@i3:8", 2, 0,
			[]string{"u1 [1,1]", "u2 m2 [5,6]"}, "<S1> c:x r:x c:k <S2> u3 m3"},
		{"13", "u1@i1:1 u2@i2:2 m2@i2:3 m1@i1:4 u3@i3:5 m3@i3:6", 2, 0, []string{"u1 u2 m2 m1 [1,4]"}, "<S1> u3 m3"},
		{"14", "u1@i1:1 c:@i1:2 u2@i2:3 m2@i2:4", 2, 0, []string{"u1 [1,1]", "u2 m2 [3,4]", "none"}, "<S1> c: <S2>"},
		{"what no run said", "u1@i1:1 n@:2 m1@i1:3", 1, 0, []string{"u1 n m1 [1,3]"}, "<S1>"},
		{"an earlier response is not torn off", "c:x@i1:1! u2@i2:2 r:x@i2:3 m2@i2:4 u3@i3:5", 2, 0, []string{"c:x u2 r:x m2 [1,4]"}, "<S1> u3"},
		{"a head that the rest answers stays", "c:x@i1:1! c:y@i2:2! r:x@i2:3 u2@i2:4", 2, 0, []string{"u2 [4,4]"}, "c:x c:y r:x <S1>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := parseEvents(c.events)
			for i, want := range c.passes {
				var got string
				if events, got = pass(events, slidingWindow(events, c.interval, c.overlap), fmt.Sprint("S", i+1)); got != want {
					t.Errorf("pass %d: %s, want %s", i+1, got, want)
				}
			}
			if got := seer(true, Placement{}).prompt(events); got != c.prompt {
				t.Errorf("prompt %s, want %s", got, c.prompt)
			}
		})
	}
}

func TestTailWindow(t *testing.T) {
	const three = "u1@i1:1 c:1@i1:2 r:1@i1:3 c:2@i1:4 r:2@i1:5 c:3@i1:6 r:3@i1:7"
	const five = three + " S1[2-5] c:4@i1:9 r:4@i1:10 c:5@i1:11 r:5@i1:12"
	branches := "u1@i:1 a1@i:2/A b1@i:3/B a2@i:4/A a3@i:5/A a4@i:6/A"
	for _, c := range []struct {
		name, events, current string
		at                    Placement
		retention             int
		window, prompt        string
	}{
		{"15", "u1@i1:1 m1@i1:2 u2@i2:3", "i2", Placement{}, 2, "none", "u1 m1 u2"},
		{"16", "u1@i1:1 m1@i1:2 u2@i2:3", "i2", Placement{}, 1, "u1 [1,1]", "<S> m1 u2"},
		{"17", three, "i1", Placement{}, 2, "c:1 r:1 c:2 r:2 [2,5]", "u1 <S> c:3 r:3"},
		{"18", three, "i1", Placement{}, 1, "c:1 r:1 c:2 r:2 [2,5]", "u1 <S> c:3 r:3"},
		{"19", five, "i1", Placement{}, 2, "<S1> c:3 r:3 c:4 r:4 [2,10]", "u1 <S> c:5 r:5"},
		{"20", five + " S2[2-10] m1@i1:21 u2@i2:22", "i2", Placement{}, 1, "<S2> u1 c:5 r:5 [1,12]", "<S> m1 u2"},
		{"21", "e0@i:.5 e1@i:1 e2@i:2 e3@i:2 e4@i:3", "cur", Placement{}, 2, "e0 e1 [0.5,1]", "<S> e2 e3 e4"},
		{"22", "e1@i:2 e2@i:2 e3@i:2", "cur", Placement{}, 1, "none", "e1 e2 e3"},
		{"23", branches, "i", Placement{Branch: "A"}, 2, "a1 a2 [2,4] -i:3", "u1 <S> a3 a4"},
		{"24", "u1@i:1 c:T@i:2 t1@i:3#T t2@i:4#T t3@i:5#T t4@i:6#T", "i", Placement{IsolationScope: "T"}, 1, "t1 t2 t3 [3,5]", "<S> t4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := parseEvents(c.events)
			f := seer(true, c.at)
			w := tailWindow(events, c.at, f.sees, c.current, c.retention)
			events, got := pass(events, w, "S")
			if got != c.window {
				t.Errorf("window %s, want %s", got, c.window)
			}
			if got := f.prompt(events); got != c.prompt {
				t.Errorf("prompt %s, want %s", got, c.prompt)
			}
			if c.name != "23" {
				return
			}
			for branch, want := range map[string]string{"B": "u1 b1", "": "u1 <S> b1 a3 a4"} {
				if got := seer(true, Placement{Branch: branch}).prompt(events); got != want {
					t.Errorf("prompt on branch %q: %s, want %s", branch, got, want)
				}
			}
		})
	}
}

func TestPromptTokens(t *testing.T) {
	long := strings.Repeat("u", 400)
	events := parseEvents("m1@i1:1 " + long + "@i2:2")
	events[0].Usage = &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 900}
	f := seer(true, Placement{})
	if got := f.promptTokens(events); got != 1000 { // example 25
		t.Errorf("%d tokens, want 900 counted and 100 estimated", got)
	}
	events[0].Branch = "B"
	if got := seer(true, Placement{Branch: "A"}).promptTokens(events); got != 100 { // example 26
		t.Errorf("%d tokens, want what agent on A sees", got)
	}
	calls := parseEvents("u1@i1:1 c:x@i1:2 r:x@i1:3")
	calls[1].Content.Parts[0].FunctionCall.Args = map[string]any{"a": "ü"}            // f, {"a":"ü"}
	calls[2].Content.Parts[0].FunctionResponse.Response = map[string]any{"b": "1234"} // f, {"b":"1234"}
	if got := f.promptTokens(calls); got != (2+1+9+1+12)/4 {
		t.Errorf("%d tokens", got)
	}
	if got := f.promptTokens(nil); got != 0 {
		t.Errorf("%d tokens of nothing", got)
	}
}

func TestApplyRecords(t *testing.T) {
	const turns = "u1@i1:1 m1@i1:2 u2@i2:3 m2@i2:4"
	for _, c := range []struct {
		name, events, prompt string
		off                  bool
	}{
		{"28", "u1@i1:1 c:x@i1:2! p:x@i1:3 m1@i1:4 u2@i2:5 m2@i2:6 S[1-6] r:x@i3:9", "<S> c:x r:x", false},
		{"29", "u1@i1:1 c:x,y@i1:2! p:x,y@i1:3 m1@i1:4 u2@i2:5 m2@i2:6 S[1-6] r:x@i3:9", "<S> c:x+c:y r:x+r:y r:x", false},
		{"30", "u1@i1:1 c:x@i1:2 p:x@i1:3 m1@i1:4 S[1-4] r:x@i3:9", "<S> r:x", false},
		{"31, not repaired", "u1@i1:1 m1@i1:2 x@i2:2.5 m2@i1:4 S[1-4]", "<S>", false},
		{"31, repaired", "u1@i1:1 m1@i1:2 x@i2:2.5 m2@i1:4 S[1-4] S[1-4]-i2:2.5", "<S> x", false},
		{"32", turns + " S[1-4] y@i9:3.5 S[1-4]-i9:3.5", "<S> y", false},
		{"33", turns + " empty[1-4]", "u1 m1 u2 m2", false},
		{"34, wide then narrow", turns + " W[1-4] N[2-3]", "<W> <N>", false},
		{"34, narrow then wide", turns + " N[2-3] W[1-4]", "<W>", false},
		{"35", turns + " S[1-4]", "u1 m1 u2 m2", true},
		{"wide with a hole of its own", turns + " N[2-3] W[1-4]-i2:3", "<W> <N>", false},
		{"one that covers nothing", "S[1-4] u3@i3:6", "<S> u3", false},
		{"what comes later is never covered", "S[1-4] u1@i1:2", "<S> u1", false},
		{"on another branch", turns + " S[1-4]/B", "<S>", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := parseEvents(c.events)
			f := seer(!c.off, Placement{})
			if got := f.prompt(events); got != c.prompt {
				t.Errorf("prompt %s, want %s", got, c.prompt)
			}
			_, err := f.assemble(events, events)
			if fails := c.name == "30"; (err != nil) != fails || fails && !strings.HasPrefix(err.Error(), "no function call event found for function responses ids: ") {
				t.Errorf("contents: %v", err)
			}
		})
	}
	if got := seer(true, Placement{Branch: "A"}).prompt(parseEvents(turns + " S[1-4]/B")); got != "u1 m1 u2 m2" {
		t.Errorf("a summary of branch B on branch A: %s", got)
	}
}

func TestCompactionConfig(t *testing.T) {
	withModel := &Agent{Name: "a", Model: namedModel{}}
	for _, c := range []struct {
		c    *Compaction
		root *Agent
		want string
	}{
		{nil, &Agent{Name: "a"}, ""},
		{&Compaction{Interval: 2, Overlap: 1, TokenThreshold: 10, Retention: 1}, withModel, ""},
		{&Compaction{Interval: -1}, withModel, "negative"},
		{&Compaction{}, withModel, "neither an interval nor a token threshold"},
		{&Compaction{Overlap: 1, TokenThreshold: 1, Retention: 1}, withModel, "an overlap without an interval"},
		{&Compaction{TokenThreshold: 1}, withModel, "want a token threshold and a retention, or neither"},
		{&Compaction{Interval: 1, Retention: 1}, withModel, "want a token threshold and a retention, or neither"},
		{&Compaction{Interval: 1}, &Agent{Name: "a"}, "no summarizer, and agent a has no model"},
		{&Compaction{Interval: 1}, &Agent{Name: "s", Type: SequentialAgent, Agents: []*Agent{withModel}}, "no summarizer, and agent s has no model"},
	} {
		_, err := NewRunner(c.root, session.NewMemory(), Config{Compaction: c.c})
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != "invalid Compaction: "+c.want) {
			t.Errorf("%+v: %v, want %q", c.c, err, c.want)
		}
	}
}

type namedModel struct{ Model }

func (namedModel) Name() string { return "m" }

func TestTranscript(t *testing.T) {
	events := parseEvents("u1@i1:1 m1@i1:2 c:x@i1:3 r:x@i1:4")
	events[0].Content.Parts[0].Text = "two\nlines"
	events[1].Content.Parts = append(events[1].Content.Parts, &genai.Part{Text: "hm", Thought: true}, &genai.Part{InlineData: &genai.Blob{MIMEType: "image/png"}})
	events[2].Content.Parts[0].FunctionCall.Args = map[string]any{"b": 1, "a": "x"}
	got, err := transcript(events)
	want := `user: two\nlines
agent: m1
agent (thought): hm
agent: [image/png attachment]
agent called tool: f({"a":"x","b":1})
Tool response from f: null
`
	if err != nil || got != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
	long := parseEvents("u1@i1:1")
	long[0].Content.Parts[0].Text = strings.Repeat("ü", maxTranscriptPart+7)
	if got, err := transcript(long); err != nil || !strings.HasSuffix(got, "ü... [truncated 7 chars]\n") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for range 10 {
		long = append(long, long...)
	}
	if got, err := transcript(long); err != nil || len([]rune(got)) > maxTranscript {
		t.Errorf("%d characters, %v", len([]rune(got)), err)
	}
	long = append(long, long...)
	if _, err := transcript(long); err == nil {
		t.Error("a transcript past the bound was made")
	}
}
