package guest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// slowly decodes as encoding/json does, and keeps the text of numbers.
func slowly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// FuzzReader: of what is canonical, the reader reads what encoding/json reads, and
// of anything else it reads something or fails.
func FuzzReader(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `""`, `0`, `-1.50e+7`, `null`, `true`, `{"a":{"b":[1,"x\"\\",null,false]},"c\n":"\u0007"}`, `["\\","\\\\\"",[[]],{}]`,
		`{"a":1`, `[1,`, `"x`, `"\"`, `{"a"}`, `{"a":}`, `]`, `{]`, `[}`, `tru`, `1 2`, ` { "a" : [ 1 , 2 ] } `, strings.Repeat("[", 60) + strings.Repeat("]", 60)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := generic(data)
		r := newReader(data)
		raw, rawErr := r.raw()
		canonical, bad := abi.Canonical(data)
		if bad != nil {
			return
		}
		if err != nil || rawErr != nil {
			t.Fatalf("%q: errors %v and %v", data, err, rawErr)
		}
		var want any
		if err := slowly(canonical, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %#v, want %#v", data, got, want)
		}
		if again, err := abi.Canonical(raw); err != nil || string(again) != string(canonical) {
			t.Fatalf("%q: raw %q, error %v", data, raw, err)
		}
	})
}

func TestReaderRefuses(t *testing.T) {
	for _, s := range []string{``, ` `, `{`, `[`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `[,]`, `[1,`, `[1 2]`, `{"a" 1}`, `{a:1}`, `"x`, `"\"`, `]`, `}`, `{]`, `[}`, `x`, `:`, `{} {}`} {
		if v, err := generic([]byte(s)); err == nil {
			t.Errorf("%q is %#v", s, v)
		}
	}
}

type everything struct {
	Text    string   `json:"text"`
	Yes     bool     `json:"yes"`
	N       int      `json:"n"`
	Small   int8     `json:"small" default:"7"`
	U       uint     `json:"u,omitempty"`
	F       float64  `json:"f,omitempty"`
	Price   Decimal  `json:"price,omitzero"`
	Words   []string `json:"words,omitempty" max:"9"`
	Numbers []int    `json:"numbers,omitempty"`
	Inner   struct {
		A string `json:"a" default:"x"`
		B []struct {
			C int `json:"c" default:"3"`
		} `json:"b,omitempty"`
	} `json:"inner,omitzero"`
	Maybe *int              `json:"maybe,omitempty"`
	Map   map[string]string `json:"map,omitempty"`
	Raw   json.RawMessage   `json:"raw,omitempty"`
	Bytes []byte            `json:"bytes,omitempty"`
	Array [2]bool           `json:"array,omitzero"`
}

// What the fast way to decode accepts is what the slow one makes of it.
func TestDecodeHasTwoWays(t *testing.T) {
	s, err := shapeOf(reflect.TypeFor[everything]())
	if err != nil {
		t.Fatal(err)
	}
	fast := 0
	for _, in := range []string{`{}`, `{"text":"a\"b","yes":true,"n":-5,"small":3}`, `{"n":3.0}`, `{"n":3e1}`, `{"small":200}`, `{"small":1}`, `{"price":1.50}`, `{"price":"1.50"}`, `{"price":"x"}`,
		`{"words":["a","b\n"],"numbers":[1,2]}`, `{"words":[],"numbers":null}`, `{"words":null}`, `{"inner":{}}`, `{"inner":{"a":"y","b":[{},{"c":4}]}}`, `{"inner":null}`, `{"u":4,"f":1.5}`,
		`{"maybe":1}`, `{"map":{"a":"b"}}`, `{"raw":{"a":1.0}}`, `{"bytes":"AAAA"}`, `{"array":[true,false]}`, `{"text":1}`, `{"text":null}`, `{"yes":"true"}`, `{"n":"1"}`, `{"n":99999999999999999999}`,
		`{"TEXT":"other case"}`, `{"other":1}`, `{"text":"a","text":"b"}`, `[]`, `null`, `1`, ` {"text" : "x" } `, `{"words":["a",1]}`} {
		var quick, want everything
		ok := s.assign(newReader([]byte(in)), reflect.ValueOf(&quick).Elem())
		s.plain = false
		err := s.decode(json.RawMessage(in), &want)
		s.plain = true
		if ok {
			fast++
		}
		if ok && (err != nil || !reflect.DeepEqual(quick, want)) {
			t.Errorf("%s: fast %+v, slow %+v, error %v", in, quick, want, err)
		}
		var got everything
		if again := s.decode(json.RawMessage(in), &got); (again == nil) != (err == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, error %v, want %+v, error %v", in, got, again, want, err)
		}
	}
	if fast < 8 {
		t.Errorf("only %d of the documents went the fast way", fast)
	}
}

