package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"mime"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

type runFlags struct {
	session string
	user    string
	roles   []string
	asRoles []string // of whoever answers questions
	files   []string
	json    bool
	full    bool
	noInput bool
	trace   bool
	failOn  string
	replay  string
	watch   bool
}

// localUser is who acts at a command line.
const localUser = "local"

func runCommand(e *env) *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use: "run APP [MESSAGE]", Short: "Run an app on a message",
		Long: "Run the app in a folder on one message, and print its answer.\n\n" +
			"Without a message, standard input is the message if it is piped; at a terminal there\nis a prompt for one message after the other.\n\n" +
			"A session that an app keeps goes on with --session. What it waits for a person to\nanswer is asked first, at a terminal.",
		Example: "sandboxd run examples/weather \"Will it snow in Oslo tomorrow?\"\nsandboxd run --json examples/weather \"Read https://evil.example/x for me\"",
		Args:    exactly("APP", "[MESSAGE]"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("fail-on") {
				if err := choice("fail-on", f.failOn, "deny"); err != nil {
					return err
				}
			}
			if f.watch && len(args) < 2 {
				return misuse("sandboxd run --watch APP MESSAGE", "--watch: needs a MESSAGE to run again")
			}
			return e.runs(c.Context(), f, args)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.session, "session", "", "go on with the session `ID`, or make it; the app must keep sessions")
	flags.StringVar(&f.user, "user", localUser, "who the run acts for, `ID`")
	flags.StringArrayVar(&f.roles, "role", nil, "a `ROLE` of the user, for guards; may be repeated")
	flags.StringArrayVar(&f.asRoles, "as-role", nil, "a `ROLE` of yours, where confirm: {deciders} wants one of who answers; may be repeated")
	flags.StringArrayVar(&f.files, "file", nil, "send a file (`PATH`) with the first message; may be repeated")
	flags.StringVar(&f.replay, "replay", "", "recorded answers (a file or folder, `PATH`) instead of the network")
	flags.StringVar(&f.failOn, "fail-on", "", "`deny`: exit 1 if any call was refused")
	flags.BoolVar(&f.noInput, "no-input", false, "never ask; a question to a person ends the run")
	flags.BoolVarP(&e.progress.verbose, "verbose", "v", false, "show the timeline, and what was built and compiled, although standard error is no terminal")
	flags.BoolVar(&f.trace, "trace", false, "show the host calls of guests in the timeline")
	flags.BoolVar(&f.full, "full", false, "do not shorten values in the timeline")
	flags.BoolVar(&f.watch, "watch", false, "stay, and run the message again whenever a file of the app changes")
	jsonFlag(c, &f.json)
	return c
}

// runs runs a message once or, with --watch, until it is interrupted.
func (e *env) runs(ctx context.Context, f *runFlags, args []string) error {
	for {
		var kept []string // what a run itself writes; where nobody says, that is hidden
		if file, err := app.Load(e.path(args[0])); err == nil {
			kept = []string{file.AuditPath(), file.SessionsPath()}
		}
		seen := e.stamp(args[0], kept...)
		err := e.run(ctx, f, args)
		if !f.watch {
			return err
		}
		if ctx.Err() != nil {
			return nil // interrupted while it ran, which is no failure
		}
		e.report(err)
		if !e.changed(ctx, func() bool { return e.stamp(args[0], kept...) != seen }) {
			return nil
		}
	}
}

