package sqlite

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/civil"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

var key = session.Key{Tenant: "t", App: "a", User: "u", ID: "s"}

// numbers have no float64 that keeps their text.
func numbers() map[string]any {
	return map[string]any{"big": json.Number("9007199254740993"), "one": json.Number("1.0"), "deep": []any{map[string]any{"e": json.Number("1E+2")}},
		"text": "<a> & \u2028 \x00 \U0001f600", "yes": true, "nothing": nil, "html": "<b>"}
}

// parts has one part of every kind that genai knows.
func parts() map[string]*genai.Part {
	yes, half := true, 0.5
	return map[string]*genai.Part{
		"text":              {Text: "hello\x00<world>\u2028"},
		"thought":           {Text: "hm", Thought: true, ThoughtSignature: []byte{0, 255, '<', '"'}},
		"inline data":       {InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte{0, 1, 254, 255}, DisplayName: "dot"}},
		"file":              {FileData: &genai.FileData{FileURI: "gs://b/o?x=1&y=2", MIMEType: "text/plain", DisplayName: "o"}},
		"video":             {FileData: &genai.FileData{FileURI: "v"}, VideoMetadata: &genai.VideoMetadata{FPS: &half, StartOffset: 2 * time.Second, EndOffset: time.Minute}},
		"function call":     {FunctionCall: &genai.FunctionCall{ID: "c1", Name: "f", Args: numbers()}, ThoughtSignature: []byte("sig")},
		"partial call":      {FunctionCall: &genai.FunctionCall{Name: "f", WillContinue: &yes, PartialArgs: []*genai.PartialArg{{JsonPath: "$.a", NumberValue: &half}, {JsonPath: "$.b", StringValue: "x"}}}},
		"function response": {FunctionResponse: &genai.FunctionResponse{ID: "c1", Name: "f", Response: numbers(), Scheduling: genai.FunctionResponseSchedulingSilent, Parts: []*genai.FunctionResponsePart{{InlineData: &genai.FunctionResponseBlob{MIMEType: "a/b", Data: []byte{7, 0}}}}}},
		"code":              {ExecutableCode: &genai.ExecutableCode{Code: "print(1 < 2)", Language: genai.LanguagePython, ID: "x"}},
		"code result":       {CodeExecutionResult: &genai.CodeExecutionResult{Outcome: genai.OutcomeOK, Output: "True\n", ID: "x"}},
		"tool call":         {ToolCall: &genai.ToolCall{ID: "t1", ToolType: genai.ToolTypeGoogleSearchWeb, Args: numbers()}},
		"tool response":     {ToolResponse: &genai.ToolResponse{ID: "t1", ToolType: genai.ToolTypeGoogleSearchWeb, Response: numbers()}},
		"resolution":        {InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte{1}}, MediaResolution: &genai.PartMediaResolution{Level: genai.PartMediaResolutionLevelMediaResolutionLow}},
		"metadata":          {Text: "x", PartMetadata: numbers()},
		"transcription":     {InlineData: &genai.Blob{MIMEType: "audio/pcm", Data: []byte{1}}, AudioTranscription: &genai.Transcription{Text: "hi", Finished: true, StartOffset: 3 * time.Second}},
		"speech":            {Text: "hi", SpeechMetadata: &genai.SpeechMetadata{}},
		"media processing":  {InlineData: &genai.Blob{MIMEType: "audio/pcm", Data: []byte{1}}, MediaProcessing: "X"},
	}
}

