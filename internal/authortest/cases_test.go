package authortest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// desk loads a module with tools that keep a state value, fail, trap, log, stream
// and ask the network.
func desk(t *testing.T) *host.Module {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &abi.Manifest{ABI: abi.Version, Name: "desk", Version: "1", Requests: []string{"state read,write user:*", "log", "emit", "http GET a.example/*", "kv write", "random"}}
	guests := map[string]hosttest.Guest{}
	for name, g := range map[string]hosttest.Guest{
		"hello":  {Says: hosttest.Result(hosttest.Text(`{"n":2.0,"say":"hello"}`))},
		"args":   {Says: hosttest.Result(hosttest.Text(`"none"`))},
		"fail":   {Says: []hosttest.Piece{hosttest.Text(`{"format":1,"fail":{"code":"no_place","message":"no place called Oslo"}}`)}},
		"trap":   {Ends: hosttest.Trap()},
		"stubs":  {Says: hosttest.Result(hosttest.Text("["), hosttest.Ask("state_set", `{"values":{"user:unit":"F"}}`), hosttest.Text("]")), Ends: hosttest.Trap()},
		"keep":   {Says: hosttest.Result(hosttest.Text("["), hosttest.Ask("state_set", `{"values":{"user:unit":"F"}}`), hosttest.Text("]"))},
		"count":  {Says: hosttest.Result(hosttest.Text("["), hosttest.Ask("kv_add", `{"key":"k","n":1,"most":10}`), hosttest.Text("]"))},
		"logs":   {Says: hosttest.Result(hosttest.Text("["), hosttest.Ask("log", `{"level":"info","message":"three days"}`), hosttest.Text("]"))},
		"fetch":  {Says: hosttest.Result(hosttest.Text("["), hosttest.Ask("http", `{"method":"GET","url":"https://a.example/x"}`, ""), hosttest.Text("]"))},
		"stream": {Says: hosttest.Result(hosttest.Text("["), hosttest.Ask("emit", `{"chunk":{"n":3}}`), hosttest.Text(``), hosttest.Text("]"))},
	} {
		tool := abi.Tool{Name: name, Export: name, Streaming: name == "stream"}
		m.Tools = append(m.Tools, tool)
		guests[name] = g
	}
	slices.SortFunc(m.Tools, func(a, b abi.Tool) int { return strings.Compare(a.Name, b.Name) })
	module, err := engine.Load(t.Context(), hosttest.Build(t, m, guests))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// ended runs cases and returns what went wrong, by name, twins with "twin " in front.
func ended(t *testing.T, module *host.Module, b Bench, cases string) map[string]string {
	t.Helper()
	c, err := ParseCases("t.test.yaml", []byte(cases))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	note := func(prefix string) func(Result) {
		return func(r Result) {
			var list []string
			for _, p := range r.Problems {
				list = append(list, fmt.Sprintf("%s want %s got %s", p.What, p.Want, p.Got))
			}
			if r.OK != (len(list) == 0) {
				t.Errorf("%s: OK %v with %q", r.Name, r.OK, list)
			}
			got[prefix+r.Name] = strings.Join(list, " | ")
		}
	}
	if err := c.Run(t.Context(), module, b, nil, note(""), note("twin ")); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestCases: each kind of want is met where it should be, and says what came
// instead where it should not.
func TestCases(t *testing.T) {
	module := desk(t)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("http.json", `{"format":1,"exchanges":[{"request":{"url":"https://a.example/x"},"response":{"status":200,"text":"ok"}}]}`)
	write("private.json", `{"format":1,"exchanges":[{"request":{"url":"https://a.example/x","address":"127.0.0.1"},"response":{"status":200,"text":"ok"}}]}`)
	write("good.json", `{"say": "hello", "n": 2.0}`)
	write("bad.json", `{}`)
	got := ended(t, module, Bench{Dir: dir, Missing: true}, `
format: 1
defaults: {grants: []}
cases:
  - {name: exact, tool: hello, want: {result: {say: hello, n: 2.0}, ran: true, usage: {fuel_max: 1000000, host_calls: 1}}}
  - {name: subset, tool: hello, want: {contains: {say: {$re: "^he"}, n: {$near: [2.2, 0.3]}}}}
  - {name: any, tool: hello, want: {contains: {say: {$any: true}}}}
  - {name: text, tool: args, want: {result: none}}
  - {name: snapshot, tool: hello, want: {snapshot: good.json}}
  - {name: fails, tool: fail, want: {fail: no_place, message: "^no place"}}
  - {name: traps, tool: trap, want: {error: guest_trap}}
  - {name: bad bytes, tool: hello, args_text: '{"a":1,"a":2}', want: {error: args_invalid, ran: false}}
  - {name: no such tool, tool: nobody, want: {error: tool_error, ran: false}}
  - {name: kept, tool: keep, grants: ["state write user:unit"], state: {"user:unit": C}, want: {state: {"user:unit": F, "session:x": null}}}
  - {name: not kept, tool: keep, state: {"user:unit": C}, want: {denied: ["state write user:unit"], state: {"user:unit": C}}}
  - {name: counted, tool: count, grants: [kv write], kv: {k: 4}, want: {kv: {k: 5}}}
  - {name: logged, tool: logs, grants: [log], want: {logs: ["^three"]}}
  - {name: streamed, tool: stream, grants: [emit], want: {chunks: [{n: 3}], result: '{"n":3}'}}
  - {name: fetched, tool: fetch, grants: ["http GET a.example/*"], http: http.json, want: {error: guest_output_invalid, ran: true}} # an answer is not JSON alone
  - {name: inside, tool: fetch, grants: ["http GET a.example/*"], http: private.json, want: {denied: ["egress_denied GET https://a.example/x"]}}
  - {name: nothing recorded, tool: fetch, grants: ["http GET a.example/*"], want: {denied: ["no_recorded_answer GET https://a.example/x"]}}
`)
	for name, text := range got {
		if name == "inside" { // its exchange is never sent
			if text != "http want every recorded exchange got not sent: GET https://a.example/x" {
				t.Errorf("%s: %s", name, text)
			}
			continue
		}
		if text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, twin := range []string{"twin kept", "twin counted", "twin logged", "twin fetched"} {
		if _, ok := got[twin]; !ok {
			t.Errorf("%s did not run", twin)
		}
	}
	got = ended(t, module, Bench{Dir: dir, Missing: true}, `
format: 1
cases:
  - {name: exact, tool: hello, want: {result: {say: hello, n: 2}}}
  - {name: subset, tool: hello, want: {contains: {say: {$re: "^x"}}}}
  - {name: near, tool: hello, want: {contains: {n: {$near: [3, 0.5]}}}}
  - {name: absent, tool: hello, want: {contains: {other: 1}}}
  - {name: snapshot, tool: hello, want: {snapshot: bad.json}}
  - {name: no snapshot, tool: hello, want: {snapshot: none.json}}
  - {name: fails, tool: fail, want: {fail: other}}
  - {name: did not fail, tool: hello, want: {fail: other}}
  - {name: message, tool: fail, want: {error: guest_error, message: "^x"}}
  - {name: traps, tool: trap, want: {}}
  - {name: did not trap, tool: hello, want: {error: guest_trap}}
  - {name: refused, tool: keep, want: {}}
  - {name: not refused, tool: hello, want: {denied: [log]}}
  - {name: ran, tool: hello, want: {ran: false}}
  - {name: state, tool: keep, grants: ["state write user:unit"], want: {state: {"user:unit": C}}}
  - {name: kv, tool: count, grants: [kv write], want: {kv: {k: 5}}}
  - {name: logs, tool: logs, grants: [log], want: {logs: ["^four"]}}
  - {name: chunks, tool: stream, grants: [emit], want: {chunks: [a, b]}}
  - {name: usage, tool: hello, want: {usage: {fuel_max: 1, peak_bytes_max: 1, host_calls: 2}}}
  - {name: not sent, tool: hello, http: http.json, want: {}}
  - {name: twin that traps, tool: stubs, grants: ["state write user:unit"], want: {error: guest_trap}}
`)
	for name, want := range map[string]string{
		"exact":                `result want {"n":2,"say":"hello"} got {"n":2.0,"say":"hello"}`,
		"subset":               `at /say want {"$re":"^x"} got "hello"`,
		"near":                 `at /n want {"$near":[3,0.5]} got 2.0`,
		"absent":               `at /other want 1 got nothing`,
		"snapshot":             `snapshot want {} got {"n":2.0,"say":"hello"}`,
		"fails":                `fail want other got no_place  "no place called Oslo"`,
		"did not fail":         `fail want other got ok  ""`,
		"message":              `message want ^x got no place called Oslo`,
		"refused":              `denied want none got state write user:unit`,
		"not refused":          `denied want log got none`,
		"ran":                  `ran want false got true`,
		"state":                `state user:unit want "C" got "F"`,
		"kv":                   `kv k want 5 got 1`,
		"logs":                 `logs want ^four got three days`,
		"chunks":               `chunks want ["a","b"] got {"n":3}`,
		"did not trap":         `error want guest_trap got {"n":2.0,"say":"hello"}`,
		"not sent":             `http want every recorded exchange got not sent: GET https://a.example/x`,
		"twin twin that traps": `without grants want a result or a failure of its own got guest_trap`,
	} {
		if !strings.HasPrefix(got[name], want) || strings.Contains(strings.TrimPrefix(got[name], "without grants"), " | ") && !strings.HasPrefix(name, "twin") {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	for name, parts := range map[string][]string{"no snapshot": {"no such file"}, "traps": {"result want any got guest_trap"}, "usage": {"fuel want at most 1", "peak bytes want", "host calls want 2 got 1"}} {
		for _, part := range parts {
			if !strings.Contains(got[name], part) {
				t.Errorf("%s: got %q, want %q", name, got[name], part)
			}
		}
	}
}

// TestSnapshots: a snapshot that is not there is written, one that is wrong only
// when that is asked for.
func TestSnapshots(t *testing.T) {
	module, dir := desk(t), t.TempDir()
	cases := "format: 1\ncases:\n  - {name: a, tool: hello, want: {snapshot: new/a.json}}\n"
	path := filepath.Join(dir, "new", "a.json")
	if got := ended(t, module, Bench{Dir: dir}, cases); got["a"] != "" {
		t.Fatal(got)
	}
	data, err := os.ReadFile(path)
	if err != nil || !json.Valid(data) || !strings.Contains(string(data), "\n  \"say\": \"hello\"\n") {
		t.Fatalf("%s, %v", data, err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ended(t, module, Bench{Dir: dir}, cases); got["a"] == "" {
		t.Error("a wrong snapshot passes")
	}
	if got := ended(t, module, Bench{Dir: dir, Update: true}, cases); got["a"] != "" {
		t.Error(got)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(data) {
		t.Errorf("%s, %v", again, err)
	}
}

// TestParseCases: every mistake of a file of tests is found, with its line.
func TestParseCases(t *testing.T) {
	for _, c := range []struct{ cases, want string }{
		{"cases: []", "t.test.yaml:1: format: want 1"},
		{"format: 1", "t.test.yaml:1: cases: want a list"},
		{"format: 1\ncases:\n- {tool: a, want: {}}", "t.test.yaml:3: cases[0]: name missing"},
		{"format: 1\ncases:\n- {name: a, want: {}}", `t.test.yaml:3: case "a": tool missing`},
		{"format: 1\ncases:\n- {name: a, tool: a}", `t.test.yaml:3: case "a": want missing`},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {resalt: 1}}", "resalt: unknown key"},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {error: nonsense}}", `"nonsense" is no code`},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {fail: x, error: guest_error}}", "exclude each other"},
		{"format: 1\ncases:\n- {name: a, tool: a, args: {}, args_text: x, want: {}}", "args and args_text exclude each other"},
		{"format: 1\ncases:\n- {name: a, tool: a, args: 1, want: {}}", "args: want an object"},
		{"format: 1\ncases:\n- {name: a, tool: a, grants: [nonsense], want: {}}", "grants: "},
		{"format: 1\ncases:\n- {name: a, tool: a, now: today, want: {}}", `now: "today" is not a time`},
		{"format: 1\ncases:\n- {name: a, tool: a, state: {unit: 1}, want: {}}", `key "unit": session:, user:`},
		{"format: 1\ncases:\n- {name: a, tool: a, limits: {feul: 1}, want: {}}", "limits: "},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {contains: {a: {$re: '('}}}}", "$re: want a regular expression"},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {contains: {a: {$near: [1]}}}}", "$near: want [NUMBER, DISTANCE]"},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {contains: {a: {$rex: x}}}}", "$rex: want one of $re, $near and $any"},
		{"format: 1\ncases:\n- {name: a, tool: a, want: {}}\n- {name: a, tool: a, want: {}}", `t.test.yaml:4: case "a": there are two`},
	} {
		if _, err := ParseCases("t.test.yaml", []byte(c.cases)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.cases, err, c.want)
		}
	}
}
