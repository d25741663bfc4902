package audit

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// FuzzSeal holds that a line is what encoding/json writes of its record, whichever
// of its members has the text.
func FuzzSeal(f *testing.F) {
	for _, s := range []string{"", "plain text", `a "quote" and a \`, "<script>&amp;", "tab\tline\n\x00\x1f\x7f", "Ünï\u2028code\U0001f600", "\xff\xc0", strings.Repeat("é", MaxText)} {
		f.Add(s, int64(1772355600), int64(120_000_000))
	}
	f.Add("x", int64(0), int64(1))
	f.Fuzz(func(t *testing.T, text string, sec, nsec int64) {
		v := reflect.TypeFor[Record]()
		for i := range v.NumField() {
			r := Record{Action: "call.end", Prev: Genesis, Seq: uint64(sec), Time: time.Unix(sec, nsec).UTC()}
			if field := reflect.ValueOf(&r).Elem().Field(i); field.Kind() == reflect.String && text != "" {
				field.SetString(text)
			}
			bound(&r)
			line, _, err := r.seal(nil)
			want, wantErr := json.Marshal(r)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%s: %v, encoding/json says %v", v.Field(i).Name, err, wantErr)
			}
			if err == nil && string(line) != string(want) {
				t.Fatalf("%s:\n%s, encoding/json writes\n%s", v.Field(i).Name, line, want)
			}
		}
	})
}