// TestParts: what is read equals what was appended, for every kind of part, and
// after the file was closed and opened again.
func TestParts(t *testing.T) {
	all := parts()
	covered := map[string]bool{}
	for _, p := range all {
		v := reflect.ValueOf(*p)
		for f, value := range v.Fields() {
			covered[f.Name] = covered[f.Name] || !value.IsZero()
		}
	}
	for f := range reflect.TypeFor[genai.Part]().Fields() {
		if !covered[f.Name] {
			t.Errorf("no case has a genai.Part with %s", f.Name)
		}
	}
	path := filepath.Join(t.TempDir(), "s.db")
	s := openStore(t, path)
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	var want []*session.Event
	for name, part := range all {
		ev := &session.Event{ID: name, Time: time.Date(2026, 3, 2, 12, 0, 0, 123456789, time.FixedZone("", 3600)), Author: "a",
			Response: session.Response{Content: &genai.Content{Role: "model", Parts: []*genai.Part{part, nil, {Text: "end"}}}}}
		if err := s.Append(t.Context(), key, ev); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want = append(want, ev)
	}
	again := openStore(t, path)
	for _, s := range []*Store{s, again} {
		sess, err := s.Get(t.Context(), key)
		if err != nil || len(sess.Events) != len(want) {
			t.Fatalf("%v, %d events, want %d", err, len(sess.Events), len(want))
		}
		for i, got := range sess.Events {
			if !got.Time.Equal(want[i].Time) {
				t.Errorf("%s: time %s, want %s", got.ID, got.Time, want[i].Time)
			}
			if !reflect.DeepEqual(got.Content, want[i].Content) {
				t.Errorf("%s:\n got %s\nwant %s", got.ID, asJSON(t, got), asJSON(t, want[i]))
			}
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fullEvent has every member of an event but partial, which is never stored.
func fullEvent() *session.Event {
	return &session.Event{ID: "e\x00<1>", Time: time.Date(2026, 3, 2, 12, 0, 0, 5, time.UTC), InvocationID: "run", Author: "agent", Branch: "b", IsolationScope: "i",
		Response: session.Response{
			Content: genai.NewContentFromText("text", genai.RoleModel), TurnComplete: true, Interrupted: true, ErrorCode: "code", ErrorMessage: "message", FinishReason: genai.FinishReasonStop,
			Usage: &genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 7, PromptTokensDetails: []*genai.ModalityTokenCount{{Modality: genai.MediaModalityText, TokenCount: 3}}},
			Grounding: &genai.GroundingMetadata{WebSearchQueries: []string{"q"}, GroundingChunks: []*genai.GroundingChunk{{Web: &genai.GroundingChunkWeb{URI: "u"}}},
				GroundingSupports: []*genai.GroundingSupport{{ConfidenceScores: []float32{0.1}}}},
			Citation:           &genai.CitationMetadata{Citations: []*genai.Citation{{URI: "u", EndIndex: 4, PublicationDate: civil.Date{Year: 2026, Month: 3, Day: 2}}}},
			InputTranscription: &genai.Transcription{Text: "in"}, OutputTranscription: &genai.Transcription{Text: "out", Finished: true, EndOffset: time.Second},
		},
		LongRunningToolIDs: []string{"c"},
		Actions: session.Actions{
			StateDelta: numbers(), ArtifactDelta: map[string]int64{"file": math.MaxInt64},
			RequestedConfirmations: map[string]session.Confirmation{"c": {Hint: "hint", Confirmed: true, Payload: numbers()}},
			SkipSummarization:      true, Escalate: true, TransferToAgent: "other",
		}}
}

func TestWholeEvent(t *testing.T) {
	want := fullEvent()
	for f, v := range reflect.ValueOf(*want).Fields() {
		if v.IsZero() {
			t.Errorf("no Event.%s", f.Name)
		}
	}
	for f, v := range reflect.ValueOf(want.Response).Fields() {
		if v.IsZero() && f.Name != "Partial" {
			t.Errorf("no Response.%s", f.Name)
		}
	}
	s := openStore(t, filepath.Join(t.TempDir(), "s.db"))
	if _, err := s.Create(t.Context(), key, map[string]any{"k\x00": "v\x00", "user:": "no name"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), key, want); err != nil {
		t.Fatal(err)
	}
	sess, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if got := sess.Events[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", asJSON(t, got), asJSON(t, want))
	}
	state := numbers()
	state["k\x00"], state["user:"] = "v\x00", "no name"
	if !reflect.DeepEqual(sess.State, state) || !sess.Updated.Equal(want.Time) {
		t.Errorf("state %s, want %s; updated %s", asJSON(t, sess.State), asJSON(t, state), sess.Updated)
	}
}

// TestStoredForm: files of this version can be read by the next one.
func TestStoredForm(t *testing.T) {
	golden := filepath.Join("testdata", "event.json")
	text, err := encode(fullEvent())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text+"\n" != string(want) {
		t.Errorf("an event is stored as\n%s\nwant\n%s", text, want)
	}
	var read session.Event
	if err := decode(string(want), &read); err != nil || !reflect.DeepEqual(&read, fullEvent()) {
		t.Errorf("%v: read %s", err, asJSON(t, &read))
	}
}

// TestBytesAreKept: documents that are compared by digest come back byte for byte.
func TestBytesAreKept(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "s.db"))
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	raw := json.RawMessage("{ \"a\" : \"<\\u003c\",\n\"n\": 1.0e+2 }")
	at := time.Date(2026, 3, 2, 12, 0, 0, 1, time.FixedZone("", -7200))
	q := session.Question{ID: "q", Session: key, Args: raw, Given: json.RawMessage{}, Asked: at, Tool: "\xff"}
	if err := s.Ask(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	q.State, q.By, q.Decided, q.Payload = session.Approved, "eve", at, raw
	got, err := s.Decide(t.Context(), key, "q", session.Decision{Approve: true, By: "eve", At: at, Payload: raw})
	if err != nil || asText(got) != asText(q) {
		t.Errorf("%v: decided %s, want %s", err, asText(got), asText(q))
	}
	all, err := s.Questions(t.Context(), key)
	if err != nil || len(all) != 1 || asText(all[0]) != asText(q) || !all[0].Expires.IsZero() || !all[0].Decided.Equal(at) {
		t.Errorf("%v: stored %+v, want %+v", err, all, q)
	}
	if err := s.BeginCall(t.Context(), session.Call{Session: key, ID: session.CallID{Call: "c"}, Began: at}); err != nil {
		t.Fatal(err)
	}
	if err := s.EndCall(t.Context(), key, session.CallID{Call: "c"}, session.CallEnd{State: session.CallDone, Result: raw}); err != nil {
		t.Fatal(err)
	}
	calls, err := s.Calls(t.Context(), key)
	if err != nil || string(calls[0].Result) != string(raw) || !calls[0].Ended.IsZero() || !calls[0].Began.Equal(at) {
		t.Errorf("%v: stored %+v", err, calls)
	}
}

func asText(q session.Question) string {
	return strings.Join([]string{q.ID, q.Tool, string(q.Args), string(q.Given), q.By, string(q.State), string(q.Payload)}, "|")
}

// TestNoJSON: what cannot be kept is refused, and has no effect.
func TestNoJSON(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "s.db"))
	if _, err := s.Create(t.Context(), key, map[string]any{"a": "1", "n": math.NaN()}); err == nil {
		t.Fatal("NaN was stored")
	}
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatalf("after a refused create: %v", err)
	}
	ev := &session.Event{ID: "e", Actions: session.Actions{StateDelta: map[string]any{"a": "1", "f": func() {}}}}
	if err := s.Append(t.Context(), key, ev); err == nil || !strings.Contains(err.Error(), "event e") {
		t.Fatalf("got %v, want an error that names the event", err)
	}
	if sess, err := s.Get(t.Context(), key); err != nil || len(sess.Events) != 0 || len(sess.State) != 0 {
		t.Errorf("%v: %+v", err, sess)
	}
}

// TestUsers: every user that has a session of the app is named once.
func TestUsers(t *testing.T) {
	store, err := Open(filepath.Join(t.TempDir(), "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, key := range []session.Key{{App: "shop", User: "bo", ID: "1"}, {App: "shop", User: "ana", ID: "1"}, {App: "shop", User: "ana", ID: "2"},
		{App: "other", User: "eve", ID: "1"}, {Tenant: "acme", App: "shop", User: "zoe", ID: "1"}} {
		if _, err := store.Create(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	users, err := store.Users(t.Context(), "", "shop")
	if err != nil || !slices.Equal(users, []string{"ana", "bo"}) {
		t.Errorf("users %q, %v", users, err)
	}
}
