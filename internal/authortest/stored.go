package authortest

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A Stored question is one that guards were asked, or could have been, in a session
// that is over: made of the session's events, and so without what these do not hold.
// Roles and earlier approvals are such; the arguments are as the model gave them.
type Stored struct {
	Question abi.Question // only the nonce is missing
	Was      abi.Ruling
	At       time.Time
}

// An Unread question is one that cannot be made of what a session has kept, such as of an older
// version, so that no guard can be asked.
type Unread struct {
	Phase abi.Phase
	Call  string // its id, of calls and results
	Tool  string
	Run   string
	At    time.Time
	Err   error
}

// StoredQuestions returns the questions of a session in their order, in all phases but
// that of requests, which no session holds, and apart those that cannot be read. roles are those of
// the user. about describes a tool of the app; nil for one that there is not. hits, if not nil, finds the
// app's secrets in a document.
//
// Was is what became of the document: deny if guards refused it, confirm if a person
// was asked about it, else allow.
func StoredQuestions(sess *session.Session, roles []string, about func(tool string) *flow.Spec, hits func(document json.RawMessage) []abi.SecretHit) ([]Stored, []Unread) {
	was := map[string]abi.Ruling{}
	args := map[string]json.RawMessage{}
	for _, ev := range sess.Events {
		for call := range ev.Actions.RequestedConfirmations {
			was[call] = abi.RulingConfirm
		}
		for _, r := range ev.Responses() {
			text, _ := r.Response["error"].(string)
			if strings.HasPrefix(text, string(abi.PolicyDenied)) || strings.HasPrefix(text, string(abi.PolicyUnavailable)) {
				was[r.ID] = abi.RulingDeny
			}
		}
	}
	b := &storedBuilder{sess: sess, roles: roles, about: about, hits: hits, steps: map[string]int{}}
	for _, ev := range sess.Events {
		if ev.Partial || ev.Content == nil {
			continue
		}
		user := ev.Author == "user"
		if !user && len(ev.Responses()) == 0 {
			b.steps[ev.InvocationID]++
		}
		phase, document := abi.PhaseMessage, any(ev.Content)
		if !user {
			phase, document = abi.PhaseResponse, any(ev.Response)
		}
		if says(ev.Content) {
			ruling := abi.RulingAllow
			if ev.ErrorCode == string(abi.PolicyDenied) {
				ruling = abi.RulingDeny
			}
			b.add(ev, phase, nil, document, ruling)
		}
		for _, c := range ev.Calls() {
			if strings.HasPrefix(c.Name, "adk_") {
				continue // the framework's own
			}
			given := c.Args
			if given == nil {
				given = map[string]any{}
			}
			ruling, ok := was[c.ID]
			if !ok {
				ruling = abi.RulingAllow
			}
			facts := b.call(c.ID, c.Name)
			args[c.ID] = b.add(ev, abi.PhaseCall, facts, given, ruling)
		}
		for _, r := range ev.Responses() {
			if strings.HasPrefix(r.Name, "adk_") || r.Response["error"] != nil {
				continue
			}
			facts := b.call(r.ID, r.Name)
			of, called := args[r.ID]
			if called && of == nil {
				b.skip(ev, abi.PhaseResult, facts, errors.New("its call cannot be read"))
				continue
			}
			if facts.Args = of; !called {
				facts.Args = json.RawMessage("{}")
			}
			b.add(ev, abi.PhaseResult, facts, r.Response, abi.RulingAllow)
		}
	}
	return b.list, b.unread
}

type storedBuilder struct {
	sess   *session.Session
	roles  []string
	about  func(string) *flow.Spec
	hits   func(json.RawMessage) []abi.SecretHit
	steps  map[string]int // model's turns, by run
	list   []Stored
	unread []Unread
}

func (b *storedBuilder) call(id, tool string) *abi.CallFacts {
	facts := &abi.CallFacts{ID: id, Tool: tool, Effects: abi.Once}
	if spec := b.about(tool); spec != nil {
		facts.Known, facts.Module = true, spec.Module
		if spec.Module != "" { // else what is known of it here is its name
			facts.DefinitionSHA256, _ = spec.Definition()
		}
		if spec.Effects != "" {
			facts.Effects = spec.Effects
		}
	}
	return facts
}

// add adds a question about a document, which it returns in canonical form.
func (b *storedBuilder) add(ev *session.Event, phase abi.Phase, call *abi.CallFacts, document any, was abi.Ruling) json.RawMessage {
	doc, err := abi.Marshal(document)
	if err == nil {
		doc, err = abi.Canonical(doc) // bounds of what guards are asked, which may have been others
	}
	if err != nil {
		b.skip(ev, phase, call, err)
		return nil
	}
	key := b.sess.Key
	q := abi.Question{Format: abi.Version, Kind: abi.KindGuard, Phase: phase, DocumentSHA256: abi.Digest(doc), Now: ev.Time.UTC().Format(time.RFC3339Nano),
		Tenant: key.Tenant, App: key.App, Agent: ev.Author, User: abi.User{ID: key.User, Roles: b.roles}, Session: key.ID, Run: ev.InvocationID,
		Step: b.steps[ev.InvocationID], Call: call}
	switch phase {
	case abi.PhaseMessage:
		q.Message = doc
	case abi.PhaseResponse:
		q.Response = doc
	case abi.PhaseCall:
		call.Args = doc
		if spec := b.about(call.Tool); spec != nil {
			q.Grants = spec.Grants.Lines()
		}
	case abi.PhaseResult:
		q.Result = doc
	}
	if b.hits != nil {
		hits := b.hits(doc)
		q.Facts.SecretHits = hits[:min(len(hits), abi.MaxSecretHits)]
	}
	b.list = append(b.list, Stored{q, was, ev.Time})
	return doc
}

// skip notes a question that cannot be asked.
func (b *storedBuilder) skip(ev *session.Event, phase abi.Phase, call *abi.CallFacts, err error) {
	u := Unread{Phase: phase, Run: ev.InvocationID, At: ev.Time, Err: err}
	if call != nil {
		u.Call, u.Tool = call.ID, call.Tool
	}
	b.unread = append(b.unread, u)
}

// says reports whether a content has anything but calls and responses.
func says(c *genai.Content) bool {
	for _, p := range c.Parts {
		if p != nil && p.FunctionCall == nil && p.FunctionResponse == nil {
			return true
		}
	}
	return false
}
