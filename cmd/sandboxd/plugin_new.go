package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/sdk"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// templates are the files of a new plugin or policy, by language. Each is one that
// works, but for one row of a policy's table.
//
//go:embed template
var templates embed.FS

const templateName = "weather"

// templateFiles are the files of a template and what they are called in a plugin.
var templateFiles = []struct{ name, as string }{
	{"main.go", "main.go"}, {"README.md", "README.md"}, {"gitignore", ".gitignore"},
	{"tests/get_weather.test.json", "tests/get_weather.test.json"}, {"tests/http/oslo.json", "tests/http/oslo.json"}, {"tests/http/none.json", "tests/http/none.json"},
}

func pluginNewCommand(e *env) *cobra.Command {
	var lang string
	var sdkOnly bool
	c := &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a plugin that works",
		Long: "Make the folder NAME with the source of a plugin and a copy of the SDK. It builds\nwithout a network. " +
			"A folder that is not empty is refused.",
		Example: "sandboxd plugin new --lang go weather\nsandboxd plugin new --sdk-only weather",
		Args:    exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if lang != "go" {
				return misuse("try --lang go", "--lang %q: not a language that plugins can be made in", lang)
			}
			if sdkOnly {
				return e.refreshSDK(args[0])
			}
			return e.newPlugin(args[0])
		},
	}
	c.Flags().StringVar(&lang, "lang", "go", "`LANGUAGE` of the source: go")
	c.Flags().BoolVar(&sdkOnly, "sdk-only", false, "replace the copy of the SDK in the folder NAME, and nothing else")
	return c
}

func (e *env) newPlugin(dir string) error {
	name := filepath.Base(e.path(dir))
	if err := abi.ValidName(name); err != nil {
		return misuse("", "%s: %v", dir, err)
	}
	path := e.path(dir)
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fileError{dir, err}
	}
	if len(entries) > 0 {
		return misuse("name a folder that does not exist yet", "%s: folder is not empty: it has %s", dir, entries[0].Name())
	}
	for _, f := range templateFiles {
		data, err := templates.ReadFile("template/go/" + f.name)
		if err != nil {
			return err
		}
		text := strings.NewReplacer(`Name: "`+templateName+`"`, `Name: "`+name+`"`,
			"# "+templateName, "# "+name, templateName+".wasm", name+".wasm").Replace(string(data))
		if err := write(filepath.Join(path, filepath.FromSlash(f.as)), text); err != nil {
			return &fileError{dir, err}
		}
	}
	if err := newModule(path, name); err != nil {
		return &fileError{dir, err}
	}
	fmt.Fprintf(e.stdout, `%s: created for Go (SDK for ABI %d copied to %s, builds offline)

  cd %s
  sandboxd plugin test
  sandboxd plugin run get_weather --args '{"place":"Oslo"}' --grant 'http GET api.weather.example/v1/*' --replay tests/http/oslo.json
`, name, abi.Version, filepath.Join(dir, "sdk"), dir)
	return nil
}

// newModule makes a folder a Go module with a copy of the SDK.
func newModule(path, name string) error {
	goMod := fmt.Sprintf("module %s\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => ./sdk\n", name, sdk.ModulePath, sdk.ModulePath)
	if err := write(filepath.Join(path, "go.mod"), goMod); err != nil {
		return err
	}
	return sdk.Copy(filepath.Join(path, "sdk"))
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o666)
}

// refreshSDK replaces the copy of the SDK of the plugin in dir.
func (e *env) refreshSDK(dir string) error {
	path := filepath.Join(e.path(dir), "sdk")
	mod, err := os.ReadFile(filepath.Join(path, "go.mod"))
	if err != nil || !slices.Contains(strings.Split(string(mod), "\n"), "module "+sdk.ModulePath) {
		return misuse("name the folder of a plugin that plugin new made", "%s: no copy of the SDK", filepath.Join(dir, "sdk"))
	}
	// The new copy stands beside the old one until it is complete, and no file of
	// the old one stays.
	fresh, err := os.MkdirTemp(e.path(dir), ".sdk-*")
	if err != nil {
		return &fileError{dir, err}
	}
	defer os.RemoveAll(fresh) // in vain once it is renamed
	if err := os.Chmod(fresh, 0o755); err != nil {
		return &fileError{dir, err}
	}
	if err := sdk.Copy(fresh); err != nil {
		return &fileError{dir, err}
	}
	if err := os.RemoveAll(path); err != nil {
		return &fileError{dir, err}
	}
	if err := os.Rename(fresh, path); err != nil {
		return &fileError{dir, err}
	}
	fmt.Fprintf(e.stdout, "%s: SDK for ABI %d\n", filepath.Join(dir, "sdk"), abi.Version)
	return nil
}
