package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func pluginBenchCommand(e *env) *cobra.Command {
	f := &pluginRunFlags{}
	n, against := 2000, ""
	c := &cobra.Command{
		Use: "bench [TOOL] [FILE]", Short: "Measure one tool of a plugin",
		Long: "Call a tool over and over, each time as plugin run does and in a session of its own, and\nsay how long a call takes and what it uses. Fuel repeats unless the guest " +
			"looks at what\ndoes not. If it differs, the tool is called again, at most COUNT times with the clock,\nrandomness and kv fixed and as often with each of them free, to name those that make it\ndiffer. Requests that --replay does not answer are sent again with it.\n\nWith --against, call the tool of another module likewise, and say what changed.",
		Example: "sandboxd plugin bench get_weather --args '{\"place\":\"Oslo\"}' --grant 'http GET api.weather.example/v1/*' --replay tests/http/oslo.json\n" +
			"sandboxd plugin bench get_weather weather.wasm --args '{\"place\":\"Oslo\"}' --against weather-old.wasm --json",
		Args: exactly("[TOOL]", "[FILE]"),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 1_000_000 {
				return misuse("", "--n %d: want 1 to 1,000,000", n)
			}
			return e.benchPlugin(c.Context(), f, args, n, against)
		},
	}
	callFlags(c, f)
	c.Flags().IntVar(&n, "n", n, "`COUNT` of calls")
	c.Flags().StringVar(&against, "against", "", "another module, or the folder of its source, `FILE`")
	jsonFlag(c, &f.json)
	e.verboseFlag(c)
	groupFlags(c, "input", "against")
	groupFlags(c, "limits", "n")
	return c
}

// A callBench is what was measured of one tool of one module.
type callBench struct {
	Format    int      `json:"format"`
	Module    string   `json:"module"` // digest
	Tool      string   `json:"tool"`
	Code      abi.Code `json:"code"` // of the first call, or the first other than that
	N         int      `json:"n"`
	P50US     float64  `json:"p50_us"`
	P99US     float64  `json:"p99_us"`
	FuelMin   int64    `json:"fuel_min"`
	FuelMax   int64    `json:"fuel_max"`
	PeakBytes int64    `json:"peak_bytes"` // most
	HostCalls int      `json:"host_calls"` // most

	FuelCauses []string `json:"fuel_causes,omitempty"` // why fuel differs: clock, randomness, kv, or unknown
	HTTP       bool     `json:"-"`                     // a request was sent

	Against *callBench `json:"against,omitempty"`
}

func (e *env) benchPlugin(ctx context.Context, f *pluginRunFlags, args []string, n int, against string) error {
	r := &toolRun{env: e, flags: f}
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
	measure := func(file string) (*callBench, error) {
		r.file = file // as errors name it
		g, err := e.openGuest(ctx, modules, file, f.manifest)
		if err != nil {
			return nil, err
		}
		module, err := g.load(ctx, modules)
		if err != nil {
			return nil, err
		}
		return r.bench(ctx, module, n)
	}
	now, err := measure(r.file)
	if err != nil {
		return err
	}
	if against != "" {
		if now.Against, err = measure(against); err != nil {
			return err
		}
	}
	if f.json {
		if err := json.NewEncoder(e.stdout).Encode(now); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.stdout, now.text(r.now.IsZero(), f.replay != ""))
	}
	if now.Code != abi.OK {
		return &commandError{What: fmt.Sprintf("%s: a call ended with %s", r.tool, now.Code), Code: now.Code, Hint: "sandboxd plugin run shows one call", Exit: exitNotDone}
	}
	return nil
}

