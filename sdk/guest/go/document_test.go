package guest

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func document(s string) *Document { return &Document{raw: json.RawMessage(s)} }

func TestDocumentReads(t *testing.T) {
	d := document(`{"a":{"b":[1.50,"x",null]},"a/b":1,"m~n":2,"":3,"n":"1250.00","/x":4,"t":true}`)
	for path, want := range map[string]bool{"": true, "a": true, "/a": true, "/a/b/0": true, "/a/b/2": true, "/a~1b": true, "/m~0n": true, "/": true, "/~1x": true,
		"a/b": true, "/a/b/3": false, "/a/b/01": false, "/a/b/-": false, "/a/b/-1": false, "/a/b/x": false, "/a/b/0/c": false, "/x": false, "/n/0": false,
		"none": false, "/a/b/99999999999999999999": false} {
		if d.Has(path) != want {
			t.Errorf("Has(%q) is not %v", path, want)
		}
	}
	if s, err := d.Text("/a/b/1"); err != nil || s != "x" {
		t.Errorf("got %q, error %v", s, err)
	}
	for path, want := range map[string]string{"/a/b/0": "1.50", "n": "1250.00"} {
		if n, err := d.Decimal(path); err != nil || n.String() != want {
			t.Errorf("%s: got %s, error %v, want %s", path, n, err, want)
		}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(d.Text("none")), `"none": absent`}, {second(d.Text("/t")), `"/t": not text`}, {second(d.Decimal("none")), `"none": absent`},
		{second(d.Decimal("/t")), `"/t": not a number`}, {second(d.Decimal("/a/b/1")), `decimal "x"`}, {second(d.Get("/t", new(int))), `"/t": json`},
		{second(document(`{`).Get("", new(int))), "unexpected"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
	var all map[string]any
	if ok, err := d.Get("", &all); !ok || err != nil || all["m~n"] != json.Number("2") {
		t.Errorf("whole document: %v %v, error %v", ok, all, err)
	}
	if ok, err := d.Get("none", &all); ok || err != nil {
		t.Errorf("absent: %v, error %v", ok, err)
	}
	var none Document
	if none.Has("") || none.Has("a") || second(none.Text("")) == nil {
		t.Error("the zero document is there")
	}
	if data, err := none.MarshalJSON(); err != nil || string(data) != "null" {
		t.Errorf("the zero document is %s, error %v", data, err)
	}
}

// A list is read in pieces, each a document of its own, as encoding/json would.
func TestDocumentElements(t *testing.T) {
	d := document(`{"l":[{"price":1.50,"n":[1]}, null ,"x",[]],"e":[],"z":null,"t":true}`)
	var l []Document
	if found, err := d.Get("l", &l); !found || err != nil || len(l) != 4 {
		t.Fatalf("found %v, error %v, %d elements", found, err, len(l))
	}
	if p, err := l[0].Decimal("price"); err != nil || p.String() != "1.50" {
		t.Errorf("price %v, error %v", p, err)
	}
	if s, err := l[2].Text(""); err != nil || s != "x" || !l[1].Has("") || l[1].Has("price") {
		t.Errorf("text %q, error %v; null has %v", s, err, l[1])
	}
	l[0].Set("price", 2)
	if b, err := json.Marshal(l); err != nil || string(b) != `[{"n":[1],"price":2},null,"x",[]]` {
		t.Errorf("changed to %s, error %v", b, err)
	}
	if b, err := json.Marshal(d); err != nil || !strings.Contains(string(b), `{"price":1.50,"n":[1]}, null ,"x"`) && !strings.Contains(string(b), `{"price":1.50,"n":[1]},null,"x"`) {
		t.Errorf("the whole became %s, error %v", b, err)
	}
	for path, want := range map[string]string{"e": "[]", "z": "null"} {
		l := []Document{{}}
		found, err := d.Get(path, &l)
		if b, _ := json.Marshal(l); !found || err != nil || string(b) != want {
			t.Errorf("%s: found %v, error %v, %s", path, found, err, b)
		}
	}
	kept := []Document{*document("1")}
	if found, err := d.Get("t", &kept); !found || err == nil || len(kept) != 1 {
		t.Errorf("what is no list: found %v, error %v, %d elements", found, err, len(kept))
	}
	if found, err := d.Get("none", &kept); found || err != nil {
		t.Errorf("what is absent: found %v, error %v", found, err)
	}
	for _, bad := range []string{`[1`, `[1,]`, `[1 2]`, `[1]x`, `nullx`} {
		if err := elements([]byte(bad), &kept); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestDocumentChanges(t *testing.T) {
	for _, c := range []struct {
		name, in string
		change   func(d *Document)
		want     string // or part of the error
	}{
		{"member", `{"a":1.0}`, func(d *Document) { d.Set("b", "<x>") }, `{"a":1.0,"b":"\u003cx\u003e"}`},
		{"replaced", `{"a":1.0}`, func(d *Document) { d.Set("/a", json.Number("2.0")) }, `{"a":2.0}`},
		{"below", `{"a":{"b":[1,2]}}`, func(d *Document) { d.Set("/a/b/1", 3) }, `{"a":{"b":[1,3]}}`},
		{"appended", `{"a":[1]}`, func(d *Document) { d.Set("/a/-", 2) }, `{"a":[1,2]}`},
		{"appended to the document", `[1]`, func(d *Document) { d.Set("/-", 2) }, `[1,2]`},
		{"whole", `{"a":1}`, func(d *Document) { d.Set("", []int{1}) }, `[1]`},
		{"null", `{"a":1}`, func(d *Document) { d.Set("a", nil) }, `{"a":null}`},
		{"name with a slash", `{}`, func(d *Document) { d.Set("/~1a~0", 1) }, `{"/a~":1}`},
		{"deleted", `{"a":1,"b":2}`, func(d *Document) { d.Delete("a") }, `{"b":2}`},
		{"deleted below", `{"a":[1,2,3]}`, func(d *Document) { d.Delete("/a/1") }, `{"a":[1,3]}`},
		{"deleted and not there", `{"a":1}`, func(d *Document) { d.Delete("b"); d.Delete("/a/b/c") }, `{"a":1}`},
		{"struct", `{}`, func(d *Document) { d.Set("p", Part{Text: "x"}) }, `{"p":{"text":"x"}}`},
		{"read after write", `{}`, func(d *Document) {
			d.Set("a", map[string]int{"n": 1})
			d.Set("/a/m", d.Has("/a/n"))
		}, `{"a":{"m":true,"n":1}}`},
		{"no place", `{}`, func(d *Document) { d.Set("/a/b", 1) }, `error set "/a/b": absent`},
		{"no such element", `[1]`, func(d *Document) { d.Set("/1", 1) }, `error set "/1": absent`},
		{"member of text", `"x"`, func(d *Document) { d.Set("a", 1) }, `error set "a": absent`},
		{"member of null", `null`, func(d *Document) { d.Set("a", 1) }, `error set "a": absent`},
		{"not to be said", `{}`, func(d *Document) { d.Set("a", math.Inf(1)) }, `error set "a": json: unsupported value`},
		{"no document", `{`, func(d *Document) { d.Set("a", 1) }, `error set "a": want text`},
		{"the first error stays", `{}`, func(d *Document) { d.Set("/a/b", 1); d.Set("/c/d", 1); d.Set("a", 1) }, `error set "/a/b": absent`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := document(c.in)
			c.change(d)
			data, err := d.MarshalJSON()
			got := string(data)
			if err != nil {
				got = "error " + err.Error()
			}
			if got != c.want && !(err != nil && strings.HasPrefix(got, c.want)) {
				t.Fatalf("got %s, want %s", got, c.want)
			}
		})
	}
	var d Document
	d.Set("a", 1)
	if data, err := json.Marshal(d); err != nil || string(data) != `{"a":1}` || !d.Has("a") {
		t.Errorf("an absent document with a member: %s, error %v", data, err)
	}
}
