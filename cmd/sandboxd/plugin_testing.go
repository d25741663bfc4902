package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func pluginTestCommand(e *env) *cobra.Command {
	f := &testFlags{}
	c := &cobra.Command{
		Use: "test [DIR]", Short: "Run the tests of a plugin",
		Long: "Build the plugins that the tests below DIR name, the current folder if it is left out,\nand call their tools as an app does, with recorded answers instead " +
			"of the network. Tests\nare files in .test.json or .test.yaml.\n\nEach tool that used a grant is called once more without any: it must not trap. A\nsnapshot that is " +
			"not there is written, unless the variable CI is set. Exit 1 if a test\nfails, 2 if there is none.",
		Example: "sandboxd plugin test\nsandboxd plugin test --run 'place' --update weather",
		Args:    exactly("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return e.tests(c.Context(), "plugin test", dir, f, func(ctx context.Context, r *testRun) error { return r.cases(ctx, dir) })
		},
	}
	f.add(c)
	e.verboseFlag(c)
	c.Flags().BoolVar(&f.update, "update", false, "write the snapshots anew from what was got")
	groupFlags(c, "output", "update")
	return c
}

// cases runs all tests of plugins below a folder.
func (r *testRun) cases(ctx context.Context, dir string) error {
	files, err := r.find(dir, caseFiles...)
	if err != nil {
		return err
	}
	var all []*authortest.Cases
	var plan []*testFile
	var wrong []error
	for _, file := range files {
		data, err := r.readTests(file)
		if err != nil {
			return err
		}
		c, err := authortest.ParseCases(file, data)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		all = append(all, c)
		reads, writes := c.Files()
		plan = append(plan, &testFile{name: file, data: data, module: c.Module, reads: reads, writes: writes})
	}
	if wrong != nil {
		return errors.Join(wrong...)
	}
	for i, f := range plan {
		if err := r.again(ctx, f, plan, func() error { return r.casesOf(ctx, f, all[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// casesOf runs one file of them.
func (r *testRun) casesOf(ctx context.Context, f *testFile, c *authortest.Cases) error {
	g, twins := f.guest, 0
	module := g.module
	if g.cover != nil {
		module = g.cover.Watched()
	}
	bench := authortest.Bench{Dir: filepath.Dir(r.path(c.File)), Update: r.flags.update, Missing: r.getenv("CI") != ""}
	err := c.Run(ctx, module, bench, r.match, func(res authortest.Result) {
		g.ended(res)
		r.result("case", res)
	}, func(res authortest.Result) {
		if res.OK {
			twins++
		}
		r.result("no-grant twin", res)
	})
	if err != nil {
		return &commandError{What: err.Error(), Code: abi.ConfigInvalid, Exit: exitMisused}
	}
	if twins > 0 && f.first {
		r.say("%s    %s\n", r.palette(r.stdout).green("ok"), plural(twins, "no-grant twin"))
	}
	return nil
}
