package sdk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesAreTheSources checks that the list of embedded files is the list of
// source files, so that a new file cannot be forgotten.
func TestFilesAreTheSources(t *testing.T) {
	var want []string
	for _, pattern := range []string{"abi/*.go", "guest/go/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				want = append(want, filepath.ToSlash(f))
			}
		}
	}
	var got []string
	if err := fs.WalkDir(Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("embedded %v\nsources  %v", got, want)
	}
}

// TestModulePath checks the constant against the go.mod that these sources have.
func TestModulePath(t *testing.T) {
	data, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod := string(data)
	if !strings.HasPrefix(mod, "module "+ModulePath+"\n") {
		t.Errorf("go.mod is not that of %s", ModulePath)
	}
	_, version, _ := strings.Cut(mod, "\ngo ")
	version, _, _ = strings.Cut(version, "\n")
	if want := "// The SDK of sandboxd, ABI version 1.\nmodule " + ModulePath + "\n\ngo " + version + "\n"; GoMod != want {
		t.Errorf("a copy's go.mod is\n%s\nwant\n%s", GoMod, want)
	}
}

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "sdk", "abi", "json.go")
	if err := os.MkdirAll(filepath.Dir(stale), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Copy(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"abi/json.go", "guest/go/plugin.go"} {
		got, err := os.ReadFile(filepath.Join(dir, "sdk", name))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what it was copied from: %v", name, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || string(got) != GoMod {
		t.Errorf("go.mod is %q, error %v", got, err)
	}
	if err := Copy(filepath.Join(dir, "go.mod")); err == nil || !strings.Contains(err.Error(), "sdk copy") {
		t.Errorf("copy into a file: error %v", err)
	}
}
