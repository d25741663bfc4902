package sessiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// racers is how many goroutines meet where only one may win.
const racers = 100

var (
	home = session.Key{Tenant: "acme", App: "shop", User: "ada", ID: "s1"}
	noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
)

// with returns home with one change.
func with(change func(*session.Key)) session.Key {
	k := home
	change(&k)
	return k
}

// neighbours are keys that differ from home in one member.
func neighbours() map[string]session.Key {
	return map[string]session.Key{
		"another tenant":  with(func(k *session.Key) { k.Tenant = "evil" }),
		"no tenant":       with(func(k *session.Key) { k.Tenant = "" }),
		"another app":     with(func(k *session.Key) { k.App = "bank" }),
		"another user":    with(func(k *session.Key) { k.User = "bob" }),
		"another session": with(func(k *session.Key) { k.ID = "s2" }),
	}
}

func create(t *testing.T, s session.Store, keys ...session.Key) {
	t.Helper()
	for _, key := range keys {
		if _, err := s.Create(t.Context(), key, nil); err != nil {
			t.Fatalf("create %+v: %v", key, err)
		}
	}
}

func get(t *testing.T, s session.Store, key session.Key) *session.Session {
	t.Helper()
	sess, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %+v: %v", key, err)
	}
	return sess
}

func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: error %v, want one that is %q", what, err, target)
	}
}

