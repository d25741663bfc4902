package script_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/genai"
)

const weather = `format: 1
rules:
  - when: {after: siren}
    reply:
      - say: Take cover.
  - when: {matches: 'weather in (?P<place>\w+)(?: for (\d+) days)?'}
    reply:
      - think: The forecast knows.
        call:
          - {tool: forecast, id: sky, args: {place: "{{match.place}}", days: 2, exact: 9007199254740993, tags: [a, null, true], note: "of {{match.1}}"}}
          - tool: tide
      - either:
          - if_error: sky
            say: "I may not: {{sky.error}}"
          - call:
              - {tool: plot, args: {all: "{{call-1.days}}", first: "{{call-1.days.0.min_c}}", text: "{{sky.days.0}}"}}
      - say: "{{sky.days.0.min_c}} to {{sky.days.1.max_c|%.1f}} °C, tide {{call-2.high}}, big {{call-1.big}}, {{call-1.days.0.wet}}, {{call-1.days.1.wet}}, plot {{call-3.file}}, all {{call-2}}"
  - when: {matches: 'for (\d+) days(, long)?'}
    reply:
      - {say: "Days: {{match.1}}{{match.2}}"}
  - when: {matches: 'add (\S+)'}
    reply:
      - call: [{tool: add, args: {n: "{{match.1|number}}"}}]
  - when: {contains: a.b}
    reply:
      - {say: "You wrote {{match.0}}"}
  - when: {matches: '(?-i)Exactly'}
    reply:
      - {error: "overloaded: {{match.0}}"}
  - when: {contains: give up}
    reply:
      - either: [{if_error: call-1, say: no}]
  - reply:
      - {say: I only know the weather.}
`

const forecast = `{"days":[{"min_c":-3.50,"wet":true},{"max_c":2.25,"wet":null}],"big":9007199254740991}`

