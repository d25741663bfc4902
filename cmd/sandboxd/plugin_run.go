package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

type pluginRunFlags struct {
	app       string
	args      string
	export    string
	manifest  string
	input     string
	grants    []string
	state     []string
	artifacts []string
	secrets   []string
	replay    string
	record    string
	seed      string
	limits    []string
	now       string
	trace     string
	full      bool
	json      bool
}

func pluginRunCommand(e *env) *cobra.Command {
	f := &pluginRunFlags{}
	c := &cobra.Command{
		Use: "run [TOOL] [FILE]", Short: "Call one tool of a plugin",
		Long: "Call a tool as an app does, through the checks of its arguments and result, in the\nsandbox, with the grants that are named here and no " +
			"others. The result goes to standard\noutput, the receipt to standard error.\n\n" +
			"An argument that names a file is the module, or an Extism manifest; it may also be the\nfolder of a plugin's source, as the current one is if nothing is named. " +
			"TOOL may be left out if there is but one.\n\nWith --app, call a tool of an app as its agents do: its hooks, guards, grants and audit\nare " +
			"those of the app.\n\nWith --export, call an export of any module directly and print the bytes it answers.\n" +
			"Without --replay, requests go to the network.",
		Example: "sandboxd plugin run get_weather --args '{\"place\":\"Oslo\"}' --grant 'http GET api.weather.example/v1/*' --replay tests/http/oslo.json\n" +
			"sandboxd plugin run --app examples/weather get_weather --args '{\"place\":\"Oslo\"}'\n" +
			"sandboxd plugin run calc.wasm --export add --input '{\"a\":1,\"b\":2}'",
		Args: exactly("[TOOL]", "[FILE]"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("trace") {
				if err := choice("trace", f.trace, "calls", "bodies"); err != nil {
					return err
				}
			}
			exported := c.Flags().Changed("export")
			if exported && (c.Flags().Changed("args") || len(f.state)+len(f.artifacts) > 0) {
				return misuse("a raw export takes --input", "--export: cannot be used with --args, --state and --artifact")
			}
			if f.app != "" {
				for _, name := range []string{"export", "input", "grant", "state", "artifact", "secret", "replay", "record", "limit", "now", "seed"} {
					if c.Flags().Changed(name) {
						return misuse("with --app, "+app.FileName+" says it", "--%s: cannot be used with --app", name)
					}
				}
				if len(args) != 1 {
					return misuse("sandboxd plugin run --app APP TOOL", "--app: want the name of one tool")
				}
			}
			if !exported && c.Flags().Changed("input") {
				return misuse("a tool takes --args", "--input: needs --export")
			}
			return e.runPlugin(c.Context(), f, args)
		},
	}
	flags := c.Flags()
	callFlags(c, f)
	flags.StringVar(&f.app, "app", "", "call a tool of the app in the folder `APP`")
	flags.StringVar(&f.export, "export", "", "call the export `NAME` of a module instead of a tool")
	flags.StringVar(&f.input, "input", "", "input of the export: `TEXT`, FILE, @FILE, or - for standard input")
	flags.StringVar(&f.record, "record", "", "send requests to the network, and write a new `CASSETTE` of them, with the names of secrets for their values")
	flags.StringVar(&f.trace, "trace", "", "show every host call, not only those that were refused; `bodies`: and what it carries")
	flags.Lookup("trace").NoOptDefVal = "calls"
	flags.BoolVar(&f.full, "full", false, "do not shorten values")
	jsonFlag(c, &f.json)
	e.verboseFlag(c)
	groupFlags(c, "input", "app", "export", "input", "record")
	groupFlags(c, "output", "trace", "full")
	return c
}

