package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Tool takes part in an agent's requests under a name. What it can do shows in
// the other interfaces it has: a [Handler] or [Streamer] can be called, a
// [RequestProcessor] edits requests. A tool with none of them fails the run.
// Tools must be safe for concurrent use.
type Tool interface {
	// Spec says what the tool is. The result must not change and is not changed.
	Spec() *Spec
}

// A Spec is what the dispatcher knows of a tool.
type Spec struct {
	Name        string
	Description string
	Input       *jsonschema.Schema // of the arguments; nil: not checked, declared as any object
	Output      *jsonschema.Schema // of the result; nil: not checked and not declared
	Undeclared  bool               // can be called, but the model is not told
	Effects     abi.Effects        // zero means [abi.Once]
	LongRunning bool               // the result may come later, as another answer to the call
	Defers      bool               // a nil result means that something else will answer
	Module      string             // digest of the module that handles calls; empty for Go code
	Grants      capability.Set     // the most a call is granted

	// Confirm makes a person decide before each call. ConfirmIf, if set,
	// decides instead from the arguments.
	Confirm   bool
	ConfirmIf func(args map[string]any) bool

	// ShowResult shows the user a result for which the model's summary is
	// skipped, as text beside the response.
	ShowResult bool

	input, output *jsonschema.Resolved
	definition    string             // see abi.Definition
	declared      *jsonschema.Schema // instead of Input, for a tool that checks its arguments itself
	reply         *jsonschema.Schema // declared instead of Output
	task          bool               // the call gives a task to an agent, which may stay open
}

// Resolve checks the schemas of a spec; tools made by this package and by the
// plugins package call it once, before the tool is used. A spec that was not
// resolved is copied and resolved for every request.
func (s *Spec) Resolve() error {
	var err error
	if s.Input != nil && s.input == nil {
		if s.input, err = s.Input.Resolve(nil); err != nil {
			return fmt.Errorf("tool %s: input schema: %w", s.Name, err)
		}
	}
	if s.Output != nil && s.output == nil {
		if s.output, err = s.Output.Resolve(nil); err != nil {
			return fmt.Errorf("tool %s: output schema: %w", s.Name, err)
		}
	}
	if s.definition == "" {
		s.definition, err = s.Definition()
	}
	return err
}

// Definition returns the digest of what the model is told about the tool, as
// [abi.Definition] has it: what guards are told of it, and pins name.
func (s *Spec) Definition() (string, error) {
	d := declaration(s)
	schemas := make([]json.RawMessage, 2)
	for i, v := range []any{d.ParametersJsonSchema, d.ResponseJsonSchema} {
		if v == nil {
			continue
		}
		var err error
		if schemas[i], err = abi.Marshal(v); err != nil {
			return "", fmt.Errorf("tool %s: schema: %w", s.Name, err)
		}
	}
	return abi.Definition(d.Name, d.Description, schemas[0], schemas[1])
}

// asks reports whether a call with these arguments waits for a person.
func (s *Spec) asks(args map[string]any) bool {
	if s.ConfirmIf != nil {
		return s.ConfirmIf(args)
	}
	return s.Confirm
}

func (s *Spec) effects() abi.Effects { return cmp.Or(s.Effects, abi.Once) }

// A Handler is a tool that answers a call with one result.
type Handler interface {
	Tool
	// Run handles a call. An error whose type is [*CallError] says what the
	// model may read; the text of any other error is the tool's own and is
	// shown to the model. A panic is an error. Run returns when ctx ends.
	Run(ctx *ToolContext, permit Permit) (Outcome, error)
}

// A Streamer is a tool that answers a call in pieces. In an ordinary run the
// pieces are joined into one result; an error discards them.
type Streamer interface {
	Tool
	Stream(ctx *ToolContext, permit Permit) iter.Seq2[Chunk, error]
}

// A Chunk is one piece of a streamed answer. The last one may carry the receipt
// of the call and no text.
type Chunk struct {
	Text    string
	Receipt any
}

// A RequestProcessor is a tool or toolset that edits each request before the
// model sees it.
type RequestProcessor interface {
	ProcessRequest(ctx *CallbackContext, req *Request) error
}

// A Toolset offers tools that are found out when an agent runs. Tools is called
// once per run of an agent.
type Toolset interface {
	Name() string
	Tools(ctx *Context) ([]Tool, error)
}

// A Permit is a call that passed everything that stands before a handler. Only
// the dispatcher makes one, for one call.
type Permit struct {
	args   json.RawMessage
	grants capability.Set
	digest string
}

// Args returns the arguments: an object in canonical form, the very bytes that
// the last guard and the approver saw. The caller must not change them.
func (p Permit) Args() json.RawMessage { return p.args }

// ArgsSHA256 returns the digest of the arguments.
func (p Permit) ArgsSHA256() string { return p.digest }

