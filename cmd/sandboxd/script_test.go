package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sandboxd": main})
}

// TestScripts runs what users type. The scripts share one cache, so that a guest
// is built and compiled once.
func TestScripts(t *testing.T) {
	shared := t.TempDir()
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(out))
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(s *testscript.Env) error {
			s.Setenv("XDG_CACHE_HOME", shared)
			s.Setenv("HOME", shared)
			s.Setenv("GOCACHE", caches[0])
			s.Setenv("GOMODCACHE", caches[1])
			s.Setenv("GOPROXY", "off")
			s.Setenv("GOFLAGS", "")
			s.Setenv("PATH", s.Getenv("PATH")+string(os.PathListSeparator)+filepath.Dir(goTool(t)))
			return nil
		},
	})
}

func goTool(t *testing.T) string {
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
