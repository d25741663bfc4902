package guesttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/internal/native"
)

// A Judgement is what a guard said of a question, as the host takes it.
type Judgement struct {
	Verdict guest.Verdict // denies, without a code, if Err is not nil
	Err     error         // why there is no usable verdict, which denies as policy_unavailable

	HostCalls int
	Denied    []string // capabilities that were missing, in the order of the host calls
	Logs      []string
}

// Judge asks a guard of the plugin, with the operator's settings in JSON, "" for none. As
// when an app is started, the settings are checked and the guard is asked about an
// empty question of each of its phases first; if it fails there, the test does.
//
// What q does not say is filled in: the phase of a guard that has one, a time, which is
// the Now of h, names of agent, user, session, run, tool and call, and an empty document. Its grants are
// texts like those of a manifest.
func (h *Host) Judge(t *testing.T, guard, settings string, q abi.Question) Judgement {
	t.Helper()
	g := h.guard(t, guard)
	if err := g.check(t, settings); err != nil {
		t.Fatalf("guesttest: guard %s: settings: %v", guard, err)
	}
	dry := &Host{Limits: h.Limits}
	for _, phase := range g.offered.Phases {
		question := abi.DryQuestion(phase)
		if j := (fakeGuard{g.module, g.manifest, g.offered, dry, g.settings}).judge(t, question); j.Err != nil {
			t.Fatalf("guesttest: guard %s: dry verdict in phase %s: %v", guard, phase, j.Err)
		}
	}
	if err := g.fill(&q); err != nil {
		t.Fatalf("guesttest: question: %v", err)
	}
	return g.judge(t, &q)
}

// Settings says what is wrong with the operator's settings of a guard, as an app does that
// is started with them: that they do not fit their schema, or what the guard's own check
// says. nil: nothing. What a schema refuses is in the validator's words, see the package.
func (h *Host) Settings(t *testing.T, guard, settings string) error {
	t.Helper()
	return h.guard(t, guard).check(t, settings)
}

// A fakeGuard is one guard of the plugin with its settings.
type fakeGuard struct {
	module   *native.Module
	manifest *abi.Manifest
	offered  *abi.Guard
	host     *Host
	settings json.RawMessage
}

func (h *Host) guard(t *testing.T, name string) *fakeGuard {
	t.Helper()
	module, m := served(t)
	for _, line := range m.Requests {
		if !host.GuardMay(line) {
			t.Fatalf("guesttest: guard %s: asks %s, which a guard may not have", name, line)
		}
	}
	for i := range m.Guards {
		if m.Guards[i].Name == name {
			return &fakeGuard{module: module, manifest: m, offered: &m.Guards[i], host: h}
		}
	}
	t.Fatalf("guesttest: plugin %s has no guard %q", m.Name, name)
	return nil
}

