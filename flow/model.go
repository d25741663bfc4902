package flow

import (
	"context"
	"iter"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// A Model answers requests. Implementations must be safe for concurrent use.
//
// Generate yields one response, or with stream set any number of partial ones
// followed by the aggregate of them all, which is not partial. A failure that
// ends the answer is the error; a refusal or stop that the provider reports in
// its answer is [session.Response.ErrorCode]. Generate returns when ctx ends,
// and does not keep or change req.
type Model interface {
	Name() string
	Generate(ctx context.Context, req *Request, stream bool) iter.Seq2[*session.Response, error]
}

// A Backend tells apart the services that speak Gemini's protocol. ADK's rules
// for schemas and display names depend on it.
type Backend string

// The backends. A model that is none of them is the zero value.
const (
	GeminiAPI Backend = "gemini_api"
	VertexAI  Backend = "vertex_ai"
)

// A BackendReporter is a [Model] that knows its backend.
type BackendReporter interface {
	Backend() Backend
}

// A Request is what a model is asked. Tools that are offered to the model are
// declared in Config.Tools; the table of what can be executed stays in the host.
type Request struct {
	Model    string
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig // never nil once the request is built

	tools  *toolTable
	edited bool   // somebody but the model may change it
	by     string // who offers what is packed now; empty: a hook
}

// AppendInstructions adds text to the system instruction, separated from what is
// there by a blank line.
func (r *Request) AppendInstructions(texts ...string) {
	for _, text := range texts {
		if text == "" {
			continue
		}
		if r.Config.SystemInstruction == nil {
			r.Config.SystemInstruction = genai.NewContentFromText(text, genai.RoleUser)
			continue
		}
		r.joinInstruction(text)
	}
}

// joinInstruction adds text, which may be empty, to an instruction if there is one.
func (r *Request) joinInstruction(text string) {
	if r.Config.SystemInstruction == nil {
		return
	}
	parts := r.Config.SystemInstruction.Parts
	if n := len(parts); n > 0 && parts[n-1] != nil && parts[n-1].Text != "" {
		joined := *parts[n-1]
		joined.Text += "\n\n" + text
		parts[n-1] = &joined
		return
	}
	r.Config.SystemInstruction.Parts = append(parts, genai.NewPartFromText(text))
}

// ExecutableTools returns the names of the tools that can be executed in answer
// to this request, sorted.
func (r *Request) ExecutableTools() []string { return r.tools.names() }
