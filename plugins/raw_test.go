package plugins_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A plain Extism export gets the arguments alone and answers with the result
// alone: JSON, or text where its schema has room for it.
func TestRaw(t *testing.T) {
	invalid := errorText(fmt.Sprintf("%s: %s", abi.GuestOutputInvalid, abi.GuestOutputInvalid.Sentence()))
	echo := []hosttest.Piece{hosttest.Input()}
	for _, c := range []struct {
		name, schema string
		says         []hosttest.Piece
		want         string // the response; one that is no object is below "result"
	}{
		{"its input", "", echo, `{"n":1.50}`},
		{"JSON", "", says(` {"b":1,"a":2} `), `{"a":2,"b":1}`},
		{"a number", "", says("42"), `{"result":42}`},
		{"text where nothing is said of it", "", says("Hello, world!"), invalid},
		{"a repeated name where nothing is said of text", "", says(`{"a":1,"a":2}`), invalid},
		{"text", "{}", says("Hello, world!"), `{"result":"Hello, world!"}`},
		{"JSON where text may be", "{}", says(` {"b":1,"a":2} `), `{"a":2,"b":1}`},
		{"JSON with a repeated name is text", "{}", says(`{"a":1,"a":2}`), `{"result":"{\"a\":1,\"a\":2}"}`},
		{"text that reads like a number", `{"type":"string"}`, says("42"), `{"result":"42"}`},
		{"text that reads like an object", `{"type":"string"}`, says(`{"a":1}`), `{"result":"{\"a\":1}"}`},
		{"a string in JSON", `{"type":"string"}`, says(`"quoted"`), `{"result":"quoted"}`},
		{"bytes", "", says("\xff\xfe"), invalid},
		{"bytes where text may be", "{}", says("\xff\xfe"), invalid},
		{"bytes where text is due", `{"type":"string"}`, says("a\xff"), invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := hosttest.Manifest("tool")
			m.Tools[0].Export, m.Tools[0].Raw = "tool", true
			if c.schema != "" {
				m.Tools[0].Output = json.RawMessage(c.schema)
			}
			z := newZoo(t, m, plugins.Config{}, map[string]hosttest.Guest{"tool": {Says: c.says}})
			if got := response(t, z.calls(call("c1", "tool", `{"n":1.50}`)), "c1"); got != c.want {
				t.Errorf("the model reads %s, want %s", got, c.want)
			}
		})
	}
}

// What a tool is told of its configuration is the manifest's, and over it the app's.
func TestConfig(t *testing.T) {
	m := hosttest.Manifest("tool")
	m.Config = map[string]string{"currency": "EUR", "unit": "kg"}
	mine := map[string]string{"unit": "t", "more": "yes"}
	z := newZoo(t, m, plugins.Config{Values: mine}, map[string]hosttest.Guest{"tool": {Says: hosttest.Result(hosttest.Input())}})
	var got struct {
		Config map[string]string `json:"config"`
	}
	text := response(t, z.calls(call("c1", "tool", `{}`)), "c1")
	if err := json.Unmarshal([]byte(text), &got); err != nil || fmt.Sprint(got.Config) != "map[currency:EUR more:yes unit:t]" {
		t.Errorf("config %v, %v in %s", got.Config, err, text)
	}
	if len(mine) != 2 || len(m.Config) != 2 {
		t.Errorf("the maps became %v and %v", mine, m.Config)
	}
}

// The limits that a manifest asks for are lowered to the default of the kind.
func TestLimitsOfManifest(t *testing.T) {
	m := hosttest.Manifest("tool")
	m.Limits = abi.Limits{OutputBytes: 20, WallMS: 1<<63 - 1, MemoryBytes: 1<<63 - 1}
	z := newZoo(t, m, plugins.Config{Limits: patient}, map[string]hosttest.Guest{"tool": {Says: says(`{"format":1,"result":"twenty bytes are less"}`)}})
	want := errorText(fmt.Sprintf("%s: %s", abi.GuestOutputTooLarge, abi.GuestOutputTooLarge.Sentence()))
	if got := response(t, z.calls(call("c1", "tool", `{}`)), "c1"); got != want {
		t.Errorf("the model reads %s, want %s", got, want)
	}
}
