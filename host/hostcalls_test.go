package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A guestReply is what the Go guest saw of one host call.
type guestReply struct {
	Error bool
	Head  string
	Text  string
}

// ask lets the Go guest make host calls: pairs of a name and a request, with an
// optional body after "\x00".
func ask(t testing.TB, m *Module, c *Call, calls ...string) ([]guestReply, Receipt) {
	t.Helper()
	var list []map[string]any
	for i := 0; i < len(calls); i += 2 {
		request, body, _ := strings.Cut(calls[i+1], "\x00")
		list = append(list, map[string]any{"name": calls[i], "request": json.RawMessage(request), "body": body})
	}
	input, err := json.Marshal(map[string]any{"do": "calls", "calls": list})
	if err != nil {
		t.Fatal(err)
	}
	copied := *c
	copied.Export, copied.Input = "call", input
	var out []guestReply
	reply := succeeds(t, m, &copied, &out)
	return out, reply.Receipt
}

// code returns the code of an error reply, or "".
func (r guestReply) code(t testing.TB) abi.Code {
	t.Helper()
	if !r.Error {
		return ""
	}
	var e abi.ErrorReply
	if err := abi.Decode([]byte(r.Text), &e); err != nil {
		t.Fatalf("error reply %q: %v", r.Text, err)
	}
	return e.Code
}

type memArtifacts map[string][]byte

func (a memArtifacts) List(context.Context) ([]string, error) {
	return []string{"a.csv", "secret.key"}, nil
}

func (a memArtifacts) Read(_ context.Context, name string, version, offset int64, n int) ([]byte, error) {
	data, ok := a[name]
	if !ok || version > 1 {
		return nil, fmt.Errorf("version %d of %s: %w", version, name, ErrNotFound)
	}
	data = data[min(offset, int64(len(data))):]
	return data[:min(n, len(data))], nil
}

func (a memArtifacts) Save(_ context.Context, name, mime string, data []byte) (int64, error) {
	a[name+" "+mime] = data
	return int64(len(a)), nil
}

type actions struct{ asked []string }

func (a *actions) Confirm(hint string, payload json.RawMessage) error {
	a.asked = append(a.asked, "confirm "+hint+" "+string(payload))
	return nil
}

func (a *actions) Transfer(agent string) error {
	if agent == "nobody" {
		return errors.New(`agent "nobody" is not there`)
	}
	a.asked = append(a.asked, "transfer "+agent)
	return nil
}

func (a *actions) Escalate() error    { a.asked = append(a.asked, "escalate"); return nil }
func (a *actions) SkipSummary() error { a.asked = append(a.asked, "skip"); return nil }

// world is an access with everything in it, and what was done to it.
type world struct {
	state     memState
	artifacts memArtifacts
	actions   *actions
	kv        *MemoryKV
	memory    memMemory
	chunks    []string
	lines     []string
}

// memMemory remembers what was searched for.
type memMemory struct{ asked *[]string }

func (m memMemory) Search(_ context.Context, query string) ([]abi.MemoryEntry, error) {
	*m.asked = append(*m.asked, query)
	if query == "broken" {
		return nil, errors.New("disk /var/lib/memory is full")
	}
	if query == "much" {
		return slices.Repeat([]abi.MemoryEntry{{Text: strings.Repeat("x", 10<<10)}}, 1000), nil
	}
	return []abi.MemoryEntry{{Author: "user", Text: "bad \xff byte", Time: "2026-03-01T09:00:00Z"}}, nil
}

func newWorld() *world {
	return &world{state: memState{"session:a": json.RawMessage("1.50"), "user:b": json.RawMessage(`"x"`)},
		artifacts: memArtifacts{"a.csv": []byte(strings.Repeat("x", 100<<10)), "secret.key": []byte("k")}, actions: &actions{}, kv: NewMemoryKV(nil), memory: memMemory{new([]string)}}
}

