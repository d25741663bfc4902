package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// asks is a guest that makes one host call and shows its reply, in a list since
// some replies are empty.
func asks(function, request string, body ...string) hosttest.Guest {
	return hosttest.Guest{Says: hosttest.Result(hosttest.Text("["), hosttest.Ask(function, request, body...), hosttest.Text("]"))}
}

// Host calls do what the grants of the call say, and nothing else; a refusal is a
// value to the guest, an audit record, and has no effect.
func TestHostCalls(t *testing.T) {
	denied := func(need string) string { return `{"code":"capability_denied","message":"needs ` + need + `"}` }
	for _, c := range []struct {
		name   string
		grants []string
		guest  hosttest.Guest
		want   string // the reply: JSON, or a part of it if it begins with "…"
		state  string
		denied string // the need that is recorded
	}{
		{"reads state", []string{"state read session:*"}, asks("state_get", `{"key":"session:known"}`), `{"found":true,"value":1.0}`, `{"known":1.0}`, ""},
		{"reads no state", []string{"state read session:*"}, asks("state_get", `{"key":"session:unknown"}`), `{"found":false}`, `{"known":1.0}`, ""},
		{"writes state", []string{"state write session:a.*"}, asks("state_set", `{"values":{"session:a.b":1E2}}`), "", `{"a.b":1E2,"known":1.0}`, ""},
		{"writes the app's state", []string{"state write app:*"}, asks("state_set", `{"values":{"app:x":1}}`), "", `{"app:x":1,"known":1.0}`, ""},
		{"reads state and may write", []string{"state write session:*"}, asks("state_get", `{"key":"session:known"}`), denied("state read session:known"), `{"known":1.0}`, "state read session:known"},
		{"writes state and may read", []string{"state read session:*"}, asks("state_set", `{"values":{"session:a":1}}`), denied("state write session:a"), `{"known":1.0}`, "state write session:a"},
		{"writes another key", []string{"state write session:a"}, asks("state_set", `{"values":{"session:a":1,"session:b":2}}`), denied("state write session:b"), `{"known":1.0}`, "state write session:b"},
		{"climbs to the app", []string{"state write session:*"}, asks("state_set", `{"values":{"app:x":1}}`), denied("state write app:x"), `{"known":1.0}`, "state write app:x"},
		{"climbs to the app through the session", []string{"state read,write session:*"}, asks("state_set", `{"values":{"session:app:x":1}}`), denied("state write session:app:x"), `{"known":1.0}`, "state write session:app:x"},
		{"climbs to the user through the session", []string{"state read,write session:*"}, asks("state_set", `{"values":{"session:ok":1,"session:user:role":"admin"}}`), denied("state write session:user:role"), `{"known":1.0}`, "state write session:user:role"},
		{"climbs to temp through the session", []string{"state read,write session:*"}, asks("state_set", `{"values":{"session:temp:x":1}}`), denied("state write session:temp:x"), `{"known":1.0}`, "state write session:temp:x"},
		{"reads the app through the session", []string{"state read,write session:*"}, asks("state_get", `{"key":"session:app:x"}`), denied("state read session:app:x"), `{"known":1.0}`, "state read session:app:x"},
		{"writes a key without scope", []string{"state read,write session:*"}, asks("state_set", `{"values":{"known":2}}`), denied("state write known"), `{"known":1.0}`, "state write known"},
		{"writes a key with a scope that is none", []string{"state read,write session:*"}, asks("state_set", `{"values":{"App:x":2}}`), denied("state write App:x"), `{"known":1.0}`, "state write App:x"},
		{"writes an empty key", []string{"state read,write session:*"}, asks("state_set", `{"values":{"session:":2}}`), denied("state write session:"), `{"known":1.0}`, "state write session:"},
		{"writes a hidden key", []string{"state read,write session:*"}, asks("state_set", `{"values":{"session:a\u0000":2}}`), "…code", `{"known":1.0}`, "?"},
		{"saves an artifact", []string{"artifact write *.txt"}, asks("artifact_save", `{"name":"a.txt"}`, `"body"`), `{"version":1}`, `{"known":1.0}`, ""},
		{"reads an artifact", []string{"artifact read *.json"}, asks("artifact_read", `{"name":"there.json"}`), `{"there":1.0}`, `{"known":1.0}`, ""},
		{"reads no artifact", []string{"artifact read *"}, asks("artifact_read", `{"name":"gone.json"}`), "…not_found", `{"known":1.0}`, ""},
		{"reads an artifact and may write", []string{"artifact write *"}, asks("artifact_read", `{"name":"there.json"}`), denied("artifact read there.json"), `{"known":1.0}`, "artifact read there.json"},
		{"saves another artifact", []string{"artifact write *.txt"}, asks("artifact_save", `{"name":"a.exe"}`, "x"), denied("artifact write a.exe"), `{"known":1.0}`, "artifact write a.exe"},
		{"saves above", []string{"artifact write *"}, asks("artifact_save", `{"name":"../a"}`, "x"), denied("artifact write ../a"), `{"known":1.0}`, "artifact write ../a"},
		{"saves with a scope that is none", []string{"artifact write *"}, asks("artifact_save", `{"name":"app:a"}`, "x"), denied("artifact write app:a"), `{"known":1.0}`, "artifact write app:a"},
		{"lists what it may read", []string{"artifact read *.csv"}, asks("artifact_list", `{}`), `{"names":[]}`, `{"known":1.0}`, ""},
		{"lists", []string{"artifact read *.json"}, asks("artifact_list", `{}`), `{"names":["there.json"]}`, `{"known":1.0}`, ""},
		{"sends a request", nil, asks("http", `{"url":"https://api.example.com/v1"}`, ""), denied("http GET api.example.com/v1"), `{"known":1.0}`, "http GET api.example.com/v1"},
		{"keeps a value", []string{"kv read,write"}, asks("kv_set", `{"key":"a","value":1}`), "", `{"known":1.0}`, ""},
		{"counts", []string{"kv write"}, asks("kv_add", `{"key":"a","n":2,"most":2}`), `{"added":true,"count":2}`, `{"known":1.0}`, ""},
		{"counts and may read", []string{"kv read"}, asks("kv_add", `{"key":"a","n":2,"most":2}`), denied("kv write"), `{"known":1.0}`, "kv write"},
		{"reads kv and may write", []string{"kv write"}, asks("kv_get", `{"key":"a"}`), denied("kv read"), `{"known":1.0}`, "kv read"},
		{"deletes and may read", []string{"kv read"}, asks("kv_delete", `{"key":"a"}`), denied("kv write"), `{"known":1.0}`, "kv write"},
		{"searches memory", []string{"memory search"}, asks("memory_search", `{"query":"OSLO"}`), `{"entries":[{"author":"user","text":"snow in Oslo","time":"2026-03-01T09:00:00Z"}]}`, `{"known":1.0}`, ""},
		{"finds nothing", []string{"memory search"}, asks("memory_search", `{"query":"Rome"}`), `{"entries":[]}`, `{"known":1.0}`, ""},
		{"searches memory and may not", []string{"state read session:*"}, asks("memory_search", `{"query":"oslo"}`), denied("memory search"), `{"known":1.0}`, "memory search"},
		{"names a secret", []string{"http GET api.example.com/*"}, asks("http", `{"url":"https://api.example.com/v1","secrets":[{"secret":"KEY","header":"x"}]}`, ""),
			denied("secret use KEY at api.example.com"), `{"known":1.0}`, "secret use KEY at api.example.com"},
		{"emits without a stream", []string{"emit"}, asks("emit", `{"chunk":"x"}`), denied("emit"), `{"known":1.0}`, "emit"},
		{"transfers", nil, asks("transfer", `{"agent":"evil"}`), denied("transfer"), `{"known":1.0}`, "transfer"},
		{"escalates", nil, asks("escalate", `{}`), denied("escalate"), `{"known":1.0}`, "escalate"},
		{"skips the summary", nil, asks("skip_summary", `{}`), denied("skip-summary"), `{"known":1.0}`, "skip-summary"},
		{"asks a person", nil, asks("confirm", `{"hint":"?"}`), denied("confirm"), `{"known":1.0}`, "confirm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, c.grants...), KV: host.NewMemoryKV(nil), Egress: host.NewEgress(&host.Cassettes{})}, map[string]hosttest.Guest{"tool": c.guest})
			memory := flow.NewWordMemory()
			earlier := home
			earlier.ID = "s0"
			memory.Add(&session.Session{Key: earlier, Events: []*session.Event{{Author: "user", Time: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
				Response: session.Response{Content: genai.NewContentFromText("snow in Oslo", genai.RoleUser)}}}})
			earlier.User = "bob"
			memory.Add(&session.Session{Key: earlier, Events: []*session.Event{{Author: "user", Response: session.Response{Content: genai.NewContentFromText("rain in Oslo", genai.RoleUser)}}}})
			z.cfg.Memory = memory
			if err := z.store.Append(t.Context(), home, stateEvent(`{"known":1.0}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := z.cfg.Artifacts.Save(t.Context(), home, "there.json", genai.NewPartFromText(`{"there":1.0}`)); err != nil {
				t.Fatal(err)
			}
			events := z.calls(call("c1", "tool", `{}`))
			reply := strings.TrimSuffix(strings.TrimPrefix(response(t, events, "c1"), `{"result":[`), `]}`)
			if part, isPart := strings.CutPrefix(c.want, "…"); isPart && !strings.Contains(reply, part) || !isPart && reply != c.want {
				t.Errorf("the guest reads %s, want %s", reply, c.want)
			}
			if got := toJSON(t, z.state()); got != c.state {
				t.Errorf("state %s, want %s", got, c.state)
			}
			if a := events[1].Actions; c.denied != "" && toJSON(t, a) != "{}" {
				t.Errorf("a refused call left %s", toJSON(t, a))
			}
			receipt, records := z.receiptOf("c1"), z.records("capability.denied")
			switch {
			case c.denied == "?":
			case c.denied == "":
				if len(receipt.Denied)+len(records) > 0 {
					t.Errorf("denied %q, audited %+v", receipt.Denied, records)
				}
			case !slices.Equal(receipt.Denied, []string{c.denied}) || len(records) != 1 || records[0].Capability != c.denied || records[0].Call != "c1" ||
				records[0].Code != string(abi.CapabilityDenied) || records[0].Actor != "zoo" || records[0].Module != z.plugin.Module().Digest().String():
				t.Errorf("denied %q, audited %+v; want %s", receipt.Denied, records, c.denied)
			}
		})
	}
}

// Values are kept between calls, apart for every plugin; without a store and a
// memory there are none.
func TestKV(t *testing.T) {
	kv := host.NewMemoryKV(nil)
	count := func(name string, store host.KVStore) string {
		guests := map[string]hosttest.Guest{"tool": asks("kv_add", `{"key":"a","n":1,"most":2}`)}
		z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Name: name, Grants: set(t, "kv write"), KV: store}, guests)
		return response(t, z.calls(call("c1", "tool", `{}`)), "c1")
	}
	for i, c := range []struct {
		name  string
		store host.KVStore
		want  string
	}{
		{"one", kv, `{"result":[{"added":true,"count":1}]}`}, {"one", kv, `{"result":[{"added":true,"count":2}]}`}, {"one", kv, `{"result":[{"added":false,"count":2}]}`},
		{"two", kv, `{"result":[{"added":true,"count":1}]}`}, {"one", nil, `{"result":[{"code":"capability_denied","message":"needs kv write"}]}`},
	} {
		if got := count(c.name, c.store); got != c.want {
			t.Errorf("call %d of %s: %s, want %s", i, c.name, got, c.want)
		}
	}
	z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, "memory search")}, map[string]hosttest.Guest{"tool": asks("memory_search", `{"query":"oslo"}`)})
	if got := response(t, z.calls(call("c1", "tool", `{}`)), "c1"); got != `{"result":[{"entries":[]}]}` {
		t.Errorf("without a memory: %s", got)
	}
}

// An answer that holds a secret is audited, by the secret's name. An answer without
// one leaves no record.
func TestScrubbedIsAudited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(file, []byte(`{"format":1,"exchanges":[{"request":{"url":"https://a.example/key"},"response":{"status":200,"text":"\"it is 0123456789\""}},
		{"request":{"url":"https://a.example/none"},"response":{"status":200,"text":"0"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	replay, err := host.OpenCassettes(file)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := host.NewSecrets(map[string]string{"KEY": "0123456789"})
	if err != nil {
		t.Fatal(err)
	}
	// The reply begins with the length of its head, which is no JSON: it is no answer.
	guests := map[string]hosttest.Guest{}
	for _, name := range []string{"key", "none"} {
		guests[name] = hosttest.Guest{Says: []hosttest.Piece{hosttest.Ask("http", `{"url":"https://a.example/`+name+`"}`, "")}}
	}
	z := newZoo(t, hosttest.Manifest("key", "none"), plugins.Config{Grants: set(t, "http GET a.example/*"), Egress: host.NewEgress(replay), Secrets: secrets}, guests)
	events := z.calls(call("c1", "key", `{}`), call("c2", "none", `{}`))
	records := z.records("secret.scrubbed")
	if len(records) != 1 || records[0].Call != "c1" || records[0].Target != "key" || records[0].Actor != "zoo" || records[0].Session != home.ID ||
		records[0].Why != "the answer to http GET https://a.example/key held KEY" {
		t.Errorf("records %+v", records)
	}
	if all := toJSON(t, events) + toJSON(t, z.audit.Records()); strings.Contains(all, "0123456789") {
		t.Errorf("the secret is in %s", all)
	}
}

// Actions that were granted are those of the call.
func TestActionsOfGuests(t *testing.T) {
	for _, c := range []struct {
		grant string
		guest hosttest.Guest
		want  string
	}{
		{"transfer", asks("transfer", `{"agent":"other"}`), `{"transferToAgent":"other"}`},
		{"escalate", asks("escalate", `{}`), `{"escalate":true}`},
		{"skip-summary", asks("skip_summary", `{}`), `{"skipSummarization":true}`},
		{"confirm", asks("confirm", `{"hint":"sure?","payload":{"n":1.0}}`),
			`{"requestedToolConfirmations":{"c1":{"confirmed":false,"hint":"sure?","payload":{"n":1.0}}},"skipSummarization":true}`},
		{"artifact write *", asks("artifact_save", `{"name":"a","type":"text/plain"}`, "x"), `{"artifactDelta":{"a":1}}`},
		{"state write session:*", asks("state_set", `{"values":{"session:a":null}}`), `{"stateDelta":{"a":null}}`},
	} {
		t.Run(c.grant, func(t *testing.T) {
			z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, c.grant)}, map[string]hosttest.Guest{"tool": c.guest})
			z.agent.Agents = []*flow.Agent{{Name: "other", Model: &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Say("here")}}}}
			events := z.calls(call("c1", "tool", `{}`))
			if got := toJSON(t, events[1].Actions); got != c.want {
				t.Errorf("actions %s, want %s", got, c.want)
			}
			if used := z.receiptOf("c1").Used; len(used) != 1 {
				t.Errorf("used %q", used)
			}
		})
	}
}

// What a guest shows without the model's summary is shown if the app says so.
func TestShownResults(t *testing.T) {
	for show, want := range map[bool]bool{false: false, true: true} {
		z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, "skip-summary"),
			Tools: map[string]plugins.ToolConfig{"tool": {ShowResult: show}}}, map[string]hosttest.Guest{"tool": asks("skip_summary", `{}`)})
		events := z.calls(call("c1", "tool", `{}`))
		if last := events[len(events)-1]; len(events) != 2 || (last.Text() != "") != want {
			t.Errorf("shown %t: %d events, the last %s", show, len(events), toJSON(t, last))
		}
	}
}

