package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// run runs the command that e.args names and returns the exit code.
func run(ctx context.Context, e *env) int {
	root := newRoot(e)
	root.SetArgs(slices.Concat([]string{}, e.args)) // never nil: cobra would ask package os
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	return e.report(root.ExecuteContext(ctx))
}

// newRoot returns the command tree. Each command stands in a file of its own,
// and has what it needs of the process in e.
func newRoot(e *env) *cobra.Command {
	e.progress = &progress{out: e.stderr.Writer, terminal: e.stderr.terminal}
	e.stderr.Writer = e.progress
	root := group("sandboxd", "Run agents whose every tool, hook and guard is a WebAssembly guest")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentFlags().StringVar(&e.color, "color", "auto", "colour: `WHEN` is auto, always or never")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		return choice("color", e.color, "auto", "always", "never")
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(help)
	root.SetHelpCommand(helpCommand())
	root.SetUsageFunc(func(c *cobra.Command) error { help(c, nil); return nil })
	root.AddCommand(
		runCommand(e),
		group("plugin", "Make, build, look into and run plugins",
			pluginNewCommand(e), pluginBuildCommand(e), pluginPackCommand(e), pluginInspectCommand(e), pluginRunCommand(e), pluginTestCommand(e), pluginBenchCommand(e)),
		group("policy", "Make, build, test and run policies",
			policyNewCommand(e), policyBuildCommand(e), policyTestCommand(e), policyRunCommand(e), policyBenchCommand(e), policySimulateCommand(e)),
		group("audit", "Read what was decided", auditSearchCommand(e), auditVerifyCommand(e)),
		explainCommand(e),
		sessionCommand(e),
		confirmCommand(e),
		configCommand(e),
		conformanceCommand(e),
		doctorCommand(e),
		versionCommand(e),
	)
	root.AddCommand(topics()...)
	return root
}

// group returns a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		c.SetOut(c.ErrOrStderr())
		help(c, nil)
		if c.HasParent() {
			return misuse("", "%s: no command named", commandName(c))
		}
		return misuse("", "no command named")
	}}
	c.AddCommand(commands...)
	return c
}

// commandName is what errors call a command: they begin with the program's name already.
func commandName(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// unknownCommand is the error for a command that parent does not have.
func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			names = append(names, c.Name())
		}
	}
	hint := parent.CommandPath() + " --help"
	if near := app.Nearest(name, names); near != "" {
		hint = "did you mean " + parent.CommandPath() + " " + near + "?"
		if topic, _, err := parent.Find([]string{near}); err == nil && topic.IsAdditionalHelpTopicCommand() {
			hint = "did you mean " + parent.CommandPath() + " help " + near + "?"
		}
	}
	return misuse(hint, "unknown command %q", name)
}

// flagError turns what the flag parser says into an error with a hint.
func flagError(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 {
		return unknownCommand(c, args[0]) // it is the command that has the flag
	}
	hint := c.CommandPath() + " --help"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := app.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}
	return misuse(hint, "%s", err.Error())
}

// choice is the error for a value of a flag that is none of the choices, with the nearest of
// them, or all; nil if it is one.
func choice(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	last := len(choices) - 1
	hint := "try " + choices[last]
	if last > 0 {
		hint = "try " + strings.Join(choices[:last], ", ") + " or " + choices[last]
	}
	if near := app.Nearest(value, choices); near != "" {
		hint = "did you mean --" + flag + "=" + near + "?"
	}
	return misuse(hint, "--%s %q: not a choice", flag, value)
}

// exactly returns a check that a command has its arguments, named as in its
// usage: "FILE", and "[FILE]" for one that may be left out.
func exactly(names ...string) cobra.PositionalArgs {
	least := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			least++
		}
	}
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return misuse(c.CommandPath()+" --help", "%s: %s missing", commandName(c), names[len(args)])
		case len(args) > len(names):
			return misuse(c.CommandPath()+" --help", "%s: %q is one argument too many", commandName(c), args[len(names)])
		}
		return nil
	}
}

// misuse is the error for a command line that cannot be meant.
func misuse(hint, format string, args ...any) error {
	return &commandError{What: fmt.Sprintf(format, args...), Code: abi.Usage, Hint: hint, Exit: exitMisused}
}
