package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"strings"

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
	json    bool
	full    bool
	noInput bool
	verbose bool
	trace   bool
	failOn  string
	replay  string
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
			if f.failOn != "" && f.failOn != "deny" {
				return misuse("try --fail-on deny", "--fail-on %q: not a choice", f.failOn)
			}
			return e.run(c.Context(), f, args)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.session, "session", "", "go on with the session `ID`, or make it; the app must keep sessions")
	flags.StringVar(&f.user, "user", localUser, "who the run acts for, `ID`")
	flags.StringArrayVar(&f.roles, "role", nil, "a `ROLE` of the user, for guards; may be repeated")
	flags.StringVar(&f.replay, "replay", "", "recorded answers (a file or folder, `PATH`) instead of the network")
	flags.StringVar(&f.failOn, "fail-on", "", "`deny`: exit 1 if any call was refused")
	flags.BoolVar(&f.noInput, "no-input", false, "never ask; a question to a person ends the run")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the timeline although standard error is no terminal")
	flags.BoolVar(&f.trace, "trace", false, "show the host calls of guests in the timeline")
	flags.BoolVar(&f.full, "full", false, "do not shorten values in the timeline")
	jsonFlag(c, &f.json)
	return c
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
	w := newRunWriter(e, f)
	rt, closeAll, err := e.openApp(ctx, file, app.Options{Replay: e.optionalPath(f.replay), Observer: w.observer(), Trace: w.hostCall(), Logger: e.logger(f.verbose)})
	if err != nil {
		return err
	}
	defer closeAll()
	key, err := rt.Session(ctx, f.user, cmp.Or(f.session, "s-"+strings.ToLower(rand.Text()[:12])))
	if err != nil {
		return err
	}
	w.start(rt, key)
	r := &appRun{env: e, flags: f, w: w, rt: rt, key: key, app: args[0]}
	pending, err := file.Pending(ctx, rt.Store, key)
	if err != nil {
		return err
	}
	for from := 0; from < len(pending) && r.canAsk(); {
		to := from + 1
		for to < len(pending) && pending[to].Run == pending[from].Run {
			to++
		}
		in, err := r.answers(pending[from:to]) // of one run: a message cannot answer two
		if err != nil {
			return err
		}
		if err := r.converse(ctx, in); err != nil {
			return err
		}
		from = to
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
	app   string // as the user named it
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
			fmt.Fprintln(r.stderr)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *appRun) line() (string, error) {
	if r.lines == nil {
		r.lines = bufio.NewReader(io.LimitReader(r.stdin, maxInput))
	}
	return r.lines.ReadString('\n')
}

// message runs the app on one message, and asks the questions that come up.
func (r *appRun) message(ctx context.Context, text string) error {
	r.w.said(text)
	return r.converse(ctx, flow.Text(text))
}

// converse gives the app an input, and answers to what it asks.
func (r *appRun) converse(ctx context.Context, in flow.Input) error {
	for {
		in.Roles = r.flags.roles
		in.Stream = r.flags.json
		end, err := r.turn(ctx, in)
		if err != nil {
			r.w.finish("failed")
			return err
		}
		if len(end.asked) == 0 {
			return r.done(end)
		}
		if !r.canAsk() {
			r.w.finish("waiting")
			return r.waits(end.asked[0])
		}
		if in, err = r.answers(end.asked); err != nil {
			return err
		}
	}
}

// canAsk reports whether there is a person to ask.
func (r *appRun) canAsk() bool {
	return !r.flags.noInput && !r.flags.json && r.stdin.terminal && r.stderr.terminal
}

// waits is how a run ends that nobody can answer here.
func (r *appRun) waits(q session.Question) error {
	hint := "run it at a terminal to answer; the question ends with this process"
	if r.rt.File.KeepsSessions() {
		hint = "at a terminal: sandboxd run --session " + r.key.ID
		if r.key.User != localUser {
			hint += " --user " + r.key.User
		}
		hint += " " + r.app
	}
	return &commandError{What: "run waits for a person: " + q.ID, Code: abi.ConfirmationPending, Exit: exitNotDone, Hint: hint}
}

// answers asks a person, and returns the answers as an input.
func (r *appRun) answers(questions []session.Question) (flow.Input, error) {
	answers := &genai.Content{Role: genai.RoleUser}
	for _, q := range questions {
		yes, err := r.ask(q)
		if err != nil {
			return flow.Input{}, err
		}
		answers.Parts = append(answers.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{
			ID: q.ID, Name: "adk_request_confirmation", Response: map[string]any{"confirmed": yes}}})
	}
	return flow.Input{Content: answers}, nil
}

// A turnEnd is how a turn of the run ended.
type turnEnd struct {
	answer string
	last   *session.Event
	asked  []session.Question
}

func (r *appRun) turn(ctx context.Context, in flow.Input) (turnEnd, error) {
	var end turnEnd
	for ev, err := range r.rt.Runner.Run(ctx, r.key, in) {
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

// ask puts a question to the person at the terminal. Nothing but a yes is one.
func (r *appRun) ask(q session.Question) (bool, error) {
	fmt.Fprintf(r.stderr, "  tool    %s  %s\n  args    %s  sha256:%s\n", q.Tool, shortDigest(q.Module), foreign(string(q.Args), r.flags.full), q.ArgsSHA256[:12])
	for {
		fmt.Fprintf(r.stderr, "%s  [y]es  [n]o  [d]etails  (no) ", foreign(q.Hint, false))
		line, err := r.line()
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		case "d", "details":
			fmt.Fprintf(r.stderr, "  id      %s, expires %s\n  module  %s\n  args    %s\n", q.ID, q.Expires.Format("2006-01-02 15:04"), q.Module, foreign(string(q.Args), true))
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
	code, err := e.cacheDir("code")
	if err != nil {
		return nil, app.Modules{}, err
	}
	builds, err := e.cacheDir("guestbuild")
	if err != nil {
		return nil, app.Modules{}, err
	}
	engine, err := host.Open(ctx, host.Config{Cache: code, Logger: e.logger(false)})
	if err != nil {
		return nil, app.Modules{}, err
	}
	return engine, app.Modules{Engine: engine, Builds: builds}, nil
}
