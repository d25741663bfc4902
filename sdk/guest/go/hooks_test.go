package guest

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

func callHook(t *testing.T, h Hooks, in abi.HookCall) string {
	t.Helper()
	in.Format, in.Kind = abi.Version, abi.KindHook
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := mustServer(t, h).serve(&fakeWall{}, data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := abi.ParseHookAnswer(out, in.Hook); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return string(out)
}

const (
	message  = `{"parts":[{"inlineData":{"data":"AA==","mimeType":"image/png"}},{"text":"hi","videoMetadata":{"fps":1.50}},null],"role":"user","someday":[1.0]}`
	request  = `{"config":{"temperature":0.20,"topK":40},"contents":[` + message + `],"model":"m","toolsOfNextYear":{"a":1e2}}`
	response = `{"content":{"parts":[{"functionCall":{"args":{"n":1.0},"id":"1","name":"f","partialArgs":[]},"thoughtSignature":"AQ=="},{"functionResponse":{"id":"2","name":"g","response":{"ok":false},"scheduling":"SILENT"}},{"text":"9 °C","thought":true}],"role":"model"},"finishReason":"STOP","partial":false,"usageMetadata":{"totalTokenCount":7}}`
	event    = `{"actions":{"stateDelta":{"a":1.0}},"author":"clerk","content":` + message + `,"id":"e-1","invocationId":"i-1","longRunningToolIds":["x"],"time":"2026-03-01T09:00:00Z"}`
)

// TestHooksThatDoNothing checks that no document seems changed when a hook only
// looked at it, whatever members it has.
func TestHooksThatDoNothing(t *testing.T) {
	h := Hooks{
		OnUserMessage: func(_ *Call, m *Content) (*Content, error) {
			return nil, look(m.Parts[1].Text == "hi" && m.Role == "user")
		},
		BeforeRun:   func(*Call) (*Content, error) { return nil, nil },
		AfterRun:    func(*Call) error { return nil },
		BeforeAgent: func(c *Call) (*Content, error) { return nil, look(c.Agent() == "clerk" && c.Config("unit") == "C") },
		AfterAgent:  func(*Call) (*Content, error) { return nil, nil },
		BeforeModel: func(_ *Call, r *ModelRequest) (*ModelResponse, error) {
			n, err := r.Config.Decimal("/temperature")
			return nil, errors.Join(err, look(r.Model == "m" && len(r.Contents) == 1 && n.String() == "0.20"))
		},
		AfterModel: func(_ *Call, r *ModelResponse) (*ModelResponse, error) {
			return nil, look(r.Parts[0].FunctionCall.Args.Has("n") && r.Parts[1].FunctionResponse.Response.Has("/ok") && r.Parts[2].Thought && r.FinishReason == "STOP")
		},
		OnModelError: func(c *Call, r *ModelRequest) (*ModelResponse, error) {
			return nil, look(c.Cause() == "broken" && r.Model == "m")
		},
		BeforeTool: func(_ *Call, t *ToolCall) (any, error) { return nil, look(t.Name == "f" && t.Args.Has("/n")) },
		AfterTool:  func(_ *Call, t *ToolCall) (any, error) { return nil, look(t.Result.Has("r")) },
		OnToolError: func(c *Call, t *ToolCall) (any, error) {
			return nil, look(c.Cause() == "broken" && t.ID == "c1" && c.ID() == "c1")
		},
		OnEvent: func(_ *Call, e *Event) (*Event, error) {
			return nil, look(e.ID == "e-1" && e.Author == "clerk" && e.Parts[1].Text == "hi" && e.Actions.Has("/stateDelta/a"))
		},
	}
	for _, point := range abi.HookPoints() {
		t.Run(string(point), func(t *testing.T) {
			in := abi.HookCall{Hook: point, Agent: "clerk", Config: map[string]string{"unit": "C"}, Tool: "f", CallID: "c1", Error: "broken",
				Args: json.RawMessage(`{"n":1.0}`), Result: json.RawMessage(`{"r":1.0}`), Request: json.RawMessage(request),
				Response: json.RawMessage(response), Content: json.RawMessage(message), Event: json.RawMessage(event)}
			if got, want := callHook(t, h, in), `{"format":1}`; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		})
	}
	s := mustServer(t, h)
	if len(s.manifest.Hooks) != len(abi.HookPoints()) {
		t.Errorf("manifest has the hooks %v, want all", s.manifest.Hooks)
	}
}

func look(ok bool) error {
	if !ok {
		return errors.New("the hook does not see what it should")
	}
	return nil
}

func TestHooksThatChange(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Hooks
		in   abi.HookCall
		want string
	}{
		{"message edited in place", Hooks{OnUserMessage: func(_ *Call, m *Content) (*Content, error) { m.Parts[1].Text = "hello"; return nil, nil }},
			abi.HookCall{Hook: abi.OnUserMessage, Content: json.RawMessage(message)},
			`{"content":{"parts":[{"inlineData":{"data":"AA==","mimeType":"image/png"}},{"text":"hello","videoMetadata":{"fps":1.50}},{}],"role":"user","someday":[1.0]},"format":1}`},
		{"message answered", Hooks{OnUserMessage: func(*Call, *Content) (*Content, error) {
			return &Content{Role: "user", Parts: []Part{{Text: "<x>"}}}, nil
		}}, abi.HookCall{Hook: abi.OnUserMessage, Content: json.RawMessage(message)}, `{"answer":{"parts":[{"text":"<x>"}],"role":"user"},"format":1}`},
		{"request edited in place", Hooks{BeforeModel: func(_ *Call, r *ModelRequest) (*ModelResponse, error) {
			r.Contents = r.Contents[:0]
			r.Config.Set("/temperature", 1)
			r.Config.Delete("topK")
			return nil, nil
		}}, abi.HookCall{Hook: abi.BeforeModel, Request: json.RawMessage(request)},
			`{"format":1,"request":{"config":{"temperature":1},"contents":[],"model":"m","toolsOfNextYear":{"a":1e2}}}`},
		{"response edited in place", Hooks{AfterModel: func(_ *Call, r *ModelResponse) (*ModelResponse, error) {
			r.Parts[0].FunctionCall.Args.Set("m", true)
			r.Parts = r.Parts[:1]
			r.FinishReason = ""
			return nil, nil
		}}, abi.HookCall{Hook: abi.AfterModel, Response: json.RawMessage(response)},
			`{"format":1,"response":{"content":{"parts":[{"functionCall":{"args":{"m":true,"n":1.0},"id":"1","name":"f","partialArgs":[]},"thoughtSignature":"AQ=="}],"role":"model"},"partial":false,"usageMetadata":{"totalTokenCount":7}}}`},
		{"response returned", Hooks{AfterModel: func(_ *Call, r *ModelResponse) (*ModelResponse, error) {
			r.Parts = []Part{{Text: "no"}}
			return r, nil
		}}, abi.HookCall{Hook: abi.AfterModel, Response: json.RawMessage(response)},
			`{"answer":{"content":{"parts":[{"text":"no"}],"role":"model"},"finishReason":"STOP","partial":false,"usageMetadata":{"totalTokenCount":7}},"format":1}`},
		{"model answered", Hooks{BeforeModel: func(*Call, *ModelRequest) (*ModelResponse, error) {
			return &ModelResponse{Content: Content{Role: "model", Parts: []Part{{FunctionCall: &FunctionCall{Name: "f"}}}}, TurnComplete: true}, nil
		}}, abi.HookCall{Hook: abi.BeforeModel, Request: json.RawMessage(request)},
			`{"answer":{"content":{"parts":[{"functionCall":{"name":"f"}}],"role":"model"},"turnComplete":true},"format":1}`},
		{"args set", Hooks{BeforeTool: func(_ *Call, c *ToolCall) (any, error) { c.Args.Set("unit", "F"); return nil, nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{"n":1.0}`)}, `{"args":{"n":1.0,"unit":"F"},"format":1}`},
		{"args set to what they were", Hooks{BeforeTool: func(_ *Call, c *ToolCall) (any, error) { c.Args.Set("n", json.Number("1.0")); return nil, nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{"n": 1.0}`)}, `{"format":1}`},
		{"call answered", Hooks{BeforeTool: func(*Call, *ToolCall) (any, error) { return map[string]any{"ok": true}, nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{}`)}, `{"answer":{"ok":true},"format":1}`},
		{"call answered with a nil map", Hooks{BeforeTool: func(*Call, *ToolCall) (any, error) { return map[string]any(nil), nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{}`)}, `{"format":1}`},
		{"result set", Hooks{AfterTool: func(_ *Call, c *ToolCall) (any, error) {
			c.Args.Set("n", 2)
			c.Result.Set("/days/-", "sun")
			return nil, nil
		}}, abi.HookCall{Hook: abi.AfterTool, Args: json.RawMessage(`{}`), Result: json.RawMessage(`{"days":["sat"]}`)}, `{"format":1,"result":{"days":["sat","sun"]}}`},
		{"event edited in place", Hooks{OnEvent: func(_ *Call, e *Event) (*Event, error) { e.Parts = e.Parts[1:2]; return nil, nil }},
			abi.HookCall{Hook: abi.OnEvent, Event: json.RawMessage(event)},
			`{"event":{"actions":{"stateDelta":{"a":1.0}},"author":"clerk","content":{"parts":[{"text":"hi","videoMetadata":{"fps":1.50}}],"role":"user","someday":[1.0]},"id":"e-1","invocationId":"i-1","longRunningToolIds":["x"],"time":"2026-03-01T09:00:00Z"},"format":1}`},
		{"run answered", Hooks{BeforeRun: func(*Call) (*Content, error) { return &Content{Parts: []Part{{Text: "closed"}}}, nil }},
			abi.HookCall{Hook: abi.BeforeRun}, `{"answer":{"parts":[{"text":"closed"}]},"format":1}`},

		{"failed", Hooks{AfterRun: func(*Call) error { return Fail("no", "not now") }}, abi.HookCall{Hook: abi.AfterRun}, `{"error":"no: not now","format":1}`},
		{"failed after a change", Hooks{BeforeTool: func(_ *Call, c *ToolCall) (any, error) { c.Args.Set("a", 1); return nil, errors.New("no") }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{}`)}, `{"error":"no","format":1}`},
		{"answer is no object", Hooks{BeforeTool: func(*Call, *ToolCall) (any, error) { return 7, nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{}`)}, `{"error":"answer: int is no object","format":1}`},
		{"answer is NaN", Hooks{BeforeTool: func(*Call, *ToolCall) (any, error) { return math.NaN(), nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{}`)}, `{"error":"answer: json: unsupported value: NaN","format":1}`},
		{"change that cannot be", Hooks{BeforeTool: func(_ *Call, c *ToolCall) (any, error) { c.Args.Set("/a/b", 1); return nil, nil }},
			abi.HookCall{Hook: abi.BeforeTool, Args: json.RawMessage(`{}`)}, `set \"/a/b\": absent`},
		{"result change that cannot be", Hooks{AfterTool: func(_ *Call, c *ToolCall) (any, error) { c.Result.Set("a", math.NaN()); return nil, nil }},
			abi.HookCall{Hook: abi.AfterTool, Args: json.RawMessage(`{}`), Result: json.RawMessage(`{}`)}, `unsupported value: NaN`},
		{"document of another form", Hooks{AfterModel: func(*Call, *ModelResponse) (*ModelResponse, error) { return nil, nil }},
			abi.HookCall{Hook: abi.AfterModel, Response: json.RawMessage(`{"content":{"parts":"none"}}`)}, `"error":"response: content: parts: `},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := callHook(t, c.h, c.in)
			if got != c.want && (!strings.Contains(got, `"error"`) || !strings.Contains(got, c.want)) {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// FuzzContent: an event that can be read is written again with the same meaning.
func FuzzContent(f *testing.F) {
	for _, s := range []string{event, response, message, `{"content":null,"partial":null}`, `{"content":{"parts":[]}}`, `{"content":{"parts":[{"functionCall":null,"text":""}]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		canonical, err := abi.Canonical(in)
		if err != nil || canonical[0] != '{' {
			return
		}
		var e Event
		if json.Unmarshal(canonical, &e) != nil {
			return
		}
		once, err := abi.Marshal(e)
		if err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		// The only thing that may differ is a member that is null, where the REST
		// form has none.
		if !strings.Contains(string(canonical), "null") && string(once) != string(canonical) {
			t.Fatalf("%s\nbecomes %s", canonical, once)
		}
		var again Event
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := abi.Marshal(again); err != nil || string(twice) != string(once) {
			t.Fatalf("%s\nbecomes %s, error %v", once, twice, err)
		}
	})
}
