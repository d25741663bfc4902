package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// How much of a digest a person repeats to say what they have seen.
const (
	shownDigits = 12 // is shown
	leastDigits = 8  // is enough
)

type decideFlags struct {
	runFlags
	args   string
	reason string
	as     string
}

func confirmDecideCommand(e *env, approve bool) *cobra.Command {
	f := &decideFlags{}
	c := &cobra.Command{
		Use: "approve APP ID", Short: "Approve a call, and go on with its run",
		Long: "Approve the call that a question is about, and go on with the run that asked. The call\n" +
			"runs once, in exactly the form that is shown, and only if its guards still let it pass;\n" +
			"if arguments, module or guards have changed, there is a new question.\n\n" +
			"One approves what one has seen: at a terminal the call is shown and asked about,\n" +
			"elsewhere --args-sha256 repeats the digest that confirm show prints. The decision is\n" +
			"kept before anything runs: if this process ends, sandboxd run --session goes on.\n\n" +
			"Who decides is recorded as the user of this computer, or as --as says, with the roles that\n" +
			"--as-role says: who may use this command may say anything there.",
		Example: "sandboxd confirm approve . cnf-8f2e0a1b-5d0c-8e77-19aa-4f0e2b1c9d3a\n" +
			"sandboxd confirm approve . cnf-8f2e0a1b-5d0c-8e77-19aa-4f0e2b1c9d3a --args-sha256 77ab01c9d2e4 --reason \"order 118\"",
		Args: exactly("APP", "ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.decide(c.Context(), f, approve, args[0], args[1])
		},
	}
	flags := c.Flags()
	if approve {
		flags.StringVar(&f.args, "args-sha256", "", fmt.Sprintf("the first `DIGITS` of the digest of what is approved, at least %d", leastDigits))
		groupFlags(c, "input", "args-sha256")
	} else {
		c.Use, c.Short = "reject APP ID", "Reject a call, and go on with its run"
		c.Long = "Reject the call that a question is about, and go on with the run that asked: the model\nis told. The handler of the call is never started."
		c.Example = "sandboxd confirm reject . cnf-8f2e0a1b-5d0c-8e77-19aa-4f0e2b1c9d3a\n" +
			"sandboxd confirm reject . cnf-8f2e0a1b-5d0c-8e77-19aa-4f0e2b1c9d3a --reason \"paid already\""
	}
	flags.StringVar(&f.reason, "reason", "", "why, `TEXT` for the record")
	flags.StringVar(&f.as, "as", "", "who decides, `NAME`; default the user of this computer")
	flags.StringArrayVar(&f.asRoles, "as-role", nil, "a `ROLE` of who decides, where confirm: {deciders} wants one; may be repeated")
	flags.StringArrayVar(&f.roles, "role", nil, "a `ROLE` of the user whom the run acts for, for guards; may be repeated")
	flags.BoolVarP(&e.progress.verbose, "verbose", "v", false, "show the timeline, and what was built and compiled, although standard error is no terminal")
	groupFlags(c, "input", "reason", "as", "as-role", "role")
	groupFlags(c, "output", "verbose")
	sessionFlag(c, &f.session)
	jsonFlag(c, &f.json)
	return c
}

// decide records a decision and goes on with the run.
func (e *env) decide(ctx context.Context, f *decideFlags, approve bool, name, id string) error {
	by, err := e.somebody(f.as)
	if err != nil {
		return err
	}
	file, err := app.Load(e.path(name))
	if err != nil {
		return err
	}
	if !file.KeepsSessions() {
		_, err := file.OpenSessions()
		return err
	}
	w := newRunWriter(e, &f.runFlags)
	rt, closeAll, err := e.openApp(ctx, file, app.Options{Observer: w.observer(), Logger: e.logger(e.progress.verbose)})
	if err != nil {
		return err
	}
	defer closeAll()
	q, err := findQuestion(ctx, file, rt.Store, id, f.session)
	if err != nil {
		return err
	}
	r := &appRun{env: e, flags: &f.runFlags, w: w, rt: rt, key: q.Session, app: name, by: by}
	d := session.Decision{Approve: approve, By: by, Roles: f.asRoles, Via: "confirm", Reason: f.reason, ArgsSHA256: q.ArgsSHA256}
	if approve {
		if d.ArgsSHA256, err = r.seen(q, f.args); err != nil {
			return err
		}
	}
	if _, err := rt.Session(ctx, q.Session.User, q.Session.ID); err != nil { // with the app's files
		return err
	}
	if _, err := rt.Runner.Decide(ctx, q.Session, q.ID, d); err != nil {
		return r.refused(err)
	}
	w.start(rt, q.Session)
	_, err = r.goOn(ctx)
	return err
}

