package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

type inspectFlags struct {
	diff string
	as   string
	json bool
	full bool

	manifest string
}

func pluginInspectCommand(e *env) *cobra.Command {
	f := &inspectFlags{}
	c := &cobra.Command{
		Use: "inspect FILE|NAME|DIGEST", Short: "Say what a module offers, wants and is",
		Long: "Say what a module offers, what it wants and whether it is accepted, with every reason\nif it is not. Exit 1 if it is refused as what it declares to be.\n\n" +
			"FILE may be the folder of a plugin's source, or an Extism manifest. What is no file is\nlooked up in agent.yaml in the current folder: NAME is that of a plugin or guard, DIGEST\nthat of one of " +
			"their modules, as whole or short as it is printed elsewhere.\n\n" +
			"With --diff, say what the module changes over another one, what it widens first. Exit 1\nif it widens anything.",
		Example: "sandboxd plugin inspect weather.wasm\nsandboxd plugin inspect sha256:5d0c8e7719aa\nsandboxd plugin inspect weather-new.wasm --diff weather",
		Args:    exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("as") {
				if err := choice("as", f.as, string(asPlugin), string(asGuard)); err != nil {
					return err
				}
			}
			return e.inspectPlugin(c.Context(), f, args[0])
		},
	}
	c.Flags().StringVar(&f.diff, "diff", "", "compare with the module that is in use now: `FILE`, NAME or DIGEST")
	c.Flags().StringVar(&f.as, "as", "", "judge it as a `ROLE`, plugin or guard, whatever it declares")
	c.Flags().BoolVar(&f.full, "full", false, "do not shorten values")
	jsonFlag(c, &f.json)
	manifestFlag(c, &f.manifest)
	groupFlags(c, "input", "diff", "as")
	groupFlags(c, "output", "full")
	return c
}

func (e *env) inspectPlugin(ctx context.Context, f *inspectFlags, name string) error {
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	look := func(name, manifest string) (*inspection, error) {
		wasm, err := e.guestNamed(ctx, modules, name, manifest)
		if err != nil {
			return nil, err
		}
		return inspect(ctx, engine, name, wasm, []role{asPlugin, asGuard})
	}
	now, err := look(name, f.manifest)
	if err != nil {
		return err
	}
	if f.diff != "" {
		before, err := look(f.diff, "")
		if err != nil {
			return err
		}
		return e.printDiff(f, before, now)
	}
	if f.json {
		err = json.NewEncoder(e.stdout).Encode(now)
	} else {
		e.printInspection(f, now)
	}
	if err != nil {
		return err
	}
	as := declared(now.Manifest)
	if f.as != "" {
		as = []role{role(f.as)}
	}
	for _, v := range now.Verdicts {
		if !v.Accepted && slices.Contains(as, v.As) {
			refused := refusal(name, v)
			refused.Hint = rejectCure(name, v.Reasons) // the rest is above
			return refused
		}
	}
	return nil
}

// guestNamed returns a module: that of a file or a folder or, where there is neither, of
// the app in the current folder.
func (e *env) guestNamed(ctx context.Context, m app.Modules, name, manifest string) ([]byte, error) {
	if manifest == "" && app.BuiltinName(name) == "" && !e.names(name) && e.names(app.FileName) {
		file, err := app.Load(e.path("."))
		if err != nil {
			return nil, err
		}
		return file.Module(ctx, m, name)
	}
	if digest := strings.HasPrefix(name, "sha256:"); !e.names(name) && (digest || abi.ValidName(name) == nil) {
		what := "no such file or directory, and names are looked up in"
		if digest {
			what = "a digest is looked up in"
		}
		return nil, misuse("in the folder of an app, its modules are found; elsewhere name the file: sandboxd plugin inspect FILE",
			"%s: %s %s, which the current folder has not", name, what, app.FileName)
	}
	g, err := e.openGuest(ctx, m, name, manifest)
	if err != nil {
		return nil, err
	}
	return g.wasm, nil
}

