package flow_test

import (
	"context"
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
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killVariable); dir != "" {
		killedChild(dir)
	}
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

// A world is an agent with everything it needs. Change its parts before the
// first message.
type world struct {
	t     testing.TB
	store session.Store
	model *flowtest.Model
	agent flow.Agent
	cfg   flow.Config
	audit *audit.Memory
}

// newWorld returns a world whose model does these steps and then says "done"
// for ever.
func newWorld(t testing.TB, steps ...[]flowtest.Reply) *world {
	t.Helper()
	for range 4 {
		steps = append(steps, flowtest.Say("done"))
	}
	w := &world{t: t, store: session.NewMemory(), model: &flowtest.Model{Steps: steps}, audit: audit.NewMemory()}
	w.agent = flow.Agent{Name: "agent"}
	w.cfg.Audit = w.audit
	w.cfg.Limits.Guard = time.Minute // no guard is late because the machine is busy
	if _, err := w.store.Create(context.Background(), home, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) runner() *flow.Runner {
	w.t.Helper()
	if w.agent.Model == nil && w.agent.Type == flow.ModelAgent {
		w.agent.Model = w.model
	}
	r, err := flow.NewRunner(&w.agent, w.store, w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// An outcome is what a run yielded.
type outcome struct {
	t      testing.TB
	events []*session.Event
	errs   []error
}

func (w *world) run(in flow.Input) outcome {
	w.t.Helper()
	return w.runIn(w.t.Context(), in)
}

func (w *world) runIn(ctx context.Context, in flow.Input) outcome {
	w.t.Helper()
	return collect(w.t, w.runner(), ctx, in)
}

func collect(t testing.TB, r *flow.Runner, ctx context.Context, in flow.Input) outcome {
	o := outcome{t: t}
	for ev, err := range r.Run(ctx, home, in) {
		if err != nil {
			o.errs = append(o.errs, err)
		} else {
			o.events = append(o.events, ev)
		}
	}
	return o
}

// say runs a text message, which must not fail.
func (w *world) say(text string) outcome {
	w.t.Helper()
	o := w.run(flow.Text(text))
	if len(o.errs) > 0 {
		w.t.Fatalf("run failed: %v", o.errs)
	}
	return o
}

// response returns the response to a call as JSON, or "" if there is none.
func (o outcome) response(id string) string {
	for _, ev := range o.events {
		for _, r := range ev.Responses() {
			if r.ID == id {
				return toJSON(o.t, r.Response)
			}
		}
	}
	return ""
}

// errorOf returns the error that the model reads for a call, or "".
func (o outcome) errorOf(id string) string {
	for _, ev := range o.events {
		for _, r := range ev.Responses() {
			if r.ID == id {
				text, _ := r.Response["error"].(string)
				return text
			}
		}
	}
	return ""
}

// questions returns the calls that ask a person, in order.
func (o outcome) questions() []*genai.FunctionCall {
	var all []*genai.FunctionCall
	for _, ev := range o.events {
		for _, c := range ev.Calls() {
			if c.Name == "adk_request_confirmation" {
				all = append(all, c)
			}
		}
	}
	return all
}

// final returns the text of the last event.
func (o outcome) final() string {
	if len(o.events) == 0 {
		return ""
	}
	return o.events[len(o.events)-1].Text()
}

func (w *world) stored() *session.Session {
	w.t.Helper()
	s, err := w.store.Get(context.Background(), home)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) calls() []session.Call {
	w.t.Helper()
	calls, err := w.store.Calls(context.Background(), home)
	if err != nil {
		w.t.Fatal(err)
	}
	return calls
}

// records returns the audit records with one of these actions, in order.
func (w *world) records(actions ...string) []audit.Record {
	var out []audit.Record
	for _, r := range w.audit.Records() {
		for _, a := range actions {
			if r.Action == a || strings.HasSuffix(a, ".") && strings.HasPrefix(r.Action, a) {
				out = append(out, r)
			}
		}
	}
	return out
}

// call is a function call of the model; args is JSON.
func call(id, name, args string) *genai.FunctionCall {
	c := &genai.FunctionCall{ID: id, Name: name}
	if args != "" {
		d := json.NewDecoder(strings.NewReader(args)) // laxer than the contract
		d.UseNumber()
		if err := d.Decode(&c.Args); err != nil {
			panic(err)
		}
	}
	return c
}

// answer is the message of a client that answers a question; response is JSON.
func answer(id, response string) flow.Input {
	v, err := abi.Unmarshal([]byte(response))
	if err != nil {
		panic(err)
	}
	m, _ := v.(map[string]any)
	return flow.Input{Content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
		{FunctionResponse: &genai.FunctionResponse{ID: id, Name: "adk_request_confirmation", Response: m}}}}}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := abi.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tool is a handler that answers {"ok":true}.
func tool(name string) *flowtest.Tool { return &flowtest.Tool{Describe: flow.Spec{Name: name}} }

// handler is a tool of a function.
func handler(name string, do func(ctx *flow.ToolContext, args json.RawMessage) (string, error)) *flowtest.Tool {
	return &flowtest.Tool{Describe: flow.Spec{Name: name}, Do: func(ctx *flow.ToolContext, p flow.Permit) (flow.Outcome, error) {
		result, err := do(ctx, p.Args())
		return flow.Outcome{Result: json.RawMessage(result)}, err
	}}
}

const okResponse = `{"ok":true}`
