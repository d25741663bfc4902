package hostile

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestLoadRefuses(t *testing.T) {
	tests := []struct{ name, doc, want string }{
		{"member that nobody looks at", `{"of":"one","expect":{"max_dreams":1}}`, "max_dreams"},
		{"stage", `{"of":"one","stage":"dream","expect":{}}`, `stage "dream"`},
		{"outcome", `{"of":"one","expect":{"outcome":[]}}`, "expects no outcome"},
		{"survival", `{"of":"one","expect":{"process_survives":false}}`, "no survival"},
		{"id", `{"of":"one","id":"other","expect":{}}`, `id is "other"`},
		{"guard", `{"of":"one","stage":"guard","expect":{}}`, "without a guard"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := writeCorpus(t, map[string]string{"a": test.doc}).Load(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := writeCorpus(t, nil).Load(); err == nil || !strings.Contains(err.Error(), "no cases") {
		t.Errorf("empty corpus: error %v", err)
	}
}

// A module that is not the one of the case is not run.
func TestModuleOfAnotherCase(t *testing.T) {
	c := writeCorpus(t, map[string]string{"a": `{"of":"one","module":{"gen":"test","size":3,"sha256":"00"},"expect":{}}`})
	if _, err := RunCase(t.Context(), c, "a"); err == nil || !strings.Contains(err.Error(), "build the modules again") {
		t.Errorf("error %v", err)
	}
}

func TestEqual(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[true,null,"x"]}`, `{"b":[true,null,"x"],"a":1.0}`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`1e2`, `100`, true},
		{`1e400`, `10e399`, true},
		{`1e999999999`, `1e999999999`, true},
		{`1e999999999`, `10e999999998`, false}, // too far to be worked out
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1}`, `{"b":1}`, false},
		{`[1,2]`, `[1]`, false},
		{`"1"`, `1`, false},
		{`null`, `false`, false},
	}
	for _, test := range tests {
		a, errA := decoded([]byte(test.a), 0)
		b, errB := decoded([]byte(test.b), 0)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if equal(a, b) != test.want || equal(b, a) != test.want {
			t.Errorf("equal(%s, %s) is not %v", test.a, test.b, test.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := &Report{Results: []Result{{ID: "a", Group: "one", Passed: true}, {ID: "b", Group: "one", Difference: "is\x1b[31m\nred"}, {ID: "c", Group: "two", Passed: true}}}
	var text, data bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := "FAIL\tb\tis\\u001b[31m\\u000ared\ngroup\tone\t1 passed, 1 failed\ngroup\ttwo\t1 passed, 0 failed\n2 passed, 1 failed\n"
	if text.String() != want || r.Failed() != 1 {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	if err := r.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Format, Passed, Failed int
		Groups                 []groupCount
		Cases                  []Result
	}
	if err := json.Unmarshal(data.Bytes(), &doc); err != nil || doc.Format != 1 || doc.Passed != 2 || doc.Failed != 1 || len(doc.Groups) != 2 || len(doc.Cases) != 3 {
		t.Errorf("document %s, error %v", data.Bytes(), err)
	}
}

// A text of a host must not pass for one of a guest.
func TestShown(t *testing.T) {
	e := &expectation{}
	for text, want := range map[string]bool{
		"the tool stopped unexpectedly": true, "guest_trap: at most 5/6": true,
		"panic at 0xc000123456": false, "goroutine 12 [running]": false, "host/call.go:12": false, "open /etc/passwd": false,
		"wasm stack trace: run": false,
	} {
		if got := e.shown(&attempt{text: text, actions: "{}"}); (got == "") != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
