package audit

import (
	"context"
	"slices"
	"sync"
)

// A Memory keeps records in memory, chained as in a file, for tests and for
// embedders that pass them on themselves. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	at      chain
	records []Record
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{at: start()} }

// Append keeps r. It fails only for a record without an action or with a time
// that JSON cannot say.
func (m *Memory) Append(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _, at, err := m.at.add(r)
	if err != nil {
		return err
	}
	m.at = at
	m.records = append(m.records, r)
	return nil
}

// Records returns the records so far, oldest first. The slice is the caller's.
func (m *Memory) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}
