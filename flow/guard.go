package flow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Guard judges documents. It must be safe for concurrent use.
//
// All guards of a phase are asked: first those that mutate in it, one after the
// other, each seeing what the one before wrote; then all others, at the same
// time. The worst verdict counts. A guard denies when it returns an error,
// panics, is late ([Limits].Guard), or gives a verdict that [abi.Verdict.Check]
// refuses.
type Guard interface {
	// Name is the guard's name in the app.
	Name() string
	// Version changes whenever the guard's judgement may: for a guest it covers
	// the module's digest and the settings.
	Version() string
	// Phases lists the phases in which the guard is asked, Mutates those in
	// which it may rewrite.
	Phases() []abi.Phase
	Mutates() []abi.Phase
	// Judge answers one question. It must not change q. The verdict echoes the
	// question's nonce and digest.
	Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error)
}

// A Judgement is one guard's part in a decision.
type Judgement struct {
	Guard   string
	Verdict abi.Verdict // a denial if Err is set
	Err     error       // why there was no usable verdict; for the operator
	Took    time.Duration
}

// A Decision is what the guards of a phase decided together.
type Decision struct {
	Phase      abi.Phase
	Ruling     abi.Ruling // allow, confirm or deny
	Judgements []Judgement
}

// denial returns the judgement that denied, preferring one with a real verdict.
func (d *Decision) denial() *Judgement {
	var found *Judgement
	for i := range d.Judgements {
		j := &d.Judgements[i]
		if j.Verdict.Ruling == abi.RulingDeny && (found == nil || found.Err != nil && j.Err == nil) {
			found = j
		}
	}
	return found
}

// hints joins the hints of all guards that ask for a person.
func (d *Decision) hints() string {
	var hints []string
	for _, j := range d.Judgements {
		if j.Verdict.Ruling == abi.RulingConfirm && j.Verdict.Hint != "" {
			hints = append(hints, j.Verdict.Hint)
		}
	}
	return strings.Join(hints, " ")
}

// refusal is the error of a call that guards denied. Nothing rewrites it.
func (d *Decision) refusal() *CallError {
	j := d.denial()
	if j.Err != nil {
		return &CallError{Code: abi.PolicyUnavailable, Err: fmt.Errorf("guard %s: %w", j.Guard, j.Err)}
	}
	text := string(abi.PolicyDenied) + ": " + abi.PolicyDenied.Sentence()
	if j.Verdict.Reason != "" {
		text = fmt.Sprintf("%s: %s", abi.PolicyDenied, escape(j.Verdict.Reason, maxReasonBytes))
	}
	return &CallError{Code: abi.PolicyDenied, Text: text, Err: fmt.Errorf("guard %s: %s", j.Guard, j.Verdict.Code)}
}

const maxReasonBytes = 4 * abi.MaxReasonChars

// judge asks every guard of q's phase about a document. It returns the document
// as mutating guards left it, the grants as narrowing guards left them, and the
// decision. approved says who approved a form of the
// document; recheck runs after each rewrite; its error denies.
func (r *run) judge(ctx context.Context, q abi.Question, document json.RawMessage, grants capability.Set,
	approved func(json.RawMessage) *abi.Approval, recheck func(json.RawMessage) error,
) (json.RawMessage, capability.Set, *Decision, error) {
	d := &Decision{Phase: q.Phase, Ruling: abi.RulingAllow}
	var others []Guard
	add := func(j Judgement) {
		d.Judgements = append(d.Judgements, j)
		d.Ruling = worse(d.Ruling, j.Verdict.Ruling)
		if j.Verdict.Ruling == abi.RulingNarrow {
			narrowed, err := capability.ParseSet(j.Verdict.Grants)
			if err != nil { // checked before: see ask
				panic(err)
			}
			grants = grants.Intersect(narrowed)
		}
	}
	for _, g := range r.cfg.Guards {
		if !slices.Contains(g.Phases(), q.Phase) {
			continue
		}
		if !slices.Contains(g.Mutates(), q.Phase) {
			others = append(others, g)
			continue
		}
		j := r.ask(ctx, g, q, document, grants, approved(document))
		if j.Verdict.Ruling == abi.RulingRewrite {
			rewritten, err := abi.Canonical(j.Verdict.Document)
			if err == nil {
				err = recheck(rewritten)
			}
			if err != nil {
				j = Judgement{Guard: j.Guard, Verdict: abi.Deny("", ""), Err: fmt.Errorf("rewrite: %w", err), Took: j.Took}
			} else {
				document = rewritten
			}
		}
		add(j)
	}
	judgements := make([]Judgement, len(others))
	var wg sync.WaitGroup
	for i, g := range others {
		wg.Go(func() { judgements[i] = r.ask(ctx, g, q, document, grants, approved(document)) })
	}
	wg.Wait()
	for _, j := range judgements {
		add(j)
	}
	if d.Ruling == abi.RulingRewrite || d.Ruling == abi.RulingNarrow {
		d.Ruling = abi.RulingAllow
	}
	for _, j := range d.Judgements {
		if err := r.audit(ctx, r.judgementRecord(&q, document, j)); err != nil {
			return nil, capability.Set{}, d, err
		}
	}
	return document, grants, d, nil
}

