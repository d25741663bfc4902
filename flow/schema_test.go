package flow_test

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
)

func schemaOf(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// Numbers keep their text everywhere, and are numbers for a schema all the same.
func TestNumbersAgainstSchemas(t *testing.T) {
	for _, c := range []struct {
		schema, value string
		fits          bool
	}{
		{`{"type":"integer"}`, `1`, true},
		{`{"type":"integer"}`, `1.0`, true},
		{`{"type":"integer"}`, `1e2`, true},
		{`{"type":"integer"}`, `1.5`, false},
		{`{"type":"integer"}`, `9007199254740993`, true},
		{`{"type":"integer"}`, `18446744073709551615`, true},
		{`{"type":"integer"}`, `1e300`, true},
		{`{"type":"integer"}`, `1e400`, false}, // whatever the schema: it is refused
		{`{"type":"integer"}`, `1e-400`, false},
		{`{"type":"integer"}`, `"1"`, false},
		{`{"type":"number"}`, `-0.5`, true},
		{`{"type":"string"}`, `1`, false},
		{`{"type":"string","pattern":"^[0-9]+$"}`, `1`, false},
		{`{"maxLength":1}`, `12345`, true},
		{`{"maximum":9}`, `10`, false},
		{`{"maximum":9}`, `9.0`, true},
		{`{"maximum":9}`, `1e400`, false},
		{`{"minimum":-9}`, `-1e400`, false},
		{`{"exclusiveMinimum":0}`, `1e-400`, true},
		{`{"exclusiveMinimum":0}`, `0e-400`, false},
		{`{"maximum":9223372036854775806}`, `9223372036854775807`, true}, // the bound itself is a float64
		{`{"enum":[1,"a"]}`, `1.0`, true},
		{`{"enum":[1,"a"]}`, `2`, false},
		{`{"const":9007199254740992}`, `9007199254740993`, false},
		{`{"items":{"type":"integer"}}`, `[1,2,"3"]`, false},
		{`{"properties":{"a":{"properties":{"b":{"maximum":1}}}}}`, `{"a":{"b":2}}`, false},
	} {
		t.Run(c.schema+" "+c.value, func(t *testing.T) {
			args := `{"v":` + c.value + `}`
			w := newWorld(t, flowtest.Call(call("c1", "in", args), call("c2", "out", `{}`)))
			in, out := tool("in"), handler("out", func(*flow.ToolContext, json.RawMessage) (string, error) { return args, nil })
			in.Describe.Input = schemaOf(t, `{"type":"object","properties":{"v":`+c.schema+`}}`)
			out.Describe.Output = schemaOf(t, `{"type":"object","properties":{"v":`+c.schema+`}}`)
			w.agent.Tools = []flow.Tool{in, out}
			o := w.say("go")
			if got := o.errorOf("c1") == ""; got != c.fits || len(in.Calls()) == 1 != c.fits {
				t.Errorf("as argument: %s, %d calls, want fits: %v", o.response("c1"), len(in.Calls()), c.fits)
			}
			if got := o.errorOf("c2") == ""; got != c.fits {
				t.Errorf("as result: %s, want fits: %v", o.response("c2"), c.fits)
			}
		})
	}
}

func TestNumbersKeepTheirText(t *testing.T) {
	const doc = `{"big":9007199254740993,"deep":[{"n":0.10}],"exp":1E+2,"huge":1e300,"minus":-0,"one":1.0}`
	w := newWorld(t, flowtest.Call(call("c1", "tool", doc)))
	handled := handler("tool", func(ctx *flow.ToolContext, args json.RawMessage) (string, error) {
		var state any
		if err := json.Unmarshal(args, &map[string]json.RawMessage{}); err != nil {
			return "", err
		}
		state = json.RawMessage(args)
		return string(args), ctx.SetState(map[string]any{"kept": state})
	})
	handled.Describe.Input = schemaOf(t, `{"type":"object","properties":{"big":{"type":"integer"},"huge":{"type":"number"},"one":{"type":"integer"}}}`)
	w.agent.Tools = []flow.Tool{handled}
	guard := &flowtest.Guard{Label: "guard", In: bothPhases}
	w.cfg.Guards = []flow.Guard{guard}
	var hook string
	w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(_ *flow.ToolContext, c *flow.ToolCall) (map[string]any, error) {
		hook = toJSON(t, c.Args)
		return nil, nil
	}}}
	var second string
	w.model.OnRequest = func(req *flow.Request, _ bool) { second = toJSON(t, req.Contents) }
	o := w.say("go")
	for what, got := range map[string]string{
		"hook": hook, "handler": handled.Calls()[0], "guard, call": string(guard.Asked()[0].Call.Args), "guard, result": string(guard.Asked()[1].Result),
		"response": o.response("c1"), "call event": toJSON(t, o.events[0].Calls()[0].Args), "state": toJSON(t, w.stored().State["kept"]),
		"record": string(w.calls()[0].Result), "stored event": toJSON(t, w.stored().Events[2].Responses()[0].Response),
	} {
		if got != doc {
			t.Errorf("%s: %s, want %s", what, got, doc)
		}
	}
	if want := `"args":` + doc; !contains(second, want) || !contains(second, `"response":`+doc) {
		t.Errorf("the next request: %s", second)
	}
}
