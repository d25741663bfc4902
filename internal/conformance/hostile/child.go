package hostile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// RunCase runs one case of a corpus in this process and returns the first
// difference from what it expects, or nothing. The process must be one that may
// die, and should do nothing else: see [Run]. An error says that the case could not
// be run.
func RunCase(ctx context.Context, c Corpus, id string) (difference string, err error) {
	k, err := readCase(filepath.Join(c.Dir, "cases", filepath.Base(id)+".json"))
	if err != nil {
		return "", err
	}
	wasm, err := c.module(k)
	if err != nil {
		return "", err
	}
	wasm = k.packed(wasm)
	s, err := openSubject(ctx, c)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.engine.Close()) }()
	t := &trial{subject: s, Case: k, wasm: wasm}
	if k.Stage == StageGuard {
		if t.witness, err = s.witness(ctx, c); err != nil {
			return "", err
		}
	}
	if err := t.prepare(); err != nil {
		return "", err
	}
	before := takeLevel()
	measured := forgetPeak()
	difference, err = t.run(ctx)
	if err != nil || difference != "" {
		return difference, err
	}
	grown := residentPeak() - before.resident
	t.drop()
	if d := before.back(ctx, len(wasm)); d != "" {
		return "not as it was before: " + d, nil
	}
	if err := s.callEcho(ctx); err != nil {
		return fmt.Sprintf("the next lawful call: %v", err), nil
	}
	switch most := k.Expect.MaxRSSMB << 20; {
	case !measured || before.resident < 0:
		return "resident memory cannot be measured here", nil
	case grown > most:
		return fmt.Sprintf("resident memory grew by %d MiB, at most %d", grown>>20, k.Expect.MaxRSSMB), nil
	}
	return "", nil
}

// A trial is a case in progress.
type trial struct {
	*subject
	*Case
	wasm    []byte
	witness *guest
	calls   []*attempt // in order
	specs   []*callSpec
}

// prepare makes the inputs, so that making them is not measured.
func (t *trial) prepare() error {
	specs := []*callSpec{&t.Call}
	if len(t.Calls) > 0 {
		specs = nil
	}
	for i := range t.Calls {
		specs = append(specs, &t.Calls[i])
	}
	tenants := t.Tenants
	if len(tenants) == 0 {
		tenants = []string{"tenant"}
	}
	if t.Stage == StageUpload {
		return nil
	}
	for range max(t.Repeat, t.Parallel, 1) {
		for _, spec := range specs {
			for _, tenant := range tenants {
				args, err := spec.arguments(len(t.calls))
				if err != nil {
					return err
				}
				t.calls = append(t.calls, &attempt{tenant: tenant, tool: toolName(spec.Export), number: len(t.calls), args: args})
				t.specs = append(t.specs, spec)
			}
		}
	}
	return nil
}

// drop lets go of inputs and outputs.
func (t *trial) drop() { t.calls, t.specs, t.wasm = nil, nil, nil }

func (t *trial) run(ctx context.Context) (string, error) {
	stop := t.neighbour(ctx)
	difference, err := t.stages(ctx)
	if stopped := stop(); stopped != nil && difference == "" {
		difference = fmt.Sprintf("the neighbour: %v", stopped)
	}
	return difference, err
}

func (t *trial) stages(ctx context.Context) (string, error) {
	uploads := map[string]*upload{}
	for _, tenant := range append(t.Tenants, "tenant") {
		up, refused, difference, err := t.uploaded(ctx)
		if err != nil || difference != "" || refused {
			return difference, err
		}
		uploads[tenant] = up
	}
	switch t.Stage {
	case StageCall:
		for _, a := range t.calls {
			a.tools = uploads[a.tenant].plugin.Tools()
		}
		return t.callAll(ctx)
	case StageGuard:
		return t.guardAll(ctx, uploads["tenant"])
	}
	return "", nil
}

