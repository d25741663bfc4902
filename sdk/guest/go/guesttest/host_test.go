package guesttest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// run runs a script, which must succeed, and returns its results as JSON.
func run(t *testing.T, h *guesttest.Host, steps ...string) string {
	t.Helper()
	got := h.Tool(t, "script", call{steps: steps}.arguments())
	if got.Code != abi.OK {
		t.Fatalf("%s: %s", got.Code, got.Message)
	}
	return string(got.Value)
}

func TestHostKeeps(t *testing.T) {
	h := &guesttest.Host{Grants: everything, Artifacts: map[string]string{"a": "one"}, KV: map[string]string{"k": "1", "j": "1"}}
	run(t, h, `{"do":"set","key":"user:a","value":{"b":1,"a":1.50}}`, `{"do":"save","key":"a","text":"two"}`, `{"do":"kv_set","key":"m","value":2,"ttl":60000}`, `{"do":"kv_add","key":"n","n":1,"most":9}`, `{"do":"kv_delete","key":"j"}`)
	if got, want := text([]any{h.State, h.Artifacts, h.KV}), `[{"user:a":"{\"a\":1.50,\"b\":1}"},{"a":"two"},{"k":"1","m":"2","n":"1"}]`; got != want {
		t.Errorf("after the first call: got %s, want %s", got, want)
	}
	// The test changes what is kept, and time goes on.
	h.State["user:a"], h.KV["k"], h.Artifacts["a"] = "3", "4", "three"
	delete(h.KV, "n")
	h.Now = time.Date(2026, 1, 1, 12, 0, 59, 0, time.UTC)
	read := []string{`{"do":"get","key":"user:a"}`, `{"do":"artifact","key":"a"}`, `{"do":"kv_get","key":"k"}`, `{"do":"kv_get","key":"m"}`, `{"do":"kv_get","key":"n"}`}
	if got, want := run(t, h, read...), `[3,[5,"three"],4,2,null]`; got != want {
		t.Errorf("the second call: got %s, want %s", got, want)
	}
	h.Now = h.Now.Add(time.Second)
	if got, want := run(t, h, `{"do":"kv_get","key":"m"}`, `{"do":"save","key":"a","text":"four"}`), `[null,4]`; got != want || text(h.KV) != `{"k":"4"}` {
		t.Errorf("when m has ended: got %s, want %s; kv %s", got, want, text(h.KV))
	}
}

func TestApproval(t *testing.T) {
	h := &guesttest.Host{}
	for _, c := range []struct {
		answer *guest.Confirmation
		code   abi.Code
		value  string
	}{
		{nil, abi.ConfirmationPending, ""},
		{&guest.Confirmation{Hint: "no", Confirmed: false}, abi.ConfirmationRejected, ""},
		{&guest.Confirmation{Hint: "ok", Confirmed: true}, abi.OK, `{"confirmed":true,"hint":"ok"}`},
	} {
		h.Confirmation = c.answer
		if got := h.Tool(t, "pay", `{}`); got.Code != c.code || string(got.Value) != c.value {
			t.Errorf("answer %+v: got %s %s, want %s %s", c.answer, got.Code, got.Value, c.code, c.value)
		}
	}
}

// TestTime waits longer than a call may, in no time.
func TestTime(t *testing.T) {
	h := &guesttest.Host{Grants: everything, Now: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)}
	if got, want := run(t, h, `{"do":"time"}`, `{"do":"wait","ttl":4000}`, `{"do":"time"}`), `["2031-05-06T07:08:09Z",null,"2031-05-06T07:08:13Z"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for name, steps := range map[string][]string{
		"then asks":    {`{"do":"wait","ttl":5000}`, `{"do":"get","key":"session:a"}`},
		"then answers": {`{"do":"wait","ttl":5000}`},
	} {
		if got := h.Tool(t, "script", call{steps: steps}.arguments()); got.Code != abi.GuestTimeout || !strings.Contains(got.Detail, "limit 5s") {
			t.Errorf("waits and %s: got %s: %s", name, got.Code, got.Detail)
		}
	}
	h.Cassette = cassette(t, `{"request":{"url":"https://a.example.com/"},"response":{"status":200,"delay_ms":6000}}`)
	h.Grants = []string{"http GET a.example.com"}
	if got := h.Tool(t, "script", call{steps: []string{`{"do":"http","key":"https://a.example.com/"}`}}.arguments()); got.Code != abi.GuestTimeout {
		t.Errorf("an answer that comes late: got %s: %s", got.Code, got.Message)
	}
}

// TestHooks calls the hooks that the table of hooks does not.
func TestHooks(t *testing.T) {
	h := &guesttest.Host{Grants: []string{"state read,write session:*"}}
	for _, c := range []struct {
		name string
		in   abi.HookCall
		want guesttest.Result
	}{
		{"after a tool", abi.HookCall{Hook: abi.AfterTool, Tool: "pay", Result: []byte(`{"b":1.50}`)}, guesttest.Result{Code: abi.OK, Changed: []byte(`{"b":1.50,"seen":"pay"}`)}},
		{"after a quiet tool", abi.HookCall{Hook: abi.AfterTool, Result: []byte(`{"quiet":true}`)}, guesttest.Result{Code: abi.OK}},
		{"a message, where nothing can be written", abi.HookCall{Hook: abi.OnUserMessage, Content: []byte(`{"role":"user","parts":[{"text":"hi"}]}`)},
			guesttest.Result{Code: abi.ToolError, Message: "state_set: storage_unavailable: state_set: " + abi.StorageUnavailable.Sentence()}},
		{"an empty message", abi.HookCall{Hook: abi.OnUserMessage, Content: []byte(`{"role":"user"}`)}, guesttest.Result{Code: abi.OK}},
		{"after a run", abi.HookCall{Hook: abi.AfterRun}, guesttest.Result{Code: abi.ToolError, Message: "over"}},
	} {
		got := h.Hook(t, c.in)
		if got.Code != c.want.Code || got.Message != c.want.Message || string(got.Changed) != string(c.want.Changed) || got.Value != nil {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