// A refusal that cannot be audited fails the call.
func TestDeniedAndNotAudited(t *testing.T) {
	z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{}, map[string]hosttest.Guest{"tool": asks("escalate", `{}`)})
	plugin, err := plugins.New(z.plugin.Module(), plugins.Config{Limits: patient, Audit: brokenSink{}})
	if err != nil {
		t.Fatal(err)
	}
	z.agent.Tools = plugin.Tools()
	if got := response(t, z.calls(call("c1", "tool", `{}`)), "c1"); got != errorText("storage_unavailable: the host could not record or read what the call needs, so it was not made") {
		t.Errorf("the model reads %s", got)
	}
}

type brokenSink struct{}

func (brokenSink) Append(context.Context, audit.Record) error { return errors.New("disk full") }

// What the host keeps for one call is bounded.
func TestStoredBytes(t *testing.T) {
	for _, c := range []struct {
		grant string
		guest hosttest.Guest
	}{
		{"artifact write *", asks("artifact_save", `{"name":"a"}`, "four")},
		{"state write session:*", asks("state_set", `{"values":{"session:a":"b"}}`)},
	} {
		z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, c.grant),
			Limits: host.Limits{Wall: time.Minute, Startup: time.Minute, StoredBytes: 3}}, map[string]hosttest.Guest{"tool": c.guest})
		events := z.calls(call("c1", "tool", `{}`))
		if got := response(t, events, "c1"); !strings.Contains(got, "quota_exceeded") {
			t.Errorf("%s: the guest was told %s", c.grant, got)
		}
		if a := toJSON(t, events[1].Actions); a != "{}" {
			t.Errorf("%s: kept %s", c.grant, a)
		}
	}
}

