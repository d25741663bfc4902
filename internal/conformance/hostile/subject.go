package hostile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A subject is the product as a case sees it: an engine, its audit record, and the
// log of its guests.
type subject struct {
	engine *host.Engine
	audit  *audit.Memory
	logs   logs
	echo   []flow.Tool // of another tenant
}

// logs keeps what guests log.
type logs struct {
	mu      sync.Mutex
	records int
	bytes   int
	broken  string // the first record that is not one line
}

// Enabled, Handle, WithAttrs and WithGroup implement [slog.Handler].
func (l *logs) Enabled(context.Context, slog.Level) bool { return true }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			text := a.Value.String()
			l.records++
			l.bytes += len(text)
			if l.broken == "" && !oneLine(text) {
				l.broken = text
			}
		}
		return true
	})
	return nil
}

func (l *logs) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logs) WithGroup(string) slog.Handler      { return l }

func openSubject(ctx context.Context, c Corpus) (*subject, error) {
	s := &subject{audit: audit.NewMemory()}
	var err error
	if s.engine, err = host.Open(ctx, host.Config{Audit: s.audit}); err != nil {
		return nil, err
	}
	if s.echo, err = s.named(ctx, c, "echo", plugins.Config{}); err == nil {
		err = s.callEcho(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("echo: %w", err), s.engine.Close())
	}
	return s, nil
}

// named makes tools of a lawful module of the corpus.
func (s *subject) named(ctx context.Context, c Corpus, name string, cfg plugins.Config) ([]flow.Tool, error) {
	wasm, err := c.named(name)
	if err != nil {
		return nil, err
	}
	module, err := s.engine.Load(ctx, wasm)
	if err != nil {
		return nil, err
	}
	plugin, err := plugins.New(module, cfg)
	if err != nil {
		return nil, err
	}
	return plugin.Tools(), nil
}

// callEcho makes a lawful call and checks the answer.
func (s *subject) callEcho(ctx context.Context) error {
	const quiet = "å quiet ∞ one"
	a := &attempt{tenant: "neighbour", tool: "echo", tools: s.echo, args: map[string]any{"neighbour": quiet}}
	if err := s.run(ctx, a); err != nil {
		return err
	}
	if a.code != abi.OK || a.response["neighbour"] != quiet {
		return fmt.Errorf("%s: answers %s", a.code, show(a.response))
	}
	return nil
}

// neighbour calls echo every 50 ms until stop, and then says what went wrong first.
func (s *subject) neighbour(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if err := s.callEcho(context.WithoutCancel(ctx)); err != nil && failed == nil {
				failed = err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() error {
		cancel()
		wg.Wait()
		return failed
	}
}

// An upload is a module that was accepted, as what it is used for.
type upload struct {
	plugin *plugins.Plugin
	guard  flow.Guard
	gated  error // why the gates for guards do not let it in
}

// A refusal is an upload that was not accepted.
type refusal struct {
	code abi.Code
	text string
}

func (r *refusal) Error() string { return string(r.code) + ": " + r.text }

// upload gives bytes to the product, as an operator does who wants to use them.
func (s *subject) upload(ctx context.Context, k *Case, wasm []byte) (*upload, error) {
	module, err := s.engine.Load(ctx, wasm)
	if rejected, ok := errors.AsType[*host.RejectError](err); ok {
		return nil, &refusal{rejected.Reasons[0].Code, rejected.Error()}
	}
	if err != nil {
		return nil, err
	}
	if k.Stage == StageGuard {
		return s.guard(ctx, k, module)
	}
	grants := grantable(k.Grants)
	plugin, err := plugins.New(module, plugins.Config{Grants: grants, Ceiling: grants, Limits: k.Limits.host(),
		Egress: host.NewEgress(nil), Audit: s.audit, Logger: slog.New(&s.logs)})
	if err != nil {
		return nil, &refusal{abi.ModuleABI, err.Error()}
	}
	return &upload{plugin: plugin}, nil
}

// grantable returns the grants that an operator can give at all.
func grantable(lines []string) capability.Set {
	var can []string
	for _, line := range lines {
		if _, err := capability.Parse(line); err == nil {
			can = append(can, line)
		}
	}
	set, err := capability.ParseSet(can)
	if err != nil {
		return capability.Set{}
	}
	return set
}

func (s *subject) guard(ctx context.Context, k *Case, module *host.Module) (*upload, error) {
	g, err := policies.New(ctx, module, policies.Config{Limits: k.Limits.host(), Logger: slog.New(&s.logs)})
	if err == nil {
		return &upload{guard: g}, nil
	}
	return &upload{guard: &ungated{module: module, limits: k.Limits.host()}, gated: err}, nil
}
