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
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// guardFlags name a guard and its settings.
type guardFlags struct {
	guard    string
	settings string
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
		return nil, &commandError{What: err.Error(), Code: abi.ConfigInvalid, Exit: exitMisused, Hint: "sandboxd plugin inspect shows the settings of the guards of " + m.Name}
	}
	if err != nil {
		return nil, &commandError{What: err.Error(), Code: abi.PolicyUnavailable, Exit: exitNotDone}
	}
	return g, nil
}

func policyRunCommand(e *env) *cobra.Command {
	f := guardFlags{}
	var question string
	var asJSON, full bool
	c := &cobra.Command{
		Use: "run [FILE]", Short: "Ask a guard one question",
		Long: "Ask a guard one question, and say what it answers and why. FILE is the module, or the\nfolder of its source; the current folder if it is left out.\n\n" +
			"A question has the members that it has in a decision table; what it does not say is\nwhat the simplest call has. Exit 1 if the call would not run: it is denied, or waits\nfor a person.",
		Example: "sandboxd policy run office.wasm --settings settings.yaml --question '{\"call\":{\"tool\":\"deploy\"}}'\nsandboxd policy run --settings settings.yaml --question question.json --json",
		Args:    exactly("[FILE]"),
		RunE: func(c *cobra.Command, args []string) error {
			file := "."
			if len(args) > 0 {
				file = args[0]
			}
			return e.runPolicy(c.Context(), file, f, question, asJSON, full)
		},
	}
	f.add(c)
	c.Flags().StringVar(&question, "question", "{}", "what it is asked: `JSON`, or a file in JSON or YAML, or - for standard input")
	c.Flags().BoolVar(&full, "full", false, "do not shorten values")
	jsonFlag(c, &asJSON)
	groupFlags(c, "input", "question")
	groupFlags(c, "output", "full")
	return c
}

// A verdictReport is what policy run --json prints.
type verdictReport struct {
	Format   int           `json:"format"`
	Guard    string        `json:"guard"`
	Verdict  abi.Verdict   `json:"verdict"`
	Code     string        `json:"code,omitempty"` // the guard's own, or policy_unavailable
	Error    string        `json:"error,omitempty"`
	Question abi.Question  `json:"question"`
	Receipt  *host.Receipt `json:"receipt,omitempty"`
}

func (e *env) runPolicy(ctx context.Context, file string, f guardFlags, question string, asJSON, full bool) error {
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	g, err := e.openGuest(ctx, modules, file, "")
	if err != nil {
		return err
	}
	module, err := g.load(ctx, engine)
	if err != nil {
		return err
	}
	var receipt *host.Receipt
	guard, err := e.guardWith(ctx, module, f, policies.Config{KV: host.NewMemoryKV(nil), Spent: func(r host.Receipt) { receipt = &r }})
	if err != nil {
		return err
	}
	receipt = nil // so far it was only installed
	name, data, err := e.document("question", question)
	if err != nil {
		return err
	}
	parsed, err := authortest.ParseQuestion(name, data)
	if err != nil {
		return err
	}
	q, err := parsed.For(guard)
	if err != nil {
		return &commandError{What: fmt.Sprintf("%s: %v", name, err), Code: abi.ArgsInvalid, Exit: exitMisused}
	}
	j := flow.Ask(ctx, guard, q, authortest.GuardWall)
	r := verdictReport{Format: 1, Guard: guard.Name(), Verdict: j.Verdict, Code: j.Verdict.Code, Question: q, Receipt: receipt}
	if j.Err != nil {
		r.Code, r.Error = string(abi.PolicyUnavailable), j.Err.Error()
	}
	if asJSON {
		if err := json.NewEncoder(e.stdout).Encode(r); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.stdout, e.verdictText(r, full))
	}
	if receipt != nil {
		fmt.Fprintln(e.stderr, receiptLine(*receipt, host.DefaultLimits(abi.KindGuard)))
	}
	switch {
	case j.Err != nil:
		return &commandError{What: fmt.Sprintf("guard %s: no verdict: %v", r.Guard, j.Err), Code: abi.PolicyUnavailable, Exit: exitNotDone}
	case j.Verdict.Ruling == abi.RulingDeny:
		return &commandError{What: fmt.Sprintf("guard %s: denied", r.Guard), Code: abi.PolicyDenied, Exit: exitNotDone}
	case j.Verdict.Ruling == abi.RulingConfirm:
		return &commandError{What: fmt.Sprintf("guard %s: asks a person", r.Guard), Code: abi.ConfirmationPending, Exit: exitNotDone}
	}
	return nil
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
