package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/session"
)

// What one session may keep, and one user beside sessions, in all versions of all
// artifacts.
const (
	maxVersions = 10_000
	maxBytes    = 1 << 30
)

// Artifacts returns the artifacts that the store keeps beside its sessions.
func (s *Store) Artifacts() *Artifacts { return &Artifacts{s} }

// Artifacts keeps artifacts in the file of a [Store], as [session.MaxArtifact] and
// [session.ValidArtifactName] allow. The session they are saved for has to be
// there, and they are deleted with it; those whose names begin with "user:" stay.
// A session keeps at most 10,000 versions and 1 GiB, and so does a user. It is
// safe for concurrent use, by several processes too.
type Artifacts struct{ store *Store }

// ownerOf is the session that an artifact belongs to; empty: the user.
func ownerOf(key session.Key, name string) string {
	if scope, _ := session.SplitKey(name); scope == session.ScopeUser {
		return ""
	}
	return key.ID
}

// Save stores a new version of an artifact and returns its number, from 1. The part
// stays the caller's. No such session is [session.ErrNotFound]; what does not fit
// is [session.ErrTooLarge].
func (a *Artifacts) Save(ctx context.Context, key session.Key, name string, part *genai.Part) (int64, error) {
	if err := session.ValidArtifact(name, part); err != nil {
		return 0, err
	}
	rest, data := *part, []byte(nil)
	if part.InlineData != nil {
		inline := *part.InlineData
		data, inline.Data = inline.Data, nil
		rest.InlineData = &inline
	}
	text, err := encode(&rest)
	if err != nil {
		return 0, fmt.Errorf("artifact %s: %w", name, err)
	}
	var version int64
	err = a.store.update(ctx, func(tx *sql.Tx) error {
		if _, err := find(ctx, tx, key); err != nil {
			return fmt.Errorf("session %s: %w", key.ID, err)
		}
		owner, size := ownerOf(key, name), int64(len(text)+len(data))
		var kept, bytes int64
		if err := tx.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(size), 0) FROM artifacts WHERE tenant = ? AND app = ? AND user = ? AND session = ?`,
			key.Tenant, key.App, key.User, owner).Scan(&kept, &bytes); err != nil {
			return err
		}
		if kept >= maxVersions || bytes+size > maxBytes {
			return fmt.Errorf("%d versions with %d bytes are kept: %d more bytes exceed limit %d versions with %d bytes: %w",
				kept, bytes, size, maxVersions, maxBytes, session.ErrTooLarge)
		}
		return tx.QueryRowContext(ctx, `INSERT INTO artifacts (tenant, app, user, session, name, version, size, part, data)
			SELECT ?1, ?2, ?3, ?4, ?5, coalesce(max(version), 0) + 1, ?6, ?7, ?8 FROM artifacts
			WHERE tenant = ?1 AND app = ?2 AND user = ?3 AND session = ?4 AND name = ?5 RETURNING version`,
			key.Tenant, key.App, key.User, owner, name, size, text, data).Scan(&version)
	})
	if err != nil {
		return 0, fmt.Errorf("artifact %s: %w", name, err)
	}
	return version, nil
}

// Load returns a version, or the newest for version 0, as the caller's own. An
// error that matches [fs.ErrNotExist] means that there is none.
func (a *Artifacts) Load(ctx context.Context, key session.Key, name string, version int64) (*genai.Part, error) {
	part := &genai.Part{}
	err := a.store.view(ctx, func(tx *sql.Tx) error {
		var text string
		var data []byte
		err := tx.QueryRowContext(ctx, `SELECT part, data FROM artifacts WHERE tenant = ? AND app = ? AND user = ? AND session = ? AND name = ?
			AND (version = ? OR ? = 0) ORDER BY version DESC LIMIT 1`,
			key.Tenant, key.App, key.User, ownerOf(key, name), name, version, version).Scan(&text, &data)
		if errors.Is(err, sql.ErrNoRows) {
			return fs.ErrNotExist
		}
		if err != nil {
			return err
		}
		if err := decode(text, part); err != nil {
			return err
		}
		if part.InlineData != nil {
			part.InlineData.Data = data
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("artifact not found: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", name, err)
	}
	return part, nil
}

// List returns the names of the artifacts that a session sees, sorted.
func (a *Artifacts) List(ctx context.Context, key session.Key) ([]string, error) {
	var names []string
	err := a.store.view(ctx, func(tx *sql.Tx) error {
		return each(ctx, tx, func(scan func(...any) error) error {
			var name string
			defer func() { names = append(names, name) }()
			return scan(&name)
		}, `SELECT DISTINCT name FROM artifacts WHERE tenant = ? AND app = ? AND user = ? AND session IN ('', ?) ORDER BY name`,
			key.Tenant, key.App, key.User, key.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("artifacts of session %s: %w", key.ID, err)
	}
	return names, nil
}