func TestAnswers(t *testing.T) {
	tests := []struct {
		name     string
		contents string
		want     string // parts
		err      string
	}{
		{
			name: "a rule without when", contents: `user hello`,
			want: `[{"text":"I only know the weather."}]`,
		},
		{
			name: "contains ignores case, takes signs as they are, and quotes the user", contents: `user Is A.B there?`,
			want: `[{"text":"You wrote A.B"}]`,
		},
		{
			name: "contains is no expression", contents: `user axb`,
			want: `[{"text":"I only know the weather."}]`,
		},
		{
			name: "matches ignores case", contents: `user WEATHER IN OSLO`,
			want: `[{"text":"The forecast knows.","thought":true},
				{"functionCall":{"id":"call-1-sky","name":"forecast","args":{"place":"OSLO","days":2,"exact":9007199254740993,"tags":["a",null,true],"note":"of OSLO"}}},
				{"functionCall":{"id":"call-2","name":"tide"}}]`,
		},
		{
			name: "an expression may mind case", contents: `user exactly`,
			want: `[{"text":"I only know the weather."}]`,
		},
		{
			name: "a step that fails", contents: `user Exactly`,
			err: "overloaded: Exactly",
		},
		{
			name: "the first rule that holds", contents: `user weather in Oslo, and a.b`,
			want: `[{"text":"The forecast knows.","thought":true},
				{"functionCall":{"id":"call-1-sky","name":"forecast","args":{"place":"Oslo","days":2,"exact":9007199254740993,"tags":["a",null,true],"note":"of Oslo"}}},
				{"functionCall":{"id":"call-2","name":"tide"}}]`,
		},
		{
			name: "arguments keep types",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast ` + forecast + `; call-2 tide {"high":1}`,
			want: `[{"functionCall":{"id":"call-3","name":"plot","args":{"all":[{"min_c":-3.5,"wet":true},{"max_c":2.25,"wet":null}],"first":-3.5,"text":{"min_c":-3.5,"wet":true}}}}]`,
		},
		{
			name: "texts quote results",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast ` + forecast + `; call-2 tide {"high":"<1 m>"}
				call call-3 plot {}
				result call-3 plot {"file":"a.png"}`,
			want: `[{"text":"-3.5 to 2.2 °C, tide <1 m>, big 9007199254740991, true, null, plot a.png, all {\"high\":\"<1 m>\"}"}]`,
		},
		{
			name: "results in another order, and replaced",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-2 tide {"high":1}; call-1-sky forecast {"error":"pending"}
				result call-1-sky forecast {"days":[{"min_c":1},{"max_c":2}]}`,
			want: `[{"functionCall":{"id":"call-3","name":"plot","args":{"all":[{"min_c":1},{"max_c":2}],"first":1,"text":{"min_c":1}}}}]`,
		},
		{
			name: "calls without ids",
			contents: `user weather in Oslo
				call - forecast {}; - tide {}
				result - tide {"high":1}; - forecast {"days":[{"min_c":1},{"max_c":2}]}
				call - plot {}
				result - plot {"file":"x"}`,
			err: "replies.yaml:17: {{sky.days.0.min_c}}: sky was not called in this turn of 3 calls",
		},
		{
			name: "a variant for an error",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"error":"host evil.example is not listed"}; call-2 tide {}`,
			want: `[{"text":"I may not: host evil.example is not listed"}]`,
		},
		{
			name: "an error that is null is none",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"error":null,"days":[{"min_c":1}]}; call-2 tide {}`,
			want: `[{"functionCall":{"id":"call-3","name":"plot","args":{"all":[{"min_c":1}],"first":1,"text":{"min_c":1}}}}]`,
		},
		{
			name: "a result that failed",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"days":[{"min_c":1},{"max_c":2}],"big":1}; call-2 tide {"error":"no sea"}
				call call-3 plot {}
				result call-3 plot {}`,
			err: `replies.yaml:17: {{call-2.high}}: call-2 (tide) failed: "no sea"`,
		},
		{
			name: "a path that is not there",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"days":[{"max_c":1}]}; call-2 tide {}`,
			err: `replies.yaml:16: {{call-1.days.0.min_c}}: call-1.days.0 (forecast) has no "min_c", only ["max_c"]`,
		},
		{
			name: "an index that is not there",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"days":[]}; call-2 tide {}`,
			err: `replies.yaml:16: {{call-1.days.0.min_c}}: call-1.days (forecast) has no "0", only 0 to -1`,
		},
		{
			name: "a path through a value",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"days":7}; call-2 tide {}`,
			err: `replies.yaml:16: {{call-1.days.0.min_c}}: call-1.days (forecast) is no object or list, so has no "0"`,
		},
		{
			name: "rounding what is no number",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"days":[{"min_c":1},{"max_c":"warm"}],"big":1}; call-2 tide {"high":1}
				call call-3 plot {}
				result call-3 plot {}`,
			err: `replies.yaml:17: {{sky.days.1.max_c|%.1f}}: "warm" is no number`,
		},
		{
			name: "a result that has not come",
			contents: `user weather in Oslo
				call call-1-sky forecast {}; call-2 tide {}`,
			err: "replies.yaml:13: if_error: sky (forecast) has no result",
		},
		{
			name: "no variant that holds", contents: "user give up",
			err: "replies.yaml:32: if_error: call-1 was not called in this turn of 0 calls",
		},
		{
			name: "more requests than steps", contents: "user hello\nmodel I only know the weather.",
			err: "replies.yaml:33: rule ends with step 1, request is for step 2",
		},
		{
			name: "a group that matched nothing", contents: "user for 3 days",
			err: "replies.yaml:20: {{match.2}}: the group matched nothing",
		},
		{
			name: "a group that matched", contents: "user for 3 days, LONG",
			want: `[{"text":"Days: 3, LONG"}]`,
		},
		{
			name: "a number of what the user wrote", contents: "user add 1.50",
			want: `[{"functionCall":{"id":"call-1","name":"add","args":{"n":1.50}}}]`,
		},
		{
			name: "no number in what the user wrote", contents: "user add 007",
			err: `replies.yaml:23: {{match.1|number}}: "007" is no number`,
		},
		{
			name: "after a tool, whatever the user said",
			contents: `user hello
				call x siren {}; y tide {}
				result y tide {}; x siren {}`,
			want: `[{"text":"Take cover."}]`,
		},
		{
			name: "after is about the newest result",
			contents: `user weather in Oslo
				call x siren {}
				result x siren {}
				call y forecast {}
				result y forecast {}`,
			err: "replies.yaml:17: {{sky.days.0.min_c}}: sky was not called in this turn of 2 calls",
		},
		{
			name: "a new text is a new turn, and ids go on",
			contents: `user add 1
				call call-1 add {}
				result call-1 add {}
				model Done.
				user add 2`,
			want: `[{"functionCall":{"id":"call-2","name":"add","args":{"n":2}}}]`,
		},
		{
			name: "what flow adds is no text of the user",
			contents: `user weather in Oslo
				user For context:
				call call-1-sky forecast {}; call-2 tide {}
				result call-1-sky forecast {"error":"no"}; call-2 tide {}
				user Artifact a.txt is:`,
			want: `[{"text":"I may not: no"}]`,
		},
		{
			name: "the nudge to go on is no text of the user",
			contents: `user hello
				model hm
				user Continue processing previous requests as instructed. Exit or provide a summary if no more outputs are needed.`,
			err: "replies.yaml:33: rule ends with step 1, request is for step 2",
		},
		{name: "no contents", want: `[{"text":"I only know the weather."}]`},
	}
	m := parse(t, weather)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ask(t, m, contents(t, test.contents), false)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error\ngot  %v\nwant %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].Partial || got[0].FinishReason != genai.FinishReasonStop || got[0].Content.Role != genai.RoleModel {
				t.Fatalf("got %s, want one whole response of the model", marshal(t, got))
			}
			var want []*genai.Part
			d := json.NewDecoder(strings.NewReader(test.want))
			d.UseNumber()
			if err := d.Decode(&want); err != nil {
				t.Fatal(err)
			}
			if got, want := marshal(t, got[0].Content.Parts), marshal(t, want); got != want {
				t.Errorf("parts\ngot  %s\nwant %s", got, want)
			}
		})
	}
}

