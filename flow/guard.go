package flow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	Version string      // of the guard when it was asked
	Verdict abi.Verdict // a denial if Err is set
	Err     error       // why there was no usable verdict; for the operator
	Took    time.Duration
	Members []Judgement // of a [Group], in its order
	Monitor bool        // it was recorded and counts for nothing

	counted []Judgement // of Members: those that make the verdict
}

// A Decision is what the guards of a phase decided together.
type Decision struct {
	Phase      abi.Phase
	Ruling     abi.Ruling // allow, confirm or deny
	Hold       int        // characters that a stream keeps back
	Judgements []Judgement
}

// denial returns the judgement that denied, preferring one with a real verdict.
func (d *Decision) denial() *Judgement {
	var found *Judgement
	for i := range d.Judgements {
		j := &d.Judgements[i]
		if !j.Monitor && j.Verdict.Ruling == abi.RulingDeny && (found == nil || found.Err != nil && j.Err == nil) {
			found = j
		}
	}
	return found
}

// hints joins the hints of all guards that ask for a person.
func (d *Decision) hints() string {
	var hints []string
	for _, j := range d.Judgements {
		if !j.Monitor && j.Verdict.Ruling == abi.RulingConfirm && j.Verdict.Hint != "" {
			hints = append(hints, j.Verdict.Hint)
		}
	}
	return strings.Join(hints, " ")
}

// refusal is the error of a call that guards denied. Nothing rewrites it.
func (d *Decision) refusal() *CallError {
	j := d.denial()
	if j.Err != nil {
		return &CallError{Code: abi.PolicyUnavailable, Text: unavailableText(d.Phase), Err: fmt.Errorf("guard %s: %w", j.Guard, j.Err)}
	}
	text := string(abi.PolicyDenied) + ": " + refusedText(d.Phase)
	if j.Verdict.Reason != "" {
		text = fmt.Sprintf("%s: %s", abi.PolicyDenied, escape(j.Verdict.Reason, maxReasonBytes))
	}
	return &CallError{Code: abi.PolicyDenied, Text: text, Err: fmt.Errorf("guard %s: %s", j.Guard, j.Verdict.Code)}
}

// refusedText is what is said of a denial whose guard gave no reason.
func refusedText(p abi.Phase) string {
	switch p {
	case abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse:
		return fmt.Sprintf("a policy refused the %s", p)
	}
	return abi.PolicyDenied.Sentence()
}

// unavailableText is what is said when a guard did not decide; "" stands for what
// the code says.
func unavailableText(p abi.Phase) string {
	switch p {
	case abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse:
		return fmt.Sprintf("%s: a policy could not decide, so the %s was refused", abi.PolicyUnavailable, p)
	}
	return ""
}

const maxReasonBytes = 4 * abi.MaxReasonChars

// guarded reports whether any guard is asked in a phase.
func (r *run) guarded(p abi.Phase) bool {
	in := func(g Guard) bool { return slices.Contains(g.Phases(), p) }
	return slices.ContainsFunc(r.cfg.Guards, in) || slices.ContainsFunc(r.cfg.Monitors, in)
}

// allowed is the decision of a phase in which no guard is asked.
func allowed(p abi.Phase) *Decision { return &Decision{Phase: p, Ruling: abi.RulingAllow} }