// callFlags adds the flags that describe a call of a tool.
func callFlags(c *cobra.Command, f *pluginRunFlags) {
	flags := c.Flags()
	flags.StringVar(&f.args, "args", "{}", "arguments of the tool: `JSON`, @FILE, or - for standard input")
	flags.StringArrayVar(&f.state, "state", nil, "a state value, `KEY=JSON`, where KEY has its scope, as in user:unit; may be repeated")
	flags.StringArrayVar(&f.artifacts, "artifact", nil, "offer a file as an artifact, `NAME=PATH`; may be repeated")
	flags.StringArrayVar(&f.secrets, "secret", nil, "a secret that requests may use, `NAME`, from the variable NAME, or NAME=@FILE; may be repeated")
	flags.StringVar(&f.replay, "replay", "", "answer requests from recorded ones, `CASSETTE`, a file or folder")
	flags.StringVar(&f.now, "now", "", "the guest's `TIME` at the start, such as 2026-03-01T09:00:00Z")
	flags.StringVar(&f.seed, "seed", "", "make the guest's randomness repeat, from `N`, a whole number, as tests do")
	flags.StringArrayVar(&f.grants, "grant", nil, "give a capability, `LINE`; may be repeated; absent means none")
	flags.StringSliceVar(&f.limits, "limit", nil, "lower limits, `NAME=VALUE,…`: wall=1s, memory=16MiB, fuel=5M, host_calls=20, output=64KiB")
	manifestFlag(c, &f.manifest)
	groupFlags(c, "input", "args", "state", "artifact", "secret", "replay", "now", "seed")
	groupFlags(c, "grants", "grant")
	groupFlags(c, "limits", "limit")
}

// A toolRun is one call of a tool or export, as the command line asks for it.
type toolRun struct {
	*env
	flags  *pluginRunFlags
	tool   string // empty: the only one
	file   string
	grants capability.Set
	asked  host.Limits // zero fields: not lowered
	now    time.Time   // zero: the clock
	seed   []byte      // nil: there is none
	egress *host.Egress
	tape   *host.Recorder // nil without --record
	values *host.Secrets

	trace tracer
}

func (e *env) runPlugin(ctx context.Context, f *pluginRunFlags, args []string) error {
	r := &toolRun{env: e, flags: f, trace: tracer{env: e, all: f.trace != "", bodies: f.trace == "bodies", full: f.full}}
	if f.app != "" {
		r.tool = args[0]
		return r.callInApp(ctx)
	}
	if err := r.name(args); err != nil {
		return err
	}
	if err := r.parse(); err != nil {
		return err
	}
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	g, err := e.openGuest(ctx, modules, r.file, f.manifest)
	if err != nil {
		return err
	}
	if f.export != "" {
		return errors.Join(r.callExport(ctx, engine, modules, g), r.keepTape())
	}
	module, err := g.load(ctx, modules)
	if err != nil {
		return err
	}
	return errors.Join(r.callTool(ctx, module), r.keepTape())
}

// name finds out which argument is the module and which the tool.
func (r *toolRun) name(args []string) error {
	for _, arg := range args {
		isFile := r.names(arg) || strings.HasSuffix(arg, ".wasm") || strings.ContainsRune(arg, filepath.Separator)
		switch {
		case isFile && r.file != "":
			return misuse("", "%s and %s: both name a file", r.file, arg)
		case isFile:
			r.file = arg
		case r.tool != "":
			return misuse("sandboxd plugin run TOOL FILE", "%s: no such file", arg)
		default:
			r.tool = arg
		}
	}
	if r.tool != "" && r.flags.export != "" {
		return misuse("sandboxd plugin run FILE --export NAME", "%s: no such file", r.tool)
	}
	if r.file == "" {
		r.file = "."
	}
	return nil
}

// parse reads the flags that say what the call may do.
func (r *toolRun) parse() error {
	var err error
	if r.grants, err = capability.ParseSet(r.flags.grants); err != nil {
		return err
	}
	if r.asked, err = parseLimits(r.flags.limits); err != nil {
		return err
	}
	if text := r.flags.now; text != "" {
		if r.now, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return misuse("such as 2026-03-01T09:00:00Z", "--now %q: not a time in RFC 3339", text)
		}
	}
	if text := r.flags.seed; text != "" {
		if _, err := strconv.ParseUint(text, 10, 63); err != nil {
			return misuse("such as 1", "--seed %q: not a whole number", text)
		}
		r.seed = []byte(strings.TrimLeft(text[:len(text)-1], "0") + text[len(text)-1:]) // as tests have it
	}
	if r.values, err = r.secrets(); err != nil {
		return err
	}
	if name := r.flags.record; name != "" {
		if r.flags.replay != "" {
			return misuse("record once, then replay", "--record and --replay: exclude each other")
		}
		if r.names(name) {
			return misuse("remove it, or name another file", "--record %s: there is such a file", name)
		}
		r.tape = host.NewRecorder(r.values)
		r.egress = r.tape.Egress()
		return nil
	}
	var replay *host.Cassettes
	if name := r.flags.replay; name != "" {
		if _, err := os.Stat(r.path(name)); err != nil {
			return &fileError{name, err}
		}
		if replay, err = host.OpenCassettes(r.path(name)); err != nil {
			return &commandError{What: strings.ReplaceAll(err.Error(), r.path(name), name), Code: abi.ConfigInvalid, Exit: exitMisused}
		}
	}
	r.egress = host.NewEgress(replay)
	return nil
}

