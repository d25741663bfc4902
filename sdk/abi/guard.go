package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Phase is a moment at which guards judge.
type Phase string

// The phases, in the order in which a run meets them.
const (
	PhaseMessage  Phase = "message"  // what a user says, before it is stored
	PhaseRequest  Phase = "request"  // what a model is asked, before it is sent
	PhaseResponse Phase = "response" // what a model or a hook says, before it is stored or shown
	PhaseCall     Phase = "call"     // a tool call, before its handler
	PhaseResult   Phase = "result"   // a tool's result, before the model sees it
)

// ValidPhase reports whether p is a phase.
func ValidPhase(p Phase) bool {
	switch p {
	case PhaseMessage, PhaseRequest, PhaseResponse, PhaseCall, PhaseResult:
		return true
	}
	return false
}

// Bounds of what a guard may say.
const (
	MaxReasonChars = 256  // reason, hint, and each member of a why
	MaxWhy         = 16   // entries of why
	MaxHold        = 8192 // characters that a guard may hold back of a stream
)

// A Question is the input of a guard: all that it may know. Judging is a pure
// function of this document, so a stored question can be judged again.
type Question struct {
	Format         int             `json:"format"` // Version
	Kind           Kind            `json:"kind"`   // KindGuard
	Guard          string          `json:"guard"`  // the guard's name in the manifest
	Phase          Phase           `json:"phase"`
	Nonce          string          `json:"nonce"`           // to be echoed
	DocumentSHA256 string          `json:"document_sha256"` // lower-case hex digest of the judged document in canonical form; to be echoed
	Now            string          `json:"now"`             // RFC 3339
	Tenant         string          `json:"tenant,omitempty"`
	App            string          `json:"app,omitempty"`
	Agent          string          `json:"agent"`
	User           User            `json:"user"`
	Session        string          `json:"session"`            // inside an agent that runs as a tool, the caller's
	Run            string          `json:"run"`                // that a message started, answers to its questions included; inside an agent that runs as a tool, the outermost
	Step           int             `json:"step"`               // number of the model call, from 1, those inside agents that run as tools counted; 0 outside of steps
	Message        json.RawMessage `json:"message,omitempty"`  // phase message: the judged document, a content
	Request        json.RawMessage `json:"request,omitempty"`  // phase request: the judged document, as in a [HookCall]
	Response       json.RawMessage `json:"response,omitempty"` // phase response: the judged document
	Partial        bool            `json:"partial,omitempty"`  // phase response: the document is what a stream has said so far; more may follow
	Call           *CallFacts      `json:"call,omitempty"`     // phases call and result
	Result         json.RawMessage `json:"result,omitempty"`   // phase result: the judged document
	Grants         []string        `json:"grants,omitempty"`   // what the call would be granted
	Settings       json.RawMessage `json:"settings,omitempty"`
	Facts          Facts           `json:"facts,omitzero"`
}

// SetDocument makes doc, which is in canonical form and not copied, the document that q is
// about in its phase. Call, which other questions may have too, is copied; in phase call
// there must be one.
func (q *Question) SetDocument(doc json.RawMessage) {
	q.DocumentSHA256 = Digest(doc)
	if q.Call != nil {
		call := *q.Call
		q.Call = &call
	}
	switch q.Phase {
	case PhaseMessage:
		q.Message = doc
	case PhaseRequest:
		q.Request = doc
	case PhaseResponse:
		q.Response = doc
	case PhaseCall:
		q.Call.Args = doc
	case PhaseResult:
		q.Result = doc
	}
}

