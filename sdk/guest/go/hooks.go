package guest

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Hooks are the places of a run at which a plugin takes part; the points and
// their order are ADK's. A nil field takes no part.
//
// A hook may change what it is given, in place, and return nil: the run goes on
// with the change. What it returns instead is its answer, which ends the chain of
// hooks at this point. An error fails what the run was about to do.
type Hooks struct {
	OnUserMessage func(c *Call, message *Content) (*Content, error) // the answer replaces the message
	BeforeRun     func(c *Call) (*Content, error)                   // an answer ends the run
	AfterRun      func(c *Call) error
	BeforeAgent   func(c *Call) (*Content, error)                         // an answer is what the agent says, without having run
	AfterAgent    func(c *Call) (*Content, error)                         // an answer is said after the agent
	BeforeModel   func(c *Call, r *ModelRequest) (*ModelResponse, error)  // an answer stands for the model's
	AfterModel    func(c *Call, r *ModelResponse) (*ModelResponse, error) // the answer replaces the response
	OnModelError  func(c *Call, r *ModelRequest) (*ModelResponse, error)  // an answer stands for the error, which is [Call.Cause]
	BeforeTool    func(c *Call, t *ToolCall) (any, error)                 // an answer stands for the handler's result
	AfterTool     func(c *Call, t *ToolCall) (any, error)                 // the answer replaces the result
	OnToolError   func(c *Call, t *ToolCall) (any, error)                 // an answer stands for the error, which is [Call.Cause]
	OnEvent       func(c *Call, e *Event) (*Event, error)                 // the answer replaces the event
}

// A ToolCall is a call of a tool as hooks see it. An answer of a hook to it must
// be an object in JSON. Args may be changed in BeforeTool, Result in AfterTool;
// changes elsewhere count for nothing.
type ToolCall struct {
	Name   string
	ID     string
	Args   Document
	Result Document // AfterTool
}

// A hookFunc runs a hook. It returns the answer, nil for none.
type hookFunc func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (answer any, err error)

func (h Hooks) add(s *server) error {
	if len(s.hooks) > 0 {
		return fmt.Errorf("hooks: there twice")
	}
	set := func(point abi.HookPoint, there bool, f hookFunc) {
		if there {
			s.manifest.Hooks = append(s.manifest.Hooks, point)
			s.hooks[point] = f
		}
	}
	set(abi.OnUserMessage, h.OnUserMessage != nil, func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (any, error) {
		return edit(c, "content", in.Content, &out.Content, h.OnUserMessage)
	})
	set(abi.BeforeRun, h.BeforeRun != nil, func(c *Call, _ *abi.HookCall, _ *abi.HookAnswer) (any, error) { return h.BeforeRun(c) })
	set(abi.AfterRun, h.AfterRun != nil, func(c *Call, _ *abi.HookCall, _ *abi.HookAnswer) (any, error) { return nil, h.AfterRun(c) })
	set(abi.BeforeAgent, h.BeforeAgent != nil, func(c *Call, _ *abi.HookCall, _ *abi.HookAnswer) (any, error) { return h.BeforeAgent(c) })
	set(abi.AfterAgent, h.AfterAgent != nil, func(c *Call, _ *abi.HookCall, _ *abi.HookAnswer) (any, error) { return h.AfterAgent(c) })
	set(abi.BeforeModel, h.BeforeModel != nil, func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (any, error) {
		return edit(c, "request", in.Request, &out.Request, h.BeforeModel)
	})
	set(abi.AfterModel, h.AfterModel != nil, func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (any, error) {
		return edit(c, "response", in.Response, &out.Response, h.AfterModel)
	})
	set(abi.OnModelError, h.OnModelError != nil, func(c *Call, in *abi.HookCall, _ *abi.HookAnswer) (any, error) {
		return edit(c, "request", in.Request, nil, h.OnModelError)
	})
	set(abi.BeforeTool, h.BeforeTool != nil, func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (any, error) {
		return editTool(c, in, &out.Args, nil, h.BeforeTool)
	})
	set(abi.AfterTool, h.AfterTool != nil, func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (any, error) {
		return editTool(c, in, nil, &out.Result, h.AfterTool)
	})
	set(abi.OnToolError, h.OnToolError != nil, func(c *Call, in *abi.HookCall, _ *abi.HookAnswer) (any, error) {
		return editTool(c, in, nil, nil, h.OnToolError)
	})
	set(abi.OnEvent, h.OnEvent != nil, func(c *Call, in *abi.HookCall, out *abi.HookAnswer) (any, error) {
		return edit(c, "event", in.Event, &out.Event, h.OnEvent)
	})
	if len(s.hooks) == 0 {
		return fmt.Errorf("hooks: every one is nil")
	}
	s.warm = append(s.warm, func() {
		_, _ = decode[abi.HookCall]([]byte(`{"format":1,"kind":"hook"}`))
	}, func() {
		_, _ = decode[Event]([]byte(`{"content":{"parts":[{}]}}`))
	}, func() {
		_, _ = abi.Marshal(abi.HookAnswer{Format: abi.Version})
	})
	return nil
}

