package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

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

func validHookPoint(p HookPoint) bool { return slices.Contains(HookPoints(), p) }

// A HookCall is the input of a hook. Members that the point does not have are
// absent. Contents, responses and events are in the JSON form of the Gemini REST
// API. A request is an object with the members model, contents and config, where
// config holds what the model is told besides the contents (systemInstruction,
// tools, temperature and so on).
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
// points, a content at the agent and run points, an event at on_event. The others
// are documents the hook changed in place; they replace what it received and do
// not end the chain. Error means that the hook failed.
type HookAnswer struct {
	Format   int             `json:"format"` // Version
	Answer   json.RawMessage `json:"answer,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"`     // before_tool
	Result   json.RawMessage `json:"result,omitempty"`   // after_tool
	Request  json.RawMessage `json:"request,omitempty"`  // before_model
	Response json.RawMessage `json:"response,omitempty"` // after_model
	Content  json.RawMessage `json:"content,omitempty"`  // on_user_message
	Event    json.RawMessage `json:"event,omitempty"`    // on_event
	Error    string          `json:"error,omitempty"`
}

// ParseHookAnswer decodes what a hook returned at point and checks that it holds
// only what the point allows: documents are objects, and an answer that failed
// holds nothing else. after_run has no answer. An answer of null is no answer.
func ParseHookAnswer(data []byte, point HookPoint) (HookAnswer, error) {
	var a HookAnswer
	if err := Decode(data, &a); err != nil {
		return HookAnswer{}, err
	}
	if err := a.check(point); err != nil {
		return HookAnswer{}, fmt.Errorf("hook answer at %s: %w", point, err)
	}
	if string(a.Answer) == "null" {
		a.Answer = nil
	}
	return a, nil
}

func (a *HookAnswer) check(point HookPoint) error {
	if a.Format != Version {
		return fmt.Errorf("format %d: want %d", a.Format, Version)
	}
	for _, m := range []struct {
		name  string
		value json.RawMessage
		here  bool
	}{
		{"answer", a.Answer, point != AfterRun},
		{"args", a.Args, point == BeforeTool},
		{"result", a.Result, point == AfterTool},
		{"request", a.Request, point == BeforeModel},
		{"response", a.Response, point == AfterModel},
		{"content", a.Content, point == OnUserMessage},
		{"event", a.Event, point == OnEvent},
	} {
		switch {
		case m.value == nil:
		case !m.here:
			return fmt.Errorf("%s has no place here", m.name)
		case a.Error != "":
			return errors.New("error and a document")
		case m.value[0] != '{' && !(m.name == "answer" && string(m.value) == "null"):
			return fmt.Errorf("%s is no object", m.name)
		}
	}
	return nil
}
