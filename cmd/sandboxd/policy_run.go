package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/internal/regobuild"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// guardFlags name a guard and its settings.
type guardFlags struct {
	guard    string
	settings string

	of string // the module or folder that has it, as it was named
}

func (f *guardFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.guard, "guard", "", "the guard `NAME`, if the module has several")
	c.Flags().StringVar(&f.settings, "settings", "", "its settings: `JSON`, or a file in JSON or YAML, or - for standard input")
	groupFlags(c, "input", "guard", "settings")
}

// document reads the value of a flag: an object in JSON, or a file in JSON or YAML.
// name is what errors call it.
func (e *env) document(flag, text string) (name string, data []byte, err error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return "--" + flag, []byte(text), nil
	}
	data, err = e.readFile(text)
	return text, data, err
}

// settingsOf reads --settings; nil for none.
func (e *env) settingsOf(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	name, data, err := e.document("settings", text)
	if err != nil {
		return nil, err
	}
	doc, err := app.ParseJSON(data)
	if err != nil {
		return nil, &commandError{What: fmt.Sprintf("%s: %v", name, err), Code: abi.ConfigInvalid, Exit: exitMisused}
	}
	return doc, nil
}

// choose says which guard of a module is meant, of which a first-party one has named it. flag is
// the one that names a guard.
func (f *guardFlags) choose(g *guestFile, flag string) error {
	f.of = g.name
	if g.guard == "" {
		return nil
	}
	if f.guard != "" && f.guard != g.guard {
		return misuse("leave it out", "--%s %s: %s names the guard", flag, f.guard, g.name)
	}
	f.guard = g.guard
	return nil
}

// guardWith opens a guard of a module for the command line, with the time that it has
// in tests, and what cfg says of its store.
func (e *env) guardWith(ctx context.Context, module *host.Module, f guardFlags, cfg policies.Config) (*policies.Guard, error) {
	m := module.Manifest()
	if guardOf(m, f.guard) == nil {
		return nil, errNoGuard(m.Name, f.guard, m)
	}
	settings, err := e.settingsOf(f.settings)
	if err != nil {
		return nil, err
	}
	cfg.Guard, cfg.Settings, cfg.Limits, cfg.Logger = f.guard, settings, host.Limits{Wall: authortest.GuardWall}, e.logger(false)
	g, err := policies.New(ctx, module, cfg)
	if _, ok := errors.AsType[*policies.SettingsError](err); ok {
		return nil, &commandError{What: err.Error(), Code: abi.ConfigInvalid, Exit: exitMisused, Hint: "sandboxd plugin inspect " + f.of + " shows the settings"}
	}
	if err != nil {
		return nil, &commandError{What: err.Error(), Code: abi.PolicyUnavailable, Exit: exitNotDone}
	}
	return g, nil
}

// policyRunFlags are what a question is, to whom it goes, and how the answer is printed.
type policyRunFlags struct {
	guardFlags
	question string
	chain    string
	learn    string
	explain  bool
	json     bool
	full     bool
}

