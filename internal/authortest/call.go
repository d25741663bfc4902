package authortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A Bench says where cases find their files.
type Bench struct {
	Dir     string // the folder of the file of tests; other paths are relative to it
	Update  bool   // snapshots become what was got
	Missing bool   // a snapshot that is not there is an error, and not written
}

// Run runs the cases whose names match, nil for all, and reports each when it has
// ended. Then each tool that used a grant is called once more as in the first such
// case, without any: it must end with a result or with a failure of its own, because a
// refused host call is a value. twin reports that. Run fails only if the module
// cannot be used at all.
func (c *Cases) Run(ctx context.Context, module *host.Module, b Bench, match func(name string) bool, report, twin func(Result)) error {
	twins := map[string]toolCase{}
	for _, t := range c.cases {
		if match != nil && !match(t.name) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r := &caseRun{Bench: b, module: module, toolCase: t, res: &Result{File: c.File, Line: t.line, Name: t.name}}
		if err := r.run(ctx); err != nil {
			return fmt.Errorf("%s:%d: case %q: %w", c.File, t.line, t.name, err)
		}
		r.compare(ctx)
		if _, there := twins[t.tool]; !there && len(r.receipt.Used) > 0 && !t.grants.Empty() {
			twins[t.tool] = t
		}
		r.res.OK = len(r.res.Problems) == 0
		report(*r.res)
	}
	for _, tool := range slices.Sorted(maps.Keys(twins)) {
		t := twins[tool]
		t.grants = capability.Set{}
		r := &caseRun{Bench: b, module: module, toolCase: t, res: &Result{File: c.File, Line: t.line, Name: t.name}}
		if err := r.run(ctx); err != nil {
			return err
		}
		if code := r.ended.Code; code != abi.OK && code != abi.GuestError {
			r.res.problem("without grants", "a result or a failure of its own", string(code)+": "+r.message())
		}
		r.res.OK = len(r.res.Problems) == 0
		twin(*r.res)
	}
	return nil
}

// A caseRun is one call.
type caseRun struct {
	Bench
	toolCase
	module *host.Module
	res    *Result

	store     *session.Memory
	key       session.Key
	artifacts *flow.MemoryArtifacts
	kv        *rowKV
	cassettes *host.Cassettes
	ended     flow.CallResult
	receipt   host.Receipt
	acts      session.Actions

	mu     sync.Mutex
	denied []string
	logs   []string
	chunks []string
}

func (r *caseRun) file(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.Dir, filepath.FromSlash(name))
}

// run makes the call, with what the case sets up and nothing else.
func (r *caseRun) run(ctx context.Context) error {
	r.key = session.Key{App: "plugin-test", User: "author", ID: "s-1"}
	r.kv = &rowKV{clock: r.now}
	r.kv.reset(r.toolCase.kv)
	r.store, r.artifacts = session.NewMemory(), flow.NewMemoryArtifacts()
	state := map[string]any{}
	for key, value := range r.state {
		stored, _ := stateKey(key) // checked
		v, err := abi.Unmarshal(value)
		if err != nil {
			return err
		}
		state[stored] = v
	}
	if _, err := r.store.Create(ctx, r.key, state); err != nil {
		return err
	}
	for name, path := range r.toolCase.artifacts {
		data, err := os.ReadFile(r.file(path))
		if err != nil {
			return err
		}
		part := genai.NewPartFromBytes(data, "application/octet-stream")
		if utf8.Valid(data) {
			part = genai.NewPartFromText(string(data))
		}
		if _, err := r.artifacts.Save(ctx, r.key, name, part); err != nil {
			return err
		}
	}
	runner, err := r.runner()
	if err != nil {
		return err
	}
	args := r.args
	if r.raw != nil {
		v, err := abi.Unmarshal([]byte(*r.raw))
		object, ok := v.(map[string]any)
		if err == nil && !ok {
			err = errors.New("not an object")
		}
		if err != nil { // no model can send this
			r.ended = flow.CallResult{Code: abi.ArgsInvalid, Err: err}
			return nil
		}
		args = object
	}
	for ev, err := range runner.Call(ctx, r.key, flow.DirectCall{Tool: r.tool, Args: args}) {
		if err != nil {
			return err
		}
		if len(ev.Responses()) > 0 {
			r.acts = ev.Actions
		}
	}
	r.receipt, _ = r.ended.Receipt.(host.Receipt)
	r.res.Fuel, r.res.WallUS = r.receipt.Fuel, r.receipt.WallUS
	if r.ended.Ran {
		r.res.Calls = 1
	}
	return nil
}

