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
	var sdkOnly bool
	c := &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a guard that works",
		Long: "Make the folder NAME with the source of a policy in Go or Rego, what it needs to be\nbuilt, and a decision table of which one row waits for a rule to be " +
			"written. A folder\nthat is not empty is refused.",
		Example: "sandboxd policy new --lang go office\nsandboxd policy new --lang rego office-hours",
		Args:    exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case sdkOnly && lang == "go":
				return e.refreshSDK(args[0])
			case sdkOnly:
				return misuse("try --lang go", "--sdk-only: a policy in Rego has no copy of an SDK")
			case lang == "go":
				return e.newPolicy(args[0], goPolicy)
			case lang == "rego":
				return e.newPolicy(args[0], regoPolicy)
			}
			return misuse("try --lang go or --lang rego", "--lang %q: not a language that policies can be made in", lang)
		},
	}
	c.Flags().StringVar(&lang, "lang", "go", "`LANGUAGE` of the source: go or rego")
	c.Flags().BoolVar(&sdkOnly, "sdk-only", false, "replace the copy of the SDK in the folder NAME, and nothing else")
	return c
}

// A policyKind is a template of a policy.
type policyKind struct {
	language string
	dir      string // below template
	name     string // of the policy in the template
	files    []struct{ name, as string }
	rest     func(path, name string) error // writes what is not in the template
}

var goPolicy = policyKind{"Go", "policy-go", "office", []struct{ name, as string }{
	{"policy.go", "policy.go"}, {"README.md", "README.md"}, {"gitignore", ".gitignore"}, {"tests/office.table.yaml", "tests/NAME.table.yaml"},
}, newModule}

var regoPolicy = policyKind{"Rego", "rego", "office-hours", []struct{ name, as string }{
	{"policy.rego", "policy.rego"}, {"policy.yaml", "policy.yaml"}, {"tests/office-hours.table.yaml", "tests/NAME.table.yaml"},
}, func(path, _ string) error { return write(filepath.Join(path, "sandboxd.rego"), string(sdk.Rego)) }}

func (e *env) newPolicy(dir string, k policyKind) error {
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
	for _, file := range k.files {
		data, err := templates.ReadFile("template/" + k.dir + "/" + file.name)
		if err != nil {
			return err
		}
		text := strings.NewReplacer("name: "+k.name+"\n", "name: "+name+"\n", `Name: "`+k.name+`"`, `Name: "`+name+`"`,
			"# "+k.name+"\n", "# "+name+"\n", k.name+".wasm", name+".wasm").Replace(string(data))
		if err := write(filepath.Join(path, filepath.FromSlash(strings.Replace(file.as, "NAME", name, 1))), text); err != nil {
			return &fileError{dir, err}
		}
	}
	if err := k.rest(path, name); err != nil {
		return &fileError{dir, err}
	}
	fmt.Fprintf(e.stdout, "%s: created for %s\n\n  cd %s\n  sandboxd policy test     one row waits for a rule of yours\n  sandboxd policy build\n", name, k.language, dir)
	return nil
}