func (e *env) printInspection(f *inspectFlags, r *inspection) {
	w := e.stdout
	show := func(s string) string { return foreign(s, f.full) }
	m := r.Manifest
	if m == nil {
		m = &abi.Manifest{}
		fmt.Fprintf(w, "%s   %s   %s   no manifest\n", show(r.File), shortDigest(r.Digest), size(int64(r.Bytes)))
	} else {
		fmt.Fprintf(w, "%s %s   %s   %s   %s, ABI %d\n", m.Name, m.Version, shortDigest(r.Digest), size(int64(r.Bytes)), roleWords(declared(m)), m.ABI)
		if m.Description != "" {
			fmt.Fprintf(w, "  %q\n", show(m.Description))
		}
		e.printOffers(m, show)
		e.printWants(r, show)
	}
	if r.Module != nil {
		printStructure(w, r.Module, show)
	}
	e.printVerdicts(r.Verdicts, show)
}

func roleWords(roles []role) string {
	var words []string
	for _, r := range roles {
		words = append(words, string(r))
	}
	return strings.Join(words, " and ")
}

func (e *env) printOffers(m *abi.Manifest, show func(string) string) {
	w := e.stdout
	if len(m.Tools) == 0 {
		fmt.Fprint(w, "\nTOOLS   none\n")
	} else {
		fmt.Fprint(w, "\nTOOLS\n")
	}
	for _, t := range m.Tools {
		fmt.Fprintf(w, "  %s    %s\n", t.Name, toolWords(t))
		if t.Description != "" {
			fmt.Fprintf(w, "    %q\n", show(t.Description))
		}
		tw := tabwriter.NewWriter(w, 0, 0, 4, ' ', 0)
		printArguments(tw, t.Input, show)
		if len(t.Input) == 0 {
			fmt.Fprint(tw, "    any arguments\n")
		}
		fmt.Fprintf(tw, "    returns\t%s\n", show(returns(t.Output)))
		tw.Flush()
	}
	var hooks, guards []string
	for _, h := range m.Hooks {
		hooks = append(hooks, string(h))
	}
	for _, g := range m.Guards {
		text := g.Name + ": "
		for i, p := range g.Phases {
			if i > 0 {
				text += ", "
			}
			text += string(p)
			if slices.Contains(g.Mutates, p) {
				text += " (rewrites)"
			}
		}
		guards = append(guards, text)
	}
	fmt.Fprintf(w, "HOOKS   %s          GUARD PHASES   %s\n", orNone(strings.Join(hooks, ", ")), orNone(strings.Join(guards, "; ")))
	for i, g := range m.Guards {
		if i == 0 {
			fmt.Fprint(w, "\nGUARD SETTINGS\n")
		}
		fmt.Fprintf(w, "  %s", g.Name)
		if len(g.Settings) == 0 {
			fmt.Fprint(w, "    none")
		}
		fmt.Fprintln(w)
		tw := tabwriter.NewWriter(w, 0, 0, 4, ' ', 0)
		printArguments(tw, g.Settings, show)
		tw.Flush()
	}
}

// printArguments prints what a schema says of the members of an object, a line each;
// if it names none, what it says of the whole.
func printArguments(w io.Writer, raw json.RawMessage, show func(string) string) {
	all := arguments(raw)
	for _, a := range all {
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\n", show(a.name), show(a.what), show(a.need), show(a.doc))
	}
	if s, ok := readSchema(raw); ok && len(all) == 0 {
		fmt.Fprintf(w, "    %s\n", show(words(s)))
	}
}

