package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// The bounds of a list of tools.
const (
	maxTools  = 512 // and pages
	maxListed = 1 << 20
)

// ErrClosed is returned by a toolset that was closed.
var ErrClosed = errors.New("mcp toolset closed")

// Config says how a server's tools are offered. The zero value is usable.
// [flow.FilterToolset] offers fewer of them.
type Config struct {
	// Confirm makes a person decide before each call. ConfirmIf, if set, decides
	// instead, from the name of the tool and the arguments.
	Confirm   bool
	ConfirmIf func(tool string, args map[string]any) bool

	Logger *slog.Logger // hears of tools that are left out; nil is silent
}

// A Toolset offers the tools of one server. It is safe for concurrent use.
type Toolset struct {
	name      string
	transport Transport
	cfg       Config
	client    *sdk.Client
	ended     context.Context // over when Close begins: what runs on the connection ends
	end       context.CancelCauseFunc

	// lock is held by whoever has its one element. A channel, because waiting
	// for it ends with a context.
	lock    chan struct{}
	session *sdk.ClientSession // nil: not connected
	closed  bool
}

// New returns a toolset over a server, and does not reach it yet: the first run
// that lists tools does. A connection that broke is made again by the next run
// that lists, never for a call. A missing transport or name is a mistake of the
// program, and panics.
func New(name string, t Transport, cfg Config) *Toolset {
	if name == "" || t.open == nil {
		panic(fmt.Sprintf("mcp: toolset %q: needs a name and a transport", name))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "sandboxd", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}})
	ended, end := context.WithCancelCause(context.Background())
	return &Toolset{name: name, transport: t, cfg: cfg, client: client, ended: ended, end: end, lock: make(chan struct{}, 1)}
}

// Name implements [flow.Toolset].
func (s *Toolset) Name() string { return s.name }

// Tools asks the server for its tools. It implements [flow.Toolset].
func (s *Toolset) Tools(ctx *flow.Context) ([]flow.Tool, error) {
	session, listed, err := s.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("mcp server %s: %w", s.name, err)
	}
	var tools []flow.Tool
	seen := map[string]bool{}
	for _, l := range listed {
		t, err := s.tool(session, l)
		if err == nil && seen[l.Name] {
			err = errors.New("listed twice")
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "mcp tool left out", "toolset", s.name, "tool", l.Name, "error", err.Error())
			continue
		}
		seen[l.Name] = true
		tools = append(tools, t)
	}
	return tools, nil
}

// Close ends the connection, and the server if it is a process. Calls that run
// fail. It waits some seconds for a server that does not let go. A closed toolset
// cannot be used; closing it again does nothing.
func (s *Toolset) Close() error {
	s.end(ErrClosed) // closing a connection waits for what runs on it
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.session != nil {
		err = s.session.Close()
	}
	if s.transport.close != nil {
		s.transport.close()
	}
	return err
}

// until returns a context that ends with ctx or with the toolset.
func (s *Toolset) until(ctx context.Context) (context.Context, func()) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ended, func() { cancel(ErrClosed) })
	return both, func() {
		stop()
		cancel(nil)
	}
}

// list lists what the server has, over a new connection if the old one broke.
func (s *Toolset) list(ctx context.Context) (*sdk.ClientSession, []*sdk.Tool, error) {
	ctx, done := s.until(ctx)
	defer done()
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if s.closed {
		return nil, nil, ErrClosed
	}
	if s.session != nil {
		listed, err := pages(ctx, s.session)
		if !broken(err) || ctx.Err() != nil {
			return s.session, listed, err
		}
		_ = s.session.Close() // it is broken, as was found
		s.session = nil
	}
	session, err := s.client.Connect(ctx, s.transport.open(), nil)
	if err != nil {
		return nil, nil, err
	}
	s.session = session
	listed, err := pages(ctx, session)
	return session, listed, err
}

// broken reports whether an error says that a connection cannot be used any more.
func broken(err error) bool {
	return errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, sdk.ErrSessionMissing)
}

func pages(ctx context.Context, session *sdk.ClientSession) ([]*sdk.Tool, error) {
	var listed []*sdk.Tool
	var size int
	params := &sdk.ListToolsParams{}
	for range maxTools {
		page, err := session.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(page.Tools)
		if err != nil {
			return nil, err
		}
		listed, size = append(listed, page.Tools...), size+len(data)
		switch {
		case size > maxListed:
			return nil, fmt.Errorf("list of tools: more than %d bytes", maxListed)
		case len(listed) > maxTools:
			return nil, fmt.Errorf("list of tools: more than %d", maxTools)
		case page.NextCursor == "":
			return listed, nil
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, fmt.Errorf("list of tools: more than %d pages", maxTools)
}

// names are what models take as the name of a function.
var names = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// tool makes a tool of what a server listed. An error says why it cannot be one.
func (s *Toolset) tool(session *sdk.ClientSession, l *sdk.Tool) (*tool, error) {
	switch {
	case !names.MatchString(l.Name):
		return nil, errors.New("the name is none that models take")
	case flow.Reserved(l.Name):
		return nil, errors.New("the name is reserved")
	}
	t := &tool{set: s, session: session, spec: flow.Spec{Name: l.Name, Description: l.Description, Effects: abi.Once, Confirm: s.cfg.Confirm}}
	if ask := s.cfg.ConfirmIf; ask != nil {
		t.spec.ConfirmIf = func(args map[string]any) bool { return ask(l.Name, args) }
	}
	var err error
	if t.spec.Input, err = schema(l.InputSchema); err != nil {
		return nil, fmt.Errorf("input schema: %w", err)
	}
	if in := t.spec.Input; in != nil && in.Type != "object" {
		return nil, errors.New("input schema: want one of an object")
	}
	if err := t.spec.Resolve(); err != nil {
		return nil, err
	}
	output, err := schema(l.OutputSchema)
	if err != nil {
		return nil, fmt.Errorf("output schema: %w", err)
	}
	if output != nil {
		if t.resolved, err = output.Resolve(nil); err != nil {
			return nil, fmt.Errorf("output schema: %w", err)
		}
		t.output = l.OutputSchema
	}
	return t, nil
}

func schema(v any) (*jsonschema.Schema, error) {
	if v == nil {
		return nil, nil
	}
	data, err := abi.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := &jsonschema.Schema{}
	return s, json.Unmarshal(data, s)
}