// bench calls the tool of a module n times.
func (r *toolRun) bench(ctx context.Context, module *host.Module, n int) (*callBench, error) {
	if err := r.chooseTool(module.Manifest()); err != nil {
		return nil, err
	}
	args, err := r.arguments()
	if err != nil {
		return nil, err
	}
	b := &callBench{Format: 1, Module: module.Digest().String(), Tool: r.tool, Code: abi.OK, N: n}
	took := make([]float64, n)
	unequal := 0 // the first call whose fuel is not that of the one before
	err = r.calls(ctx, module, args, conditions{r.grants, r.clock(), r.seed, false}, n, func(i int, ended flow.CallResult, receipt host.Receipt) bool {
		took[i] = float64(ended.Took.Nanoseconds()) / 1e3
		if b.Code == abi.OK {
			b.Code = ended.Code
		}
		if i == 0 {
			b.FuelMin, b.FuelMax = receipt.Fuel, receipt.Fuel
		} else if receipt.Fuel != b.FuelMin && unequal == 0 {
			unequal = i
		}
		b.FuelMin, b.FuelMax = min(b.FuelMin, receipt.Fuel), max(b.FuelMax, receipt.Fuel)
		b.PeakBytes, b.HostCalls = max(b.PeakBytes, receipt.PeakBytes), max(b.HostCalls, receipt.HostCalls)
		b.HTTP = b.HTTP || slices.ContainsFunc(receipt.Used, func(line string) bool { return strings.HasPrefix(line, "http ") })
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	b.P50US, b.P99US = percentile(took, 50), percentile(took, 99)
	if unequal > 0 {
		b.FuelCauses, err = r.causes(ctx, module, args, min(n, 10*unequal+20))
	}
	return b, err
}

// conditions are what a call finds, and what may differ from one call to the next.
type conditions struct {
	grants capability.Set
	now    func() time.Time // nil: the clock
	seed   []byte           // nil: randomness does not repeat
	empty  bool             // kv is, in every call
}

// calls calls the tool n times, or until each says false.
func (r *toolRun) calls(ctx context.Context, module *host.Module, args map[string]any, c conditions, n int, each func(i int, ended flow.CallResult, receipt host.Receipt) bool) error {
	limits := host.DefaultLimits(abi.KindTool).Narrow(host.Asked(module.Manifest().Limits)).Narrow(r.asked)
	var plugin *plugins.Plugin
	for i := range n {
		var err error
		if plugin == nil || c.empty {
			plugin, err = plugins.New(module, plugins.Config{Grants: c.grants, Ceiling: c.grants, Egress: r.egress, Now: c.now, Seed: c.seed, Secrets: r.values,
				KV: host.NewMemoryKV(c.now), Limits: limits})
			if err != nil {
				return err
			}
		}
		var ended flow.CallResult
		runner, key, err := r.runner(ctx, plugin, flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { ended = c }})
		if err != nil {
			return err
		}
		if _, err := call(ctx, runner, key, flow.DirectCall{Tool: r.tool, Args: args}); err != nil {
			return err
		}
		receipt, _ := ended.Receipt.(host.Receipt)
		if !each(i, ended, receipt) {
			return nil
		}
	}
	return nil
}

// causes finds out why fuel differs: it makes n calls more in which all that can be fixed is, and
// if their fuel is equal, n more for each of those things, in which that one is not. Calls end
// with the first whose fuel differs.
func (r *toolRun) causes(ctx context.Context, module *host.Module, args map[string]any, n int) ([]string, error) {
	still, err := withoutClock(r.grants)
	if err != nil {
		return nil, err
	}
	start := r.now
	if start.IsZero() {
		start = r.env.now()
	}
	fixed := conditions{still, func() time.Time { return start }, r.seed, true}
	if fixed.seed == nil {
		fixed.seed = []byte("1")
	}
	equal := func(c conditions) (bool, error) {
		first, all := int64(0), true
		err := r.calls(ctx, module, args, c, n, func(i int, _ flow.CallResult, receipt host.Receipt) bool {
			if i == 0 {
				first = receipt.Fuel
			}
			all = receipt.Fuel == first
			return all
		})
		return all, err
	}
	if same, err := equal(fixed); err != nil || !same {
		return []string{causeUnknown}, err
	}
	clock, random, kv := fixed, fixed, fixed
	clock.grants, clock.now, random.seed, kv.empty = r.grants, r.clock(), r.seed, false
	var found, loose []string
	for _, c := range []struct {
		name string
		is   bool // it was not fixed
		with conditions
	}{{causeClock, r.now.IsZero() || r.grants.Has("clock"), clock}, {causeRandom, r.seed == nil, random}, {causeKV, true, kv}} {
		if !c.is {
			continue
		}
		loose = append(loose, c.name)
		same, err := equal(c.with)
		if err != nil {
			return nil, err
		}
		if !same {
			found = append(found, c.name)
		}
	}
	if found == nil { // none alone
		return loose, nil
	}
	return found, nil
}

// What makes fuel differ, as --json has it.
const (
	causeClock   = "clock"
	causeRandom  = "randomness"
	causeKV      = "kv"
	causeNonce   = "nonce"   // of a question to a guard
	causeUnknown = "unknown" // none of these that a call of a tool has
)

// withoutClock returns a set without the grant with which time goes on during a call.
func withoutClock(s capability.Set) (capability.Set, error) {
	return capability.ParseSet(slices.DeleteFunc(s.Lines(), func(line string) bool { return line == "clock" }))
}

// causeText says what makes fuel differ, and what would fix it. replayed says whether recorded
// answers stood in for the network.
func (b *callBench) causeText(realClock, replayed bool) string {
	var words []string
	for _, c := range b.FuelCauses {
		switch {
		case c == causeClock && realClock:
			words = append(words, "the clock, which --now fixes")
		case c == causeClock:
			words = append(words, "the clock, which goes on with --grant clock")
		case c == causeRandom:
			words = append(words, "randomness, which --seed fixes, and with it the order of maps")
		case c == causeKV:
			words = append(words, "what earlier calls left in kv")
		default:
			text := "neither the time, nor randomness, nor kv explains it: it may measure time, or read its call's id"
			if !replayed && b.HTTP {
				text += ", or answers of the network, which --replay fixes"
			}
			words = append(words, text)
		}
	}
	return strings.Join(words, "; ")
}

// text returns a line of what was measured, one more for another module, and whether
// the fuel repeats.
func (b *callBench) text(realClock, replayed bool) string {
	line := func(b *callBench) string {
		return fmt.Sprintf("%s  p50 %s  p99 %s  fuel %s  memory %s  %s  %s\n", foreign(b.Tool, true), micros(b.P50US), micros(b.P99US), fuel(b.FuelMax),
			size(b.PeakBytes), plural(b.HostCalls, "host call"), shortDigest(b.Module))
	}
	repeats := func(b *callBench) string {
		if b.FuelMin == b.FuelMax {
			return "fuel    equal in all calls\n"
		}
		return fmt.Sprintf("fuel    differs: %s to %s: %s\n", fuel(b.FuelMin), fuel(b.FuelMax), b.causeText(realClock, replayed))
	}
	out := line(b) + repeats(b)
	if o := b.Against; o != nil {
		out += line(o) + repeats(o)
		out += fmt.Sprintf("change  p50 %s  p99 %s  fuel %s  memory %s\n", percentMore(o.P50US, b.P50US), percentMore(o.P99US, b.P99US),
			percentMore(float64(o.FuelMax), float64(b.FuelMax)), percentMore(float64(o.PeakBytes), float64(b.PeakBytes)))
	}
	return out
}

// percentMore returns how much b is more than a, such as "+12%".
func percentMore(a, b float64) string {
	if a == 0 {
		return "none before"
	}
	return fmt.Sprintf("%+.0f%%", 100*(b-a)/a)
}