// Grants returns what this call may do: the tool's grants, narrowed by guards.
func (p Permit) Grants() capability.Set { return p.grants }

// An Outcome is what a handler gave back.
type Outcome struct {
	// Result is one JSON value, or empty for none. One that is no object is
	// shown as {"result": …}.
	Result json.RawMessage
	// Receipt is what the runtime of the handler says about the call, for
	// observers; nil for Go code. It must encode as JSON.
	Receipt any
}

// A CallError is a failed call with a code, and a text for the model if it may
// read more than the code's sentence.
type CallError struct {
	Code    abi.Code
	Text    string // for the model, verbatim; empty: "CODE: sentence"
	Err     error  // for the operator
	Receipt any    // of the guest call that failed, if there was one
}

// Error returns the operator's view.
func (e *CallError) Error() string {
	text := strings.TrimPrefix(e.modelText(), string(e.Code)+": ")
	switch {
	case e.Err != nil && e.Text != "":
		return fmt.Sprintf("%s: %s: %v", e.Code, text, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.Code, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, text)
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

func (e *CallError) modelText() string {
	if e.Text != "" {
		return e.Text
	}
	return fmt.Sprintf("%s: %s", e.Code, cmp.Or(e.Code.Sentence(), "the call failed"))
}

// A toolTable is what can be executed in answer to one request, by name.
type toolTable struct {
	byName map[string]tableEntry
}

type tableEntry struct {
	tool Tool
	spec *Spec // a copy of the tool's, resolved
}

// lookup returns a tool and its spec, nil if there is none of that name.
func (t *toolTable) lookup(name string) (Tool, *Spec) {
	if t == nil {
		return nil, nil
	}
	e := t.byName[name]
	return e.tool, e.spec
}

// add takes a tool up. Its own spec is not written to: other runs may use it.
func (t *toolTable) add(tool Tool) (*Spec, error) {
	spec := *tool.Spec()
	if _, own := tool.(frameworkTool); !own && Reserved(spec.Name) {
		return nil, fmt.Errorf("tool %q: the name is reserved", spec.Name)
	}
	if _, taken := t.byName[spec.Name]; taken {
		return nil, fmt.Errorf("duplicate tool: %q", spec.Name)
	}
	if err := spec.Resolve(); err != nil {
		return nil, err
	}
	if t.byName == nil {
		t.byName = map[string]tableEntry{}
	}
	t.byName[spec.Name] = tableEntry{tool, &spec}
	return &spec, nil
}

// A frameworkTool is a tool of this package whose name no other may have.
type frameworkTool interface {
	Handler
	framework()
}

// The names of the framework's tools.
const (
	transferToAgent  = "transfer_to_agent"
	setModelResponse = "set_model_response"
	finishTask       = "finish_task"
)

// Reserved reports whether a name belongs to the framework, so that no other tool
// may have it. The empty name does.
func Reserved(name string) bool {
	switch name {
	case "", transferToAgent, setModelResponse, finishTask, stopStreaming:
		return true
	}
	return strings.HasPrefix(name, "adk_") || strings.HasPrefix(name, "sandboxd_")
}

func (t *toolTable) names() []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.byName))
}

// Pack registers a tool as executable under its name and, unless it is
// undeclared, declares it to the model. It is called for every handler and
// streamer; a [RequestProcessor] may call it for a tool that is neither. A name
// that is taken, or that belongs to the framework, is an error.
func (r *Request) Pack(tool Tool) error {
	if r.tools == nil {
		r.tools = &toolTable{}
	}
	spec, err := r.tools.add(tool)
	if err != nil {
		return err
	}
	if spec.Undeclared {
		return nil
	}
	d := declaration(spec)
	for _, t := range r.Config.Tools {
		if t != nil && t.FunctionDeclarations != nil {
			t.FunctionDeclarations = append(t.FunctionDeclarations, d)
			return nil
		}
	}
	r.Config.Tools = append(r.Config.Tools, &genai.Tool{FunctionDeclarations: []*genai.FunctionDeclaration{d}})
	return nil
}

const longRunningNote = "NOTE: This is a long-running operation. Do not call this tool again if it has already returned some intermediate or pending status."

func declaration(s *Spec) *genai.FunctionDeclaration {
	d := &genai.FunctionDeclaration{Name: s.Name, Description: s.Description}
	if s.LongRunning {
		if d.Description != "" {
			d.Description += "\n\n"
		}
		d.Description += longRunningNote
	}
	d.ParametersJsonSchema = cmp.Or(s.declared, s.Input, &jsonschema.Schema{Type: "object"})
	if reply := cmp.Or(s.reply, s.Output); reply != nil {
		d.ResponseJsonSchema = reply
	}
	return d
}
