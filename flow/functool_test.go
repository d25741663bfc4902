package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
)

type query struct {
	City  string  `json:"city" jsonschema:"where"`
	Days  int     `json:"days,omitempty"`
	Limit *uint8  `json:"limit,omitempty"`
	Share float64 `json:"share,omitempty"`
}

type forecast struct {
	City string   `json:"city"`
	Days []string `json:"days"`
}

func TestTypedTools(t *testing.T) {
	spec := func(edit func(*flow.Spec)) flow.Spec {
		s := flow.Spec{Name: "tool", Description: "d"}
		if edit != nil {
			edit(&s)
		}
		return s
	}
	echo := func(_ *flow.ToolContext, in query) (query, error) { return in, nil }
	const untyped = `{"a":9007199254740993,"b":1.0,"c":0.12345678901234567891,"d":[{"e":1.10}],"f":1e300}`
	for _, c := range []struct {
		name string
		tool flow.Tool
		args string
		want string // of the response; a prefix
	}{
		{"as told", flow.NewTool(spec(nil), echo), `{"city":"Oslo","days":3,"limit":9}`, `{"city":"Oslo","days":3,"limit":9}`},
		{"missing", flow.NewTool(spec(nil), echo), `{"days":3}`, `{"error":"validating root: required: missing properties: [\"city\"]"}`},
		{"unknown", flow.NewTool(spec(nil), echo), `{"city":"Oslo","town":"x"}`, `{"error":"validating root: unexpected additional properties [\"town\"]"}`},
		{"wrong type", flow.NewTool(spec(nil), echo), `{"city":7}`, `{"error":"validating root: validating /properties/city: type: 7 has type \"integer\", want \"string\"}`},
		{"another case", flow.NewTool(spec(nil), echo), `{"City":"Oslo"}`, `{"error":"validating root: `},
		{"too large for the type", flow.NewTool(spec(func(s *flow.Spec) { s.Input = schemaOf(t, `{"type":"object"}`) }), echo), `{"city":"Oslo","limit":300}`,
			`{"error":"args_invalid: json: cannot unmarshal number 300 into Go struct field query.limit of type uint8"}`},
		{"too large for a float", flow.NewTool(spec(nil), echo), `{"city":"Oslo","share":1e400}`, `{"error":"args_invalid: document: number past all floats at byte 23"}`},
		{"no struct", flow.NewTool(spec(nil), func(_ *flow.ToolContext, in query) (string, error) { return "sun in " + in.City, nil }), `{"city":"Oslo"}`, `{"result":"sun in Oslo"}`},
		{"a list", flow.NewTool(spec(nil), func(*flow.ToolContext, query) ([]int, error) { return []int{1, 2}, nil }), `{"city":"Oslo"}`, `{"result":[1,2]}`},
		{"nothing", flow.NewTool(spec(nil), func(*flow.ToolContext, query) (*forecast, error) { return nil, nil }), `{"city":"Oslo"}`, `null`},
		{"a result with a nil list", flow.NewTool(spec(nil), func(*flow.ToolContext, query) (forecast, error) { return forecast{City: "Oslo"}, nil }), `{"city":"Oslo"}`, `{"city":"Oslo","days":null}`},
		{"a result against its schema", flow.NewTool(spec(func(s *flow.Spec) { s.Output = schemaOf(t, `{"type":"object","required":["wind"]}`) }), echo), `{"city":"Oslo"}`,
			`{"error":"validating root: required: missing properties: [\"wind\"]"}`},
		{"a result that JSON cannot say", flow.NewTool(spec(func(s *flow.Spec) { s.Output = schemaOf(t, `{}`) }), func(*flow.ToolContext, query) (any, error) { return func() {}, nil }),
			`{"city":"Oslo"}`, `{"error":"guest_output_invalid: the tool gave an answer that cannot be used"}`},
		{"an error", flow.NewTool(spec(nil), func(_ *flow.ToolContext, in query) (forecast, error) {
			return forecast{}, fmt.Errorf("no city %q", in.City)
		}), `{"city":"Oslo"}`,
			`{"error":"no city \"Oslo\""}`},
		{"a panic", flow.NewTool(spec(nil), func(*flow.ToolContext, query) (forecast, error) { panic(errors.New("lost it")) }), `{"city":"Oslo"}`,
			`{"error":"panic in tool \"tool\": lost it"}`},
		{"a pointer", flow.NewTool(spec(nil), func(_ *flow.ToolContext, in *query) (*query, error) { return in, nil }), `{"city":"Oslo"}`, `{"city":"Oslo"}`},
		{"numbers without a type keep their text", flow.NewTool(spec(nil), func(_ *flow.ToolContext, in map[string]any) (map[string]any, error) { return in, nil }),
			untyped, untyped},
		{"and in a field", flow.NewTool(spec(nil), func(_ *flow.ToolContext, in struct {
			Any  any            `json:"any"`
			List []any          `json:"list"`
			Map  map[string]any `json:"map"`
		}) (any, error) {
			return in, nil
		}), `{"any":` + untyped + `,"list":[` + untyped + `],"map":` + untyped + `}`, `{"any":` + untyped + `,"list":[` + untyped + `],"map":` + untyped + `}`},
		{"numbers keep their text", flow.NewTool(spec(nil), func(_ *flow.ToolContext, in map[string]json.Number) (map[string]json.Number, error) { return in, nil }),
			`{"a":9007199254740993,"b":1.0,"c":1e300}`, `{"a":9007199254740993,"b":1.0,"c":1e300}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", c.args)))
			w.agent.Tools, w.cfg.Artifacts = []flow.Tool{c.tool}, flow.NewMemoryArtifacts()
			if got := w.say("go").response("c1"); got != c.want && !(strings.HasPrefix(c.want, `{"error"`) && strings.HasPrefix(got, strings.TrimSuffix(c.want, "}"))) {
				t.Errorf("response %s, want %s", got, c.want)
			}
		})
	}
}

func TestDeclarationOfTypedTools(t *testing.T) {
	w := newWorld(t)
	w.agent.Tools = []flow.Tool{flow.NewTool(flow.Spec{Name: "tool", Description: "tells", LongRunning: true},
		func(*flow.ToolContext, query) (forecast, error) { return forecast{}, nil })}
	var got string
	w.model.OnRequest = func(req *flow.Request, _ bool) { got = toJSON(t, req.Config.Tools[0].FunctionDeclarations[0]) }
	w.say("go")
	for _, part := range []string{`"name":"tool"`, `"description":"tells\n\nNOTE: This is a long-running operation.`, `"required":["city"]`, `"description":"where"`, `"additionalProperties":`} {
		if !strings.Contains(got, part) {
			t.Errorf("declaration has no %s: %s", part, got)
		}
	}
}

func TestToolsThatCannotBe(t *testing.T) {
	handle := func(*flow.ToolContext, map[string]any) (any, error) { return nil, nil }
	for name, make := range map[string]func(){
		"no name":     func() { flow.NewTool(flow.Spec{}, handle) },
		"no function": func() { flow.NewTool[map[string]any, any](flow.Spec{Name: "t"}, nil) },
		"a list as input": func() {
			flow.NewTool(flow.Spec{Name: "t"}, func(*flow.ToolContext, []int) (any, error) { return nil, nil })
		},
		"a text as input": func() {
			flow.NewTool(flow.Spec{Name: "t"}, func(*flow.ToolContext, string) (any, error) { return nil, nil })
		},
		"a channel as input": func() {
			flow.NewTool(flow.Spec{Name: "t"}, func(*flow.ToolContext, struct{ C chan int }) (any, error) { return nil, nil })
		},
		"a channel as output": func() {
			flow.NewTool(flow.Spec{Name: "t"}, func(*flow.ToolContext, map[string]any) (chan int, error) { return nil, nil })
		},
		"a broken schema": func() { flow.NewTool(flow.Spec{Name: "t", Input: schemaOf(t, `{"$ref":"#/nowhere"}`)}, handle) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "flow: ") {
					t.Errorf("recovered %q, want a panic that says flow", p)
				}
			}()
			make()
		})
	}
}

