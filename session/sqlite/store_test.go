package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sessiontest"
)

func openStore(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	sessiontest.TestStore(t, func(t *testing.T) session.Store {
		return openStore(t, filepath.Join(t.TempDir(), "a?b#c%20 d.db"))
	})
}