func (e *env) run(ctx context.Context, f *runFlags, args []string) error {
	file, err := app.Load(e.path(args[0]))
	if err != nil {
		return err
	}
	if f.session != "" {
		if !file.KeepsSessions() {
			return misuse("write store: {sessions: sqlite} in "+app.FileName, "--session %s: app %s keeps no sessions", f.session, file.Name)
		}
		if err := (session.Key{App: file.Name, User: f.user, ID: f.session}).Validate(); err != nil {
			return misuse("", "--session, --user: %v", err)
		}
	}
	by, err := e.somebody("")
	if err != nil {
		return err
	}
	files, err := e.fileParts(f.files)
	if err != nil {
		return err
	}
	w := newRunWriter(e, f)
	rt, closeAll, err := e.openApp(ctx, file, app.Options{Replay: e.optionalPath(f.replay), Observer: w.observer(), Trace: w.hostCall(), Logger: e.logger(e.progress.verbose)})
	if err != nil {
		return err
	}
	defer closeAll()
	key, err := rt.Session(ctx, f.user, cmp.Or(f.session, "s-"+strings.ToLower(rand.Text()[:12])))
	if err != nil {
		return err
	}
	w.start(rt, key)
	r := &appRun{env: e, flags: f, w: w, rt: rt, key: key, app: args[0], by: by, files: files}
	went, err := r.goOn(ctx) // with what was decided before, by a process that ended
	if err != nil {
		return err
	}
	pending, err := file.Pending(ctx, rt.Store, key)
	if err != nil {
		return err
	}
	for len(pending) > 0 && r.canAsk(pending[0]) {
		n := 1
		for n < len(pending) && pending[n].Run == pending[0].Run && r.canAsk(pending[n]) {
			n++
		}
		if err := r.answer(ctx, pending[:n]); err != nil { // of one run: a message cannot answer two
			return err
		}
		pending = pending[n:]
	}
	if len(args) > 1 {
		return r.message(ctx, args[1])
	}
	if !e.stdin.terminal {
		text, err := readAll("standard input", e.stdin)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(text)) == "" && len(pending) > 0 {
			return r.waits(pending[0])
		}
		if strings.TrimSpace(string(text)) == "" && went {
			return nil
		}
		if strings.TrimSpace(string(text)) == "" {
			return misuse(`sandboxd run APP "MESSAGE"`, "no message: standard input is empty")
		}
		return r.message(ctx, strings.TrimSpace(string(text)))
	}
	return r.prompt(ctx)
}

// openApp wires an app with the engine and caches of this process.
func (e *env) openApp(ctx context.Context, file *app.File, o app.Options) (*app.Runtime, func(), error) {
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return nil, nil, err
	}
	o.Modules, o.Getenv = modules, e.getenv
	rt, err := app.Open(ctx, file, o)
	if err != nil {
		_ = engine.Close() // the error that matters is err
		return nil, nil, err
	}
	return rt, func() {
		if err := rt.Close(); err != nil {
			fmt.Fprintf(e.stderr, "sandboxd: %v\n", err)
		}
		_ = engine.Close() // nothing is lost: code that is not freed ends with the process
	}, nil
}

// logger returns the log for operators: warnings, or everything guests say with -v.
func (e *env) logger(verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level}))
}

func (e *env) optionalPath(name string) string {
	if name == "" {
		return ""
	}
	return e.path(name)
}

// An appRun is a conversation with one app.
type appRun struct {
	*env
	flags *runFlags
	w     *runWriter
	rt    *app.Runtime
	key   session.Key
	app   string        // as the user named it
	by    string        // who runs it
	files []*genai.Part // that go with the next message
	lines *bufio.Reader
}

