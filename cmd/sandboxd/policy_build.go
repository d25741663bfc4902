package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/internal/regobuild"
)

func policyBuildCommand(e *env) *cobra.Command {
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use: "build [DIR]", Short: "Build a policy from its source",
		Long: "Build the policy in DIR, the current folder if it is left out, and put it through the\nchecks that an upload meets. The file is NAME.wasm in DIR.\n\n" +
			"Source is built as plugin build does, but for policy.c, say, with the manifest in " + guestlang.PolicyManifest + ".\nA policy in Rego is compiled with opa from PATH or else with Go, which fetches opa\n" + regobuild.OPA +
			" once, linked to the contract of guards, and gets that manifest. Running it needs\nno opa.",
		Example: "sandboxd policy build\nsandboxd policy build --out amounts.wasm ./amounts",
		Args:    exactly("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return e.buildPolicy(c.Context(), dir, out, asJSON)
		},
	}
	c.Flags().StringVar(&out, "out", "", "write the module to `FILE`")
	jsonFlag(c, &asJSON)
	e.verboseFlag(c)
	groupFlags(c, "output", "out")
	return c
}

func (e *env) buildPolicy(ctx context.Context, dir, out string, asJSON bool) error {
	info, err := os.Stat(e.path(dir))
	switch {
	case err != nil:
		return &fileError{dir, err}
	case !info.IsDir() || !e.isSource(dir):
		return misuse("sandboxd policy new makes such a folder", "%s: no source of a policy", dir)
	}
	return e.buildPlugin(ctx, dir, "", out, false, asJSON, true)
}