func worse(a, b abi.Ruling) abi.Ruling {
	rank := []abi.Ruling{abi.RulingAllow, abi.RulingRewrite, abi.RulingNarrow, abi.RulingConfirm, abi.RulingDeny}
	if slices.Index(rank, b) > slices.Index(rank, a) {
		return b
	}
	return a
}

// ask puts one question to one guard and turns everything but a well-formed
// verdict into a denial. The goroutine of a guard that does not return when its
// time is over is left behind; its answer is not used.
func (r *run) ask(ctx context.Context, g Guard, q abi.Question, document json.RawMessage, grants capability.Set, approved *abi.Approval) Judgement {
	began := time.Now()
	q.Facts.Approved = approved
	q.Format, q.Kind, q.Guard = abi.Version, abi.KindGuard, g.Name()
	q.Nonce = newNonce()
	q.DocumentSHA256 = abi.Digest(document)
	q.Grants = grants.Lines()
	if q.Call != nil {
		call := *q.Call
		q.Call = &call
	}
	switch q.Phase {
	case abi.PhaseCall:
		q.Call.Args = document
	case abi.PhaseResult:
		q.Result = document
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Limits.Guard, fmt.Errorf("%s passed", r.cfg.Limits.Guard))
	defer cancel()
	type answer struct {
		verdict abi.Verdict
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.err = fmt.Errorf("panic: %v", p)
			}
			answers <- a
		}()
		a.verdict, a.err = g.Judge(ctx, &q)
	}()
	j := Judgement{Guard: g.Name()}
	select {
	case a := <-answers:
		j.Verdict, j.Err = a.verdict, a.err
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // an answer that came at the same moment is late, too
		j.Err = fmt.Errorf("no verdict: %w", context.Cause(ctx))
	}
	if j.Err == nil {
		j.Err = j.Verdict.Check(&q)
	}
	if j.Err == nil && j.Verdict.Ruling == abi.RulingRewrite && !slices.Contains(g.Mutates(), q.Phase) {
		j.Err = fmt.Errorf("verdict: rewrites in phase %s, which its manifest does not list", q.Phase)
	}
	if j.Err == nil && j.Verdict.Ruling == abi.RulingConfirm && q.Phase == abi.PhaseResult {
		j.Err = errors.New("verdict: nobody can be asked about what has already happened")
	}
	if j.Err == nil && j.Verdict.Ruling == abi.RulingNarrow {
		if _, err := capability.ParseSet(j.Verdict.Grants); err != nil {
			j.Err = fmt.Errorf("verdict: %w", err)
		}
	}
	if j.Err != nil {
		j.Verdict = abi.Deny("", "")
	}
	j.Took = time.Since(began)
	return j
}

func (r *run) judgementRecord(q *abi.Question, document json.RawMessage, j Judgement) audit.Record {
	rec := r.record("guard."+string(j.Verdict.Ruling), j.Guard)
	rec.ArgsSHA256 = abi.Digest(document)
	rec.Decision = string(j.Verdict.Ruling)
	rec.Code = j.Verdict.Code
	if q.Call != nil {
		rec.Call, rec.Capability = q.Call.ID, ""
	}
	for _, w := range j.Verdict.Why {
		rec.Why += fmt.Sprintf("%s %s %s; ", w.Rule, w.At, w.Saw)
	}
	if j.Err != nil {
		rec.Code = string(abi.PolicyUnavailable)
		rec.Why = j.Err.Error()
	}
	for _, g := range r.cfg.Guards {
		if g.Name() == j.Guard {
			rec.Module = g.Version()
		}
	}
	return rec
}

// policyVersion is a digest over the guards of the runner: an approval given
// under one policy is not valid under another.
func policyVersion(guards []Guard) string {
	var all strings.Builder
	for _, g := range guards {
		fmt.Fprintf(&all, "%q %q\n", g.Name(), g.Version())
	}
	return abi.Digest([]byte(all.String()))
}

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}