// sameJSON compares values by what they are in JSON, with the text of numbers.
func sameJSON(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	w, err := json.Marshal(want)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if string(g) != string(w) {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func textEvent(id, text string) *session.Event {
	return &session.Event{ID: id, Time: noon, InvocationID: "run", Author: "user",
		Response: session.Response{Content: genai.NewContentFromText(text, genai.RoleUser)}}
}

func stateEvent(id string, delta map[string]any) *session.Event {
	ev := textEvent(id, "state")
	ev.Actions.StateDelta = delta
	return ev
}

func testCreate(t *testing.T, s session.Store) {
	sess, err := s.Create(t.Context(), home, map[string]any{"color": "red"})
	if err != nil {
		t.Fatal(err)
	}
	if sess.Key != home || len(sess.Events) != 0 || sess.State["color"] != "red" {
		t.Errorf("created %+v", sess)
	}
	_, err = s.Create(t.Context(), home, map[string]any{"color": "blue", "app:color": "blue"})
	want(t, "create again", err, session.ErrExists)
	sameJSON(t, "state after a refused create", get(t, s, home).State, map[string]any{"color": "red"})
	for name, key := range neighbours() {
		if _, err := s.Create(t.Context(), key, nil); err != nil {
			t.Errorf("create %s beside: %v", name, err)
		}
	}
}

func testKey(t *testing.T, s session.Store) {
	good := []string{"a", "ä b", "with/slash", "..", "100%", "'; drop table sessions; --", "_", strings.Repeat("x", 128)}
	for _, id := range good {
		key := with(func(k *session.Key) { k.ID = id })
		create(t, s, key)
		if got := get(t, s, key).Key; got != key {
			t.Errorf("id %q: got key %+v", id, got)
		}
	}
	for name, bad := range map[string]string{"empty": "", "long": strings.Repeat("x", 129), "NUL": "a\x00b", "line": "a\nb", "no UTF-8": "a\xff",
		"bidirectional": "a\u202eb", "zero width": "a\u200bb"} {
		for _, key := range []session.Key{with(func(k *session.Key) { k.App = bad }), with(func(k *session.Key) { k.User = bad }), with(func(k *session.Key) { k.ID = bad })} {
			if _, err := s.Create(t.Context(), key, nil); err == nil {
				t.Errorf("create with %s member: %+v was accepted", name, key)
			}
		}
	}
}

func testGet(t *testing.T, s session.Store) {
	_, err := s.Get(t.Context(), home)
	want(t, "get before create", err, session.ErrNotFound)
	create(t, s, home)
	for name, key := range neighbours() {
		_, err := s.Get(t.Context(), key)
		want(t, "get "+name, err, session.ErrNotFound)
	}
	if err := s.Append(t.Context(), home, textEvent("e1", "hi")); err != nil {
		t.Fatal(err)
	}
	before := get(t, s, home)
	if err := s.Append(t.Context(), home, textEvent("e2", "there")); err != nil {
		t.Fatal(err)
	}
	if len(before.Events) != 1 {
		t.Errorf("a session that was read has %d events after an append, want 1", len(before.Events))
	}
}

func testList(t *testing.T, s session.Store) {
	create(t, s, with(func(k *session.Key) { k.ID = "b" }), with(func(k *session.Key) { k.ID = "a" }), with(func(k *session.Key) { k.ID = "c" }),
		with(func(k *session.Key) { k.Tenant = "evil" }), with(func(k *session.Key) { k.User = "bob" }), with(func(k *session.Key) { k.App = "bank" }))
	keys, err := s.List(t.Context(), home.Tenant, home.App, home.User)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, k := range keys {
		if k.Tenant != home.Tenant || k.App != home.App || k.User != home.User {
			t.Errorf("listed %+v", k)
		}
		ids = append(ids, k.ID)
	}
	if !reflect.DeepEqual(ids, []string{"a", "b", "c"}) {
		t.Errorf("listed %q, want a, b, c", ids)
	}
	if keys, err := s.List(t.Context(), "nobody", home.App, home.User); err != nil || len(keys) != 0 {
		t.Errorf("sessions of nobody: %v, %v", keys, err)
	}
}

func testDelete(t *testing.T, s session.Store) {
	want(t, "delete before create", s.Delete(t.Context(), home), session.ErrNotFound)
	other := with(func(k *session.Key) { k.ID = "s2" })
	create(t, s, home, other)
	if err := s.Append(t.Context(), home, stateEvent("e1", map[string]any{"a": "1", "user:u": "2", "app:p": "3"})); err != nil {
		t.Fatal(err)
	}
	if err := s.BeginCall(t.Context(), aCall("c1", 0)); err != nil {
		t.Fatal(err)
	}
	if err := s.Ask(t.Context(), aQuestion("q1")); err != nil {
		t.Fatal(err)
	}
	for name, key := range neighbours() {
		if key != other {
			want(t, "delete "+name, s.Delete(t.Context(), key), session.ErrNotFound)
		}
	}
	if err := s.Delete(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), home)
	want(t, "get after delete", err, session.ErrNotFound)
	want(t, "delete again", s.Delete(t.Context(), home), session.ErrNotFound)
	_, err = s.Decide(t.Context(), home, "q1", session.Decision{Approve: true, At: noon})
	want(t, "decide after delete", err, session.ErrNotFound)
	want(t, "end call after delete", s.EndCall(t.Context(), home, session.CallID{Run: "run", Call: "c1"}, session.CallEnd{State: session.CallDone}), session.ErrNotFound)
	sameJSON(t, "shared state after delete", get(t, s, other).State, map[string]any{"user:u": "2", "app:p": "3"})
	create(t, s, home) // begins empty
	if sess := get(t, s, home); len(sess.Events) != 0 || sess.State["a"] != nil {
		t.Errorf("created again: %+v", sess)
	}
	if calls, err := s.Calls(t.Context(), home); err != nil || len(calls) != 0 {
		t.Errorf("created again: calls %v, %v", calls, err)
	}
	if questions, err := s.Questions(t.Context(), home); err != nil || len(questions) != 0 {
		t.Errorf("created again: questions %v, %v", questions, err)
	}
}

func testAppendOrder(t *testing.T, s session.Store) {
	create(t, s, home)
	for i := range 50 {
		ev := textEvent(fmt.Sprintf("e%d", 50-i), fmt.Sprint(i))
		ev.Time = noon.Add(-time.Duration(i) * time.Second) // neither id nor time gives the order
		if err := s.Append(t.Context(), home, ev); err != nil {
			t.Fatal(err)
		}
	}
	for i, ev := range get(t, s, home).Events {
		if ev.Text() != fmt.Sprint(i) {
			t.Fatalf("event %d is %q", i, ev.Text())
		}
	}
}

func testAppendRefuses(t *testing.T, s session.Store) {
	other := with(func(k *session.Key) { k.ID = "s2" })
	create(t, s, home, other)
	want(t, "append to no session", s.Append(t.Context(), with(func(k *session.Key) { k.Tenant = "evil" }), textEvent("e1", "x")), session.ErrNotFound)
	if err := s.Append(t.Context(), home, textEvent("e1", "first")); err != nil {
		t.Fatal(err)
	}
	want(t, "append the same id", s.Append(t.Context(), home, stateEvent("e1", map[string]any{"a": "1", "app:a": "1"})), session.ErrExists)
	partial := stateEvent("e2", map[string]any{"a": "1", "app:a": "1"})
	partial.Partial = true
	if s.Append(t.Context(), home, partial) == nil {
		t.Error("a partial event was stored")
	}
	if s.Append(t.Context(), home, stateEvent("", map[string]any{"a": "1", "app:a": "1"})) == nil {
		t.Error("an event without id was stored")
	}
	sess := get(t, s, home)
	if len(sess.Events) != 1 || sess.Events[0].Text() != "first" || len(sess.State) != 0 {
		t.Errorf("refused appends had an effect: %d events, state %v", len(sess.Events), sess.State)
	}
	if err := s.Append(t.Context(), other, textEvent("e1", "x")); err != nil {
		t.Errorf("the same id in another session: %v", err)
	}
}

func testAppendRaces(t *testing.T, s session.Store) {
	create(t, s, home)
	var wg sync.WaitGroup
	var won sync.Map
	for i := range racers {
		wg.Go(func() {
			if err := s.Append(t.Context(), home, stateEvent(fmt.Sprintf("own%d", i), map[string]any{fmt.Sprintf("k%d", i): "v"})); err != nil {
				t.Errorf("append %d: %v", i, err)
			}
			switch err := s.Append(t.Context(), home, textEvent("same", "x")); {
			case err == nil:
				won.Store(i, true)
			case !errors.Is(err, session.ErrExists):
				t.Errorf("append the same id: %v", err)
			}
		})
	}
	wg.Wait()
	n := 0
	won.Range(func(any, any) bool { n++; return true })
	sess := get(t, s, home)
	if n != 1 || len(sess.Events) != racers+1 || len(sess.State) != racers {
		t.Errorf("%d of %d appends of one id won; %d events, want %d; %d state keys, want %d", n, racers, len(sess.Events), racers+1, len(sess.State), racers)
	}
}

func testScopes(t *testing.T, s session.Store) {
	keys := neighbours()
	sameUser, otherUser, otherApp, otherTenant := keys["another session"], keys["another user"], keys["another app"], keys["another tenant"]
	create(t, s, home, sameUser, otherUser, otherApp, otherTenant)
	delta := map[string]any{"s": "session", "user:u": "user", "app:a": "app", "temp:t": "temp", "null": nil, "deep": map[string]any{"list": []any{"x", true}}}
	if err := s.Append(t.Context(), home, stateEvent("e1", delta)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		key  session.Key
		want map[string]any
	}{
		{"home", home, map[string]any{"s": "session", "user:u": "user", "app:a": "app", "null": nil, "deep": map[string]any{"list": []any{"x", true}}}},
		{"same user", sameUser, map[string]any{"user:u": "user", "app:a": "app"}},
		{"another user", otherUser, map[string]any{"app:a": "app"}},
		{"another app", otherApp, map[string]any{}},
		{"another tenant", otherTenant, map[string]any{}},
	} {
		sameJSON(t, c.name, get(t, s, c.key).State, c.want)
	}
	sameJSON(t, "the stored delta", get(t, s, home).Events[0].Actions.StateDelta, delta)
	if err := s.Append(t.Context(), otherUser, stateEvent("e1", map[string]any{"app:a": "new", "s": "mine"})); err != nil {
		t.Fatal(err)
	}
	sess := get(t, s, home)
	if sess.State["app:a"] != "new" || sess.State["s"] != "session" {
		t.Errorf("after another user's write: %v", sess.State)
	}
}

func testCreateState(t *testing.T, s session.Store) {
	sess, err := s.Create(t.Context(), home, map[string]any{"s": "1", "user:u": "2", "app:a": "3", "temp:t": "4"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"s": "1", "user:u": "2", "app:a": "3", "temp:t": "4"}
	sameJSON(t, "created", sess.State, all)
	sameJSON(t, "read", get(t, s, home).State, all)
	other := with(func(k *session.Key) { k.ID = "s2" })
	create(t, s, other)
	sameJSON(t, "beside", get(t, s, other).State, map[string]any{"user:u": "2", "app:a": "3"})
}

func testNumbers(t *testing.T, s session.Store) {
	create(t, s, home)
	numbers := map[string]any{}
	for i, text := range []string{"9007199254740993", "1.0", "1e400", "-0", "0.10", "1E+2"} {
		numbers[fmt.Sprint("n", i)] = json.Number(text)
	}
	ev := stateEvent("e1", numbers)
	ev.Content.Parts = append(ev.Content.Parts,
		&genai.Part{FunctionCall: &genai.FunctionCall{ID: "c", Name: "f", Args: map[string]any{"all": session.CloneMap(numbers)}}},
		&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "c", Name: "f", Response: map[string]any{"all": session.CloneMap(numbers)}}})
	if err := s.Append(t.Context(), home, ev); err != nil {
		t.Fatal(err)
	}
	sess := get(t, s, home)
	sameJSON(t, "state", sess.State, numbers)
	sameJSON(t, "arguments", sess.Events[0].Calls()[0].Args["all"], numbers)
	sameJSON(t, "response", sess.Events[0].Responses()[0].Response["all"], numbers)
}

