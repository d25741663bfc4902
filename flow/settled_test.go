package flow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A historian invents events, most of them as an agent makes them and some as
// nobody should.
type historian struct {
	*rand.Rand
	n    int
	open []string // calls without a response
	ids  []string // of calls
}

func (h *historian) one(of ...string) string { return of[h.IntN(len(of))] }

func (h *historian) id() string {
	if len(h.ids) > 0 && h.IntN(12) == 0 {
		return h.ids[h.IntN(len(h.ids))] // again
	}
	if h.IntN(20) == 0 {
		return h.one("", "adk-x")
	}
	return fmt.Sprint("c", len(h.ids))
}

func (h *historian) event() *session.Event {
	h.n++
	e := &session.Event{ID: fmt.Sprint("e", h.n), Time: at(fmt.Sprint(h.n)), InvocationID: fmt.Sprint("i", h.n/8), Author: "agent"}
	e.Content = &genai.Content{Role: genai.RoleModel}
	add := func(p *genai.Part) { e.Content.Parts = append(e.Content.Parts, p) }
	switch kind := h.IntN(40); {
	case len(h.open) > 0 && kind < 24: // answers
		e.Content.Role = genai.RoleUser
		for len(h.open) > 0 {
			add(&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: h.open[0], Name: "f", Response: map[string]any{"n": h.n}}})
			if h.open = h.open[1:]; h.IntN(6) == 0 {
				break
			}
		}
	case kind < 24: // calls
		for range 1 + h.IntN(2) {
			id := h.id()
			add(&genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: "f", Args: map[string]any{"n": h.n}}})
			h.ids, h.open = append(h.ids, id), append(h.open, id)
			if h.IntN(8) == 0 {
				e.LongRunningToolIDs = append(e.LongRunningToolIDs, id)
			}
		}
	case kind < 28:
		add(genai.NewPartFromText(fmt.Sprint("says ", h.n)))
	case kind < 31:
		e.Author, e.Content.Role = "user", genai.RoleUser
		add(genai.NewPartFromText(fmt.Sprint("asks ", h.n)))
	case kind < 33: // an answer from nowhere, or a second one
		e.Content.Role = genai.RoleUser
		add(&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: h.id(), Name: "f", Response: map[string]any{"again": h.n}}})
	case kind < 34:
		e.Content, e.InputTranscription = nil, &genai.Transcription{Text: fmt.Sprint("heard ", h.n)}
	case kind < 35:
		e.Content, e.OutputTranscription = nil, &genai.Transcription{Text: fmt.Sprint("spoke ", h.n)}
	case kind < 36:
		add(&genai.Part{FunctionCall: &genai.FunctionCall{ID: h.id(), Name: confirmationCall}})
	case kind < 37:
		add(nil)
		add(&genai.Part{})
	case kind < 38:
		e.Author = "other"
		add(&genai.Part{FunctionCall: &genai.FunctionCall{ID: h.id(), Name: "g"}})
	default:
		e.Actions.Compaction = &session.Compaction{Start: at("1"), End: at(fmt.Sprint(h.n - h.IntN(6))), Content: genai.NewContentFromText(fmt.Sprint("sum ", h.n), genai.RoleModel)}
	}
	if h.IntN(12) == 0 {
		e.Branch = h.one("a", "a.b", "c")
	}
	if h.IntN(20) == 0 {
		e.IsolationScope = "s"
	}
	return e
}

// What an agent's steps keep of a history makes no difference to what the model
// is sent, whatever is in the history and however it goes on.
func TestSettledContents(t *testing.T) {
	settledOnce := 0
	for seed := range uint64(60) {
		h := &historian{Rand: rand.New(rand.NewPCG(seed, 1))}
		f := seer(seed%3 == 0, Placement{})
		sess := &session.Session{}
		f.sess = sess
		if seed%5 == 0 {
			f.branch = "a"
		}
		if seed%7 == 0 {
			f.agent.IncludeContents = IncludeNone
		}
		for range 30 {
			for range 1 + h.IntN(3) {
				sess.Events = append(sess.Events, h.event())
			}
			if len(h.ids) > 0 && h.IntN(10) == 0 {
				f.showRewritten(h.ids[h.IntN(len(h.ids))], map[string]any{"rewritten": h.n})
			}
			events := sess.Events
			if f.hidesHistory() {
				events = f.currentTurn(events)
			}
			want, wantErr := f.assemble(events, sess.Events)
			got, err := f.contents()
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("seed %d, %d events: error %v, want %v", seed, len(events), err, wantErr)
			}
			if text, wantText := contentsText(t, got), contentsText(t, want); !slices.Equal(text, wantText) {
				t.Fatalf("seed %d, %d events, %d settled:\n%s\nwant\n%s", seed, len(events), f.settled.events, text, wantText)
			}
			if f.settled.events > 0 {
				settledOnce++
			}
		}
	}
	if settledOnce < 400 {
		t.Errorf("only %d of the contents had a settled part", settledOnce)
	}
}

func contentsText(t *testing.T, contents []*genai.Content) (out []string) {
	for _, c := range contents {
		text, err := abi.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}