// seen returns the digest of what the person has seen: that of the question if they
// repeat its beginning, or say yes to it at the terminal.
func (r *appRun) seen(q session.Question, digits string) (string, error) {
	digits = strings.TrimPrefix(digits, "sha256:")
	show := fmt.Sprintf("sandboxd confirm show %s %s prints it", r.app, q.ID)
	switch {
	case digits != "" && len(digits) < leastDigits:
		return "", misuse(show, "--args-sha256 %s: %d digits, want at least %d", digits, len(digits), leastDigits)
	case digits != "" && strings.HasPrefix(q.ArgsSHA256, digits):
		return q.ArgsSHA256, nil
	case digits != "":
		return digits, nil // is refused, and audited
	case q.State != session.Pending:
		return q.ArgsSHA256, nil // likewise
	case !r.rt.Runner.MayDecide(q, r.by, r.flags.asRoles):
		return q.ArgsSHA256, nil // likewise
	case r.flags.json || !r.stdin.terminal || !r.stderr.terminal:
		return "", misuse(show, "--args-sha256 is missing: one approves what one has seen")
	}
	yes, err := r.ask(q)
	if err != nil {
		return "", err
	}
	if !yes {
		return "", &commandError{What: "question " + q.ID + ": not approved", Hint: fmt.Sprintf("it still waits; sandboxd confirm reject %s %s ends it", r.app, q.ID), Exit: exitNotDone}
	}
	return q.ArgsSHA256, nil
}

// refused explains why a decision does not count.
func (r *appRun) refused(err error) error {
	refused, ok := errors.AsType[*flow.DecisionError](err)
	if !ok {
		return err
	}
	q := refused.Question
	c := &commandError{What: refused.Error(), Code: refused.Code, Exit: exitNotDone}
	now, err := r.rt.File.Now()
	if err != nil {
		return err
	}
	switch refused.Code {
	case abi.ConfirmationDecided:
		c.What = fmt.Sprintf("question %s: %s", q.ID, questionState(q, now))
		if q.State == session.Approved {
			c.Hint = fmt.Sprintf("sandboxd run --session %s --user %s %s goes on with it", q.Session.ID, q.Session.User, r.app)
		}
	case abi.ConfirmationExpired:
		c.What = fmt.Sprintf("question %s: %s, at %s", q.ID, questionState(q, now), q.Expires.UTC().Format(time.RFC3339))
	case abi.ConfirmationMismatch:
		c.What = fmt.Sprintf("question %s: its arguments have another digest, sha256:%s", q.ID, q.ArgsSHA256[:shownDigits])
		c.Hint = fmt.Sprintf("look again: sandboxd confirm show %s %s", r.app, q.ID)
	case abi.Forbidden:
		if own := r.rt.File.Confirm; own.FourEyes && q.OwnTo(r.by) {
			c.What = fmt.Sprintf("question %s: %s may not decide about a run of their own", q.ID, r.by)
			c.Hint = "app " + r.rt.File.Name + " has confirm: {four_eyes: true}: someone else has to decide"
		} else {
			c.What = fmt.Sprintf("question %s: %s may not decide", q.ID, r.by)
			c.Hint = fmt.Sprintf("app %s has confirm: {deciders: [%s]}; --as-role says which roles somebody has who decides", r.rt.File.Name, deciders(own, ", "))
		}
	}
	return c
}

// somebody returns who acts at the command line: the name that they claim, or else
// the user of this computer.
func (e *env) somebody(claimed string) (string, error) {
	name := claimed
	if name == "" {
		var err error
		if name, err = e.user(); err != nil {
			return "", &commandError{What: fmt.Sprintf("user of this computer: %v", err), Exit: exitNotDone}
		}
	}
	if len(name) > 128 || name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return "", misuse("", "name %q: want 1 to 128 bytes of printable text", name)
	}
	return name, nil
}
