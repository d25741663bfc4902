package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A change is one difference between two modules.
type change struct {
	Widens bool   `json:"widens,omitempty"` // the new module can, offers or is trusted with more
	Added  bool   `json:"added"`            // a + line; otherwise a - line
	Text   string `json:"text"`
}

// diff returns what changes from one module to another, what widens first.
func diff(before, now *inspection) []change {
	d := &differ{}
	old, new := before.Manifest, now.Manifest
	if old == nil {
		old = &abi.Manifest{}
	}
	if new == nil {
		new = &abi.Manifest{}
	}
	d.requests(old, new)
	d.sets("hook", names(old.Hooks), names(new.Hooks), true)
	d.guards(old, new)
	d.tools(old, new)
	if before.Module != nil && now.Module != nil {
		d.sets("import", imports(before.Module), imports(now.Module), true)
		d.sets("export", before.Module.Exports, now.Module.Exports, false)
	}
	d.limits(before.Limits, now.Limits)
	d.config(old.Config, new.Config)
	if old.Version != new.Version {
		d.replace("version", old.Version, new.Version, false)
	}
	slices.SortStableFunc(d.all, func(a, b change) int {
		switch {
		case a.Widens == b.Widens:
			return 0
		case a.Widens:
			return -1
		}
		return 1
	})
	return d.all
}

type differ struct{ all []change }

func (d *differ) add(widens, added bool, format string, args ...any) {
	d.all = append(d.all, change{widens, added, fmt.Sprintf(format, args...)})
}

func (d *differ) replace(what, old, new string, widens bool) {
	if old != "" {
		d.add(false, false, "%s %s", what, old)
	}
	if new != "" {
		d.add(widens, true, "%s %s", what, new)
	}
}

// sets compares two sets of names.
func (d *differ) sets(what string, old, new []string, widens bool) {
	for _, n := range new {
		if !slices.Contains(old, n) {
			d.add(widens, true, "%s %s", what, n)
		}
	}
	for _, n := range old {
		if !slices.Contains(new, n) {
			d.add(false, false, "%s %s", what, n)
		}
	}
}

// requests compares what is asked for. A line that the old ones cover widens
// nothing.
func (d *differ) requests(old, new *abi.Manifest) {
	had, err := capability.ParseSet(old.Requests)
	if err != nil {
		had = capability.Set{} // nothing to rely on: all that is asked for is more
	}
	for _, w := range wantsOf(new) {
		if slices.ContainsFunc(wantsOf(old), func(o want) bool { return o.Capability == w.Capability }) {
			continue
		}
		c, err := capability.Parse(w.Capability)
		text := "wants " + w.Capability + "   " + w.Words
		if w.Wide {
			text += "  wide"
		}
		d.add(err != nil || !had.Covers(c), true, "%s", text)
	}
	for _, w := range wantsOf(old) {
		if !slices.ContainsFunc(wantsOf(new), func(n want) bool { return n.Capability == w.Capability }) {
			d.add(false, false, "wants %s   %s", w.Capability, w.Words)
		}
	}
}

func (d *differ) tools(old, new *abi.Manifest) {
	had := map[string]abi.Tool{}
	for _, t := range old.Tools {
		had[t.Name] = t
	}
	for _, t := range new.Tools {
		o, ok := had[t.Name]
		delete(had, t.Name)
		if !ok {
			d.add(true, true, "tool %s   %s", t.Name, toolWords(t))
			continue
		}
		what := "tool " + t.Name + ":"
		if toolWords(o) != toolWords(t) {
			d.replace(what, toolWords(o), toolWords(t), trusts(o) < trusts(t) || o.Confirm && !t.Confirm)
		}
		if o.Description != t.Description {
			d.replace(what+" description", o.Description, t.Description, true) // a model acts by it
		}
		d.schema(what+" input", o.Input, t.Input, true)
		d.schema(what+" output", o.Output, t.Output, true)
	}
	for _, o := range old.Tools {
		if _, gone := had[o.Name]; gone {
			d.add(false, false, "tool %s", o.Name)
		}
	}
}

// schema compares two schemas; none lets everything through. Which of two lets more
// through is not decided here, so every change counts as wider, except to a first
// schema, or of the texts in one if no model reads them.
func (d *differ) schema(what string, old, new json.RawMessage, read bool) {
	if string(old) == string(new) {
		return
	}
	if len(new) == 0 {
		d.replace(what, string(old), "anything", true)
		return
	}
	d.replace(what, string(old), string(new), len(old) > 0 && (read || !reflect.DeepEqual(withoutTexts(old), withoutTexts(new))))
}

// withoutTexts returns a schema without what is only for readers.
func withoutTexts(schema json.RawMessage) any {
	v, err := abi.Unmarshal(schema)
	if err != nil {
		return string(schema)
	}
	var strip func(v any, names bool) any
	strip = func(v any, names bool) any { // names: the keys of v are not the schema's own
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for key, e := range v {
				switch {
				case names:
					out[key] = strip(e, false)
				case key == "description" || key == "title" || key == "$comment" || key == "examples":
				case key == "enum" || key == "const" || key == "default":
					out[key] = e
				default:
					out[key] = strip(e, key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions" || key == "dependentSchemas")
				}
			}
			return out
		case []any:
			var out []any
			for _, e := range v {
				out = append(out, strip(e, false))
			}
			return out
		}
		return v
	}
	return strip(v, false)
}