// runner returns a runner of an agent that has nothing but the plugin.
func (r *caseRun) runner() (*flow.Runner, error) {
	var err error
	r.cassettes = &host.Cassettes{} // nothing is recorded
	if r.http != "" {
		if r.cassettes, err = host.OpenCassettes(r.file(r.http)); err != nil {
			return nil, err
		}
	}
	secrets, err := host.NewSecrets(r.secrets)
	if err != nil {
		return nil, err
	}
	now := func() time.Time { return r.now }
	limits := host.DefaultLimits(abi.KindTool).Narrow(host.Asked(r.module.Manifest().Limits)).Narrow(r.limits)
	plugin, err := plugins.New(r.module, plugins.Config{Grants: r.grants, Ceiling: r.grants, Limits: limits, Values: r.config, Egress: host.NewEgress(r.cassettes),
		Secrets: secrets, KV: r.kv, Now: now, Seed: r.seed, Logger: slog.New(said{r}), Trace: r.hostCall, Chunk: r.chunk})
	if err != nil {
		return nil, err
	}
	return flow.NewRunner(&flow.Agent{Name: "plugin_test", Tools: plugin.Tools()}, r.store, flow.Config{Artifacts: r.artifacts, Now: now,
		Observer: flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { r.ended = c }}})
}

// hostCall keeps host calls that were refused: by the capability that was missing,
// or else by what was asked.
func (r *caseRun) hostCall(_, _ string, c host.HostCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch c.Code {
	case abi.CapabilityDenied:
		r.denied = append(r.denied, c.Need)
	case abi.EgressDenied, abi.NoRecordedAnswer:
		r.denied = append(r.denied, fmt.Sprintf("%s %s", c.Code, c.Detail))
	}
}

// chunk keeps what a streaming tool says.
func (r *caseRun) chunk(_, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chunks = append(r.chunks, text)
}

// said keeps what a guest logs.
type said struct{ run *caseRun }

func (s said) Enabled(context.Context, slog.Level) bool { return true }
func (s said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s said) WithGroup(string) slog.Handler            { return s }
func (s said) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			s.run.mu.Lock()
			s.run.logs = append(s.run.logs, a.Value.String())
			s.run.mu.Unlock()
		}
		return true
	})
	return nil
}

// stateKey returns the key of a state value in a session. Tests spell it as grants
// do, with its scope.
func stateKey(key string) (string, error) {
	scope, name, ok := strings.Cut(key, ":")
	if !ok || name == "" || !slices.Contains([]string{"session", "user", "app", "temp"}, scope) {
		return "", fmt.Errorf("key %q: session:, user:, app: or temp: must come first", key)
	}
	return strings.TrimPrefix(key, "session:"), nil
}

// message returns what is said of a call that failed: to the model, and to the
// operator.
func (r *caseRun) message() string {
	if ce, ok := errors.AsType[*flow.CallError](r.ended.Err); ok && ce.Text != "" {
		return ce.Text
	}
	if r.ended.Err != nil {
		return r.ended.Err.Error()
	}
	return ""
}

// result returns what the model is shown of a call that succeeded.
func (r *caseRun) result() (any, error) {
	data, err := abi.Marshal(r.ended.Response)
	if err != nil {
		return nil, err
	}
	return abi.Unmarshal(data)
}

// wantResult returns a wanted result in the form that the model is shown: what is
// no object is one with the member result.
func wantResult(v any) any {
	if _, ok := v.(map[string]any); ok || v == nil {
		return v
	}
	return map[string]any{"result": v}
}

// snapshot compares the result with a file, or writes that.
func (r *caseRun) snapshot(got any) {
	var doc json.RawMessage
	data, err := abi.Marshal(got)
	if err == nil {
		doc, err = json.MarshalIndent(json.RawMessage(data), "", "  ")
	}
	path := r.file(r.want.snapshot)
	var have []byte
	if err == nil && !r.Update {
		have, err = os.ReadFile(path)
	}
	switch missing := errors.Is(err, os.ErrNotExist); {
	case r.Update || missing && !r.Missing:
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			err = os.WriteFile(path, append(doc, '\n'), 0o666)
		}
	case err == nil:
		canonical, wrong := abi.Canonical(have)
		if err = wrong; err == nil && string(canonical) != string(data) {
			r.res.problem("snapshot", string(canonical), string(data))
		}
	}
	if err != nil {
		r.res.problem("snapshot", "", err.Error())
	}
}
