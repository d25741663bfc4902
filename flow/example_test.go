package flow_test

import (
	"context"
	"fmt"
	"strings"

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

// converse sends messages to a new session of an agent and prints what happens: calls,
// results and texts.
func converse(agent *flow.Agent, cfg flow.Config, messages ...func(last *session.Event) flow.Input) {
	ctx, store := context.Background(), session.NewMemory()
	runner, err := flow.NewRunner(agent, store, cfg)
	if err != nil {
		panic(err)
	}
	key := session.Key{App: "desk", User: "ada", ID: "1"}
	if _, err := store.Create(ctx, key, nil); err != nil {
		panic(err)
	}
	var last *session.Event
	for _, message := range messages {
		for ev, err := range runner.Run(ctx, key, message(last)) {
			if err != nil {
				panic(err)
			}
			for _, c := range ev.Calls() {
				fmt.Println(ev.Author, "calls", c.Name)
			}
			for _, r := range ev.Responses() {
				fmt.Println("result", r.Response)
			}
			if text := ev.Text(); text != "" {
				fmt.Println(ev.Author, "says", text)
			}
			last = ev
		}
	}
}

func says(text string) func(*session.Event) flow.Input {
	return func(*session.Event) flow.Input { return flow.Text(text) }
}

// A function of Go as a tool: the schemas come from its types.
func ExampleNewTool() {
	type query struct {
		City string `json:"city" jsonschema:"where"`
	}
	type weather struct {
		Celsius int `json:"celsius"`
	}
	tool := flow.NewTool(flow.Spec{Name: "get_weather", Description: "The weather of a city."},
		func(_ *flow.ToolContext, in query) (weather, error) {
			if in.City != "Oslo" {
				return weather{}, fmt.Errorf("no city %q", in.City)
			}
			return weather{Celsius: -3}, nil
		})
	model := &flowtest.Model{Steps: [][]flowtest.Reply{
		flowtest.Call(&genai.FunctionCall{ID: "1", Name: "get_weather", Args: map[string]any{"city": "Oslo"}},
			&genai.FunctionCall{ID: "2", Name: "get_weather", Args: map[string]any{"city": "Atlantis"}},
			&genai.FunctionCall{ID: "3", Name: "get_weather", Args: map[string]any{"town": "Oslo"}}),
		flowtest.Say("-3 degrees."),
	}}
	converse(&flow.Agent{Name: "desk", Model: model, Tools: []flow.Tool{tool}}, flow.Config{}, says("the weather in Oslo?"))
	// Output:
	// desk calls get_weather
	// desk calls get_weather
	// desk calls get_weather
	// result map[celsius:-3]
	// result map[error:no city "Atlantis"]
	// result map[error:validating root: unexpected additional properties ["town"]]
	// desk says -3 degrees.
}

// A tool about which a person is asked: the run ends with a question, and the
// answer to it is the next message.
func Example_confirmation() {
	pay := flow.NewTool(flow.Spec{Name: "pay", Confirm: true}, func(*flow.ToolContext, struct{}) (string, error) { return "paid", nil })
	model := &flowtest.Model{Steps: [][]flowtest.Reply{
		flowtest.Call(&genai.FunctionCall{ID: "1", Name: "pay"}),
		flowtest.Say("It is paid."),
	}}
	approve := func(question *session.Event) flow.Input {
		c := question.Calls()[0]
		answer := genai.NewPartFromFunctionResponse(c.Name, map[string]any{"confirmed": true})
		answer.FunctionResponse.ID = c.ID
		return flow.Input{Content: genai.NewContentFromParts([]*genai.Part{answer}, genai.RoleUser)}
	}
	converse(&flow.Agent{Name: "desk", Model: model, Tools: []flow.Tool{pay}}, flow.Config{}, says("pay the bill"), approve)
	// Output:
	// desk calls pay
	// result map[error:error tool "pay" requires confirmation, please approve or reject]
	// desk calls adk_request_confirmation
	// result map[result:paid]
	// desk says It is paid.
}

// An agent that another one calls like a function, in a session of its own.
func ExampleAgentTool() {
	expert := &flow.Agent{Name: "expert", Description: "Knows numbers.",
		Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("42")}}}
	front := &flow.Agent{Name: "front", Tools: []flow.Tool{flow.AgentTool(expert, flow.AgentToolOptions{})},
		Model: &flowtest.Model{Steps: [][]flowtest.Reply{
			flowtest.Call(&genai.FunctionCall{ID: "1", Name: "expert", Args: map[string]any{"request": "the answer?"}}),
			flowtest.Say("The expert says 42."),
		}}}
	converse(front, flow.Config{}, says("ask the expert"))
	// Output:
	// front calls expert
	// result map[result:42]
	// front says The expert says 42.
}

// Agents that work one after the other; the second reads what the first has put into
// the state.
func Example_sequence() {
	writer := &flow.Agent{Name: "writer", OutputKey: "draft",
		Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("Snow in Oslo.")}}}
	editor := &flow.Agent{Name: "editor", Instruction: "Shorten: {draft}",
		Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("Snow.")}, OnRequest: func(req *flow.Request, _ bool) {
			first, _, _ := strings.Cut(req.Config.SystemInstruction.Parts[0].Text, "\n")
			fmt.Println("editor reads", first)
		}}}
	converse(&flow.Agent{Name: "news", Type: flow.SequentialAgent, Agents: []*flow.Agent{writer, editor}}, flow.Config{}, says("go"))
	// Output:
	// writer says Snow in Oslo.
	// editor reads Shorten: Snow in Oslo.
	// editor says Snow.
}

// A hook answers for a tool, so that its handler does not run.
func ExampleHooks() {
	slow := flow.NewTool(flow.Spec{Name: "look_up"}, func(*flow.ToolContext, struct{}) (string, error) { return "looked up", nil })
	cache := flow.Hooks{Name: "cache", BeforeTool: func(_ *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
		return map[string]any{"result": "remembered"}, nil
	}}
	model := &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Call(&genai.FunctionCall{ID: "1", Name: "look_up"}), flowtest.Say("Done.")}}
	converse(&flow.Agent{Name: "desk", Model: model, Tools: []flow.Tool{slow}}, flow.Config{Hooks: []flow.Hooks{cache}}, says("go"))
	// Output:
	// desk calls look_up
	// result map[result:remembered]
	// desk says Done.
}