// fullEvent has something in every member that can be shared by mistake.
func fullEvent() *session.Event {
	return &session.Event{ID: "full", Time: noon, InvocationID: "run", Author: "agent", Branch: "b", IsolationScope: "i",
		Response: session.Response{
			Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{
				{Text: "text"},
				{FunctionCall: &genai.FunctionCall{ID: "c", Name: "f", Args: map[string]any{"deep": map[string]any{"list": []any{"a", "b"}}}}},
				{FunctionResponse: &genai.FunctionResponse{ID: "c", Name: "f", Response: map[string]any{"deep": map[string]any{"list": []any{"a", "b"}}}}},
				{InlineData: &genai.Blob{MIMEType: "text/plain", Data: []byte("blob")}},
				{FileData: &genai.FileData{FileURI: "file"}},
			}},
			TurnComplete: true, ErrorCode: "code", ErrorMessage: "message", FinishReason: genai.FinishReasonStop,
			Usage:               &genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 7},
			InputTranscription:  &genai.Transcription{Text: "in"},
			OutputTranscription: &genai.Transcription{Text: "out"},
		},
		LongRunningToolIDs: []string{"c"},
		Actions: session.Actions{
			StateDelta:    map[string]any{"deep": map[string]any{"list": []any{"a", "b"}}},
			ArtifactDelta: map[string]int64{"file": 3},
			RequestedConfirmations: map[string]session.Confirmation{
				"c": {Hint: "hint", Payload: map[string]any{"list": []any{"a", "b"}}}},
			SkipSummarization: true, Escalate: true, TransferToAgent: "other",
		}}
}

