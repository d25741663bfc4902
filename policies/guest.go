package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Config says what an app makes of a guard of a module.
type Config struct {
	Name     string          // in the app; default the guard's own
	Guard    string          // in the manifest; may be empty if there is only one
	Settings json.RawMessage // checked here; empty for a guard without settings
	Limits   host.Limits     // a zero field: what the manifest asks, at most the default of guards
	Logger   *slog.Logger    // gets what the guest logs; nil: silent

	// KV keeps the guard's counters and values, apart for every tenant, app and
	// guard; nil: a guard that asks for kv is refused it. What it answers is
	// recorded in Audit, so that a judgement can be made again.
	KV    host.KVStore
	Audit audit.Sink // nil: nothing is recorded

	// Spent is told what each call of the guest used. It must not block, and is
	// called at the same time by judgements at the same time. May be nil.
	Spent func(host.Receipt)
}

// A Guard is a guest that judges. It is safe for concurrent use.
type Guard struct {
	module  *host.Module
	guard   abi.Guard
	cfg     Config
	grants  capability.Set
	digest  string // of the settings
	version string
}

// New makes a guard of a module and passes it through three gates: its settings
// must fit their schema, the guest's own check must accept them, and in each
// phase it must give a well-formed verdict on a built-in question within its
// limits. A gate that fails is an error: an app with a guard that does not work
// is refused, and the guard is never left out.
func New(ctx context.Context, module *host.Module, cfg Config) (*Guard, error) {
	m := module.Manifest()
	g := &Guard{module: module, cfg: cfg}
	for _, candidate := range m.Guards {
		if candidate.Name == cfg.Guard || cfg.Guard == "" && len(m.Guards) == 1 {
			g.guard = candidate
		}
	}
	if g.guard.Name == "" {
		return nil, fmt.Errorf("guard %s: module %s %s has no guard %q", cfg.Name, m.Name, module.Digest().Short(), cfg.Guard)
	}
	g.cfg.Name = cmp.Or(cfg.Name, g.guard.Name)
	g.cfg.Limits = cfg.Limits.Or(host.DefaultLimits(abi.KindGuard).Narrow(host.Asked(m.Limits)))
	if g.cfg.Logger == nil {
		g.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	requests, err := capability.ParseSet(m.Requests)
	if err != nil {
		return nil, fmt.Errorf("guard %s: manifest: %w", g.cfg.Name, err)
	}
	for _, line := range requests.Lines() {
		if !host.GuardMay(line) {
			return nil, fmt.Errorf("guard %s: asks %s, which a guard may not have", g.cfg.Name, line)
		}
	}
	g.grants = requests
	if err := g.settings(ctx); err != nil {
		return nil, fmt.Errorf("guard %s: %w", g.cfg.Name, err)
	}
	g.version = module.Digest().String() + " " + g.guard.Name + " " + g.digest
	for _, phase := range g.guard.Phases {
		// A question nobody asked leaves nothing behind.
		if _, err := g.judge(ctx, abi.DryQuestion(phase), host.NewMemoryKV(nil).Scope(host.KVScope{})); err != nil {
			return nil, fmt.Errorf("guard %s: dry verdict in phase %s: %w", g.cfg.Name, phase, g.late(err))
		}
	}
	return g, nil
}

// A SettingsError reports settings that a guard cannot work with. It wraps a
// [flow.MismatchError] where one value is of the wrong type, or not known.
type SettingsError struct{ Err error }

func (e *SettingsError) Error() string { return "settings: " + e.Err.Error() }

// Unwrap returns what is wrong with them.
func (e *SettingsError) Unwrap() error { return e.Err }

func (g *Guard) settings(ctx context.Context) error {
	if len(g.guard.Settings) == 0 {
		if len(g.cfg.Settings) > 0 {
			return &SettingsError{errors.New("it takes none")}
		}
		g.digest = abi.Digest(nil)
		return nil
	}
	doc, err := abi.Canonical([]byte(cmp.Or(string(g.cfg.Settings), "{}")))
	if err != nil {
		return &SettingsError{err}
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(g.guard.Settings, &s); err != nil {
		return fmt.Errorf("settings schema: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return fmt.Errorf("settings schema: %w", err)
	}
	if err := flow.Validate(resolved, doc); err != nil {
		if found := flow.FindMismatch(resolved, doc); found != nil && found.Have != "" {
			err = found
		}
		return &SettingsError{err}
	}
	g.cfg.Settings, g.digest = doc, abi.Digest(doc)
	if !g.guard.Check {
		return nil
	}
	input, err := abi.Marshal(abi.SettingsCall{Format: abi.Version, Kind: abi.KindSettings, Guard: g.guard.Name, Settings: doc})
	if err != nil {
		return err
	}
	output, err := g.call(ctx, abi.KindSettings, input, time.Now(), nil)
	if err != nil {
		return fmt.Errorf("check of its settings: %w", g.late(err))
	}
	var answer abi.SettingsAnswer
	if err := abi.Decode(output, &answer); err != nil {
		return fmt.Errorf("check of its settings: %w", err)
	}
	if answer.Format != abi.Version {
		return fmt.Errorf("check of its settings: format %d: want %d", answer.Format, abi.Version)
	}
	if answer.Error != "" {
		return &SettingsError{errors.New(answer.Error)}
	}
	return nil
}

// late adds to the error of a gate how long the guard had, if it took longer.
func (g *Guard) late(err error) error {
	if e, ok := errors.AsType[*host.GuestError](err); ok && e.Code == abi.GuestTimeout {
		return fmt.Errorf("no verdict: %s passed: %w", g.cfg.Limits.Wall, err)
	}
	return err
}

// Name implements [flow.Guard].
func (g *Guard) Name() string { return g.cfg.Name }

// Version implements [flow.Guard]: the module's digest and the one of the settings.
func (g *Guard) Version() string { return g.version }

// Phases implements [flow.Guard].
func (g *Guard) Phases() []abi.Phase { return g.guard.Phases }

// Mutates implements [flow.Guard].
func (g *Guard) Mutates() []abi.Phase { return g.guard.Mutates }

// Module returns the guard's module.
func (g *Guard) Module() *host.Module { return g.module }

// Judge implements [flow.Guard].
func (g *Guard) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	if g.cfg.KV == nil || !g.grants.Has("kv") {
		return g.judge(ctx, q, nil)
	}
	kv := &kvRecorder{kv: g.cfg.KV.Scope(host.KVScope{Tenant: q.Tenant, App: q.App, Owner: "guard " + g.cfg.Name})}
	verdict, err := g.judge(ctx, q, kv)
	if kv.full {
		return abi.Verdict{}, fmt.Errorf("kv: keys and values of more than %d bytes in one judgement", maxKVRecord)
	}
	if len(kv.answers) == 0 || g.cfg.Audit == nil {
		return verdict, err
	}
	record := audit.Record{Tenant: q.Tenant, Session: q.Session, Run: flow.RecordedRun(ctx, q), Actor: "guard:" + g.cfg.Name, Action: "guard.kv", Target: g.cfg.Name,
		Module: g.Version(), ArgsSHA256: q.DocumentSHA256}
	if q.Call != nil {
		record.Call = q.Call.ID
	}
	answers, jsonErr := abi.Marshal(kv.answers)
	record.Why = string(answers)
	if appendErr := g.cfg.Audit.Append(context.WithoutCancel(ctx), record); err == nil {
		err = cmp.Or(jsonErr, appendErr)
	}
	if err != nil {
		return abi.Verdict{}, err
	}
	return verdict, nil
}

// JudgeAgain judges a question as it was judged before: kv gives the recorded
// answers and keeps nothing. answers is the text of the audit record guard.kv, or
// empty if there was none. A guard that asks kv something else is in error.
func (g *Guard) JudgeAgain(ctx context.Context, q *abi.Question, answers []byte) (abi.Verdict, error) {
	kv := &kvReplay{}
	if len(answers) > 0 {
		if err := abi.Decode(answers, &kv.left); err != nil {
			return abi.Verdict{}, fmt.Errorf("answers of kv: %w", err)
		}
	}
	verdict, err := g.judge(ctx, q, kv)
	if kv.strayed != nil {
		return abi.Verdict{}, kv.strayed
	}
	return verdict, err
}

func (g *Guard) judge(ctx context.Context, question *abi.Question, kv host.KV) (abi.Verdict, error) {
	q := *question
	q.Guard, q.Settings = g.guard.Name, g.cfg.Settings
	now, err := time.Parse(time.RFC3339Nano, q.Now)
	if err != nil {
		return abi.Verdict{}, fmt.Errorf("question: now: %w", err)
	}
	input, err := abi.Marshal(&q)
	if err != nil {
		return abi.Verdict{}, fmt.Errorf("question: %w", err)
	}
	output, err := g.call(ctx, abi.KindGuard, input, now, kv)
	if err != nil {
		return abi.Verdict{}, err
	}
	return abi.ParseVerdict(output, &q)
}

func (g *Guard) call(ctx context.Context, kind abi.Kind, input []byte, now time.Time, kv host.KV) ([]byte, error) {
	reply, err := g.module.Call(ctx, &host.Call{
		Kind: kind, Export: cmp.Or(g.guard.Export, abi.ExportCall), Input: input, Grants: g.grants, Limits: g.cfg.Limits,
		Now: now, Seed: []byte(abi.Digest(input)),
		Access: host.Access{KV: kv, Log: func(_, message string) { g.cfg.Logger.Info("guest says", "guard", g.cfg.Name, "text", message) }},
	})
	if reply != nil && len(reply.Receipt.Denied) > 0 {
		g.cfg.Logger.Warn("guard was refused a host call", "guard", g.cfg.Name, "denied", reply.Receipt.Denied)
	}
	failed, isGuest := errors.AsType[*host.GuestError](err)
	if g.cfg.Spent != nil && reply != nil {
		g.cfg.Spent(reply.Receipt)
	} else if g.cfg.Spent != nil && isGuest {
		g.cfg.Spent(failed.Receipt)
	}
	if err != nil {
		if isGuest && failed.Detail != "" {
			return nil, fmt.Errorf("%w: %s", err, failed.Detail)
		}
		return nil, err
	}
	return reply.Output, nil
}
