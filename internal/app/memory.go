package app

import (
	"context"
	"errors"
	"slices"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// maxRemembered is the most sessions that one search reads: those updated last.
const maxRemembered = 100

// A memory finds what was said in the other sessions of the user that the
// app still keeps. It reads them anew for every search.
type memory struct{ store *sqlite.Store }

// Search implements [flow.Memory]. It finds what shares a word with the query. The
// session that asks is left out: its model sees it anyway.
func (m *memory) Search(ctx context.Context, key session.Key, query string) ([]flow.MemoryEntry, error) {
	keys, err := m.store.Recent(ctx, key.Tenant, key.App, key.User, maxRemembered)
	if err != nil {
		return nil, err
	}
	words := flow.NewWordMemory()
	for _, k := range slices.Backward(keys) { // the oldest first
		if k == key {
			continue
		}
		s, err := m.store.Get(ctx, k)
		if errors.Is(err, session.ErrNotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		words.Add(s)
	}
	return words.Search(ctx, key, query)
}
