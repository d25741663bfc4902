package main

import (
	"encoding/json"
	"testing"
)

func TestArguments(t *testing.T) {
	const schema = `{"type":"object","required":["place","n"],"properties":{
		"days":{"type":"integer","minimum":1,"maximum":7,"default":3,"description":"days ahead"},
		"place":{"type":"string","minLength":1,"maxLength":80,"description":"town or city"},
		"n":{"type":["number","null"],"exclusiveMinimum":0},
		"unit":{"enum":["C","F",7]},
		"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$"},"maxItems":3},
		"when":{"type":"string","format":"date-time"},
		"on":{"type":"boolean"},
		"same":{"type":"string","minLength":3,"maxLength":3},
		"box":{"type":"object","properties":{"w":{"type":"integer"},"h":{"type":"integer"}}},
		"any":{}, "kind":{"const":"x"}}}`
	want := []argument{
		{"n", "number, at least 0 (itself not) or nothing", "needed", ""},
		{"place", "text, 1 to 80 characters", "needed", "town or city"},
		{"any", "anything", "optional", ""},
		{"box", "object of h, w", "optional", ""},
		{"days", "whole number, 1 to 7", "default 3", "days ahead"},
		{"kind", "always x", "optional", ""},
		{"on", "yes or no", "optional", ""},
		{"same", "text, 3 characters", "optional", ""},
		{"tags", "list of text, like ^[a-z]+$, at most 3 entries", "optional", ""},
		{"unit", "one of C, F, 7", "optional", ""},
		{"when", "text, date-time", "optional", ""},
	}
	got := arguments(json.RawMessage(schema))
	if len(got) != len(want) {
		t.Fatalf("%d arguments, want %d", len(got), len(want))
	}
	for i, a := range got {
		if a != want[i] {
			t.Errorf("argument %d\n got %q\nwant %q", i, a, want[i])
		}
	}
}

func TestReturns(t *testing.T) {
	for _, c := range []struct{ name, schema, want string }{
		{"nothing said", ``, "anything"},
		{"not a schema", `{"type":7}`, "anything"},
		{"text", `{"type":"string"}`, "text"},
		{"lists and objects", `{"type":"object","required":["place"],"properties":{"place":{"type":"string"},
			"days":{"type":"array","items":{"type":"object","properties":{"date":{"type":"string"},"min_c":{"type":"number"}}}}}}`,
			"place, days[] of date, min_c"},
		{"deep", `{"properties":{"a":{"properties":{"b":{"properties":{"c":{"properties":{"d":{}}}}}}}}}`, "a of b of c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := returns(json.RawMessage(c.schema)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
