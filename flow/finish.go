package flow

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

const finishInstruction = `
Do NOT call 'finish_task' prematurely. Use your available tools to
fully complete every aspect of the delegated task first. If the
task is unclear, ask the user for clarification before proceeding.
Once the task is fully complete, call 'finish_task' by itself with
no accompanying text output.
`

// A finishTool is finish_task, with which an agent in task mode says that it is
// done. Its arguments are the outcome.
type finishTool struct {
	spec   Spec
	schema *jsonschema.Resolved

	mu   sync.Mutex // calls may run in parallel
	task *task
}

// finishSchema is of the arguments of finish_task.
func finishSchema(a *Agent) (schema *jsonschema.Schema, wrapped bool) {
	if a.OutputSchema == nil {
		return asObject(&jsonschema.Schema{Type: "string"})
	}
	return asObject(a.OutputSchema)
}

func newFinishTool(a *Agent, t *task) *finishTool {
	schema, _ := finishSchema(a)
	spec := Spec{Name: finishTask, Effects: abi.None, declared: schema,
		Description: "Signal that this agent has completed its delegated task. Call this when you have finished your delegated task."}
	if a.OutputSchema != nil {
		spec.Description += " Pass the required output data in the parameters."
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		panic("flow: agent " + a.Name + ": " + err.Error()) // NewRunner has resolved it
	}
	return &finishTool{spec: spec, schema: resolved, task: t}
}

func (t *finishTool) framework()  {}
func (t *finishTool) Spec() *Spec { return &t.spec }

// ProcessRequest implements [RequestProcessor].
func (t *finishTool) ProcessRequest(_ *CallbackContext, req *Request) error {
	req.AppendInstructions(finishInstruction)
	return nil
}

// Run takes the outcome. One that is not well-formed is a result that says so, not
// an error: on-error hooks are not asked, as in ADK.
func (t *finishTool) Run(_ *ToolContext, permit Permit) (Outcome, error) {
	if err := Validate(t.schema, permit.Args()); err != nil {
		result, err := abi.Marshal(map[string]any{"error": fmt.Sprintf("Invoking `finish_task()` failed due to validation errors:\n%s\n"+
			"You could retry calling this tool, but it is IMPORTANT for you to provide all the mandatory parameters with correct types.", err)})
		return Outcome{Result: result}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.task.said = permit.Args()
	return Outcome{Result: json.RawMessage(`{"result":"Task completed."}`)}, nil
}

// finished reports whether an event ends the agent's task. What hooks and guards
// left of the response decides.
func (f *agentRun) finished(ev *session.Event) bool {
	if f.agent.Mode != Task || f.task.said == nil {
		return false
	}
	f.task.done = f.task.done || finishes(ev)
	return f.task.done
}
