package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/session"
)

// Create implements [session.Store].
func (s *Store) Create(ctx context.Context, key session.Key, state map[string]any) (*session.Session, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	var made *session.Session
	err := s.update(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO sessions (tenant, app, user, id, updated) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			key.Tenant, key.App, key.User, key.ID, stamp(time.Now()))
		if err := inserted(res, err); err != nil {
			return err
		}
		row, err := res.LastInsertId()
		if err != nil {
			return err
		}
		if err := apply(ctx, tx, key, row, state, true); err != nil {
			return err
		}
		made, err = load(ctx, tx, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", key.ID, err)
	}
	return made, nil
}

// Get implements [session.Store].
func (s *Store) Get(ctx context.Context, key session.Key) (*session.Session, error) {
	var got *session.Session
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		got, err = load(ctx, tx, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", key.ID, err)
	}
	return got, nil
}

// List implements [session.Store].
func (s *Store) List(ctx context.Context, tenant, app, user string) ([]session.Key, error) {
	var keys []session.Key
	err := s.view(ctx, func(tx *sql.Tx) error {
		return each(ctx, tx, func(scan func(...any) error) error {
			key := session.Key{Tenant: tenant, App: app, User: user}
			defer func() { keys = append(keys, key) }()
			return scan(&key.ID)
		}, `SELECT id FROM sessions WHERE tenant = ? AND app = ? AND user = ? ORDER BY id`, tenant, app, user)
	})
	if err != nil {
		return nil, fmt.Errorf("sessions of %s: %w", user, err)
	}
	return keys, nil
}

// Recent returns the n sessions of a user that were updated last, the newest first.
func (s *Store) Recent(ctx context.Context, tenant, app, user string, n int) ([]session.Key, error) {
	type dated struct {
		id      string
		updated time.Time
	}
	var all []dated
	err := s.view(ctx, func(tx *sql.Tx) error {
		return each(ctx, tx, func(scan func(...any) error) error {
			var d dated
			err := scan(&d.id, (*stamp)(&d.updated))
			all = append(all, d)
			return err
		}, `SELECT id, updated FROM sessions WHERE tenant = ? AND app = ? AND user = ? ORDER BY id`, tenant, app, user)
	})
	if err != nil {
		return nil, fmt.Errorf("sessions of %s: %w", user, err)
	}
	slices.SortStableFunc(all, func(a, b dated) int { return b.updated.Compare(a.updated) })
	var keys []session.Key
	for _, d := range all[:min(n, len(all))] {
		keys = append(keys, session.Key{Tenant: tenant, App: app, User: user, ID: d.id})
	}
	return keys, nil
}

// Users returns the users that have sessions of an app, in order.
func (s *Store) Users(ctx context.Context, tenant, app string) ([]string, error) {
	var users []string
	err := s.view(ctx, func(tx *sql.Tx) error {
		return each(ctx, tx, func(scan func(...any) error) error {
			var user string
			defer func() { users = append(users, user) }()
			return scan(&user)
		}, `SELECT DISTINCT user FROM sessions WHERE tenant = ? AND app = ? ORDER BY user`, tenant, app)
	})
	if err != nil {
		return nil, fmt.Errorf("users of %s: %w", app, err)
	}
	return users, nil
}

// Delete implements [session.Store].
func (s *Store) Delete(ctx context.Context, key session.Key) error {
	err := s.update(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, key)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM artifacts WHERE tenant = ? AND app = ? AND user = ? AND session = ?`,
			key.Tenant, key.App, key.User, key.ID); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM sessions WHERE row = ?`, row)
		return err
	})
	if err != nil {
		return fmt.Errorf("session %s: %w", key.ID, err)
	}
	return nil
}

