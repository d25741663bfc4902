package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// AgentToolOptions say what is done with the answer of an agent that is a tool.
type AgentToolOptions struct {
	SkipSummarization bool // the answer is the last word: the model is not asked again
	ShowResult        bool // and is shown to the user as text
}

// AgentTool returns a tool that runs an agent in a session, with artifacts and a
// memory, of its own, all of which are gone afterwards. The session begins with a
// copy of the caller's state but for keys that begin with "_adk". Nothing comes back
// but the result: the text of the last event with content, read as JSON if the agent
// has an output schema.
//
// The runner's hooks do not run inside; its guards do, its audit sink and observer
// see what happens, and intents of calls are recorded beside the caller's. Guards are
// told the caller's session and the outermost run, so that what they count or remember
// goes on inside; records and the observer have a run of its own. Steps
// count towards the caller's limit, and [Limits].Depth bounds how deep agents nest.
// A call inside that needs a person is refused: there is nobody to go on with it.
//
// A nil agent is a mistake of the program and panics.
func AgentTool(agent *Agent, o AgentToolOptions) Tool {
	if agent == nil {
		panic("flow: AgentTool: no agent")
	}
	spec := Spec{Name: agent.Name, Description: agent.Description, Input: agent.InputSchema, ShowResult: o.ShowResult}
	if spec.Input == nil {
		spec.declared = &jsonschema.Schema{Type: "object", Required: []string{"request"},
			Properties: map[string]*jsonschema.Schema{"request": {Type: "string"}}}
	}
	return &agentTool{agent: agent, spec: spec, skip: o.SkipSummarization}
}

type agentTool struct {
	agent *Agent
	spec  Spec
	skip  bool
}

func (t *agentTool) Spec() *Spec { return &t.spec }

func (t *agentTool) Run(ctx *ToolContext, permit Permit) (Outcome, error) {
	message, err := t.message(permit.Args())
	if err != nil {
		return Outcome{}, err
	}
	p, err := ctx.place.deeper()
	if err != nil {
		return Outcome{}, err
	}
	if t.skip {
		if err := ctx.SkipSummarization(); err != nil {
			return Outcome{}, err
		}
	}
	run, err := t.newRun(ctx, p, message)
	if err != nil {
		return Outcome{}, fmt.Errorf("error during execution of sub-agent %s: %w", t.agent.Name, err)
	}
	last, err := t.drive(ctx, run, message)
	if err != nil {
		return Outcome{}, err
	}
	return t.result(last)
}

// message is what the agent is told: the arguments as text if it has an input
// schema, else the argument request.
func (t *agentTool) message(args json.RawMessage) (string, error) {
	if t.agent.InputSchema != nil {
		return string(args), nil
	}
	var given map[string]any
	if err := abi.Decode(args, &given); err != nil {
		return "", err
	}
	switch request := given["request"].(type) {
	case nil:
		return "", fmt.Errorf("missing required argument 'request' for agent %s", t.agent.Name)
	case string:
		return request, nil
	}
	return "", &CallError{Code: abi.ArgsInvalid, Text: fmt.Sprintf("%s: request: want a text", abi.ArgsInvalid)}
}

// newRun makes a run inside the caller's.
func (t *agentTool) newRun(ctx *ToolContext, p place, message string) (*run, error) {
	agents, err := newTree(t.agent)
	if err != nil {
		return nil, err
	}
	inner := *p.Runner
	inner.tree = agents
	store := &innerStore{Memory: session.NewMemory(), calls: p.store}
	inner.store = store
	inner.cfg.Hooks = nil
	inner.cfg.Compaction = nil
	inner.cfg.Memory = NewWordMemory()
	inner.cfg.Artifacts = NewMemoryArtifacts()
	// The key stays, so that guards, audit and records of calls tell whose calls
	// these are, and guards count on where they were. The stores are others.
	sess, err := store.Create(ctx, p.key, callerState(ctx))
	if err != nil {
		return nil, err
	}
	run := inner.newRun(p.key, sess, Input{Content: genai.NewContentFromText(message, genai.RoleUser), Stream: true, Roles: p.roles})
	run.id, run.outer, run.depth, run.steps = "e-"+newID(), p.outermost(), p.depth, p.steps
	return run, nil
}

