package policies

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxd/sandboxd/sdk"
)

// BuiltinDir is where [CopyBuiltin] puts the command that holds all first-party
// guards.
const BuiltinDir = "policies/builtin"

//go:embed */*.go changewindow/zoneinfo.zip
var sources embed.FS

// builtinMod and builtinSum are what the first-party guards need besides the SDK; the
// versions are those of this module.
const (
	builtinMod = "\nrequire golang.org/x/text v0.43.0\n"
	builtinSum = `golang.org/x/text v0.43.0 h1:1QivrlhwAsnMOcqgOdl9my7s9OyZl8O5/UGUTJVXoWc=
golang.org/x/text v0.43.0/go.mod h1:hbSIYA/amXcRXTFSZqh8tWHEoqRvvbKPJ2uz/KU+a+s=
`
)

// CopyBuiltin writes the sources of the first-party guards and of the SDK into dir, as
// a Go module whose command in [BuiltinDir] holds all guards. Building it needs
// golang.org/x/text, which Go has in its module cache wherever it has built this
// package's module, and else fetches. Files that are there are replaced.
func CopyBuiltin(dir string) error {
	if err := sdk.Copy(dir); err != nil {
		return err
	}
	write := func(name string, data []byte) error {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return fmt.Errorf("builtin copy: %w", err)
		}
		if err := os.WriteFile(file, data, 0o666); err != nil {
			return fmt.Errorf("builtin copy: %w", err)
		}
		return nil
	}
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		return write("policies/"+name, data)
	})
	if err != nil {
		return err
	}
	if err := write("go.mod", []byte(sdk.GoMod+builtinMod)); err != nil {
		return err
	}
	return write("go.sum", []byte(builtinSum))
}
