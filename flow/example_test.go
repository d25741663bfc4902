package flow_test

import (
	"context"
	"fmt"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// Two agents, of which the first hands the conversation to the second, and a guard
// that judges the handing over.
func Example_transfer() {
	billing := &flow.Agent{
		Name: "billing", Description: "Handles bills.",
		Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("Your bill is 5.")}},
	}
	front := &flow.Agent{
		Name: "front", Description: "Front desk.",
		Agents: []*flow.Agent{billing},
		Model: &flowtest.Model{Steps: [][]flowtest.Reply{
			flowtest.Call(&genai.FunctionCall{ID: "1", Name: "transfer_to_agent", Args: map[string]any{"agent_name": "billing"}}),
		}},
	}
	watch := &flowtest.Guard{Label: "watch", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		fmt.Printf("guard: %s calls %s %s\n", q.Agent, q.Call.Tool, q.Call.Args)
		return flowtest.Echo(q, abi.Allow()), nil
	}}

	ctx, store := context.Background(), session.NewMemory()
	runner, err := flow.NewRunner(front, store, flow.Config{Guards: []flow.Guard{watch}})
	if err != nil {
		panic(err)
	}
	key := session.Key{App: "desk", User: "ada", ID: "1"}
	if _, err := store.Create(ctx, key, nil); err != nil {
		panic(err)
	}
	for ev, err := range runner.Run(ctx, key, flow.Text("my bill, please")) {
		if err != nil {
			panic(err)
		}
		if text := ev.Text(); text != "" {
			fmt.Printf("%s: %s\n", ev.Author, text)
		}
	}
	// Output:
	// guard: front calls transfer_to_agent {"agent_name":"billing"}
	// billing: Your bill is 5.
}
