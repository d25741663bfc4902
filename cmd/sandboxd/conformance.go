package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/conformance"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

func conformanceCommand(e *env) *cobra.Command {
	var handlers string
	var asJSON bool
	h := &hostileFlags{}
	c := &cobra.Command{
		Use: "conformance PATH...", Short: "Run behaviour vectors, or a corpus of hostile modules",
		Long: "Run the vectors in each PATH, a file or a folder of them, and compare event for event\nwith what they record. Vectors that fail are named " +
			"with the first difference, and those\nthat show a documented deviation by name; the last line has the counts.\n\n" +
			"With --handlers wasm every tool, hook and callback of a vector runs as a guest, built\nwith the Go toolchain. With both a vector runs either way, and passes\nonly if it passes twice.\n\n" +
			"With --modules, PATH is a corpus of hostile modules: a folder with cases/ and modules/,\nwhose own generator built them into OUT. Each case runs in a process of its own, whose\nmemory and time are bounded.",
		Example: "sandboxd conformance testdata/conformance/vectors\nsandboxd conformance --handlers wasm vectors/tool_handler_error.json\nsandboxd conformance corpus --modules built --only recurse",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misuse(c.CommandPath()+" --help", "%s: PATH missing", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if h.modules != "" || len(h.only) > 0 {
				return e.hostile(c, h, args, asJSON)
			}
			if err := choice("handlers", handlers, string(conformance.ModeNative), string(conformance.ModeWasm), string(conformance.ModeBoth)); err != nil {
				return err
			}
			return e.conformance(c.Context(), args, conformance.Mode(handlers), asJSON)
		},
	}
	c.Flags().StringVar(&handlers, "handlers", string(conformance.ModeNative), "what handlers and hooks are made of: `KIND` is native, wasm or both")
	h.add(c)
	groupFlags(c, "input", "handlers", "modules", "only")
	jsonFlag(c, &asJSON)
	return c
}

// conformance runs the vectors in paths and prints how they did.
func (e *env) conformance(ctx context.Context, paths []string, mode conformance.Mode, asJSON bool) error {
	var vectors []*conformance.Vector
	for _, p := range paths {
		found, err := conformance.Load(e.path(p))
		if err != nil {
			return &fileError{p, err}
		}
		vectors = append(vectors, found...)
	}
	o := conformance.Options{Handlers: mode}
	if mode != conformance.ModeNative {
		builds, err := e.cacheDir("guestbuild")
		if err != nil {
			return err
		}
		code, err := e.cacheDir("code")
		if err != nil {
			return err
		}
		o.Build, o.Engine = guestbuild.Options{CacheDir: builds}, host.Config{Cache: code, Logger: e.logger(false)}
	}
	report, err := conformance.Run(ctx, vectors, o)
	if err != nil {
		return err
	}
	write := report.WriteText
	if asJSON {
		write = report.WriteJSON
	}
	if err := write(e.stdout); err != nil {
		return err
	}
	if n := report.Count(conformance.Failed); n > 0 {
		return &commandError{What: fmt.Sprintf("conformance: %d of %d vectors failed", n, len(vectors)), Exit: exitNotDone}
	}
	return nil
}
