package flow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// A Context is what instruction providers and toolsets may know of a run. It is
// safe for concurrent use, but not after the call it was made for.
type Context struct {
	context.Context

	run     *run
	agent   string
	actions *actions // nil: nothing can be changed
}

// Agent returns the name of the agent that runs.
func (c *Context) Agent() string { return c.agent }

// Session returns the key of the session.
func (c *Context) Session() session.Key { return c.run.key }

// Run returns the id of the run, ADK's invocation id.
func (c *Context) Run() string { return c.run.id }

// UserContent returns a copy of the message that started the run, or nil.
func (c *Context) UserContent() *genai.Content { return session.CloneContent(c.run.userContent) }

// State returns a copy of a state value: what this call wrote, else what the
// session holds. Keys carry their prefix.
func (c *Context) State(key string) (any, bool) {
	if c.actions != nil {
		if v, ok := c.actions.state(key); ok {
			return session.CloneValue(v), true
		}
	}
	return c.run.state(key)
}

// Artifact returns a part of the newest version of an artifact, or of the given
// one if it is not 0.
func (c *Context) Artifact(name string, version int64) (*genai.Part, error) {
	if c.run.cfg.Artifacts == nil {
		return nil, ErrNoArtifacts
	}
	return c.run.cfg.Artifacts.Load(c, c.run.key, name, version)
}

// Artifacts lists the names of the artifacts of the session and of the user.
func (c *Context) Artifacts() ([]string, error) {
	if c.run.cfg.Artifacts == nil {
		return nil, ErrNoArtifacts
	}
	return c.run.cfg.Artifacts.List(c, c.run.key)
}

// SearchMemory finds what was said in earlier sessions of the user.
func (c *Context) SearchMemory(query string) ([]MemoryEntry, error) {
	if c.run.cfg.Memory == nil {
		return nil, ErrNoMemory
	}
	return c.run.cfg.Memory.Search(c, c.run.key, query)
}

// A CallbackContext is a [Context] that may change state and artifacts. What it
// changes becomes part of the event that follows.
type CallbackContext struct {
	Context
}

// ErrEnded is returned when a context is used after the call it was made for.
var ErrEnded = errors.New("the call has ended")

// ErrReadOnly is returned at the points that cannot change state or artifacts:
// on-user-message, before-run, after-run and on-event hooks, and request
// processors.
var ErrReadOnly = errors.New("state and artifacts cannot be changed here")

// SetState sets state values, all or none. Values must be expressible in JSON;
// nil is stored as null.
func (c *CallbackContext) SetState(values map[string]any) error {
	clean := make(map[string]any, len(values))
	for key, value := range values {
		if key == "" {
			return errors.New("state: empty key")
		}
		v, err := generic(value)
		if err != nil {
			return fmt.Errorf("state %q: %w", key, err)
		}
		clean[key] = v
	}
	return c.actions.change(func(a *session.Actions) {
		if a.StateDelta == nil {
			a.StateDelta = map[string]any{}
		}
		maps.Copy(a.StateDelta, clean)
	})
}

// SaveArtifact saves a new version of an artifact and returns its number.
func (c *CallbackContext) SaveArtifact(name string, part *genai.Part) (int64, error) {
	if c.run.cfg.Artifacts == nil {
		return 0, ErrNoArtifacts
	}
	if c.actions == nil {
		return 0, ErrReadOnly
	}
	if c.actions.ended() {
		return 0, ErrEnded
	}
	version, err := c.run.cfg.Artifacts.Save(c, c.run.key, name, part)
	if err != nil {
		return 0, err
	}
	return version, c.actions.change(func(a *session.Actions) {
		if a.ArtifactDelta == nil {
			a.ArtifactDelta = map[string]int64{}
		}
		a.ArtifactDelta[name] = version
	})
}

// A ToolContext is the context of one tool call. It has no way to end the run,
// to change the agent or to act for another call.
type ToolContext struct {
	CallbackContext

	callID       string
	confirmation *session.Confirmation
	place        place     // for agents that run inside the call
	emit         yieldFunc // what such an agent yields
}

// CallID returns the id of the call.
func (c *ToolContext) CallID() string { return c.callID }

// Confirmation returns a person's answer about this call, or nil if none was asked.
func (c *ToolContext) Confirmation() *session.Confirmation { return c.confirmation }

// RequestConfirmation asks a person about this call. The handler should return
// at once; if the person agrees the call is made again, with the answer. The
// payload must be expressible in JSON, and is copied; if it is not, nobody is asked.
func (c *ToolContext) RequestConfirmation(hint string, payload any) error {
	if c.callID == "" {
		return errors.New("confirmation: the call has no id")
	}
	payload, err := generic(payload)
	if err != nil {
		return fmt.Errorf("confirmation: payload: %w", err)
	}
	return c.actions.change(func(a *session.Actions) {
		if a.RequestedConfirmations == nil {
			a.RequestedConfirmations = map[string]session.Confirmation{}
		}
		a.RequestedConfirmations[c.callID] = session.Confirmation{Hint: hint, Payload: payload}
		a.SkipSummarization = true
	})
}

// SkipSummarization ends the run with this call's result, without asking the
// model again.
func (c *ToolContext) SkipSummarization() error {
	return c.actions.change(func(a *session.Actions) { a.SkipSummarization = true })
}

// Escalate hands control to whatever runs this agent, such as a loop.
func (c *ToolContext) Escalate() error {
	return c.actions.change(func(a *session.Actions) { a.Escalate = true })
}

// Transfer hands the conversation to another agent when the step is over.
func (c *ToolContext) Transfer(agent string) error {
	if agent == "" {
		return errors.New("transfer: no agent named")
	}
	return c.actions.change(func(a *session.Actions) { a.TransferToAgent = agent })
}

// Actions are what one call or one chain of hooks changed so far.
type actions struct {
	mu   sync.Mutex
	done bool
	set  session.Actions
}

func (a *actions) change(f func(*session.Actions)) error {
	if a == nil {
		return ErrReadOnly
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return ErrEnded
	}
	f(&a.set)
	return nil
}

func (a *actions) state(key string) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.set.StateDelta[key]
	return v, ok
}

func (a *actions) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// end closes the actions: nothing can change them any more.
func (a *actions) end() session.Actions {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
	return a.set.Clone()
}

// generic returns v as generic JSON with the text of its numbers.
func generic(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		if len(v) < 1<<20 && strings.ToValidUTF8(v, "") == v {
			return v, nil
		}
	}
	data, err := said(v)
	if err != nil {
		return nil, err
	}
	return abi.Unmarshal(data)
}
