package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A packReport is what plugin pack made.
type packReport struct {
	Format  int    `json:"format"`
	File    string `json:"file"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Bytes   int    `json:"bytes"`
}

func pluginPackCommand(e *env) *cobra.Command {
	var out, manifest string
	var asJSON bool
	c := &cobra.Command{
		Use: "pack FILE", Short: "Write a manifest into a module that was built elsewhere",
		Long: "Write into a module what it says of itself, asked in the sandbox without a grant,\nor a manifest from a file, and put it " +
			"through the checks that an upload meets. A plain\nExtism plugin gets its manifest from a file that maps exports to tools. FILE may be\nan Extism manifest, whose module is written to --out.",
		Example: "sandboxd plugin pack weather.wasm\nsandboxd plugin pack calc.wasm --manifest calc.yaml --out calc.packed.wasm",
		Args:    exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			return e.packPlugin(c.Context(), args[0], manifest, out, asJSON)
		},
	}
	c.Flags().StringVar(&out, "out", "", "write the module to `FILE`; default the same file")
	jsonFlag(c, &asJSON)
	manifestFlag(c, &manifest)
	groupFlags(c, "output", "out")
	return c
}

func (e *env) packPlugin(ctx context.Context, name, manifestName, out string, asJSON bool) error {
	if out == "" && name == "-" {
		return misuse("add --out FILE", "standard input is no file to write to")
	}
	wasm, err := e.readFile(name)
	if err != nil {
		return err
	}
	if out == "" && app.IsExtism(wasm) {
		return misuse("add --out FILE", "%s: an Extism manifest is no module to write into", name)
	}
	manifest, err := e.readManifest(manifestName)
	if err != nil {
		return err
	}
	engine, modules, err := e.modules(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	pack := modules.Pack
	if app.IsExtism(wasm) {
		pack = func(ctx context.Context, data []byte, manifest *abi.Manifest) ([]byte, error) {
			return modules.Import(ctx, e.path(name), data, manifest)
		}
	}
	packed, err := pack(ctx, wasm, manifest)
	if err != nil {
		return importError(name, wasm, err)
	}
	module, err := (&guestFile{name: name, wasm: packed}).load(ctx, modules)
	if err != nil {
		return err
	}
	for _, as := range declared(module.Manifest()) {
		if v := judge(ctx, module, as); !v.Accepted {
			return refusal(name, v)
		}
	}
	if out == "" {
		out = name
	}
	if err := e.writeFile(out, packed); err != nil {
		return err
	}
	r := packReport{Format: 1, File: out, Name: module.Manifest().Name, Version: module.Manifest().Version, Digest: module.Digest().String(), Bytes: len(packed)}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(r)
	}
	fmt.Fprintf(e.stdout, "%s  %s  %s\n", foreign(out, true), shortDigest(r.Digest), size(int64(r.Bytes)))
	return nil
}