func policyRunCommand(e *env) *cobra.Command {
	f := &policyRunFlags{}
	c := &cobra.Command{
		Use: "run [FILE]", Short: "Ask a guard one question",
		Long: "Ask a guard one question, and say what it answers and why. FILE is the module, or the\nfolder of its source, or builtin/NAME; the current folder if it is left out.\n\n" +
			"A question has the members that it has in a decision table; what it does not say is\nwhat the simplest call has. Exit 1 if the call would not run: it is denied, or waits\nfor a person.\n\n" +
			"With --explain, say which way the author's code took at every branch; of a policy in Rego, in\nthe folder of its source, which rules fired, and of those that did not the first expression\nthat was false. With --chain, ask\nall guards of an app, in their order, and say who decided; what is said about its tools is\n" +
			"what the app knows of them. With --learn, ask nothing: print the settings of\nbuiltin/tool-pin that pin all tools of an app as they are now, those of MCP servers included.",
		Example: "sandboxd policy run office.wasm --settings settings.yaml --question '{\"call\":{\"tool\":\"deploy\"}}'\nsandboxd policy run builtin/role-access --settings '{\"roles\":{\"clerk\":[\"pay\"]}}' --question question.json\nsandboxd policy run --settings settings.yaml --question question.json --explain\n" +
			"sandboxd policy run --chain examples/payments --question '{\"call\":{\"tool\":\"pay\"}}'",
		Args: exactly("[FILE]"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.chain != "" || f.learn != "" {
				for _, name := range []string{"guard", "settings", "explain"} {
					if c.Flags().Changed(name) {
						return misuse("the app says it", "--%s: cannot be used with --chain and --learn", name)
					}
				}
				if len(args) > 0 || f.chain != "" && f.learn != "" {
					return misuse("sandboxd policy run --chain APP", "--chain and --learn: want one app and no module")
				}
			}
			if f.learn != "" {
				return e.learnPins(c.Context(), f.learn)
			}
			if f.chain != "" {
				return e.runChain(c.Context(), f)
			}
			file := "."
			if len(args) > 0 {
				file = args[0]
			}
			return e.runPolicy(c.Context(), file, f)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.question, "question", "{}", "what it is asked: `JSON`, or a file in JSON or YAML, or - for standard input")
	c.Flags().StringVar(&f.chain, "chain", "", "ask all guards of the app in the folder `APP`")
	c.Flags().StringVar(&f.learn, "learn", "", "print pins of the tools of the app in the folder `APP`")
	c.Flags().BoolVar(&f.explain, "explain", false, "say which way the code took")
	c.Flags().BoolVar(&f.full, "full", false, "do not shorten values")
	jsonFlag(c, &f.json)
	e.verboseFlag(c)
	groupFlags(c, "input", "question", "chain", "learn")
	groupFlags(c, "output", "full", "explain")
	return c
}

// A verdictReport is what policy run --json prints.
type verdictReport struct {
	Format   int               `json:"format"`
	Guard    string            `json:"guard"`
	Verdict  abi.Verdict       `json:"verdict"`
	Code     string            `json:"code,omitempty"` // the guard's own, or policy_unavailable
	Error    string            `json:"error,omitempty"`
	Path     []authortest.Step `json:"path,omitempty"`  // with --explain
	Rules    []ruleReport      `json:"rules,omitempty"` // with --explain, of a policy in Rego
	Question abi.Question      `json:"question"`
	Receipt  *host.Receipt     `json:"receipt,omitempty"`
}

// reportOf returns what is said of a judgement.
func reportOf(guard string, q abi.Question, j flow.Judgement) verdictReport {
	r := verdictReport{Format: 1, Guard: guard, Verdict: j.Verdict, Code: j.Verdict.Code, Question: q}
	if j.Err != nil {
		r.Code, r.Error = string(abi.PolicyUnavailable), j.Err.Error()
	}
	return r
}

// notRun returns why a call would not run after a judgement; nil if it would.
func notRun(guard string, j flow.Judgement) error {
	switch {
	case j.Err != nil:
		return &commandError{What: fmt.Sprintf("guard %s: no verdict: %v", guard, j.Err), Code: abi.PolicyUnavailable, Exit: exitNotDone}
	case j.Verdict.Ruling == abi.RulingDeny:
		return &commandError{What: fmt.Sprintf("guard %s: denied", guard), Code: abi.PolicyDenied, Exit: exitNotDone}
	case j.Verdict.Ruling == abi.RulingConfirm:
		return &commandError{What: fmt.Sprintf("guard %s: asks a person", guard), Code: abi.ConfirmationPending, Exit: exitNotDone}
	}
	return nil
}

// questionFor reads --question, as it is put to the guard that choose returns.
func (e *env) questionFor(text string, choose func(*authortest.Question) flow.Guard) (abi.Question, error) {
	name, data, err := e.document("question", text)
	if err != nil {
		return abi.Question{}, err
	}
	parsed, err := authortest.ParseQuestion(name, data)
	if err != nil {
		return abi.Question{}, err
	}
	q, err := parsed.For(choose(parsed))
	if err != nil {
		return q, &commandError{What: fmt.Sprintf("%s: %v", name, err), Code: abi.ArgsInvalid, Exit: exitMisused}
	}
	return q, nil
}

func (e *env) runPolicy(ctx context.Context, file string, f *policyRunFlags) error {
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	g, err := e.openGuest(ctx, modules, file, "")
	if err != nil {
		return err
	}
	if err := f.choose(g, "guard"); err != nil {
		return err
	}
	if f.explain && g.guard != "" {
		return misuse("ask without it: the verdict names the rule, and docs/policies.md has the rules", "--explain: cannot be used with %s: nothing in its module names the lines of its code", g.name)
	}
	var cover *authortest.Cover
	var module *host.Module
	rego := regobuild.Compiled(g.wasm)
	if f.explain && !rego {
		if cover, err = e.openCover(ctx, engine, g); err == nil {
			module = cover.Watched()
		}
	} else {
		module, err = g.load(ctx, modules)
	}
	if err != nil {
		return err
	}
	if f.explain && f.settings != "" { // standard input can be read once
		settings, err := e.settingsOf(f.settings)
		if err != nil {
			return err
		}
		f.settings = string(settings)
	}
	var receipt *host.Receipt
	guard, err := e.guardWith(ctx, module, f.guardFlags, policies.Config{KV: host.NewMemoryKV(nil), Spent: func(r host.Receipt) { receipt = &r }})
	if err != nil {
		return err
	}
	receipt = nil // so far it was only installed
	if cover != nil {
		cover.Row(authortest.TestRow{})
	}
	q, err := e.questionFor(f.question, func(*authortest.Question) flow.Guard { return guard })
	if err != nil {
		return err
	}
	j := flow.Ask(ctx, guard, q, authortest.GuardWall)
	r := reportOf(guard.Name(), q, j)
	r.Receipt = receipt
	if cover != nil {
		r.Path = cover.Path()
	}
	if f.explain && rego {
		if r.Rules, err = e.explainRego(ctx, modules, g, module, f.guardFlags, q); err != nil {
			return err
		}
	}
	if f.json {
		if err := json.NewEncoder(e.stdout).Encode(r); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.stdout, e.verdictText(r, f.full), e.pathText(g, r.Path, f.full), e.rulesText(r.Rules, f.full))
	}
	if receipt != nil {
		fmt.Fprintln(e.stderr, receiptLine(*receipt, host.DefaultLimits(abi.KindGuard)))
	}
	return notRun(r.Guard, j)
}

