package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func configCommand(e *env) *cobra.Command {
	return group("config", "Look at the configuration of an app, and pin it", configCheckCommand(e), configPrintCommand(e), configPinCommand(e))
}

func configCheckCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "check APP", Short: "Load an app as run does, and say what is wrong",
		Long: "Read agent.yaml, load every plugin and guard, check every grant and setting, and ask\n" +
			"each guard for a verdict on a built-in question. Nothing is run, and no MCP server\nis reached.",
		Example: "sandboxd config check examples/weather\nsandboxd config check .",
		Args:    exactly("APP"),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := app.Load(e.path(args[0]))
			if err != nil {
				return err
			}
			rt, closeAll, err := e.openApp(c.Context(), file, app.Options{Logger: e.logger(false)})
			if err != nil {
				return err
			}
			defer closeAll()
			for _, p := range rt.Plugins {
				hooks := ""
				if len(p.Module().Manifest().Hooks) > 0 {
					hooks = "  hooks " + grantsText(p.HookGrants().Lines())
				}
				fmt.Fprintf(e.stdout, "ok  plugin %s  %s  %s%s\n", p.Name(), p.Module().Digest().Short(), grantsText(p.Grants().Lines()), hooks)
			}
			for _, g := range rt.Guards {
				fmt.Fprintf(e.stdout, "ok  guard %s  phases %v\n", g.Name(), g.Phases())
			}
			for _, g := range rt.Monitors {
				fmt.Fprintf(e.stdout, "ok  guard %s  phases %v  monitor: changes nothing\n", g.Name(), g.Phases())
			}
			if watchers := onlyWatched(rt); watchers != "" {
				fmt.Fprintf(e.stderr, "warning: guard %s: monitor mode, and no other guard judges calls: %s called whatever it says\n", watchers, effectful(rt))
			} else if len(rt.Guards) == 0 && len(rt.Monitors) > 0 {
				fmt.Fprintln(e.stderr, "warning: every guard is in monitor mode: nothing is denied")
			}
			for _, m := range file.MCP {
				fmt.Fprintf(e.stdout, "--  mcp %s  reached by the first run: %s\n", m.Name, foreign(m.Where(), false))
			}
			fmt.Fprintf(e.stdout, "ok  app %s  %s\n", file.Name, toolCount(file))
			return nil
		},
	}
}

// toolCount says how many tools agents have: those named for them, and those that MCP servers of
// theirs are to offer. How many a server lists is known once it is reached.
func toolCount(file *app.File) string {
	has := map[string]bool{}
	file.EachAgent(func(_ string, a *app.Agent) {
		for _, name := range a.Toolsets {
			has[name] = true
		}
	})
	n, more := len(file.AllTools()), ""
	for _, m := range file.MCP {
		switch {
		case !has[m.Name]:
		case slices.Contains(m.Tools, "*"):
			more += ", and all of mcp " + m.Name
		default:
			n += len(m.Tools)
		}
	}
	return plural(n, "tool") + more
}

// onlyWatched returns the names of the monitors that judge calls, if tools have
// effects and no guard that counts judges their calls.
func onlyWatched(rt *app.Runtime) string {
	judges := func(g flow.Guard) bool { return slices.Contains(g.Phases(), abi.PhaseCall) }
	if effectful(rt) == "" || slices.ContainsFunc(rt.Guards, judges) {
		return ""
	}
	var names []string
	for _, g := range rt.Monitors {
		if judges(g) {
			names = append(names, g.Name())
		}
	}
	return strings.Join(names, ", ")
}

// effectful names the tools of plugins that agents have and that change something,
// as the beginning of a sentence about them.
func effectful(rt *app.Runtime) string {
	var names []string
	for _, p := range rt.Plugins {
		for _, t := range p.Tools() {
			if s := t.Spec(); s.Effects != abi.None && slices.Contains(rt.File.AllTools(), s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "tool " + names[0] + " is"
	}
	return "tools " + strings.Join(names, ", ") + " are"
}

func grantsText(lines []string) string {
	if len(lines) == 0 {
		return "granted nothing"
	}
	return fmt.Sprintf("granted %q", lines)
}

func configPrintCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "print APP", Short: "Print agent.yaml with the defaults filled in",
		Example: "sandboxd config print examples/weather\nsandboxd config print . > full.yaml",
		Args:    exactly("APP"),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := app.Load(e.path(args[0]))
			if err != nil {
				return err
			}
			var out bytes.Buffer
			enc := yaml.NewEncoder(&out)
			enc.SetIndent(2)
			if err := enc.Encode(file.WithDefaults()); err != nil {
				return err
			}
			_, err = e.stdout.Write(out.Bytes())
			return err
		},
	}
}
