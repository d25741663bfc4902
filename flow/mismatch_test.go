package flow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/flow"
)

func TestFindMismatch(t *testing.T) {
	const schema = `{"type":"object","required":["days"],"properties":{
		"days":{"type":"array","items":{"type":"object","required":["min"],"properties":{"min":{"type":"integer"}}}},
		"a/b~c":{"type":["string","null"]},
		"of":{"type":"number"},
		"closed":{"type":"object","required":["a"],"properties":{"a":{},"bc":{}},"additionalProperties":false},
		"typed":{"type":"object","additionalProperties":{"type":"integer"}},
		"on":{"type":"boolean"}}}`
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for document, want := range map[string]string{
		`[]`:                                      "want an object, have a list",
		`{}`:                                      "/days: missing",
		`{"days":null}`:                           "/days: want a list, have nothing",
		`{"days":[{"min":1},{}]}`:                 "/days/1/min: missing",
		`{"days":[{"min":1.5}]}`:                  "/days/0/min: want a whole number, have number 1.5",
		`{"days":[{"min":1.0}],"of":1}`:           "",
		`{"days":[],"a/b~c":7}`:                   "/a~1b~0c: want text or nothing, have number 7",
		`{"days":[],"a/b~c":null,"of":1e3}`:       "",
		`{"days":[],"of":"` + long + `"}`:         `/of: want a number, have text "` + long[:60] + `…"`,
		`{"days":[],"on":0}`:                      "/on: want true or false, have number 0",
		`{"days":[],"on":true,"more":{"a":[{}]}}`: "",
		`{"days":[],"of":{}}`:                     "/of: want a number, have an object",
		`{"days":{},"of":false}`:                  "/days: want a list, have an object",
		`{"days":[],"of":false}`:                  "/of: want a number, have false",
		`{"days":[],"closed":{"a":1,"bc":2}}`:     "",
		`{"days":[],"closed":{"z/":1,"d":2}}`:     "/closed/d: not known",
		`{"days":[],"closed":{"a":1,"z/":1}}`:     "/closed/z~1: not known",
		`{"days":[],"closed":{"` + long + `":1}}`: "/closed/" + long[:60] + "…: not known",
		`{"days":[],"closed":{"bc":1}}`:           "/closed/a: missing",
		`{"days":[],"typed":{"any":1}}`:           "",
		`{"days":`:                                "", // no document
	} {
		got := ""
		if found := flow.FindMismatch(resolved, json.RawMessage(document)); found != nil {
			got = found.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", document, got, want)
		}
		if valid := flow.Validate(resolved, json.RawMessage(document)) == nil; got != "" && valid {
			t.Errorf("%s: fits, and yet %q", document, got)
		}
	}
}

var long = strings.Repeat("0123456789", 7)