// What a handler reads is what guards and people have read: a name in other letters is
// not the name, whatever the schema allows.
func TestTypedToolsReadExactNames(t *testing.T) {
	type inner struct {
		IBAN string `json:"iban"`
	}
	type in struct {
		User string           `json:"user"`
		To   []inner          `json:"to"`
		By   map[string]inner `json:"by"`
	}
	for args, want := range map[string]string{
		`{"user":"ada"}`:                                "",
		`{"user":"ada","other":{"USER":"x"}}`:           "",
		`{"by":{"USER":{"iban":"1"}}}`:                  "",
		`{"USER":"mallory"}`:                            `unknown member "USER"`,
		`{"user":"ada","User":"mallory"}`:               `unknown member "User"`,
		`{"user":"ada","u\u017fer":"mallory"}`:          "unknown member",
		`{"to":[{"iban":"1"},{"iban":"2","IBAN":"3"}]}`: `unknown member "IBAN"`,
		`{"by":{"a":{"Iban":"3"}}}`:                     `unknown member "Iban"`,
	} {
		w := newWorld(t, flowtest.Call(call("c1", "pay", args)))
		ran := 0
		w.agent.Tools = []flow.Tool{flow.NewTool(flow.Spec{Name: "pay", Input: &jsonschema.Schema{Type: "object"}}, func(*flow.ToolContext, in) (string, error) {
			ran++
			return "ok", nil
		})}
		o := w.say("go")
		if got := o.errorOf("c1"); want == "" && (got != "" || ran != 1) || want != "" && (ran != 0 || !strings.HasPrefix(got, "args_invalid: ") || !strings.Contains(got, want)) {
			t.Errorf("%s: the model reads %q, the handler ran %d times; want %q", args, got, ran, want)
		}
	}
}

// So do the tools of the runtime itself.
func TestBuiltinToolsReadExactNames(t *testing.T) {
	for _, c := range []struct {
		tool flow.Tool
		args string
	}{
		{flow.LoadArtifacts(), `{"artifact_names":["a"],"Artifact_Names":["b"]}`},
		{flow.LoadMemory(), `{"query":"a","QUERY":"b"}`},
	} {
		w := newWorld(t, flowtest.Call(call("c1", c.tool.Spec().Name, c.args)))
		w.agent.Tools, w.cfg.Artifacts = []flow.Tool{c.tool}, flow.NewMemoryArtifacts()
		if got := w.say("go").errorOf("c1"); !strings.Contains(got, "unknown member") {
			t.Errorf("%s: the model reads %q", c.args, got)
		}
	}
}