// appendTo appends q in canonical form, as reflection would: every guard is asked one. It is false
// for what is rare and left to that.
func (q *Question) appendTo(out []byte) (_ []byte, ok bool) {
	if q == nil || q.Facts.Approved != nil || len(q.Facts.SecretHits) > 0 {
		return nil, false
	}
	ok = true
	text := func(key, s string) {
		out = appendText(append(out, key...), s)
		ok = ok && utf8.ValidString(s)
	}
	given := func(key, s string) {
		if s != "" {
			text(key, s)
		}
	}
	document := func(key string, doc json.RawMessage, depth int) {
		if len(doc) == 0 || !ok {
			return
		}
		p := parser{in: doc}
		var err error
		if out, err = p.value(append(out, key...), depth); err == nil {
			p.space()
		}
		ok = err == nil && p.pos == len(doc)
	}
	list := func(key string, all []string) {
		if len(all) == 0 {
			return
		}
		out = append(out, key...)
		for i, s := range all {
			text([]string{"[", ","}[min(i, 1)], s)
		}
		out = append(out, ']')
	}
	text(`{"agent":`, q.Agent)
	given(`,"app":`, q.App)
	if c := q.Call; c != nil {
		ok = ok && len(c.Args) > 0 // else it is null
		document(`,"call":{"args":`, c.Args, 3)
		given(`,"definition_sha256":`, c.DefinitionSHA256)
		text(`,"effects":`, string(c.Effects))
		text(`,"id":`, c.ID)
		out = strconv.AppendBool(append(out, `,"known":`...), c.Known)
		given(`,"module":`, c.Module)
		text(`,"tool":`, c.Tool)
		out = append(out, '}')
	}
	text(`,"document_sha256":`, q.DocumentSHA256)
	out = strconv.AppendInt(append(out, `,"format":`...), int64(q.Format), 10)
	list(`,"grants":`, q.Grants)
	text(`,"guard":`, q.Guard)
	text(`,"kind":`, string(q.Kind))
	document(`,"message":`, q.Message, 2)
	text(`,"nonce":`, q.Nonce)
	text(`,"now":`, q.Now)
	if q.Partial {
		out = append(out, `,"partial":true`...)
	}
	text(`,"phase":`, string(q.Phase))
	document(`,"request":`, q.Request, 2)
	document(`,"response":`, q.Response, 2)
	document(`,"result":`, q.Result, 2)
	text(`,"run":`, q.Run)
	text(`,"session":`, q.Session)
	document(`,"settings":`, q.Settings, 2)
	out = strconv.AppendInt(append(out, `,"step":`...), int64(q.Step), 10)
	given(`,"tenant":`, q.Tenant)
	text(`,"user":{"id":`, q.User.ID)
	list(`,"roles":`, q.User.Roles)
	return append(out, "}}"...), ok
}

// DryQuestion returns what a guard must be able to judge in a phase before it is
// trusted with real questions: an unknown tool without arguments, or an empty document.
func DryQuestion(phase Phase) *Question {
	q := &Question{Format: Version, Kind: KindGuard, Phase: phase, Nonce: strings.Repeat("0", 32),
		Now: "2000-01-01T00:00:00Z", Agent: "dry_run", User: User{ID: "dry-run"}, Session: "dry-run", Run: "dry-run", Step: 1}
	doc := json.RawMessage("{}")
	if phase == PhaseCall || phase == PhaseResult {
		q.Call = &CallFacts{ID: "dry-run", Tool: "dry_run", Effects: Once, Args: doc}
	}
	q.SetDocument(doc)
	return q
}

