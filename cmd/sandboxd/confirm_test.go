package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/clitest"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// askingApp makes a copy of the weather example that asks about every forecast and
// keeps its sessions, and lets the session demo ask once.
func askingApp(t *testing.T, place string) (work string, asked session.Question) {
	t.Helper()
	work = t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "    grants:\n", "    tools: {get_weather: {confirm: always}}\n    grants:\n")
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "dev:\n", "store: {sessions: sqlite}\ndev:\n")
	replies := "format: 1\nrules:\n  - reply:\n      - call: [{tool: get_weather, id: a, args: {place: " + place + "}}]\n      - say: it was answered\n      - say: hello to you\n"
	if err := os.WriteFile(filepath.Join(work, "weather", "replies.yaml"), []byte(replies), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := try(t, work, "", false, nil, "run", "--session", "demo", "weather", "ask")
	if code != exitNotDone || !strings.Contains(stderr, "waits for a person") {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	var all []session.Question
	inStore(t, work, func(s *sqlite.Store) (err error) {
		all, err = s.AppQuestions(t.Context(), "", "weather")
		return err
	})
	if len(all) != 1 || all[0].AskedBy != "ada" {
		t.Fatalf("questions %+v", all)
	}
	return work, all[0]
}

func inStore(t *testing.T, work string, f func(*sqlite.Store) error) {
	t.Helper()
	s, err := sqlite.Open(filepath.Join(work, "weather", ".sandboxd", "sessions.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := f(s); err != nil {
		t.Fatal(err)
	}
}

// TestConfirmAtATerminal: without a digest the call is shown and asked about, and
// only a yes approves it.
func TestConfirmAtATerminal(t *testing.T) {
	work, q := askingApp(t, "Oslo")
	for _, c := range []struct {
		input  string
		code   int
		stdout string
		says   string
	}{
		{"n\n", exitNotDone, "", "not approved"},
		{"", exitNotDone, "", "hint: it still waits; sandboxd confirm reject weather " + q.ID},
		{"true\n", exitNotDone, "", "not approved"},
		{"d\ny\n", exitDone, "it was answered\n", "  asked     2026-03-01T09:0"},
		{"y\n", exitNotDone, "", "[confirmation_decided]"},
	} {
		code, stdout, stderr := try(t, work, c.input, true, map[string]string{"USER": "ana"}, "confirm", "approve", "weather", q.ID)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.says) {
			t.Fatalf("%q: exit %d, want %d; stdout %q, want %q; stderr %q, want %q in it", c.input, code, c.code, stdout, c.stdout, stderr, c.says)
		}
	}
	_, shown, _ := try(t, work, "", false, nil, "confirm", "show", "weather", q.ID)
	if !strings.Contains(shown, "approved and run, by ana ") {
		t.Errorf("shown\n%s", shown)
	}
}

// TestConfirmTable: at a terminal the questions are a table.
func TestConfirmTable(t *testing.T) {
	work, q := askingApp(t, "Oslo")
	_, stdout, _ := try(t, work, "", true, nil, "confirm", "ls", "weather")
	if !strings.HasPrefix(stdout, "ID ") || !strings.Contains(stdout, "  ASKED BY  SESSION  QUESTION\n"+q.ID+"  ") || strings.Contains(stdout, "\t") {
		t.Errorf("table\n%s", stdout)
	}
	_, stdout, _ = try(t, work, "", true, nil, "audit", "search", "weather", "--action", "confirmation.asked")
	if !strings.HasPrefix(stdout, "TIME ") || !strings.Contains(stdout, "  confirmation.asked  "+q.ID+"  ") {
		t.Errorf("records\n%s", stdout)
	}
}

// TestConfirmShowsAll: what would hide a part of the arguments does not.
func TestConfirmShowsAll(t *testing.T) {
	work, q := askingApp(t, `"O\u202Eslo\u200B ![x](y.png) \e[2J end"`)
	const want = `"O\u202eslo\u200b ![x](y.png) \u001b[2J end"` // as JSON, with all that hides escaped
	for _, shown := range []string{"show", "approve"} {
		_, stdout, stderr := try(t, work, "d\nn\n", true, nil, "confirm", shown, "weather", q.ID)
		stderr = strings.ReplaceAll(stderr, "\r\x1b[K", "") // of the line that says for how long a module has been compiled
		if text := stdout + stderr; !strings.Contains(text, want) || !strings.Contains(text, "sha256:"+q.ArgsSHA256) || strings.ContainsAny(text, "\u202e\u200b\x1b") {
			t.Errorf("confirm %s:\n%q", shown, text)
		}
	}
	long := strings.Repeat("x", 10<<10) + "end"
	var out bytes.Buffer
	q.Args, q.Hint, q.Tool, q.Reason = json.RawMessage(`"`+long+`"`), long+"h", "t\u202e", "r\n  state     approved"
	(&env{}).printQuestion(&out, q, q.Asked)
	if text := out.String(); !strings.Contains(text, `"`+long+`"`) || !strings.Contains(text, long+"h\n") || strings.Count(text, "\n  state ") != 1 || strings.Contains(text, "\u202e") {
		t.Errorf("shown\n%q", text)
	}
	for _, answer := range []string{"y\n", "n\n"} {
		var asked bytes.Buffer
		r := &appRun{env: &env{stdin: typed(answer, true), stderr: stream{&asked, true}, progress: &progress{out: &asked, terminal: true}}, flags: &runFlags{}}
		yes, err := r.ask(q)
		if err != nil || yes != (answer == "y\n") {
			t.Errorf("answered %q: %t, %v", answer, yes, err)
		}
		args, _, answerable := strings.Cut(asked.String(), "[y]es")
		if !answerable || !strings.Contains(args, `"`+long+`"`) || !strings.Contains(args, long+"h  ") || strings.Contains(args, "--full") {
			t.Errorf("before an answer could be given it was shown\n%q", args)
		}
	}
}

// TestRunGoesOn: what was decided by a process that then ended is gone on with.
func TestRunGoesOn(t *testing.T) {
	for _, c := range []struct {
		name         string
		approve      bool
		terminal     bool
		message      []string
		stdout, says string
	}{
		{"approved", true, false, nil, "it was answered\n", ""},
		{"rejected", false, false, nil, "it was answered\n", ""},
		{"at a terminal", true, true, nil, "it was answered\n", "> "},
		{"before a message", true, false, []string{"hello"}, "it was answered\n", "waits for a person"},
	} {
		t.Run(c.name, func(t *testing.T) {
			work, q := askingApp(t, "Oslo")
			inStore(t, work, func(s *sqlite.Store) error {
				_, err := s.Decide(t.Context(), q.Session, q.ID, session.Decision{Approve: c.approve, By: "ana", Via: "confirm", At: q.Asked.Add(time.Second), ArgsSHA256: q.ArgsSHA256})
				return err
			})
			_, stdout, stderr := try(t, work, "", c.terminal, nil, append([]string{"run", "--session", "demo", "weather"}, c.message...)...)
			if stdout != c.stdout || !strings.Contains(stderr, c.says) {
				t.Errorf("stdout %q, want %q; stderr %q, want %q in it", stdout, c.stdout, stderr, c.says)
			}
			_, log, _ := try(t, work, "", false, nil, "audit", "search", "weather", "--action", "call.end", "--decision", "ran")
			if ran := strings.Count(log, "\tget_weather\t"); (ran == 1) != c.approve {
				t.Errorf("the call ran %d times:\n%s", ran, log)
			}
			_, log, _ = try(t, work, "", false, nil, "audit", "search", "weather", "--action", "confirmation.resumed")
			if strings.Count(log, "\n") != 1 {
				t.Errorf("audited\n%s", log)
			}
		})
	}
}

// TestFourEyesAtATerminal: whoever started a run is not asked about it; another
// person is.
func TestFourEyesAtATerminal(t *testing.T) {
	work, q := askingApp(t, "Oslo")
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "store:", "confirm: {four_eyes: true}\nstore:")
	code, stdout, stderr := try(t, work, "y\n", true, nil, "run", "--session", "demo", "weather", "ask again")
	if code != exitNotDone || strings.Contains(stderr, "[y]es") || !strings.Contains(stderr, ", by someone else\n") || stdout != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, stdout, stderr = try(t, work, "y\nn\n", true, map[string]string{"USER": "ana"}, "run", "--session", "demo", "weather")
	if code != exitDone || strings.Count(stderr, "[y]es") != 2 || stdout == "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	_, shown, _ := try(t, work, "", false, nil, "confirm", "show", "weather", q.ID)
	if !strings.Contains(shown, "approved and run, by ana ") || !strings.Contains(shown, "via run") {
		t.Errorf("shown\n%s", shown)
	}
}

