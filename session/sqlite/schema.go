package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID marks a file as one of this package: "sbxd".
const applicationID = 0x73627864

// migrations lead from an empty file to the newest schema, one step a version:
// a file of version n has seen the first n. They are never changed, only added to.
var migrations = []string{`
CREATE TABLE sessions (
	row     INTEGER PRIMARY KEY,
	tenant  TEXT NOT NULL,
	app     TEXT NOT NULL,
	user    TEXT NOT NULL,
	id      TEXT NOT NULL,
	updated TEXT NOT NULL,
	UNIQUE (tenant, app, user, id)
) STRICT;
CREATE TABLE events (
	session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
	seq     INTEGER NOT NULL, -- from 1, without gaps
	id      TEXT NOT NULL,
	event   TEXT NOT NULL, -- JSON
	PRIMARY KEY (session, seq),
	UNIQUE (session, id)
) STRICT;
CREATE TABLE session_state (
	session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
	key     TEXT NOT NULL,
	value   TEXT NOT NULL, -- JSON
	PRIMARY KEY (session, key)
) STRICT;
CREATE TABLE user_state (
	tenant TEXT NOT NULL,
	app    TEXT NOT NULL,
	user   TEXT NOT NULL,
	key    TEXT NOT NULL, -- without its prefix
	value  TEXT NOT NULL,
	PRIMARY KEY (tenant, app, user, key)
) STRICT;
CREATE TABLE app_state (
	tenant TEXT NOT NULL,
	app    TEXT NOT NULL,
	key    TEXT NOT NULL,
	value  TEXT NOT NULL,
	PRIMARY KEY (tenant, app, key)
) STRICT;
CREATE TABLE calls (
	session     INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
	seq         INTEGER NOT NULL,
	run         TEXT NOT NULL,
	call        TEXT NOT NULL,
	attempt     INTEGER NOT NULL,
	agent       TEXT NOT NULL,
	tool        TEXT NOT NULL,
	module      TEXT NOT NULL,
	args_sha256 TEXT NOT NULL,
	began       TEXT NOT NULL,
	state       TEXT NOT NULL,
	code        TEXT NOT NULL,
	result      BLOB,
	ended       TEXT NOT NULL,
	PRIMARY KEY (session, seq),
	UNIQUE (session, run, call, attempt)
) STRICT;
CREATE TABLE questions (
	session     INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
	seq         INTEGER NOT NULL,
	id          TEXT NOT NULL,
	run         TEXT NOT NULL,
	agent       TEXT NOT NULL,
	call        TEXT NOT NULL,
	tool        TEXT NOT NULL,
	module      TEXT NOT NULL,
	args        BLOB,
	given       BLOB,
	args_sha256 TEXT NOT NULL,
	policy      TEXT NOT NULL,
	hint        TEXT NOT NULL,
	asked       TEXT NOT NULL,
	expires     TEXT NOT NULL,
	state       TEXT NOT NULL,
	by          TEXT NOT NULL,
	decided     TEXT NOT NULL,
	payload     BLOB,
	PRIMARY KEY (session, seq),
	UNIQUE (session, id)
) STRICT;
`, `
ALTER TABLE calls ADD COLUMN approval TEXT NOT NULL DEFAULT '';
`, `
ALTER TABLE questions ADD COLUMN asked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN via TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN reason TEXT NOT NULL DEFAULT '';
`, `
CREATE TABLE artifacts (
	tenant  TEXT NOT NULL,
	app     TEXT NOT NULL,
	user    TEXT NOT NULL,
	session TEXT NOT NULL, -- its id; empty: the user's
	name    TEXT NOT NULL,
	version INTEGER NOT NULL, -- from 1, without gaps
	size    INTEGER NOT NULL, -- bytes of part and data
	part    TEXT NOT NULL, -- JSON, without inline data
	data    BLOB, -- inline data
	PRIMARY KEY (tenant, app, user, session, name, version)
) STRICT;
CREATE INDEX artifact_sizes ON artifacts (tenant, app, user, session, size);
`, `
CREATE TABLE kv (
	tenant TEXT NOT NULL,
	app    TEXT NOT NULL,
	owner  TEXT NOT NULL, -- the plugin or guard
	key    TEXT NOT NULL,
	value  BLOB NOT NULL, -- JSON
	size   INTEGER NOT NULL, -- bytes of key and value
	ends   INTEGER, -- microseconds since 1970; NULL: never
	PRIMARY KEY (tenant, app, owner, key)
) STRICT;
CREATE INDEX kv_ends ON kv (tenant, app, owner, ends, size);
`, `
ALTER TABLE questions ADD COLUMN by_roles TEXT NOT NULL DEFAULT ''; -- a JSON array; empty: none
`}

// prepare checks what the file is before it changes anything in it, and brings
// it up to date.
func (s *Store) prepare(ctx context.Context) error {
	if _, err := version(ctx, s.write); err != nil {
		return err
	}
	if err := s.keepLog(ctx); err != nil {
		return err
	}
	return s.update(ctx, func(tx *sql.Tx) error {
		have, err := version(ctx, tx)
		if err != nil || have == len(migrations) {
			return err
		}
		for i, m := range migrations[have:] {
			if _, err := tx.ExecContext(ctx, m); err != nil {
				return fmt.Errorf("to schema version %d: %w", have+i+1, err)
			}
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(migrations)))
		return err
	})
}

// keepLog turns on the write-ahead log, which a file then keeps. While others make
// the same new file, SQLite refuses this at once instead of waiting for them.
func (s *Store) keepLog(ctx context.Context) error {
	var mode string
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := s.write.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode)
		if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_BUSY && time.Since(began) < busy {
			continue
		}
		if err == nil && mode != "wal" {
			err = fmt.Errorf("journal mode is %s, want wal, which needs a local disk", mode)
		}
		return err
	}
}

// version returns how many migrations the file has seen.
func version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (int, error) {
	var id, have, tables int
	err := db.QueryRowContext(ctx, `SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id a, pragma_user_version v`).Scan(&id, &have, &tables)
	switch {
	case err != nil:
		return 0, err
	case id != applicationID && (id != 0 || have != 0 || tables != 0):
		return 0, errors.New("a database, but not of sessions")
	case have > len(migrations):
		return 0, fmt.Errorf("schema version %d is newer than %d, the newest this program knows", have, len(migrations))
	}
	return have, nil
}
