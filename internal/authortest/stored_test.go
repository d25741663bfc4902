package authortest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// TestStoredQuestions: what was said and done becomes questions in order, with what
// became of it.
func TestStoredQuestions(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	event := func(author string, parts ...*genai.Part) *session.Event {
		return &session.Event{ID: fmt.Sprint(author, len(parts)), Time: at, InvocationID: "e-1", Author: author, Response: session.Response{Content: &genai.Content{Parts: parts}}}
	}
	call := func(id, name string, args map[string]any) *genai.Part {
		return &genai.Part{FunctionCall: &genai.FunctionCall{ID: id, Name: name, Args: args}}
	}
	answer := func(id, name string, response map[string]any) *genai.Part {
		return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: id, Name: name, Response: response}}
	}
	asked := event("clerk", call("q", "adk_request_confirmation", nil))
	asked.Actions.RequestedConfirmations = map[string]session.Confirmation{"c3": {}}
	sess := &session.Session{Key: session.Key{App: "shop", User: "ana", ID: "s1"}, Events: []*session.Event{
		event("user", &genai.Part{Text: "pay"}),
		event("clerk", call("c1", "pay", map[string]any{"n": 1}), call("c2", "fetch", nil), call("c3", "pay", nil)),
		event("clerk", answer("c1", "pay", map[string]any{"ok": true}), answer("c2", "fetch", map[string]any{"error": "policy_denied: no"}), answer("c3", "pay", map[string]any{"error": "waits"})),
		asked,
		event("clerk", call("c4", "pay", map[string]any{"n": json.Number("1e999")})), // which nobody would keep today
		event("clerk", answer("c4", "pay", map[string]any{"ok": true})),
		event("clerk", &genai.Part{Text: "done"}),
	}}
	grants, err := capability.ParseSet([]string{"log"})
	if err != nil {
		t.Fatal(err)
	}
	list, unread := StoredQuestions(sess, []string{"staff"}, func(tool string) *flow.Spec {
		if tool == "pay" {
			return &flow.Spec{Name: "pay", Effects: abi.Idempotent, Module: "sha256:00", Grants: grants}
		}
		return nil
	}, func(document json.RawMessage) []abi.SecretHit {
		if string(document) == `{"n":1}` {
			return []abi.SecretHit{{Name: "KEY", At: "/n"}}
		}
		return nil
	})
	var lost []string
	for _, u := range unread {
		lost = append(lost, fmt.Sprintf("%s %s %s %s %v %v", u.Phase, u.Call, u.Tool, u.Run, u.At.Equal(at), u.Err != nil))
	}
	if want := []string{"call c4 pay e-1 true true", "result c4 pay e-1 true true"}; !slices.Equal(lost, want) {
		t.Errorf("not read\n%q\nwant\n%q", lost, want)
	}
	var got []string
	for _, s := range list {
		q := s.Question
		line := fmt.Sprintf("%s %s", q.Phase, s.Was)
		if c := q.Call; c != nil {
			line += fmt.Sprintf(" %s %s known=%v %s %s", c.ID, c.Tool, c.Known, c.Effects, c.Args)
		}
		got = append(got, line)
		if q.User.ID != "ana" || !slices.Equal(q.User.Roles, []string{"staff"}) || q.Session != "s1" || q.Run != "e-1" || q.Now != "2026-03-01T09:00:00Z" || q.DocumentSHA256 != abi.Digest(judged(&q)) {
			t.Errorf("%s: %+v", line, q)
		}
		if hit := string(judged(&q)) == `{"n":1}`; hit != (len(q.Facts.SecretHits) == 1) {
			t.Errorf("%s: secrets found %v", line, q.Facts.SecretHits)
		}
		if q.Call != nil && (q.Call.Tool == "pay") != (q.Call.DefinitionSHA256 != "") {
			t.Errorf("%s: definition %q", line, q.Call.DefinitionSHA256)
		}
		if withGrants := q.Phase == abi.PhaseCall && q.Call.Tool == "pay"; withGrants != (len(q.Grants) == 1) {
			t.Errorf("%s: grants %q", line, q.Grants)
		}
	}
	want := []string{
		"message allow",
		`call allow c1 pay known=true idempotent {"n":1}`,
		`call deny c2 fetch known=false once {}`,
		`call confirm c3 pay known=true idempotent {}`,
		`result allow c1 pay known=true idempotent {"n":1}`,
		"response allow",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}