// uploaded uploads the module, and compares unless there is more to come.
func (t *trial) uploaded(ctx context.Context) (up *upload, refused bool, difference string, err error) {
	a := &attempt{code: "ok"}
	collect := func(f func()) { f() }
	var pause int64
	if t.Stage == StageUpload && t.Expect.GCPauseMS > 0 {
		collect = func(f func()) { pause = collectDuring(f).Milliseconds() }
	}
	collect(func() {
		start := time.Now()
		up, err = t.upload(ctx, t.Case, t.wasm)
		a.took = time.Since(start)
	})
	no, isRefused := errors.AsType[*refusal](err)
	if err != nil && !isRefused {
		return nil, false, "", err
	}
	if !isRefused && t.Stage != StageUpload {
		return up, false, "", nil
	}
	if isRefused {
		a.code, a.text = no.code, no.text
	}
	if difference = t.Expect.outcome(nil, a.code, a.text); difference == "" {
		difference = t.bounds(a.took.Milliseconds(), pause)
	}
	if difference == "" && isRefused && t.Stage == StageUpload {
		difference = t.Expect.audited(t.actions())
	}
	return up, isRefused, difference, nil
}

// bounds compares times, in milliseconds.
func (t *trial) bounds(took, pause int64) string {
	switch e := &t.Expect; {
	case took > e.MaxWallMS:
		return fmt.Sprintf("took %d ms, at most %d", took, e.MaxWallMS)
	case e.GCPauseMS > 0 && pause > e.GCPauseMS:
		return fmt.Sprintf("a collection took %d ms, at most %d", pause, e.GCPauseMS)
	}
	return ""
}

// actions returns the actions of all audit records so far.
func (s *subject) actions() []string {
	var names []string
	for _, r := range s.audit.Records() {
		names = append(names, r.Action)
	}
	return names
}

// callAll makes the calls and compares each.
func (t *trial) callAll(ctx context.Context) (string, error) {
	var pause int64
	failed := make([]error, len(t.calls))
	one := func(i int) { failed[i] = t.subject.run(ctx, t.calls[i]) }
	if t.Expect.GCPauseMS > 0 {
		one = func(i int) {
			took := collectDuring(func() { failed[i] = t.subject.run(ctx, t.calls[i]) })
			pause = max(pause, took.Milliseconds())
		}
	}
	if t.Parallel > 0 {
		start := time.Now()
		all := func() {
			var wg sync.WaitGroup
			for i := range t.calls {
				wg.Go(func() { failed[i] = t.subject.run(ctx, t.calls[i]) })
			}
			wg.Wait()
		}
		if t.Expect.GCPauseMS > 0 {
			pause = collectDuring(all).Milliseconds()
		} else {
			all()
		}
		if took := time.Since(start).Milliseconds(); took > t.Expect.MaxWallMS {
			return fmt.Sprintf("all together took %d ms, at most %d", took, t.Expect.MaxWallMS), nil
		}
	}
	for i, a := range t.calls {
		if t.Parallel == 0 {
			one(i)
		}
		if failed[i] != nil {
			return "", failed[i]
		}
		difference := t.compare(a, t.specs[i], pause)
		if difference != "" {
			if len(t.calls) > 1 {
				difference = fmt.Sprintf("call %d: %s", i+1, difference)
			}
			return difference, nil
		}
	}
	if first := t.calls[0].receipt.Fuel; t.Expect.FuelEqual {
		for i, a := range t.calls {
			if a.receipt.Fuel != first || first == 0 {
				return fmt.Sprintf("call %d took %d fuel, the first %d", i+1, a.receipt.Fuel, first), nil
			}
		}
	}
	if difference := t.Expect.logged(&t.logs); difference != "" {
		return difference, nil
	}
	return t.Expect.audited(t.actions()), nil
}

func (t *trial) compare(a *attempt, spec *callSpec, pause int64) string {
	difference := t.Expect.outcome(spec.Outcome, a.code, a.text)
	if difference == "" && a.code == "ok" {
		difference = t.Expect.answer(a, spec.Output)
	}
	if difference == "" {
		difference = t.Expect.shown(a)
	}
	took := a.took.Milliseconds()
	if t.Parallel > 0 {
		took = 0 // compared for all together
	}
	if difference == "" {
		difference = t.bounds(took, pause)
	}
	return difference
}
