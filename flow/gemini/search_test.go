package gemini_test

import (
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/flow/gemini"
	"github.com/sandboxd/sandboxd/session"
)

// The search is in the configuration and in no table: nothing here can be called.
func TestGoogleSearch(t *testing.T) {
	var searches, executable int
	model := &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("found")}, OnRequest: func(req *flow.Request, _ bool) {
		for _, tool := range req.Config.Tools {
			if tool.GoogleSearch != nil && tool.FunctionDeclarations == nil {
				searches++
			}
		}
		executable = len(req.ExecutableTools())
	}}
	store, key := session.NewMemory(), session.Key{App: "a", User: "u", ID: "s"}
	if _, err := store.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	r, err := flow.NewRunner(&flow.Agent{Name: "a", Model: model, Tools: []flow.Tool{gemini.GoogleSearch()}}, store, flow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.Run(t.Context(), key, flow.Text("look it up")) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if searches != 1 || executable != 0 {
		t.Errorf("%d searches, %d tools that can be executed", searches, executable)
	}
}
