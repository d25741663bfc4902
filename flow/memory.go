package flow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// ErrNoMemory is returned when a run has no memory.
var ErrNoMemory = errors.New("memory service is not initialized")

// A Memory finds what was said in a user's earlier sessions of an app.
// Implementations are safe for concurrent use.
type Memory interface {
	// Search returns what fits a query, in an order of its own choosing, from
	// sessions of the same tenant, app and user as key. The entries must not be
	// changed by either side.
	Search(ctx context.Context, key session.Key, query string) ([]MemoryEntry, error)
}

// A MemoryEntry is one thing that was said.
type MemoryEntry struct {
	Author  string
	Content *genai.Content
	Time    time.Time // zero: not known
}

// Text joins the texts of the entry, thoughts left out, with blanks.
func (e MemoryEntry) Text() string {
	var texts []string
	for _, p := range parts(e.Content) {
		if p != nil && p.Text != "" && !p.Thought {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, " ")
}

// NewWordMemory returns an empty memory that forgets when the process ends.
func NewWordMemory() *WordMemory {
	return &WordMemory{sessions: map[session.Key][]remembered{}}
}

// A WordMemory remembers sessions in this process and finds what shares a word with
// a query, whatever the case. It is safe for concurrent use.
type WordMemory struct {
	mu       sync.Mutex
	sessions map[session.Key][]remembered
	order    []session.Key // in which sessions were first added
}

type remembered struct {
	entry MemoryEntry
	words map[string]bool
}

// Add remembers what was said in a session, in place of what it held for it before.
func (m *WordMemory) Add(s *session.Session) {
	var all []remembered
	for _, ev := range s.Events {
		e := MemoryEntry{Author: ev.Author, Content: session.CloneContent(ev.Content), Time: ev.Time}
		if words := wordsOf(e.Text()); len(words) > 0 {
			all = append(all, remembered{e, words})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.sessions[s.Key]; !there {
		m.order = append(m.order, s.Key)
	}
	m.sessions[s.Key] = all
}

// Search implements [Memory]. It returns the sessions in the order they were added.
func (m *WordMemory) Search(_ context.Context, key session.Key, query string) ([]MemoryEntry, error) {
	wanted := wordsOf(query)
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []MemoryEntry
	for _, k := range m.order {
		if k.Tenant != key.Tenant || k.App != key.App || k.User != key.User {
			continue
		}
		for _, r := range m.sessions[k] {
			for w := range wanted {
				if r.words[w] {
					found = append(found, r.entry)
					break
				}
			}
		}
	}
	return found, nil
}

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		words[strings.ToLower(w)] = true
	}
	return words
}

// firstText returns the text of a content's first part, "" if that is none.
func firstText(c *genai.Content) string {
	if ps := parts(c); len(ps) > 0 && ps[0] != nil {
		return ps[0].Text
	}
	return ""
}
