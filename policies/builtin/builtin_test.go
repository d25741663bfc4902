package main_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestMain(m *testing.M) {
	host.Main() // first, as in main: the engine compiles in a child, which is this program
	os.Exit(m.Run())
}

// built returns the module of all guards, built from the sources that the program
// holds.
func built(t testing.TB) *host.Module {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	wasm, _, err := app.Modules{Engine: engine}.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// table reads the decision table of a guard.
func table(t testing.TB, guard string) *authortest.Table {
	t.Helper()
	file := filepath.Join("tests", guard+".table.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := authortest.ParseTable(file, data)
	if err != nil {
		t.Fatal(err)
	}
	if tab.Name != guard {
		t.Fatalf("%s is about %q", file, tab.Name)
	}
	return tab
}

// docs is the page of the guards.
const docs = "../../docs/policies.md"

// costs reads the table of costs of the page: fuel in thousands, by guard.
func costs(t *testing.T) map[string]int64 {
	t.Helper()
	f, err := os.Open(docs)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := regexp.MustCompile("^\\| \\[?`([a-z-]+)`.*\\| ([0-9,]+) k \\|")
	out := map[string]int64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if m := line.FindStringSubmatch(s.Text()); m != nil {
			n, err := strconv.ParseInt(strings.ReplaceAll(m[2], ",", ""), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			out[m[1]] = n
		}
	}
	return out
}

// Every guard answers its decision table, natively as in the sandbox, cannot be made to let
// something pass by failing, and costs what its page says. Fuel is the same on every machine, but not
// with every version of Go, so it may be a quarter more or less.
func TestTables(t *testing.T) {
	module := built(t)
	told := costs(t)
	guards := module.Manifest().Guards
	for _, g := range guards {
		t.Run(g.Name, func(t *testing.T) {
			var fuel []int64
			maker := authortest.ModuleGuard(module, g.Name, host.Limits{})
			answers, err := table(t, g.Name).Run(t.Context(), maker, nil, func(r authortest.Result) {
				if !r.OK {
					t.Errorf("%s:%d: %s: %+v", r.File, r.Line, r.Name, r.Problems)
				}
				if r.Calls > 0 {
					fuel = append(fuel, r.Fuel/int64(r.Calls))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := authortest.FailClosed(t.Context(), module, g.Name, answers, func(r authortest.Result) {
				if !r.OK {
					t.Errorf("fail-closed: %s: %+v", r.Name, r.Problems)
				}
			}); err != nil {
				t.Fatal(err)
			}
			slices.Sort(fuel)
			most := host.DefaultLimits(abi.KindGuard).Fuel
			if worst := fuel[len(fuel)-1]; worst > most/2 {
				t.Errorf("a row takes %d of %d fuel", worst, most)
			}
			if median := fuel[len(fuel)/2] / 1000; told[g.Name] < median*3/4 || told[g.Name] > median*5/4 {
				t.Errorf("%s says %d k fuel, the median of its table is %d k", docs, told[g.Name], median)
			}
			t.Run("natively", func(t *testing.T) { agree(t, module, g.Name) })
		})
	}
	t.Run("what differs is told", func(t *testing.T) {
		differing(t, module, "amount-limit", `"deny_from":"5000"`, `"deny_from":"4000"`, "verdict: ", "code: ", "reason: ", "why: ", "hint: ")
		differing(t, module, "amount-limit", `"ask_from":"10"`, `"ask_from":"9"`, "settings ")
		differing(t, module, "call-quota", `"calls":2`, `"calls":1000000`, "kv: in the sandbox add 1 to ")
		differing(t, module, "pii-redact", `"iban"]}`, `"iban"],"style":"hash"}`, "document: ", "kv: never asked natively: ")
		differing(t, module, "read-only", `"also_allow":[]`, `"also_allow":["lookup"]`, "verdict: ", "grants: ")
	})
	if len(told) != len(guards) {
		t.Errorf("%s has %d guards, the module %d", docs, len(told), len(guards))
	}
	if files, err := filepath.Glob("tests/*.table.yaml"); err != nil || len(files) != len(guards) {
		t.Errorf("%d tables for %d guards: %v", len(files), len(guards), err)
	}
}

// BenchmarkJudge is what one judgement costs, instance and question included: of the
// first row of each table that is one question.
func BenchmarkJudge(b *testing.B) {
	module := built(b)
	for _, g := range module.Manifest().Guards {
		b.Run(g.Name, func(b *testing.B) {
			tab := table(b, g.Name)
			answers, err := tab.Run(b.Context(), authortest.ModuleGuard(module, g.Name, host.Limits{}), nil, func(authortest.Result) {})
			if err != nil || len(answers) == 0 {
				b.Fatal(err, len(answers))
			}
			a := answers[0]
			var fuel int64
			guard, err := policies.New(b.Context(), module, policies.Config{Guard: g.Name, Settings: json.RawMessage(a.Settings), KV: host.NewMemoryKV(nil), Limits: host.Limits{Wall: time.Minute, Startup: time.Minute},
				Spent: func(r host.Receipt) { fuel = r.Fuel }})
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for b.Loop() {
				if j := flow.Ask(b.Context(), guard, a.Question, time.Minute); j.Err != nil {
					b.Fatal(j.Err)
				}
			}
			b.ReportMetric(float64(fuel), "fuel")
		})
	}
}
