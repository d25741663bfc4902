package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

const tape = `{"format": 1, "exchanges": [
  {"request": {"url": "https://api.example.com/once"}, "response": {"status": 200, "headers": {"content-type": "application/json"}, "json": {"n": 1.50}}},
  {"request": {"method": "POST", "url": "https://api.example.com/body", "body_sha256": "%s"}, "response": {"status": 201, "text": "that body"}},
  {"request": {"method": "POST", "url": "https://api.example.com/body"}, "response": {"status": 202, "base64": "b3RoZXI="}},
  {"request": {"url": "https://api.example.com/turns"}, "response": {"status": 200, "text": "first"}},
  {"request": {"url": "https://api.example.com/turns"}, "response": {"status": 200, "text": "second"}},
  {"request": {"url": "https://api.example.com/inside", "address": "127.0.0.1"}, "response": {"status": 200, "text": "inside"}},
  {"request": {"url": "https://api.example.com/moved"}, "response": {"status": 302, "headers": {"location": "/turns"}}},
  {"request": {"url": "https://api.example.com/away"}, "response": {"status": 302, "headers": {"location": "https://evil.example/"}}},
  {"request": {"url": "https://evil.example/"}, "response": {"status": 200, "text": "never"}},
  {"request": {"url": "https://api.example.com/slow"}, "response": {"status": 200, "delay_ms": 60000}},
  {"request": {"url": "https://api.example.com/late"}, "response": {"status": 200, "delay_ms": 10, "text": "late"}}
]}`

func openTape(t testing.TB) *Cassettes {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.json"), fmt.Appendf(nil, tape, abi.Digest([]byte("mine"))), 0o600); err != nil {
		t.Fatal(err)
	}
	second := `{"format":1,"exchanges":[{"request":{"url":"https://api.example.com/second"},"response":{"status":204}}]}`
	if err := os.WriteFile(filepath.Join(dir, "b.json"), []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("no cassette"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := OpenCassettes(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCassettes(t *testing.T) {
	tests := []struct {
		request string
		want    string // the body, or a code
		status  int
	}{
		{`{"url":"https://api.example.com/once"}`, `{"n":1.50}`, 200},
		{`{"url":"https://api.example.com/once"}`, `{"n":1.50}`, 200}, // recorded once, played again
		{"{\"method\":\"POST\",\"url\":\"https://api.example.com/body\"}\x00mine", "that body", 201},
		{"{\"method\":\"POST\",\"url\":\"https://api.example.com/body\"}\x00yours", "other", 202},
		{`{"url":"https://api.example.com/moved"}`, "first", 200},
		{`{"url":"https://api.example.com/turns"}`, "second", 200},
		{`{"url":"https://api.example.com/turns"}`, "second", 200},
		{`{"url":"https://api.example.com/late"}`, "late", 200},
		{`{"url":"https://api.example.com/second"}`, "", 204},
		{`{"url":"https://api.example.com/once?q=1"}`, "no_recorded_answer", 0},
		{`{"url":"https://api.example.com/inside"}`, "egress_denied", 0},
		{`{"url":"https://api.example.com/away"}`, "egress_denied", 0},
		{`{"url":"https://evil.example/"}`, "capability_denied", 0},
	}
	m := loadGo(t)
	c := &Call{Grants: grants(t, "http GET,POST api.example.com/*"), Access: Access{Egress: NewEgress(openTape(t))},
		Limits: Limits{HTTPRequests: 100}}
	var calls []string
	for _, test := range tests {
		calls = append(calls, "http", test.request)
	}
	var traced []HostCall
	c.Trace = func(h HostCall) { traced = append(traced, h) }
	out, receipt := ask(t, m, c, calls...)
	for i, test := range tests {
		got := out[i].Text
		if code := out[i].code(t); code != "" {
			got = string(code)
		} else if !strings.Contains(out[i].Head, fmt.Sprintf(`"status":%d`, test.status)) {
			t.Errorf("%s: head %s, want status %d", test.request, out[i].Head, test.status)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.request, got, test.want)
		}
		if !traced[i].Recorded {
			t.Errorf("%s: trace %+v does not say that it is recorded", test.request, traced[i])
		}
	}
	if want := "http GET private api.example.com/inside"; !strings.Contains(strings.Join(receipt.Denied, ";"), want) {
		t.Errorf("denied %q, want %q in it", receipt.Denied, want)
	}
	c.Export, c.Limits = "call", Limits{Wall: 50 * time.Millisecond}
	c.Input = []byte(`{"do":"calls","calls":[{"name":"http","request":{"url":"https://api.example.com/slow"}}]}`)
	fails(t, m, c, abi.GuestTimeout)
}

func TestCassetteRefuses(t *testing.T) {
	exchange := func(request, response string) string {
		return fmt.Sprintf(`{"format":1,"exchanges":[{"request":%s,"response":%s}]}`, request, response)
	}
	const request, response = `{"url":"https://a.example/"}`, `{"status":200}`
	tests := []struct{ name, document, want string }{
		{"not JSON", `exchanges:`, "not JSON"},
		{"format", `{"format":2,"exchanges":[]}`, "format 2"},
		{"unknown member", exchange(request, `{"status":200,"body":"x"}`), "body"},
		{"null", `{"format":1,"exchanges":[null]}`, "exchanges[0]: is null"},
		{"URL", exchange(`{"url":"ftp://a.example/"}`, response), "scheme"},
		{"address", exchange(`{"url":"https://a.example/","address":"localhost"}`, response), "address"},
		{"digest", exchange(`{"url":"https://a.example/","body_sha256":"ABCD"}`, response), "body_sha256"},
		{"status", exchange(request, `{"status":0}`), "status 0"},
		{"delay", exchange(request, `{"status":200,"delay_ms":-1}`), "delay_ms -1"},
		{"two bodies", exchange(request, `{"status":200,"text":"a","json":1}`), "more than one"},
		{"base64", exchange(request, `{"status":200,"base64":"*"}`), "base64"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.json")
			if err := os.WriteFile(path, []byte(test.document), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenCassettes(path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := OpenCassettes(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: error %v", err)
	}
}
