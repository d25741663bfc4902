package flow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// NewTool returns a tool that is a Go function. In must be a struct or a map, or
// a pointer to one. A schema that spec leaves out is inferred from the type, as
// [jsonschema.For] does; arguments and result are checked against the schemas
// by the dispatcher. A member that In has in other letters only is refused. A number
// that lands in an interface is a [json.Number], with every digit that the model gave.
// The function runs in this process, without a sandbox.
//
// A spec without a name, a type without a schema and a nil function are mistakes
// of the program, and panic.
func NewTool[In, Out any](spec Spec, handle func(ctx *ToolContext, in In) (Out, error)) Tool {
	if spec.Name == "" || handle == nil {
		panic(fmt.Sprintf("flow: tool %q: needs a name and a function", spec.Name))
	}
	var err error
	if spec.Input == nil {
		if spec.Input, err = jsonschema.For[In](inferred); err != nil {
			panic(fmt.Sprintf("flow: tool %s: input: %v", spec.Name, err))
		}
		if s := spec.Input; s.Type != "object" && !slices.Contains(s.Types, "object") {
			panic(fmt.Sprintf("flow: tool %s: input is a %s: want a struct or a map", spec.Name, reflect.TypeFor[In]()))
		}
	}
	if spec.Output == nil {
		if spec.Output, err = jsonschema.For[Out](inferred); err != nil {
			panic(fmt.Sprintf("flow: tool %s: output: %v", spec.Name, err))
		}
	}
	if err := spec.Resolve(); err != nil {
		panic("flow: " + err.Error())
	}
	return &funcTool[In, Out]{spec: spec, handle: handle}
}

// inferred has the types whose JSON is not what their Go type says.
var inferred = &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.Number]():     {Type: "number"},
	reflect.TypeFor[json.RawMessage](): {},
}}

type funcTool[In, Out any] struct {
	spec   Spec
	handle func(*ToolContext, In) (Out, error)
}

func (t *funcTool[In, Out]) Spec() *Spec { return &t.spec }

func (t *funcTool[In, Out]) Run(ctx *ToolContext, permit Permit) (Outcome, error) {
	var in In
	if err := abi.DecodeKnown(permit.Args(), &in); err != nil {
		return Outcome{}, &CallError{Code: abi.ArgsInvalid, Text: fmt.Sprintf("%s: %s", abi.ArgsInvalid, strings.TrimPrefix(err.Error(), "document: "))}
	}
	out, err := t.handle(ctx, in)
	if err != nil {
		return Outcome{}, err
	}
	result, err := abi.Marshal(out)
	if err != nil {
		return Outcome{}, &CallError{Code: abi.GuestOutputInvalid, Err: err}
	}
	return Outcome{Result: result}, nil
}