// Verdicts are written as abi.Marshal writes them.
func TestEncodeVerdict(t *testing.T) {
	for _, v := range []Verdict{{}, Allow(), AllowBut(7), Deny("c", "a \"reason\"\n", Why{Rule: "r", At: "/a", Saw: "\x07"}), Confirm("sure? \xff"), Narrow(), Narrow("log", `x"y`),
		Rewrite(map[string]any{"b": 1, "a": "x"}), {Format: 1, Ruling: "allow", Document: json.RawMessage(` {"b":1, "a":2}`)}, {Document: json.RawMessage(`{`)}, {Document: json.RawMessage{}}} {
		v.Nonce, v.DocumentSHA256 = "n1", "d1"
		want, wantErr := abi.Marshal(v)
		got, err := encodeVerdict(v)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("got %s, error %v, want %s, error %v", got, err, want, wantErr)
		}
	}
}

// A question is read to the last member: every one of abi.Question is known.
func TestReadQuestion(t *testing.T) {
	known := map[string]bool{"format": true, "kind": true, "partial": true}
	var a asked
	for f := range reflect.TypeFor[abi.Question]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if known[name] {
			continue
		}
		before := a
		r := newReader([]byte(map[string]string{"user": `{"id":"u","roles":["r"]}`, "step": `7`, "message": `{"role":"user"}`, "request": `{"model":"m"}`, "response": `{"partial":true}`,
			"call": `{"args":{"a":1},"effects":"once","id":"c","known":true,"module":"m","tool":"t"}`, "grants": `["log"]`, "facts": `{"approved":{"by":"u2"}}`,
			"result": `{}`, "settings": `{}`}[name]))
		if r.text == "" {
			r = newReader([]byte(`"text"`))
		}
		if err := a.member(r, name); err != nil || reflect.DeepEqual(a, before) || r.end() != nil {
			t.Errorf("member %s: not read, error %v", name, err)
		}
	}
	want := CalledTool{ID: "c", Name: "t", Known: true, Effects: Once, Module: "m"}
	if a.question.Tool != want || string(a.question.Args.raw) != `{"a":1}` || a.question.Facts.Approved.By != "u2" || a.question.User.Roles[0] != "r" || !a.question.Response.Partial {
		t.Errorf("read %+v", a.question)
	}
}

// TestMark compares mark with a look at each byte, for every place in words and their rest.
func TestMark(t *testing.T) {
	for size := range 40 {
		for at := range size + 1 {
			for _, c := range "\"\\" {
				for _, fill := range []byte{'x', 0, '!', '#', '[', ']', 0x80, 0xa2, 0xdc, 0xff} {
					data := bytes.Repeat([]byte{fill}, size)
					if at < size {
						data[at] = byte(c)
					}
					if at+2 < size {
						data[at+1], data[at+2] = '"', '\\'
					}
					for from := range size + 1 {
						want := size
						if i := bytes.IndexAny(data[from:], "\"\\"); i >= 0 {
							want = from + i
						}
						if got := newReader(data).mark(from); got != want {
							t.Fatalf("%q from %d: %d, want %d", data, from, got, want)
						}
					}
				}
			}
		}
	}
}
