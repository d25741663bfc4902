package plugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

func TestMain(m *testing.M) {
	host.Main()                      // first, as in main: the engine compiles in a child, which is this program
	before := goleak.IgnoreCurrent() // what packages start when they are loaded
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(before); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var home = session.Key{Tenant: "acme", App: "shop", User: "ada", ID: "s1"}

// patient limits are for guests that must end by themselves, on a busy machine.
var patient = host.Limits{Wall: time.Minute, Startup: time.Minute}

// A zoo is an agent whose tools and hooks are small guests.
type zoo struct {
	t       testing.TB
	plugin  *plugins.Plugin
	store   session.Store
	audit   *audit.Memory
	model   *flowtest.Model
	agent   flow.Agent
	cfg     flow.Config
	ended   map[string]flow.CallResult // by call id; read it after the run
	receive chan endedCall
}

type endedCall struct {
	id     string
	result flow.CallResult
}

func load(t testing.TB, manifest *abi.Manifest, guests map[string]hosttest.Guest) *host.Module {
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
	module, err := engine.Load(t.Context(), hosttest.Build(t, manifest, guests))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// newZoo returns an agent with the tools and hooks of a module whose manifest
// asks what the configuration grants.
func newZoo(t testing.TB, manifest *abi.Manifest, cfg plugins.Config, guests map[string]hosttest.Guest) *zoo {
	t.Helper()
	if manifest.Requests == nil {
		manifest.Requests = append(cfg.Grants.Lines(), cfg.Hooks.Grants.Lines()...)
	}
	if len(cfg.Ceiling.Lines()) == 0 {
		cfg.Ceiling = set(t, append(cfg.Grants.Lines(), cfg.Hooks.Grants.Lines()...)...)
	}
	z := &zoo{t: t, store: session.NewMemory(), audit: audit.NewMemory(), ended: map[string]flow.CallResult{}, receive: make(chan endedCall, 100)}
	cfg.Audit = z.audit
	if cfg.Limits == (host.Limits{}) {
		cfg.Limits = patient
	}
	if cfg.Hooks.Limits == (host.Limits{}) {
		cfg.Hooks.Limits = patient
	}
	var err error
	if z.plugin, err = plugins.New(load(t, manifest, guests), cfg); err != nil {
		t.Fatal(err)
	}
	z.agent = flow.Agent{Name: "agent", Tools: z.plugin.Tools()}
	z.cfg = flow.Config{Hooks: []flow.Hooks{z.plugin.Hooks()}, Audit: z.audit, Artifacts: flow.NewMemoryArtifacts(), Limits: flow.Limits{Guard: time.Minute}}
	z.cfg.Observer.Finished = func(info flow.CallInfo, r flow.CallResult) { z.receive <- endedCall{info.ID, r} }
	if _, err := z.store.Create(t.Context(), home, nil); err != nil {
		t.Fatal(err)
	}
	return z
}

// calls makes the model ask for calls and then say "done", and returns what the
// run yielded.
func (z *zoo) calls(calls ...*genai.FunctionCall) []*session.Event {
	z.t.Helper()
	if z.model == nil {
		z.model = &flowtest.Model{Steps: [][]flowtest.Reply{flowtest.Call(calls...), flowtest.Say("done")}}
	}
	z.agent.Model = z.model
	return z.run(flow.Text("go"))
}

func (z *zoo) run(in flow.Input) []*session.Event {
	z.t.Helper()
	events, errs := z.try(in)
	if len(errs) > 0 {
		z.t.Fatalf("run failed: %v", errs)
	}
	return events
}

func (z *zoo) try(in flow.Input) (events []*session.Event, errs []error) {
	z.t.Helper()
	return z.tryIn(z.t.Context(), in)
}

func (z *zoo) tryIn(ctx context.Context, in flow.Input) (events []*session.Event, errs []error) {
	z.t.Helper()
	runner, err := flow.NewRunner(&z.agent, z.store, z.cfg)
	if err != nil {
		z.t.Fatal(err)
	}
	for ev, err := range runner.Run(ctx, home, in) {
		if err != nil {
			errs = append(errs, err)
		} else {
			events = append(events, ev)
		}
	}
	for len(z.receive) > 0 {
		e := <-z.receive
		z.ended[e.id] = e.result
	}
	return events, errs
}

func (z *zoo) state() map[string]any {
	z.t.Helper()
	s, err := z.store.Get(z.t.Context(), home)
	if err != nil {
		z.t.Fatal(err)
	}
	return s.State
}

// records returns the audit records of an action.
func (z *zoo) records(action string) []audit.Record {
	var out []audit.Record
	for _, r := range z.audit.Records() {
		if r.Action == action {
			out = append(out, r)
		}
	}
	return out
}

// response returns the response to a call as JSON.
func response(t testing.TB, events []*session.Event, id string) string {
	t.Helper()
	for _, ev := range events {
		for _, r := range ev.Responses() {
			if r.ID == id {
				return toJSON(t, r.Response)
			}
		}
	}
	return ""
}

// errorText is the response of a failed call.
func errorText(text string) string {
	data, err := abi.Marshal(map[string]string{"error": text})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := abi.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func call(id, name, args string) *genai.FunctionCall {
	v, err := abi.Unmarshal([]byte(args))
	if err != nil {
		panic(err)
	}
	return &genai.FunctionCall{ID: id, Name: name, Args: v.(map[string]any)}
}

func set(t testing.TB, lines ...string) capability.Set {
	t.Helper()
	s, err := capability.ParseSet(lines)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// receiptOf returns the receipt of an ended call.
func (z *zoo) receiptOf(id string) host.Receipt {
	z.t.Helper()
	r, ok := z.ended[id].Receipt.(host.Receipt)
	if !ok {
		z.t.Fatalf("call %s has a receipt of type %T: %+v", id, z.ended[id].Receipt, z.ended[id])
	}
	return r
}

// member returns a member of a JSON object.
func member(t testing.TB, doc, name string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(doc), &m); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return string(m[name])
}

// stateEvent is an event that writes state.
func stateEvent(state string) *session.Event {
	v, err := abi.Unmarshal([]byte(state))
	if err != nil {
		panic(err)
	}
	return &session.Event{ID: "state", Author: "user", Actions: session.Actions{StateDelta: v.(map[string]any)}}
}