func (w *world) access() Access {
	return Access{State: w.state, Artifacts: w.artifacts, Actions: w.actions, KV: w.kv.Scope(KVScope{}), Memory: w.memory,
		Emit: func(_ context.Context, chunk json.RawMessage) error {
			w.chunks = append(w.chunks, string(chunk))
			return nil
		},
		Log: func(level, message string) { w.lines = append(w.lines, level+" "+message) }}
}

var everyCall = []string{
	"log", `{"message":"hi\nthere","level":"warn"}`,
	"state_get", `{"key":"session:a"}`,
	"state_set", `{"values":{"session:a":2,"session:new":{"b":1,"a":1.0}}}`,
	"artifact_list", `{}`,
	"artifact_read", `{"name":"a.csv"}`,
	"artifact_save", "{\"name\":\"b.csv\",\"type\":\"text/csv\"}\x00body",
	"emit", `{"chunk":{"b":1, "a":2}}`,
	"confirm", `{"hint":"sure?","payload":[1]}`,
	"transfer", `{"agent":"other"}`,
	"escalate", `{}`,
	"skip_summary", `{}`,
	"kv_set", `{"key":"a","value":{"b":1.0, "a":2}}`,
	"kv_get", `{"key":"a"}`,
	"kv_add", `{"key":"n","n":2,"most":3,"ttl_ms":60000}`,
	"kv_add", `{"key":"n","n":2,"most":3}`,
	"kv_delete", `{"key":"a"}`,
	"memory_search", `{"query":"invoice"}`,
	"http", `{"url":"https://api.example.com/v1/x"}`,
}

var everyGrant = []string{"log", "state read,write session:*", "artifact read,write *.csv", "emit", "confirm", "transfer", "escalate", "skip-summary", "kv read,write", "memory search",
	"http GET api.example.com/v1/*"}

func TestHostCallsGranted(t *testing.T) {
	m := loadGo(t)
	w := newWorld()
	var traced []string
	out, receipt := ask(t, m, &Call{Grants: grants(t, everyGrant...), Access: w.access(), Trace: func(h HostCall) {
		traced = append(traced, fmt.Sprint(h.Name, " ", h.Code))
	}}, everyCall[:34]...)
	want := []string{"", `{"found":true,"value":1.50}`, "", `{"names":["a.csv"]}`, strings.Repeat("x", abi.MaxChunk), `{"version":3}`, "", "", "", "", "",
		"", `{"found":true,"value":{"a":2,"b":1.0}}`, `{"added":true,"count":2}`, `{"added":false,"count":2}`, "",
		`{"entries":[{"author":"user","text":"bad � byte","time":"2026-03-01T09:00:00Z"}]}`}
	for i, r := range out {
		if r.Error || r.Text != want[i] {
			t.Errorf("%s: error %v, reply %.100q, want %.100q", everyCall[2*i], r.Error, r.Text, want[i])
		}
	}
	if got := fmt.Sprint(w.lines); got != `[warn hi\nthere]` {
		t.Errorf("log %s", got)
	}
	if string(w.state["session:a"]) != "2" || string(w.state["session:new"]) != `{"a":1.0,"b":1}` {
		t.Errorf("state %s", w.state)
	}
	if string(w.artifacts["b.csv text/csv"]) != "body" {
		t.Errorf("artifacts %q", w.artifacts["b.csv text/csv"])
	}
	if fmt.Sprint(w.chunks) != `[{"a":2,"b":1}]` || fmt.Sprint(w.actions.asked) != "[confirm sure? [1] transfer other escalate skip]" {
		t.Errorf("chunks %s, actions %s", w.chunks, w.actions.asked)
	}
	used := "log, state read session:a, state write session:a, state write session:new, artifact read,write *.csv, artifact read a.csv, artifact write b.csv, emit, confirm, transfer, escalate, skip-summary, kv write, kv read, memory search"
	if got := strings.Join(receipt.Used, ", "); got != used || receipt.Denied != nil || receipt.HostCalls != 18 {
		t.Errorf("used %s, denied %v, %d host calls", got, receipt.Denied, receipt.HostCalls)
	}
	if len(traced) != 17 || traced[1] != "state_get ok" {
		t.Errorf("trace %q", traced)
	}
}