// A guest that reads an artifact in pieces reads one version, which is loaded once.
func TestArtifactInPieces(t *testing.T) {
	guest := hosttest.Guest{Says: hosttest.Result(hosttest.Text("["),
		hosttest.Ask("artifact_read", `{"name":"f"}`), hosttest.Text(","),
		hosttest.Ask("artifact_read", `{"name":"f","offset":2}`), hosttest.Text(","),
		hosttest.Ask("artifact_save", `{"name":"f"}`, "5678"), hosttest.Text(","),
		hosttest.Ask("artifact_read", `{"name":"f","offset":3}`), hosttest.Text(","),
		hosttest.Ask("artifact_read", `{"name":"f"}`), hosttest.Text(","),
		hosttest.Ask("artifact_read", `{"name":"f","offset":3}`), hosttest.Text(","),
		hosttest.Ask("artifact_read", `{"name":"f","version":1,"offset":1}`), hosttest.Text("]"))}
	z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, "artifact read,write *")}, map[string]hosttest.Guest{"tool": guest})
	counting := &countingArtifacts{Artifacts: z.cfg.Artifacts}
	z.cfg.Artifacts = counting
	if _, err := counting.Save(t.Context(), home, "f", genai.NewPartFromText("1234")); err != nil {
		t.Fatal(err)
	}
	got := response(t, z.calls(call("c1", "tool", `{}`)), "c1")
	if want := `{"result":[1234,34,{"version":2},4,5678,8,234]}`; got != want || counting.loads != 3 {
		t.Errorf("the guest read %s with %d loads, want %s with 3", got, counting.loads, want)
	}
}

