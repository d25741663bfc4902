// Package sdk makes copies of the Go guest SDK, and holds the files of those for other
// languages. A copy beside the plugin is all that a build and its unit tests need, so
// plugins are built and tested without a network and with the contract of the host that
// made the copy.
package sdk

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxd/sandboxd"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// ModulePath is the module that the sources belong to, here and in a copy.
const ModulePath = "github.com/sandboxd/sandboxd"

// schemaPackage is how the fake host imports what checks schemas.
const schemaPackage = `"github.com/google/jsonschema-go/jsonschema"`

// C is the header that a guest in C has beside it.
//
//go:embed guest/c/sandboxd.h
var C []byte

// AssemblyScript is the file that a guest in AssemblyScript has beside it.
//
//go:embed guest/assemblyscript/sandboxd.ts
var AssemblyScript []byte

// Rust is the file that a guest in Rust has beside it.
//
//go:embed guest/rust/sandboxd.rs
var Rust []byte

// Rego is the file that a policy in Rego has beside its own: the rule that the host
// asks.
//
//go:embed guest/rego/sandboxd.rego
var Rego []byte

// GoMod is the go.mod of a copy. Its first line names the ABI version.
var GoMod = fmt.Sprintf("// The SDK of sandboxd, ABI version %d.\nmodule %s\n\ngo 1.26.0\n", abi.Version, ModulePath)

// Copy writes the sources into dir as a Go module. A plugin's go.mod names it so:
//
//	require github.com/sandboxd/sandboxd v0.0.0
//	replace github.com/sandboxd/sandboxd => ./sdk
//
// Files that are there are replaced; others stay.
func Copy(dir string) error {
	write := func(name string, data []byte) error {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return fmt.Errorf("sdk copy: %w", err)
		}
		if err := os.WriteFile(file, data, 0o666); err != nil {
			return fmt.Errorf("sdk copy: %w", err)
		}
		return nil
	}
	err := fs.WalkDir(sandboxd.Sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sandboxd.Sources.ReadFile(name)
		if err != nil {
			return err
		}
		// The module that checks schemas is a package of the copy.
		name = strings.Replace(name, "sdk/_jsonschema/", "sdk/jsonschema/", 1)
		text := strings.ReplaceAll(string(data), schemaPackage, `"`+ModulePath+`/sdk/jsonschema"`)
		return write(name, []byte(text))
	})
	if err != nil {
		return err
	}
	return write("go.mod", []byte(GoMod))
}
