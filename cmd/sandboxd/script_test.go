package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/guestlang"
	"github.com/sandboxd/sandboxd/internal/regobuild"
)

// cacheDir is the cache of all tests, so that a guest is built and compiled once.
var cacheDir string

// opaPath is where OPA is, if it is here.
var opaPath string

func TestMain(m *testing.M) {
	host.Main()
	commands := map[string]func(){"sandboxd": main, "opa": opa}
	if commands[filepath.Base(os.Args[0])] == nil { // those would find themselves on PATH
		opaPath = findOPA()
	}
	testscript.Main(withCache{m}, commands)
}

type withCache struct{ *testing.M }

func (m withCache) Run() int {
	var err error
	if cacheDir, err = os.MkdirTemp("", "sandboxd-cache-*"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(cacheDir)
	return m.M.Run()
}

// TestScripts runs what users type, beside copies of the example apps.
func TestScripts(t *testing.T) {
	testscript.Run(t, besideExamples(t))
}

// TestExamples runs what each example app says is to be expected of it; an app without such a
// script fails.
func TestExamples(t *testing.T) {
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			p := besideExamples(t)
			p.Dir, p.Files = "", []string{filepath.Join("..", "..", "examples", name, "expect.txt")}
			testscript.Run(t, p)
		})
	}
}

// examples returns the names of the example apps.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "agent.yaml"))
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for i, file := range files {
		files[i] = filepath.Base(filepath.Dir(file))
	}
	return files
}

// besideExamples returns how scripts are run that find copies of the example apps.
func besideExamples(t *testing.T) testscript.Params {
	p := scripts(t)
	setup, names := p.Setup, examples(t)
	p.Setup = func(s *testscript.Env) error {
		for _, name := range names {
			if err := copyExample(name, s.WorkDir); err != nil {
				return err
			}
		}
		return setup(s)
	}
	return p
}

// scripts returns how scripts are run.
func scripts(t *testing.T) testscript.Params {
	shared := cacheDir
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
	sdk, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	return testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(s *testscript.Env) error {
			s.Setenv("XDG_CACHE_HOME", shared)
			s.Setenv("HOME", shared)
			s.Setenv("GOCACHE", caches[0])
			s.Setenv("GOMODCACHE", caches[1])
			s.Setenv("GOPROXY", "off")
			s.Setenv("GOFLAGS", "")
			s.Setenv("GEMINI_API_KEY", "")
			s.Setenv(realOPA, opaPath)
			s.Setenv(recordOPA, record)
			s.Setenv("EXTISM", filepath.Join(strings.TrimSpace(string(sdk)), "wasm")) // plugins of others
			for name, dir := range map[string]string{"KIT": "testdata/kit", "WORDS": "testdata/words", "HOOKS": "testdata/hooks", "KEEPER": "testdata/keeper", "QUOTA": "testdata/quota", recordings: "testdata/opa", "EXAMPLES": "../../examples", "REGO": "../../internal/regobuild/testdata"} {
				abs, err := filepath.Abs(filepath.FromSlash(dir))
				if err != nil {
					return err
				}
				s.Setenv(name, abs)
			}
			s.Setenv("PATH", s.Getenv("PATH")+string(os.PathListSeparator)+filepath.Dir(goTool(t)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"edit": edit, "keep": keep, "wasm": wasm},
		Condition: func(name string) (bool, error) {
			lang, ok := strings.CutPrefix(name, "builds:")
			if l := guestlang.Named(lang); ok && l != nil {
				return l.Missing(filepath.Join("..", "..", "sdk", "guest", lang)) == nil, nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
	}
}

// copyExample copies an example app into a folder. Its plugins and servers stay
// where they are, in the module that they are part of.
func copyExample(name, into string) error {
	from, err := filepath.Abs(filepath.Join("..", "..", "examples", name))
	if err != nil {
		return err
	}
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
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), []byte(slowMachine(text)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// slowMachine gives the guards of an app the time that they need where tests run, on loaded machines.
func slowMachine(app string) string {
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

func goTool(t *testing.T) string {
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
