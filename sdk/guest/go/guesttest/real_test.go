package guesttest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest/testdata/kit"
	"github.com/sandboxd/sandboxd/session"
)

// The kit, natively.
func init() { guest.Serve(kit.Plugin) }

// module is the kit in the sandbox.
var module *host.Module

func TestMain(m *testing.M) {
	ctx := context.Background()
	engine, err := host.Open(ctx, host.Config{InProcess: true}) // tests run on loaded machines, where a child's time may be up
	if err != nil {
		panic(err)
	}
	wasm, _, err := app.Modules{Engine: engine}.Build(ctx, filepath.Join("testdata", "module"), nil)
	if err == nil {
		module, err = engine.Load(ctx, wasm)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if err := engine.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// A real is the production host, flow and store with what a fake Host has.
type real struct {
	h         *guesttest.Host
	key       session.Key
	store     *session.Memory
	artifacts *flow.MemoryArtifacts
	kv        *host.MemoryKV
	clock     time.Time
}

// kvScope is that of the kit in a real app.
var kvScope = host.KVScope{App: "app", Owner: "plugin kit"}

func newReal(t *testing.T, h *guesttest.Host) *real {
	t.Helper()
	r := &real{h: h, key: session.Key{App: "app", User: "u", ID: "s"}, store: session.NewMemory(), artifacts: flow.NewMemoryArtifacts()}
	r.kv = host.NewMemoryKV(func() time.Time { return r.clock })
	state := map[string]any{}
	for key, text := range h.State {
		v, err := abi.Unmarshal([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		state[strings.TrimPrefix(key, "session:")] = v
	}
	if _, err := r.store.Create(t.Context(), r.key, state); err != nil {
		t.Fatal(err)
	}
	for name, data := range h.Artifacts {
		if _, err := r.artifacts.Save(t.Context(), r.key, name, genai.NewPartFromText(data)); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range h.KV {
		if err := r.kv.Scope(kvScope).Set(t.Context(), key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Search implements flow.Memory.
func (r *real) Search(_ context.Context, _ session.Key, query string) ([]flow.MemoryEntry, error) {
	if r.h.Memory == nil {
		return nil, nil
	}
	var out []flow.MemoryEntry
	for _, e := range r.h.Memory(query) {
		out = append(out, flow.MemoryEntry{Author: e.Author, Content: genai.NewContentFromText(e.Text, "user")})
	}
	return out, nil
}

// said keeps what a guest logs.
type said struct{ res *guesttest.Result }

func (s said) Enabled(context.Context, slog.Level) bool { return true }
func (s said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s said) WithGroup(string) slog.Handler            { return s }
func (s said) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			s.res.Logs = append(s.res.Logs, a.Value.String())
		}
		return true
	})
	return nil
}

// plugin makes the kit as an app has it. The second result is put together as the call
// runs.
func (r *real) plugin(t *testing.T, hooks bool) (*plugins.Plugin, *guesttest.Result, *host.Cassettes, error) {
	t.Helper()
	grants, err := capability.ParseSet(r.h.Grants)
	if err != nil {
		t.Fatal(err)
	}
	cassettes := &host.Cassettes{}
	if r.h.Cassette != "" {
		if cassettes, err = host.OpenCassettes(r.h.Cassette); err != nil {
			t.Fatal(err)
		}
	}
	egress := host.NewEgress(cassettes)
	if r.h.HTTP != nil {
		egress = host.NewEgressTo(r.h.HTTP)
	}
	secrets, err := host.NewSecrets(r.h.Secrets)
	if err != nil {
		t.Fatal(err)
	}
	r.clock = r.h.Now
	if r.clock.IsZero() {
		r.clock = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	}
	res := &guesttest.Result{}
	kind := abi.KindTool
	if hooks {
		kind = abi.KindHook
	}
	limits := host.DefaultLimits(kind).Narrow(host.Asked(module.Manifest().Limits)).Narrow(host.Asked(r.h.Limits))
	limits.Fuel = 1e12 // which a fake does not count
	if r.h.Limits.WallMS == 0 {
		limits.Wall = time.Minute // tests run on loaded machines
	}
	cfg := plugins.Config{Ceiling: grants, Values: r.h.Config, Egress: egress, Secrets: secrets, KV: r.kv, Seed: fmt.Append(nil, r.h.Seed),
		Now: func() time.Time { return r.clock }, Logger: slog.New(said{res}),
		Chunk: func(_, _, text string) { res.Chunks = append(res.Chunks, text) },
		Trace: func(_, _ string, c host.HostCall) {
			switch c.Code {
			case abi.CapabilityDenied:
				res.Denied = append(res.Denied, c.Need)
			case abi.EgressDenied, abi.NoRecordedAnswer:
				res.Denied = append(res.Denied, fmt.Sprintf("%s %s", c.Code, c.Detail))
			}
		}}
	if hooks {
		cfg.Hooks = plugins.HookConfig{Grants: grants, Limits: limits}
	} else {
		cfg.Grants, cfg.Limits = grants, limits
	}
	p, err := plugins.New(module, cfg)
	return p, res, cassettes, err
}

// tool calls a tool.
func (r *real) tool(t *testing.T, name, args string) guesttest.Result {
	t.Helper()
	p, res, _, err := r.plugin(t, false)
	if err != nil {
		t.Fatal(err)
	}
	document, err := abi.Canonical([]byte(args))
	if err == nil && document[0] != '{' {
		err = errors.New("not an object")
	}
	if err != nil { // no model can send this
		res.Code, res.Message = abi.ArgsInvalid, "args_invalid: "+err.Error()
		return *res
	}
	v, err := abi.Unmarshal(document)
	if err != nil {
		t.Fatal(err)
	}
	var ended flow.CallResult
	runner, err := flow.NewRunner(&flow.Agent{Name: "agent", Tools: p.Tools()}, r.store, flow.Config{Artifacts: r.artifacts, Memory: r, Now: func() time.Time { return r.clock },
		Observer: flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { ended = c }}})
	if err != nil {
		t.Fatal(err)
	}
	var actions session.Actions
	for ev, err := range runner.Call(t.Context(), r.key, flow.DirectCall{Tool: name, Args: v.(map[string]any)}) {
		if err != nil && strings.Contains(err.Error(), "failed to find agent") { // that the call transfers to
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(ev.Responses()) > 0 {
			actions = ev.Actions
		}
	}
	r.end(t, res, ended, actions)
	return *res
}

// beforeTool calls a tool that answers with its arguments, with the kit's hooks before
// and after it; that the second one changed the result is left out.
func (r *real) beforeTool(t *testing.T, args string) guesttest.Result {
	t.Helper()
	p, res, _, err := r.plugin(t, true)
	if err != nil {
		t.Fatal(err)
	}
	probe := flow.NewTool(flow.Spec{Name: "probe"}, func(_ *flow.ToolContext, in map[string]any) (map[string]any, error) { return in, nil })
	v, err := abi.Unmarshal([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	var ended flow.CallResult
	hooks := p.Hooks()
	hooks.AfterTool = nil
	runner, err := flow.NewRunner(&flow.Agent{Name: "agent", Tools: []flow.Tool{probe}}, r.store, flow.Config{Artifacts: r.artifacts, Memory: r, Now: func() time.Time { return r.clock },
		Hooks: []flow.Hooks{hooks}, Observer: flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { ended = c }}})
	if err != nil {
		t.Fatal(err)
	}
	var actions session.Actions
	for ev, err := range runner.Call(t.Context(), r.key, flow.DirectCall{Tool: "probe", Args: v.(map[string]any)}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(ev.Responses()) > 0 {
			actions = ev.Actions
		}
	}
	r.end(t, res, ended, actions)
	return *res
}

// end reads how a call ended.
func (r *real) end(t *testing.T, res *guesttest.Result, ended flow.CallResult, actions session.Actions) {
	t.Helper()
	receipt, _ := ended.Receipt.(host.Receipt)
	res.Code, res.HostCalls, res.Used = ended.Code, receipt.HostCalls, receipt.Used
	if ended.Err != nil {
		res.Message, _ = ended.Response["error"].(string)
		if failed, ok := errors.AsType[*plugins.FailError](ended.Err); ok {
			res.Fail = failed.Code
		}
	} else if ended.Response != nil {
		var err error
		if res.Value, err = abi.Marshal(ended.Response); err != nil {
			t.Fatal(err)
		}
	}
	res.Transfer, res.Escalate, res.SkipSummary = actions.TransferToAgent, actions.Escalate, actions.SkipSummarization
	for _, c := range actions.RequestedConfirmations {
		payload, err := abi.Marshal(c.Payload)
		if err != nil {
			t.Fatal(err)
		}
		res.Asked = &guest.Confirmation{Hint: c.Hint, Payload: payload}
	}
}

// kept returns what is kept after calls, as a Host shows it; temp: state is the run's.
func (r *real) kept(t *testing.T, keys []string) (state, kv, artifacts map[string]string) {
	t.Helper()
	state, kv, artifacts = map[string]string{}, map[string]string{}, map[string]string{}
	sess, err := r.store.Get(t.Context(), r.key)
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range sess.State {
		data, err := abi.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if scope, _ := session.SplitKey(key); scope == session.ScopeSession {
			key = "session:" + key
		}
		if !strings.HasPrefix(key, "temp:") {
			state[key] = string(data)
		}
	}
	for _, key := range keys {
		if data, found, _ := r.kv.Scope(kvScope).Get(t.Context(), key); found {
			kv[key] = string(data)
		}
	}
	names, err := r.artifacts.List(t.Context(), r.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		part, err := r.artifacts.Load(t.Context(), r.key, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		artifacts[name] = part.Text
		if part.InlineData != nil {
			artifacts[name] = string(part.InlineData.Data)
		}
	}
	return state, kv, artifacts
}

// shown is a map without the state of a run.
func shown(m map[string]string) map[string]string {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, "temp:") })
	if out == nil {
		out = map[string]string{}
	}
	return out
}

// keysOf returns the keys of kv that a script names.
func keysOf(h *guesttest.Host, more ...string) []string {
	keys := append(slices.Collect(maps.Keys(h.KV)), more...)
	slices.Sort(keys)
	return slices.Compact(keys)
}
