package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/clitest"
)

func TestMain(m *testing.M) {
	host.Main()
	clitest.Main(m, map[string]func(){"sandboxd": main})
}

// TestScripts runs what users type, beside copies of the example apps.
func TestScripts(t *testing.T) {
	sdk, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	p := clitest.BesideExamples(t)
	p.Dir = filepath.Join("testdata", "script")
	p.Cmds["wasm"] = wasm
	setup := p.Setup
	p.Setup = func(s *testscript.Env) error {
		s.Setenv("EXTISM", filepath.Join(strings.TrimSpace(string(sdk)), "wasm")) // plugins of others
		for name, dir := range map[string]string{"KIT": "testdata/kit", "WORDS": "testdata/words", "HOOKS": "testdata/hooks", "KEEPER": "testdata/keeper", "QUOTA": "testdata/quota", "REGO": "../../internal/regobuild/testdata"} {
			abs, err := filepath.Abs(filepath.FromSlash(dir))
			if err != nil {
				return err
			}
			s.Setenv(name, abs)
		}
		return setup(s)
	}
	testscript.Run(t, p)
}
