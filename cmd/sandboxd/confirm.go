package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

func confirmCommand(e *env) *cobra.Command {
	return group("confirm", "Answer the questions that calls wait for",
		confirmListCommand(e), confirmShowCommand(e), confirmDecideCommand(e, true), confirmDecideCommand(e, false))
}

func confirmListCommand(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls APP", Short: "List the questions that wait for a person",
		Long: "List the questions of all sessions of an app that can be answered, the oldest first:\n" +
			"id, age, tool, who asked, the session, and what is asked.",
		Example: "sandboxd confirm ls .\nsandboxd confirm ls . --json",
		Args:    exactly("APP"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withSessions(args[0], func(file *app.File, store *sqlite.Store) error {
				questions, err := file.AllPending(c.Context(), store)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(e.stdout).Encode(map[string]any{"format": 1, "questions": append([]session.Question{}, questions...)})
				}
				now, err := file.Now()
				if err != nil {
					return err
				}
				return e.printQuestions(questions, now)
			})
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// printQuestions prints a table at a terminal, and lines with tabs elsewhere.
func (e *env) printQuestions(questions []session.Question, now time.Time) error {
	var w io.Writer = e.stdout
	if e.stdout.terminal {
		table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		defer table.Flush()
		w = table
		fmt.Fprintln(w, "ID\tAGE\tTOOL\tASKED BY\tSESSION\tQUESTION")
	}
	for _, q := range questions {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", foreign(q.ID, true), age(now.Sub(q.Asked)), foreign(q.Tool, true), foreign(q.AskedBy, true),
			foreign(q.Session.ID, true), foreign(q.Hint, false)); err != nil {
			return err
		}
	}
	return nil
}

// age returns a span of time for people, in its largest unit: "40s", "2m", "3h",
// "5d".
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func confirmShowCommand(e *env) *cobra.Command {
	var id string
	var asJSON bool
	c := &cobra.Command{
		Use: "show APP ID", Short: "Show all of a question",
		Long: "Show a question, whatever has become of it: the call with all its arguments and their\n" +
			"digest, who asked, until when it can be answered, and who answered. Hidden characters\nare escaped and nothing is left out.",
		Example: "sandboxd confirm show . cnf-8f2e0a1b-5d0c-8e77-19aa-4f0e2b1c9d3a\nsandboxd confirm show . cnf-8f2e0a1b-5d0c-8e77-19aa-4f0e2b1c9d3a --json",
		Args:    exactly("APP", "ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withSessions(args[0], func(file *app.File, store *sqlite.Store) error {
				q, err := findQuestion(c.Context(), file, store, args[1], id)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(e.stdout).Encode(map[string]any{"format": 1, "question": q})
				}
				now, err := file.Now()
				if err != nil {
					return err
				}
				e.printQuestion(e.stdout, q, now)
				return nil
			})
		},
	}
	sessionFlag(c, &id)
	jsonFlag(c, &asJSON)
	return c
}

// sessionFlag gives c the flag that tells questions of one id apart.
func sessionFlag(c *cobra.Command, v *string) {
	c.Flags().StringVar(v, "session", "", "the question of the session `ID`, if several have one of that id")
	groupFlags(c, "input", "session")
}

// findQuestion returns the question of an app that the user named. A session that
// was imported may have the questions of another one.
func findQuestion(ctx context.Context, file *app.File, store session.Store, id, sessionID string) (session.Question, error) {
	all, err := store.AppQuestions(ctx, "", file.Name)
	if err != nil {
		return session.Question{}, err
	}
	var found []session.Question
	for _, q := range all {
		if q.ID == id && (sessionID == "" || q.Session.ID == sessionID) {
			found = append(found, q)
		}
	}
	switch len(found) {
	case 0:
		return session.Question{}, &commandError{What: fmt.Sprintf("question %s: app %s has none of that id", id, file.Name), Code: abi.ConfirmationNotFound,
			Hint: "sandboxd confirm ls shows those that wait", Exit: exitNotDone}
	case 1:
		return found[0], nil
	}
	return session.Question{}, misuse("name one with --session", "question %s: sessions %s and %s both have one of that id", id, found[0].Session.ID, found[1].Session.ID)
}

// printQuestion prints all of a question, one line a part.
func (e *env) printQuestion(w io.Writer, q session.Question, now time.Time) {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("question", "%s", foreign(q.ID, true))
	line("asks", "%s", foreign(q.Hint, true))
	line("tool", "%s of agent %s", foreign(q.Tool, true), foreign(q.Agent, true))
	if q.Module != "" {
		line("module", "%s", q.Module)
	}
	line("args", "%s", foreign(string(q.Args), true))
	line("digest", "sha256:%s", q.ArgsSHA256)
	line("asked", "%s by %s, for user %s", q.Asked.UTC().Format(time.RFC3339), foreign(q.AskedBy, true), foreign(q.Session.User, true))
	line("session", "%s, run %s, call %s", foreign(q.Session.ID, true), foreign(q.Run, true), foreign(q.Call, true))
	line("state", "%s", questionState(q, now))
	if len(q.ByRoles) > 0 {
		line("roles", "%s", foreign(strings.Join(q.ByRoles, ", "), true))
	}
	if q.Reason != "" {
		line("reason", "%s", foreign(q.Reason, true))
	}
}

// questionState says what has become of a question.
func questionState(q session.Question, now time.Time) string {
	switch {
	case q.State != session.Pending:
		return fmt.Sprintf("%s by %s %s ago, via %s", map[session.QuestionState]string{session.Approved: "approved, not yet run,",
			session.Used: "approved and run,", session.Rejected: "rejected"}[q.State], foreign(q.By, true), age(now.Sub(q.Decided)), foreign(q.Via, true))
	case !q.Expires.IsZero() && now.After(q.Expires):
		return "expired " + age(now.Sub(q.Expires)) + " ago"
	}
	return "pending until " + q.Expires.UTC().Format(time.RFC3339)
}
