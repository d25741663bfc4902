package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/regobuild"
)

// A policyReport is what policy build made.
type policyReport struct {
	Format  int    `json:"format"`
	File    string `json:"file"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Bytes   int    `json:"bytes"`
	OPA     string `json:"opa"`
	BuildUS int64  `json:"build_us"`
	CheckUS int64  `json:"check_us"` // pack, check and compile
}

func policyBuildCommand(e *env) *cobra.Command {
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use: "build [DIR]", Short: "Build a policy from its source",
		Long: "Build the policy in DIR, the current folder if it is left out, and put it through the\nchecks that an upload meets. The file is NAME.wasm in DIR.\n\n" +
			"Go source is built as plugin build does. A folder with " + regobuild.ManifestName + " is a policy in Rego: it\nis compiled with opa from PATH or else with Go, which fetches opa " + regobuild.OPA +
			" once, linked to\nthe contract of guards, and gets that manifest. Running it needs no opa.",
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
	groupFlags(c, "output", "out")
	return c
}

func (e *env) buildPolicy(ctx context.Context, dir, out string, asJSON bool) error {
	info, err := os.Stat(e.path(dir))
	switch {
	case err != nil:
		return &fileError{dir, err}
	case !info.IsDir() || !e.isSource(dir):
		return misuse("sandboxd policy new makes such a folder", "%s: not a folder with Go source or %s", dir, regobuild.ManifestName)
	case !regobuild.Is(e.path(dir)):
		return e.buildPlugin(ctx, dir, "", out, false, asJSON, true)
	}
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	start := time.Now()
	wasm, built, err := modules.BuildPolicy(ctx, e.path(dir))
	if err != nil {
		return moduleError(dir, wasm, err)
	}
	module, err := (&guestFile{name: dir, wasm: wasm}).load(ctx, engine)
	if err != nil {
		return err
	}
	if v := judge(ctx, module, asGuard); !v.Accepted {
		return refusal(dir, v)
	}
	if out == "" {
		out = filepath.Join(dir, module.Manifest().Name+".wasm")
	}
	if err := e.writeFile(out, wasm); err != nil {
		return err
	}
	check := time.Since(start) - built.Took
	r := policyReport{Format: 1, File: out, Name: module.Manifest().Name, Version: module.Manifest().Version, Digest: module.Digest().String(),
		Bytes: len(wasm), OPA: built.OPA, BuildUS: built.Took.Microseconds(), CheckUS: check.Microseconds()}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(r)
	}
	fmt.Fprintf(e.stdout, "%s  %s  %s  opa %s  build %s  check %s\n", foreign(out, true), shortDigest(r.Digest), size(int64(r.Bytes)),
		foreign(r.OPA, true), took(built.Took), took(check))
	return nil
}
