package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
)

// testEnv returns an env with its own folder and nothing of the process.
func testEnv(t *testing.T, terminal bool, args ...string) (e *env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cache := t.TempDir()
	return &env{args: args, stdin: input{strings.NewReader(""), terminal}, stdout: stream{stdout, terminal}, stderr: stream{stderr, terminal},
		getenv: func(string) string { return "" }, dir: t.TempDir(), cache: func() (string, error) { return cache, nil }, now: time.Now}, stdout, stderr
}

// TestEnvIsAll checks that a command sees the env it was given: its folder, its
// streams and no arguments of the process.
func TestEnvIsAll(t *testing.T) {
	e, stdout, stderr := testEnv(t, false, "audit", "verify", "a.log")
	log, err := audit.Open(filepath.Join(e.dir, "a.log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(t.Context(), audit.Record{Action: "test", Time: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), e); code != exitDone || stderr.Len() > 0 {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	if want := "the chain holds: 1 record, first 1970-01-01T00:00:00Z, last 1970-01-01T00:00:00Z, head sha256:"; !strings.HasPrefix(stdout.String(), want) {
		t.Errorf("stdout %q, want %q and more", stdout, want)
	}
	e, stdout, _ = testEnv(t, false)
	if code := run(t.Context(), e); code != exitMisused || stdout.Len() > 0 {
		t.Errorf("without arguments: exit %d, stdout %q", code, stdout)
	}
}

// TestResultAtTerminal checks that what a guest answers is escaped and shortened
// where a person reads it, and handed on as it is where a program does.
func TestResultAtTerminal(t *testing.T) {
	long := `{"text":"` + strings.Repeat("x", 3000) + `"}`
	for _, c := range []struct {
		name     string
		terminal bool
		args     []string
		data     string
		want     string
	}{
		{"terminal", true, nil, "{\"text\":\"\u202eevil\x1b[31m\"}", `{"text":"\u202eevil\u001b[31m"}` + "\n"},
		{"pipe", false, nil, "{\"text\":\"\u202eevil\x1b[31m\"}", "{\"text\":\"\u202eevil\x1b[31m\"}\n"},
		{"long at terminal", true, nil, long, long[:maxValue] + "… 1011 B more, --full\n"},
		{"long, full", true, []string{"--full"}, long, long + "\n"},
		{"long in pipe", false, nil, long, long + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, stdout, stderr := testEnv(t, c.terminal, append([]string{"plugin", "run", "m.wasm", "--export", "answer"}, c.args...)...)
			if err := os.WriteFile(filepath.Join(e.dir, "m.wasm"), module{export: "answer", data: c.data}.bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if code := run(t.Context(), e); code != exitDone {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			if stdout.String() != c.want {
				t.Errorf("stdout\n got %q\nwant %q", stdout, c.want)
			}
		})
	}
}

// TestCancelled checks that a command that is interrupted ends, and says so.
func TestCancelled(t *testing.T) {
	e, stdout, stderr := testEnv(t, false, "plugin", "run", "m.wasm", "--export", "answer")
	if err := os.WriteFile(filepath.Join(e.dir, "m.wasm"), wasmModules["spins"], 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, e); code != exitNotDone || stdout.Len() > 0 || !strings.Contains(stderr.String(), "[cancelled]") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestUnwritable checks that a module is written whole or not at all.
func TestUnwritable(t *testing.T) {
	e, _, stderr := testEnv(t, false, "plugin", "pack", "m.wasm", "--manifest", "m.json", "--out", filepath.Join("none", "out.wasm"))
	for name, data := range map[string]string{"m.wasm": string(wasmModules["answers"]),
		"m.json": `{"abi":1,"name":"calc","version":"1.0.0","tools":[{"name":"answer","export":"answer","raw":true}]}`} {
		if err := os.WriteFile(filepath.Join(e.dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code := run(t.Context(), e); code != exitMisused || !strings.Contains(stderr.String(), "none/out.wasm: no such file or directory") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	entries, err := os.ReadDir(e.dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d files, error %v, want the 2 that were there", len(entries), err)
	}
}