type countingArtifacts struct {
	flow.Artifacts
	loads int
}

func (c *countingArtifacts) Load(ctx context.Context, key session.Key, name string, version int64) (*genai.Part, error) {
	c.loads++
	return c.Artifacts.Load(ctx, key, name, version)
}

// 64 guests at the same time each see their own arguments, state and grants.
func TestParallelGuests(t *testing.T) {
	const n = 64
	z := newZoo(t, hosttest.Manifest("tool"), plugins.Config{Grants: set(t, "state read,write session:*"), Now: func() time.Time { return time.Unix(0, 0) }}, map[string]hosttest.Guest{"tool": {
		Says: hosttest.Result(hosttest.Text(`{"input":`), hosttest.Input(), hosttest.Text(`,"own":`), hosttest.Ask("state_get", `{"key":"session:own"}`),
			hosttest.Text(`,"set":[`), hosttest.Ask("state_set", `{"values":{"session:same":"x"}}`), hosttest.Text(`]}`))}})
	var ready sync.WaitGroup
	ready.Add(n)
	z.cfg.Hooks = []flow.Hooks{{BeforeTool: func(ctx *flow.ToolContext, _ *flow.ToolCall) (map[string]any, error) {
		ready.Done()
		ready.Wait()
		return nil, ctx.SetState(map[string]any{"own": ctx.CallID()})
	}}}
	z.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "odd calls may do nothing", Answer: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		if len(q.Call.Args) > 0 && strings.Contains("13579", string(q.Call.Args[len(q.Call.Args)-2])) {
			return flowtest.Echo(q, abi.Narrow()), nil
		}
		return flowtest.Echo(q, abi.Narrow("state read session:own")), nil
	}}}
	var calls []*genai.FunctionCall
	for i := range n {
		calls = append(calls, call(fmt.Sprint("c", i), "tool", fmt.Sprintf(`{"n":%d}`, i)))
	}
	events := z.calls(calls...)
	for i, r := range events[1].Responses() {
		id := fmt.Sprint("c", i)
		doc := toJSON(t, r.Response)
		if want := fmt.Sprintf(`{"args":{"n":%d},"format":1,"id":"%s","kind":"tool","now":"1970-01-01T00:00:00Z","tool":"tool"}`, i, id); r.ID != id || member(t, doc, "input") != want {
			t.Errorf("guest %d was given %s, want %s", i, member(t, doc, "input"), want)
		}
		own, denied := fmt.Sprintf(`{"found":true,"value":"%s"}`, id), []string{"state write session:same"}
		if i%2 == 1 {
			own, denied = `{"code":"capability_denied","message":"needs state read session:own"}`, []string{"state read session:own", "state write session:same"}
		}
		if member(t, doc, "own") != own {
			t.Errorf("guest %d reads %s, want %s", i, member(t, doc, "own"), own)
		}
		if got := z.receiptOf(id).Denied; !slices.Equal(got, denied) {
			t.Errorf("guest %d was denied %q, want %q", i, got, denied)
		}
	}
	if _, there := z.state()["same"]; there {
		t.Error("a guest wrote state without a grant")
	}
}

