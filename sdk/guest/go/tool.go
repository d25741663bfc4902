package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Tool is a function that the model may call with an In and that answers with
// an Out. In is a struct, a map with text keys, or a type that may be any object.
type Tool[In, Out any] struct {
	Name        string
	Description string // for the model
	Effects     Effects
	Confirm     bool // a person decides before every call
	Handle      func(c *Call, in In) (Out, error)
}

// A Stream is a tool whose answer is a sequence of chunks; it has no result
// besides them. emit fails when nobody listens or the budget is spent; a handler
// that goes on is stopped. The plugin must request the capability emit.
type Stream[In, Chunk any] struct {
	Name        string
	Description string // for the model
	Effects     Effects
	Confirm     bool // a person decides before every call
	Handle      func(c *Call, in In, emit func(Chunk) error) error
}

// A Job is a tool that starts work elsewhere and ends; the result arrives later,
// as an answer to the same [Call.ID]. Out is what the model is told meanwhile; a
// nil pointer tells it nothing.
type Job[In, Out any] struct {
	Name        string
	Description string // for the model
	Effects     Effects
	Confirm     bool // a person decides before every call
	Start       func(c *Call, in In) (Out, error)
}

// A toolFunc runs a tool and returns its result as canonical JSON, nil for none.
type toolFunc func(c *Call, args json.RawMessage) (json.RawMessage, error)

func (t Tool[In, Out]) add(s *server) error {
	output, err := outputSchema[Out]()
	if err != nil {
		return fmt.Errorf("tool %s: output: %w", t.Name, err)
	}
	if t.Handle == nil {
		return fmt.Errorf("tool %s: Handle is nil", t.Name)
	}
	return addTool(s, abi.Tool{Name: t.Name, Description: t.Description, Output: output, Effects: t.Effects, Confirm: t.Confirm},
		new(Out), func(c *Call, in In) (json.RawMessage, error) {
			out, err := t.Handle(c, in)
			if err != nil {
				return nil, err
			}
			return encodeResult(out)
		})
}

func (t Stream[In, Chunk]) add(s *server) error {
	if _, err := outputSchema[Chunk](); err != nil {
		return fmt.Errorf("tool %s: chunk: %w", t.Name, err)
	}
	if t.Handle == nil {
		return fmt.Errorf("tool %s: Handle is nil", t.Name)
	}
	return addTool(s, abi.Tool{Name: t.Name, Description: t.Description, Effects: t.Effects, Confirm: t.Confirm, Streaming: true},
		new(Chunk), func(c *Call, in In) (json.RawMessage, error) {
			return nil, t.Handle(c, in, func(chunk Chunk) error {
				data, err := abi.Marshal(chunk)
				if err != nil {
					return fmt.Errorf("chunk: %w", err)
				}
				_, err = c.ask("emit", abi.EmitRequest{Chunk: data}, nil)
				return err
			})
		})
}

func (t Job[In, Out]) add(s *server) error {
	output, err := outputSchema[Out]()
	if err != nil {
		return fmt.Errorf("tool %s: output: %w", t.Name, err)
	}
	if t.Start == nil {
		return fmt.Errorf("tool %s: Start is nil", t.Name)
	}
	return addTool(s, abi.Tool{Name: t.Name, Description: t.Description, Output: output, Effects: t.Effects, Confirm: t.Confirm, LongRunning: true},
		new(Out), func(c *Call, in In) (json.RawMessage, error) {
			out, err := t.Start(c, in)
			if err != nil {
				return nil, err
			}
			data, err := encodeResult(out)
			if string(data) == "null" {
				return nil, err
			}
			return data, err
		})
}

// addTool adds the tool t to s. sample is a pointer to an empty result.
func addTool[In any](s *server, t abi.Tool, sample any, run func(c *Call, in In) (json.RawMessage, error)) error {
	in, err := shapeOf(reflect.TypeFor[In]())
	if err != nil {
		return fmt.Errorf("tool %s: input: %w", t.Name, err)
	}
	if t.Input, err = in.objectSchema(); err != nil {
		return fmt.Errorf("tool %s: input: %w", t.Name, err)
	}
	s.manifest.Tools = append(s.manifest.Tools, t)
	s.tools[t.Name] = func(c *Call, args json.RawMessage) (json.RawMessage, error) {
		var v In
		if err := in.decode(args, &v); err != nil {
			return nil, Fail("bad_args", "arguments: %v", err)
		}
		return run(c, v)
	}
	s.warm = append(s.warm, func() {
		_, _ = decode[abi.ToolCall]([]byte(`{"format":1,"kind":"tool","args":{}}`))
	}, func() {
		_ = in.decode([]byte(`{}`), new(In))
	}, func() {
		_, _ = abi.Marshal(sample)
	})
	return nil
}

func outputSchema[Out any]() (json.RawMessage, error) {
	out, err := shapeOf(reflect.TypeFor[Out]())
	if err != nil || len(out.schema) == 0 {
		return nil, err
	}
	return abi.Marshal(out.schema)
}

func encodeResult(v any) (json.RawMessage, error) {
	data, err := abi.Marshal(v)
	if err != nil {
		return nil, Fail("bad_result", "result: %v", err)
	}
	return data, nil
}

func (s *server) tool(w wall, input []byte) ([]byte, error) {
	in, err := decode[abi.ToolCall](input)
	if err != nil {
		return nil, err
	}
	run, ok := s.tools[in.Tool]
	if !ok {
		return nil, fmt.Errorf("input: no tool %q", in.Tool)
	}
	c := &Call{wall: w, id: in.ID, config: in.Config, confirmation: in.Confirmation}
	result, err := run(c, in.Args)
	if err != nil {
		return abi.Marshal(abi.ToolResult{Format: abi.Version, Fail: failureOf(err)})
	}
	if result == nil {
		return abi.Marshal(abi.ToolResult{Format: abi.Version})
	}
	// An abi.ToolResult, put together here because the result is canonical already.
	return fmt.Appendf(nil, `{"format":%d,"result":%s}`, abi.Version, result), nil
}

// failureOf says what the model is told of err.
func failureOf(err error) *abi.Failure {
	if f, ok := errors.AsType[*failure](err); ok {
		out := &abi.Failure{Code: f.code, Message: f.message}
		if !abi.ValidCode(f.code) {
			out.Code = ""
		}
		return out
	}
	return &abi.Failure{Message: err.Error()}
}