// TestHostCallsDenied: without the grant, without the access, and in a guard with
// both, a host call has no effect and says so.
func TestHostCallsDenied(t *testing.T) {
	m := loadGo(t)
	for _, test := range []struct {
		name   string
		kind   abi.Kind
		grants []string
		access bool
	}{
		{"no grants", abi.KindTool, nil, true},
		{"no grants in a hook", abi.KindHook, nil, true},
		{"no access", abi.KindTool, everyGrant, false},
		{"guard", abi.KindGuard, everyGrant, true},
		{"settings", abi.KindSettings, everyGrant, true},
		{"unknown kind", "chef", everyGrant, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld()
			c := &Call{Kind: test.kind, Grants: grants(t, test.grants...), Limits: Limits{Wall: DefaultLimits(abi.KindTool).Wall}}
			if test.access {
				c.Access = w.access()
				c.Access.Egress = NewEgress(&Cassettes{})
			}
			var refused int
			needs := map[string]bool{}
			c.Trace = func(h HostCall) {
				if h.Code == abi.CapabilityDenied && h.Need != "" {
					needs[h.Need] = true
					refused++
				}
			}
			out, receipt := ask(t, m, c, everyCall...)
			want := len(out)
			for i, r := range out {
				name := everyCall[2*i]
				switch guard := c.Kind != abi.KindTool && c.Kind != abi.KindHook; {
				case strings.HasPrefix(name, "kv_") && guard:
					want-- // a guard counts
					if r.Error {
						t.Errorf("%s in a guard: %+v", name, r)
					}
				case name == "log" && guard:
					want-- // a guard may log
					if r.Error || len(w.lines) != 1 {
						t.Errorf("log in a guard: %+v, lines %q", r, w.lines)
					}
				case name == "artifact_list" && test.grants == nil:
					want--
					if r.Text != `{"names":[]}` {
						t.Errorf("artifact_list: %+v", r)
					}
				case r.code(t) != abi.CapabilityDenied:
					t.Errorf("%s: %+v", name, r)
				}
			}
			guard := c.Kind != abi.KindTool && c.Kind != abi.KindHook
			if _, counted, _ := w.kv.Scope(KVScope{}).Get(t.Context(), "n"); counted != guard {
				t.Errorf("kv was written: %v", counted)
			}
			if len(*w.memory.asked) != 0 {
				t.Errorf("memory was asked %q", *w.memory.asked)
			}
			if refused != want || len(receipt.Denied) != len(needs) {
				t.Errorf("%d refused, denied %q, want %d", refused, receipt.Denied, want)
			}
			fresh := newWorld()
			if fmt.Sprint(w.state, len(w.artifacts), w.actions.asked, w.chunks) != fmt.Sprint(fresh.state, len(fresh.artifacts), fresh.actions.asked, fresh.chunks) {
				t.Errorf("a refused call had an effect: %+v", w)
			}
		})
	}
}