// keepTape writes what was recorded.
func (r *toolRun) keepTape() error {
	if r.tape == nil {
		return nil
	}
	tape, err := r.tape.Cassette()
	if err != nil {
		return err
	}
	if tape == nil {
		fmt.Fprintf(r.stderr, "nothing was requested, so %s is not written\n", r.flags.record)
		return nil
	}
	return r.writeFile(r.flags.record, tape)
}

// secrets reads --secret. A value is never on the command line, where others see it.
func (r *toolRun) secrets() (*host.Secrets, error) {
	values := map[string]string{}
	for _, entry := range r.flags.secrets {
		name, file, isFile := strings.Cut(entry, "=")
		if !isFile {
			if values[name] = r.getenv(name); values[name] == "" {
				return nil, misuse(fmt.Sprintf("export %s=…, or --secret %s=@FILE", name, name), "--secret %s: variable not set", name)
			}
			continue
		}
		file, ok := strings.CutPrefix(file, "@")
		if !ok {
			return nil, misuse("a value is never on the command line", "--secret %s: want NAME or NAME=@FILE", name)
		}
		data, err := r.readFile(file)
		if err != nil {
			return nil, err
		}
		values[name] = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	}
	secrets, err := host.NewSecrets(values)
	if err != nil {
		return nil, misuse("", "--secret: %v", err)
	}
	return secrets, nil
}

// parseLimits reads NAME=VALUE. A limit can only be lowered.
func parseLimits(entries []string) (host.Limits, error) {
	var l host.Limits
	most := host.DefaultLimits(abi.KindTool)
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		var err error
		past := ""
		switch name {
		case "wall":
			if l.Wall, err = time.ParseDuration(value); err == nil && l.Wall > most.Wall {
				past = took(most.Wall)
			}
		case "memory":
			if l.MemoryBytes, err = parseSize(value); err == nil && l.MemoryBytes > most.MemoryBytes {
				past = size(most.MemoryBytes)
			}
		case "output":
			if l.OutputBytes, err = parseSize(value); err == nil && l.OutputBytes > most.OutputBytes {
				past = size(most.OutputBytes)
			}
		case "fuel":
			if l.Fuel, err = app.ParseCount(value); err == nil && l.Fuel > most.Fuel {
				past = fuel(most.Fuel)
			}
		case "host_calls":
			if l.HostCalls, err = strconv.Atoi(value); err == nil && l.HostCalls > most.HostCalls {
				past = count(int64(most.HostCalls))
			}
		default:
			hint := "limits are wall, memory, fuel, host_calls and output"
			if near := app.Nearest(name, []string{"wall", "memory", "fuel", "host_calls", "output"}); near != "" {
				hint = "did you mean " + near + "?"
			}
			return l, misuse(hint, "--limit %s: no limit of that name", name)
		}
		if err != nil || strings.HasPrefix(value, "-") || strings.Trim(value, "0nsumhKMGiB.") == "" {
			return l, misuse("such as wall=1s, memory=16MiB, fuel=5M, host_calls=20 or output=64KiB", "--limit %s: %q is not a value for it", name, value)
		}
		if past != "" {
			return l, misuse("", "--limit %s: %s exceeds %s", name, value, past)
		}
	}
	return l, nil
}

// parseSize reads a number of bytes such as 16MiB.
func parseSize(s string) (int64, error) {
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}} {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = digits, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > 1<<40/unit {
		return 0, fmt.Errorf("%q is not a size", s)
	}
	return n * unit, nil
}

