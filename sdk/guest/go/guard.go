package guest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Guard judges. Judge is a pure function of the question, the settings and what
// [Question.KV] answers: it has no other host to ask, and a question judged again
// must have the same answer. A guard that panics, loops, or returns the zero [Verdict] denies.
//
// Settings is a struct, made from the operator's settings as a tool's input is
// made from its arguments; struct{} takes none.
type Guard[Settings any] struct {
	Name    string
	Phases  []Phase
	Mutates []Phase                               // the phases in which it may rewrite
	Check   func(s Settings) error                // says what is wrong with settings when the guard is installed; nil: nothing more than the schema
	Judge   func(q *Question, s Settings) Verdict // called for every question
}

// A Phase is a moment at which guards judge.
type Phase = abi.Phase

// The phases.
const (
	PhaseMessage  = abi.PhaseMessage  // what a user says, before it is stored
	PhaseRequest  = abi.PhaseRequest  // what a model is asked, before it is sent
	PhaseResponse = abi.PhaseResponse // what a model or a hook says, before it is stored or shown
	PhaseCall     = abi.PhaseCall     // a tool call, before its handler
	PhaseResult   = abi.PhaseResult   // a tool's result, before the model sees it
)

// A Question is all that a guard may know.
type Question struct {
	Phase   Phase
	Now     time.Time // the only time there is
	Tenant  string
	App     string
	Agent   string
	User    User // as the host authenticated them
	Session string
	Run     string
	Step    int

	Message  Content       // what is judged in PhaseMessage
	Request  ModelRequest  // what is judged in PhaseRequest
	Response ModelResponse // what is judged in PhaseResponse; if Partial is set, what a stream has said so far

	Tool   CalledTool // in PhaseCall and PhaseResult
	Args   Document   // what is judged in PhaseCall
	Result Document   // what is judged in PhaseResult
	Grants []string   // what the call would be granted
	Facts  Facts      // what the host adds from its own knowledge

	judged Document // a message, request or response
	wall   wall
}

// Judged returns what is judged, whatever the phase, as it arrived: the message,
// request, response, arguments or result.
func (q *Question) Judged() Document {
	switch q.Phase {
	case PhaseCall:
		return q.Args
	case PhaseResult:
		return q.Result
	}
	return q.judged
}

// A CalledTool describes the tool of the call that is judged.
type CalledTool struct {
	ID      string // of the call
	Name    string
	Known   bool // false: the model named a tool that does not exist
	Effects Effects
	Module  string // digest of the handler's module; empty for a tool of the host

	// Definition is the SHA-256, in lower-case hexadecimal, of what the model is told
	// about the tool, as abi.Definition makes it; empty for an unknown tool.
	Definition string
}

// Definition returns the digest of what a model is told about a tool, as
// [CalledTool].Definition has it. See abi.Definition.
func Definition(name, description string, input, output json.RawMessage) (string, error) {
	return abi.Definition(name, description, input, output)
}

// A User is who the run acts for.
type User = abi.User

// Facts are what the host knows about the call.
type Facts = abi.Facts

// A Verdict is what a guard decides. The zero Verdict denies. Nonce and digest of
// the question are filled in by this package.
type Verdict = abi.Verdict

// A Why tells the operator what a verdict rests on.
type Why = abi.Why

// Allow lets the document pass.
func Allow() Verdict { return abi.Allow() }

// AllowBut lets a response pass but for the last hold characters of a stream: they
// are shown when the guard has seen what follows, or that nothing does. Hold back
// what may be the beginning of something to be denied or rewritten, and no more. It
// is at most abi.MaxHold, and counts for nothing where nothing follows. A [Rewrite]
// may hold back, too: set its Hold.
func AllowBut(hold int) Verdict { return abi.AllowBut(hold) }

// Deny refuses. The code, [a-z_]{1,40}, is the author's; the model reads the
// reason, which is cut at abi.MaxReasonChars, and the operator reads why.
func Deny(code, reason string, why ...Why) Verdict { return abi.Deny(code, reason, why...) }