// edit runs a hook on a document of type T and puts into changed what it is
// afterwards, if that is not what it was.
func edit[T, A any](c *Call, name string, document json.RawMessage, changed *json.RawMessage, f func(*Call, *T) (*A, error)) (any, error) {
	v := new(T)
	if document != nil {
		if err := json.Unmarshal(document, v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if changed == nil {
		return f(c, v)
	}
	before, err := abi.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	answer, err := f(c, v)
	if err != nil || answer != nil {
		return answer, err
	}
	*changed, err = difference(name, before, v)
	return nil, err
}

// editTool is edit for the hooks of a tool. args and result are where changes of
// either go; nil for one that may not be changed here.
func editTool(c *Call, in *abi.HookCall, args, result *json.RawMessage, f func(*Call, *ToolCall) (any, error)) (any, error) {
	t := &ToolCall{Name: in.Tool, ID: in.CallID, Args: Document{raw: in.Args}, Result: Document{raw: in.Result}}
	answer, err := f(c, t)
	if err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name     string
		document *Document
		changed  *json.RawMessage
	}{{"args", &t.Args, args}, {"result", &t.Result, result}} {
		if d.changed == nil {
			continue
		}
		before, err := abi.Marshal(Document{raw: d.document.raw})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		if *d.changed, err = difference(d.name, before, d.document); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// difference returns v in canonical form, or nil if that is what was before.
func difference(name string, before []byte, v any) (json.RawMessage, error) {
	after, err := abi.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if string(after) == string(before) {
		return nil, nil
	}
	return after, nil
}

func (s *server) hook(w wall, input []byte) ([]byte, error) {
	in, err := decode[abi.HookCall](input)
	if err != nil {
		return nil, err
	}
	run, ok := s.hooks[in.Hook]
	if !ok {
		return nil, fmt.Errorf("input: no hook at %q", in.Hook)
	}
	c := &Call{wall: w, id: in.CallID, agent: in.Agent, cause: in.Error, config: in.Config}
	out := abi.HookAnswer{Format: abi.Version}
	answer, err := run(c, &in, &out)
	if err == nil {
		out.Answer, err = encodeAnswer(answer)
	}
	if err != nil {
		out = abi.HookAnswer{Format: abi.Version, Error: err.Error()}
	}
	return abi.Marshal(out)
}

// encodeAnswer encodes the answer of a hook, which is an object or nothing. A nil
// pointer or map is nothing.
func encodeAnswer(answer any) (json.RawMessage, error) {
	switch v := reflect.ValueOf(answer); v.Kind() {
	case reflect.Invalid:
		return nil, nil
	case reflect.Pointer, reflect.Map:
		if v.IsNil() {
			return nil, nil
		}
	}
	data, err := abi.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if data[0] != '{' {
		return nil, fmt.Errorf("answer: %T is no object", answer)
	}
	return data, nil
}
