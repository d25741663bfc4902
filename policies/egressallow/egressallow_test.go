package egressallow

import (
	"encoding/json"
	"slices"
	"testing"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func TestJudge(t *testing.T) {
	settings := Settings{Hosts: []string{"api.weather.example", "*.files.example"}}
	narrowed := []string{"http GET api.weather.example/*", "http GET *.files.example/*"}
	for _, c := range []struct {
		name, args, verdict, code string
	}{
		{"listed", `{"url":"https://api.weather.example/v1"}`, "narrow", ""},
		{"one label", `{"url":"https://a.files.example/"}`, "narrow", ""},
		{"no address", `{"place":"Oslo"}`, "narrow", ""},
		{"a path with two slashes", `{"p":"a//b"}`, "narrow", ""},
		{"two labels", `{"url":"https://a.b.files.example/"}`, "deny", "host_not_listed"},
		{"suffix", `{"url":"https://evilfiles.example/"}`, "deny", "host_not_listed"},
		{"bare wildcard", `{"url":"https://files.example/"}`, "deny", "host_not_listed"},
		{"userinfo", `{"url":"https://api.weather.example@evil.example/"}`, "deny", "url_form"},
		{"backslash", `{"url":"https://api.weather.example\\@evil.example/"}`, "deny", "url_form"},
		{"decimal address", `{"url":"https://2130706433/"}`, "deny", "host_not_listed"},
		{"full-width", `{"url":"https://ａpi.weather.example/"}`, "deny", "host_not_listed"},
		{"nested text", `{"body":"{\"cb\":\"https:\\/\\/evil.example\\/x\"}"}`, "deny", "host_not_listed"},
		{"in a key", `{"https://evil.example/":1}`, "deny", "host_not_listed"},
		{"in a list", `{"a":[{"b":["https://evil.example/"]}]}`, "deny", "host_not_listed"},
		{"inside text", `{"q":"see (https://evil.example/x) please"}`, "deny", "host_not_listed"},
		{"second address", `{"q":"https://api.weather.example/ https://evil.example/"}`, "deny", "host_not_listed"},
		{"percent-encoded", `{"q":"https%3A%2F%2Fevil.example%2F"}`, "deny", "host_not_listed"},
		{"encoded twice", `{"q":"https%253A%252F%252Fevil.example"}`, "deny", "host_not_listed"},
		{"encoded too often", `{"q":"%2525252520"}`, "deny", "encoding"},
		{"without scheme", `{"q":"//evil.example/x"}`, "deny", "host_not_listed"},
		{"upper case", `{"q":"HTTPS://EVIL.EXAMPLE/"}`, "deny", "host_not_listed"},
		{"listed in upper case", `{"q":"HTTPS://API.WEATHER.EXAMPLE/"}`, "narrow", ""},
		{"line break in the scheme", `{"q":"htt\nps://evil.example/"}`, "deny", "url_form"},
		{"http", `{"q":"http://api.weather.example/"}`, "deny", "scheme_not_listed"},
		{"file", `{"q":"file:///etc/passwd"}`, "deny", "url_form"},
		{"port", `{"q":"https://api.weather.example:22/"}`, "deny", "port_not_listed"},
		{"trailing dot", `{"q":"https://api.weather.example./"}`, "narrow", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q guest.Question
			if err := json.Unmarshal([]byte(c.args), &q.Args); err != nil {
				t.Fatal(err)
			}
			q.Phase, q.Grants = guest.PhaseCall, []string{"http GET **/*", "log"}
			v := Judge(&q, settings)
			if string(v.Ruling) != c.verdict || v.Code != c.code {
				t.Fatalf("args %s: got %s %s (%v), want %s %s", c.args, v.Ruling, v.Code, v.Why, c.verdict, c.code)
			}
			if c.verdict == "narrow" && !slices.Equal(v.Grants, append(slices.Clone(narrowed), "log")) {
				t.Fatalf("grants %q", v.Grants)
			}
		})
	}
}

func TestEmptyListAllowsNothing(t *testing.T) {
	q := guest.Question{Grants: []string{"http GET **/*"}}
	if err := json.Unmarshal([]byte(`{}`), &q.Args); err != nil {
		t.Fatal(err)
	}
	if v := Judge(&q, Settings{}); v.Ruling != "narrow" || len(v.Grants) != 0 || v.Grants == nil {
		t.Fatalf("got %+v, want nothing left", v)
	}
}

func TestCheck(t *testing.T) {
	for host, ok := range map[string]bool{"a.example": true, "*.a.example": true, "**.a.example": true, "10.1.2.3": true,
		"*.com": false, "**.com": false, "A.example": false, "a.*.example": false, "": false, "a.example:1": false, "*": false} {
		if err := Check(Settings{Hosts: []string{host}}); (err == nil) != ok {
			t.Errorf("%q: error %v, want it to be fine: %v", host, err, ok)
		}
	}
}
