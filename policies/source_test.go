package policies

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The copy builds where there is nothing but Go and its module cache, and names the
// versions that this module does.
func TestCopyBuiltin(t *testing.T) {
	dir := t.TempDir()
	if err := CopyBuiltin(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"../go.mod": strings.TrimPrefix(strings.TrimSpace(builtinMod), "require "), "../go.sum": builtinSum} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(want) {
			if !strings.Contains(string(data), strings.TrimSpace(line)) {
				t.Errorf("%s lacks %q", name, line)
			}
		}
	}
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Dir = filepath.Join(dir, filepath.FromSlash(BuiltinDir))
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off", "GOOS=wasip1", "GOARCH=wasm")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, pkg := range []string{"policies/changewindow", "policies/roleaccess", "sdk/guest/go"} {
		if !strings.Contains(string(out), pkg) {
			t.Errorf("the command does not need %s", pkg)
		}
	}
	if tests, _ := filepath.Glob(filepath.Join(dir, "policies", "*", "*_test.go")); tests != nil {
		t.Errorf("tests were copied: %v", tests)
	}
}
