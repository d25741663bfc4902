package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/conformance/hostile"
)

// hostileFlags are the flags of conformance for a corpus of hostile modules.
type hostileFlags struct {
	modules string
	only    []string
	result  string // set in a child: run the one case here
}

func (f *hostileFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.modules, "modules", "", "PATH is a corpus of hostile modules, built into `OUT`")
	c.Flags().StringSliceVar(&f.only, "only", nil, "of a corpus, run the case `ID` alone; may be repeated")
	c.Flags().StringVar(&f.result, "result", "", "run a case in this process and write the `FILE`")
	if err := c.Flags().MarkHidden("result"); err != nil {
		panic(err)
	}
}

// hostile runs a corpus, each case in a child that is this program again.
func (e *env) hostile(c *cobra.Command, f *hostileFlags, args []string, asJSON bool) error {
	if len(args) != 1 {
		return misuse(c.CommandPath()+" --help", "%s --modules: one PATH, not %d", c.CommandPath(), len(args))
	}
	if f.modules == "" {
		return misuse("name the folder with --modules", "%s --only: needs a corpus", c.CommandPath())
	}
	corpus := hostile.Corpus{Dir: e.path(args[0]), Modules: e.path(f.modules)}
	if f.result != "" {
		difference, err := hostile.RunCase(c.Context(), corpus, strings.Join(f.only, ","))
		return hostile.WriteResult(f.result, difference, err)
	}
	self, err := e.self()
	if err != nil {
		return err
	}
	report, err := hostile.Run(c.Context(), corpus, hostile.Options{Only: f.only, Child: func(ctx context.Context, id, result string) *exec.Cmd {
		return exec.CommandContext(ctx, self, "conformance", corpus.Dir, "--modules", corpus.Modules, "--only", id, "--result", result)
	}})
	if err != nil {
		return &fileError{args[0], err}
	}
	write := report.WriteText
	if asJSON {
		write = report.WriteJSON
	}
	if err := write(e.stdout); err != nil {
		return err
	}
	if n := report.Failed(); n > 0 {
		return &commandError{What: fmt.Sprintf("conformance: %d of %d cases failed", n, len(report.Results)), Exit: exitNotDone}
	}
	return nil
}
