// Package flowtest helps to test agents: a model that says what it is told to, and
// tools and guards that do.
package flowtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
)

// A Reply is one thing a model says in answer to a request: a response, or an
// error that ends the answer.
type Reply struct {
	Response *session.Response
	Err      error
}

// A Model answers its n-th request with its n-th step, whatever it is asked. It
// is safe for concurrent use. A request past the last step is an error.
type Model struct {
	ModelName string // default "scripted-model"
	Steps     [][]Reply
	// OnRequest, if set, sees each request before it is answered. It must not
	// keep or change it.
	OnRequest func(req *flow.Request, stream bool)
	On        flow.Backend // what [flow.BackendReporter] says

	mu   sync.Mutex
	next int
}

// Name implements [flow.Model].
func (m *Model) Name() string {
	if m.ModelName == "" {
		return "scripted-model"
	}
	return m.ModelName
}

// Backend implements [flow.BackendReporter].
func (m *Model) Backend() flow.Backend { return m.On }

// Requests returns how many requests there were.
func (m *Model) Requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// Generate implements [flow.Model].
func (m *Model) Generate(ctx context.Context, req *flow.Request, stream bool) iter.Seq2[*session.Response, error] {
	return func(yield func(*session.Response, error) bool) {
		m.mu.Lock()
		n := m.next
		m.next++
		m.mu.Unlock()
		if m.OnRequest != nil {
			m.OnRequest(req, stream)
		}
		if n >= len(m.Steps) {
			yield(nil, fmt.Errorf("flowtest: request %d of a model with %d steps", n+1, len(m.Steps)))
			return
		}
		for _, r := range m.Steps[n] {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if r.Err != nil {
				yield(nil, r.Err)
				return
			}
			if r.Response == nil {
				yield(nil, errors.New("flowtest: empty reply"))
				return
			}
			resp := *r.Response
			resp.Content = session.CloneContent(resp.Content)
			if !yield(&resp, nil) {
				return
			}
		}
	}
}

// Say returns a step that answers with text.
func Say(text string) []Reply {
	return []Reply{{Response: &session.Response{Content: genai.NewContentFromText(text, genai.RoleModel)}}}
}

// Call returns a step that asks for calls.
func Call(calls ...*genai.FunctionCall) []Reply {
	c := &genai.Content{Role: genai.RoleModel}
	for _, call := range calls {
		c.Parts = append(c.Parts, &genai.Part{FunctionCall: call})
	}
	return []Reply{{Response: &session.Response{Content: c}}}
}