// pathText says which way the code took at every branch.
func (e *env) pathText(g *guestFile, path []authortest.Step, full bool) string {
	dir := ""
	if g.made {
		dir = g.name
	}
	var b strings.Builder
	for _, s := range path {
		to := fmt.Sprint(s.To.Line)
		if s.To.Line == 0 {
			to = fmt.Sprint("byte ", s.To.At)
		}
		fmt.Fprintf(&b, "  goes   %s  %s → %s   %s\n", foreign(s.Function, true), place(s.From.File, s.From.Line, s.From.At), to, e.sourceLine(dir, s.From.File, s.From.Line, full))
	}
	return b.String()
}

// rulingWord is a verdict as people read it.
func (e *env) rulingWord(r abi.Ruling) string {
	p := e.palette(e.stdout)
	switch r {
	case abi.RulingDeny:
		return p.red("DENY")
	case abi.RulingConfirm:
		return p.yellow("ASK")
	}
	return p.green(string(r))
}

// verdictText returns a verdict, what it rests on and what follows from it.
func (e *env) verdictText(r verdictReport, full bool) string {
	var b strings.Builder
	v := r.Verdict
	name := r.Guard
	if r.Code != "" {
		name += "/" + r.Code
	}
	fmt.Fprintf(&b, "%-6s %s", e.rulingWord(v.Ruling), foreign(name, full))
	if text := v.Reason + v.Hint; text != "" {
		fmt.Fprintf(&b, "   %q", foreign(text, full))
	}
	b.WriteByte('\n')
	for _, w := range v.Why {
		fmt.Fprintf(&b, "  at     %s = %q   rule %s\n", foreign(w.At, full), foreign(w.Saw, full), foreign(w.Rule, full))
	}
	if v.Document != nil {
		fmt.Fprintf(&b, "  writes %s\n", foreign(string(v.Document), full))
	}
	if v.Ruling == abi.RulingNarrow {
		fmt.Fprintf(&b, "  leaves %s\n", foreign(strings.Join(v.Grants, ", "), full))
	}
	if v.Hold > 0 {
		fmt.Fprintf(&b, "  holds  the last %s\n", plural(v.Hold, "character"))
	}
	if v.Ruling == abi.RulingConfirm {
		b.WriteString("  then   the call waits for a person; approved, all guards judge again\n")
	}
	return b.String()
}
