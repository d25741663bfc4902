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

	judged Document
	wall   wall
}

// Judged returns what is judged, whatever the phase, as it arrived: the message,
// request, response, arguments or result.
func (q *Question) Judged() Document { return q.judged }

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
	read := func(data json.RawMessage) (v Settings, err error) {
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
			settings, err := read(data)
			if err != nil {
				return Verdict{}, err
			}
			return g.Judge(q, settings), nil
		},
		check: func(data json.RawMessage) error {
			settings, err := read(data)
			if err != nil || g.Check == nil {
				return err
			}
			return g.Check(settings)
		},
	}
	s.warm = append(s.warm, func() {
		_, _ = decode[abi.Question]([]byte(`{"format":1,"kind":"guard","call":{"args":{}}}`))
	}, func() {
		for _, p := range g.Phases {
			if p == PhaseMessage || p == PhaseRequest || p == PhaseResponse {
				_, _ = decode[ModelResponse]([]byte(`{"content":{"parts":[{}]}}`))
			}
		}
	}, func() {
		_, _ = read(nil)
	}, func() {
		_, _ = abi.Marshal(abi.Deny("", "", Why{}))
	})
	return nil
}

func (s *server) judge(w wall, input []byte) ([]byte, error) {
	in, err := readQuestion(input)
	if err != nil {
		return nil, err
	}
	guard, ok := s.guards[in.Guard]
	if !ok {
		return nil, fmt.Errorf("input: no guard %q", in.Guard)
	}
	now, err := time.Parse(time.RFC3339Nano, in.Now)
	if err != nil {
		return nil, fmt.Errorf("input: now: %w", err)
	}
	q := &Question{Phase: in.Phase, Now: now, Tenant: in.Tenant, App: in.App, Agent: in.Agent, User: in.User, Session: in.Session,
		Run: in.Run, Step: in.Step, Result: Document{raw: in.Result}, Grants: in.Grants, Facts: in.Facts, wall: w}
	for _, d := range []struct {
		document json.RawMessage
		into     json.Unmarshaler
	}{{in.Message, &q.Message}, {in.Request, &q.Request}, {in.Response, &q.Response}} {
		if d.document == nil {
			continue
		}
		if err := d.into.UnmarshalJSON(d.document); err != nil {
			return nil, fmt.Errorf("input: %s: %w", in.Phase, err)
		}
	}
	if in.Call != nil {
		q.Tool = CalledTool{ID: in.Call.ID, Name: in.Call.Tool, Known: in.Call.Known, Effects: in.Call.Effects, Module: in.Call.Module,
			Definition: in.Call.DefinitionSHA256}
		q.Args = Document{raw: in.Call.Args}
	}
	switch in.Phase {
	case PhaseMessage:
		q.judged = Document{raw: in.Message}
	case PhaseRequest:
		q.judged = Document{raw: in.Request}
	case PhaseResponse:
		q.judged = Document{raw: in.Response}
	case PhaseCall:
		q.judged = q.Args
	case PhaseResult:
		q.judged = q.Result
	}
	verdict, err := guard.judge(q, in.Settings)
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", in.Guard, err)
	}
	if verdict.Ruling != "" { // the zero verdict stays one
		verdict.Nonce, verdict.DocumentSHA256 = in.Nonce, in.DocumentSHA256
	}
	return abi.Marshal(verdict)
}

// readQuestion decodes a question. Its documents are taken out first, so that they
// are not read for every level above them.
func readQuestion(input []byte) (abi.Question, error) {
	m, err := splitObject(input)
	if err != nil {
		return abi.Question{}, fmt.Errorf("input: %w", err)
	}
	take := func(from members, name string) json.RawMessage {
		raw := from[name]
		delete(from, name)
		if string(raw) == "null" {
			return nil
		}
		return raw
	}
	var q abi.Question
	documents := map[string]*json.RawMessage{"message": &q.Message, "request": &q.Request, "response": &q.Response, "result": &q.Result, "settings": &q.Settings}
	for name, into := range documents {
		*into = take(m, name)
	}
	var args json.RawMessage
	if call := take(m, "call"); call != nil {
		inner, err := splitObject(call)
		if err != nil {
			return abi.Question{}, fmt.Errorf("input: call: %w", err)
		}
		args = take(inner, "args")
		m["call"] = inner.join()
	}
	if err := json.Unmarshal(m.join(), &q); err != nil {
		return abi.Question{}, fmt.Errorf("input: %w", err)
	}
	if q.Call != nil {
		q.Call.Args = args
	}
	return q, nil
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
