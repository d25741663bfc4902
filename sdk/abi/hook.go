package abi

import "encoding/json"

// A HookPoint is a place where hooks run. The points and their order are ADK's.
type HookPoint string

// The hook points.
const (
	OnUserMessage HookPoint = "on_user_message"
	BeforeRun     HookPoint = "before_run"
	AfterRun      HookPoint = "after_run"
	OnEvent       HookPoint = "on_event"
	BeforeAgent   HookPoint = "before_agent"
	AfterAgent    HookPoint = "after_agent"
	BeforeModel   HookPoint = "before_model"
	AfterModel    HookPoint = "after_model"
	OnModelError  HookPoint = "on_model_error"
	BeforeTool    HookPoint = "before_tool"
	AfterTool     HookPoint = "after_tool"
	OnToolError   HookPoint = "on_tool_error"
)

// HookPoints lists the hook points in the order in which a run meets them.
func HookPoints() []HookPoint {
	return []HookPoint{OnUserMessage, BeforeRun, BeforeAgent, BeforeModel, OnModelError, AfterModel,
		BeforeTool, OnToolError, AfterTool, OnEvent, AfterAgent, AfterRun}
}

func validHookPoint(p HookPoint) bool {
	for _, q := range HookPoints() {
		if p == q {
			return true
		}
	}
	return false
}

// A HookCall is the input of a hook. Members that the point does not have are
// absent. Contents, requests, responses and events are in the JSON form of the
// Gemini REST API.
type HookCall struct {
	Format int       `json:"format"` // Version
	Kind   Kind      `json:"kind"`   // KindHook
	Hook   HookPoint `json:"hook"`
	Agent  string    `json:"agent,omitempty"`

	Tool   string          `json:"tool,omitempty"` // tool points
	CallID string          `json:"call_id,omitempty"`
	Args   json.RawMessage `json:"args,omitempty"`   // tool points: an object
	Result json.RawMessage `json:"result,omitempty"` // after_tool: an object

	Request  json.RawMessage `json:"request,omitempty"`  // before_model, on_model_error
	Response json.RawMessage `json:"response,omitempty"` // after_model
	Content  json.RawMessage `json:"content,omitempty"`  // on_user_message
	Event    json.RawMessage `json:"event,omitempty"`    // on_event

	Error  string            `json:"error,omitempty"` // on_model_error, on_tool_error, after_tool, after_model
	Config map[string]string `json:"config,omitempty"`
}

// A HookAnswer is the output of a hook.
//
// Answer is what the hook returns in ADK's sense, and the first hook with an
// answer ends its chain: a result at the tool points, a response at the model
// points, a content at the agent and run points, an event at on_event. Args,
// Result, Request and Response are documents the hook changed in place; they
// replace what it received and do not end the chain. Error means that the hook
// failed.
type HookAnswer struct {
	Format   int             `json:"format"` // Version
	Answer   json.RawMessage `json:"answer,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"`     // before_tool
	Result   json.RawMessage `json:"result,omitempty"`   // after_tool
	Request  json.RawMessage `json:"request,omitempty"`  // before_model
	Response json.RawMessage `json:"response,omitempty"` // after_model
	Error    string          `json:"error,omitempty"`
}
