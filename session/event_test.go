package session

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"
)

// The record of a compaction is never final, is copied whole, and has ADK's names.
func TestCompactionRecord(t *testing.T) {
	e := &Event{Actions: Actions{SkipSummarization: true, Compaction: &Compaction{Start: time.Unix(1, 0).UTC(), End: time.Unix(2, 0).UTC(),
		Content: genai.NewContentFromText("S", genai.RoleModel), Excluded: []EventRef{{InvocationID: "i", Time: time.Unix(1, 0).UTC()}}}}}
	if e.Final() {
		t.Error("a record is final")
	}
	c := e.Clone()
	c.Actions.Compaction.Content.Parts[0].Text = "changed"
	c.Actions.Compaction.Excluded[0].InvocationID = "changed"
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	want := `"compaction":{"startTimestamp":"1970-01-01T00:00:01Z","endTimestamp":"1970-01-01T00:00:02Z","compactedContent":{"parts":[{"text":"S"}],"role":"model"},` +
		`"excludedEvents":[{"invocationId":"i","timestamp":"1970-01-01T00:00:01Z"}]}`
	if !strings.Contains(string(data), want) {
		t.Errorf("got %s, want %s in it", data, want)
	}
}

// TestFinal: which events can end a step. What ends it early goes before what
// makes an answer whole, and a partial event of that kind ends it too.
func TestFinal(t *testing.T) {
	text := genai.NewContentFromText("hi", genai.RoleModel)
	of := func(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: genai.RoleModel, Parts: parts} }
	call := &genai.Part{FunctionCall: &genai.FunctionCall{Name: "f"}}
	result := &genai.Part{CodeExecutionResult: &genai.CodeExecutionResult{}}
	for _, c := range []struct {
		name  string
		event Event
		want  bool
	}{
		{"text", Event{Response: Response{Content: text}}, true},
		{"nothing", Event{}, true},
		{"thought", Event{Response: Response{Content: of(&genai.Part{Text: "hm", Thought: true})}}, true},
		{"partial", Event{Response: Response{Content: text, Partial: true}}, false},
		{"call", Event{Response: Response{Content: of(call)}}, false},
		{"response", Event{Response: Response{Content: of(&genai.Part{FunctionResponse: &genai.FunctionResponse{}})}}, false},
		{"code result at the end", Event{Response: Response{Content: of(&genai.Part{Text: "a"}, result)}}, false},
		{"code result before a text", Event{Response: Response{Content: of(result, &genai.Part{Text: "a"})}}, true},
		{"call that takes long", Event{Response: Response{Content: of(call)}, LongRunningToolIDs: []string{"1"}}, true},
		{"partial call that takes long", Event{Response: Response{Content: of(call), Partial: true}, LongRunningToolIDs: []string{"1"}}, true},
		{"response without a summary", Event{Response: Response{Content: of(&genai.Part{FunctionResponse: &genai.FunctionResponse{}})}, Actions: Actions{SkipSummarization: true}}, true},
		{"partial without a summary", Event{Response: Response{Content: text, Partial: true}, Actions: Actions{SkipSummarization: true}}, true},
		{"summary of a history", Event{Response: Response{Content: text}, Actions: Actions{SkipSummarization: true, Compaction: &Compaction{}}}, false},
	} {
		if got := c.event.Final(); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