func TestStateSetIsAllOrNothing(t *testing.T) {
	w := newWorld()
	out, receipt := ask(t, loadGo(t), &Call{Grants: grants(t, everyGrant...), Access: w.access()},
		"state_set", `{"values":{"session:a":9,"app:price":1}}`)
	if out[0].code(t) != abi.CapabilityDenied || string(w.state["session:a"]) != "1.50" {
		t.Errorf("reply %+v, state %s", out[0], w.state)
	}
	if got := fmt.Sprint(receipt.Denied, receipt.Used); got != "[state write app:price] []" {
		t.Errorf("denied and used %s", got)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWorld()
	calls := []string{
		"log", `[]`,
		"log", `{"message":"x","level":"audit"}`,
		"log", `{"message":"x","message":"y"}`,
		"state_get", `{"key":""}`,
		"state_get", `{"key":"session:a\u0000"}`,
		"state_get", `{"key":"session:\u202ea"}`,
		"state_get", `{"key":"session:` + strings.Repeat("a", 300) + `"}`,
		"state_get", `{"key":"session:a","extra":1}`,
		"state_set", `{"values":{"session:":1,"":2}}`,
		"artifact_read", `{"name":"a.csv","version":-1}`,
		"artifact_read", `{"name":"a.csv","version":9223372036854775808}`,
		"artifact_read", `{"name":"a.csv","offset":-1}`,
		"artifact_save", `{"name":"b\n.csv"}`,
		"emit", `{}`,
		"kv_get", `{"key":""}`,
		"kv_get", `{"key":"a","ttl_ms":1}`,
		"kv_set", `{"key":"a"}`,
		"kv_set", `{"key":"a","value":1,"ttl_ms":-1}`,
		"kv_set", `{"key":"a","value":1,"ttl_ms":31622400001}`,
		"kv_set", `{"key":"a\u0000","value":1}`,
		"kv_set", "{\"key\":\"\xff\",\"value\":1}",
		"kv_set", `{"key":"` + strings.Repeat("a", 257) + `","value":1}`,
		"kv_set", `{"key":"a","value":"` + strings.Repeat("a", abi.MaxKVBytes) + `"}`,
		"kv_delete", `{}`,
		"kv_add", `{"key":"a","n":1.5,"most":3}`,
		"kv_add", `{"key":"a","n":1,"most":-1}`,
		"kv_add", `{"key":"a","n":9007199254740992,"most":3}`,
		"kv_add", `{"key":"a","n":-9007199254740992,"most":3}`,
		"kv_add", `{"key":"a","n":1,"most":9007199254740992}`,
		"kv_add", `{"key":"a","n":1,"most":1e3}`,
		"kv_add", `{"key":"a","n":1,"most":3,"most":4}`,
		"kv_add", `{"key":"a","n":99999999999999999999,"most":3}`,
		"memory_search", `{"query":7}`,
		"memory_search", `{"query":"a","user":"bob"}`,
		"transfer", `{"agent":"nobody"}`,
		"escalate", `{"now":true}`,
	}
	out, _ := ask(t, loadGo(t), &Call{Grants: grants(t, everyGrant...), Access: w.access()}, calls...)
	for i, r := range out {
		if code := r.code(t); code != abi.ArgsInvalid {
			t.Errorf("%s %s: %s %s", calls[2*i], calls[2*i+1], code, r.Text)
		}
	}
	if _, there, _ := w.kv.Scope(KVScope{}).Get(t.Context(), "a"); there || len(w.lines)+len(w.chunks)+len(w.actions.asked)+len(*w.memory.asked) != 0 {
		t.Errorf("a bad request had an effect: %+v", w)
	}
}

func TestArtifactRead(t *testing.T) {
	out, _ := ask(t, loadGo(t), &Call{Grants: grants(t, everyGrant...), Access: newWorld().access()},
		"artifact_read", `{"name":"a.csv","offset":65536}`, "artifact_read", `{"name":"a.csv","offset":102400}`,
		"artifact_read", `{"name":"a.csv","version":2}`, "artifact_read", `{"name":"none.csv"}`, "artifact_read", `{"name":"secret.key"}`)
	if len(out[0].Text) != 100<<10-abi.MaxChunk || out[1].Text != "" || out[1].Error {
		t.Errorf("the rest has %d bytes, behind the end %+v", len(out[0].Text), out[1])
	}
	for i, want := range []abi.Code{abi.NotFound, abi.NotFound, abi.CapabilityDenied} {
		if got := out[2+i].code(t); got != want {
			t.Errorf("read %d: %s, want %s", i, got, want)
		}
	}
}

type brokenState struct{}

func (brokenState) Get(context.Context, string) (json.RawMessage, bool, error) {
	return nil, false, errors.New("disk /var/lib/state is full")
}

func (brokenState) Set(context.Context, map[string]json.RawMessage) error {
	return errors.New("disk /var/lib/state is full")
}

func TestBrokenStore(t *testing.T) {
	wasm, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	e, log := openEngine(t)
	m, err := e.Load(t.Context(), packed(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	out, _ := ask(t, m, &Call{Grants: grants(t, everyGrant...), Access: Access{State: brokenState{}}}, everyCall[2:6]...)
	for _, r := range out {
		if r.code(t) != abi.StorageUnavailable || strings.Contains(r.Text, "/var") {
			t.Errorf("reply %+v", r)
		}
	}
	if strings.Count(log.String(), "/var/lib/state is full") != 2 {
		t.Errorf("the operator's log: %s", log)
	}
}

func TestEmitEnds(t *testing.T) {
	m := loadGo(t)
	c := &Call{Export: "call", Input: []byte(`{"do":"calls","calls":[{"name":"emit","request":{"chunk":1}}]}`), Grants: grants(t, "emit"),
		Access: Access{Emit: func(context.Context, json.RawMessage) error { return errors.New("nobody listens") }}}
	e := fails(t, m, c, abi.Cancelled)
	if !strings.Contains(e.Detail, "nobody listens") {
		t.Errorf("detail %q", e.Detail)
	}
}

func TestReceiptIsBounded(t *testing.T) {
	var calls []string
	for i := range 100 {
		calls = append(calls, "state_get", fmt.Sprintf(`{"key":"session:%03d%s"}`, i, strings.Repeat("x", 240)))
	}
	_, receipt := ask(t, loadGo(t), &Call{}, calls...)
	if len(receipt.Denied) != maxListed {
		t.Errorf("%d entries, want %d", len(receipt.Denied), maxListed)
	}
	for _, s := range receipt.Denied {
		if len(s) > maxListedBytes {
			t.Errorf("entry of %d bytes", len(s))
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	w := newWorld()
	long := strings.Repeat(`\u0000\u0001`, 10_000)
	_, receipt := ask(t, loadGo(t), &Call{Grants: grants(t, "log"), Access: w.access(), Limits: Limits{LogBytes: 1000}},
		"log", `{"message":"first"}`, "log", `{"message":"`+long+`"}`, "log", `{"message":"too late"}`)
	if len(w.lines) != 2 || w.lines[0] != "info first" || !strings.HasSuffix(w.lines[1], "…truncated") {
		t.Fatalf("log %.100q", w.lines)
	}
	if total := len(w.lines[0]) + len(w.lines[1]) - 2*len("info "); total > 1000 || receipt.LogBytes > 1000 {
		t.Errorf("%d bytes logged, receipt says %d, limit 1000", total, receipt.LogBytes)
	}
}

// What a guest does to its memory after a host call changes nothing of what it
// asked for.
func TestRequestsAreCopies(t *testing.T) {
	b := &builder{}
	set, save, emit, kv := b.use(abi.ImportHost, "state_set"), b.use(abi.ImportHost, "artifact_save"), b.use(abi.ImportHost, "emit"), b.use(abi.ImportHost, "kv_set")
	output := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	var code [][]byte
	at := 0
	text := func(s string) []byte {
		b.put(at, s)
		at += len(s)
		return append(i32(int64(at-len(s))), i32(int64(len(s)))...)
	}
	code = append(code, text(`{"values":{"session:a":"good"}}`), callFn(set), drop,
		text(`{"name":"b.csv"}`), text("good"), callFn(save), drop,
		text(`{"chunk":"good"}`), callFn(emit), drop,
		text(`{"key":"k","value":"good"}`), callFn(kv), drop,
		i32(0), i32('x'), i32(int64(at)), []byte{0xfc, 0x0b, 0}, // memory.fill
		i32(0), i32(1), callFn(output))
	b.fn("call", ":", 0, code...)
	w := newWorld()
	reply, err := load(t, b.bytes()).Call(t.Context(), &Call{Export: "call", Grants: grants(t, everyGrant...), Access: w.access()})
	if err != nil || string(reply.Output) != "x" {
		t.Fatalf("output %v, %v", reply, err)
	}
	value, _, _ := w.kv.Scope(KVScope{}).Get(t.Context(), "k")
	if got := fmt.Sprintf("%s %s %s %s", w.state["session:a"], w.artifacts["b.csv "], w.chunks, value); got != `"good" good ["good"] "good"` {
		t.Errorf("kept %s", got)
	}
}