// spoil writes to everything in an event that a caller may write to.
func spoil(ev *session.Event) {
	deep := func(m map[string]any) {
		if inner, ok := m["deep"].(map[string]any); ok {
			m = inner
		}
		if list, ok := m["list"].([]any); ok {
			list[0] = "spoiled"
		}
		m["new"] = "spoiled"
	}
	for _, p := range ev.Content.Parts {
		p.Text += "spoiled"
		switch {
		case p.FunctionCall != nil:
			p.FunctionCall.Name = "spoiled"
			deep(p.FunctionCall.Args)
		case p.FunctionResponse != nil:
			p.FunctionResponse.Name = "spoiled"
			deep(p.FunctionResponse.Response)
		case p.InlineData != nil:
			p.InlineData.MIMEType = "spoiled"
		case p.FileData != nil:
			p.FileData.FileURI = "spoiled"
		}
	}
	ev.Content.Parts[0] = nil
	ev.Content.Role = "spoiled"
	ev.Author = "spoiled"
	ev.Usage.TotalTokenCount = 0
	ev.InputTranscription.Text = "spoiled"
	ev.OutputTranscription.Text = "spoiled"
	ev.LongRunningToolIDs[0] = "spoiled"
	deep(ev.Actions.StateDelta)
	ev.Actions.ArtifactDelta["file"] = 0
	deep(ev.Actions.RequestedConfirmations["c"].Payload.(map[string]any))
	delete(ev.Actions.RequestedConfirmations, "c")
}

func testSessionCopies(t *testing.T, s session.Store) {
	state := map[string]any{"deep": map[string]any{"list": []any{"a"}}, "user:deep": map[string]any{"list": []any{"a"}}, "app:deep": map[string]any{"list": []any{"a"}}}
	made, err := s.Create(t.Context(), home, state)
	if err != nil {
		t.Fatal(err)
	}
	wantState := session.CloneMap(state)
	spoilState := func(m map[string]any) {
		for _, v := range m {
			v.(map[string]any)["list"].([]any)[0] = "spoiled"
		}
		m["new"] = "spoiled"
	}
	spoilState(state)
	spoilState(made.State)
	read := get(t, s, home)
	sameJSON(t, "state after its givers and readers changed theirs", read.State, wantState)
	spoilState(read.State)
	sameJSON(t, "state after a reader changed it", get(t, s, home).State, wantState)

	ev := fullEvent()
	ev.Actions.StateDelta = map[string]any{"other": map[string]any{"list": []any{"a", "b"}}, "deep": ev.Actions.StateDelta["deep"]}
	wantEvent := ev.Clone()
	if err := s.Append(t.Context(), home, ev); err != nil {
		t.Fatal(err)
	}
	spoil(ev)
	read = get(t, s, home)
	sameJSON(t, "event after its giver changed it", read.Events[0], wantEvent)
	spoil(read.Events[0])
	read.Events[0] = nil
	read = get(t, s, home)
	sameJSON(t, "event after a reader changed it", read.Events[0], wantEvent)
	sameJSON(t, "state after events were changed", read.State["deep"], wantEvent.Actions.StateDelta["deep"])
	sameJSON(t, "state after events were changed", read.State["other"], wantEvent.Actions.StateDelta["other"])
}
