package guest

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Plugin is what one module offers and asks for.
type Plugin struct {
	Name        string // abi.ValidName says what a name may be
	Version     string
	Description string
	Requests    []string // capabilities, such as "http GET api.example.com/v1/*"; nothing is given until an operator grants it
	Limits      Limits   // zero asks for the defaults
	Exports     []Export
}

// Limits are the limits that a plugin asks for.
type Limits = abi.Limits

// Effects says what happens when a tool is called; the zero value means [Once].
type Effects = abi.Effects

// The effects.
const (
	None       = abi.None       // changes nothing
	Idempotent = abi.Idempotent // the same [Call.ID] again changes nothing more
	Once       = abi.Once       // must not be repeated
)

// An Export is something that a plugin offers: a [Tool], [Stream], [Job], [Guard]
// or [Hooks].
type Export interface {
	add(s *server) error
}

// Serve makes p what this module is. It is called once, from an init function.
// It panics if p is no valid plugin: a name or schema that cannot be, a handler
// that is missing, a second call.
func Serve(p Plugin) {
	if served != nil {
		panic("guest: Serve called twice: a module is one plugin")
	}
	s, err := newServer(p)
	if err != nil {
		panic("guest: " + err.Error())
	}
	s.warmUp()
	served = s
	offer(s)
}

// served is the plugin that this module is.
var served *server

// A server answers the calls of the host.
type server struct {
	manifest  abi.Manifest
	described []byte
	tools     map[string]toolFunc
	guards    map[string]guardFuncs
	hooks     map[abi.HookPoint]hookFunc
	warm      []func()
}

func newServer(p Plugin) (*server, error) {
	s := &server{
		manifest: abi.Manifest{ABI: abi.Version, Name: p.Name, Version: p.Version, Description: p.Description,
			Requests: p.Requests, Limits: p.Limits},
		tools:  map[string]toolFunc{},
		guards: map[string]guardFuncs{},
		hooks:  map[abi.HookPoint]hookFunc{},
	}
	var errs []error
	for i, e := range p.Exports {
		if e == nil {
			errs = append(errs, fmt.Errorf("plugin %s: exports[%d] is nil", p.Name, i))
			continue
		}
		if err := e.add(s); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s: %w", p.Name, err))
		}
	}
	data, err := s.manifest.Encode()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	s.described = data
	return s, nil
}

// serve answers one call: input is the host's document, the result this module's.
// An error means that the host asked for what the plugin does not offer.
func (s *server) serve(w wall, input []byte) ([]byte, error) {
	if len(s.guards) > 0 { // a guard has little time: its question is read once
		q, err := readQuestion(input)
		if err == nil && q.format == abi.Version && q.kind == abi.KindGuard {
			return s.judge(w, q)
		}
	}
	format, kind, err := kindOf(input)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if format != abi.Version {
		return nil, fmt.Errorf("input: format %d: this module speaks %d", format, abi.Version)
	}
	switch kind {
	case abi.KindTool:
		return s.tool(w, input)
	case abi.KindHook:
		return s.hook(w, input)
	case abi.KindGuard:
		q, err := readQuestion(input)
		if err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		return s.judge(w, q)
	case abi.KindSettings:
		return s.settings(input)
	}
	return nil, fmt.Errorf("input: kind %q is not known", kind)
}

// kindOf reads what kind of document the host sent, in which format.
func kindOf(input []byte) (format int, kind abi.Kind, err error) {
	r := newReader(input)
	seen := 0
	err = r.object(func(name string) (err error) {
		switch name {
		case "format":
			format, err = r.integer()
		case "kind":
			err = readText(r, &kind)
		default:
			_, err = r.raw()
			return err
		}
		if seen++; seen == 2 && err == nil {
			return errEnough
		}
		return err
	})
	if err == errEnough {
		err = nil
	}
	return format, kind, err
}

// warmUp lets encoding/json learn the plugin's types and the heap get ready, so
// that an image of the initialised module has that behind it. It is no more than
// that: a type that cannot be used empty is left to its first call.
func (s *server) warmUp() {
	makeRoom() // first: a collection empties what allocation keeps at hand
	for _, f := range s.warm {
		func() {
			defer func() { _ = recover() }()
			f()
		}()
	}
	s.warm = nil
}

// decode reads a document that the host made.
func decode[T any](input []byte) (T, error) {
	var v T
	if err := json.Unmarshal(input, &v); err != nil {
		return v, fmt.Errorf("input: %w", err)
	}
	return v, nil
}
