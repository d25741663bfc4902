// Package clitest runs scripts of commands in tests, with testscript: beside copies of the example
// apps, without a network, and with one cache for all the scripts of a package.
package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/internal/regobuild"
)

// cache is the folder of Cache.
var cache string

// opaPath is where OPA is, if it is here.
var opaPath string

// Main runs the tests of a package, or the one of its commands that this process is. Scripts have
// these and opa.
func Main(m *testing.M, commands map[string]func()) {
	all := map[string]func(){"opa": opa}
	for name, f := range commands {
		all[name] = f
	}
	if all[filepath.Base(os.Args[0])] == nil { // those would find themselves on PATH
		opaPath = findOPA()
	}
	testscript.Main(withCache{m}, all)
}

type withCache struct{ *testing.M }

func (m withCache) Run() int {
	var err error
	if cache, err = os.MkdirTemp("", "sandboxd-cache-*"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(cache)
	return m.M.Run()
}

// Cache returns the folder that is the user's cache in all tests, so that a guest is built and
// compiled once. It lasts as long as Main.
func Cache() string { return cache }

// root returns the folder of this repository.
func root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	return filepath.Dir(strings.TrimSpace(string(out))), err
}

// Params returns how scripts are run. They have the commands edit and keep, and the condition
// [builds:LANGUAGE].
func Params(t *testing.T) testscript.Params {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(out))
	record := ""
	if *update {
		if record = "yes"; opaPath == "" {
			t.Fatalf("-update: no opa %s on PATH", regobuild.OPA)
		}
	}
	return testscript.Params{
		RequireExplicitExec: true,
		Setup: func(s *testscript.Env) error {
			for name, value := range map[string]string{
				"XDG_CACHE_HOME": cache, "HOME": cache, "GOCACHE": caches[0], "GOMODCACHE": caches[1],
				"GOPROXY": "off", "GOFLAGS": "", "GEMINI_API_KEY": "",
				realOPA: opaPath, recordOPA: record, recordings: filepath.Join(dir, "internal", "clitest", "testdata", "opa"),
			} {
				s.Setenv(name, value)
			}
			s.Setenv("PATH", s.Getenv("PATH")+string(os.PathListSeparator)+filepath.Dir(GoTool(t)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"edit": edit, "keep": keep},
		Condition: func(name string) (bool, error) {
			lang, ok := strings.CutPrefix(name, "builds:")
			if l := guestlang.Named(lang); ok && l != nil {
				return l.Missing(filepath.Join(dir, "sdk", "guest", lang)) == nil, nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
	}
}

// BesideExamples returns how scripts are run that find copies of the example apps, and the apps
// themselves below $EXAMPLES.
func BesideExamples(t *testing.T) testscript.Params {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	p := Params(t)
	setup, names := p.Setup, Examples(t)
	p.Setup = func(s *testscript.Env) error {
		for _, name := range names {
			if err := CopyExample(name, s.WorkDir); err != nil {
				return err
			}
		}
		s.Setenv("EXAMPLES", filepath.Join(dir, "examples"))
		return setup(s)
	}
	return p
}

// Examples returns the names of the example apps.
func Examples(t *testing.T) []string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "examples", "*", "agent.yaml"))
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for i, file := range files {
		files[i] = filepath.Base(filepath.Dir(file))
	}
	return files
}

// CopyExample copies an example app into a folder. Its plugins and servers stay
// where they are, in the module that they are part of.
func CopyExample(name, into string) error {
	dir, err := root()
	if err != nil {
		return err
	}
	from := filepath.Join(dir, "examples", name)
	to := filepath.Join(into, name)
	for _, dir := range []string{"files", "fixtures"} {
		if _, err := os.Stat(filepath.Join(from, dir)); err != nil {
			continue
		}
		if err := os.CopyFS(filepath.Join(to, dir), os.DirFS(filepath.Join(from, dir))); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(data), "source: ", "source: "+from+string(filepath.Separator))
		text = strings.ReplaceAll(text, "manifest: ", "manifest: "+from+string(filepath.Separator))
		text = strings.ReplaceAll(text, "module: plugins/", "module: "+from+"/plugins/")
		text = strings.ReplaceAll(text, "policy: policies/", "policy: "+from+"/policies/")
		text = strings.ReplaceAll(text, "[go, run, ./", fmt.Sprintf("[go, -C, %q, run, ./", from))
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), []byte(SlowMachine(text)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// SlowMachine gives the guards of an app the time that they need where tests run, on loaded machines.
func SlowMachine(app string) string {
	return strings.Replace(app, "dev:\n", "dev:\n  guard_wall: 20s # tests run on loaded machines\n", 1)
}

// edit FILE OLD NEW replaces a text that stands in the file once.
func edit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	data := ts.ReadFile(args[0])
	old, with := strings.ReplaceAll(args[1], `\n`, "\n"), strings.ReplaceAll(args[2], `\n`, "\n")
	if strings.Count(data, old) != 1 {
		ts.Fatalf("edit: %q stands in %s %d times", old, args[0], strings.Count(data, old))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(data, old, with, 1)), 0o644))
}

// keep NAME FILE PATTERN sets a variable to what the pattern's group matches in the
// file, or in stdout or stderr.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: keep NAME FILE PATTERN")
	}
	pattern, err := regexp.Compile(args[2])
	ts.Check(err)
	found := pattern.FindStringSubmatch(ts.ReadFile(args[1]))
	if len(found) != 2 {
		ts.Fatalf("keep: %s has nothing of %q", args[1], args[2])
	}
	ts.Setenv(args[0], found[1])
}

// GoTool returns where the go command is.
func GoTool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
