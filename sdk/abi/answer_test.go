package abi

import (
	"strings"
	"testing"
)

func TestParseToolResult(t *testing.T) {
	for _, c := range []struct{ name, in, err string }{
		{"result", `{"format":1,"result":{"a":1.0}}`, ""},
		{"result that is null", `{"format":1,"result":null}`, ""},
		{"failure", `{"format":1,"fail":{"code":"no_place","message":"no such place"}}`, ""},
		{"failure without a code", `{"format":1,"fail":{"message":"no such place"}}`, ""},
		{"neither", `{"format":1}`, ""},
		{"silence", ``, "no value"},
		{"null", `null`, "null is no object"},
		{"no format", `{"result":1}`, "format 0: want 1"},
		{"both", `{"format":1,"result":1,"fail":{"message":"m"}}`, "exclude each other"},
		{"bad code", `{"format":1,"fail":{"code":"No Place","message":"m"}}`, "want [a-z_]{1,40}"},
		{"an action in it", `{"format":1,"result":1,"actions":{"escalate":true}}`, `unknown member "actions"`},
		{"by case", `{"format":1,"Result":1}`, `unknown member "Result"`},
		{"duplicate inside", `{"format":1,"result":{"a":1,"a":2}}`, "duplicate"},
		{"deep", `{"format":1,"result":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`, "nesting exceeds 80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseToolResult([]byte(c.in))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("in %s: got %+v, error %v, want %q", c.in, r, err, c.err)
			}
			if err != nil && (r.Result != nil || r.Fail != nil) {
				t.Fatalf("in %s: an error comes with %+v", c.in, r)
			}
		})
	}
}

func TestParseHookAnswer(t *testing.T) {
	places := map[string][]HookPoint{
		"answer":   {OnUserMessage, BeforeRun, BeforeAgent, BeforeModel, OnModelError, AfterModel, BeforeTool, OnToolError, AfterTool, OnEvent, AfterAgent},
		"args":     {BeforeTool},
		"result":   {AfterTool},
		"request":  {BeforeModel},
		"response": {AfterModel},
		"content":  {OnUserMessage},
		"event":    {OnEvent},
	}
	for name, points := range places {
		in := `{"format":1,"` + name + `":{"a":1}}`
		for _, point := range HookPoints() {
			want := false
			for _, p := range points {
				want = want || p == point
			}
			if _, err := ParseHookAnswer([]byte(in), point); (err == nil) != want {
				t.Errorf("%s at %s: error %v, want it allowed: %v", in, point, err, want)
			}
		}
	}
	for _, c := range []struct{ name, in, err string }{
		{"nothing", `{"format":1}`, ""},
		{"failed", `{"format":1,"error":"no"}`, ""},
		{"null answer", `{"format":1,"answer":null}`, ""},
		{"no format", `{}`, "format 0"},
		{"answer is a list", `{"format":1,"answer":[]}`, "answer is no object"},
		{"args are null", `{"format":1,"args":null}`, "args is no object"},
		{"failed and answered", `{"format":1,"error":"no","answer":{}}`, "error and a document"},
		{"unknown member", `{"format":1,"transfer":"x"}`, "unknown member"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := ParseHookAnswer([]byte(c.in), BeforeTool)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("in %s: error %v, want %q", c.in, err, c.err)
			}
			if a.Answer != nil {
				t.Fatalf("in %s: got the answer %s", c.in, a.Answer)
			}
		})
	}
}

func TestCodesHaveSentencesOrNot(t *testing.T) {
	if OK.Sentence() != "" || DigestMismatch.Sentence() != "" {
		t.Error("a code that never reaches a model has a sentence")
	}
	for code, s := range sentences {
		if code.Sentence() != s || s == "" || strings.ContainsAny(s, "0123456789/%") || strings.HasSuffix(s, ".") {
			t.Errorf("%s: %q: want a short sentence without numbers, paths and full stop", code, s)
		}
	}
}