// Definition returns the SHA-256, in lower-case hexadecimal, of what a model is told
// about a tool: of the canonical object with the members name, description, input
// and output, the last two being the schemas, absent if there are none. The order in
// which a schema has its members changes nothing. A schema that is no JSON is an
// error.
func Definition(name, description string, input, output json.RawMessage) (string, error) {
	doc, err := Marshal(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"input,omitempty"`
		Output      json.RawMessage `json:"output,omitempty"`
	}{name, description, input, output})
	if err != nil {
		return "", fmt.Errorf("definition of %s: %w", name, err)
	}
	return Digest(doc), nil
}

// A User is who the run acts for, as the host authenticated them.
type User struct {
	ID    string   `json:"id"`
	Roles []string `json:"roles,omitempty"`
}

// CallFacts describe the call that is judged.
type CallFacts struct {
	ID      string  `json:"id"`
	Tool    string  `json:"tool"`
	Known   bool    `json:"known"` // false: the model named a tool that does not exist
	Effects Effects `json:"effects"`
	Module  string  `json:"module,omitempty"` // digest of the handler's module; empty for a native tool

	// DefinitionSHA256 is what [Definition] makes of the tool; empty for an unknown
	// one.
	DefinitionSHA256 string `json:"definition_sha256,omitempty"`

	Args json.RawMessage `json:"args"` // phase call: the judged document
}

// Facts are what the host adds from its own knowledge.
type Facts struct {
	Approved   *Approval   `json:"approved,omitempty"`    // a person approved this very call
	SecretHits []SecretHit `json:"secret_hits,omitempty"` // secrets of the app in the judged document, at most [MaxSecretHits]
}

// A SecretHit is a secret that the host has found in the judged document, as it is
// or encoded. What it is nobody is told.
type SecretHit struct {
	Name string `json:"name"`
	At   string `json:"at"`            // JSON pointer to the text
	Key  bool   `json:"key,omitempty"` // the text is the name of the member there
}

// MaxSecretHits is how many hits a question has at most.
const MaxSecretHits = 64

// An Approval is a person's approval.
type Approval struct {
	At string `json:"at,omitempty"` // RFC 3339
	By string `json:"by,omitempty"`
}

// A Ruling is what a verdict decides.
type Ruling string

// The rulings, mildest first. The worst one of a chain counts; [RulingRewrite] only
// passes to the next guard what it wrote.
const (
	RulingAllow   Ruling = "allow"
	RulingRewrite Ruling = "rewrite"
	RulingNarrow  Ruling = "narrow"
	RulingConfirm Ruling = "confirm"
	RulingDeny    Ruling = "deny"
)

// A Verdict is the output of a guard. Nonce and DocumentSHA256 echo the
// question. The zero Verdict is no verdict: it denies.
type Verdict struct {
	Format         int             `json:"format,omitempty"` // Version or absent
	Nonce          string          `json:"nonce"`
	DocumentSHA256 string          `json:"document_sha256"`
	Ruling         Ruling          `json:"verdict"`
	Code           string          `json:"code,omitempty"`     // [a-z_]{1,40}, the author's
	Reason         string          `json:"reason,omitempty"`   // deny: for the model
	Hint           string          `json:"hint,omitempty"`     // confirm: for the person
	Grants         []string        `json:"grants,omitempty"`   // narrow: what remains; absent or empty: nothing
	Document       json.RawMessage `json:"document,omitempty"` // rewrite: the new document
	Hold           int             `json:"hold,omitempty"`     // allow or rewrite, in phase response: how many characters at the end of a stream stay back until more is known; 0 to MaxHold
	Why            []Why           `json:"why,omitempty"`      // for the operator
}

// A Why tells the operator what a verdict rests on.
type Why struct {
	Rule string `json:"rule,omitempty"`
	At   string `json:"at,omitempty"` // JSON pointer into the judged document
	Saw  string `json:"saw,omitempty"`
}

// Allow lets the document pass.
func Allow() Verdict { return Verdict{Ruling: RulingAllow} }

// AllowBut lets a response pass but for the last hold characters of a stream,
// which stay back until the guard has seen what follows, or that nothing does.
func AllowBut(hold int) Verdict { return Verdict{Ruling: RulingAllow, Hold: hold} }

// Deny refuses. The reason is for the model; it and the texts of why are cut at
// [MaxReasonChars].
func Deny(code, reason string, why ...Why) Verdict {
	return Verdict{Ruling: RulingDeny, Code: code, Reason: cut(reason), Why: cutWhy(why)}
}

// Confirm asks a person. The hint and the texts of why are cut at
// [MaxReasonChars].
func Confirm(code, hint string, why ...Why) Verdict {
	return Verdict{Ruling: RulingConfirm, Code: code, Hint: cut(hint), Why: cutWhy(why)}
}

// Narrow lets the call pass with at most these grants.
func Narrow(grants ...string) Verdict { return Verdict{Ruling: RulingNarrow, Grants: grants} }

// Rewrite replaces the judged document. Only a guard that mutates in the phase
// may do that.
func Rewrite(document json.RawMessage) Verdict {
	return Verdict{Ruling: RulingRewrite, Document: document}
}

// ParseVerdict decodes what a guard returned and checks it against the question
// it answers. Every error means deny, and comes with the zero Verdict.
func ParseVerdict(data []byte, q *Question) (Verdict, error) {
	v, plain := plainVerdict(data)
	if !plain {
		if err := Decode(data, &v); err != nil {
			return Verdict{}, err
		}
	}
	if err := v.Check(q); err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// plainVerdict decodes a verdict that has nothing but texts, as most have, without
// reflection. It is false for any other document.
func plainVerdict(data []byte) (v Verdict, ok bool) {
	canonical, err := Canonical(data)
	if err != nil || canonical[0] != '{' {
		return Verdict{}, false
	}
	p := parser{in: canonical, pos: 1}
	for p.in[p.pos] != '}' {
		if p.in[p.pos] == ',' {
			p.pos++
		}
		name, _ := p.text() // it was read before
		if p.pos++; p.in[p.pos] != '"' {
			return Verdict{}, false
		}
		s, _ := p.text()
		switch name {
		case "nonce":
			v.Nonce = s
		case "document_sha256":
			v.DocumentSHA256 = s
		case "verdict":
			v.Ruling = Ruling(s)
		case "code":
			v.Code = s
		case "reason":
			v.Reason = s
		case "hint":
			v.Hint = s
		default:
			return Verdict{}, false
		}
	}
	return v, true
}

// Check reports whether v is a well-formed answer to q: it echoes nonce and
// digest and has the members of its ruling and no others.
func (v *Verdict) Check(q *Question) error {
	if v.Format != 0 && v.Format != Version {
		return fmt.Errorf("verdict: format %d: want %d", v.Format, Version)
	}
	if v.Nonce != q.Nonce || v.Nonce == "" {
		return errors.New("verdict: nonce is not the question's")
	}
	if v.DocumentSHA256 != q.DocumentSHA256 || v.DocumentSHA256 == "" {
		return errors.New("verdict: document_sha256 is not the question's")
	}
	switch v.Ruling {
	case RulingAllow, RulingDeny, RulingConfirm, RulingNarrow, RulingRewrite:
	default:
		return fmt.Errorf("verdict: %q is no verdict", clip(string(v.Ruling), 40))
	}
	if v.Code != "" && !ValidCode(v.Code) {
		return fmt.Errorf("verdict: code %q: want [a-z_]{1,40}", clip(v.Code, 60))
	}
	stray := ""
	switch {
	case v.Reason != "" && v.Ruling != RulingDeny:
		stray = "reason"
	case v.Hint != "" && v.Ruling != RulingConfirm:
		stray = "hint"
	case v.Grants != nil && v.Ruling != RulingNarrow:
		stray = "grants"
	case v.Document != nil && v.Ruling != RulingRewrite:
		stray = "document"
	case v.Hold != 0 && (v.Ruling != RulingAllow && v.Ruling != RulingRewrite || q.Phase != PhaseResponse):
		stray = "hold"
	}
	if stray != "" {
		return fmt.Errorf("verdict: %s has no place in %q", stray, v.Ruling)
	}
	if (v.Ruling == RulingConfirm || v.Ruling == RulingNarrow) && q.Phase != PhaseCall {
		return fmt.Errorf("verdict: %q has no place in phase %s: only a call can wait for a person or be granted less", v.Ruling, q.Phase)
	}
	if v.Hold < 0 || v.Hold > MaxHold {
		return fmt.Errorf("verdict: hold %d: want 0 to %d", v.Hold, MaxHold)
	}
	if v.Ruling == RulingRewrite && len(v.Document) == 0 {
		return errors.New("verdict: rewrite without a document")
	}
	if utf8.RuneCountInString(v.Reason) > MaxReasonChars || utf8.RuneCountInString(v.Hint) > MaxReasonChars {
		return fmt.Errorf("verdict: reason or hint exceeds %d characters", MaxReasonChars)
	}
	if len(v.Why) > MaxWhy {
		return fmt.Errorf("verdict: %d entries of why exceed %d", len(v.Why), MaxWhy)
	}
	for i, w := range v.Why {
		if max(utf8.RuneCountInString(w.Rule), utf8.RuneCountInString(w.At), utf8.RuneCountInString(w.Saw)) > MaxReasonChars {
			return fmt.Errorf("verdict: why[%d] exceeds %d characters", i, MaxReasonChars)
		}
	}
	return nil
}

// cutWhy returns why with its texts cut and without what exceeds [MaxWhy].
func cutWhy(why []Why) []Why {
	if why == nil {
		return nil
	}
	out := make([]Why, min(len(why), MaxWhy))
	for i := range out {
		out[i] = Why{Rule: cut(why[i].Rule), At: cut(why[i].At), Saw: cut(why[i].Saw)}
	}
	return out
}

func cut(s string) string {
	n := 0
	for i := range s {
		if n == MaxReasonChars {
			return s[:i]
		}
		n++
	}
	return s
}