// What is asked and not granted, granted and not asked, or above the ceiling.
func TestGrants(t *testing.T) {
	for _, c := range []struct {
		name                  string
		asks, grants, ceiling []string
		tool                  []string // grants of the tool; nil: not said
		want                  string   // error
		effective             []string
	}{
		{name: "nothing", asks: []string{"log"}, ceiling: []string{"log"}},
		{name: "what is asked", asks: []string{"log"}, grants: []string{"log"}, ceiling: []string{"log"}, effective: []string{"log"}},
		{name: "part of what is asked", asks: []string{"http GET,POST api.example.com/*"}, grants: []string{"http GET api.example.com/v1"}, ceiling: []string{"http GET **"},
			effective: []string{"http GET api.example.com/v1"}},
		{name: "not asked", asks: []string{"http GET api.weather.example/v1/*", "log"}, grants: []string{"http POST api.weather.example/v1/*"}, ceiling: []string{"http GET,POST **"},
			want: "plugin weather: grant http POST api.weather.example/v1/* was not requested: manifest asks http GET api.weather.example/v1/*, log"},
		{name: "nothing is asked", grants: []string{"log"}, ceiling: []string{"log"}, want: "plugin weather: grant log was not requested: manifest asks nothing"},
		{name: "above the ceiling", asks: []string{"http GET **"}, grants: []string{"http GET x.example"}, ceiling: []string{"http GET y.example"},
			want: "plugin weather: http GET x.example/* exceeds the ceiling"},
		{name: "no ceiling", asks: []string{"log"}, grants: []string{"log"}, want: "plugin weather: log exceeds the ceiling"},
		{name: "a tool with less", asks: []string{"log", "clock"}, grants: []string{"log", "clock"}, ceiling: []string{"log", "clock"}, tool: []string{"log"}, effective: []string{"log"}},
		{name: "a tool with nothing", asks: []string{"log"}, grants: []string{"log"}, ceiling: []string{"log"}, tool: []string{}},
		{name: "a tool with more", asks: []string{"log", "clock"}, grants: []string{"log"}, ceiling: []string{"log", "clock"}, tool: []string{"clock"},
			want: "plugin weather: plugin weather: grant clock was not requested: manifest asks log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			manifest := hosttest.Manifest("tool")
			manifest.Name, manifest.Requests = "weather", c.asks
			module := load(t, manifest, map[string]hosttest.Guest{"tool": {}})
			cfg := plugins.Config{Grants: set(t, c.grants...), Ceiling: set(t, c.ceiling...)}
			if c.tool != nil {
				grants := set(t, c.tool...)
				cfg.Tools = map[string]plugins.ToolConfig{"tool": {Grants: &grants}}
			}
			p, err := plugins.New(module, cfg)
			if c.want != "" {
				if err == nil || err.Error() != c.want || !errors.Is(err, plugins.ErrNotRequested) {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Tools()[0].Spec().Grants.Lines(); !slices.Equal(got, c.effective) {
				t.Errorf("the tool is granted %q, want %q", got, c.effective)
			}
		})
	}
}

func TestToolConfig(t *testing.T) {
	module := load(t, hosttest.Manifest("tool", "other"), map[string]hosttest.Guest{"tool": {}, "other": {}})
	for _, c := range []struct {
		name string
		cfg  plugins.Config
		want string
	}{
		{"renamed", plugins.Config{Tools: map[string]plugins.ToolConfig{"tool": {As: "find"}}}, ""},
		{"unknown", plugins.Config{Tools: map[string]plugins.ToolConfig{"took": {}}}, `plugin zoo: no tool "took": it has ["tool" "other"]`},
		{"renamed to a name of the framework", plugins.Config{Tools: map[string]plugins.ToolConfig{"tool": {As: "transfer_to_agent"}}}, `reserved`},
		{"renamed to no name", plugins.Config{Tools: map[string]plugins.ToolConfig{"tool": {As: "Not OK"}}}, `name "Not OK"`},
	} {
		p, err := plugins.New(module, c.cfg)
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		case c.want == "" && (err != nil || p.Tools()[0].Spec().Name != "find"):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
