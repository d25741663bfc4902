// Package sdk holds the sources that a plugin written in Go is built with: package
// abi and the Go guest SDK. A copy beside the plugin is all that a build needs, so
// plugins build without a network and with the contract of the host that made the
// copy.
package sdk

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// ModulePath is the module that the sources belong to, here and in a copy.
const ModulePath = "github.com/sandboxd/sandboxd"

// Files holds the sources, below abi and guest/go, without tests.
//
// Every file is named: a pattern would take tests along.
//
//go:embed abi/code.go abi/doc.go abi/guard.go abi/hook.go abi/hostcall.go abi/json.go abi/manifest.go abi/parse.go
//go:embed guest/go/artifact.go guest/go/assign.go guest/go/call.go guest/go/content.go guest/go/decimal.go guest/go/doc.go
//go:embed guest/go/document.go guest/go/errors.go guest/go/guard.go guest/go/hooks.go guest/go/http.go guest/go/kv.go
//go:embed guest/go/members.go guest/go/plugin.go guest/go/question.go guest/go/reader.go guest/go/schema.go guest/go/tags.go guest/go/tool.go
//go:embed guest/go/wall_other.go guest/go/wall_wasip1.go
var Files embed.FS

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
	err := fs.WalkDir(Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := Files.ReadFile(name)
		if err != nil {
			return err
		}
		return write("sdk/"+name, data)
	})
	if err != nil {
		return err
	}
	return write("go.mod", []byte(GoMod))
}
