package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/sdk"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func policyNewCommand(e *env) *cobra.Command {
	var lang string
	c := &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a guard that works",
		Long: "Make the folder NAME with a policy in Rego, its manifest, and the rule that sandboxd\nasks. A folder that is not empty is refused. " +
			"A guard in Go is made like a plugin.",
		Example: "sandboxd policy new --lang rego office-hours",
		Args:    exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if lang != "rego" {
				return misuse("try --lang rego", "--lang %q: not a language that policies can be made in", lang)
			}
			return e.newPolicy(args[0])
		},
	}
	c.Flags().StringVar(&lang, "lang", "rego", "`LANGUAGE` of the source: rego")
	return c
}

func (e *env) newPolicy(dir string) error {
	path := e.path(dir)
	name := filepath.Base(path)
	if err := abi.ValidName(name); err != nil {
		return misuse("", "%s: %v", dir, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fileError{dir, err}
	}
	if len(entries) > 0 {
		return misuse("name a folder that does not exist yet", "%s: folder is not empty: it has %s", dir, entries[0].Name())
	}
	for _, file := range []string{"policy.rego", "policy.yaml"} {
		data, err := templates.ReadFile("template/rego/" + file)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(path, file), strings.Replace(string(data), "name: "+policyTemplate+"\n", "name: "+name+"\n", 1)); err != nil {
			return &fileError{dir, err}
		}
	}
	if err := write(filepath.Join(path, "sandboxd.rego"), string(sdk.Rego)); err != nil {
		return &fileError{dir, err}
	}
	fmt.Fprintf(e.stdout, "%s: created for Rego\n\n  cd %s\n  sandboxd policy build\n  sandboxd plugin inspect %s.wasm\n", name, dir, name)
	return nil
}

// policyTemplate is the name of the module in the template.
const policyTemplate = "office-hours"
