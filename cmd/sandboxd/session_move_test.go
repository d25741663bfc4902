package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/internal/clitest"
)

// TestSessionMoves: what is exported, imported and exported again is the same,
// and a question that waits does so in the copy, too.
func TestSessionMoves(t *testing.T) {
	work := t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "    grants:\n", "    tools: {get_weather: {confirm: always}}\n    grants:\n")
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "dev:\n", "store: {sessions: sqlite}\ndev:\n")
	at := func(input string, terminal bool, args ...string) string {
		t.Helper()
		code, stdout, stderr := try(t, work, input, terminal, nil, args...)
		if code != exitDone && !strings.Contains(stderr, "waits for a person") {
			t.Fatalf("%q: exit %d, %s", args, code, stderr)
		}
		return stdout
	}
	at("n\n", true, "run", "--session", "demo", "weather", "Will it snow in Oslo tomorrow?")
	at("", false, "run", "--session", "demo", "weather", "Will it snow in Bergen tomorrow?")
	exported := at("", false, "session", "export", "weather", "demo")
	at(exported, false, "session", "import", "weather", "-", "--session", "copy")
	again := at("", false, "session", "export", "weather", "copy")
	if strings.Replace(again, `"id":"copy"`, `"id":"demo"`, 1) != exported {
		t.Errorf("exported\n%s\nimported and exported again\n%s", exported, again)
	}
	if table := at("", true, "session", "ls", "weather"); !strings.HasPrefix(table, "ID    UPDATED               EVENTS  WAITING\ncopy  2") ||
		strings.Count(table, "  1\n") != 2 {
		t.Errorf("one question waits in each, the answered one is not asked again; got\n%s", table)
	}
}
