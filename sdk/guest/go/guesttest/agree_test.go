package guesttest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// everything is what the kit may be granted.
var everything = []string{"state read,write session:*", "state read,write user:*", "state read,write app:*", "state read,write temp:*", "artifact read,write *", "artifact read,write user:*",
	"kv read,write", "memory search", "emit", "log", "confirm", "transfer", "escalate", "skip-summary"}

// A call is one call of a table: a tool with its arguments, or a script.
type call struct {
	name  string
	tool  string // default script
	args  string // default the steps
	steps []string
	host  func() *guesttest.Host // default one that is granted everything but http
	keys  []string               // of kv, beside those of the host
}

func (c call) arguments() string {
	if c.args != "" {
		return c.args
	}
	return `{"steps":[` + strings.Join(c.steps, ",") + `]}`
}

func (c call) newHost() *guesttest.Host {
	if c.host == nil {
		return &guesttest.Host{Grants: everything}
	}
	return c.host()
}

// TestToolsAgree makes every call of the table on the fake host and on the real one,
// where the kit is a module, and compares all that can be known of it.
func TestToolsAgree(t *testing.T) {
	for _, c := range calls(t) {
		t.Run(c.name, func(t *testing.T) {
			tool := c.tool
			if tool == "" {
				tool = "script"
			}
			theirs := newReal(t, c.newHost())
			want := theirs.tool(t, tool, c.arguments())
			h := c.newHost()
			got := h.Tool(t, tool, c.arguments())
			if tool == "lines" && got.Code == abi.OK { // a model is shown them as one text
				got.Value = []byte(text(map[string]string{"result": strings.Join(got.Chunks, "")}))
			}
			agree(t, got, want)
			state, kv, artifacts := theirs.kept(t, keysOf(h, c.keys...))
			for what, pair := range map[string][2]map[string]string{"state": {shown(h.State), state}, "kv": {shown(h.KV), kv}, "artifacts": {shown(h.Artifacts), artifacts}} {
				if a, b := text(pair[0]), text(pair[1]); a != b {
					t.Errorf("%s: fake %.2000s\nreal %.2000s", what, a, b)
				}
			}
		})
	}
}

