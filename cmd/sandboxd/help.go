package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroups are the groups of flags in the order help shows them.
var flagGroups = []string{"input", "grants", "limits", "output"}

// groupFlags puts flags of c into one of flagGroups. A flag in no group is shown
// after them.
func groupFlags(c *cobra.Command, group string, names ...string) {
	for _, name := range names {
		f := c.Flags().Lookup(name)
		if f == nil || !slices.Contains(flagGroups, group) {
			panic("sandboxd: " + c.Name() + ": no flag " + name + " or no group " + group)
		}
		f.Annotations = map[string][]string{"group": {group}}
	}
}

// jsonFlag gives c the flag --json.
func jsonFlag(c *cobra.Command, v *bool) {
	c.Flags().BoolVar(v, "json", false, "print one JSON document")
	groupFlags(c, "output", "json")
}

// helpCommand returns the command help.
func helpCommand() *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]", Short: "Say what a command does, or explain a topic", RunE: func(c *cobra.Command, args []string) error {
		about, rest, err := c.Root().Find(args)
		if err != nil {
			return misuse("", "%v", err)
		}
		if len(rest) > 0 {
			return unknownCommand(about, rest[0])
		}
		about.InitDefaultHelpFlag()
		about.HelpFunc()(about, nil)
		return nil
	}}
}

// help prints what a command does, examples first.
func help(c *cobra.Command, _ []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.Short)
	if c.Example != "" {
		b.WriteString("\nExamples:\n")
		for line := range strings.SplitSeq(c.Example, "\n") {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	if c.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", c.Long)
	}
	if c.IsAdditionalHelpTopicCommand() {
		fmt.Fprint(c.OutOrStdout(), b.String())
		return
	}
	usage := c.UseLine()
	if c.HasAvailableSubCommands() {
		usage = c.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", usage)
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %s\t%s\n", sub.Name(), sub.Short)
			}
		}
		w.Flush()
	}
	if c.HasHelpSubCommands() {
		b.WriteString("\nTopics of help:\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, sub := range c.Commands() {
			if sub.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(w, "  %s\t%s\n", sub.Name(), sub.Short)
			}
		}
		w.Flush()
	}
	for _, g := range append(slices.Clone(flagGroups), "") {
		title := "Flags"
		if g != "" {
			title = strings.ToUpper(g[:1]) + g[1:]
		}
		printFlags(&b, title, c.NonInheritedFlags(), g)
	}
	printFlags(&b, "Everywhere", c.InheritedFlags(), "")
	fmt.Fprint(c.OutOrStdout(), b.String())
}

// printFlags prints the flags of one group under its title.
func printFlags(b *strings.Builder, title string, flags *pflag.FlagSet, group string) {
	first := true
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	flags.VisitAll(func(f *pflag.Flag) {
		in := ""
		if groups := f.Annotations["group"]; len(groups) > 0 {
			in = groups[0]
		}
		if f.Hidden || in != group {
			return
		}
		if first {
			fmt.Fprintf(b, "\n%s:\n", title)
			first = false
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		fmt.Fprintf(w, "  %s\t%s\n", name, usage)
	})
	w.Flush()
}
