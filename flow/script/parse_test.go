package script_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/script"
)

func TestParseErrors(t *testing.T) {
	// A text that starts with "-" is the list of rules, from line 3 on.
	tests := []struct{ name, text, want string }{
		{"nothing", "", "f.yaml: file is empty"},
		{"a comment", "# nothing\n", "f.yaml: file is empty"},
		{"no YAML", "format: 1\nrules: [", "f.yaml:2: did not find expected node content"},
		{"two documents", "format: 1\nrules: [{reply: [{say: x}]}]\n---\nx: 1\n", "f.yaml:3: file has a second document"},
		{"a list", "- x", "f.yaml:1: file is a list, want an object with format, rules"},
		{"no format", "rules: []", "f.yaml:1: format is missing, want 1"},
		{"another format", "\nformat: 2\nrules: []", `f.yaml:2: format is "2", want 1`},
		{"no rules", "format: 1", "f.yaml:1: rules is missing"},
		{"empty rules", "format: 1\nrules: []", "f.yaml:2: rules is empty"},
		{"unknown key", "format: 1\nrule: []", `f.yaml:2: file has unknown key "rule", want format, rules`},
		{"key twice", "format: 1\nformat: 1", "f.yaml:2: file has format twice"},
		{"unknown key of a rule", "- {wen: x, reply: [{say: x}]}", `f.yaml:3: rule has unknown key "wen", want when, reply`},
		{"no reply", "- {when: {contains: x}}", "f.yaml:3: reply is missing"},
		{"unknown condition", "- {when: {is: x}, reply: [{say: x}]}", `f.yaml:3: when has unknown key "is", want contains, matches, after`},
		{"no condition", "- {when: {}, reply: [{say: x}]}", "f.yaml:3: when has no condition; leave it out for a rule that always holds"},
		{"two conditions on the text", "- {when: {contains: x, matches: x}, reply: [{say: x}]}", "f.yaml:3: when has contains and matches, want one"},
		{"bad expression", "- {when: {matches: '('}, reply: [{say: x}]}", "f.yaml:3: matches: error parsing regexp: missing closing ): `(?i)(`"},
		{"empty condition", "- {when: {contains: ''}, reply: [{say: x}]}", "f.yaml:3: contains is empty"},
		{"rule never used", "- {reply: [{say: x}]}\n- {reply: [{say: x}]}", "f.yaml:4: rule is never used: the one before it, without when, always holds"},
		{"after with two steps", "- {when: {after: f}, reply: [{say: x},\n{say: y}]}", "f.yaml:4: rule has a second step, want one because it has after"},
		{"unknown key of a step", "- reply:\n  - {sya: x}", `f.yaml:4: step has unknown key "sya", want think, say, call, error, either`},
		{"empty step", "- reply:\n  - {}", "f.yaml:4: step has none of think, say, call, error"},
		{"no step", "- reply:\n  - say x", "f.yaml:4: step is a text, want an object with think, say, call, error, either"},
		{"error and text", "- reply:\n  - {say: x, error: y}", "f.yaml:4: step has error and something to say"},
		{"text that is a number", "- reply:\n  - say: 42", "f.yaml:4: say is a number (quote it), want a text"},
		{"text that is nothing", "- reply:\n  - say:", "f.yaml:4: say is nothing, want a text"},
		{"either and text", "- reply:\n  - {say: x, either: [{say: y}]}", "f.yaml:4: step has either and other keys"},
		{"if_error outside either", "- reply:\n  - {say: x, if_error: call-1}", `f.yaml:4: step has unknown key "if_error", want think, say, call, error, either`},
		{"either in either", "- reply:\n  - either:\n    - {either: []}", `f.yaml:5: variant has unknown key "either", want if_error, think, say, call, error`},
		{"variant never used", "- reply:\n  - either:\n    - {say: x}\n    - {say: y}", "f.yaml:6: variant is never used: the one before it, without if_error, always holds"},
		{"if_error with path", "- reply:\n  - either:\n    - {if_error: call-1.x, say: x}", `f.yaml:5: if_error is "call-1.x", want call-N or the id of a call`},
		{"if_error of no call", "- reply:\n  - either:\n    - {if_error: sky, say: x}", "f.yaml:5: sky is the id of no call"},
		{"no tool", "- reply:\n  - call: [{args: {}}]", "f.yaml:4: call has no tool"},
		{"calls as an object", "- reply:\n  - call: {tool: f}", "f.yaml:4: call is an object, want a list"},
		{"no calls", "- reply:\n  - call: []", "f.yaml:4: call is empty"},
		{"bad id", "- reply:\n  - call: [{tool: f, id: call-1}]", `f.yaml:4: id is "call-1", want lower case letters, digits and _, and not match`},
		{"reserved id", "- reply:\n  - call: [{tool: f, id: match}]", `f.yaml:4: id is "match", want lower case letters, digits and _, and not match`},
		{"id twice", "- reply:\n  - call: [{tool: f, id: a},\n     {tool: f, id: a}]", `f.yaml:5: id "a" is given twice in one step`},
		{"args as a list", "- reply:\n  - call: [{tool: f, args: []}]", "f.yaml:4: args is no object"},
		{"argument twice", "- reply:\n  - call: [{tool: f, args: {a: 1,\n a: 2}}]", `f.yaml:5: args have "a" twice`},
		{"number not of JSON", "- reply:\n  - call: [{tool: f, args: {a: 0x10}}]", `f.yaml:4: number "0x10" is not written as in JSON`},
		{"no number", "- reply:\n  - call: [{tool: f, args: {a: .nan}}]", `f.yaml:4: number ".nan" is not written as in JSON`},
		{"binary", "- reply:\n  - call: [{tool: f, args: {a: !!binary aGk=}}]", "f.yaml:4: args have a value with tag !!binary"},
		{"alias", "- reply:\n  - call: [{tool: f, args: {a: &x [1], b: *x}}]", "f.yaml:4: args have an alias"},
		{"merge", "- reply:\n  - call: [{tool: f, args: {<<: {a: 1}}}]", "f.yaml:4: args have a value with tag !!merge as a key, want a text"},
		{"deep", "- reply:\n  - call: [{tool: f, args: {a: " + strings.Repeat("[", 64) + strings.Repeat("]", 64) + "}}]", "f.yaml:4: args are nested deeper than limit 64"},
		{"open reference", "- reply:\n  - say: 'a {{call-1.x'", "f.yaml:4: reference {{call-1.x has no }}"},
		{"no reference", "- reply:\n  - say: '{{}}'", "f.yaml:4: reference {{}} is none of match.GROUP, call-N.PATH, ID.PATH"},
		{"call-0", "- reply:\n  - say: '{{call-0.x}}'", "f.yaml:4: reference {{call-0.x}} is none of match.GROUP, call-N.PATH, ID.PATH"},
		{"empty name", "- reply:\n  - say: '{{call-1..x}}'", "f.yaml:4: reference {{call-1..x}} is none of match.GROUP, call-N.PATH, ID.PATH"},
		{"verb", "- reply:\n  - say: '{{call-1.x|%d}}'", `f.yaml:4: reference {{call-1.x|%d}} has "%d", want number or %.0f to %.9f`},
		{"number in a text", "- reply:\n  - say: '{{call-1.x|number}}'", "f.yaml:4: reference {{call-1.x|number}} makes a number, which only a whole argument can be"},
		{"number in part of an argument", "- reply:\n  - call: [{tool: f, args: {a: 'x{{call-1.x|number}}'}}]", "f.yaml:4: reference {{call-1.x|number}} makes a number, but is not the whole argument"},
		{"id of no call", "- reply:\n  - say: '{{sky.x}}'", "f.yaml:4: sky is the id of no call"},
		{"match without expression", "- reply:\n  - say: '{{match.0}}'", "f.yaml:4: reference {{match.0}} is to no group that the rule's when has"},
		{"no such group", "- when: {matches: '(x)'}\n  reply:\n  - say: '{{match.2}}'", "f.yaml:5: reference {{match.2}} is to no group that the rule's when has"},
		{"no such name", "- when: {matches: '(?P<a>x)'}\n  reply:\n  - say: '{{match.b}}'", "f.yaml:5: reference {{match.b}} is to no group that the rule's when has"},
		{"match without group", "- when: {matches: '(x)'}\n  reply:\n  - say: '{{match}}'", "f.yaml:5: reference {{match}} is to no group that the rule's when has"},
		{"group of another rule", "- when: {matches: '(x)'}\n  reply:\n  - say: y\n- reply:\n  - say: '{{match.1}}'", "f.yaml:7: reference {{match.1}} is to no group that the rule's when has"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := test.text
			if strings.HasPrefix(text, "- ") && test.name != "a list" {
				text = "format: 1\nrules:\n" + text
			}
			_, err := script.Parse([]byte(text), "f.yaml")
			if err == nil || err.Error() != test.want {
				t.Errorf("%s\nerror\ngot  %v\nwant %s", text, err, test.want)
			}
		})
	}
}

