package conformance

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

//go:embed guest/*.go
var guestSource embed.FS

// Guests runs every handler and hook as a guest of its own: the scripted guest with
// a manifest written for it. What a guest received is known from what it says on
// its log, so a guest that does not run has left no trace of a call.
type Guests struct {
	modules *modules
	grants  func(asked capability.Set) capability.Set // what is granted of what a script needs
}

// OpenGuests builds the scripted guest from the source that this binary carries,
// which needs the Go toolchain, and opens an engine for it. Its maker closes it.
func OpenGuests(ctx context.Context, build guestbuild.Options, engine host.Config) (*Guests, error) {
	code, err := buildGuest(ctx, build)
	if err != nil {
		return nil, fmt.Errorf("scripted guest: %w", err)
	}
	e, err := host.Open(ctx, engine)
	if err != nil {
		return nil, err
	}
	return &Guests{newModules(e, code), grantAll}, nil
}

func grantAll(asked capability.Set) capability.Set { return asked }

// Close frees the engine. The guests must not be used any more.
func (g *Guests) Close() error { return g.modules.engine.Close() }

// buildGuest builds the scripted guest in a directory that is gone afterwards.
func buildGuest(ctx context.Context, o guestbuild.Options) ([]byte, error) {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, err := fs.Sub(guestSource, "guest")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, source); err != nil {
		return nil, err
	}
	if err := sdk.Copy(filepath.Join(dir, "sdk")); err != nil {
		return nil, err
	}
	mod := fmt.Sprintf("module guest\n\ngo 1.26.0\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => ./sdk\n", sdk.ModulePath)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o666); err != nil {
		return nil, err
	}
	built, err := guestbuild.Build(ctx, dir, o)
	return built.Wasm, err
}

// A guestTool is a tool of a plugin with what a vector adds to it on the host's
// side: a predicate, and how it is declared.
type guestTool struct {
	flow.Handler
	spec flow.Spec
}

func (t *guestTool) Spec() *flow.Spec { return &t.spec }

// A guestStream is the same for a streaming tool.
type guestStream struct {
	flow.Streamer
	spec flow.Spec
}

func (t *guestStream) Spec() *flow.Spec { return &t.spec }

