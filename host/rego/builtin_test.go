package rego

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// What OPA's own evaluator says of the functions is compared in package regobuild;
// here are the ends of what is computed at all.
func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for _, c := range []struct{ name, args, want string }{
		{"http.send", `[{}]`, `"http.send": not a function that the host has`},
		{strings.Repeat("x", 200), `[]`, "x\": not a function"},
		{"sprintf", `["%d"]`, "sprintf: 2 arguments expected"},
		{"sprintf", `{"a":1}`, "2 arguments expected"},
		{"sprintf", `["%d",[1]`, "arguments: value: malformed"},
		{"sprintf", `["%d",[1]] 2`, "1 bytes behind it"},
		{"sprintf", `["%d",[1` + strings.Repeat("0", maxDigits) + `]]`, "number of 1001 digits exceeds 1000"},
		{"sprintf", strings.Repeat("[", maxDepth+1), "nested more than 128 deep"},
		{"sprintf", `["%9999999d",[1]]`, "which exceeds 1048576"},
		{"sprintf", `["%999999d%999999d",[1,2]]`, "which exceeds 1048576"},
		{"sprintf", `["%*d%*d",[999999,1,999999,1]]`, "which exceeds 1048576"},
		{"sprintf", `["%[1]*d%[1]*d",[999999,1]]`, "which exceeds 1048576"},
		{"sprintf", `["%.999999f%.999999f",[1.5,1.5]]`, "which exceeds 1048576"},
		{"sprintf", `["` + strings.Repeat("%[1]q", 100) + `",["` + long + `"]]`, "which exceeds 1048576"},
		{"sprintf", `["",["` + strings.Repeat(long, 17) + `"]]`, "which exceeds 1048576"},
		{"hex.decode", `["ff"]`, "not UTF-8"},
		{"urlquery.decode", `["%ff"]`, "not UTF-8"},
		{"hex.encode", `["` + strings.Repeat(long, 9) + `"]`, "result of 1179648 bytes exceeds 1048576"},
		{"time.clock", `[[0,"Local"]]`, `time zone "Local": only UTC is known`},
	} {
		result, err := Call(c.name, []byte(c.args), time.Time{})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || result != nil {
			t.Errorf("%.20s(%.80s): %.80s, error %.200s, want %q", c.name, c.args, result, got, c.want)
		}
	}
}

// The bound of what a format writes holds for whatever Go makes of it.
func FuzzSprintf(f *testing.F) {
	f.Add("%d %s", `1,"x"`)
	f.Add("%[2]*[1]d|%-8.3f|%+q|% #x|%08b|%!|%", `1,8,2.5,"\u0000é",{"a":{1,2}},set(),[null,true]`)
	f.Add("%[3]*.[2]*[1]f", `12.0,2,6`)
	f.Fuzz(func(t *testing.T, format, operands string) {
		quoted, err := json.Marshal(format)
		if err != nil {
			t.Fatal(err)
		}
		args, err := parse(fmt.Appendf(nil, "[%s,[%s]]", quoted, operands))
		if err != nil {
			return
		}
		list, ok := args.(array)[1].(array)
		if !ok {
			return
		}
		v, err := sprintf(array{args.(array)[0], list}, time.Time{})
		if s, ok := v.(string); err == nil && (!ok || len(s) > MaxResultBytes) {
			t.Errorf("sprintf(%q, %s) wrote %d bytes", format, operands, len(s))
		}
	})
}

// A value is written so that it reads as the same value.
func FuzzValue(f *testing.F) {
	for _, s := range []string{`null`, `[true,false,1.50,"x\n"]`, `{"b":{1,"a",null},"a":set()}`, `{[1]:{2:3}}`, `{{1},{2,{3}}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parse([]byte(text))
		if err != nil {
			return
		}
		written := appendText(nil, v)
		if strings.ContainsAny(text, `\"`) {
			return // Go's quotes are not JSON's
		}
		again, err := parse(written)
		if err != nil || compare(sorted(v), sorted(again)) != 0 {
			t.Errorf("%q was written %q, read as %v, error %v", text, written, again, err)
		}
	})
}

// sorted puts sets and objects into their order.
func sorted(v value) value {
	switch v := v.(type) {
	case array:
		out := array{}
		for _, e := range v {
			out = append(out, sorted(e))
		}
		return out
	case set:
		out := set{}
		for _, e := range v {
			out = append(out, sorted(e))
		}
		slices.SortStableFunc(out, compare)
		return out
	case object:
		out := object{}
		for _, m := range v {
			out = append(out, member{sorted(m.key), sorted(m.value)})
		}
		slices.SortStableFunc(out, func(a, b member) int { return compare(a.key, b.key) })
		return out
	}
	return v
}

func TestCompare(t *testing.T) {
	ascending := []string{`null`, `false`, `true`, `-1`, `0`, `1e-3`, `1`, `1.5`, `10`, `""`, `"a"`, `"b"`, `[]`, `[1]`, `[1,0]`, `[2]`, `{}`, `{"a":1}`, `{"a":2}`, `{"b":0}`, `set()`, `{1}`, `{1,2}`, `{2}`}
	for i, a := range ascending {
		for j, b := range ascending {
			x, errX := parse([]byte(a))
			y, errY := parse([]byte(b))
			if errX != nil || errY != nil {
				t.Fatal(a, errX, b, errY)
			}
			if d := compare(x, y); d > 0 != (i > j) || d < 0 != (i < j) {
				t.Errorf("compare(%s, %s) = %d", a, b, d)
			}
		}
	}
}