// TestHooksAgree lets the kit's hook loose on calls of a tool that shows its arguments.
func TestHooksAgree(t *testing.T) {
	some := []string{"state read,write session:*", "artifact read,write *", "kv read,write", "memory search", "log", "confirm", "skip-summary"}
	every := `{"do":"get","key":"session:a"},{"do":"set","key":"session:b","value":{"x":1.50}},{"do":"get","key":"session:b"},{"do":"artifacts"},{"do":"save","key":"a.txt","text":"new"},{"do":"artifact","key":"a.txt"},` +
		`{"do":"kv_set","key":"j","value":1},{"do":"kv_get","key":"j"},{"do":"memory","text":"x"},{"do":"log","text":"said"},{"do":"confirm","text":"Sure?"},{"do":"skip"},{"do":"transfer","text":"x"},{"do":"escalate"},` +
		`{"do":"http","key":"https://a.example.com/"},{"do":"who"},{"do":"random","n":8},{"do":"time"}`
	for _, c := range []struct {
		name, args string
		grants     []string
	}{
		{"no steps", `{"a":1.50}`, nil},
		{"every host call", `{"steps":[` + every + `]}`, some},
		{"no grants", `{"steps":[` + every + `]}`, nil},
		{"answers", `{"answer":true,"steps":[{"do":"say","text":"x"}]}`, nil},
		{"fails", `{"steps":[{"do":"error","text":"it broke"}]}`, nil},
		{"panics", `{"steps":[{"do":"panic","text":"it broke"}]}`, nil},
		{"reads what is no list", `{"steps":7}`, nil},
		{"output too large", `{"steps":[{"do":"say","text":"0123456789","repeat":104860}]}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			newHost := func() *guesttest.Host {
				return &guesttest.Host{Grants: c.grants, State: map[string]string{"session:a": "1"}}
			}
			theirs := newReal(t, newHost())
			want := theirs.beforeTool(t, c.args)
			h := newHost()
			got := h.Hook(t, abi.HookCall{Hook: abi.BeforeTool, Tool: "probe", Args: []byte(c.args)})
			if got.Code == abi.OK && got.Changed == nil && got.Value == nil {
				got.Changed = []byte(c.args)
			}
			if got.Value == nil {
				got.Value = got.Changed // what the tool shows
			}
			got.Changed, got.HostCalls, got.Used = nil, 0, nil // nobody is told
			if strings.HasPrefix(got.Message, "guest_trap") {
				want.Logs = nil
			}
			agree(t, got, want)
			state, kv, artifacts := theirs.kept(t, []string{"j"})
			if a, b := text([]any{shown(h.State), shown(h.KV), shown(h.Artifacts)}), text([]any{state, kv, artifacts}); a != b {
				t.Errorf("kept: fake %s\nreal %s", a, b)
			}
		})
	}
}

// agree compares two results. The real host's is what a model is shown.
func agree(t *testing.T, got, want guesttest.Result) {
	t.Helper()
	got.Detail = "" // a stack, or the operator's
	if strings.HasPrefix(want.Message, "panic in tool") {
		want.Logs = nil // of the stack, which a runtime prints
	}
	if v := string(got.Value); v != "" && v[0] != '{' {
		got.Value = []byte(`{"result":` + v + `}`)
	}
	one, other := members(got), members(want)
	for name := range one {
		if one[name] != other[name] {
			t.Errorf("%s: fake %.1500s\nreal %.1500s", name, one[name], other[name])
		}
	}
}

func asked(c *guest.Confirmation) string {
	if c == nil {
		return ""
	}
	return c.Hint + " " + cmp.Or(string(c.Payload), "null")
}

// members returns what a result says.
func members(r guesttest.Result) map[string]string {
	return map[string]string{"code": string(r.Code), "fail": r.Fail, "message": r.Message, "value": string(r.Value), "changed": string(r.Changed), "chunks": text(r.Chunks),
		"host calls": text(r.HostCalls), "used": text(r.Used), "denied": text(r.Denied), "logs": text(r.Logs), "asked": asked(r.Asked),
		"actions": text([]any{r.Transfer, r.Escalate, r.SkipSummary})}
}

func text(v any) string {
	data, err := abi.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// cassette writes a cassette and returns its name.
func cassette(t *testing.T, exchanges ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "cassette.json")
	if err := os.WriteFile(name, []byte(`{"format":1,"exchanges":[`+strings.Join(exchanges, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func calls(t *testing.T) []call {
	host := func(h guesttest.Host) func() *guesttest.Host {
		return func() *guesttest.Host {
			own := h
			own.State, own.KV, own.Artifacts = shown(h.State), shown(h.KV), shown(h.Artifacts)
			return &own
		}
	}
	long := strings.Repeat("k", 257)
	var all []call
	add := func(c ...call) { all = append(all, c...) }

	// Arguments, results and ways to end.
	for name, args := range map[string]string{
		"all": `{"place":"Oslo","days":2,"unit":"F","ratio":0.5,"tags":["a"],"say":"hi"}`, "defaults": `{"place":"Oslo"}`, "missing": `{}`, "empty": `{"place":""}`,
		"long": `{"place":"Oslo12345"}`, "eight": `{"place":"ööööööö8"}`, "pattern": `{"place":"oslo"}`, "below": `{"place":"O","days":0}`, "above": `{"place":"O","days":8}`,
		"fraction": `{"place":"O","days":1.5}`, "whole": `{"place":"O","days":3.0}`, "power": `{"place":"O","days":3e0}`, "huge": `{"place":"O","days":1e400}`, "enum": `{"place":"O","unit":"K"}`,
		"null": `{"place":"O","ratio":null}`, "small": `{"place":"O","ratio":0.4999}`, "many": `{"place":"O","tags":["a","b","c"]}`, "type": `{"place":7}`, "unknown": `{"place":"O","more":1}`,
		"twice": `{"place":"O","place":"P"}`, "escaped twice": `{"place":"O","pl\u0061ce":"P"}`, "no JSON": `{place:"O"}`, "list": `[]`, "text": `"O"`, "nothing": ``, "after": `{"place":"O"} x`,
		"surrogate": `{"place":"O\ud800"}`, "not UTF-8": "{\"place\":\"O\xff\"}", "NaN": `{"place":"O","ratio":NaN}`, "result too long": `{"place":"O","say":"123456"}`,
	} {
		add(call{name: "args/" + name, tool: "typed", args: args})
	}
	for _, deep := range []int{61, 62, 63, 64, 65, 79, 80, 100} {
		add(call{name: fmt.Sprintf("args/deep %d", deep), tool: "echo", args: `{"value":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}`})
	}
	for name, v := range map[string]string{"number": `1.50`, "big": `12345678901234567890123`, "text": `"<ä>\u2028"`, "null": `null`, "list": `[1,{"b":1,"a":2}]`, "object": `{"b":1E5,"a":-0}`} {
		add(call{name: "echo/" + name, tool: "echo", args: `{"value":` + v + `}`})
	}
	add(
		call{name: "echo nothing", tool: "echo", args: `{}`},
		call{name: "fail", steps: []string{`{"do":"fail","key":"no_place","text":"no place"}`}},
		call{name: "fail with another code", steps: []string{`{"do":"fail","key":"No Place","text":"no place"}`}},
		call{name: "fail without a text", steps: []string{`{"do":"fail","key":"no_place"}`}},
		call{name: "error", steps: []string{`{"do":"error","text":"it broke"}`}},
		call{name: "panic", steps: []string{`{"do":"panic","text":"it broke"}`}},
		call{name: "panic after writing", steps: []string{`{"do":"set","key":"session:a","value":1}`, `{"do":"kv_set","key":"a","value":1}`, `{"do":"save","key":"a.txt","text":"a"}`, `{"do":"skip"}`, `{"do":"panic","text":"x"}`}},
		call{name: "error after writing", steps: []string{`{"do":"set","key":"session:a","value":1}`, `{"do":"kv_set","key":"a","value":1}`, `{"do":"save","key":"a.txt","text":"a"}`, `{"do":"escalate"}`, `{"do":"error","text":"x"}`}},
		call{name: "output too large", steps: []string{`{"do":"say","text":"0123456789","repeat":104860}`}},
		call{name: "output that fits", steps: []string{`{"do":"say","text":"0123456789","repeat":104000}`}},
		call{name: "output limit of the host", steps: []string{`{"do":"say","text":"0123456789","repeat":20}`}, host: host(guesttest.Host{Limits: guest.Limits{OutputBytes: 100}})},
		call{name: "host calls", steps: []string{`{"do":"get","key":"session:a","times":1001}`}},
		call{name: "a thousand host calls", steps: []string{`{"do":"get","key":"session:a","times":1000}`}},
		call{name: "host calls of the host", steps: []string{`{"do":"get","key":"session:a","times":4}`}, host: host(guesttest.Host{Grants: everything, Limits: guest.Limits{HostCalls: 3}})},
		call{name: "host calls that are refused count", steps: []string{`{"do":"get","key":"session:a","times":4}`}, host: host(guesttest.Host{Limits: guest.Limits{HostCalls: 3}})},
		call{name: "the end cannot be recovered", steps: []string{`{"do":"recover","key":"session:a"}`, `{"do":"set","key":"session:b","value":1}`}},
		call{name: "a host call in a goroutine", steps: []string{`{"do":"apart","key":"session:a"}`}, host: host(guesttest.Host{Grants: everything, State: map[string]string{"session:a": "7"}})},
		call{name: "who", steps: []string{`{"do":"who"}`}, host: host(guesttest.Host{Config: map[string]string{"unit": "C"}})},
		call{name: "time", steps: []string{`{"do":"time"}`, `{"do":"time"}`}},
		call{name: "another time", steps: []string{`{"do":"time"}`}, host: host(guesttest.Host{Now: time.Date(2024, 2, 29, 23, 59, 59, 1_999_999, time.UTC)})},
		call{name: "random", steps: []string{`{"do":"random","n":16}`, `{"do":"random","n":3}`, `{"do":"random","n":16}`}},
		call{name: "random of another seed", steps: []string{`{"do":"random","n":16}`}, host: host(guesttest.Host{Seed: 7})},
		call{name: "much randomness", steps: []string{`{"do":"random","n":1048576}`}},
		call{name: "too much randomness", steps: []string{`{"do":"random","n":1048576}`, `{"do":"random","n":1}`}},
		call{name: "nobody was asked", tool: "pay", args: `{}`},
		call{name: "nobody is asked what is no call", tool: "pay", args: `{"x":1}`},
		call{name: "job", tool: "job", args: `{"steps":[{"do":"","text":"t-1"}]}`},
		call{name: "job without a ticket", tool: "job", args: `{"steps":[]}`},
		call{name: "job with a long ticket", tool: "job", args: `{"steps":[{"do":"","text":"123456"}]}`},
	)

	// State, artifacts, kv, memory: granted, refused, and past their bounds.
	every := []string{`{"do":"get","key":"session:a"}`, `{"do":"get","key":"user:none"}`, `{"do":"set","key":"session:b","value":{"x":1.50}}`, `{"do":"get","key":"session:b"}`, `{"do":"set","key":"temp:t","text":"x"}`,
		`{"do":"get","key":"temp:t"}`, `{"do":"set","key":"app:n","value":null}`, `{"do":"get","key":"app:n"}`,
		`{"do":"artifacts"}`, `{"do":"artifact","key":"a.txt"}`, `{"do":"artifact","key":"none.txt"}`, `{"do":"save","key":"a.txt","text":"new","header":{"type":"text/plain"}}`, `{"do":"artifact","key":"a.txt"}`,
		`{"do":"save","key":"user:b.bin","text":"\u0000","repeat":70000,"header":{"type":"application/octet-stream"}}`, `{"do":"artifact","key":"user:b.bin"}`, `{"do":"artifacts"}`,
		`{"do":"kv_get","key":"k"}`, `{"do":"kv_set","key":"j","value":[1.50],"ttl":1000}`, `{"do":"kv_get","key":"j"}`, `{"do":"kv_delete","key":"k"}`, `{"do":"kv_get","key":"k"}`,
		`{"do":"kv_add","key":"c","n":2,"most":3,"ttl":60000}`, `{"do":"kv_add","key":"c","n":2,"most":3}`, `{"do":"kv_add","key":"c","n":-5,"most":3}`, `{"do":"kv_add","key":"j","n":1,"most":3}`,
		`{"do":"memory","text":"INV-7"}`, `{"do":"log","text":"said"}`, `{"do":"log","key":"warn","text":"a\u202eb\nc"}`, `{"do":"log","key":"loud","text":"x"}`,
		`{"do":"confirm","text":"Sure?","value":{"n":1.50}}`, `{"do":"transfer","text":"billing"}`, `{"do":"transfer"}`, `{"do":"escalate"}`, `{"do":"skip"}`}
	kept := guesttest.Host{State: map[string]string{"session:a": `{"n": 1.50}`}, KV: map[string]string{"k": `{"a":[1]}`}, Artifacts: map[string]string{"a.txt": "größer", "logs/b.txt": ""},
		Memory: func(q string) []guest.MemoryEntry { return []guest.MemoryEntry{{Author: "user", Text: "about " + q}} }}
	granted := kept
	granted.Grants = everything
	add(call{name: "every host call", steps: every, host: host(granted), keys: []string{"j", "c"}},
		call{name: "no grants", steps: every, host: host(kept), keys: []string{"j", "c"}})
	for _, grant := range everything {
		one := kept
		one.Grants = []string{grant}
		add(call{name: "only " + grant, steps: every, host: host(one), keys: []string{"j", "c"}})
	}
	for _, key := range []string{"", "a", "session:", "session:user:a", "user:", "other:a", "session:" + long, "session:a\nb", "session:a\u202eb", "session:*", "session:a b", "app:" + long[:252], "app:" + long[:253]} {
		k := text(key)
		add(call{name: "state key " + k, steps: []string{`{"do":"set","key":` + k + `,"value":1}`, `{"do":"get","key":` + k + `}`}})
	}
	for _, key := range []string{"", "a", "user:", "user:a", "a/b", "a//b", "/a", "a/", "..", "a/../b", ".", "a\\b", "a:b", "session:a", "a\u0001b", "a\u202eb", "*", long[:256], long} {
		k := text(key)
		add(call{name: "artifact " + k, steps: []string{`{"do":"save","key":` + k + `,"text":"x"}`, `{"do":"artifact","key":` + k + `}`}},
			call{name: "kv key " + k, steps: []string{`{"do":"kv_set","key":` + k + `,"value":1}`, `{"do":"kv_get","key":` + k + `}`, `{"do":"kv_add","key":` + k + `,"n":1,"most":9}`}, keys: []string{key}})
	}
	add(
		call{name: "a state value", steps: []string{`{"do":"set","key":"session:a","text":"x","repeat":262142}`, `{"do":"get","key":"session:a"}`}},
		call{name: "a state value that is too long", steps: []string{`{"do":"set","key":"session:a","text":"x","repeat":262143}`}},
		call{name: "a kv value", steps: []string{`{"do":"kv_set","key":"a","text":"x","repeat":65534}`}, keys: []string{"a"}},
		call{name: "a kv value that is too long", steps: []string{`{"do":"kv_set","key":"a","text":"x","repeat":65535}`}, keys: []string{"a"}},
		call{name: "a request that is too long", steps: []string{`{"do":"set","key":"session:a","text":"x","repeat":1048577}`}},
		call{name: "a query", steps: []string{`{"do":"memory","text":"x","repeat":4096}`, `{"do":"memory","text":"x","repeat":4097}`}},
		call{name: "a MIME type that is too long", steps: []string{`{"do":"save","key":"a","text":"x","header":{"type":"` + long + `"}}`}},
		call{name: "no memory", steps: []string{`{"do":"memory","text":"x"}`}},
		call{name: "ttl", steps: []string{`{"do":"kv_set","key":"a","value":1,"ttl":-1}`, `{"do":"kv_set","key":"a","value":1,"ttl":31622400001}`, `{"do":"kv_set","key":"a","value":1,"ttl":31622400000}`}, keys: []string{"a"}},
		call{name: "counts", steps: []string{`{"do":"kv_add","key":"a","n":9007199254740992,"most":1}`, `{"do":"kv_add","key":"a","n":1,"most":-1}`, `{"do":"kv_add","key":"a","n":9007199254740991,"most":9007199254740991}`,
			`{"do":"kv_add","key":"a","n":1,"most":9007199254740991}`, `{"do":"kv_add","key":"a","n":-9007199254740991,"most":0}`}, keys: []string{"a"}},
		call{name: "stored bytes", steps: []string{`{"do":"save","key":"a","text":"0123456789","repeat":1675000}`, `{"do":"save","key":"b","text":"0123456789","repeat":2800}`,
			`{"do":"set","key":"session:a","value":1}`, `{"do":"kv_set","key":"k","text":"x","repeat":3000}`, `{"do":"kv_add","key":"c","n":1,"most":9}`}, keys: []string{"k", "c"}},
		call{name: "log bytes", steps: []string{`{"do":"log","text":"0123456789","repeat":600,"times":12}`}},
		call{name: "a long line", steps: []string{`{"do":"log","text":"0123456789","repeat":7000}`}},
		call{name: "lines", tool: "lines", args: `{"steps":[{"do":"","text":"ä\n"},{"do":"","value":{"b":1,"a":1.50}},{"do":"","value":null}]}`},
		call{name: "no lines", tool: "lines", args: `{"steps":[]}`},
		call{name: "lines without a grant", tool: "lines", args: `{"steps":[{"do":"","text":"a"}]}`, host: host(guesttest.Host{})},
		call{name: "too many lines", tool: "lines", args: `{"steps":[{"do":"","text":"a","times":1001}]}`},
	)

	// Requests.
	const oslo = `{"request":{"url":"https://api.example.com/v1?q=Oslo"},"response":{"status":200,"headers":{"content-type":"application/json","x-a":"1"},"json":{"ok":true}}}`
	get := func(url string) []string { return []string{`{"do":"http","key":"` + url + `"}`} }
	web := []string{"http GET,POST **", "log"}
	secret := map[string]string{"TOKEN": "s3cr3t-value"}
	http1 := func(name, url string, grants []string, exchanges ...string) {
		file := ""
		if len(exchanges) > 0 {
			file = cassette(t, exchanges...)
		}
		add(call{name: "http/" + name, steps: get(url), host: host(guesttest.Host{Grants: grants, Cassette: file})})
	}
	exchange := func(url, address, response string) string {
		return fmt.Sprintf(`{"request":{"url":%q,"address":%q},"response":%s}`, url, address, response)
	}
	http1("recorded", "https://api.example.com/v1?q=Oslo", web, oslo)
	http1("another query", "https://api.example.com/v1?q=Bergen", web)
	http1("no grant", "https://api.example.com/v1?q=Oslo", nil)
	http1("plain", "http://api.example.com/", web)
	http1("granted plain", "http://api.example.com/", []string{"http GET http://**"}, exchange("http://api.example.com/", "93.184.216.34", `{"status":204}`))
	for i, url := range []string{"ftp://a.example.com/", "https://u:p@a.example.com/", "https:///x", "https://127.0.0.1/", "https://127.1/", "https://0x7f.1/", "https://[::1]/", "https://localhost/", "https://169.254.169.254/latest", "https://metadata.google.internal/",
		"https://a.example.com:0/", "https://a.example.com:443/", "https://a.example.com:8443/", "https://a.example.com/a/../b", "https://a.example.com/%2e%2e/b", "https://A.EXAMPLE.com./x#y", "https://a_b.example.com", "https://ä.example.com/", "not a url", "",
		"https://" + strings.Repeat("a", 64) + ".example.com/", "https://a.example.com/" + strings.Repeat("x", 8200)} {
		http1(fmt.Sprintf("url %d", i), url, web)
	}
	for _, address := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "::1", "100.64.0.1", "0.0.0.0"} {
		// Nothing answers, so nothing is played.
		ask := call{name: "http/at " + address, steps: get("https://api.example.com/"), host: host(guesttest.Host{Grants: web, HTTP: nothing})}
		ask.steps = get("https://" + strings.TrimSuffix(strings.TrimPrefix("["+address+"]", strings.Repeat("[", b2i(!strings.Contains(address, ":")))), strings.Repeat("]", b2i(!strings.Contains(address, ":")))) + "/")
		add(ask)
	}
	add(call{name: "http/private without a grant", steps: append(get("https://127.0.0.1/"), get("https://10.0.0.1/")...), host: host(guesttest.Host{Grants: []string{"http GET private 127.0.0.1"}, HTTP: answer(200, nil, "home")})})
	redirect := func(status int, to string) string {
		return fmt.Sprintf(`{"status":%d,"headers":{"location":%q}}`, status, to)
	}
	http1("redirect", "https://a.example.com/1", web, exchange("https://a.example.com/1", "93.184.216.34", redirect(302, "/2")), exchange("https://a.example.com/2", "93.184.216.34", `{"status":200,"text":"two"}`))
	http1("redirect elsewhere", "https://a.example.com/1", []string{"http GET a.example.com"}, exchange("https://a.example.com/1", "93.184.216.34", redirect(307, "https://evil.example.com/")))
	http1("redirect to a private name", "https://a.example.com/1", web, exchange("https://a.example.com/1", "93.184.216.34", redirect(301, "https://localhost/")))
	http1("redirect to no URL", "https://a.example.com/1", web, exchange("https://a.example.com/1", "93.184.216.34", redirect(301, "ftp://a.example.com/")))
	http1("redirects without end", "https://a.example.com/1", web, exchange("https://a.example.com/1", "93.184.216.34", redirect(302, "/1")))
	add(
		call{name: "http/post", steps: []string{`{"do":"http","key":"https://a.example.com/","header":{"method":"post","Content-Type":"text/plain"},"text":"body"}`}, host: host(guesttest.Host{Grants: web, HTTP: echoes})},
		call{name: "http/method", steps: []string{`{"do":"http","key":"https://a.example.com/","header":{"method":"DELETE"}}`, `{"do":"http","key":"https://a.example.com/","header":{"method":"CONNECT"}}`, `{"do":"http","key":"https://a.example.com/","header":{"method":"G T"}}`}, host: host(guesttest.Host{Grants: web, HTTP: echoes})},
		call{name: "http/headers", steps: []string{`{"do":"http","key":"https://a.example.com/","header":{"Host":"x"}}`, `{"do":"http","key":"https://a.example.com/","header":{"Proxy-X":"x"}}`, `{"do":"http","key":"https://a.example.com/","header":{"a b":"x"}}`,
			`{"do":"http","key":"https://a.example.com/","header":{"A":"x\ny"}}`, `{"do":"http","key":"https://a.example.com/","header":{"A":"1","a":"2"}}`, `{"do":"http","key":"https://a.example.com/","header":{"A":"` + strings.Repeat("x", 16384) + `"}}`,
			`{"do":"http","key":"https://a.example.com/","header":{"User-Agent":"me","X-A":"1"}}`}, host: host(guesttest.Host{Grants: web, HTTP: echoes})},
		call{name: "http/fails", steps: get("https://a.example.com/"), host: host(guesttest.Host{Grants: web, HTTP: func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }})},
		call{name: "http/no answer", steps: get("https://a.example.com/"), host: host(guesttest.Host{Grants: web, HTTP: nothing})},
		call{name: "http/eleven requests", steps: []string{`{"do":"http","key":"https://a.example.com/","times":11}`}, host: host(guesttest.Host{Grants: web, HTTP: answer(200, nil, "x")})},
		call{name: "http/long body", steps: []string{`{"do":"http","key":"https://a.example.com/","header":{"method":"POST"},"text":"0123456789","repeat":209716}`}, host: host(guesttest.Host{Grants: web, HTTP: echoes})},
		call{name: "http/long answer", steps: get("https://a.example.com/"), host: host(guesttest.Host{Grants: web, HTTP: answer(200, nil, strings.Repeat("x", 2<<20+1))})},
		call{name: "http/answer that fits", steps: get("https://a.example.com/"), host: host(guesttest.Host{Grants: web, HTTP: answer(200, nil, strings.Repeat("x", 2<<20))})},
		call{name: "http/limit of the host", steps: get("https://a.example.com/"), host: host(guesttest.Host{Grants: web, Limits: guest.Limits{HTTPBytes: 3}, HTTP: answer(200, nil, "four")})},
		call{name: "http/both in one", steps: get("https://a.example.com/"), host: host(guesttest.Host{Grants: web, HTTP: answer(404, map[string]string{"X-B": "2"}, "no")})},
	)
	use := func(name, header string) string {
		return `{"do":"http","key":"https://pay.example.com/","use":[{"secret":"` + name + `","header":"` + header + `","prefix":"Bearer "}]}`
	}
	pay := append([]string{"secret use TOKEN at pay.example.com"}, web...)
	add(
		call{name: "secret/used", steps: []string{use("TOKEN", "Authorization")}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: echoes})},
		call{name: "secret/not granted", steps: []string{use("TOKEN", "Authorization")}, host: host(guesttest.Host{Grants: web, Secrets: secret, HTTP: echoes})},
		call{name: "secret/not there", steps: []string{use("OTHER", "Authorization")}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: echoes})},
		call{name: "secret/elsewhere", steps: []string{strings.Replace(use("TOKEN", "Authorization"), "pay.", "evil.", 1)}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: echoes})},
		call{name: "secret/headers", steps: []string{use("TOKEN", "Host"), use("TOKEN", "a b"), use("TOKEN", "Range"), strings.Replace(use("TOKEN", "X-A"), `"use"`, `"header":{"X-A":"1"},"use"`, 1)}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: echoes})},
		call{name: "secret/encoding asked for", steps: []string{`{"do":"http","key":"https://a.example.com/","header":{"Accept-Encoding":"gzip"}}`}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: echoes})},
		call{name: "secret/echoed", steps: []string{`{"do":"http","key":"https://a.example.com/"}`, `{"do":"log","text":"s3cr3t-value"}`}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: answer(200, map[string]string{"X-S3cr3t-Value": "a s3cr3t-value"}, "c3NzM2NyM3QtdmFsdWU= s3cr3t-value czNjcjN0LXZhbHVl")})},
		call{name: "secret/redirect", steps: []string{use("TOKEN", "Authorization")}, host: host(guesttest.Host{Grants: pay, Secrets: secret, HTTP: moves})},
	)
	return all
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func nothing(*http.Request) (*http.Response, error) { return nil, nil }

func answer(status int, header map[string]string, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for name, value := range header {
			h.Set(name, value)
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// echoes answers with the request.
func echoes(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal([]any{r.Method, r.URL.String(), r.Header, string(body)})
	if err != nil {
		return nil, err
	}
	return answer(200, nil, string(data))(r)
}

// moves sends to another origin, and echoes there.
func moves(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "pay.example.com" {
		return answer(307, map[string]string{"Location": "https://www.example.com/"}, "")(r)
	}
	return echoes(r)
}