func TestNoRule(t *testing.T) {
	m := parse(t, "format: 1\nrules:\n  - when: {contains: x}\n    reply:\n      - {say: x}\n")
	if _, err := ask(t, m, contents(t, "user hello"), false); err == nil || err.Error() != `replies.yaml: no rule for "hello"` {
		t.Errorf("error %v", err)
	}
	m = parse(t, "format: 1\nrules:\n  - reply:\n      - call: [{tool: f}]\n      - either:\n          - {if_error: call-1, say: x}\n")
	got, err := ask(t, m, contents(t, "user hello\ncall call-1 f {}\nresult call-1 f {}"), false)
	if err == nil || err.Error() != "replies.yaml:5: step has no variant that holds" {
		t.Errorf("got %s, error %v", marshal(t, got), err)
	}
}

// Numbers of a Go tool are quoted with the text that they have in JSON.
func TestNumbersOfResults(t *testing.T) {
	m := parse(t, "format: 1\nrules:\n  - reply:\n      - call: [{tool: f}]\n      - {say: '{{call-1.a}} {{call-1.b}} {{call-1.c}} {{call-1.d}} {{call-1.d|%.0f}}'}\n")
	cs := contents(t, "user x\ncall call-1 f {}\nresult call-1 f {}")
	cs[2].Parts[0].FunctionResponse.Response = map[string]any{
		"a": json.Number("1.10"), "b": 412.6, "c": []int{1, 2}, "d": json.Number("9007199254740993"),
	}
	got, err := ask(t, m, cs, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := got[0].Text(), "1.10 412.6 [1,2] 9007199254740993 9007199254740992"; got != want {
		t.Errorf("text\ngot  %s\nwant %s", got, want)
	}
}

// Answering neither changes the request nor ties the answer to it.
func TestArgumentsAreCopies(t *testing.T) {
	m := parse(t, "format: 1\nrules:\n  - reply:\n      - call: [{tool: f, args: {k: {n: 1}}}]\n      - call: [{tool: g, args: {all: '{{call-1.list}}'}}]\n")
	cs := contents(t, "user x\ncall call-1 f {}\nresult call-1 f {\"list\":[{\"n\":1}]}")
	for _, cs := range [][]*genai.Content{cs[:1], cs} {
		before := marshal(t, cs)
		first, err := ask(t, m, cs, false)
		if err != nil {
			t.Fatal(err)
		}
		args := first[0].Calls()[0].Args
		text := marshal(t, args)
		for _, v := range args {
			switch v := v.(type) {
			case map[string]any:
				clear(v)
			case []any:
				clear(v)
			}
		}
		again, err := ask(t, m, cs, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := marshal(t, again[0].Calls()[0].Args); got != text || text == marshal(t, args) {
			t.Errorf("arguments %s, then %s", text, got)
		}
		if after := marshal(t, cs); after != before {
			t.Errorf("request changed from %s to %s", before, after)
		}
	}
}

// A message without text starts a turn too.
func TestMessageWithoutText(t *testing.T) {
	m := parse(t, "format: 1\nrules:\n  - when: {contains: hello}\n    reply:\n      - {say: Hi.}\n  - reply:\n      - {say: A picture.}\n")
	cs := append(contents(t, "user hello\nmodel Hi."), genai.NewContentFromBytes([]byte("x"), "image/png", genai.RoleUser))
	got, err := ask(t, m, cs, false)
	if err != nil || got[0].Text() != "A picture." {
		t.Errorf("got %s, %v", marshal(t, got), err)
	}
}