// outermost is what questions to guards call the run: the one that a message
// started, so that what guards count or remember for a run has no way around it
// through an agent that is a tool. Records keep the id of the run itself, in which
// ids of calls tell calls apart.
func (r *run) outermost() string { return cmp.Or(r.outer, r.id) }

// recordedKey is the key of the id of a run whose guards are asked about another.
type recordedKey struct{}

// recorded returns ctx as guards get it: it says which run records name.
func (r *run) recorded(ctx context.Context) context.Context {
	if r.outer == "" {
		return ctx
	}
	return context.WithValue(ctx, recordedKey{}, r.id)
}

// RecordedRun returns the id of the run that audit records of a judgement name. ctx
// and q are those of [Guard].Judge. It is q.Run but inside an agent that runs as a
// tool: calls there are recorded with the id of a run of its own, and q names the
// outermost run.
func RecordedRun(ctx context.Context, q *abi.Question) string {
	if id, ok := ctx.Value(recordedKey{}).(string); ok {
		return id
	}
	return q.Run
}

// callerState copies the state that a call sees.
func callerState(ctx *ToolContext) map[string]any {
	state := ctx.run.allState()
	ctx.actions.mu.Lock()
	maps.Copy(state, session.CloneMap(ctx.actions.set.StateDelta))
	ctx.actions.mu.Unlock()
	maps.DeleteFunc(state, func(key string, _ any) bool { return strings.HasPrefix(key, "_adk") })
	return state
}

func (r *run) allState() map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := session.CloneMap(r.sess.State)
	if state == nil {
		state = map[string]any{}
	}
	maps.Copy(state, session.CloneMap(r.temp))
	return state
}

// drive runs the agent to its end and returns the last content, nil if there is none.
func (t *agentTool) drive(ctx context.Context, run *run, message string) (last *genai.Content, err error) {
	run.main(ctx, Input{Content: run.userContent}, func(ev *session.Event, failed error) bool {
		switch {
		case err != nil:
		case failed != nil:
			err = &CallError{Code: codeOf(failed), Text: fmt.Sprintf("error during execution of sub-agent %s: %s", t.agent.Name, modelText(failed)), Err: failed}
		case ev.ErrorCode != "" || ev.ErrorMessage != "":
			err = fmt.Errorf("error from sub-agent %q (code: %q, message: %q)", t.agent.Name, ev.ErrorCode, ev.ErrorMessage)
		case slices.ContainsFunc(ev.Calls(), func(c *genai.FunctionCall) bool { return c.Name == confirmationCall }):
			err = &CallError{Code: abi.ConfirmationPending, Err: fmt.Errorf("sub-agent %s: nobody can be asked inside a tool", t.agent.Name)}
		case ev.Content != nil:
			last = ev.Content
		}
		return err == nil
	})
	return last, err
}

// result reads the text of the agent's last content.
func (t *agentTool) result(last *genai.Content) (Outcome, error) {
	var texts []string
	for _, p := range parts(last) {
		if p != nil && p.Text != "" && !p.Thought {
			texts = append(texts, p.Text)
		}
	}
	text := strings.Join(texts, "\n")
	switch {
	case text == "":
		return Outcome{Result: json.RawMessage("{}")}, nil
	case t.agent.OutputSchema == nil:
		result, err := abi.Marshal(map[string]any{"result": text})
		return Outcome{Result: result}, err
	}
	schema, err := t.agent.OutputSchema.Resolve(nil)
	if err == nil {
		err = Validate(schema, json.RawMessage(text))
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("output validation failed for sub-agent %s: %w", t.agent.Name, err)
	}
	return Outcome{Result: json.RawMessage(text)}, nil
}

// An innerStore keeps the session of an agent that runs as a tool in memory, and
// the records of its calls where those of the caller are. Questions stay inside:
// nobody could go on with an answer.
type innerStore struct {
	*session.Memory
	calls session.Store
}

func (s *innerStore) BeginCall(ctx context.Context, call session.Call) error {
	return s.calls.BeginCall(ctx, call)
}

func (s *innerStore) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	return s.calls.EndCall(ctx, key, id, end)
}

func (s *innerStore) Calls(ctx context.Context, key session.Key) ([]session.Call, error) {
	return s.calls.Calls(ctx, key)
}
