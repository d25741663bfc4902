package app

import (
	"context"
	"errors"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/session"
)

// maxRemembered is the most sessions that one search reads: the last ones by id.
const maxRemembered = 100

// A memory finds what was said in the other sessions of the user that the
// app still keeps. It reads them anew for every search.
type memory struct{ store session.Store }

// Search implements [flow.Memory]. It finds what shares a word with the query. The
// session that asks is left out: its model sees it anyway.
func (m *memory) Search(ctx context.Context, key session.Key, query string) ([]flow.MemoryEntry, error) {
	keys, err := m.store.List(ctx, key.Tenant, key.App, key.User)
	if err != nil {
		return nil, err
	}
	words := flow.NewWordMemory()
	for _, k := range keys[max(0, len(keys)-maxRemembered):] {
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
