package meter

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// refused are the modules of the core suite that the engine accepts and we do not,
// with the reason.
var refused = map[string]string{
	"binary-leb128.81.wasm":        "has 2 bytes", // an opcode
	"call.0.wasm":                  "100 parameters exceed",
	"func.0.wasm":                  "16 results exceed",
	"skip-stack-guard-page.0.wasm": "locals in body",
	"table.6.wasm":                 "table entries exceed",
}

// suiteDir returns where the engine's module carries the suites.
func suiteDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
}

// The core suite of WebAssembly 2.0, which the engine's module carries: what the
// engine accepts is accepted by the decoder and, metered, by the engine; what it
// refuses stays refused.
func TestCoreSuite(t *testing.T) {
	root := filepath.Join(suiteDir(t), "v2")
	runtime := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { runtime.Close(t.Context()) })
	accepts := func(wasm []byte) error {
		compiled, err := runtime.CompileModule(t.Context(), wasm)
		if err == nil {
			compiled.Close(t.Context())
		}
		return err
	}
	accepted, met := 0, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".wasm" {
			return err
		}
		wasm, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		engine := accepts(wasm)
		m, ours := wasmbin.Decode(wasm)
		if ours == nil {
			var metered []byte
			if metered, ours = Rewrite(m); ours == nil {
				ours = accepts(metered)
			}
		}
		switch {
		case engine == nil && ours == nil:
			accepted++
		case engine == nil && refused[name] != "" && strings.Contains(ours.Error(), refused[name]):
			met[name] = true
		case (engine == nil) != (ours == nil):
			t.Errorf("%s: the engine says %v, the engine and we say %v", name, engine, ours)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if accepted < 1700 || len(met) != len(refused) {
		t.Errorf("%d modules were accepted, %d of %d refused as expected", accepted, len(met), len(refused))
	}
}
