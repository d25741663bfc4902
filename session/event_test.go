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