// check takes settings, or says what is wrong with them.
func (g *fakeGuard) check(t *testing.T, settings string) error {
	t.Helper()
	if len(g.offered.Settings) == 0 {
		if settings != "" {
			return errors.New("it takes none")
		}
		return nil
	}
	document, err := abi.Canonical([]byte(cmp.Or(settings, "{}")))
	if err != nil {
		return err
	}
	if err := validate(t, g.offered.Settings, document); err != nil {
		return err
	}
	g.settings = document
	if !g.offered.Check {
		return nil
	}
	input, err := abi.Marshal(abi.SettingsCall{Format: abi.Version, Kind: abi.KindSettings, Guard: g.offered.Name, Settings: document})
	if err != nil {
		return err
	}
	var j Judgement
	output, err := g.call(t, abi.KindSettings, input, g.host.now(), &j)
	if err != nil {
		return err
	}
	var answer abi.SettingsAnswer
	if err := abi.Decode(output, &answer); err != nil {
		return fmt.Errorf("check of its settings: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// fill completes a question.
func (g *fakeGuard) fill(q *abi.Question) error {
	if q.Phase == "" && len(g.offered.Phases) == 1 {
		q.Phase = g.offered.Phases[0]
	}
	if !slices.Contains(g.offered.Phases, q.Phase) {
		return fmt.Errorf("phase %q is none of the guard's: %v", q.Phase, g.offered.Phases)
	}
	q.Format, q.Kind, q.Nonce = abi.Version, abi.KindGuard, cmp.Or(q.Nonce, strings.Repeat("1", 32))
	q.Now = cmp.Or(q.Now, g.host.now().UTC().Format(time.RFC3339Nano))
	q.Agent, q.Session, q.Run, q.Step = cmp.Or(q.Agent, "agent"), cmp.Or(q.Session, "s-1"), cmp.Or(q.Run, "r-1"), cmp.Or(q.Step, 1)
	q.User.ID = cmp.Or(q.User.ID, "u-1")
	document := map[abi.Phase]json.RawMessage{abi.PhaseMessage: q.Message, abi.PhaseRequest: q.Request, abi.PhaseResponse: q.Response, abi.PhaseResult: q.Result}[q.Phase]
	if q.Phase == abi.PhaseCall || q.Phase == abi.PhaseResult {
		call := abi.CallFacts{Known: true}
		if q.Call != nil {
			call = *q.Call
		}
		call.ID, call.Tool, call.Effects = cmp.Or(call.ID, callID), cmp.Or(call.Tool, "tool"), cmp.Or(call.Effects, abi.Once)
		args, err := objectOf(cmp.Or(string(call.Args), "{}"))
		if err != nil {
			return fmt.Errorf("arguments: %w", err)
		}
		call.Args, q.Call = args, &call
		if q.Phase == abi.PhaseCall {
			document = args
		}
	}
	canonical, err := abi.Canonical([]byte(cmp.Or(string(document), "{}")))
	if err == nil {
		err = abi.CheckDepth(canonical)
	}
	if err != nil {
		return err
	}
	if _, err := capability.ParseSet(q.Grants); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	q.SetDocument(canonical)
	return nil
}

// judge asks the guard and holds its verdict to what the host does.
func (g fakeGuard) judge(t *testing.T, q *abi.Question) (j Judgement) {
	t.Helper()
	defer func() {
		if j.Err != nil {
			j.Verdict = abi.Deny("", "")
		}
	}()
	q.Guard, q.Settings = g.offered.Name, g.settings
	now, err := time.Parse(time.RFC3339Nano, q.Now)
	if err != nil {
		j.Err = fmt.Errorf("question: now: %w", err)
		return j
	}
	input, err := abi.Marshal(q)
	if err != nil {
		j.Err = fmt.Errorf("question: %w", err)
		return j
	}
	output, err := g.call(t, abi.KindGuard, input, now, &j)
	if err != nil {
		j.Err = err
		return j
	}
	if j.Verdict, j.Err = abi.ParseVerdict(output, q); j.Err != nil {
		return j
	}
	switch j.Verdict.Ruling {
	case abi.RulingRewrite:
		if !slices.Contains(g.offered.Mutates, q.Phase) {
			j.Err = fmt.Errorf("verdict: rewrites in phase %s, which its manifest does not list", q.Phase)
			return j
		}
		j.Err = abi.CheckDepth(j.Verdict.Document)
	case abi.RulingNarrow:
		if _, err := capability.ParseSet(j.Verdict.Grants); err != nil {
			j.Err = fmt.Errorf("verdict: %w", err)
		}
	}
	return j
}

// call runs the guest. Host calls are told of in j.
func (g fakeGuard) call(t *testing.T, kind abi.Kind, input []byte, now time.Time, j *Judgement) ([]byte, error) {
	t.Helper()
	requests, err := capability.ParseSet(g.manifest.Requests)
	if err != nil {
		return nil, err
	}
	var res Result
	c := &host.Call{Kind: kind, Input: input, Grants: requests, Limits: g.host.limits(g.manifest, abi.KindGuard), Now: now, Seed: []byte(abi.Digest(input))}
	if kind == abi.KindGuard && requests.Has("kv") {
		a := g.host.open(t, "guard "+g.offered.Name, now, &res)
		c.Access.KV = a.kv
		defer a.close()
	}
	res.witness(c)
	reply, err := call(t, g.module, c)
	j.Denied, j.Logs = append(j.Denied, res.Denied...), append(j.Logs, res.Logs...)
	if failed, ok := errors.AsType[*host.GuestError](err); ok {
		j.HostCalls += failed.Receipt.HostCalls
		if failed.Detail != "" {
			return nil, fmt.Errorf("%w: %s", err, failed.Detail)
		}
		return nil, err
	}
	j.HostCalls += reply.Receipt.HostCalls
	return reply.Output, nil
}
