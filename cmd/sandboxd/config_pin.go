package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
)

func configPinCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "pin APP", Short: "Write the digests of an app's modules into agent.yaml",
		Long: "Load every module that agent.yaml names, and write its digest beside it; a module with\nanother digest is refused from then on. Comments and order stay. What is " +
			"built from\nsource has no digest to write.",
		Example: "sandboxd config pin examples/weather\nsandboxd plugin inspect weather.wasm --diff weather-old.wasm",
		Args:    exactly("APP"),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := app.Load(e.path(args[0]))
			if err != nil {
				return err
			}
			engine, modules, err := e.modules(c.Context())
			if err != nil {
				return err
			}
			defer engine.Close()
			pins, text, err := file.Pin(c.Context(), modules)
			if err != nil {
				return err
			}
			if err := e.writeFile(filepath.Join(args[0], app.FileName), text); err != nil {
				return err
			}
			for _, p := range pins {
				switch {
				case p.File == "":
					fmt.Fprintf(e.stderr, "warning: %s: built from %s: build it, then name the module\n", p.What, foreign(p.Source, false))
				case p.Was == "":
					fmt.Fprintf(e.stdout, "pinned  %s  %s\n", p.What, shortDigest(p.Digest))
				case p.Was == p.Digest:
					fmt.Fprintf(e.stdout, "same    %s  %s\n", p.What, shortDigest(p.Digest))
				default:
					fmt.Fprintf(e.stdout, "changed %s  %s, was %s\n", p.What, shortDigest(p.Digest), shortDigest(p.Was))
				}
			}
			return nil
		},
	}
}