// TestDecidersAtATerminal: whoever may not decide is not asked, neither by run nor by
// confirm approve, which refuses them; whoever may is.
func TestDecidersAtATerminal(t *testing.T) {
	work, q := askingApp(t, "Oslo")
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "store:", "confirm: {deciders: [role:approver, user:ana]}\nstore:")
	code, stdout, stderr := try(t, work, "y\n", true, nil, "run", "--session", "demo", "--role", "approver", "weather", "ask again")
	if code != exitNotDone || strings.Contains(stderr, "[y]es") || !strings.Contains(stderr, ", by role:approver or user:ana\n") || stdout != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, roles := range [][]string{nil, {"--as-role", "clerk"}} {
		code, _, stderr = try(t, work, "y\n", true, nil, append([]string{"confirm", "approve", "weather", q.ID}, roles...)...)
		if code != exitNotDone || strings.Contains(stderr, "[y]es") || !strings.Contains(stderr, ": ada may not decide [forbidden]\n") {
			t.Fatalf("%q: exit %d, stderr %q", roles, code, stderr)
		}
	}
	code, stdout, stderr = try(t, work, "y\nn\n", true, nil, "run", "--session", "demo", "--as-role", "approver", "weather")
	if code != exitDone || strings.Count(stderr, "[y]es") != 2 || stdout == "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	_, shown, _ := try(t, work, "", false, nil, "confirm", "show", "weather", q.ID)
	if !strings.Contains(shown, "approved and run, by ada ") || !strings.Contains(shown, "  roles     approver\n") {
		t.Errorf("shown\n%s", shown)
	}
}

func TestAge(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": -time.Second, "59s": 59*time.Second + 999, "1m": time.Minute, "59m": time.Hour - 1, "1h": time.Hour,
		"47h": 48*time.Hour - 1, "2d": 48 * time.Hour, "10d": 250 * time.Hour} {
		if got := age(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