// trusts ranks how far a tool's own word about its effects is relied on: a call
// that is said to change nothing may be sent again.
func trusts(t abi.Tool) int {
	return map[abi.Effects]int{abi.None: 2, abi.Idempotent: 1}[t.Effects]
}

// guards compares where guards judge. One that no longer looks is a gate that is
// no longer there, which widens what gets through.
func (d *differ) guards(old, new *abi.Manifest) {
	list := func(m *abi.Manifest, of func(abi.Guard) []abi.Phase) (all []string) {
		for _, g := range m.Guards {
			for _, p := range of(g) {
				all = append(all, g.Name+" "+string(p))
			}
		}
		return all
	}
	judges := func(g abi.Guard) []abi.Phase { return g.Phases }
	for _, j := range list(old, judges) {
		if !slices.Contains(list(new, judges), j) {
			d.add(true, false, "guard judges %s", j)
		}
	}
	for _, j := range list(new, judges) {
		if !slices.Contains(list(old, judges), j) {
			d.add(false, true, "guard judges %s", j)
		}
	}
	rewrites := func(g abi.Guard) []abi.Phase { return g.Mutates }
	d.sets("guard rewrites", list(old, rewrites), list(new, rewrites), true)
	for _, g := range new.Guards {
		for _, o := range old.Guards {
			if o.Name == g.Name {
				d.schema("guard "+g.Name+": settings", o.Settings, g.Settings, false)
			}
		}
	}
}

func (d *differ) limits(old, new *limitPair) {
	if old == nil || new == nil {
		return
	}
	row := func(what string, old, new int64, text func(int64) string) {
		if old != new {
			d.replace("limit "+what, text(old), text(new), new > old)
		}
	}
	row("memory", old.Asks.MemoryBytes, new.Asks.MemoryBytes, size)
	row("wall", old.Asks.WallMS, new.Asks.WallMS, func(ms int64) string { return took(time.Duration(ms) * time.Millisecond) })
	row("fuel", old.Asks.Fuel, new.Asks.Fuel, fuel)
	row("host calls", int64(old.Asks.HostCalls), int64(new.Asks.HostCalls), count)
	row("output", old.Asks.OutputBytes, new.Asks.OutputBytes, size)
	row("http", old.Asks.HTTPBytes, new.Asks.HTTPBytes, size)
	row("variables", old.Asks.VarBytes, new.Asks.VarBytes, size)
}

// config compares the values that tools read if the app says nothing.
func (d *differ) config(old, new map[string]string) {
	lines := func(m map[string]string) (all []string) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			all = append(all, fmt.Sprintf("%s = %q", key, m[key]))
		}
		return all
	}
	d.sets("config", lines(old), lines(new), false)
}

func names[T ~string](all []T) []string {
	var out []string
	for _, s := range all {
		out = append(out, string(s))
	}
	return out
}

func imports(s *structure) []string {
	var out []string
	for _, i := range s.Imports {
		out = append(out, importName(i))
	}
	return out
}

func importName(i host.Import) string { return i.Module + "." + i.Name }

// printDiff prints what changes. Anything that widens is an error.
func (e *env) printDiff(f *inspectFlags, before, now *inspection) error {
	all := diff(before, now)
	widened := 0
	for _, c := range all {
		if c.Widens {
			widened++
		}
	}
	if f.json {
		report := struct {
			Format  int      `json:"format"`
			From    string   `json:"from"` // digest
			To      string   `json:"to"`
			Widened int      `json:"widened"`
			Changes []change `json:"changes"`
		}{1, before.Digest, now.Digest, widened, append([]change{}, all...)}
		if err := json.NewEncoder(e.stdout).Encode(report); err != nil {
			return err
		}
	} else {
		e.printChanges(f, before, now, all)
	}
	var errs []error
	for _, v := range now.Verdicts {
		if !v.Accepted && slices.Contains(declared(now.Manifest), v.As) {
			errs = append(errs, refusal(now.File, v))
		}
	}
	if widened > 0 {
		errs = append(errs, &commandError{What: fmt.Sprintf("%s: widens %s over %s", now.File, plural(widened, "thing"), before.File),
			Hint: "a wider module needs a new decision: read the lines marked wider", Exit: exitNotDone})
	}
	return errors.Join(errs...)
}

func (e *env) printChanges(f *inspectFlags, before, now *inspection, all []change) {
	p := e.palette(e.stdout)
	fmt.Fprintf(e.stdout, "%s %s -> %s %s\n", foreign(before.File, f.full), shortDigest(before.Digest), foreign(now.File, f.full), shortDigest(now.Digest))
	switch {
	case before.Digest == now.Digest:
		fmt.Fprintln(e.stdout, "the same module")
	case len(all) == 0:
		fmt.Fprintln(e.stdout, "the same manifest, imports and exports; other code")
	}
	for _, c := range all {
		sign, mark := "-", ""
		if c.Added {
			sign = "+"
		}
		if c.Widens {
			mark = p.red("wider") + "  "
		}
		fmt.Fprintf(e.stdout, "%s %s%s\n", sign, mark, foreign(c.Text, f.full))
	}
}
