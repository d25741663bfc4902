package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

func TestArtifacts(t *testing.T) {
	flowtest.TestArtifacts(t, func(t *testing.T, keys []session.Key) flow.Artifacts {
		s, err := sqlite.Open(filepath.Join(t.TempDir(), "s.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		for _, key := range keys {
			if _, err := s.Create(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
		}
		return s.Artifacts()
	})
}
