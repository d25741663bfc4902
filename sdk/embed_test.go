package sdk

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd"
)

// TestSourcesAreComplete checks that the list of embedded files is the list of source
// files, so that a new file cannot be forgotten. Of package host they are those that build
// without the engine, which TestCopyIsTested shows.
func TestSourcesAreComplete(t *testing.T) {
	var want []string
	for _, pattern := range []string{"capability/*.go", "sdk/_jsonschema/*", "sdk/abi/*.go", "sdk/guest/go/*.go", "sdk/guest/go/internal/native/*.go", "sdk/guest/go/guesttest/*.go"} {
		files, err := filepath.Glob("../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				want = append(want, strings.TrimPrefix(filepath.ToSlash(f), "../"))
			}
		}
	}
	var got []string
	if err := fs.WalkDir(sandboxd.Sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(name, "host/") {
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

// TestSchemaModuleIsTheRealOne compares the copy of the module that checks schemas with
// the one that this module requires.
func TestSchemaModuleIsTheRealOne(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	files, err := filepath.Glob(filepath.Join(dir, "jsonschema", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, filepath.Join(dir, "LICENSE"))
	seen := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("_jsonschema", filepath.Base(file))); err != nil || string(got) != string(want) {
			t.Errorf("sdk/_jsonschema/%s is not what go.mod requires, copy it anew: %v", filepath.Base(file), err)
		}
		seen++
	}
	if have, err := filepath.Glob("_jsonschema/*"); err != nil || len(have) != seen {
		t.Errorf("sdk/_jsonschema has %d files, the module %d, error %v", len(have), seen, err)
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
	for _, name := range []string{"sdk/jsonschema/LICENSE", "sdk/jsonschema/validate.go", "host/native.go", "capability/set.go", "sdk/guest/go/guesttest/host.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || string(got) != GoMod {
		t.Errorf("go.mod is %q, error %v", got, err)
	}
	if err := Copy(filepath.Join(dir, "go.mod")); err == nil || !strings.Contains(err.Error(), "sdk copy") {
		t.Errorf("copy into a file: error %v", err)
	}
}

// TestCopyIsTested builds a plugin beside a copy, natively, and runs a unit test of it on
// the fake host, as an author does: without a network, and with nothing but the copy.
func TestCopyIsTested(t *testing.T) {
	dir := t.TempDir()
	if err := Copy(filepath.Join(dir, "sdk")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module hello\n\ngo 1.26.0\n\nrequire " + ModulePath + " v0.0.0\n\nreplace " + ModulePath + " => ./sdk\n",
		"main.go": `package main

import guest "github.com/sandboxd/sandboxd/sdk/guest/go"

func init() {
	guest.Serve(guest.Plugin{Name: "hello", Version: "1.0.0", Requests: []string{"state read user:*"}, Exports: []guest.Export{
		guest.Tool[struct {
			Name string ` + "`json:\"name\" max:\"3\"`" + `
		}, string]{Name: "greet", Handle: func(c *guest.Call, in struct {
			Name string ` + "`json:\"name\" max:\"3\"`" + `
		}) (string, error) {
			var word string
			_, err := c.Get("user:word", &word)
			return word + " " + in.Name, err
		}}}})
}

func main() {}
`,
		"main_test.go": `package main

import (
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

func TestGreet(t *testing.T) {
	host := guesttest.Host{Grants: []string{"state read user:word"}, State: map[string]string{"user:word": "\"ciao\""}}
	if got := host.Tool(t, "greet", "{\"name\":\"Ida\"}"); got.Code != abi.OK || string(got.Value) != "\"ciao Ida\"" {
		t.Errorf("got %+v", got)
	}
	if got := host.Tool(t, "greet", "{\"name\":\"Anna\"}"); got.Code != abi.ArgsInvalid {
		t.Errorf("a long name: got %+v", got)
	}
	host.Grants = nil
	if got := host.Tool(t, "greet", "{\"name\":\"Ida\"}"); got.Code != abi.GuestError || len(got.Denied) != 1 || got.Denied[0] != "state read user:word" {
		t.Errorf("no grant: got %+v", got)
	}
}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"vet", "./...", ModulePath + "/host", ModulePath + "/sdk/jsonschema"}, {"test", "-count=1", "-v", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil || args[0] == "test" && !strings.Contains(string(out), "--- PASS: TestGreet") {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