// Confirm asks a person, who reads the hint, cut at abi.MaxReasonChars.
func Confirm(hint string, why ...Why) Verdict { return abi.Confirm("", hint, why...) }

// Narrow lets the call pass with at most these grants.
func Narrow(grants ...string) Verdict { return abi.Narrow(grants...) }

// Rewrite replaces the judged document, in a phase that the guard mutates. A
// document that JSON cannot say, or a [Document] with a change that failed,
// denies.
func Rewrite(document any) Verdict {
	data, err := abi.Marshal(document)
	if err != nil {
		return Verdict{}
	}
	return abi.Rewrite(data)
}

type guardFuncs struct {
	judge func(q *Question, settings json.RawMessage) (Verdict, error)
	check func(settings json.RawMessage) error
}

func (g Guard[Settings]) add(s *server) error {
	t := reflect.TypeFor[Settings]()
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("guard %s: settings %s: want a struct", g.Name, t)
	}
	in, err := shapeOf(t)
	if err != nil {
		return fmt.Errorf("guard %s: settings: %w", g.Name, err)
	}
	if g.Judge == nil {
		return fmt.Errorf("guard %s: Judge is nil", g.Name)
	}
	var schema json.RawMessage
	if t.NumField() > 0 {
		if schema, err = in.objectSchema(); err != nil {
			return fmt.Errorf("guard %s: settings: %w", g.Name, err)
		}
	}
	s.manifest.Guards = append(s.manifest.Guards, abi.Guard{Name: g.Name, Phases: g.Phases, Mutates: g.Mutates,
		Settings: schema, Check: schema != nil || g.Check != nil})
	readSettings := func(data json.RawMessage) (v Settings, err error) {
		if data == nil {
			data = json.RawMessage("{}")
		}
		if err := in.decode(data, &v); err != nil {
			return v, fmt.Errorf("settings: %w", err)
		}
		return v, nil
	}
	s.guards[g.Name] = guardFuncs{
		judge: func(q *Question, data json.RawMessage) (Verdict, error) {
			settings, err := readSettings(data)
			if err != nil {
				return Verdict{}, err
			}
			return g.Judge(q, settings), nil
		},
		check: func(data json.RawMessage) error {
			settings, err := readSettings(data)
			if err != nil || g.Check == nil {
				return err
			}
			return g.Check(settings)
		},
	}
	s.warm = append(s.warm, func() {
		_, _ = readSettings(nil)
	}, func() {
		_, _ = readQuestion([]byte(`{"call":{"args":{}},"format":1,"kind":"guard","now":"","response":{"content":{"parts":[{"text":""}]}},"user":{}}`))
		_, _ = encodeVerdict(Deny("", "", Why{}))
	})
	return nil
}

func (s *server) judge(w wall, in *asked) ([]byte, error) {
	guard, ok := s.guards[in.guard]
	if !ok {
		return nil, fmt.Errorf("input: no guard %q", in.guard)
	}
	q := &in.question
	q.wall = w
	var err error
	if q.Now, err = time.Parse(time.RFC3339Nano, in.now); err != nil {
		return nil, fmt.Errorf("input: now: %w", err)
	}
	verdict, err := guard.judge(q, in.settings)
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", in.guard, err)
	}
	if verdict.Ruling != "" { // the zero verdict stays one
		verdict.Nonce, verdict.DocumentSHA256 = in.nonce, in.document
	}
	return encodeVerdict(verdict)
}

func (s *server) settings(input []byte) ([]byte, error) {
	in, err := decode[abi.SettingsCall](input)
	if err != nil {
		return nil, err
	}
	guard, ok := s.guards[in.Guard]
	if !ok {
		return nil, fmt.Errorf("input: no guard %q", in.Guard)
	}
	answer := abi.SettingsAnswer{Format: abi.Version}
	if err := guard.check(in.Settings); err != nil {
		answer.Error = err.Error()
	}
	return abi.Marshal(answer)
}
