package regobuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// unpacked returns a file of the fixture.
func unpacked(t *testing.T, name string) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, "testdata/probe.tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == name {
			data, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}

// TestLinked looks at what a linked guest has: a memory of its own, two exports, and
// of the host no more than it needs.
func TestLinked(t *testing.T) {
	policy := unpacked(t, "/policy.wasm")
	wasm, err := Link(policy, []byte(`{"networks":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Link(policy, []byte(` {"networks":[]} `)); err != nil || !bytes.Equal(wasm, again) {
		t.Errorf("linked again: error %v, the same bytes: %t", err, bytes.Equal(wasm, again))
	}
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	var imports, exports []string
	for _, i := range m.Imports {
		imports = append(imports, i.Module+" "+i.Name)
	}
	for _, x := range m.Exports {
		exports = append(exports, x.Name)
	}
	if want := []string{"sandboxd:host input_length", "sandboxd:host input_read", "sandboxd:host output_set", "wasi_snapshot_preview1 fd_write",
		"sandboxd:host rego_builtin", "sandboxd:host reply_read"}; !slices.Equal(imports, want) {
		t.Errorf("imports %q, want %q", imports, want)
	}
	if want := []string{"memory", "call", "warm_up"}; !slices.Equal(exports, want) || len(m.Memories) != 1 {
		t.Errorf("exports %q of %d memories, want %q of one", exports, len(m.Memories), want)
	}
	reply, err := ask(t, load(t, wasm), `{"do":"data","args":["10.0.0.1"]}`, patient)
	if err != nil || string(reply.Output) != `{"value":[]}` {
		t.Errorf("with other data: %v, %v", reply, err)
	}
}

// TestNotAPolicy checks that what OPA did not compile, or compiled otherwise, is
// refused, and that nothing a module holds makes Link panic.
func TestNotAPolicy(t *testing.T) {
	policy := unpacked(t, "/policy.wasm")
	swap := func(old, with string) []byte {
		if n := bytes.Count(policy, []byte(old)); n == 0 || len(old) != len(with) {
			t.Fatalf("%q is there %d times", old, n)
		}
		return bytes.ReplaceAll(policy, []byte(old), []byte(with))
	}
	linked, err := Link(policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		wasm []byte
		want string
	}{
		{"nothing", nil, "not a WebAssembly module"},
		{"an empty module", []byte("\x00asm\x01\x00\x00\x00"), "want one import of a memory"},
		{"a linked guest", linked, "want one import of a memory"},
		{"another module's import", swap("\x03env\x0copa_builtin0", "\x03abc\x0copa_builtin0"), "imports abc.opa_builtin0"},
		{"an unknown import", swap("opa_builtin4", "opa_builtin9"), "imports opa_builtin9 of the type"},
		{"no opa_eval", swap("\x08opa_eval\x00", "\x08opa_evil\x00"), `no export "opa_eval"`},
		{"another entry point", swap("guard/verdict\x00", "guard/verdicT\x00"), "want guard/verdict alone"},
		{"an unknown function", swap("time.weekday\x00", "opa.runtime \x00"), `calls ["opa.runtime "], which a guard may not`},
	} {
		wasm, err := Link(c.wasm, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || wasm != nil {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Link(swap("time.weekday\x00", "http.send1234"[:12]+"\x00"), nil); err == nil {
		t.Error("a function with another name was linked")
	} else if e, ok := errors.AsType[*BuiltinError](err); !ok || !slices.Equal(e.Names, []string{"http.send123"}) {
		t.Errorf("error %v, want a BuiltinError", err)
	}
	for at := 8; at < len(policy); at += len(policy) / 60 {
		broken := slices.Clone(policy)
		broken[at] ^= 1 << (at % 8)
		Link(broken, nil) // must not panic
	}
}

// TestBundles checks what is refused before there is a policy.
func TestBundles(t *testing.T) {
	pack := func(files ...string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for i := 0; i < len(files); i += 2 {
			if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1]))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, c := range []struct {
		name   string
		bundle []byte
		want   string
	}{
		{"nothing", nil, "bundle: EOF"},
		{"no policy", pack("/data.json", "{}"), "no /policy.wasm"},
		{"too much data", pack("/data.json", strings.Repeat(" ", maxData+1)), "/data.json of 4194305 bytes exceeds 4194304"},
		{"cut off", pack("/policy.wasm", "abc")[:60], "bundle: "},
		{"no module", pack("/policy.wasm", "abc", "/data.json", "{}"), "not a WebAssembly module"},
	} {
		if _, err := LinkBundle(c.bundle); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestOPAOfCI holds that CI compiles with the version that Build fetches.
func TestOPAOfCI(t *testing.T) {
	if mod := read(t, "../../.ci/opa/go.mod"); !bytes.Contains(mod, []byte("require github.com/open-policy-agent/opa "+OPA+"\n")) {
		t.Errorf(".ci/opa/go.mod does not require opa %s:\n%s", OPA, mod)
	}
}

// TestBuild runs a program in the place of opa, and looks at what it is asked and at
// what becomes of what it says: as opa on PATH, and where that is not there as the go
// command, which is to run the version that is pinned, for this machine.
func TestBuild(t *testing.T) {
	fixture, err := filepath.Abs("testdata/probe.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	opa := "case \"$1\" in\nversion) echo 'Version: 9.9.9'; echo more;;\nbuild) test -f broken && { echo 'policy.rego:3: rego_parse_error'; exit 1; }\necho \"$@\" >asked; while [ \"$1\" != --output ]; do shift; done; cp '" + fixture + "' \"$2\";;\nesac\n"
	t.Setenv("GOFLAGS", "-n")
	t.Setenv("GOOS", "plan9")
	for name, script := range map[string]string{
		"opa": opa,
		"go":  "test \"$1 $2 $GOOS$GOFLAGS$CGO_ENABLED\" = 'run github.com/open-policy-agent/opa@" + OPA + " 0' || { echo \"$@\"; exit 1; }\nshift 2\n" + opa,
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin)
			dir := t.TempDir()
			r, err := Build(t.Context(), dir)
			if err != nil || r.OPA != "9.9.9" || len(r.Wasm) == 0 {
				t.Fatalf("%+v, error %v", r.OPA, err)
			}
			asked := string(read(t, filepath.Join(dir, "asked")))
			if want := "build --target wasm --entrypoint guard/verdict --ignore *_test.rego --output "; !strings.HasPrefix(asked, want) || !strings.HasSuffix(asked, " --bundle .\n") {
				t.Errorf("opa was asked to %s, want %s", asked, want)
			}
			if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Build(t.Context(), dir)
			if e, ok := errors.AsType[*Error](err); !ok || e.Output != "policy.rego:3: rego_parse_error" || e.Dir != dir {
				t.Errorf("error %v, want what opa said", err)
			}
		})
	}
	t.Run("neither", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := Build(t.Context(), t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), ": install opa, or Go, which runs it") {
			t.Errorf("error %v, want what to install", err)
		}
	})
}
