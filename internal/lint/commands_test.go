package lint

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCommands asks the program itself about every command that a document
// shows.
func TestCommands(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sandboxd")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/sandboxd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	help := func(command ...string) (string, bool) {
		out, err := exec.Command(program, append(slices.Clone(command), "--help")...).CombinedOutput()
		usage := "sandboxd " + strings.Join(command, " ")
		return string(out), err == nil && strings.Contains(string(out), "Usage:\n  "+usage)
	}
	tree := repository(t)
	for _, f := range Commands(tree, help) {
		t.Error(f)
	}
	if _, ok := help("no-such-command"); ok {
		t.Error("help about a command that does not exist")
	}
}
