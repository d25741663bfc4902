package hostile

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// An entrance is a way to the tool of an attempt.
type entrance string

// The entrances. The zero value is the first.
const (
	entranceRun      entrance = "run"
	entranceStream   entrance = "sse"
	entranceResume   entrance = "resume" // a person approved the call before the guard was as it is
	entranceSubAgent entrance = "sub-agent"
	entranceAgent    entrance = "agent as tool"
	entranceDirect   entrance = "direct call"
)

// entrances returns those that a guard is tried at. A guard that lets the call go
// on in another form, or asks a person, does not go on with an approval that was
// given for the first form, so only those that must deny are tried there.
func (e *expectation) entrances() []entrance {
	all := []entrance{entranceRun, entranceStream, entranceSubAgent, entranceAgent, entranceDirect}
	if slices.Contains(e.Outcome, abi.PolicyUnavailable) {
		all = append(all, entranceResume)
	}
	return all
}

// agent returns the agent that a run of the entrance begins with.
func (a *attempt) agent() *flow.Agent {
	wanted := flowtest.Call(&genai.FunctionCall{ID: "call-1", Name: a.tool, Args: a.args})
	outer := func(tool, args string) []flowtest.Reply {
		return flowtest.Call(&genai.FunctionCall{ID: "call-0", Name: tool, Args: map[string]any{args: "below"}})
	}
	model := &flowtest.Model{Steps: [][]flowtest.Reply{wanted, flowtest.Say("done"), flowtest.Say("done")}}
	root := &flow.Agent{Name: "hostile", Model: model, Tools: a.tools}
	switch a.entrance {
	case entranceSubAgent:
		model.Steps = slices.Insert(model.Steps, 0, outer("transfer_to_agent", "agent_name"))
		root.Agents, root.Tools = []*flow.Agent{{Name: "below", Model: model, Tools: a.tools}}, nil
	case entranceAgent:
		model.Steps = slices.Insert(model.Steps, 0, outer("below", "request"))
		root.Tools = []flow.Tool{flow.AgentTool(&flow.Agent{Name: "below", Model: model, Tools: a.tools}, flow.AgentToolOptions{})}
	case entranceResume:
		root.Tools = nil
		for _, t := range a.tools {
			root.Tools = append(root.Tools, asking{t.(flow.Handler)})
		}
	}
	return root
}

// enter makes the call through the entrance.
func (a *attempt) enter(ctx context.Context, r *flow.Runner, key session.Key) iter.Seq2[*session.Event, error] {
	in := flow.Text("call the tool")
	switch a.entrance {
	case entranceDirect:
		return r.Call(ctx, key, flow.DirectCall{Tool: a.tool, Args: a.args})
	case entranceResume:
		if a.question != "" {
			in = flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
				ID: a.question, Name: "adk_request_confirmation", Response: map[string]any{"confirmed": true}}}}}}
		}
	case entranceStream:
		in.Stream = true
	}
	return r.Run(ctx, key, in)
}

// asking is a tool that needs a person's approval.
type asking struct{ flow.Handler }

func (a asking) Spec() *flow.Spec {
	spec := *a.Handler.Spec()
	spec.Confirm = true
	return &spec
}

// placed is a guard that is as it is about the tool of its attempt alone, and at
// resume when that call has been approved; of everything else it allows.
type placed struct {
	flow.Guard
	attempt *attempt
}

func (p placed) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	a := p.attempt
	if q.Call != nil && q.Call.Tool != a.tool || a.entrance == entranceResume && a.question == "" {
		return flowtest.Echo(q, abi.Allow()), nil
	}
	return p.Guard.Judge(ctx, q)
}
