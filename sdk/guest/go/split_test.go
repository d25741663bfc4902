package guest

import (
	"encoding/json"
	"reflect"
	"testing"
)

// What is JSON is split as encoding/json would, and what is cut off is an error.
func TestSplit(t *testing.T) {
	for _, text := range []string{`{}`, ` { } `, `{"a":1}`, `{"a" : [1,{"b":"]}"}] , "c\n":"\\\"}", "d":-1.5e3,"e":null}`, `{"a":{"b":[[],{}]},"t":true}`, `{"":""}`} {
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := splitObject([]byte(text))
		if err != nil || !reflect.DeepEqual(map[string]json.RawMessage(got), want) {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{``, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":"`, `{"a":"\"}`, `{"a":[}`, `{a:1}`, `{1:1}`, `{"a":1}x`, `[]`, `null`, `"a"`, `{"a":,}`, `{,}`} {
		if got, err := splitObject([]byte(text)); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
	list, err := splitList([]byte(` [1, "a,]" ,[2,3],{"x":[4]}] `))
	if err != nil || !reflect.DeepEqual(list, []json.RawMessage{[]byte(`1`), []byte(`"a,]"`), []byte(`[2,3]`), []byte(`{"x":[4]}`)}) {
		t.Errorf("%s %v", list, err)
	}
	for _, text := range []string{`[`, `[1`, `[1,`, `[1 2]`, `{}`, `[1]]`} {
		if list, err := splitList([]byte(text)); err == nil {
			t.Errorf("%s: %s", text, list)
		}
	}
	if list, err := splitList([]byte(`null`)); list != nil || err != nil {
		t.Errorf("null: %s %v", list, err)
	}
}