// prompt reads messages at the terminal until the input ends.
func (r *appRun) prompt(ctx context.Context) error {
	for {
		fmt.Fprint(r.stderr, "> ")
		line, err := r.line()
		if line = strings.TrimSpace(line); line != "" {
			if err := r.message(ctx, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// line reads a line at the terminal. What is written next begins on a line of its own, also
// if the input ends.
func (r *appRun) line() (string, error) {
	if r.lines == nil {
		r.lines = bufio.NewReader(io.LimitReader(r.stdin, maxInput))
	}
	line, err := r.lines.ReadString('\n')
	if err != nil {
		fmt.Fprintln(r.stderr)
	} else {
		r.progress.answered()
	}
	return line, err
}

// message runs the app on one message, and asks the questions that come up.
func (r *appRun) message(ctx context.Context, text string) error {
	r.w.said(text)
	in := r.input()
	in.Content = flow.Text(text).Content
	in.Content.Parts = append(in.Content.Parts, r.files...)
	r.files = nil
	return r.converse(ctx, r.rt.Runner.Run(ctx, r.key, in))
}

// input returns what is the same of all that this conversation gives the app.
func (r *appRun) input() flow.Input {
	return flow.Input{By: r.by, Roles: r.flags.roles, Stream: r.flags.json, SaveBlobs: r.rt.File.Artifacts.SaveFiles}
}

// fileParts reads files as parts of a message.
func (e *env) fileParts(names []string) ([]*genai.Part, error) {
	var parts []*genai.Part
	for _, name := range names {
		data, err := e.readFile(name)
		if err != nil {
			return nil, err
		}
		kind := mime.TypeByExtension(filepath.Ext(name))
		switch {
		case kind != "":
		case utf8.Valid(data):
			kind = "text/plain"
		default:
			kind = "application/octet-stream"
		}
		part := genai.NewPartFromBytes(data, kind)
		part.InlineData.DisplayName = filepath.Base(name)
		parts = append(parts, part)
	}
	return parts, nil
}

// goOn makes the app go on with what was decided, and reports whether there was
// anything.
func (r *appRun) goOn(ctx context.Context) (went bool, err error) {
	next, stop := iter.Pull2(r.rt.Runner.Resume(ctx, r.key, r.input()))
	defer stop()
	ev, err, any := next()
	if !any {
		return false, nil
	}
	return true, r.converse(ctx, func(yield func(*session.Event, error) bool) {
		for ; any && yield(ev, err); ev, err, any = next() {
		}
	})
}

// converse goes through a run, and answers to what it asks.
func (r *appRun) converse(ctx context.Context, run iter.Seq2[*session.Event, error]) error {
	end, err := r.turn(run)
	if err != nil {
		r.w.finish("failed")
		return err
	}
	if len(end.asked) == 0 {
		return r.done(end)
	}
	for _, q := range end.asked {
		if !r.canAsk(q) {
			r.w.finish("waiting")
			return r.waits(q)
		}
	}
	return r.answer(ctx, end.asked)
}

// canAsk reports whether there is a person to ask, and one who may answer.
func (r *appRun) canAsk(q session.Question) bool {
	return !r.flags.noInput && !r.flags.json && r.stdin.terminal && r.stderr.terminal && r.rt.Runner.MayDecide(q, r.by, r.flags.asRoles)
}

// waits is how a run ends that nobody can answer here.
func (r *appRun) waits(q session.Question) error {
	who := whoDecides(r.rt.File.Confirm)
	hint := "run it at a terminal to answer; the question ends with this process"
	switch {
	case r.rt.File.KeepsSessions():
		hint = fmt.Sprintf("sandboxd confirm approve %s %s --args-sha256 %s", r.app, q.ID, q.ArgsSHA256[:shownDigits])
		for _, role := range r.flags.roles { // guards judge again, and no record says whose roles they were
			hint += " --role " + role
		}
		if who != "" {
			hint += ", by " + who
		}
	case who != "":
		hint = who + " has to answer: write store: {sessions: sqlite} in " + app.FileName
	}
	return &commandError{What: "run waits for a person: " + q.ID, Code: abi.ConfirmationPending, Exit: exitNotDone, Hint: hint}
}

// whoDecides says who decides questions of an app, for people; "" is anybody.
func whoDecides(c app.Confirm) string {
	var who []string
	if c.FourEyes {
		who = append(who, "someone else")
	}
	if len(c.Deciders) > 0 {
		who = append(who, deciders(c, " or "))
	}
	return strings.Join(who, ", ")
}

func deciders(c app.Confirm, between string) string {
	var names []string
	for _, d := range c.Deciders {
		names = append(names, flow.Decider(d).String())
	}
	return strings.Join(names, between)
}

// answer asks a person, and makes the app go on with what they say.
func (r *appRun) answer(ctx context.Context, questions []session.Question) error {
	for _, q := range questions {
		yes, err := r.ask(q)
		if err != nil {
			return err
		}
		d := session.Decision{Approve: yes, By: r.by, Roles: r.flags.asRoles, Via: "run", ArgsSHA256: q.ArgsSHA256}
		if _, err := r.rt.Runner.Decide(ctx, r.key, q.ID, d); err != nil {
			return r.refused(err)
		}
	}
	_, err := r.goOn(ctx)
	return err
}

// A turnEnd is how a turn of the run ended.
type turnEnd struct {
	answer string
	last   *session.Event
	asked  []session.Question
}

func (r *appRun) turn(run iter.Seq2[*session.Event, error]) (turnEnd, error) {
	var end turnEnd
	for ev, err := range run {
		if err != nil {
			return end, &commandError{What: "run: " + err.Error(), Exit: exitNotDone}
		}
		r.w.event(ev)
		if ev.Partial {
			continue
		}
		end.last = ev
		if len(ev.Calls()) == 0 && ev.Text() != "" {
			end.answer = ev.Text()
		}
	}
	end.asked = r.w.takeAsked()
	return end, nil
}

func (r *appRun) done(end turnEnd) error {
	switch {
	case end.last != nil && end.last.ErrorCode != "":
		r.w.finish("failed")
		code := abi.ModelError
		switch own := abi.Code(end.last.ErrorCode); own {
		case abi.BudgetExhausted, abi.PolicyDenied, abi.PolicyUnavailable:
			code = own
		}
		return &commandError{What: fmt.Sprintf("run: %s: %s", end.last.ErrorCode, end.last.ErrorMessage), Code: code, Exit: exitNotDone}
	case end.answer == "":
		r.w.finish("failed")
		return &commandError{What: "run: ended without an answer", Exit: exitNotDone}
	}
	r.w.answer(end.answer)
	r.w.finish("done")
	if r.flags.failOn == "deny" && r.w.denied() > 0 {
		return &commandError{What: fmt.Sprintf("run: %d calls refused", r.w.denied()), Code: abi.PolicyDenied, Exit: exitNotDone}
	}
	return nil
}

// ask puts a question to the person at the terminal, who sees all of what they are
// asked about before they can answer. Nothing but a yes is one.
func (r *appRun) ask(q session.Question) (bool, error) {
	fmt.Fprintf(r.stderr, "  tool    %s  %s\n  args    %s  sha256:%s\n", foreign(q.Tool, true), shortDigest(q.Module), foreign(string(q.Args), true), q.ArgsSHA256[:shownDigits])
	for {
		fmt.Fprintf(r.stderr, "%s  [y]es  [n]o  [d]etails  (no) ", foreign(q.Hint, true))
		line, err := r.line()
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		case "d", "details":
			now, err := r.rt.File.Now()
			if err != nil {
				return false, err
			}
			r.printQuestion(r.stderr, q, now)
		default:
			return false, nil
		}
		if err != nil {
			return false, nil // an input that ends is a no
		}
	}
}

// modules opens the engine with the caches of this process.
func (e *env) modules(ctx context.Context) (*host.Engine, app.Modules, error) {
	return e.modulesWithLog(ctx, e.logger(false))
}

func (e *env) modulesWithLog(ctx context.Context, log *slog.Logger) (*host.Engine, app.Modules, error) {
	code, err := e.cacheDir("code")
	if err != nil {
		return nil, app.Modules{}, err
	}
	builds, err := e.cacheDir("guestbuild")
	if err != nil {
		return nil, app.Modules{}, err
	}
	engine, err := host.Open(ctx, host.Config{Cache: code, Logger: log})
	if err != nil {
		return nil, app.Modules{}, err
	}
	return engine, app.Modules{Engine: engine, Builds: builds, Began: e.progress.begin}, nil
}