// toolWords says what calling a tool means.
func toolWords(t abi.Tool) string {
	words := map[abi.Effects]string{
		abi.None: "changes nothing, may be repeated", abi.Idempotent: "sent again with the same id, it changes nothing more",
		abi.Once: "has an effect, must not be repeated", "": "has an effect, must not be repeated",
	}[t.Effects]
	if t.Confirm {
		words += "; a person decides before every call"
	}
	if t.Streaming {
		words += "; answers in chunks"
	}
	if t.LongRunning {
		words += "; the result arrives later"
	}
	return words
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (e *env) printWants(r *inspection, show func(string) string) {
	w, p := e.stdout, e.palette(e.stdout)
	if len(r.Wants) == 0 {
		fmt.Fprint(w, "\nWANTS   nothing\n")
	} else {
		fmt.Fprint(w, "\nWANTS (nothing is given until an operator grants it)\n")
	}
	tw := tabwriter.NewWriter(w, 0, 0, 6, ' ', 0)
	for _, want := range r.Wants {
		words := show(want.Words)
		if want.Wide {
			words += "  " + p.yellow("wide")
		}
		fmt.Fprintf(tw, "  %s\t%s\n", show(want.Capability), words)
	}
	tw.Flush()
	row := func(name string, l limitSet) {
		fmt.Fprintf(w, "%-14s memory %-8s wall %-7s fuel %-7s host calls %-6s output %-8s http %-8s variables %s\n", name, size(l.MemoryBytes),
			took(time.Duration(l.WallMS)*time.Millisecond), fuel(l.Fuel), count(int64(l.HostCalls)), size(l.OutputBytes), size(l.HTTPBytes), size(l.VarBytes))
	}
	fmt.Fprintln(w)
	row("LIMITS  asks", r.Limits.Asks)
	row("        most", r.Limits.Most)
	for i, key := range slices.Sorted(maps.Keys(r.Manifest.Config)) {
		title := ""
		if i == 0 {
			title = "CONFIG"
		}
		fmt.Fprintf(w, "%-8s%s = %q\n", title, show(key), show(r.Manifest.Config[key]))
	}
}

func printStructure(w io.Writer, s *structure, show func(string) string) {
	fmt.Fprint(w, "\nMODULE\n")
	byModule := map[string][]string{}
	var order []string
	for _, i := range s.Imports {
		if byModule[i.Module] == nil {
			order = append(order, i.Module)
		}
		byModule[i.Module] = append(byModule[i.Module], i.Name)
	}
	title := "imports"
	for _, module := range order {
		fmt.Fprintf(w, "  %-10s %s %d: %s\n", title, show(module), len(byModule[module]), show(strings.Join(byModule[module], ", ")))
		title = ""
	}
	if len(order) == 0 {
		fmt.Fprintf(w, "  %-10s none\n", title)
	}
	fmt.Fprintf(w, "  %-10s %s\n", "exports", show(orNone(strings.Join(s.Exports, ", "))))
	many := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return count(int64(n)) + " " + what + "s"
	}
	fmt.Fprintf(w, "  %-10s %s, %s of code, largest %s · nesting %s · locals %s · table %s, %s · %s, %s · %s · memory begins with %s\n", "structure",
		many(s.Functions, "function"), size(int64(s.CodeBytes)), size(int64(s.Largest)), count(int64(s.Nesting)), count(int64(s.Locals)),
		count(s.TableLength), many(s.Elements, "element segment"), many(s.Data, "data segment"), size(int64(s.DataBytes)), many(s.Globals, "global"), size(s.MemoryBytes))
	start := "no start section"
	if s.Start {
		start = "a start section, which runs in every instance before any grant exists"
	}
	if s.Initialize {
		start += "; _initialize runs once in every instance, before any grant exists"
	}
	fmt.Fprintf(w, "  %-10s %s\n", "start", start)
}

func (e *env) printVerdicts(verdicts []verdict, show func(string) string) {
	w, p := e.stdout, e.palette(e.stdout)
	fmt.Fprint(w, "\nVERDICT\n")
	for _, v := range verdicts {
		title := "as a " + string(v.As)
		if v.Accepted {
			line := p.green("accepted")
			if v.Note != "" {
				line += "; " + show(v.Note)
			}
			fmt.Fprintf(w, "  %-13s %s\n", title, line)
			continue
		}
		for _, r := range v.Reasons {
			fmt.Fprintf(w, "  %-13s %s: %s [%s]\n", title, p.red("refused"), show(r.Text), r.Code)
			title = ""
		}
	}
}
