package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func policyTestCommand(e *env) *cobra.Command {
	f := &testFlags{}
	c := &cobra.Command{
		Use: "test [DIR]", Short: "Run the decision tables of a policy",
		Long: "Build the guards that the tables below DIR name, the current folder if it is left out,\nask them every question of every table, and run the suite that every " +
			"guard has to pass:\nwhat it cannot answer must end as a denial. Tables are files in .table.yaml or\n.table.json.\n\n" +
			"Guards run as in an app, with the fuel that they have there; only the time they may\ntake is longer, so that a busy machine fails no test. Exit 1 if a " +
			"test fails, 2 if there\nis none.",
		Example: "sandboxd policy test\nsandboxd policy test --run 'weekend|night' --junit report.xml policies/office",
		Args:    exactly("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return e.tests(c.Context(), "policy test", dir, f, func(ctx context.Context, r *testRun) error { return r.tables(ctx, dir) })
		},
	}
	f.add(c)
	e.verboseFlag(c)
	c.Flags().StringVar(&f.mutate, "mutate", "", "change the compiled guards in one place after the other; less than `PERCENT` that rows notice is a failure; default 100")
	c.Flags().Lookup("mutate").NoOptDefVal = "100"
	groupFlags(c, "output", "mutate")
	return c
}

// tables runs all decision tables below a folder.
func (r *testRun) tables(ctx context.Context, dir string) error {
	tables, plan, err := r.readTables(dir)
	if err != nil {
		return err
	}
	for i, f := range plan {
		if err := r.again(ctx, f, plan, func() error { return r.table(ctx, f, tables[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// readTables reads all decision tables below a folder.
func (r *testRun) readTables(dir string) (tables []*authortest.Table, plan []*testFile, err error) {
	files, err := r.find(dir, tableFiles...)
	if err != nil {
		return nil, nil, err
	}
	var wrong []error
	for _, file := range files {
		data, err := r.readTests(file)
		if err != nil {
			return nil, nil, err
		}
		t, err := authortest.ParseTable(file, data)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		tables = append(tables, t)
		plan = append(plan, &testFile{name: file, data: data, module: t.Guard})
	}
	return tables, plan, errors.Join(wrong...)
}

func (r *testRun) table(ctx context.Context, f *testFile, t *authortest.Table) error {
	g := f.guest
	m := g.module.Manifest()
	if guardOf(m, t.Name) == nil {
		return errNoGuard(t.File, t.Name, m)
	}
	s := &tableSum{}
	maker := authortest.ModuleGuard(g.module, t.Name, host.Limits{})
	if g.cover != nil {
		maker = g.cover.Guard(t.Name)
		g.tables = append(g.tables, t)
	}
	answers, err := t.Run(ctx, maker, r.match, func(res authortest.Result) {
		s.row(res)
		g.ended(res)
		r.result("row", res)
	})
	if err != nil {
		return err
	}
	if s.rows == 0 {
		return nil // none matches
	}
	err = authortest.FailClosed(ctx, g.module, t.Name, answers, func(res authortest.Result) {
		res.File, res.Line = t.File, 1
		s.checks++
		if res.OK {
			s.closed++
		}
		r.result("fail-closed", res)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", t.File, err)
	}
	if f.first {
		if word := r.palette(r.stdout).green("ok"); s.passed == s.rows && s.closed == s.checks {
			r.say("%s    %s\n", word, s)
		} else {
			r.say("      %s\n", s)
		}
	}
	return nil
}

// guardOf returns the guard of that name, or the only one; nil if there is none.
func guardOf(m *abi.Manifest, name string) *abi.Guard {
	for i, g := range m.Guards {
		if g.Name == name || name == "" && len(m.Guards) == 1 {
			return &m.Guards[i]
		}
	}
	return nil
}

// A tableSum is what is said of a table in one line.
type tableSum struct {
	rows, passed   int
	checks, closed int
	took           []time.Duration // of one judgement
	fuel           int64           // most of one judgement
}

func (s *tableSum) row(res authortest.Result) {
	s.rows++
	if res.OK {
		s.passed++
	}
	if res.Calls > 0 {
		s.took = append(s.took, time.Duration(res.WallUS/int64(res.Calls))*time.Microsecond)
		s.fuel = max(s.fuel, res.Fuel/int64(res.Calls))
	}
}

// String returns what is said of the table. Where everything passed it begins with
// the number of rows.
func (s *tableSum) String() string {
	line := plural(s.rows, "row")
	if s.passed < s.rows {
		line = fmt.Sprintf("%d of %s", s.passed, line)
	}
	if s.checks > 0 {
		line += fmt.Sprintf("      fail-closed suite  %d of %d", s.closed, s.checks)
	}
	if len(s.took) > 0 {
		slices.Sort(s.took)
		line += fmt.Sprintf("       p50 %s  p99 %s  fuel %s of %s", quick(percentile(s.took, 50)), quick(percentile(s.took, 99)), fuel(s.fuel),
			fuel(host.DefaultLimits(abi.KindGuard).Fuel))
	}
	return line
}

// percentile returns the value below which p of 100 sorted values lie.
func percentile[T cmp.Ordered](sorted []T, p int) T {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}
