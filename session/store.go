package session

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// Errors of a [Store], to be read with [errors.Is].
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("already exists")
	ErrDecided  = errors.New("already decided") // a question that is no longer pending
	ErrExpired  = errors.New("expired")
	ErrUsed     = errors.New("already used") // an approval that has been spent
	ErrMismatch = errors.New("does not match what was asked")
)

// A Key names a session. The host sets all of it; nothing in it comes from a
// model, a guest or an event.
type Key struct {
	Tenant string `json:"tenant,omitempty"` // may be empty where there is one tenant
	App    string `json:"app"`
	User   string `json:"user"`
	ID     string `json:"id"`
}

// A Session is a copy of what a store keeps under one key. It does not change
// when the store does.
type Session struct {
	Key     Key            `json:"key"`
	State   map[string]any `json:"state,omitempty"` // all scopes but temp:, keys with their prefix
	Events  []*Event       `json:"events,omitempty"`
	Updated time.Time      `json:"updated"`
}

// A Scope says who shares a state value.
type Scope string

// The scopes and their key prefixes, as in ADK.
const (
	ScopeSession Scope = ""      // one session
	ScopeUser    Scope = "user:" // all sessions of one user of the app
	ScopeApp     Scope = "app:"  // everyone who uses the app
	ScopeTemp    Scope = "temp:" // one invocation; never stored
)

// SplitKey returns the scope of a state key and the key without its prefix.
func SplitKey(key string) (Scope, string) {
	for _, s := range []Scope{ScopeUser, ScopeApp, ScopeTemp} {
		if rest, ok := strings.CutPrefix(key, string(s)); ok {
			return s, rest
		}
	}
	return ScopeSession, key
}

// A Store keeps sessions, calls and questions. Every method is safe for
// concurrent use, copies what it takes and returns, and either has its whole
// effect or none. When a method returns nil, its effect survives whatever the
// store promises to survive.
type Store interface {
	// Create makes a session with an initial state, whose keys may carry any
	// prefix; temp: keys of an initial state stay with the session, as in ADK.
	// It returns [ErrExists] if there is one.
	Create(ctx context.Context, key Key, state map[string]any) (*Session, error)

	// Get returns a session, or [ErrNotFound].
	Get(ctx context.Context, key Key) (*Session, error)

	// List returns the keys of a user's sessions of an app, ordered by id.
	List(ctx context.Context, tenant, app, user string) ([]Key, error)

	// Delete removes a session with its events, calls and questions. State in
	// the user and app scopes stays. It returns [ErrNotFound] if there is none.
	Delete(ctx context.Context, key Key) error

	// Append stores an event at the end of a session and applies its state
	// delta: each key to its scope, temp: to none; a nil value is stored as null.
	// A partial event, or one without an id, is an error. It returns
	// [ErrNotFound] if there is no such session and [ErrExists] if the session
	// has an event with that id.
	Append(ctx context.Context, key Key, event *Event) error

	// BeginCall records the intent to run a call, durably, before its effect. A
	// call with the same run, id and attempt is [ErrExists]: it must not run. A
	// call that names an approval spends it in the same step: the question moves
	// from approved to used by compare and set, so an approval runs one call and is
	// not lost without one. It must not run, and is not recorded, if there is no
	// such question ([ErrNotFound]), its approval was spent ([ErrUsed]) or it has
	// none ([ErrDecided]).
	BeginCall(ctx context.Context, call Call) error

	// EndCall records how a begun call ended; state is CallDone, CallDenied or
	// CallUnknown. It returns [ErrNotFound] for a call that was never begun and
	// [ErrDecided] for one that has ended.
	EndCall(ctx context.Context, key Key, id CallID, end CallEnd) error

	// Calls returns the calls of a session in the order they began.
	Calls(ctx context.Context, key Key) ([]Call, error)

	// Ask records a question; its id must be new, else [ErrExists].
	Ask(ctx context.Context, q Question) error

	// Questions returns the questions of a session in the order asked.
	Questions(ctx context.Context, key Key) ([]Question, error)

	// AppQuestions returns the questions of all sessions of an app that are in one
	// of these states, or all of them if none is named, the longest asked first.
	// Of those asked at the same time the order is by user, session and id. An app
	// without sessions has none.
	AppQuestions(ctx context.Context, tenant, app string, states ...QuestionState) ([]Question, error)

	// Decide moves a pending question to approved or rejected by compare and
	// set: of many decisions exactly one wins, the others get [ErrDecided].
	// [ErrNotFound] is also the answer for a question of another tenant or
	// session, and [ErrExpired] the one for a question past its time. A digest
	// in d that is not the question's is [ErrMismatch], and changes nothing.
	Decide(ctx context.Context, key Key, id string, d Decision) (Question, error)
}

