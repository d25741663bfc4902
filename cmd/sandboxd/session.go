package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

func sessionCommand(e *env) *cobra.Command {
	return group("session", "Look at stored sessions, and move them",
		sessionListCommand(e), sessionShowCommand(e), sessionExportCommand(e), sessionImportCommand(e))
}

func userFlag(c *cobra.Command, v *string) {
	c.Flags().StringVar(v, "user", localUser, "whose sessions, `ID`")
	groupFlags(c, "input", "user")
}

// withSessions opens the stored sessions of an app, and closes them after f.
func (e *env) withSessions(name string, f func(*app.File, *sqlite.Store) error) error {
	file, err := app.Load(e.path(name))
	if err != nil {
		return err
	}
	store, err := file.OpenSessions()
	if err != nil {
		return err
	}
	err = f(file, store)
	if closing := store.Close(); err == nil {
		err = closing
	}
	return err
}

// storedSession reads a session that the user named.
func storedSession(ctx context.Context, store *sqlite.Store, key session.Key) (*session.Session, error) {
	sess, err := store.Get(ctx, key)
	if errors.Is(err, session.ErrNotFound) {
		return nil, &commandError{What: fmt.Sprintf("session %s: user %s has none of that id", key.ID, key.User), Code: abi.NotFound,
			Hint: "sandboxd session ls shows them, with --user for another user", Exit: exitNotDone}
	}
	return sess, err
}

// A sessionLine is one session as session ls shows it.
type sessionLine struct {
	ID      string    `json:"id"`
	Updated time.Time `json:"updated"`
	Events  int       `json:"events"`
	Waiting []string  `json:"waiting"` // ids of questions that can be answered
}

func sessionListCommand(e *env) *cobra.Command {
	var user string
	var asJSON bool
	c := &cobra.Command{
		Use: "ls APP", Short: "List the stored sessions of a user",
		Long:    "List the sessions of a user: id, last change, number of events, and the questions that\nwait for a person.",
		Example: "sandboxd session ls .\nsandboxd session ls . --user ana --json",
		Args:    exactly("APP"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withSessions(args[0], func(file *app.File, store *sqlite.Store) error {
				lines, err := sessionLines(c.Context(), file, store, user)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(e.stdout).Encode(map[string]any{"format": 1, "sessions": lines})
				}
				return e.printSessions(lines)
			})
		},
	}
	userFlag(c, &user)
	jsonFlag(c, &asJSON)
	return c
}

func sessionLines(ctx context.Context, file *app.File, store *sqlite.Store, user string) ([]sessionLine, error) {
	keys, err := store.List(ctx, "", file.Name, user)
	if err != nil {
		return nil, err
	}
	lines := []sessionLine{}
	for _, key := range keys {
		sess, err := store.Get(ctx, key)
		if errors.Is(err, session.ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		line := sessionLine{ID: key.ID, Updated: sess.Updated, Events: len(sess.Events), Waiting: []string{}}
		pending, err := file.Pending(ctx, store, key)
		if err != nil {
			return nil, err
		}
		for _, q := range pending {
			line.Waiting = append(line.Waiting, q.ID)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// printSessions prints a table at a terminal, and lines with tabs elsewhere.
func (e *env) printSessions(lines []sessionLine) error {
	var w io.Writer = e.stdout
	if e.stdout.terminal {
		table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		defer table.Flush()
		w = table
		fmt.Fprintln(w, "ID\tUPDATED\tEVENTS\tWAITING")
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", foreign(l.ID, true), l.Updated.UTC().Format(time.RFC3339), l.Events, len(l.Waiting)); err != nil {
			return err
		}
	}
	return nil
}

func sessionShowCommand(e *env) *cobra.Command {
	var user string
	var asJSON, full bool
	c := &cobra.Command{
		Use: "show APP ID", Short: "Show what a session holds",
		Long:    "Show the events of a session in order, its state, its calls and the questions that were\nasked.",
		Example: "sandboxd session show . demo\nsandboxd session show . demo --json",
		Args:    exactly("APP", "ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withSessions(args[0], func(file *app.File, store *sqlite.Store) error {
				ctx, key := c.Context(), session.Key{App: file.Name, User: user, ID: args[1]}
				sess, err := storedSession(ctx, store, key)
				if err != nil {
					return err
				}
				calls, err := store.Calls(ctx, key)
				if err != nil {
					return err
				}
				questions, err := store.Questions(ctx, key)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(e.stdout).Encode(map[string]any{"format": 1, "session": sess, "calls": calls, "questions": questions})
				}
				e.printSession(sess, calls, questions, full)
				return nil
			})
		},
	}
	userFlag(c, &user)
	jsonFlag(c, &asJSON)
	c.Flags().BoolVar(&full, "full", false, "do not shorten values")
	groupFlags(c, "output", "full")
	return c
}

func (e *env) printSession(sess *session.Session, calls []session.Call, questions []session.Question, full bool) {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(e.stdout, "%-9s %s\n", foreign(what, false), fmt.Sprintf(format, args...))
	}
	value := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			return "?"
		}
		return foreign(string(data), full)
	}
	line("session", "%s of user %s, %s", foreign(sess.Key.ID, true), foreign(sess.Key.User, true), plural(len(sess.Events), "event"))
	for _, ev := range sess.Events {
		for _, c := range ev.Calls() {
			line(ev.Author, "calls %s %s", foreign(c.Name, false), value(c.Args))
		}
		for _, r := range ev.Responses() {
			line(ev.Author, "answers %s %s", foreign(r.Name, false), value(r.Response))
		}
		if text := ev.Text(); text != "" {
			line(ev.Author, "%s", foreign(text, full))
		}
		if ev.ErrorCode != "" {
			line(ev.Author, "%s: %s", foreign(ev.ErrorCode, false), foreign(ev.ErrorMessage, full))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sess.State)) {
		line("state", "%s = %s", foreign(name, false), value(sess.State[name]))
	}
	for _, c := range calls {
		line("call", "%s %s %s %s", foreign(c.ID.Call, false), foreign(c.Tool, false), c.State, c.Code)
	}
	for _, q := range questions {
		line("question", "%s %s %s, expires %s", foreign(q.ID, false), foreign(q.Tool, false), q.State, q.Expires.UTC().Format(time.RFC3339))
	}
}
