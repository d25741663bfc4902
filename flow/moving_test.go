package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/flow/mcp"
	"github.com/sandboxd/sandboxd/session"
)

// These functions are what docs/from-adk-go.md shows.

type cityQuery struct {
	City string `json:"city" jsonschema:"where"`
}

type cityWeather struct {
	City        string `json:"city"`
	Temperature int    `json:"temperature"`
}

// weatherTool is a typed function.
func weatherTool() flow.Tool {
	return flow.NewTool(flow.Spec{Name: "get_weather", Description: "The temperature of a city."},
		func(ctx *flow.ToolContext, in cityQuery) (cityWeather, error) {
			return cityWeather{in.City, 26}, ctx.SetState(map[string]any{"last_city": in.City})
		})
}

// payTool asks a person about large amounts.
func payTool() flow.Tool {
	type payment struct {
		Amount int `json:"amount"`
	}
	return flow.NewTool(flow.Spec{
		Name: "pay",
		ConfirmIf: func(args map[string]any) bool {
			n, _ := args["amount"].(json.Number)
			amount, err := n.Int64()
			return err != nil || amount > 100
		},
	}, func(_ *flow.ToolContext, in payment) (string, error) { return fmt.Sprint("paid ", in.Amount), nil })
}

func TestPayTool(t *testing.T) {
	for args, asks := range map[string]int{`{"amount":100}`: 0, `{"amount":101}`: 1} {
		w := newWorld(t, flowtest.Call(call("c", "pay", args)))
		w.agent.Tools = []flow.Tool{payTool()}
		if got := len(w.say("go").questions()); got != asks {
			t.Errorf("%s: %d questions, want %d", args, got, asks)
		}
	}
}

// callbacks edit a request and the arguments of a call.
func callbacks() flow.Hooks {
	return flow.Hooks{
		Name: "house",
		BeforeModel: func(_ *flow.CallbackContext, req *flow.Request) (*session.Response, error) {
			req.Config.MaxOutputTokens = 1024
			return nil, nil // go on to the model
		},
		BeforeTool: func(_ *flow.ToolContext, call *flow.ToolCall) (map[string]any, error) {
			if call.Args["city"] == "杭州" {
				call.Args["city"] = "Hangzhou"
			}
			return nil, nil // go on to the handler
		},
	}
}

// team is a tree with an agent as a tool, a task and an MCP server.
func team(model flow.Model, files *mcp.Toolset) *flow.Agent {
	expert := &flow.Agent{Name: "expert", Description: "Knows numbers.", Model: model}
	booker := &flow.Agent{Name: "booker", Description: "Books rooms.", Model: model, Mode: flow.Task}
	return &flow.Agent{
		Name: "front", Model: model, Instruction: "Help {user:name?}.", OutputKey: "answer",
		Tools:    []flow.Tool{weatherTool(), payTool(), flow.AgentTool(expert, flow.AgentToolOptions{}), flow.LoadMemory()},
		Toolsets: []flow.Toolset{flow.FilterToolset(files, func(s *flow.Spec) bool { return s.Name == "read_file" })},
		Agents:   []*flow.Agent{booker},
	}
}

// An ADK program runs an agent in a session; so does this.
func Example() {
	model := &flowtest.Model{Steps: [][]flowtest.Reply{
		flowtest.Call(call("weather-1", "get_weather", `{"city":"杭州"}`)),
		flowtest.Say("It is 26 °C in Hangzhou."),
	}}
	files := mcp.New("files", mcp.HTTP("http://127.0.0.1:1", nil), mcp.Config{})
	defer files.Close()
	agent := team(model, files)
	agent.Toolsets = nil // nobody serves files here

	ctx, store := context.Background(), session.NewMemory()
	runner, err := flow.NewRunner(agent, store, flow.Config{Hooks: []flow.Hooks{callbacks()}, Memory: flow.NewWordMemory()})
	if err != nil {
		panic(err)
	}
	key := session.Key{App: "demo", User: "user-1", ID: "session-1"}
	if _, err := store.Create(ctx, key, nil); err != nil {
		panic(err)
	}
	for ev, err := range runner.Run(ctx, key, flow.Text("杭州现在多少度？")) {
		if err != nil {
			panic(err)
		}
		for _, c := range ev.Calls() {
			fmt.Println("call", c.Name, c.Args["city"])
		}
		for _, r := range ev.Responses() {
			fmt.Println("response", r.Name, r.Response)
		}
		if text := ev.Text(); text != "" {
			fmt.Println(ev.Author, "says", text)
		}
	}
	// Output:
	// call get_weather 杭州
	// response get_weather map[city:Hangzhou temperature:26]
	// front says It is 26 °C in Hangzhou.
}
