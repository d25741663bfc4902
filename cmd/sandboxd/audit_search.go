package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/audit"
)

// An auditQuery says which records are wanted: those that fit all that is set.
type auditQuery struct {
	since, until               string
	action, tool               string
	session, run, call         string
	decision, code, actor, sum string

	from, to time.Time // of since and until; zero: no bound
}

func auditSearchCommand(e *env) *cobra.Command {
	q := &auditQuery{}
	var asJSON bool
	c := &cobra.Command{
		Use: "search [FILE]", Short: "Find records of an audit log",
		Long: "Print the records of an audit log that fit all flags, in the order of the log.\n\n" +
			"FILE is a log, or a folder with an app, whose log is read; it is the current folder if\nit is left out. Every line is checked as audit verify does; at a broken one the search ends.\n\n" +
			"A time is RFC 3339, or a span back from now, as in 90m and 7d. An action may end in a\npoint, as in guard. and confirmation., for all that begin so. --tool finds all records of\nthe calls of a tool: its guards', its questions' and its host calls', too.",
		Example: "sandboxd audit search examples/weather --session demo\nsandboxd audit search --action confirmation. --since 7d --json",
		Args:    exactly("[FILE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "."
			if len(args) > 0 {
				name = args[0]
			}
			return e.searchAudit(name, q, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringVar(&q.since, "since", "", "not before `TIME`")
	flags.StringVar(&q.until, "until", "", "not after `TIME`")
	flags.StringVar(&q.action, "action", "", "this `ACTION`, such as call.end")
	flags.StringVar(&q.tool, "tool", "", "about calls of the tool `NAME`")
	flags.StringVar(&q.session, "session", "", "of the session `ID`")
	flags.StringVar(&q.run, "run", "", "of the run `ID`")
	flags.StringVar(&q.call, "call", "", "of the call `ID`")
	flags.StringVar(&q.decision, "decision", "", "with this `DECISION`, such as deny, ran or not run")
	flags.StringVar(&q.code, "code", "", "with this `CODE`, such as policy_denied")
	flags.StringVar(&q.actor, "actor", "", "`WHO` acted")
	flags.StringVar(&q.sum, "digest", "", fmt.Sprintf("of a module or of arguments: its first `DIGITS`, at least %d", leastDigits))
	groupFlags(c, "input", "since", "until", "action", "tool", "session", "run", "call", "decision", "code", "actor", "digest")
	jsonFlag(c, &asJSON)
	return c
}

// prepare reads what the user wrote.
func (q *auditQuery) prepare(now time.Time) error {
	for _, b := range []struct {
		name, text string
		into       *time.Time
	}{{"--since", q.since, &q.from}, {"--until", q.until, &q.to}} {
		if b.text == "" {
			continue
		}
		t, err := when(b.text, now)
		if err != nil {
			return misuse("2026-03-01T09:00:00Z, 90m, 12h, 7d", "%s %q: no time and no span of time", b.name, b.text)
		}
		*b.into = t
	}
	q.sum = strings.TrimPrefix(q.sum, "sha256:")
	if q.sum != "" && len(q.sum) < leastDigits {
		return misuse("", "--digest %s: %d digits, want at least %d", q.sum, len(q.sum), leastDigits)
	}
	return nil
}

// when reads a time, or a span back from now.
func when(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		d, err := time.ParseDuration(days + "h")
		return now.Add(-24 * d), err
	}
	d, err := time.ParseDuration(s)
	return now.Add(-d), err
}

// A callKey names a call: ids of calls repeat from run to run.
type callKey struct{ tenant, session, run, call string }

func callOf(r audit.Record) callKey { return callKey{r.Tenant, r.Session, r.Run, r.Call} }

// fits reports whether a record is wanted, but for its tool.
func (q *auditQuery) fits(r audit.Record) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	sum := func(have string) bool { return strings.HasPrefix(strings.TrimPrefix(have, "sha256:"), q.sum) }
	action := is(q.action, r.Action) || strings.HasSuffix(q.action, ".") && strings.HasPrefix(r.Action, q.action)
	return action && is(q.session, r.Session) && is(q.run, r.Run) && is(q.call, r.Call) && is(q.decision, r.Decision) && is(q.code, r.Code) && is(q.actor, r.Actor) &&
		(q.from.IsZero() || !r.Time.Before(q.from)) && (q.to.IsZero() || !r.Time.After(q.to)) &&
		(q.sum == "" || sum(r.Module) || sum(r.ArgsSHA256))
}

func (e *env) searchAudit(name string, q *auditQuery, asJSON bool) error {
	if err := q.prepare(e.now()); err != nil {
		return err
	}
	f, err := e.openAudit(name)
	if err != nil {
		return err
	}
	defer f.Close()
	found := []audit.Record{}
	ofTool := map[callKey]bool{}
	var broken error
	for r, err := range audit.Scan(f) {
		if errors.Is(err, audit.ErrChain) {
			broken = brokenLog(name, err)
			break
		}
		if err != nil {
			return &fileError{name, err}
		}
		if r.Target == q.tool && strings.HasPrefix(r.Action, "call.") {
			ofTool[callOf(r)] = true // its guards come before this record
		}
		if q.fits(r) {
			found = append(found, r)
		}
	}
	if q.tool != "" {
		some := found
		found = []audit.Record{}
		for _, r := range some {
			if r.Call != "" && ofTool[callOf(r)] {
				found = append(found, r)
			}
		}
	}
	if asJSON {
		err = json.NewEncoder(e.stdout).Encode(map[string]any{"format": 1, "records": found})
	} else {
		err = e.printRecords(found)
	}
	return errors.Join(err, broken)
}

// printRecords prints a table at a terminal, and lines with tabs elsewhere.
func (e *env) printRecords(records []audit.Record) error {
	var w io.Writer = e.stdout
	if e.stdout.terminal {
		table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		defer table.Flush()
		w = table
		fmt.Fprintln(w, "TIME\tACTION\tTARGET\tDECISION\tCODE\tACTOR\tSESSION\tCALL\tWHY")
	}
	for _, r := range records {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Time.Format(time.RFC3339), foreign(r.Action, true), foreign(r.Target, true), foreign(r.Decision, true),
			foreign(r.Code, true), foreign(r.Actor, true), foreign(r.Session, true), foreign(r.Call, true), foreign(r.Why, true)); err != nil {
			return err
		}
	}
	return nil
}

// openAudit opens the log that the user named, or that of the app in a folder.
func (e *env) openAudit(name string) (*os.File, error) {
	path, err := e.auditPath(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &fileError{name, err}
	}
	return f, nil
}
