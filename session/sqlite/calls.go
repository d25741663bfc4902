package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sandboxd/sandboxd/session"
)

// BeginCall implements [session.Store].
func (s *Store) BeginCall(ctx context.Context, call session.Call) error {
	err := s.update(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, call.Session)
		if err != nil {
			return fmt.Errorf("session %s: %w", call.Session.ID, err)
		}
		if err := inserted(tx.ExecContext(ctx, `INSERT INTO calls
				(session, seq, run, call, attempt, agent, tool, module, args_sha256, approval, began, state, code, ended)
			SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, '', ?12 FROM calls WHERE session = ?1 ON CONFLICT DO NOTHING`,
			row, call.ID.Run, call.ID.Call, call.ID.Attempt, call.Agent, call.Tool, call.Module, call.ArgsSHA256, call.Approval, stamp(call.Began),
			string(session.CallIntent), stamp{})); err != nil || call.Approval == "" {
			return err
		}
		_, err = move(ctx, tx, call.Session, call.Approval, (*session.Question).Spend)
		return err
	})
	return callError(call.ID, err)
}

// EndCall implements [session.Store].
func (s *Store) EndCall(ctx context.Context, key session.Key, id session.CallID, end session.CallEnd) error {
	switch end.State {
	case session.CallDone, session.CallDenied, session.CallUnknown:
	default:
		return fmt.Errorf("call %s: %q is no end", id.Call, end.State)
	}
	err := s.update(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, key)
		if err != nil {
			return fmt.Errorf("session %s: %w", key.ID, err)
		}
		var begun bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM calls WHERE session = ? AND run = ? AND call = ? AND attempt = ?)`,
			row, id.Run, id.Call, id.Attempt).Scan(&begun); err != nil {
			return err
		}
		if !begun {
			return session.ErrNotFound
		}
		res, err := tx.ExecContext(ctx, `UPDATE calls SET state = ?, code = ?, result = ?, ended = ?
			WHERE session = ? AND run = ? AND call = ? AND attempt = ? AND state = ?`,
			string(end.State), end.Code, bytesOf(end.Result), stamp(end.Ended), row, id.Run, id.Call, id.Attempt, string(session.CallIntent))
		return changed(res, err, session.ErrDecided)
	})
	return callError(id, err)
}

// Calls implements [session.Store].
func (s *Store) Calls(ctx context.Context, key session.Key) ([]session.Call, error) {
	var calls []session.Call
	err := s.view(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, key)
		if err != nil {
			return err
		}
		return each(ctx, tx, func(scan func(...any) error) error {
			c := session.Call{Session: key}
			err := scan(&c.ID.Run, &c.ID.Call, &c.ID.Attempt, &c.Agent, &c.Tool, &c.Module, &c.ArgsSHA256, &c.Approval, (*stamp)(&c.Began),
				&c.State, &c.Code, (*[]byte)(&c.Result), (*stamp)(&c.Ended))
			calls = append(calls, c)
			return err
		}, `SELECT run, call, attempt, agent, tool, module, args_sha256, approval, began, state, code, result, ended
			FROM calls WHERE session = ? ORDER BY seq`, row)
	})
	if err != nil {
		return nil, fmt.Errorf("calls of session %s: %w", key.ID, err)
	}
	return calls, nil
}

func callError(id session.CallID, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("call %s of run %s: %w", id.Call, id.Run, err)
}
