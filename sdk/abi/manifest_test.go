package abi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func validManifest() Manifest {
	return Manifest{ABI: Version, Name: "weather", Version: "1.0.0",
		Tools: []Tool{{Name: "get_weather", Input: json.RawMessage(`{"type":"object"}`)}},
		Hooks: []HookPoint{BeforeTool},
		Guards: []Guard{{Name: "limit", Phases: []Phase{PhaseCall, PhaseResult}, Mutates: []Phase{PhaseCall},
			Settings: json.RawMessage(`{"type":"object"}`)}},
		Requests: []string{"log"}}
}

func TestManifestRules(t *testing.T) {
	tools := func(n int) (out []Tool) {
		for i := range n {
			out = append(out, Tool{Name: fmt.Sprintf("t%d", i)})
		}
		return out
	}
	for _, c := range []struct {
		name string
		edit func(m *Manifest)
		err  string // empty: valid
	}{
		{"as it is", func(*Manifest) {}, ""},
		{"only a hook", func(m *Manifest) { m.Tools, m.Guards = nil, nil }, ""},
		{"most tools", func(m *Manifest) { m.Tools = tools(MaxTools) }, ""},
		{"longest name", func(m *Manifest) { m.Name = strings.Repeat("a", 64) }, ""},
		{"version with a suffix", func(m *Manifest) { m.Version = "1.0.0-rc.1+b2" }, ""},
		{"tool and guard of one name", func(m *Manifest) { m.Guards[0].Name = "get_weather" }, ""},
		{"description in lines", func(m *Manifest) { m.Description = "one\n\ttwo" }, ""},

		{"other version", func(m *Manifest) { m.ABI = 2 }, "abi 2: this host speaks 1"},
		{"no version", func(m *Manifest) { m.ABI = 0 }, "abi 0"},
		{"no name", func(m *Manifest) { m.Name = "" }, `name ""`},
		{"upper case", func(m *Manifest) { m.Name = "Weather" }, `name "Weather"`},
		{"name begins with a digit", func(m *Manifest) { m.Name = "1a" }, `name "1a"`},
		{"name begins with a dash", func(m *Manifest) { m.Name = "-a" }, `name "-a"`},
		{"name too long", func(m *Manifest) { m.Name = strings.Repeat("a", 65) }, "name"},
		{"name ends with a line feed", func(m *Manifest) { m.Name = "a\n" }, `name "a\n"`},
		{"letter of another script", func(m *Manifest) { m.Name = "wеather" }, "name"},
		{"reserved tool", func(m *Manifest) { m.Tools[0].Name = "transfer_to_agent" }, "reserved"},
		{"reserved prefix", func(m *Manifest) { m.Tools[0].Name = "adk_x" }, "reserved"},
		{"our prefix", func(m *Manifest) { m.Tools[0].Name = "sandboxd_x" }, "reserved"},
		{"no plugin version", func(m *Manifest) { m.Version = "" }, `version ""`},
		{"version begins with a dot", func(m *Manifest) { m.Version = ".1" }, `version ".1"`},
		{"version with a blank", func(m *Manifest) { m.Version = "1 0" }, "version"},
		{"nothing in it", func(m *Manifest) { m.Tools, m.Hooks, m.Guards = nil, nil, nil }, "no tool, hook or guard"},
		{"too many tools", func(m *Manifest) { m.Tools = tools(MaxTools + 1) }, "129 tools"},
		{"tool twice", func(m *Manifest) { m.Tools = append(m.Tools, m.Tools[0]) }, `tools[1]: "get_weather" is there twice`},
		{"hidden direction", func(m *Manifest) { m.Description = "safe\u202e" }, "U+202E is not allowed"},
		{"zero width", func(m *Manifest) { m.Tools[0].Description = "a\u200bb" }, "U+200B is not allowed"},
		{"tag characters", func(m *Manifest) { m.Tools[0].Description = "a\U000e0041" }, "U+E0041"},
		{"bad UTF-8", func(m *Manifest) { m.Description = "\xff" }, "not UTF-8"},
		{"long description", func(m *Manifest) { m.Description = strings.Repeat("a", MaxDescriptionBytes+1) }, "4097 bytes exceed 4096"},
		{"schema that refers to itself", func(m *Manifest) {
			m.Tools[0].Input = json.RawMessage(`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"$ref":{"const":{"$ref":"http://x"}}}}}}`)
		}, ""},
		{"schema of the network", func(m *Manifest) {
			m.Tools[0].Input = json.RawMessage(`{"properties":{"a":{"$ref":"http://169.254.169.254/x"}}}`)
		}, `reference "http://169.254.169.254/x" leaves the document`},
		{"schema of a file", func(m *Manifest) { m.Guards[0].Settings = json.RawMessage(`{"anyOf":[{"$ref":"file:///x"}]}`) }, `"file:///x" leaves`},
		{"schema with a name twice", func(m *Manifest) { m.Tools[0].Output = json.RawMessage(`{"type":"object","type":"object"}`) }, "output: schema"},
		{"schema of every type", func(m *Manifest) {
			m.Tools[0].Output = json.RawMessage(`{"type":["array","boolean","integer","null","number","object","string"]}`)
		}, ""},
		{"schema of no type there is", func(m *Manifest) { m.Guards[0].Settings = json.RawMessage(`{"type":"nothing"}`) },
			`guard limit: settings: schema: "/type": "nothing": want one of array, boolean, integer, null, number, object, string`},
		{"schema of no type there is, for arguments", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`{"properties":{"n":{"type":"int"}}}`) },
			`tool get_weather: input: schema: "/properties/n/type": "int"`},
		{"schema of no type there is, for results", func(m *Manifest) { m.Tools[0].Output = json.RawMessage(`{"items":{"type":["string","any"]}}`) },
			`tool get_weather: output: schema: "/items/type": "any"`},
		{"schema with a type in a list of schemas", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`{"anyOf":[true,{"not":{"type":"x"}}]}`) }, `"/anyOf/not/type": "x"`},
		{"schema of a type that is no text", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`{"type":7}`) }, `"/type": "7"`},
		{"schema of no types", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`{"type":[]}`) }, `"/type": an empty list`},
		{"schema of a type twice", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`{"type":["null","null"]}`) }, `"null" is there twice`},
		{"schema with a type that is data", func(m *Manifest) {
			m.Tools[0].Input = json.RawMessage(`{"const":{"type":"x"},"default":{"type":"x"},"examples":[{"type":"x"}],"enum":[{"type":"x"}],"x-ours":{"type":"x"},` +
				`"dependentRequired":{"type":["x"]},"dependencies":{"type":["x"]}}`)
		}, ""},
		{"schema with a member called type", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`{"properties":{"type":{"type":"string"}}}`) }, ""},
		{"unknown effects", func(m *Manifest) { m.Tools[0].Effects = "some" }, `effects "some"`},
		{"raw without export", func(m *Manifest) { m.Tools[0].Raw = true }, "raw needs an export"},
		{"raw stream", func(m *Manifest) { m.Tools[0].Raw, m.Tools[0].Export, m.Tools[0].Streaming = true, "run", true }, "cannot stream"},
		{"long export", func(m *Manifest) { m.Tools[0].Export = strings.Repeat("a", 129) }, "export: 129 bytes exceed 128"},
		{"hidden export", func(m *Manifest) { m.Guards[0].Export = "a\u200b" }, "export: character U+200B"},
		{"schema is a list", func(m *Manifest) { m.Tools[0].Input = json.RawMessage(`[]`) }, "input: schema: want an object"},
		{"schema is blank", func(m *Manifest) { m.Tools[0].Output = json.RawMessage(" ") }, "output: schema: want an object"},
		{"schema is true", func(m *Manifest) { m.Guards[0].Settings = json.RawMessage("true") }, "settings: schema: want an object"},
		{"unknown hook", func(m *Manifest) { m.Hooks[0] = "before_lunch" }, `hook "before_lunch"`},
		{"hook twice", func(m *Manifest) { m.Hooks = append(m.Hooks, BeforeTool) }, "there twice"},
		{"bad guard name", func(m *Manifest) { m.Guards[0].Name = "L" }, "guards[0]: name"},
		{"guard twice", func(m *Manifest) { m.Guards = append(m.Guards, m.Guards[0]) }, `guards[1]: "limit" is there twice`},
		{"no phases", func(m *Manifest) { m.Guards[0].Phases, m.Guards[0].Mutates = nil, nil }, "no phases"},
		{"unknown phase", func(m *Manifest) { m.Guards[0].Phases = []Phase{"later", PhaseCall} }, `phase "later"`},
		{"phase twice", func(m *Manifest) { m.Guards[0].Phases = []Phase{PhaseCall, PhaseCall} }, "there twice"},
		{"mutates elsewhere", func(m *Manifest) { m.Guards[0].Phases = []Phase{PhaseResult} }, `mutates "call"`},
		{"mutates twice", func(m *Manifest) { m.Guards[0].Mutates = []Phase{PhaseCall, PhaseCall} }, "there twice"},
		{"many requests", func(m *Manifest) { m.Requests = make([]string, MaxRequests+1) }, "129 requests"},
		{"negative limit", func(m *Manifest) { m.Limits.WallMS = -1 }, "limits: negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := validManifest()
			c.edit(&m)
			err := m.Validate()
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			data, encodeErr := m.Encode()
			if (err == nil) != (encodeErr == nil) {
				t.Fatalf("Validate says %v, Encode says %v", err, encodeErr)
			}
			if err != nil {
				return
			}
			parsed, err := ParseManifest(data)
			if err != nil {
				t.Fatalf("parse what Encode wrote: %v", err)
			}
			if again, err := parsed.Encode(); err != nil || string(again) != string(data) {
				t.Fatalf("got %s, error %v, want %s", again, err, data)
			}
		})
	}
}

func TestParseManifestRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, err string }{
		{"empty", "", "no value"},
		{"null", "null", "null is no object"},
		{"unknown member", `{"abi":1,"name":"a","version":"1","tools":[{"name":"t"}],"extra":1}`, `unknown member "extra"`},
		{"unknown member of a tool", `{"abi":1,"name":"a","version":"1","tools":[{"name":"t","Export":"x"}]}`, `unknown member "Export"`},
		{"duplicate", `{"abi":1,"abi":1}`, "duplicate"},
		{"duplicate inside a schema", `{"abi":1,"name":"a","version":"1","tools":[{"name":"t","input":{"type":"object","type":"object"}}]}`, "duplicate"},
		{"abi is text", `{"abi":"1"}`, "document: json"},
		{"too long", `{"name":"` + strings.Repeat("a", MaxManifestBytes) + `"}`, "exceed 262144"},
		{"every reason at once", `{"abi":3,"name":"A","version":""}`, "manifest: no tool, hook or guard"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ParseManifest([]byte(c.in))
			if m != nil || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %v, error %v, want %q", m, err, c.err)
			}
		})
	}
	_, err := ParseManifest([]byte(`{"abi":3,"name":"A","version":""}`))
	for _, want := range []string{"abi 3", `name "A"`, `version ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %s", err, want)
		}
	}
}

func TestValidCode(t *testing.T) {
	for code, want := range map[string]bool{"a": true, "no_such_place": true, strings.Repeat("a", 40): true,
		"": false, strings.Repeat("a", 41): false, "a1": false, "A": false, "a b": false, "a\n": false, "é": false} {
		if ValidCode(code) != want {
			t.Errorf("ValidCode(%q) is not %v", code, want)
		}
	}
}

func TestHidden(t *testing.T) {
	for r, want := range map[rune]bool{'a': false, 'é': false, '\t': false, '\n': false, ' ': false, '😀': false,
		'\r': true, 0: true, 0x7f: true, 0x85: true, 0x200b: true, 0x200d: true, 0x202e: true, 0x2066: true, 0xfeff: true, 0xe0041: true} {
		if Hidden(r) != want {
			t.Errorf("Hidden(%U) is not %v", r, want)
		}
	}
}