// judge asks every guard of q's phase about a document. It returns the document
// as mutating guards left it, the grants as narrowing guards left them, and the
// decision. approved says who approved a form of the document, nil for nobody;
// recheck runs after each rewrite; its error denies. Monitors are asked about the
// document as guards left it, and what they say is recorded. A part of a stream that
// passes is not.
func (r *run) judge(ctx context.Context, q abi.Question, document json.RawMessage, grants capability.Set,
	approved func(json.RawMessage) *abi.Approval, recheck func(json.RawMessage) error,
) (json.RawMessage, capability.Set, *Decision, error) {
	d := allowed(q.Phase)
	if approved == nil {
		approved = func(json.RawMessage) *abi.Approval { return nil }
	}
	var others []Guard
	add := func(j Judgement) {
		d.Judgements = append(d.Judgements, j)
		if j.Monitor {
			return
		}
		if rank(j.Verdict.Ruling) > rank(d.Ruling) {
			d.Ruling = j.Verdict.Ruling
		}
		d.Hold = max(d.Hold, j.Verdict.Hold)
		if j.counted != nil {
			grants = narrowest(grants, j.counted)
		} else {
			grants = narrowest(grants, []Judgement{j})
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
		j := r.ask(ctx, g, q, document, grants, approved(document))()
		if j.Verdict.Ruling == abi.RulingRewrite {
			rewritten, err := abi.Canonical(j.Verdict.Document)
			if err == nil {
				err = recheck(rewritten)
			}
			if err != nil {
				j = Judgement{Guard: j.Guard, Version: j.Version, Verdict: abi.Deny("", ""), Err: fmt.Errorf("rewrite: %w", err), Took: j.Took}
			} else {
				document = rewritten
			}
		}
		add(j)
	}
	enforced := len(others)
	for _, g := range r.cfg.Monitors {
		if slices.Contains(g.Phases(), q.Phase) {
			others = append(others, g)
		}
	}
	waiting := make([]func() Judgement, len(others))
	for i, g := range others {
		waiting[i] = r.ask(ctx, g, q, document, grants, approved(document))
	}
	for i, wait := range waiting {
		j := wait()
		j.Monitor = i >= enforced
		add(j)
	}
	if d.Ruling == abi.RulingRewrite || d.Ruling == abi.RulingNarrow {
		d.Ruling = abi.RulingAllow
	}
	for _, j := range d.Judgements {
		if q.Partial && d.Ruling == abi.RulingAllow && (!j.Monitor || j.Verdict.Ruling != abi.RulingDeny) {
			continue // the whole is judged once more
		}
		if err := r.recordJudgement(ctx, &q, document, j); err != nil {
			return nil, capability.Set{}, d, err
		}
	}
	return document, grants, d, nil
}

// recordJudgement audits a judgement, after those of the members if it is a
// group's.
func (r *run) recordJudgement(ctx context.Context, q *abi.Question, document json.RawMessage, j Judgement) error {
	kind := "guard."
	if j.Monitor {
		kind = "monitor."
	}
	for _, m := range j.Members {
		m.Guard = j.Guard + "/" + m.Guard
		if err := r.audit(ctx, r.judgementRecord(kind+"member.", q, document, m)); err != nil {
			return err
		}
	}
	return r.audit(ctx, r.judgementRecord(kind, q, document, j))
}

// rank orders rulings, mildest first.
func rank(r abi.Ruling) int {
	return slices.Index([]abi.Ruling{abi.RulingAllow, abi.RulingRewrite, abi.RulingNarrow, abi.RulingConfirm, abi.RulingDeny}, r)
}

// narrowest intersects grants with what each judgement that narrows leaves.
func narrowest(grants capability.Set, judgements []Judgement) capability.Set {
	for _, j := range judgements {
		if j.Verdict.Ruling != abi.RulingNarrow {
			continue
		}
		narrowed, err := capability.ParseSet(j.Verdict.Grants)
		if err != nil { // checked before: see beginAsk
			panic(err)
		}
		grants = grants.Intersect(narrowed)
	}
	return grants
}

// ask puts one question to one guard, and returns what waits for the judgement, which must be
// called. See beginAsk.
func (r *run) ask(ctx context.Context, g Guard, q abi.Question, document json.RawMessage, grants capability.Set, approved *abi.Approval) func() Judgement {
	q.Facts.Approved = approved
	if find := r.cfg.SecretHits; find != nil {
		hits := find(document)
		q.Facts.SecretHits = hits[:min(len(hits), abi.MaxSecretHits)]
	}
	q.Format, q.Kind = abi.Version, abi.KindGuard
	q.SetDocument(document)
	q.Grants = grants.Lines()
	return begin(r.recorded(ctx), g, q, r.cfg.Limits.Guard)
}

// Ask puts one question to one guard as a run does, for those who test guards or
// judge stored questions again. The question has its document, in canonical form,
// and that document's digest; the guard's name and a new nonce are filled in.
// limit is the most time that the judgement may take, waiting included; zero takes
// the default of [Limits].Guard. Whatever is not a well-formed verdict in a phase
// that the guard lists is a denial with Err set.
func Ask(ctx context.Context, g Guard, q abi.Question, limit time.Duration) Judgement {
	return begin(ctx, g, q, limit)()
}

// begin puts the question of Ask, and returns what waits for the judgement, which must be
// called.
func begin(ctx context.Context, g Guard, q abi.Question, limit time.Duration) func() Judgement {
	limit = Limits{Guard: limit}.WithDefaults().Guard
	if !slices.Contains(g.Phases(), q.Phase) {
		j := Judgement{Guard: g.Name(), Version: g.Version(), Verdict: abi.Deny("", ""), Err: fmt.Errorf("question: phase %q is none of the guard's", q.Phase)}
		return func() Judgement { return j }
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s passed", limit))
	wait := beginAsk(ctx, g, q)
	return func() Judgement {
		defer cancel()
		return wait()
	}
}

// A statement is what a guard said, and after what time.
type statement struct {
	verdict          abi.Verdict
	members, counted []Judgement // of a group
	err              error
	took             time.Duration
}

// beginAsk asks one guard and returns what turns everything but a well-formed verdict
// into a denial. The goroutine of a guard that does not return when its time is over is
// left behind; its answer is not used.
func beginAsk(ctx context.Context, g Guard, q abi.Question) func() Judgement {
	began := time.Now()
	q.Guard, q.Nonce = g.Name(), newNonce()
	version := g.Version() // that which is asked
	answers := make(chan statement, 1)
	asked := q // the guard's own
	go roomy(func() {
		var a statement
		defer func() {
			if p := recover(); p != nil {
				a.err = fmt.Errorf("panic: %v", p)
			}
			a.took = time.Since(began)
			answers <- a
		}()
		if group, ok := g.(*Group); ok {
			a.verdict, a.members, a.counted, a.err = group.ask(ctx, &asked)
			return
		}
		a.verdict, a.err = g.Judge(ctx, &asked)
		if ctx.Err() != nil { // it is late, even if it came before anybody saw that
			a = statement{err: noVerdict(ctx)}
		}
	})
	return func() Judgement {
		a := wait(ctx, g, answers, began)
		j := Judgement{Guard: q.Guard, Version: version, Verdict: a.verdict, Members: a.members, counted: a.counted, Err: a.err, Took: a.took}
		if j.Err == nil {
			j.Err = j.Verdict.Check(&q)
		}
		if j.Err == nil && j.Verdict.Ruling == abi.RulingRewrite && !slices.Contains(g.Mutates(), q.Phase) {
			j.Err = fmt.Errorf("verdict: rewrites in phase %s, which its manifest does not list", q.Phase)
		}
		if j.Err == nil && j.Verdict.Ruling == abi.RulingNarrow {
			if _, err := capability.ParseSet(j.Verdict.Grants); err != nil {
				j.Err = fmt.Errorf("verdict: %w", err)
			}
		}
		if j.Err != nil {
			j.Verdict = abi.Deny("", "")
		}
		return j
	}
}

// wait waits for a guard until ctx ends, and for a group until its members have ended, for
// whom that holds. An answer that is there is taken whenever it is looked for.
func wait(ctx context.Context, g Guard, answers <-chan statement, began time.Time) statement {
	if _, ok := g.(*Group); ok {
		return <-answers
	}
	select {
	case a := <-answers:
		return a
	default:
	}
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return statement{err: noVerdict(ctx), took: time.Since(began)}
	}
}

func noVerdict(ctx context.Context) error {
	return fmt.Errorf("no verdict: %w", context.Cause(ctx))
}

// judgementRecord is the audit record of a judgement; kind begins its action.
func (r *run) judgementRecord(kind string, q *abi.Question, document json.RawMessage, j Judgement) audit.Record {
	rec := r.record(kind+string(j.Verdict.Ruling), j.Guard)
	rec.ArgsSHA256 = abi.Digest(document)
	rec.Decision = string(j.Verdict.Ruling)
	rec.Code = j.Verdict.Code
	rec.Module = j.Version
	if q.Call != nil {
		rec.Call = q.Call.ID
	}
	for _, w := range j.Verdict.Why {
		rec.Why += fmt.Sprintf("%s %s %s; ", w.Rule, w.At, w.Saw)
	}
	if j.Err != nil {
		rec.Code = string(abi.PolicyUnavailable)
		rec.Why = j.Err.Error()
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