// A CallID names one attempt to run a call. Attempt is 0, or 1 when the call
// runs after a person's approval.
type CallID struct {
	Run     string `json:"run"` // the invocation
	Call    string `json:"call"`
	Attempt int    `json:"attempt"`
}

// A CallState says how far a call got.
type CallState string

// The states of a call.
const (
	CallIntent  CallState = "intent"  // about to run; found after a crash, its outcome is unknown
	CallDone    CallState = "done"    // ended, with a result or an error
	CallDenied  CallState = "denied"  // its handler was not started, so it had no effect
	CallUnknown CallState = "unknown" // given up; it may have had its effect
)

// A Call is the record of one tool call.
type Call struct {
	Session    Key       `json:"session"`
	ID         CallID    `json:"id"`
	Agent      string    `json:"agent"`
	Tool       string    `json:"tool"`
	Module     string    `json:"module,omitempty"` // digest of the handler's module
	ArgsSHA256 string    `json:"args_sha256"`
	Approval   string    `json:"approval,omitempty"` // id of the question whose approval the call spends
	Began      time.Time `json:"began"`
	CallEnd
}

// A CallEnd is the second half of a call record.
type CallEnd struct {
	State  CallState       `json:"state"`
	Code   string          `json:"code,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // what the handler gave, even if a guard withheld it, or a hook in its place
	Ended  time.Time       `json:"ended,omitzero"`
}

// A QuestionState says what became of a question.
type QuestionState string

// The states of a question.
const (
	Pending  QuestionState = "pending"
	Approved QuestionState = "approved"
	Rejected QuestionState = "rejected"
	Used     QuestionState = "used"
)

// A Question is the record of what a person is asked about one call. It is the
// only thing that an answer is checked against.
type Question struct {
	ID         string          `json:"id"` // 128 random bits; the id of ADK's confirmation call
	Session    Key             `json:"session"`
	Run        string          `json:"run"`
	Agent      string          `json:"agent"`
	Call       string          `json:"call"` // id of the call asked about
	Tool       string          `json:"tool"`
	Module     string          `json:"module,omitempty"`
	Args       json.RawMessage `json:"args"`  // as judged and shown: canonical
	Given      json.RawMessage `json:"given"` // as the model gave them, to be put through the hooks again
	ArgsSHA256 string          `json:"args_sha256"`
	Policy     string          `json:"policy,omitempty"` // digest over the guards that judged
	Hint       string          `json:"hint,omitempty"`
	Asked      time.Time       `json:"asked"`
	AskedBy    string          `json:"asked_by,omitempty"` // who started the run that asks, as the host authenticated them
	Expires    time.Time       `json:"expires"`

	State   QuestionState   `json:"state"`
	By      string          `json:"by,omitempty"`
	ByRoles []string        `json:"by_roles,omitempty"` // of By when they decided; who may decide is looked at again before the call runs
	Decided time.Time       `json:"decided,omitzero"`
	Payload json.RawMessage `json:"payload,omitempty"` // what the person sent along
	Via     string          `json:"via,omitempty"`     // which way the decision came
	Reason  string          `json:"reason,omitempty"`  // the person's, for the operator
}

// A Decision is a person's answer to a question.
type Decision struct {
	Approve    bool
	By         string          // who decides, as the host authenticated them
	Roles      []string        // of By, as the host authenticated them; kept with the question
	At         time.Time       // compared with the question's expiry
	ArgsSHA256 string          // what the person saw; empty where the answer cannot say
	Payload    json.RawMessage // passed to the tool
	Via        string          // which way the decision came, such as "message"
	Reason     string          // for the operator
}
