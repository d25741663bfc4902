package abi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseVerdict(t *testing.T) {
	q := &Question{Phase: PhaseCall, Nonce: "n1", DocumentSHA256: "d1"}
	why := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"rule":"r"},`, n), ",") + "]"
	}
	long := strings.Repeat("é", MaxReasonChars)
	for _, c := range []struct{ name, in, err string }{
		{"allow", `{"nonce":"n1","document_sha256":"d1","verdict":"allow"}`, ""},
		{"allow with format and why", `{"format":1,"nonce":"n1","document_sha256":"d1","verdict":"allow","why":` + why(MaxWhy) + `}`, ""},
		{"deny", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","code":"too_much","reason":"` + long + `"}`, ""},
		{"bare deny", `{"nonce":"n1","document_sha256":"d1","verdict":"deny"}`, ""},
		{"confirm", `{"nonce":"n1","document_sha256":"d1","verdict":"confirm","hint":"` + long + `"}`, ""},
		{"narrow", `{"nonce":"n1","document_sha256":"d1","verdict":"narrow","grants":["log"]}`, ""},
		{"narrow to nothing", `{"nonce":"n1","document_sha256":"d1","verdict":"narrow"}`, ""},
		{"rewrite", `{"nonce":"n1","document_sha256":"d1","verdict":"rewrite","document":{"a":1.0}}`, ""},

		{"silence", ``, "no value"},
		{"null", `null`, "null is no object"},
		{"true", `true`, "document: json"},
		{"list", `[{"nonce":"n1","document_sha256":"d1","verdict":"allow"}]`, "document: json"},
		{"zero", `{}`, "nonce"},
		{"zero with echo", `{"nonce":"n1","document_sha256":"d1"}`, `"" is no verdict`},
		{"two documents", `{"nonce":"n1","document_sha256":"d1","verdict":"allow"}{}`, "bytes after"},
		{"other format", `{"format":2,"nonce":"n1","document_sha256":"d1","verdict":"allow"}`, "format 2"},
		{"no nonce", `{"document_sha256":"d1","verdict":"allow"}`, "nonce"},
		{"other nonce", `{"nonce":"n2","document_sha256":"d1","verdict":"allow"}`, "nonce"},
		{"no digest", `{"nonce":"n1","verdict":"allow"}`, "document_sha256"},
		{"other digest", `{"nonce":"n1","document_sha256":"d2","verdict":"allow"}`, "document_sha256"},
		{"other word", `{"nonce":"n1","document_sha256":"d1","verdict":"permit"}`, `"permit" is no verdict`},
		{"upper case word", `{"nonce":"n1","document_sha256":"d1","verdict":"Allow"}`, `"Allow" is no verdict`},
		{"upper case name", `{"nonce":"n1","document_sha256":"d1","Verdict":"allow"}`, "unknown member"},
		{"two verdicts", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","verdict":"allow"}`, "duplicate"},
		{"two verdicts, one escaped", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","v\u0065rdict":"allow"}`, "duplicate"},
		{"two verdicts, by case", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","VERDICT":"allow"}`, "unknown member"},
		{"unknown member", `{"nonce":"n1","document_sha256":"d1","verdict":"allow","ok":true}`, "unknown member"},
		{"unknown member of why", `{"nonce":"n1","document_sha256":"d1","verdict":"allow","why":[{"Rule":"r"}]}`, "unknown member"},
		{"verdict is a number", `{"nonce":"n1","document_sha256":"d1","verdict":1}`, "document: json"},
		{"bad code", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","code":"Too-Much"}`, "want [a-z_]{1,40}"},
		{"hold on a call", `{"nonce":"n1","document_sha256":"d1","verdict":"allow","hold":1}`, "hold has no place"},
		{"reason on allow", `{"nonce":"n1","document_sha256":"d1","verdict":"allow","reason":"r"}`, "reason has no place"},
		{"hint on deny", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","hint":"h"}`, "hint has no place"},
		{"grants on allow", `{"nonce":"n1","document_sha256":"d1","verdict":"allow","grants":[]}`, "grants has no place"},
		{"document on allow", `{"nonce":"n1","document_sha256":"d1","verdict":"allow","document":null}`, "document has no place"},
		{"rewrite without a document", `{"nonce":"n1","document_sha256":"d1","verdict":"rewrite"}`, "rewrite without a document"},
		{"long reason", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","reason":"` + long + `x"}`, "exceeds 256"},
		{"long hint", `{"nonce":"n1","document_sha256":"d1","verdict":"confirm","hint":"` + long + `x"}`, "exceeds 256"},
		{"long why", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","why":[{},{"saw":"` + long + `x"}]}`, "why[1] exceeds 256"},
		{"many whys", `{"nonce":"n1","document_sha256":"d1","verdict":"deny","why":` + why(MaxWhy+1) + `}`, "17 entries of why exceed 16"},
		{"bad UTF-8", "{\"nonce\":\"n1\",\"document_sha256\":\"d1\",\"verdict\":\"deny\",\"reason\":\"\xff\"}", "bad UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := ParseVerdict([]byte(c.in), q)
			if c.err == "" {
				if err != nil || v.Ruling == "" {
					t.Fatalf("in %s: got %+v, error %v", c.in, v, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Fatalf("in %s: error %v, want %q", c.in, err, c.err)
			}
			if !reflect.DeepEqual(v, Verdict{}) {
				t.Fatalf("in %s: an error comes with %+v", c.in, v)
			}
		})
	}
}

// What a verdict may say depends on the phase.
func TestVerdictOfAPhase(t *testing.T) {
	for _, c := range []struct {
		verdict string
		in      []Phase // where it is one
	}{
		{`"verdict":"allow"`, []Phase{PhaseMessage, PhaseRequest, PhaseResponse, PhaseCall, PhaseResult}},
		{`"verdict":"deny"`, []Phase{PhaseMessage, PhaseRequest, PhaseResponse, PhaseCall, PhaseResult}},
		{`"verdict":"rewrite","document":{}`, []Phase{PhaseMessage, PhaseRequest, PhaseResponse, PhaseCall, PhaseResult}},
		{`"verdict":"confirm"`, []Phase{PhaseCall}},
		{`"verdict":"narrow"`, []Phase{PhaseCall}},
		{`"verdict":"allow","hold":8192`, []Phase{PhaseResponse}},
		{`"verdict":"rewrite","document":{},"hold":1`, []Phase{PhaseResponse}},
		{`"verdict":"deny","hold":1`, nil},
		{`"verdict":"allow","hold":8193`, nil},
		{`"verdict":"allow","hold":-1`, nil},
		{`"verdict":"allow","hold":1.5`, nil},
	} {
		var in []Phase
		for _, p := range []Phase{PhaseMessage, PhaseRequest, PhaseResponse, PhaseCall, PhaseResult} {
			q := &Question{Phase: p, Nonce: "n1", DocumentSHA256: "d1"}
			if _, err := ParseVerdict([]byte(`{"nonce":"n1","document_sha256":"d1",`+c.verdict+`}`), q); err == nil {
				in = append(in, p)
			}
		}
		if !reflect.DeepEqual(in, c.in) {
			t.Errorf("%s: taken in %q, want %q", c.verdict, in, c.in)
		}
	}
}

func TestVerdictOfNoQuestionIsRefused(t *testing.T) {
	if _, err := ParseVerdict([]byte(`{"nonce":"","document_sha256":"","verdict":"allow"}`), &Question{}); err == nil {
		t.Fatal("an empty nonce echoes an empty nonce")
	}
}

func TestVerdictsMadeHereAreWellFormed(t *testing.T) {
	q := &Question{Phase: PhaseCall, Nonce: "n1", DocumentSHA256: "d1"}
	long := strings.Repeat("日", 10*MaxReasonChars)
	many := make([]Why, 3*MaxWhy)
	many[0] = Why{Rule: long, At: long, Saw: long}
	for _, v := range []Verdict{Allow(), Deny("c", long, many...), Confirm("c", long, many...), Narrow(), Narrow("log"), Rewrite(json.RawMessage(`{}`))} {
		v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
		data, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseVerdict(data, q)
		if err != nil {
			t.Errorf("%s: %v", v.Ruling, err)
		}
		if v.Ruling == RulingDeny && (got.Reason != strings.Repeat("日", MaxReasonChars) || len(got.Why) != MaxWhy) {
			t.Errorf("deny was not cut at %d characters: %d bytes, %d entries of why", MaxReasonChars, len(got.Reason), len(got.Why))
		}
	}
}

func ExampleParseVerdict() {
	q := &Question{Phase: PhaseCall, Nonce: "q7Zk", DocumentSHA256: Digest([]byte(`{"amount":"1250.00"}`))}
	answer := fmt.Sprintf(`{"nonce":"q7Zk","document_sha256":%q,"verdict":"confirm","hint":"Pay 1250.00?"}`, q.DocumentSHA256)
	v, err := ParseVerdict([]byte(answer), q)
	fmt.Println(v.Ruling, v.Hint, err)
	_, err = ParseVerdict([]byte(`{"verdict":"allow"}`), q)
	fmt.Println(err)
	// Output:
	// confirm Pay 1250.00? <nil>
	// verdict: nonce is not the question's
}

func ExampleCanonical() {
	out, _ := Canonical([]byte(`{ "b": 1.00, "a": "\u0041" }`))
	fmt.Println(string(out))
	_, err := Canonical([]byte(`{"a": 1, "\u0061": 2}`))
	fmt.Println(err)
	// Output:
	// {"a":"A","b":1.00}
	// document: duplicate member name: "a"
}

func ExampleParseManifest() {
	m, err := ParseManifest([]byte(`{"abi":1,"name":"weather","version":"1.0.0","tools":[{"name":"get_weather"}],"requests":["http GET api.weather.example/v1/*"]}`))
	fmt.Println(m.Name, m.Tools[0].Name, m.Requests, err)
	_, err = ParseManifest([]byte(`{"abi":2,"name":"weather","version":"1.0.0","tools":[{"name":"Weather"}]}`))
	fmt.Println(err)
	// Output:
	// weather get_weather [http GET api.weather.example/v1/*] <nil>
	// manifest: abi 2: this host speaks 1
	// manifest: tools[0]: name "Weather": want a lower-case letter, then at most 63 of a-z 0-9 _ -
}

func ExampleMarshal() {
	out, _ := Marshal(Deny("over_limit", "payments of 5000 and more are not made here", Why{At: "/amount", Saw: "7000"}))
	fmt.Println(string(out))
	// Output:
	// {"code":"over_limit","document_sha256":"","nonce":"","reason":"payments of 5000 and more are not made here","verdict":"deny","why":[{"at":"/amount","saw":"7000"}]}
}

// TestSetDocument: in each phase the document stands in its place, with its digest, and a call
// that another question has too stays as it is.
func TestSetDocument(t *testing.T) {
	doc := json.RawMessage(`{"a":1}`)
	for phase, at := range map[Phase]func(q *Question) json.RawMessage{
		PhaseMessage:  func(q *Question) json.RawMessage { return q.Message },
		PhaseRequest:  func(q *Question) json.RawMessage { return q.Request },
		PhaseResponse: func(q *Question) json.RawMessage { return q.Response },
		PhaseCall:     func(q *Question) json.RawMessage { return q.Call.Args },
		PhaseResult:   func(q *Question) json.RawMessage { return q.Result },
	} {
		shared := &CallFacts{ID: "c1", Args: json.RawMessage("{}")}
		q := Question{Phase: phase, Call: shared}
		q.SetDocument(doc)
		if string(at(&q)) != string(doc) || q.DocumentSHA256 != Digest(doc) || q.Call == shared || q.Call.ID != "c1" || string(shared.Args) != "{}" {
			t.Errorf("%s: %+v, the call of others %+v", phase, q, shared)
		}
	}
}

// A definition says all that a model is told, in whatever order, and nothing else.
func TestDefinition(t *testing.T) {
	define := func(name, description, input, output string) string {
		t.Helper()
		got, err := Definition(name, description, json.RawMessage(input), json.RawMessage(output))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const in = `{"type":"object","required":["a"]}`
	want := Digest([]byte(`{"description":"d","input":{"required":["a"],"type":"object"},"name":"t"}`))
	for _, input := range []string{in, `{ "required": ["a"], "type": "object" }`} {
		if got := define("t", "d", input, ""); got != want {
			t.Errorf("%s: %s, want %s", input, got, want)
		}
	}
	for _, other := range []string{define("u", "d", in, ""), define("t", "e", in, ""), define("t", "d", "", ""), define("t", "d", in, in)} {
		if other == want {
			t.Error("two tools have one definition")
		}
	}
	for _, bad := range []string{`{`, `{"a":1,"a":2}`} {
		if got, err := Definition("t", "", json.RawMessage(bad), nil); err == nil || got != "" || !strings.Contains(err.Error(), "definition of t: ") {
			t.Errorf("%s: %q, %v", bad, got, err)
		}
	}
}
