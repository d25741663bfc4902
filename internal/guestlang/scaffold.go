package guestlang

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxd/sandboxd/sdk"
)

// templates are the files of a new plugin and a new policy, by language. Each is one
// that works, but for one row of a policy's table. A folder "both" has what both have.
//
//go:embed template
var templates embed.FS

// The names of what the templates hold.
const (
	templatePlugin = "weather"
	templatePolicy = "office"
)

// New writes the files of a new plugin or policy of that name into dir, which need not
// exist, and a copy of the SDK. It needs no network.
func (l *Language) New(dir, name string, policy bool) error {
	kind, was := "plugin", templatePlugin
	if policy {
		kind, was = "policy", templatePolicy
	}
	rename := strings.NewReplacer(`Name: "`+was+`"`, `Name: "`+name+`"`, "name: "+was+"\n", "name: "+name+"\n",
		"# "+was+"\n", "# "+name+"\n", was+".wasm", name+".wasm", `(t, "`+was+`"`, `(t, "`+name+`"`)
	for _, part := range []string{"both", kind} {
		root := path.Join("template", l.Name, part)
		err := fs.WalkDir(templates, root, func(file string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && part == "both" {
				return nil // they have nothing in common
			}
			if err != nil || d.IsDir() {
				return err
			}
			data, err := templates.ReadFile(file)
			if err != nil {
				return err
			}
			as := strings.Replace(strings.TrimPrefix(file, root+"/"), "NAME", name, 1)
			if as == "gitignore" {
				as = ".gitignore"
			}
			return write(filepath.Join(dir, filepath.FromSlash(as)), rename.Replace(string(data)))
		})
		if err != nil {
			return err
		}
	}
	if l.Name == "go" {
		goMod := fmt.Sprintf("module %s\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => ./sdk\n", name, sdk.ModulePath, sdk.ModulePath)
		if err := write(filepath.Join(dir, "go.mod"), goMod); err != nil {
			return err
		}
	}
	return l.copy(dir, l.SDK)
}

// Refresh replaces the copy of the SDK beside a source, and returns its name there. A
// copy is what New left, which names sandboxd in its first line; where there is none,
// it is an error that matches [fs.ErrNotExist].
func (s Source) Refresh() (string, error) {
	l := s.Language
	mark := filepath.Join(s.Dir, l.SDK)
	if l.Name == "go" {
		mark = filepath.Join(mark, "go.mod")
	}
	data, err := os.ReadFile(mark)
	if first, _, _ := strings.Cut(string(data), "\n"); err == nil && !strings.Contains(first, "sandboxd") {
		err = fs.ErrNotExist // something else of that name
	}
	if err != nil {
		return l.SDK, err
	}
	return l.SDK, l.copy(s.Dir, l.SDK)
}

func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o666)
}

// one copies an SDK that is one file.
func one(data []byte) func(dir, name string) error {
	return func(dir, name string) error { return write(filepath.Join(dir, name), string(data)) }
}

// copyGo copies the SDK for Go. The new copy stands beside an old one until it is
// complete, and no file of the old one stays.
func copyGo(dir, name string) error {
	to := filepath.Join(dir, name)
	fresh, err := os.MkdirTemp(dir, ".sdk-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // in vain once it is renamed
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	if err := sdk.Copy(fresh); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}