// The example of the package comment is a valid file.
func TestParseDocExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(doc)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			example.WriteString(code)
		}
	}
	m := parse(t, example.String())
	got, err := ask(t, m, contents(t, `user What is the weather in Oslo?
		call call-1-sky forecast {"place":"Oslo","days":2}
		result call-1-sky forecast {"days":[{"min_c":-3,"max_c":2.04}]}`), false)
	if err != nil || got[0].Text() != "-3.0 to 2.0 °C." {
		t.Errorf("got %s, %v", marshal(t, got), err)
	}
}

// Words that some YAML takes for booleans, dates and odd keys are what they look like.
func TestParseScalars(t *testing.T) {
	m := parse(t, `
format: 1
rules:
  - reply:
      - call: [{tool: f, args: {a: yes, b: True, c: 2026-03-02, d: ~, 1: 1e3, e: '', f: "x\u00e9", g: -0.50}}]
`)
	got, err := ask(t, m, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"1":1e3,"a":"yes","b":true,"c":"2026-03-02","d":null,"e":"","f":"xé","g":-0.50}`
	if args := marshal(t, got[0].Calls()[0].Args); args != want {
		t.Errorf("args\ngot  %s\nwant %s", args, want)
	}
}

// No file makes Parse or a model panic, and every error names the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(weather), "weather in Oslo", []byte(forecast))
	f.Add([]byte(`{"format":1,"rules":[{"reply":[{"say":"{{call-1}}"},{"error":"x"}]}]}`), "x", []byte(`{}`))
	f.Add([]byte("format: 1\nrules: [{reply: [{call: [{tool: f, args: {a: &x [1], b: *x}}]}]}]"), "", []byte(`{"error":1}`))
	f.Add([]byte("format: 1\nrules:\n- when: {matches: (a)?|b, after: forecast}\n  reply:\n  - say: '{{match.1}}'\n"), "b", []byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte, text string, result []byte) {
		m, err := script.Parse(data, "f.yaml")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		cs := []*genai.Content{
			genai.NewContentFromText(text, genai.RoleUser),
			genai.NewContentFromFunctionCall("forecast", nil, genai.RoleModel),
			genai.NewContentFromFunctionResponse("forecast", map[string]any{"result": string(result)}, genai.RoleUser),
			nil,
		}
		for n := range len(cs) + 1 {
			responses := 0
			for response, err := range m.Generate(t.Context(), &flow.Request{Contents: cs[:n]}, n%2 == 0) {
				if (response == nil) == (err == nil) {
					t.Errorf("response %v with error %v", response, err)
				}
				responses++
			}
			if responses == 0 {
				t.Error("no response")
			}
		}
	})
}
