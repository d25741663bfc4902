package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A gauge counts what is there, and the most that was.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
}

func (g *gauge) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// 64 calls at the same time each have their own arguments, state, artifacts and
// confirmation, and their results come in the order of the calls.
func TestCallsShareNothing(t *testing.T) {
	const n = 64
	var calls []*genai.FunctionCall
	for i := range n {
		calls = append(calls, call(fmt.Sprint("c", i), "tool", fmt.Sprintf(`{"n":%d,"deep":{"list":[%d]}}`, i, i)))
	}
	w := newWorld(t, flowtest.Call(calls...))
	artifacts := flow.NewMemoryArtifacts()
	w.cfg.Artifacts = artifacts
	var ready sync.WaitGroup
	ready.Add(n)
	w.cfg.Hooks = []flow.Hooks{{
		BeforeTool: func(ctx *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
			ready.Done()
			ready.Wait() // all calls are here at the same time
			c.Args["deep"].(map[string]any)["list"].([]any)[0] = json.Number("1" + ctx.CallID()[1:])
			return nil, ctx.SetState(map[string]any{"hook": ctx.CallID()})
		},
		AfterTool: func(ctx *flow.ToolContext, c *flow.ToolCall, result map[string]any, _ error) (map[string]any, error) {
			result["hook"] = ctx.CallID()
			return nil, nil
		}}}
	w.agent.Tools = []flow.Tool{handler("tool", func(ctx *flow.ToolContext, args json.RawMessage) (string, error) {
		id := ctx.CallID()
		own, _ := ctx.State("hook")
		if own != id {
			return "", fmt.Errorf("call %s reads state of %v", id, own)
		}
		version, err := ctx.SaveArtifact("mine-"+id, genai.NewPartFromText(id))
		if err != nil || version != 1 {
			return "", fmt.Errorf("artifact version %d, %v", version, err)
		}
		shared, err := ctx.SaveArtifact("shared", genai.NewPartFromText(id))
		if err != nil {
			return "", err
		}
		if ctx.Confirmation() != nil {
			return "", errors.New("somebody else's confirmation")
		}
		err = ctx.SetState(map[string]any{"own-" + id: id, "all": map[string]any{id: shared}})
		if id == "c7" {
			err = errors.Join(err, ctx.RequestConfirmation("only c7", nil))
		}
		return fmt.Sprintf(`{"args":%s}`, args), err
	})}
	o := w.say("go")
	responses := o.events[1].Responses()
	if len(responses) != n {
		t.Fatalf("%d responses", len(responses))
	}
	for i, r := range responses {
		id := fmt.Sprint("c", i)
		want := fmt.Sprintf(`{"args":{"deep":{"list":[1%d]},"n":%d},"hook":"%s"}`, i, i, id)
		if r.ID != id || toJSON(t, r.Response) != want {
			t.Errorf("response %d is of %s: %s, want %s", i, r.ID, toJSON(t, r.Response), want)
		}
	}
	state := w.stored().State
	for i := range n {
		id := fmt.Sprint("c", i)
		if state["own-"+id] != id {
			t.Errorf("state of %s: %v", id, state["own-"+id])
		}
	}
	if all := state["all"].(map[string]any); len(all) != n {
		t.Errorf("%d members of the map that all wrote", len(all))
	}
	if state["hook"] != "c63" {
		t.Errorf("the last call in order wrote %v", state["hook"])
	}
	actions := o.events[1].Actions
	if actions.ArtifactDelta["shared"] != n || len(actions.ArtifactDelta) != n+1 {
		t.Errorf("artifacts %v", actions.ArtifactDelta)
	}
	if len(actions.RequestedConfirmations) != 1 || actions.RequestedConfirmations["c7"].Hint != "only c7" || len(o.questions()) != 1 {
		t.Errorf("confirmations %v, %d questions", actions.RequestedConfirmations, len(o.questions()))
	}
	for i, c := range o.events[0].Calls() {
		if got, want := toJSON(t, c.Args), fmt.Sprintf(`{"deep":{"list":[%d]},"n":%d}`, i, i); got != want {
			t.Errorf("the model's call %d is %s, want %s", i, got, want)
		}
	}
}

// One denied call among many leaks into no other.
func TestOneOfManyIsDenied(t *testing.T) {
	const n = 64
	var calls []*genai.FunctionCall
	for i := range n {
		calls = append(calls, call(fmt.Sprint("c", i), "tool", fmt.Sprintf(`{"n":%d}`, i)))
	}
	w := newWorld(t, flowtest.Call(calls...))
	witness := tool("tool")
	w.agent.Tools = []flow.Tool{witness}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "g", Answer: told(func(q *abi.Question, v *abi.Verdict) {
		if string(q.Call.Args) == `{"n":33}` {
			*v = verdict(v, abi.Deny("no", "not 33"))
		}
	})}}
	o := w.say("go")
	for i := range n {
		want := okResponse
		if i == 33 {
			want = `{"error":"policy_denied: not 33"}`
		}
		if got := o.response(fmt.Sprint("c", i)); got != want {
			t.Errorf("response %d: %s, want %s", i, got, want)
		}
	}
	if len(witness.Calls()) != n-1 || len(w.records("guard.deny")) != 1 {
		t.Errorf("%d calls ran, %d denials", len(witness.Calls()), len(w.records("guard.deny")))
	}
}

// A runner, its agent and its tools serve many sessions at the same time. The
// tool has a schema that nobody resolved.
func TestRunsShareARunner(t *testing.T) {
	const n = 16
	w := newWorld(t)
	witness := tool("tool")
	witness.Describe.Input = schemaOf(t, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
	w.agent.Tools = []flow.Tool{witness}
	w.model.Steps = nil
	for range n {
		w.model.Steps = append(w.model.Steps, flowtest.Call(call("", "tool", `{"n":1}`)))
	}
	w.cfg.Limits.Steps = 1
	r := w.runner()
	var wg sync.WaitGroup
	for i := range n {
		key := session.Key{App: "shop", User: "ada", ID: fmt.Sprint("many", i)}
		if _, err := w.store.Create(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for _, err := range r.Run(t.Context(), key, flow.Text("go")) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(witness.Calls()) != n {
		t.Errorf("%d calls ran, want %d", len(witness.Calls()), n)
	}
}
