package flow

import (
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// Hooks may change what happens at the points that ADK's plugins and callbacks
// have. Every function is optional. At each point the runner's hooks go first,
// then the agent's, each list in order; the first that returns something other
// than nil ends the chain. Hooks run in the goroutine of the step, but tool
// hooks of parallel calls run in parallel.
//
// A panic in a hook is an error of that hook.
type Hooks struct {
	Name string // for logs and audit

	// OnUserMessage may replace the message that starts a run.
	OnUserMessage func(ctx *CallbackContext, message *genai.Content) (*genai.Content, error)
	// BeforeRun may answer instead of the agent.
	BeforeRun func(ctx *CallbackContext) (*genai.Content, error)
	// AfterRun runs when a run has ended, however it ended.
	AfterRun func(ctx *CallbackContext)
	// OnEvent may replace an event before it is stored and shown. It is not
	// called for the user's message. An error drops the event.
	OnEvent func(ctx *CallbackContext, event *session.Event) (*session.Event, error)

	// BeforeAgent may answer instead of the agent; AfterAgent may add a last event.
	BeforeAgent func(ctx *CallbackContext) (*genai.Content, error)
	AfterAgent  func(ctx *CallbackContext) (*genai.Content, error)

	// BeforeModel may change the request in place, or answer it. AfterModel may
	// change or replace each response, partial ones included; it does not see
	// what BeforeModel answered. OnModelError may turn an error into a response
	// or another error.
	BeforeModel  func(ctx *CallbackContext, req *Request) (*session.Response, error)
	AfterModel   func(ctx *CallbackContext, resp *session.Response) (*session.Response, error)
	OnModelError func(ctx *CallbackContext, req *Request, err error) (*session.Response, error)

	// BeforeTool may change the arguments in place, or answer the call: a
	// result that is not nil, even an empty one, skips the handler. OnToolError
	// may turn an error into a result or another error. AfterTool may change
	// the result in place, or replace result and error. Streaming tools skip
	// all three, as in ADK; guards do not.
	BeforeTool  func(ctx *ToolContext, call *ToolCall) (map[string]any, error)
	AfterTool   func(ctx *ToolContext, call *ToolCall, result map[string]any, err error) (map[string]any, error)
	OnToolError func(ctx *ToolContext, call *ToolCall, err error) (map[string]any, error)
}

// A ToolCall is a call as tool hooks see it. Args belong to this call alone;
// changes made by BeforeTool reach the next hook, the guards and the handler.
type ToolCall struct {
	ID   string
	Name string
	Spec *Spec // nil if there is no such tool
	Args map[string]any
}
