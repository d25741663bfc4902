package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// stateOf is the state as one call sees it.
type stateOf struct{ ctx *flow.CallbackContext }

// stateKey turns a guest's spelling of a key into the flow's: "session:" names
// the keys without a prefix. What would land in another scope is refused.
func stateKey(key string) (string, error) {
	rest, unprefixed := strings.CutPrefix(key, "session:")
	scope, _ := session.SplitKey(rest)
	if !unprefixed {
		if scope == session.ScopeSession {
			return "", fmt.Errorf("state key %q: want session:, user:, app: or temp: in front", key)
		}
		return key, nil
	}
	if rest == "" || scope != session.ScopeSession {
		return "", fmt.Errorf("state key %q: not a key of the session", key)
	}
	return rest, nil
}

func (s stateOf) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	name, err := stateKey(key)
	if err != nil {
		return nil, false, err
	}
	v, ok := s.ctx.State(name)
	if !ok {
		return nil, false, nil
	}
	data, err := abi.Marshal(v)
	return data, true, err
}

func (s stateOf) Set(_ context.Context, values map[string]json.RawMessage) error {
	set := make(map[string]any, len(values))
	for key, raw := range values {
		name, err := stateKey(key)
		if err != nil {
			return err
		}
		if set[name], err = abi.Unmarshal(raw); err != nil {
			return fmt.Errorf("state key %q: %w", key, err)
		}
	}
	return s.ctx.SetState(set)
}

// artifactsOf are the artifacts as one call sees them.
type artifactsOf struct {
	ctx *flow.CallbackContext

	// What was read last: guests read in pieces, and a store hands out the whole.
	name    string
	version int64 // as asked for
	part    *genai.Part
}

func (a *artifactsOf) List(context.Context) ([]string, error) {
	names, err := a.ctx.Artifacts()
	return names, notThere(err)
}

// Read implements [host.Artifacts]. A read that goes on reads the version that it
// began with.
func (a *artifactsOf) Read(_ context.Context, name string, version, offset int64, n int) ([]byte, error) {
	if a.part == nil || offset == 0 || name != a.name || version != a.version {
		part, err := a.ctx.Artifact(name, version)
		if err != nil {
			return nil, notThere(err)
		}
		a.name, a.version, a.part = name, version, part
	}
	if a.part.InlineData == nil { // of a text only what is asked for is copied
		return []byte(window(a.part.Text, offset, n)), nil
	}
	return window(a.part.InlineData.Data, offset, n), nil
}

// window returns n bytes from an offset on, or those that there are.
func window[T string | []byte](data T, offset int64, n int) T {
	if offset < 0 || offset >= int64(len(data)) || n <= 0 {
		return data[:0]
	}
	data = data[offset:]
	return data[:min(n, len(data))]
}

func (a *artifactsOf) Save(_ context.Context, name, mime string, data []byte) (int64, error) {
	if err := session.ValidArtifactName(name); err != nil {
		return 0, err
	}
	part := genai.NewPartFromBytes(append([]byte(nil), data...), mime)
	if mime == "" || mime == "text/plain" {
		part = genai.NewPartFromText(string(data))
	}
	version, err := a.ctx.SaveArtifact(name, part)
	return version, notThere(err)
}

// notThere turns the flow's "no such artifact", and "no artifacts at all", into
// the host's.
func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, flow.ErrNoArtifacts) {
		return fmt.Errorf("%w: %w", host.ErrNotFound, err)
	}
	return err
}

// memoryOf is the memory as one call sees it. Without one, nothing is found.
type memoryOf struct{ ctx *flow.CallbackContext }

func (m memoryOf) Search(_ context.Context, query string) ([]abi.MemoryEntry, error) {
	found, err := m.ctx.SearchMemory(query)
	if err != nil && !errors.Is(err, flow.ErrNoMemory) {
		return nil, err
	}
	var out []abi.MemoryEntry
	for _, e := range found {
		entry := abi.MemoryEntry{Author: e.Author, Text: e.Text()}
		if !e.Time.IsZero() {
			entry.Time = e.Time.UTC().Format(time.RFC3339Nano)
		}
		out = append(out, entry)
	}
	return out, nil
}

// actionsOf are the actions of one tool call.
type actionsOf struct{ ctx *flow.ToolContext }

func (a actionsOf) Confirm(hint string, payload json.RawMessage) error {
	var v any
	if len(payload) > 0 {
		var err error
		if v, err = abi.Unmarshal(payload); err != nil {
			return err
		}
	}
	return a.ctx.RequestConfirmation(hint, v)
}

func (a actionsOf) Transfer(agent string) error { return a.ctx.Transfer(agent) }
func (a actionsOf) Escalate() error             { return a.ctx.Escalate() }
func (a actionsOf) SkipSummary() error          { return a.ctx.SkipSummarization() }

func logLevel(level string) slog.Level {
	switch level {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}
