package flow_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
)

func TestWordMemory(t *testing.T) {
	m := flow.NewWordMemory()
	said := func(key session.Key, texts ...string) *session.Session {
		s := &session.Session{Key: key}
		for i, text := range texts {
			ev := &session.Event{Author: "user", Time: time.Unix(int64(i), 0)}
			ev.Content = genai.NewContentFromText(text, genai.RoleUser)
			s.Events = append(s.Events, ev)
		}
		return s
	}
	other := func(edit func(*session.Key)) session.Key { k := home; k.ID = "s0"; edit(&k); return k }
	m.Add(said(home, "old text, replaced"))
	m.Add(said(home, "I prefer Celsius.", "Über 30 Grad"))
	m.Add(said(other(func(*session.Key) {}), "celsius again"))
	m.Add(said(other(func(k *session.Key) { k.Tenant = "evil" }), "celsius of a tenant"))
	m.Add(said(other(func(k *session.Key) { k.App = "bank" }), "celsius of an app"))
	m.Add(said(other(func(k *session.Key) { k.User = "bob" }), "celsius of a user"))
	for query, want := range map[string][]string{
		"CELSIUS?":      {"I prefer Celsius.", "celsius again"},
		"über":          {"Über 30 Grad"},
		"30 or Celsius": {"I prefer Celsius.", "Über 30 Grad", "celsius again"},
		"cels":          nil,
		"replaced":      nil,
		"":              nil,
	} {
		found, err := m.Search(t.Context(), home, query)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range found {
			got = append(got, e.Content.Parts[0].Text)
		}
		if toJSON(t, got) != toJSON(t, want) {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
}

// What a model reads of memories has the names of our documents, not ADK's of its Go
// fields, and no member that says nothing.
func TestLoadMemoryResult(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "load_memory", `{"query":"celsius"}`)))
	earlier := &session.Session{Key: home, Events: []*session.Event{{Author: "user", Time: time.Date(2029, 5, 1, 12, 0, 0, 5, time.FixedZone("", 7200))}, {Author: "agent"}}}
	earlier.Events[0].Content = genai.NewContentFromText("I prefer Celsius.", genai.RoleUser)
	earlier.Events[1].Content = genai.NewContentFromText("Celsius, then.", genai.RoleModel)
	memory := flow.NewWordMemory()
	memory.Add(earlier)
	w.cfg.Memory, w.agent.Tools = memory, []flow.Tool{flow.LoadMemory()}
	want := `{"memories":[{"author":"user","content":{"parts":[{"text":"I prefer Celsius."}],"role":"user"},"timestamp":"2029-05-01T12:00:00+02:00"},` +
		`{"author":"agent","content":{"parts":[{"text":"Celsius, then."}],"role":"model"}}]}`
	if got := w.say("go").response("c1"); got != want {
		t.Errorf("the model reads %s, want %s", got, want)
	}
}

// Without a memory its tools say so: one to the model, one to the run.
func TestNoMemory(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "load_memory", `{"query":"x"}`)))
	w.agent.Tools = []flow.Tool{flow.LoadMemory()}
	if got := w.say("go").errorOf("c1"); got != flow.ErrNoMemory.Error() {
		t.Errorf("error %q", got)
	}
	w = newWorld(t)
	w.agent.Tools = []flow.Tool{flow.PreloadMemory()}
	if o := w.run(flow.Text("go")); len(o.errs) != 1 || !errors.Is(o.errs[0], flow.ErrNoMemory) {
		t.Errorf("errors %v", o.errs)
	}
}
