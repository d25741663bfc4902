package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxd/sandboxd/session"
)

// Ask implements [session.Store].
func (s *Store) Ask(ctx context.Context, q session.Question) error {
	if q.ID == "" {
		return errors.New("question: no id")
	}
	err := s.update(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, q.Session)
		if err != nil {
			return fmt.Errorf("session %s: %w", q.Session.ID, err)
		}
		return inserted(tx.ExecContext(ctx, `INSERT INTO questions
				(session, seq, id, run, agent, call, tool, module, args, given, args_sha256, policy, hint, asked, expires, state, by, decided, payload, asked_by, via, reason, by_roles)
			SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
			FROM questions WHERE session = ?1 ON CONFLICT DO NOTHING`,
			row, q.ID, q.Run, q.Agent, q.Call, q.Tool, q.Module, bytesOf(q.Args), bytesOf(q.Given), q.ArgsSHA256, q.Policy, q.Hint,
			stamp(q.Asked), stamp(q.Expires), string(session.Pending), q.By, stamp(q.Decided), bytesOf(q.Payload), q.AskedBy, q.Via, q.Reason, names(q.ByRoles)))
	})
	return questionError(q.ID, err)
}

// Questions implements [session.Store].
func (s *Store) Questions(ctx context.Context, key session.Key) ([]session.Question, error) {
	var questions []session.Question
	err := s.view(ctx, func(tx *sql.Tx) error {
		row, err := find(ctx, tx, key)
		if err != nil {
			return err
		}
		return each(ctx, tx, func(scan func(...any) error) error {
			q, err := scanQuestion(key, scan)
			questions = append(questions, q)
			return err
		}, selectQuestion+` WHERE session = ? ORDER BY seq`, row)
	})
	if err != nil {
		return nil, fmt.Errorf("questions of session %s: %w", key.ID, err)
	}
	return questions, nil
}

// AppQuestions implements [session.Store].
func (s *Store) AppQuestions(ctx context.Context, tenant, app string, states ...session.QuestionState) ([]session.Question, error) {
	var questions []session.Question
	err := s.view(ctx, func(tx *sql.Tx) error {
		return each(ctx, tx, func(scan func(...any) error) error {
			key := session.Key{Tenant: tenant, App: app}
			q, err := scanQuestion(key, func(dest ...any) error { return scan(append(dest, &key.User, &key.ID)...) })
			q.Session = key
			if err == nil && q.In(states...) {
				questions = append(questions, q)
			}
			return err
		}, `SELECT `+questionColumns+`, sessions.user, sessions.id FROM questions JOIN sessions ON sessions.row = questions.session
			WHERE tenant = ? AND app = ?`, tenant, app)
	})
	if err != nil {
		return nil, fmt.Errorf("questions of app %s: %w", app, err)
	}
	slices.SortFunc(questions, session.CompareAsked)
	return questions, nil
}

// Decide implements [session.Store].
func (s *Store) Decide(ctx context.Context, key session.Key, id string, d session.Decision) (session.Question, error) {
	var decided session.Question
	err := s.update(ctx, func(tx *sql.Tx) (err error) {
		decided, err = move(ctx, tx, key, id, func(q *session.Question) error { return q.Decide(d) })
		return err
	})
	if err != nil {
		return session.Question{}, err
	}
	return decided, nil
}

// move changes the state of a question. The state from which it moves is part of
// the statement that writes.
func move(ctx context.Context, tx *sql.Tx, key session.Key, id string, to func(*session.Question) error) (session.Question, error) {
	row, err := find(ctx, tx, key)
	if err != nil {
		return session.Question{}, questionError(id, err)
	}
	q, err := scanQuestion(key, tx.QueryRowContext(ctx, selectQuestion+` WHERE session = ? AND id = ?`, row, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = session.ErrNotFound
	}
	if err != nil {
		return session.Question{}, questionError(id, err)
	}
	from := q.State
	if err := to(&q); err != nil {
		return session.Question{}, err // names the question
	}
	res, err := tx.ExecContext(ctx, `UPDATE questions SET state = ?, by = ?, decided = ?, payload = ?, via = ?, reason = ?, by_roles = ? WHERE session = ? AND id = ? AND state = ?`,
		string(q.State), q.By, stamp(q.Decided), bytesOf(q.Payload), q.Via, q.Reason, names(q.ByRoles), row, id, string(from))
	return q, questionError(id, changed(res, err, session.ErrDecided))
}

const (
	questionColumns = `questions.id, run, agent, call, tool, module, args, given, args_sha256, policy, hint, asked, expires, state, by, decided, payload,
	asked_by, via, reason, by_roles`
	selectQuestion = `SELECT ` + questionColumns + ` FROM questions`
)

func scanQuestion(key session.Key, scan func(...any) error) (session.Question, error) {
	q := session.Question{Session: key}
	err := scan(&q.ID, &q.Run, &q.Agent, &q.Call, &q.Tool, &q.Module, (*[]byte)(&q.Args), (*[]byte)(&q.Given), &q.ArgsSHA256, &q.Policy, &q.Hint,
		(*stamp)(&q.Asked), (*stamp)(&q.Expires), &q.State, &q.By, (*stamp)(&q.Decided), (*[]byte)(&q.Payload), &q.AskedBy, &q.Via, &q.Reason, (*names)(&q.ByRoles))
	return q, err
}

func questionError(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("question %s: %w", id, err)
}
