package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A fakeWall is a host that notes what it is asked and answers what the test says.
type fakeWall struct {
	asked  []string // "function request body"
	answer func(function string, request, body []byte) ([]byte, error)
}

func (w *fakeWall) call(function string, request, body []byte) ([]byte, error) {
	line := function + " " + string(request)
	if body != nil {
		line += " " + string(body)
	}
	w.asked = append(w.asked, line)
	if w.answer == nil {
		return nil, nil
	}
	return w.answer(function, request, body)
}

func (w *fakeWall) random(p []byte) {
	for i := range p {
		p[i] = byte(i + 1)
	}
}

// denied is how a host refuses.
func denied(function string, _, _ []byte) ([]byte, error) {
	return nil, hostError(function, []byte(`{"code":"capability_denied","message":"need it"}`))
}

func mustServer(t *testing.T, exports ...Export) *server {
	t.Helper()
	s, err := newServer(Plugin{Name: "p", Version: "1", Exports: exports})
	if err != nil {
		t.Fatal(err)
	}
	s.warmUp()
	return s
}

// callTool calls the tool t of s and returns the document it answers.
func callTool(t *testing.T, s *server, w wall, args string) string {
	t.Helper()
	in, err := json.Marshal(abi.ToolCall{Format: abi.Version, Kind: abi.KindTool, Tool: "t", ID: "c1", Args: json.RawMessage(args), Config: map[string]string{"unit": "C"}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.serve(w, in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := abi.ParseToolResult(out); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if canonical, err := abi.Canonical(out); err != nil || string(canonical) != string(out) {
		t.Fatalf("%s is not canonical: %s, %v", out, canonical, err)
	}
	return string(out)
}

func TestToolAnswers(t *testing.T) {
	type in struct {
		Say string `json:"say"`
	}
	for _, c := range []struct {
		name   string
		handle func(c *Call, in in) (any, error)
		want   string
	}{
		{"object", func(_ *Call, in in) (any, error) { return map[string]any{"said": in.Say, "b": json.Number("1.0")}, nil }, `{"format":1,"result":{"b":1.0,"said":"<hi>"}}`},
		{"text", func(_ *Call, in in) (any, error) { return in.Say, nil }, `{"format":1,"result":"<hi>"}`},
		{"nothing", func(*Call, in) (any, error) { return nil, nil }, `{"format":1,"result":null}`},
		{"failure", func(*Call, in) (any, error) { return nil, Fail("no_place", "no %s", "place") }, `{"fail":{"code":"no_place","message":"no place"},"format":1}`},
		{"wrapped failure", func(*Call, in) (any, error) { return nil, fmt.Errorf("x: %w", Fail("no_place", "no place")) }, `{"fail":{"code":"no_place","message":"no place"},"format":1}`},
		{"failure with another code", func(*Call, in) (any, error) { return nil, Fail("No Place", "no place") }, `{"fail":{"message":"no place"},"format":1}`},
		{"error", func(*Call, in) (any, error) { return nil, errors.New("it broke") }, `{"fail":{"message":"it broke"},"format":1}`},
		{"NaN", func(*Call, in) (any, error) { return math.NaN(), nil }, `{"fail":{"code":"bad_result","message":"result: json: unsupported value: NaN"},"format":1}`},
		{"duplicate members", func(*Call, in) (any, error) { return json.RawMessage(`{"a":1,"a":2}`), nil }, `{"fail":{"code":"bad_result","message":"result: document: duplicate member name: \"a\""},"format":1}`},
		{"what the call knows", func(c *Call, _ in) (any, error) {
			return []any{c.ID(), c.Config("unit"), c.Config("none"), c.Confirmation(), c.Agent(), c.Cause()}, nil
		}, `{"format":1,"result":["c1","C","",null,"",""]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustServer(t, Tool[in, any]{Name: "t", Handle: c.handle})
			if got := callTool(t, s, &fakeWall{}, `{"say":"<hi>"}`); got != c.want {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPanicIsNotRecovered(t *testing.T) {
	s := mustServer(t, Tool[struct{}, any]{Name: "t", Handle: func(*Call, struct{}) (any, error) { panic("broken") }})
	defer func() {
		if r := recover(); r != "broken" {
			t.Fatalf("recovered %v, want the handler's panic", r)
		}
	}()
	callTool(t, s, &fakeWall{}, `{}`)
}

func TestStream(t *testing.T) {
	type line struct {
		N    int    `json:"n"`
		Text string `json:"text"`
	}
	s := mustServer(t, Stream[struct{}, line]{Name: "t", Effects: None, Handle: func(_ *Call, _ struct{}, emit func(line) error) error {
		for i := range 3 {
			if err := emit(line{i, "<x>"}); err != nil {
				return err
			}
		}
		return nil
	}})
	if tool := s.manifest.Tools[0]; !tool.Streaming || tool.LongRunning || tool.Output != nil {
		t.Errorf("manifest has %+v", tool)
	}
	w := &fakeWall{}
	if got, want := callTool(t, s, w, `{}`), `{"format":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(w.asked) != 3 || !strings.HasPrefix(w.asked[2], `emit {"chunk":{"n":2,"text":"`) {
		t.Errorf("emitted %q", w.asked)
	}
	w = &fakeWall{answer: denied}
	if got, want := callTool(t, s, w, `{}`), `{"fail":{"message":"emit: capability_denied: need it"},"format":1}`; got != want || len(w.asked) != 1 {
		t.Errorf("got %s after %d chunks, want %s after 1", got, len(w.asked), want)
	}
}

func TestStreamChunkThatIsNoJSON(t *testing.T) {
	s := mustServer(t, Stream[struct{}, float64]{Name: "t", Handle: func(_ *Call, _ struct{}, emit func(float64) error) error { return emit(math.NaN()) }})
	w := &fakeWall{}
	if got := callTool(t, s, w, `{}`); !strings.Contains(got, "chunk: json: unsupported value: NaN") || len(w.asked) != 0 {
		t.Errorf("got %s after %d chunks", got, len(w.asked))
	}
}

func TestJob(t *testing.T) {
	type ticket struct {
		ID string `json:"id"`
	}
	var answer *ticket
	s := mustServer(t, Job[struct{}, *ticket]{Name: "t", Effects: Idempotent, Start: func(*Call, struct{}) (*ticket, error) { return answer, nil }})
	if tool := s.manifest.Tools[0]; !tool.LongRunning || tool.Streaming || tool.Effects != Idempotent {
		t.Errorf("manifest has %+v", tool)
	}
	if got, want := callTool(t, s, &fakeWall{}, `{}`), `{"format":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	answer = &ticket{"t-1"}
	if got, want := callTool(t, s, &fakeWall{}, `{}`), `{"format":1,"result":{"id":"t-1"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDescribe(t *testing.T) {
	type query struct {
		Place string `json:"place" doc:"town or city" min:"1" max:"80"`
		Days  int    `json:"days,omitempty" min:"1" max:"7" default:"3"`
	}
	type settings struct {
		Ask Decimal `json:"ask_from"`
	}
	s, err := newServer(Plugin{Name: "weather", Version: "1.0.0", Description: "Forecasts.", Requests: []string{"log"}, Limits: Limits{WallMS: 100},
		Exports: []Export{
			Tool[query, struct {
				Sky string `json:"sky"`
			}]{Name: "get_weather", Description: "Daily.", Effects: None, Confirm: true, Handle: func(*Call, query) (r struct {
				Sky string `json:"sky"`
			}, err error) {
				return r, nil
			}},
			Tool[map[string]any, any]{Name: "anything", Handle: func(*Call, map[string]any) (any, error) { return nil, nil }},
			Hooks{BeforeTool: func(*Call, *ToolCall) (any, error) { return nil, nil }},
			Guard[settings]{Name: "limit", Phases: []Phase{PhaseCall}, Judge: func(*Question, settings) Verdict { return Allow() }},
			Guard[struct{}]{Name: "plain", Phases: []Phase{PhaseResult}, Mutates: []Phase{PhaseResult}, Judge: func(*Question, struct{}) Verdict { return Allow() }},
		}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"abi":1,"description":"Forecasts.","guards":[` +
		`{"check":true,"name":"limit","phases":["call"],"settings":{"additionalProperties":false,"properties":{"ask_from":{"pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?$","type":["number","string"]}},"required":["ask_from"],"type":"object"}},` +
		`{"mutates":["result"],"name":"plain","phases":["result"]}],` +
		`"hooks":["before_tool"],"limits":{"wall_ms":100},"name":"weather","requests":["log"],"tools":[` +
		`{"confirm":true,"description":"Daily.","effects":"none","input":{"additionalProperties":false,"properties":{"days":{"default":3,"maximum":7,"minimum":1,"type":"integer"},"place":{"description":"town or city","maxLength":80,"minLength":1,"type":"string"}},"required":["place"],"type":"object"},"name":"get_weather","output":{"additionalProperties":false,"properties":{"sky":{"type":"string"}},"required":["sky"],"type":"object"}},` +
		`{"input":{"additionalProperties":{},"type":"object"},"name":"anything"}],"version":"1.0.0"}`
	if string(s.described) != want {
		t.Errorf("got  %s\nwant %s", s.described, want)
	}
	if _, err := abi.ParseManifest(s.described); err != nil {
		t.Error(err)
	}
}

func TestPluginsThatCannotBe(t *testing.T) {
	type cycle struct {
		Next *cycle `json:"next"`
	}
	ok := Tool[struct{}, any]{Name: "t", Handle: func(*Call, struct{}) (any, error) { return nil, nil }}
	for _, c := range []struct {
		name    string
		exports []Export
		err     string
	}{
		{"nothing", nil, "no tool, hook or guard"},
		{"nil export", []Export{ok, nil}, "exports[1] is nil"},
		{"bad name", []Export{Tool[struct{}, any]{Name: "T", Handle: ok.Handle}}, `name "T"`},
		{"tool twice", []Export{ok, ok}, "there twice"},
		{"no handler", []Export{Tool[struct{}, any]{Name: "t"}}, "tool t: Handle is nil"},
		{"no stream handler", []Export{Stream[struct{}, any]{Name: "t"}}, "tool t: Handle is nil"},
		{"no start", []Export{Job[struct{}, any]{Name: "t"}}, "tool t: Start is nil"},
		{"input is text", []Export{Tool[string, any]{Name: "t", Handle: func(*Call, string) (any, error) { return nil, nil }}}, "tool t: input: want a struct or a map"},
		{"input contains itself", []Export{Tool[cycle, any]{Name: "t", Handle: func(*Call, cycle) (any, error) { return nil, nil }}}, "contains itself"},
		{"output has no form", []Export{Tool[struct{}, chan int]{Name: "t", Handle: func(*Call, struct{}) (chan int, error) { return nil, nil }}}, "output: type chan int has no JSON form"},
		{"job output has no form", []Export{Job[struct{}, chan int]{Name: "t", Start: func(*Call, struct{}) (chan int, error) { return nil, nil }}}, "output: type chan int"},
		{"chunk has no form", []Export{Stream[struct{}, func()]{Name: "t", Handle: func(*Call, struct{}, func(func()) error) error { return nil }}}, "chunk: type func() has no JSON form"},
		{"no judge", []Export{Guard[struct{}]{Name: "g", Phases: []Phase{PhaseCall}}}, "guard g: Judge is nil"},
		{"no phase", []Export{Guard[struct{}]{Name: "g", Judge: func(*Question, struct{}) Verdict { return Allow() }}}, "guard g: no phases"},
		{"settings are text", []Export{Guard[string]{Name: "g", Phases: []Phase{PhaseCall}, Judge: func(*Question, string) Verdict { return Allow() }}}, "want a struct"},
		{"no hook", []Export{Hooks{}}, "every one is nil"},
		{"hooks twice", []Export{Hooks{AfterRun: func(*Call) error { return nil }}, Hooks{AfterRun: func(*Call) error { return nil }}}, "hooks: there twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := newServer(Plugin{Name: "p", Version: "1", Exports: c.exports})
			if s != nil || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestServe(t *testing.T) {
	t.Cleanup(func() { served = nil })
	panics := func(p Plugin) (r any) {
		defer func() { r = recover() }()
		Serve(p)
		return nil
	}
	if r := panics(Plugin{Name: "p"}); r == nil || served != nil {
		t.Errorf("a plugin that cannot be: recovered %v", r)
	}
	ok := Plugin{Name: "p", Version: "1", Exports: []Export{Hooks{AfterRun: func(*Call) error { return nil }}}}
	if r := panics(ok); r != nil || served == nil {
		t.Errorf("a plugin: recovered %v", r)
	}
	if r := panics(ok); r != "guest: Serve called twice: a module is one plugin" {
		t.Errorf("a second plugin: recovered %v", r)
	}
}

// odd is a type that cannot be encoded when it is empty.
type odd struct{ P *int }

func (o odd) MarshalJSON() ([]byte, error) { return json.Marshal(*o.P) }

func TestWarmUpLeavesOddTypesAlone(t *testing.T) {
	n := 7
	s := mustServer(t, Tool[struct{}, odd]{Name: "t", Handle: func(*Call, struct{}) (odd, error) { return odd{&n}, nil }})
	if got, want := callTool(t, s, &fakeWall{}, `{}`), `{"format":1,"result":7}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCallsThatAreNotOurs(t *testing.T) {
	s := mustServer(t, Tool[struct{}, any]{Name: "t", Handle: func(*Call, struct{}) (any, error) { return nil, nil }},
		Guard[struct{}]{Name: "g", Phases: []Phase{PhaseCall}, Judge: func(*Question, struct{}) Verdict { return Allow() }})
	for _, c := range []struct{ in, err string }{
		{``, "input"},
		{`[]`, "input"},
		{`{"kind":"tool","tool":"t","args":{}}`, "format 0"},
		{`{"format":2,"kind":"tool","tool":"t","args":{}}`, "format 2"},
		{`{"format":1,"kind":"dream"}`, `kind "dream"`},
		{`{"format":1,"kind":"tool","tool":"other","args":{}}`, `no tool "other"`},
		{`{"format":1,"kind":"tool","tool":7}`, "input"},
		{`{"format":1,"kind":"guard","guard":"other"}`, `no guard "other"`},
		{`{"format":1,"kind":"guard","guard":"g","now":"yesterday"}`, "now"},
		{`{"format":1,"kind":"guard","guard":7}`, "input"},
		{`{"format":1,"kind":"settings","guard":"other"}`, `no guard "other"`},
		{`{"format":1,"kind":"settings","guard":7}`, "input"},
		{`{"format":1,"kind":"hook","hook":"before_tool"}`, "no hook"},
		{`{"format":1,"kind":"hook","hook":7}`, "input"},
	} {
		if out, err := s.serve(&fakeWall{}, []byte(c.in)); out != nil || err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %s, error %v, want %q", c.in, out, err, c.err)
		}
	}
}

func TestDefaultsAndWholeNumbers(t *testing.T) {
	type inner struct {
		Limit int `json:"limit,omitempty" default:"10"`
	}
	type in struct {
		Days  int              `json:"days" default:"3"`
		Unit  string           `json:"unit" default:"C" enum:"C,F"`
		Tags  []string         `json:"tags" default:"[\"a\"]"`
		Cost  Decimal          `json:"cost" default:"1.50"`
		Page  inner            `json:"page,omitzero"`
		Maybe *inner           `json:"maybe"`
		Each  []inner          `json:"each,omitempty"`
		Named map[string]inner `json:"named,omitempty"`
		Ratio float64          `json:"ratio" default:"0.5"`
		On    *bool            `json:"on" default:"true"`
	}
	for _, c := range []struct{ name, args, want string }{
		{"nothing given", `{}`, `{"cost":"1.50","days":3,"maybe":null,"on":true,"page":{"limit":10},"ratio":0.5,"tags":["a"],"unit":"C"}`},
		{"all given", `{"days":1,"unit":"F","tags":[],"cost":2.50,"page":{"limit":1},"maybe":{"limit":2},"ratio":1,"on":false}`,
			`{"cost":"2.50","days":1,"maybe":{"limit":2},"on":false,"page":{"limit":1},"ratio":1,"tags":[],"unit":"F"}`},
		{"below", `{"maybe":{},"each":[{},{"limit":1}],"named":{"x":{}}}`,
			`{"cost":"1.50","days":3,"each":[{"limit":10},{"limit":1}],"maybe":{"limit":10},"named":{"x":{"limit":10}},"on":true,"page":{"limit":10},"ratio":0.5,"tags":["a"],"unit":"C"}`},
		{"null is not absent", `{"maybe":null,"on":null,"tags":null}`,
			`{"cost":"1.50","days":3,"maybe":null,"on":null,"page":{"limit":10},"ratio":0.5,"tags":null,"unit":"C"}`},
		{"whole numbers", `{"days":3e0,"page":{"limit":-20.0}}`,
			`{"cost":"1.50","days":3,"maybe":null,"on":true,"page":{"limit":-20},"ratio":0.5,"tags":["a"],"unit":"C"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustServer(t, Tool[in, in]{Name: "t", Handle: func(_ *Call, in in) (in_ in, err error) { return in, nil }})
			if got, want := callTool(t, s, &fakeWall{}, c.args), `{"format":1,"result":`+c.want+`}`; got != want {
				t.Fatalf("args %s\ngot  %s\nwant %s", c.args, got, want)
			}
		})
	}
	s := mustServer(t, Tool[in, any]{Name: "t", Handle: func(*Call, in) (any, error) { return nil, nil }})
	for _, args := range []string{`{"days":1.5}`, `{"days":1e30}`, `{"days":"1"}`, `[]`} {
		if got := callTool(t, s, &fakeWall{}, args); !strings.HasPrefix(got, `{"fail":{"code":"bad_args"`) {
			t.Errorf("args %s: got %s, want bad_args", args, got)
		}
	}
}

func TestNumbersKeepTheirText(t *testing.T) {
	s := mustServer(t, Tool[map[string]any, any]{Name: "t", Handle: func(_ *Call, in map[string]any) (any, error) { return in, nil }})
	const args = `{"a":[0.10,1e2,12345678901234567890123]}`
	if got, want := callTool(t, s, &fakeWall{}, args), `{"format":1,"result":`+args+`}`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestRandomAndNoHost(t *testing.T) {
	var p [4]byte
	(&Call{wall: &fakeWall{}}).Random(p[:])
	if !slices.Equal(p[:], []byte{1, 2, 3, 4}) {
		t.Errorf("random is not the wall's: %v", p)
	}
	// A call made by hand has no host.
	if err := new(Call).Set("session:a", 1); err == nil || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "no host") {
		t.Errorf("state without a host: error %v", err)
	}
}
