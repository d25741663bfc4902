package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// Artifacts outlive the process that saved them, and end with their session; those of
// the user stay.
func TestArtifactsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Artifacts().Save(t.Context(), key, "f", genai.NewPartFromText("x")); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("saved for a session that is not there: %v", err)
	}
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	whole := []byte(strings.Repeat("\x00\xff", session.MaxArtifact/2-100))
	for _, name := range []string{"f", "user:f"} {
		for _, part := range []*genai.Part{genai.NewPartFromText("first"), genai.NewPartFromBytes(whole, "a/b")} {
			if _, err := s.Artifacts().Save(t.Context(), key, name, part); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	for _, name := range []string{"f", "user:f"} {
		first, err := s.Artifacts().Load(t.Context(), key, name, 1)
		newest, err2 := s.Artifacts().Load(t.Context(), key, name, 0)
		if err != nil || err2 != nil || first.Text != "first" || newest.InlineData.MIMEType != "a/b" || string(newest.InlineData.Data) != string(whole) {
			t.Errorf("%s: %v, %v", name, err, err2)
		}
	}
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Artifacts().Load(t.Context(), key, "f", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the artifact of a deleted session: %v", err)
	}
	if names, err := s.Artifacts().List(t.Context(), key); err != nil || len(names) != 1 || names[0] != "user:f" {
		t.Errorf("names %q, %v", names, err)
	}
}

// What one session or one user keeps is bounded in versions and bytes, and another
// has its own room.
func TestArtifactsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		rows int
		size int64
	}{"versions": {maxVersions, 1}, "bytes": {2, maxBytes / 2}} {
		for _, artifact := range []string{"f", "user:f"} {
			t.Run(name+" "+artifact, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s.db")
				s := openStore(t, path)
				if _, err := s.Create(t.Context(), key, nil); err != nil {
					t.Fatal(err)
				}
				fill := func(rows int) {
					execute(t, path, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
						INSERT OR REPLACE INTO artifacts SELECT '%s', '%s', '%s', '%s', 'full', i, %d, '{}', NULL FROM n`,
						rows, key.Tenant, key.App, key.User, ownerOf(key, artifact), c.size))
				}
				fill(c.rows)
				if _, err := s.Artifacts().Save(t.Context(), key, artifact, genai.NewPartFromText("x")); !errors.Is(err, session.ErrTooLarge) || !strings.HasPrefix(err.Error(), "artifact "+artifact+": ") {
					t.Errorf("saved past the bound: %v", err)
				}
				other := map[string]string{"f": "user:f", "user:f": "f"}[artifact]
				if _, err := s.Artifacts().Save(t.Context(), key, other, genai.NewPartFromText("x")); err != nil {
					t.Errorf("the room of another: %v", err)
				}
				execute(t, path, "DELETE FROM artifacts WHERE name = 'full' AND version = 1")
				if _, err := s.Artifacts().Save(t.Context(), key, artifact, genai.NewPartFromText("x")); err != nil {
					t.Errorf("within the bound: %v", err)
				}
			})
		}
	}
}