// Append implements [session.Store].
func (s *Store) Append(ctx context.Context, key session.Key, event *session.Event) error {
	if event.Partial {
		return errors.New("event: partial events are not stored")
	}
	if event.ID == "" {
		return errors.New("event: no id")
	}
	text, err := encode(event)
	if err != nil {
		return fmt.Errorf("event %s: %w", event.ID, err)
	}
	err = s.update(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, key)
		if err != nil {
			return fmt.Errorf("session %s: %w", key.ID, err)
		}
		if err := inserted(tx.ExecContext(ctx, `INSERT INTO events (session, seq, id, event)
			SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3 FROM events WHERE session = ?1 ON CONFLICT DO NOTHING`, row, event.ID, text)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE sessions SET updated = ? WHERE row = ?`, stamp(event.Time), row); err != nil {
			return err
		}
		return apply(ctx, tx, key, row, event.Actions.StateDelta, false)
	})
	if err != nil {
		return fmt.Errorf("event %s: %w", event.ID, err)
	}
	return nil
}

// find returns the row of a session.
func find(ctx context.Context, tx *sql.Tx, key session.Key) (int64, error) {
	var row int64
	err := tx.QueryRowContext(ctx, `SELECT row FROM sessions WHERE tenant = ? AND app = ? AND user = ? AND id = ?`,
		key.Tenant, key.App, key.User, key.ID).Scan(&row)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, session.ErrNotFound
	}
	return row, err
}

// load reads a whole session.
func load(ctx context.Context, tx *sql.Tx, key session.Key) (*session.Session, error) {
	row, err := find(ctx, tx, key)
	if err != nil {
		return nil, err
	}
	sess := &session.Session{Key: key, State: map[string]any{}, Events: []*session.Event{}}
	if err := tx.QueryRowContext(ctx, `SELECT updated FROM sessions WHERE row = ?`, row).Scan((*stamp)(&sess.Updated)); err != nil {
		return nil, err
	}
	err = each(ctx, tx, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		ev := &session.Event{}
		sess.Events = append(sess.Events, ev)
		return decode(text, ev)
	}, `SELECT event FROM events WHERE session = ? ORDER BY seq`, row)
	if err != nil {
		return nil, fmt.Errorf("event %d: %w", len(sess.Events), err)
	}
	err = each(ctx, tx, func(scan func(...any) error) error {
		var name, text string
		if err := scan(&name, &text); err != nil {
			return err
		}
		var value any
		if err := decode(text, &value); err != nil {
			return fmt.Errorf("state %s: %w", name, err)
		}
		sess.State[name] = value
		return nil
	}, `SELECT key, value FROM session_state WHERE session = ?1
		UNION ALL SELECT 'user:' || key, value FROM user_state WHERE tenant = ?2 AND app = ?3 AND user = ?4
		UNION ALL SELECT 'app:' || key, value FROM app_state WHERE tenant = ?2 AND app = ?3`, row, key.Tenant, key.App, key.User)
	return sess, err
}

// apply writes state, each key to the row of its scope, and to no other.
func apply(ctx context.Context, tx *sql.Tx, key session.Key, row int64, delta map[string]any, keepTemp bool) error {
	for name, value := range delta {
		text, err := encode(value)
		if err != nil {
			return fmt.Errorf("state %s: %w", name, err)
		}
		switch scope, rest := session.SplitKey(name); scope {
		case session.ScopeUser:
			_, err = tx.ExecContext(ctx, `INSERT INTO user_state (tenant, app, user, key, value) VALUES (?, ?, ?, ?, ?)
				ON CONFLICT DO UPDATE SET value = excluded.value`, key.Tenant, key.App, key.User, rest, text)
		case session.ScopeApp:
			_, err = tx.ExecContext(ctx, `INSERT INTO app_state (tenant, app, key, value) VALUES (?, ?, ?, ?)
				ON CONFLICT DO UPDATE SET value = excluded.value`, key.Tenant, key.App, rest, text)
		default:
			if scope == session.ScopeTemp && !keepTemp {
				continue
			}
			_, err = tx.ExecContext(ctx, `INSERT INTO session_state (session, key, value) VALUES (?, ?, ?)
				ON CONFLICT DO UPDATE SET value = excluded.value`, row, name, text)
		}
		if err != nil {
			return fmt.Errorf("state %s: %w", name, err)
		}
	}
	return nil
}

// inserted turns an insert that met a row of the same key into an error.
func inserted(res sql.Result, err error) error {
	return changed(res, err, session.ErrExists)
}

// changed is the error of a statement, or otherwise if it changed nothing.
func changed(res sql.Result, err, otherwise error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

// each calls f for every row of a query.
func each(ctx context.Context, tx *sql.Tx, f func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