// value reads a flag's value: the text itself, "@FILE", or "-" for standard input.
func (r *toolRun) value(text string) ([]byte, error) {
	if text == "-" {
		return r.readFile("-")
	}
	if name, ok := strings.CutPrefix(text, "@"); ok {
		return r.readFile(name)
	}
	return []byte(text), nil
}

// A callReport is what plugin run --json prints.
type callReport struct {
	Format   int             `json:"format"`
	Tool     string          `json:"tool,omitempty"`
	Export   string          `json:"export,omitempty"`
	Code     abi.Code        `json:"code"`
	Ran      bool            `json:"ran"` // the guest was called
	Result   json.RawMessage `json:"result,omitempty"`
	Output   *string         `json:"output,omitempty"`        // of an export, if it is UTF-8
	Output64 []byte          `json:"output_base64,omitempty"` // else
	Message  string          `json:"message,omitempty"`       // why there is no result
	Actions  json.RawMessage `json:"actions,omitempty"`       // what the tool asked of the flow
	Receipt  *host.Receipt   `json:"receipt,omitempty"`
}

// finish prints a report or a result, the receipt, and returns the error of a
// call that failed.
func (r *toolRun) finish(c *callReport, result []byte, limits host.Limits, failed *commandError) error {
	if r.flags.json {
		if err := json.NewEncoder(r.stdout).Encode(c); err != nil {
			return err
		}
	} else if result != nil {
		if err := r.printResult(result); err != nil {
			return err
		}
	}
	if c.Receipt != nil {
		fmt.Fprintln(r.stderr, receiptLine(*c.Receipt, limits))
	}
	if failed != nil {
		return failed
	}
	return nil
}

// printResult prints what a guest answered. A pipe gets all of it; a terminal
// gets it without hidden characters, and shortened.
func (r *toolRun) printResult(result []byte) error {
	if r.stdout.terminal {
		result = []byte(foreign(string(result), r.flags.full))
	}
	_, err := fmt.Fprintf(r.stdout, "%s\n", result)
	return err
}

// A tracer shows host calls while they happen.
type tracer struct {
	*env
	all    bool // not only those that were refused
	bodies bool // and what they carry
	full   bool

	refused []host.HostCall
}

func (t *tracer) call(c host.HostCall) {
	line := fmt.Sprintf("  host  %7s  %-4s %s", took(c.At), c.Name, foreign(c.Detail, t.full))
	switch {
	case c.Code != abi.OK:
		t.refused = append(t.refused, c)
		line += "   " + t.palette(t.stderr).red("DENIED")
		if c.Need != "" {
			line += "  needs " + foreign(c.Need, t.full)
		}
		if c.Code != abi.CapabilityDenied {
			line += "  [" + string(c.Code) + "]"
		}
	case !t.all:
		return
	case c.Status != 0:
		line += fmt.Sprintf("   %d  %s", c.Status, size(c.Bytes))
		if c.Recorded {
			line += "  (recorded)"
		}
		if len(c.Scrubbed) > 0 {
			line += "  held secret " + strings.Join(c.Scrubbed, ", ")
		}
	}
	fmt.Fprintln(t.stderr, line)
	if t.bodies {
		t.body("sent", c.Sent)
		t.body("got", c.Got)
	}
}

// body shows what a host call carried. The host has taken secrets out of it.
func (t *tracer) body(way string, data []byte) {
	if len(data) > 0 {
		fmt.Fprintf(t.stderr, "          %-4s  %s\n", way, foreign(string(data), t.full))
	}
}

// hint says what to change about a call that was refused something. manifest may
// be nil.
func (t *tracer) hint(manifest *abi.Manifest, replay string) string {
	for _, c := range t.refused {
		switch {
		case c.Code == abi.NoRecordedAnswer:
			return fmt.Sprintf("add an exchange for %s to %s", c.Detail, replay)
		case c.Need == "":
			continue
		}
		need, err := capability.Parse(c.Need)
		if err != nil {
			return "nothing that could be granted covers this"
		}
		if manifest == nil {
			return fmt.Sprintf("add --grant '%s'", need)
		}
		for _, line := range manifest.Requests {
			if set, err := capability.ParseSet([]string{line}); err == nil && set.Covers(need) {
				return fmt.Sprintf("add --grant '%s'", line)
			}
		}
		return fmt.Sprintf("the manifest does not ask for %s: only its author can add that", need)
	}
	return ""
}
