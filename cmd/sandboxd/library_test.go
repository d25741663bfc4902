package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/clitest"
)

// TestRunLibrary: a person at a terminal lets the MCP server lend a book, or not;
// in this process or, if the app keeps sessions, in a later one.
func TestRunLibrary(t *testing.T) {
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(out))
	vars := map[string]string{"PATH": filepath.Dir(clitest.GoTool(t)), "HOME": t.TempDir(), "GOCACHE": caches[0], "GOMODCACHE": caches[1], "GOPROXY": "off"}
	work := t.TempDir()
	if err := clitest.CopyExample("library", work); err != nil {
		t.Fatal(err)
	}
	const yes, no = "Dune by Frank Herbert is yours for 28 days.\n", "The book stays here: "
	for _, c := range []struct{ answer, want string }{{"y\n", yes}, {"n\n", no}, {"", no}} {
		code, stdout, stderr := try(t, work, c.answer, true, vars, "run", "library", "Please lend me Dune")
		if code != exitDone || !strings.HasPrefix(stdout, c.want) {
			t.Errorf("%q: exit %d, stdout %q, want %q; stderr %s", c.answer, code, stdout, c.want, stderr)
		}
		if !strings.Contains(stderr, `args    {"id":"b-1"}`) {
			t.Errorf("the question does not show what was asked for: %s", stderr)
		}
	}
	replace(t, filepath.Join(work, "library", "agent.yaml"), "mcp:\n", "store: {sessions: sqlite}\nmcp:\n")
	if code, stdout, stderr := try(t, work, "", false, vars, "run", "--session", "s1", "library", "Please lend me Dune"); code != exitNotDone || stdout != "" {
		t.Fatalf("exit %d, stdout %q, stderr %s", code, stdout, stderr)
	}
	if code, stdout, stderr := try(t, work, "y\n", true, vars, "run", "--session", "s1", "library"); !strings.HasPrefix(stdout, yes) {
		t.Errorf("exit %d, stdout %q, want %q; stderr %s", code, stdout, yes, stderr)
	}
}
