package policies_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/policies"
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

var (
	home = session.Key{Tenant: "acme", App: "shop", User: "ada", ID: "s1"}

	// patient limits are for guests that must end by themselves, on a busy machine.
	patient = host.Limits{Wall: time.Minute, Startup: time.Minute}
	both    = []abi.Phase{abi.PhaseCall, abi.PhaseResult}
)

// manifest is the manifest of one guard.
func manifest(g abi.Guard) *abi.Manifest {
	if g.Name == "" {
		g.Name = "guard"
	}
	if g.Phases == nil {
		g.Phases = both
	}
	return &abi.Manifest{ABI: abi.Version, Name: "policy", Version: "1", Guards: []abi.Guard{g}}
}

func load(t testing.TB, m *abi.Manifest, guest hosttest.Guest) *host.Module {
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
	module, err := engine.Load(t.Context(), hosttest.Build(t, m, map[string]hosttest.Guest{"call": guest}))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// A desk is an agent with two tools and some guards.
type desk struct {
	t       testing.TB
	store   session.Store
	audit   *audit.Memory
	witness *flowtest.Tool
	events  []*session.Event
}

// run asks for a call of "tool" and one of "sibling" with guards in place.
func run(t testing.TB, spec flow.Spec, guards ...flow.Guard) *desk {
	t.Helper()
	return runCall(t, &flowtest.Tool{Describe: spec}, `{"n":1}`, guards...)
}

// runCall is run with a tool and arguments of the caller's.
func runCall(t testing.TB, witness *flowtest.Tool, args string, guards ...flow.Guard) *desk {
	t.Helper()
	witness.Describe.Name = "tool"
	d := &desk{t: t, store: session.NewMemory(), audit: audit.NewMemory(), witness: witness}
	agent := &flow.Agent{Name: "agent", Tools: []flow.Tool{d.witness, &flowtest.Tool{Describe: flow.Spec{Name: "sibling"}}}, Model: &flowtest.Model{Steps: [][]flowtest.Reply{
		flowtest.Call(call("c1", "tool", args), call("c2", "sibling", `{}`)), flowtest.Say("done")}}}
	runner, err := flow.NewRunner(agent, d.store, flow.Config{Guards: guards, Audit: d.audit, Limits: flow.Limits{Guard: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Create(t.Context(), home, nil); err != nil {
		t.Fatal(err)
	}
	for ev, err := range runner.Run(t.Context(), home, flow.Text("go")) {
		if err != nil {
			t.Fatal(err)
		}
		d.events = append(d.events, ev)
	}
	return d
}

// response returns the response to a call as JSON.
func (d *desk) response(id string) string {
	for _, ev := range d.events {
		for _, r := range ev.Responses() {
			if r.ID == id {
				data, err := abi.Marshal(r.Response)
				if err != nil {
					d.t.Fatal(err)
				}
				return string(data)
			}
		}
	}
	return ""
}

// judged returns the audit records of a guard about call c1.
func (d *desk) judged(guard string) []audit.Record {
	var out []audit.Record
	for _, r := range d.audit.Records() {
		if strings.HasPrefix(r.Action, "guard.") && r.Target == guard && r.Call == "c1" {
			out = append(out, r)
		}
	}
	return out
}

func call(id, name, args string) *genai.FunctionCall {
	var m map[string]any
	if err := json.Unmarshal([]byte(args), &m); err != nil {
		panic(err)
	}
	return &genai.FunctionCall{ID: id, Name: name, Args: m}
}

// guard makes a guard of a guest that behaves well at the gates.
func guard(t testing.TB, g abi.Guard, guest hosttest.Guest, limits host.Limits) *policies.Guard {
	t.Helper()
	if guest.Good == nil && guest.Ends == nil && guest.Says == nil {
		t.Fatal("a guest that does nothing passes no gate")
	}
	made, err := policies.New(t.Context(), load(t, manifest(g), guest), policies.Config{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func says(text string) []hosttest.Piece { return []hosttest.Piece{hosttest.Text(text)} }

func join(pieces ...[]hosttest.Piece) []hosttest.Piece {
	var all []hosttest.Piece
	for _, p := range pieces {
		all = append(all, p...)
	}
	return all
}

// allow is what a guard says that allows.
func allow() []hosttest.Piece { return hosttest.Verdict(`"verdict":"allow"`) }
