package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		err            string // part of the error; empty: none
	}{
		{"blanks go", " { \"b\" : [ 1 , 2 ] ,\t\"a\" : { } , \"c\" : [ ] }\r\n", `{"a":{},"b":[1,2],"c":[]}`, ""},
		{"members sorted bytewise", `{"é":1,"z":2,"Z":3,"":4}`, `{"":4,"Z":3,"z":2,"é":1}`, ""},
		{"number text kept", `[1.0,1e2,1E+2,-0,0.10,123456789012345678901234567890]`, `[1.0,1e2,1E+2,-0,0.10,123456789012345678901234567890]`, ""},
		{"words", `[true,false,null]`, `[true,false,null]`, ""},
		{"fewest escapes", `"\u0041\/\"\\\b\f\n\r\t\u001f\u007f<>&\u2028"`, "\"A/\\\"\\\\\\b\\f\\n\\r\\t\\u001f\x7f<>&\u2028\"", ""},
		{"surrogate pair", `"\ud83d\ude00"`, `"😀"`, ""},
		{"escaped names sort by what they say", `{"b":1,"\u0061":2}`, `{"a":2,"b":1}`, ""},
		{"scalar document", ` 7 `, `7`, ""},

		{"largest float", `[1.7976931348623157e308,-1.79e+308]`, `[1.7976931348623157e308,-1.79e+308]`, ""},
		{"smaller than floats", `[1e-400,0e400]`, `[1e-400,0e400]`, ""},
		{"past all floats", `{"n":1e400}`, "", "number past all floats at byte 5"},
		{"past all floats, negative", `-1E+309`, "", "number past all floats at byte 0"},
		{"past all floats, digit by digit", "1" + strings.Repeat("0", 309), "", "number past all floats"},
		{"duplicate", `{"a":1,"a":1}`, "", `duplicate member name: "a"`},
		{"duplicate in another spelling", `{"a":1,"\u0061":2}`, "", `duplicate member name: "a"`},
		{"duplicate far apart", `{"b":1,"a":1,"c":1,"b":2}`, "", `duplicate member name: "b"`},
		{"duplicate below", `[{"x":{"a":1,"a":1}}]`, "", "duplicate member name"},
		{"empty", "", "", "no value at byte 0"},
		{"blank", " ", "", "no value at byte 1"},
		{"trailing value", `{} {}`, "", "bytes after the value at byte 3"},
		{"trailing comma", `[1,]`, "", "not JSON"},
		{"trailing comma in an object", `{"a":1,}`, "", "member name expected"},
		{"leading comma", `{,"a":1}`, "", "member name expected"},
		{"no colon", `{"a" 1}`, "", "colon expected"},
		{"no comma", `[1 2]`, "", "comma expected"},
		{"no comma in an object", `{"a":1 "b":2}`, "", "comma expected"},
		{"open object", `{"a":1`, "", "object has no end"},
		{"open array", `[1`, "", "array has no end"},
		{"open string", `"a`, "", "string has no end"},
		{"open escape", `"\`, "", "string has no end"},
		{"name is no string", `{a:1}`, "", "member name expected"},
		{"byte order mark", "\ufeff{}", "", "not JSON"},
		{"bad UTF-8", "\"\xff\"", "", "bad UTF-8"},
		{"bad UTF-8 after an escape", "\"\\n\xff\"", "", "bad UTF-8"},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", "", "bad UTF-8"},
		{"lone high surrogate", `"\ud83d"`, "", "lone surrogate"},
		{"lone low surrogate", `"\ude00"`, "", "lone surrogate"},
		{"two high surrogates", `"\ud83d\ud83d"`, "", "lone surrogate"},
		{"high surrogate and text", `"\ud83dabcdef"`, "", "lone surrogate"},
		{"control character", "\"a\nb\"", "", "control character"},
		{"control character after an escape", "\"\\ta\x00\"", "", "control character"},
		{"bad escape", `"\x41"`, "", "bad escape"},
		{"short escape", `"\u00"`, "", "bad escape"},
		{"NaN", `NaN`, "", "not JSON"},
		{"Infinity", `-Infinity`, "", "bad number"},
		{"leading zero", `01`, "", "bad number"},
		{"plus", `+1`, "", "not JSON"},
		{"no fraction", `1.`, "", "bad number"},
		{"no whole", `.5`, "", "not JSON"},
		{"no exponent", `1e`, "", "bad number"},
		{"hexadecimal", `0x10`, "", "bytes after the value"},
		{"single quotes", `'a'`, "", "not JSON"},
		{"comment", `/**/1`, "", "not JSON"},
		{"half a word", `nul`, "", "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Canonical([]byte(c.in))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("in %q: got %q, error %v, want an error with %q", c.in, got, err, c.err)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Fatalf("in %q: got %q, error %v, want %q", c.in, got, err, c.want)
			}
			again, err := Canonical(got)
			if err != nil || !bytes.Equal(again, got) {
				t.Fatalf("in %q: not canonical: %q becomes %q, error %v", c.in, got, again, err)
			}
		})
	}
}

func TestCanonicalDuplicateIsErrDuplicate(t *testing.T) {
	if _, err := Canonical([]byte(`{"a":1,"\u0061":2}`)); !errors.Is(err, ErrDuplicate) {
		t.Fatalf("error %v is no ErrDuplicate", err)
	}
}

func TestDepth(t *testing.T) {
	for _, c := range []struct {
		name, open, shut string
	}{{"arrays", "[", "]"}, {"objects", `{"a":`, "}"}} {
		t.Run(c.name, func(t *testing.T) {
			nested := func(n int) []byte {
				return []byte(strings.Repeat(c.open, n) + "1" + strings.Repeat(c.shut, n))
			}
			if _, err := Canonical(nested(MaxNesting)); err != nil {
				t.Errorf("depth %d: %v", MaxNesting, err)
			}
			if _, err := Canonical(nested(MaxNesting + 1)); err == nil || !strings.Contains(err.Error(), "nesting exceeds 80") {
				t.Errorf("depth %d: error %v, want nesting exceeds 80", MaxNesting+1, err)
			}
			for n, ok := range map[int]bool{1: true, 63: true, 64: true, 65: false, 80: false} {
				if err := CheckDepth(nested(n)); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "nesting exceeds 64 at byte ") {
					t.Errorf("what somebody says, %d deep: error %v, want one: %t", n, err, !ok)
				}
			}
			if _, err := Canonical(bytes.Repeat([]byte(c.open), 1<<20)); err == nil {
				t.Error("a million levels pass")
			}
		})
	}
}

// Brackets in texts nest nothing, and what stands beside is no deeper.
func TestDepthIsOfTheDocument(t *testing.T) {
	for in, ok := range map[string]bool{
		`"` + strings.Repeat(`[`, 100) + `"`:                               true,
		`["\"",` + strings.Repeat(`"\\[",`, 100) + `1]`:                    true,
		`[` + strings.Repeat(`[],{},`, 100) + `1]`:                         true,
		`{"a\"[":"` + strings.Repeat(`{`, 70) + `","b":[{}]}`:              true,
		`["\\",` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `]`: false,
		`["",` + strings.Repeat(`[`, 63) + strings.Repeat(`]`, 63) + `]`:   true,
	} {
		canonical, err := Canonical([]byte(in))
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		if err := CheckDepth(canonical); (err == nil) != ok {
			t.Errorf("%s: %v, want an error: %t", in, err, !ok)
		}
	}
}

func TestDecodeIsExact(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
	}
	type embedded struct {
		Deep string `json:"deep"`
	}
	type document struct {
		Name    string           `json:"name"`
		Inner   *inner           `json:"inner,omitempty"`
		List    []inner          `json:"list,omitempty"`
		ByName  map[string]inner `json:"by_name,omitempty"`
		Raw     json.RawMessage  `json:"raw,omitempty"`
		Any     any              `json:"any,omitempty"`
		Untaged string
		Skipped string `json:"-"`
		embedded
	}
	for _, c := range []struct{ name, in, err string }{
		{"every member", `{"name":"a","inner":{"name":"b"},"list":[{"name":"c"}],"by_name":{"X":{"name":"d"}},"raw":{"Name":1},"any":{"Name":1},"Untaged":"e","deep":"f"}`, ""},
		{"nothing", `{}`, ""},
		{"unknown", `{"other":1}`, `unknown member "other"`},
		{"case", `{"Name":"a"}`, `unknown member "Name"`},
		{"case beside the right one", `{"Name":"b","name":"a"}`, `unknown member "Name"`},
		{"case below", `{"inner":{"NAME":"a"}}`, `unknown member "NAME"`},
		{"case in a list", `{"list":[{"name":"a"},{"NAME":"a"}]}`, `unknown member "NAME"`},
		{"case in a map", `{"by_name":{"x":{"NAME":"a"}}}`, `unknown member "NAME"`},
		{"case in an embedded struct", `{"Deep":"a"}`, `unknown member "Deep"`},
		{"skipped", `{"Skipped":"a"}`, `unknown member "Skipped"`},
		{"letter that folds", `{"ſkipped":"a"}`, "unknown member"},
		{"wrong type", `{"name":1}`, "document: json"},
		{"null", `null`, "null is no object"},
		{"list", `[]`, "document: json"},
		{"duplicate", `{"name":"a","name":"b"}`, "duplicate"},
		{"trailing", `{}x`, "bytes after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d document
			err := Decode([]byte(c.in), &d)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("in %s: error %v, want %q", c.in, err, c.err)
			}
		})
	}
	var d document
	if err := Decode([]byte(`{"any":12345678901234567890.0}`), &d); err != nil || d.Any != json.Number("12345678901234567890.0") {
		t.Errorf("number in an interface: got %#v, error %v, want its text", d.Any, err)
	}
}

func TestMarshal(t *testing.T) {
	got, err := Marshal(map[string]any{"b": "<\u2028>", "a": json.Number("1.0")})
	if want := "{\"a\":1.0,\"b\":\"<\u2028>\"}"; err != nil || string(got) != want {
		t.Errorf("got %s, error %v, want %s", got, err, want)
	}
	for _, v := range []any{math.NaN(), math.Inf(1), make(chan int), json.RawMessage(`{"a":1,"a":2}`)} {
		if got, err := Marshal(v); err == nil {
			t.Errorf("%v: got %s, want an error", v, got)
		}
	}
}

// TestMarshalAgrees: what is written without reflection is what encoding/json writes, made canonical.
func TestMarshalAgrees(t *testing.T) {
	deep := func(n int) (v any) {
		for range n {
			v = []any{map[string]any{"a": v}}
		}
		return v
	}
	itself := map[string]any{}
	itself["a"] = itself
	for _, v := range []any{
		nil, true, false, "", "a\"\\\b\f\n\r\t\x01\x7f\u2028<é😀", "\xff", "a\xc3", json.Number("0"), json.Number(""), json.Number("-0.0e+1"), json.Number("9007199254740993"),
		json.Number("1e400"), json.Number("01"), json.Number("1 "), json.Number("x"), json.Number("-"), json.Number(strings.Repeat("9", 400)),
		[]any(nil), map[string]any(nil), []any{}, map[string]any{}, []any{nil, []any{}, "x", json.Number("1")},
		map[string]any{"b": json.Number("1"), "a": nil, "": "x", "\"": true, "é": []any{false}},
		map[string]any{"\xff": "a", "\ufffd": "b"}, map[string]any{"\xff": "a"}, map[string]any{"a": 1.5, "b": 3},
		deep(MaxNesting / 2), []any{deep(MaxNesting / 2)}, []any{[]any{}, deep(MaxNesting/2 - 1)}, []any{deep(MaxNesting/2 - 1), []any{[]any{}}}, itself,
	} {
		got, err := Marshal(v)
		want, wantErr := reflected(v)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%.60q: %q, error %v; want %q, error %v", fmt.Sprint(v), got, err, want, wantErr)
		}
	}
}

// reflected is Marshal with nothing but encoding/json.
func reflected(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Canonical(data)
}

func lists(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// TestQuestionsAgree: no member of a question is written otherwise than encoding/json would.
func TestQuestionsAgree(t *testing.T) {
	check := func(q *Question) {
		t.Helper()
		got, err := Marshal(q)
		want, wantErr := reflected(q)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%s, error %v\nwant %s, error %v", got, err, want, wantErr)
		}
	}
	check(nil)
	check(&Question{})
	all := &Question{Call: &CallFacts{}}
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			f := v.Field(i)
			values := []any{"x", "é\"<\xff", "", 7, -1, true, json.RawMessage(`{"b":[1,{"c":"<"}],"a":"\u00e9"}`), json.RawMessage(`null`), json.RawMessage(`[1`), json.RawMessage(`1 2`),
				[]string{"b", "a\x01"}, []string{"\xff"}, []string{}, json.RawMessage(lists(MaxNesting - 2)),
				json.RawMessage(lists(MaxNesting - 1)), json.RawMessage(lists(MaxNesting)), &Approval{By: "x"}, []SecretHit{{Name: "x"}}}
			if f.Kind() == reflect.Struct {
				fill(f)
				continue
			}
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				fill(f.Elem())
				continue
			}
			tried, was := false, reflect.ValueOf(f.Interface())
			for _, value := range values {
				if w := reflect.ValueOf(value); w.CanConvert(f.Type()) && (w.Kind() == f.Kind()) {
					f.Set(w.Convert(f.Type()))
					check(all)
					tried = true
				}
			}
			if !tried {
				t.Errorf("no value of type %v was tried", f.Type())
			}
			f.Set(was)
		}
	}
	fill(reflect.ValueOf(all).Elem())
	all.Call.Args = json.RawMessage("{}")
	fill(reflect.ValueOf(all).Elem())
}

func TestUnmarshalKeepsNumbers(t *testing.T) {
	v, err := Unmarshal([]byte(`{"n":0.10}`))
	if m, ok := v.(map[string]any); err != nil || !ok || m["n"] != json.Number("0.10") {
		t.Fatalf("got %#v, error %v", v, err)
	}
}

func TestDigest(t *testing.T) {
	// Of the two bytes "{}", from FIPS 180-4.
	if got, want := Digest([]byte("{}")), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestDecodeKnown(t *testing.T) {
	type pay struct {
		To   string         `json:"to"`
		Rest map[string]any `json:"rest"`
		List []struct {
			K string `json:"k"`
		} `json:"list"`
	}
	for doc, want := range map[string]string{
		`{"to":"ada"}`: "",
		`{"to":"ada","more":{"TO":"x"},"rest":{"TO":1}}`: "",
		`{"list":[{"k":"1","l":2}]}`:                     "",
		`{"to":"ada","TO":"x"}`:                          `unknown member "TO"`,
		`{"list":[{"\u212a":"x"}]}`:                      "unknown member",
		`{"to":"ada","to":"x"}`:                          "duplicate",
		`{"to":1}`:                                       "cannot unmarshal number",
	} {
		var v pay
		if err := DecodeKnown([]byte(doc), &v); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", doc, err, want)
		}
	}
}
