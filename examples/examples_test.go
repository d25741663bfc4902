// Package examples_test runs what the example apps, and the page of documentation that goes through
// them, say is to be expected.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxd/sandboxd/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, nil) }

// TestExamples runs what each example app says is to be expected of it; an app without such a
// script fails.
func TestExamples(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if out, err := exec.Command(clitest.GoTool(t), "build", "-o", bin, "../cmd/sandboxd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range clitest.Examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := clitest.BesideExamples(t)
			p.Files = []string{filepath.Join(name, "expect.txt")}
			setup := p.Setup
			p.Setup = func(s *testscript.Env) error {
				s.Setenv("PATH", bin+string(os.PathListSeparator)+s.Getenv("PATH"))
				return setup(s)
			}
			testscript.Run(t, p)
		})
	}
}
