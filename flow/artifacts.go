package flow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// ErrNoArtifacts is returned when a run has no artifact store.
var ErrNoArtifacts = errors.New("artifact service is not initialized")

// Artifacts keeps named, versioned files beside sessions. Names that begin with
// "user:" belong to the user and are seen in all sessions; all others belong to
// one session. Implementations are safe for concurrent use, and share nothing with
// their callers, who may change the parts they gave and got.
type Artifacts interface {
	// Save stores a new version and returns its number: 1, 2, and so on. What
	// [session.ValidArtifact] refuses is an error.
	Save(ctx context.Context, key session.Key, name string, part *genai.Part) (int64, error)
	// Load returns a version, or the newest for version 0. An error that
	// matches [fs.ErrNotExist] means that there is none.
	Load(ctx context.Context, key session.Key, name string, version int64) (*genai.Part, error)
	// List returns the names, sorted.
	List(ctx context.Context, key session.Key) ([]string, error)
}

// NewMemoryArtifacts returns an empty store that forgets when the process ends.
func NewMemoryArtifacts() *MemoryArtifacts {
	return &MemoryArtifacts{versions: map[artifactKey][]*genai.Part{}}
}

// MemoryArtifacts keeps artifacts in memory. It is safe for concurrent use.
type MemoryArtifacts struct {
	mu       sync.Mutex
	versions map[artifactKey][]*genai.Part
}

type artifactKey struct {
	session session.Key
	name    string
}

func keyOf(key session.Key, name string) artifactKey {
	if strings.HasPrefix(name, string(session.ScopeUser)) {
		key.ID = ""
	}
	return artifactKey{key, name}
}

// Save implements [Artifacts].
func (m *MemoryArtifacts) Save(_ context.Context, key session.Key, name string, part *genai.Part) (int64, error) {
	if err := session.ValidArtifact(name, part); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := keyOf(key, name)
	m.versions[k] = append(m.versions[k], clonePart(part))
	return int64(len(m.versions[k])), nil
}

// Load implements [Artifacts].
func (m *MemoryArtifacts) Load(_ context.Context, key session.Key, name string, version int64) (*genai.Part, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.versions[keyOf(key, name)]
	if version == 0 {
		version = int64(len(all))
	}
	if version < 1 || version > int64(len(all)) {
		return nil, fmt.Errorf("artifact not found: %w", fs.ErrNotExist)
	}
	return clonePart(all[version-1]), nil
}

func clonePart(p *genai.Part) *genai.Part {
	c := session.CloneContent(&genai.Content{Parts: []*genai.Part{p}}).Parts[0]
	if c.InlineData != nil {
		c.InlineData.Data = bytes.Clone(c.InlineData.Data)
	}
	return c
}

// List implements [Artifacts].
func (m *MemoryArtifacts) List(_ context.Context, key session.Key) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for k := range m.versions {
		if k == keyOf(key, k.name) {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return names, nil
}
