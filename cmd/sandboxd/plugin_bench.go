package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

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
			"looks at what\ndoes not: the clock without --now, or the order of a map.\n\nWith --against, call the tool of another module likewise, and say what changed.",
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
		fmt.Fprint(e.stdout, now.text(r.now.IsZero()))
	}
	if now.Code != abi.OK {
		return &commandError{What: fmt.Sprintf("%s: a call ended with %s", r.tool, now.Code), Code: now.Code, Hint: "sandboxd plugin run shows one call", Exit: exitNotDone}
	}
	return nil
}

// bench calls the tool of a module n times.
func (r *toolRun) bench(ctx context.Context, module *host.Module, n int) (*callBench, error) {
	m := module.Manifest()
	if err := r.chooseTool(m); err != nil {
		return nil, err
	}
	args, err := r.arguments()
	if err != nil {
		return nil, err
	}
	plugin, err := plugins.New(module, plugins.Config{Grants: r.grants, Ceiling: r.grants, Egress: r.egress, Now: r.clock(), Seed: r.seed, Secrets: r.values,
		KV: host.NewMemoryKV(r.clock()), Limits: host.DefaultLimits(abi.KindTool).Narrow(host.Asked(m.Limits)).Narrow(r.asked)})
	if err != nil {
		return nil, err
	}
	b := &callBench{Format: 1, Module: module.Digest().String(), Tool: r.tool, Code: abi.OK, N: n}
	took := make([]float64, n)
	for i := range n {
		var ended flow.CallResult
		runner, key, err := r.runner(ctx, plugin, flow.Observer{Finished: func(_ flow.CallInfo, c flow.CallResult) { ended = c }})
		if err != nil {
			return nil, err
		}
		if _, err := call(ctx, runner, key, flow.DirectCall{Tool: r.tool, Args: args}); err != nil {
			return nil, err
		}
		took[i] = float64(ended.Took.Nanoseconds()) / 1e3
		receipt, _ := ended.Receipt.(host.Receipt)
		if b.Code == abi.OK {
			b.Code = ended.Code
		}
		if i == 0 || receipt.Fuel < b.FuelMin {
			b.FuelMin = receipt.Fuel
		}
		b.FuelMax, b.PeakBytes, b.HostCalls = max(b.FuelMax, receipt.Fuel), max(b.PeakBytes, receipt.PeakBytes), max(b.HostCalls, receipt.HostCalls)
	}
	slices.Sort(took)
	b.P50US, b.P99US = percentile(took, 50), percentile(took, 99)
	return b, nil
}

// text returns a line of what was measured, one more for another module, and whether
// the fuel repeats.
func (b *callBench) text(realClock bool) string {
	line := func(b *callBench) string {
		return fmt.Sprintf("%s  p50 %s  p99 %s  fuel %s  memory %s  %s  %s\n", foreign(b.Tool, true), micros(b.P50US), micros(b.P99US), fuel(b.FuelMax),
			size(b.PeakBytes), plural(b.HostCalls, "host call"), shortDigest(b.Module))
	}
	out := line(b)
	if b.FuelMin == b.FuelMax {
		out += "fuel    equal in all calls\n"
	} else {
		out += fmt.Sprintf("fuel    differs: %s to %s", fuel(b.FuelMin), fuel(b.FuelMax))
		if realClock {
			out += "; the clock is the real one: --now fixes it"
		}
		out += "\n"
	}
	if o := b.Against; o != nil {
		out += line(o)
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
