package audit

import (
	"context"
	"sync"
)

// A Memory keeps records in memory, chained as in a file, for tests and for
// embedders that pass them on themselves. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	at      chain
	line    []byte // of the last record, to be written over
	records []*Record
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{at: start()} }

// Append keeps r. It fails only for a record without an action or with a time
// that JSON cannot say.
func (m *Memory) Append(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, line, at, err := m.at.add(r, m.line)
	if err != nil {
		return err
	}
	m.at, m.line = at, line
	m.records = append(m.records, &r)
	return nil
}

// Records returns the records so far, oldest first. The slice is the caller's.
func (m *Memory) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	records := make([]Record, len(m.records))
	for i, r := range m.records {
		records[i] = *r
	}
	return records
}
