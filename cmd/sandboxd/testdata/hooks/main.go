// Hooks is the plugin of the scripts that takes part at every point of a run: it
// logs where it is, and remembers each tool that is called.
package main

import guest "github.com/sandboxd/sandboxd/sdk/guest/go"

func init() {
	guest.Serve(guest.Plugin{
		Name: "hooks", Version: "1.0.0", Requests: []string{"state write session:last", "log", "http GET **/*"},
		Exports: []guest.Export{
			guest.Tool[struct{}, any]{Name: "look", Description: "Look.", Effects: guest.None,
				Handle: func(*guest.Call, struct{}) (any, error) { return map[string]bool{"ok": true}, nil }},
			guest.Hooks{
				OnUserMessage: func(c *guest.Call, _ *guest.Content) (*guest.Content, error) { return nil, at(c, "on_user_message") },
				BeforeRun:     func(c *guest.Call) (*guest.Content, error) { return nil, at(c, "before_run") },
				AfterRun:      func(c *guest.Call) error { return at(c, "after_run") },
				BeforeAgent:   func(c *guest.Call) (*guest.Content, error) { return nil, at(c, "before_agent") },
				AfterAgent:    func(c *guest.Call) (*guest.Content, error) { return nil, at(c, "after_agent") },
				BeforeModel: func(c *guest.Call, _ *guest.ModelRequest) (*guest.ModelResponse, error) {
					return nil, at(c, "before_model")
				},
				AfterModel: func(c *guest.Call, _ *guest.ModelResponse) (*guest.ModelResponse, error) {
					return nil, at(c, "after_model")
				},
				OnModelError: func(c *guest.Call, _ *guest.ModelRequest) (*guest.ModelResponse, error) {
					return nil, at(c, "on_model_error")
				},
				BeforeTool: func(c *guest.Call, t *guest.ToolCall) (any, error) {
					if err := at(c, "before_tool"); err != nil {
						return nil, err
					}
					return nil, c.Set("session:last", t.Name)
				},
				AfterTool:   func(c *guest.Call, _ *guest.ToolCall) (any, error) { return nil, at(c, "after_tool") },
				OnToolError: func(c *guest.Call, _ *guest.ToolCall) (any, error) { return nil, at(c, "on_tool_error") },
				OnEvent:     func(c *guest.Call, _ *guest.Event) (*guest.Event, error) { return nil, at(c, "on_event") },
			},
		},
	})
}

func main() {}

func at(c *guest.Call, point string) error {
	c.Log(guest.LevelInfo, "hook at %s", point)
	return nil
}