func (g *Guests) tool(ctx context.Context, spec flow.Spec, t *toolSpec, r *recorder) (flow.Tool, error) {
	do := t.Do
	if t.Kind == "streaming" {
		do = streamOps(t)
	}
	p, err := g.plugin(ctx, &abi.Manifest{Tools: []abi.Tool{{Name: spec.Name, Description: spec.Description, Input: t.InputSchema, Output: t.OutputSchema,
		Effects: spec.Effects, LongRunning: spec.LongRunning, Streaming: t.Kind == "streaming", Confirm: spec.Confirm}}}, do, r, func(said []byte) error {
		var call abi.ToolCall
		if err := abi.Decode(said, &call); err != nil {
			return err
		}
		args, err := abi.Unmarshal(call.Args)
		if err != nil {
			return err
		}
		r.toolCall(call.Tool, args, call.ID)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", spec.Name, err)
	}
	made := p.Tools()[0]
	full := *made.Spec()
	full.ConfirmIf, full.Undeclared, full.Defers = spec.ConfirmIf, spec.Undeclared, spec.Defers
	if stream, ok := made.(flow.Streamer); ok {
		return &guestStream{stream, full}, nil
	}
	return &guestTool{made.(flow.Handler), full}, nil
}

// streamOps writes a streaming tool as operations.
func streamOps(t *toolSpec) []map[string]any {
	var do []map[string]any
	for i, text := range t.Chunks {
		if t.ErrorAfter != nil && i == *t.ErrorAfter {
			break
		}
		if t.PanicAfter != nil && i == *t.PanicAfter {
			return append(do, map[string]any{"panic": t.Panic})
		}
		do = append(do, map[string]any{"emit": text})
	}
	if t.ErrorAfter != nil {
		do = append(do, map[string]any{"return_error": t.Error})
	}
	return do
}

// plugin makes a plugin of the scripted guest with a manifest, which it completes:
// it asks for what the script needs, and is granted what g grants of that.
func (g *Guests) plugin(ctx context.Context, m *abi.Manifest, do []map[string]any, r *recorder, said func([]byte) error) (*plugins.Plugin, error) {
	m.ABI, m.Name, m.Version, m.Requests = abi.Version, "scripted", "1", needs(do)
	module, err := g.modules.load(ctx, m)
	if err != nil {
		return nil, err
	}
	asked, err := capability.ParseSet(m.Requests)
	if err != nil {
		return nil, err
	}
	script, err := abi.Marshal(do)
	if err != nil {
		return nil, err
	}
	granted := g.grants(asked)
	// The limits are wide: what is slow here is the machine, not the script.
	limits := host.Limits{MemoryBytes: 64 << 20, Wall: 30 * time.Second, LogBytes: 1 << 20}
	hooks := plugins.HookConfig{Limits: limits}
	if len(m.Hooks) > 0 {
		hooks.Grants = granted
	}
	return plugins.New(module, plugins.Config{Grants: granted, Ceiling: granted, Limits: limits, Hooks: hooks,
		Values: map[string]string{"do": string(script)},
		Logger: slog.New(witness(func(line string) { r.heard(line, said) })),
		Trace: func(by, _ string, c host.HostCall) {
			if c.Name != "log" {
				r.effect(Effect{By: by, Call: c.Name, Detail: c.Detail, Code: c.Code})
			}
		}})
}

// modules are one guest's code with many manifests.
type modules struct {
	engine *host.Engine
	code   []byte // without a manifest

	mu     sync.Mutex
	loaded map[string]*host.Module // by manifest
}

func newModules(engine *host.Engine, code []byte) *modules {
	return &modules{engine: engine, code: code, loaded: map[string]*host.Module{}}
}

// load returns the guest with a manifest.
func (ms *modules) load(ctx context.Context, m *abi.Manifest) (*host.Module, error) {
	manifest, err := m.Encode()
	if err != nil {
		return nil, err
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if module := ms.loaded[string(manifest)]; module != nil {
		return module, nil
	}
	wasm, err := wasmbin.SetCustom(ms.code, abi.ManifestSection, manifest)
	if err != nil {
		return nil, err
	}
	module, err := ms.engine.Load(ctx, wasm)
	if err != nil {
		return nil, err
	}
	ms.loaded[string(manifest)] = module
	return module, nil
}

// needs lists the capabilities that a script needs, sorted.
func needs(do []map[string]any) []string {
	lines := map[string]bool{"log": true}
	for _, op := range do {
		for name, v := range op {
			switch name {
			case "state_set":
				for key := range v.(map[string]any) {
					lines["state write "+scoped(key)] = true
				}
			case "return_state":
				for _, key := range v.([]any) {
					lines["state read "+scoped(key.(string))] = true
				}
			case "save_artifact":
				lines["artifact write "+v.(map[string]any)["name"].(string)] = true
			case "ask_confirmation":
				lines["confirm"] = true
			case "transfer_to":
				lines["transfer"] = true
			case "escalate", "emit":
				lines[name] = true
			case "skip_summarization":
				lines["skip-summary"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(lines))
}

// heard takes a line that a guest said on its log. Only the line that begins with
// "received " is evidence.
func (r *recorder) heard(line string, said func([]byte) error) {
	document, ok := strings.CutPrefix(line, "received ")
	if !ok {
		return
	}
	if err := said([]byte(document)); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bad = fmt.Errorf("guest says %q: %w", line, err)
	}
}

// A witness is a log handler that passes on what guests say.
type witness func(line string)

// Enabled implements [slog.Handler].
func (w witness) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (w witness) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			w(a.Value.String())
		}
		return true
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (w witness) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements [slog.Handler].
func (w witness) WithGroup(string) slog.Handler { return w }
