package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/internal/clitest"
)

// try runs a command as if it were typed at a terminal, or not at one.
func try(t *testing.T, dir, input string, terminal bool, vars map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	e := &env{
		args: args, stdin: typed(input, terminal), stdout: stream{&out, terminal}, stderr: stream{&errs, terminal},
		getenv: func(name string) string { return vars[name] }, dir: dir,
		cache: func() (string, error) { return clitest.Cache(), nil }, now: time.Now, user: func() (string, error) { return cmp.Or(vars["USER"], "ada"), nil },
	}
	code = run(t.Context(), e)
	return code, out.String(), errs.String()
}

func typed(s string, terminal bool) input { return input{strings.NewReader(s), terminal} }

// TestRunGemini: the model of an app is Gemini, spoken to over its own protocol.
func TestRunGemini(t *testing.T) {
	var asked []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Goog-Api-Key") != "k-123" {
			http.Error(w, `{"error":{"code":403,"message":"no key"}}`, http.StatusForbidden)
			return
		}
		var body map[string]any
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked = append(asked, body)
		w.Header().Set("Content-Type", "application/json")
		if len(asked) == 1 {
			fmt.Fprint(w, `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"get_weather","args":{"place":"Oslo"}}}]},"finishReason":"STOP"}]}`)
			return
		}
		contents, _ := json.Marshal(body["contents"])
		if !strings.Contains(string(contents), `"summary":"snow"`) {
			http.Error(w, `{"error":{"code":400,"message":"the tool's result is missing"}}`, http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"Snow, I hear."}]},"finishReason":"STOP"}]}`)
	}))
	defer server.Close()
	work := t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "  use: script # written replies: works offline, without a key\n  script: replies.yaml",
		"  use: gemini\n  name: gemini-x\n  base_url: "+server.URL)
	code, stdout, stderr := try(t, work, "", false, map[string]string{"GEMINI_API_KEY": "k-123"}, "run", "weather", "Snow in Oslo?")
	if code != exitDone || stdout != "Snow, I hear.\n" || stderr != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if len(asked) != 2 || asked[0]["tools"] == nil || asked[0]["systemInstruction"] == nil {
		t.Fatalf("the service was asked %d times: %v", len(asked), asked)
	}
	code, _, stderr = try(t, work, "", false, map[string]string{"GEMINI_API_KEY": "wrong"}, "run", "weather", "Snow in Oslo?")
	if code != exitNotDone || !strings.Contains(stderr, "403") || strings.Contains(stderr, "wrong") {
		t.Fatalf("exit %d, stderr %q: want the status and not the key", code, stderr)
	}
}

func replace(t *testing.T, file, old, with string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not hold %q", file, old)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), old, with, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRunAsks: a call that needs a person is asked about at a terminal, and ends
// the run elsewhere.
func TestRunAsks(t *testing.T) {
	const question = "Will it snow in Oslo tomorrow?"
	work := t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "    grants:\n", "    tools: {get_weather: {confirm: always}}\n    grants:\n")
	for _, c := range []struct {
		name, input  string
		terminal     bool
		args         []string
		code         int
		stdout, says string
	}{
		{"yes", "y\n", true, nil, exitDone, "Tomorrow in Oslo: snow, -3 to 2 °C.\n", `args    {"place":"Oslo"}  sha256:`},
		{"details, then yes", "d\nyes\n", true, nil, exitDone, "Tomorrow in Oslo: snow, -3 to 2 °C.\n", "module    sha256:"},
		{"no", "n\n", true, nil, exitDone, "I could not find out: error tool \"get_weather\" call is rejected\n", ""},
		{"the default is no", "\n", true, nil, exitDone, "I could not find out: error tool \"get_weather\" call is rejected\n", ""},
		{"end of input is no", "", true, nil, exitDone, "I could not find out: error tool \"get_weather\" call is rejected\n", ""},
		{"no terminal", "", false, nil, exitNotDone, "", "run waits for a person: cnf-"},
		{"no input wanted", "y\n", true, []string{"--no-input"}, exitNotDone, "", "[confirmation_pending]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := try(t, work, c.input, c.terminal, nil, append([]string{"run", "weather", question}, c.args...)...)
			if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.says) {
				t.Fatalf("exit %d, want %d; stdout %q, want %q; stderr %q, want %q in it", code, c.code, stdout, c.stdout, stderr, c.says)
			}
		})
	}
}

// TestRunAsksAboutOne: of two calls that are made together, the one that needs nobody
// runs at once, and the other when a person agrees, or never.
func TestRunAsksAboutOne(t *testing.T) {
	work := t.TempDir()
	if err := clitest.CopyExample("invoices", work); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ input, stdout string }{
		{"d\ny\n", "Paid INV-7 (412.60 EUR) and INV-8 (1250.00 EUR).\n"},
		{"n\n", "Paid INV-7 (412.60 EUR), and not INV-8: error tool \"pay_invoice\" call is rejected\n"},
	} {
		code, stdout, stderr := try(t, work, c.input, true, nil, "run", "--role", "clerk", "invoices", "Pay INV-7 and INV-8")
		if code != exitDone || stdout != c.stdout || strings.Count(stderr, "[y]es") != strings.Count(c.input, "\n") ||
			c.input[0] == 'd' && !strings.Contains(stderr, "\n  state     pending until 2026-03-02T09:") {
			t.Errorf("%q: exit %d, stdout %q, stderr %s", c.input, code, stdout, stderr)
		}
	}
}

// TestRunPrompt: without a message there is a prompt at a terminal, and the
// conversation is one session.
func TestRunPrompt(t *testing.T) {
	work := t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := try(t, work, "Will it snow in Oslo tomorrow?\n\nHow is the weather in Bergen?\n", true, nil, "run", "weather")
	if want := "Tomorrow in Oslo: snow, -3 to 2 °C.\nToday in Bergen: rain, 4 to 7 °C.\n"; code != exitDone || stdout != want {
		t.Fatalf("exit %d, stdout %q, want %q", code, stdout, want)
	}
}

// TestRunAnswersLater: a question of a stored session outlives the process that
// asked it, is asked again at a terminal, and is answered once.
func TestRunAnswersLater(t *testing.T) {
	const question = "Will it snow in Oslo tomorrow?"
	work := t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "    grants:\n", "    tools: {get_weather: {confirm: always}}\n    grants:\n")
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "dev:\n", "store: {sessions: sqlite, path: kept/s.db}\ndev:\n")
	const hint = "hint: sandboxd confirm approve weather cnf-"
	run := []string{"run", "--session", "demo", "--user", "ana", "weather"}
	for _, c := range []struct {
		name, input  string
		terminal     bool
		args         []string
		code         int
		stdout, says string
	}{
		{"no terminal", "", false, []string{question}, exitNotDone, "", hint},
		{"no terminal and no message", "", false, nil, exitNotDone, "", hint},
		{"answered", "d\ny\n", true, nil, exitDone, "Tomorrow in Oslo: snow, -3 to 2 °C.\n", "[y]es  [n]o  [d]etails  (no) "},
		{"nothing left to ask", "hello\n", true, nil, exitDone, "I know about the weather. Ask me whether it will snow in Oslo tomorrow.\n", "> "},
	} {
		code, stdout, stderr := try(t, work, c.input, c.terminal, nil, append(run, c.args...)...)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.says) {
			t.Fatalf("%s: exit %d, want %d; stdout %q, want %q; stderr %q, want %q in it", c.name, code, c.code, stdout, c.stdout, stderr, c.says)
		}
		if asks := strings.Contains(stderr, "[y]es"); asks != (c.name == "answered") {
			t.Errorf("%s: asked is %v: %s", c.name, asks, stderr)
		}
	}
	_, shown, _ := try(t, work, "", false, nil, "session", "show", "weather", "demo", "--user", "ana")
	if n := strings.Count(shown, "get_weather used"); n != 1 {
		t.Errorf("%d questions were used, want 1:\n%s", n, shown)
	}
}

// TestRunAnswersTwo: questions of two runs are answered in two messages, since no
// model takes answers to both in one.
func TestRunAnswersTwo(t *testing.T) {
	work := t.TempDir()
	if err := clitest.CopyExample("weather", work); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "    grants:\n", "    tools: {get_weather: {confirm: always}}\n    grants:\n")
	replace(t, filepath.Join(work, "weather", "agent.yaml"), "dev:\n", "store: {sessions: sqlite}\ndev:\n")
	replies := "format: 1\nrules:\n  - reply:\n      - call: [{tool: get_weather, id: a, args: {place: Oslo}}]\n      - say: first\n      - say: second\n      - say: third\n      - say: fourth\n"
	if err := os.WriteFile(filepath.Join(work, "weather", "replies.yaml"), []byte(replies), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if code, _, stderr := try(t, work, "", false, nil, "run", "--session", "demo", "weather", "ask"); code != exitNotDone || !strings.Contains(stderr, "waits for a person") {
			t.Fatalf("exit %d, %s", code, stderr)
		}
	}
	code, stdout, stderr := try(t, work, "y\nn\n", true, nil, "run", "--session", "demo", "weather")
	if code != exitDone || strings.Count(stdout, "\n") != 2 || strings.Count(stderr, "[y]es") != 2 {
		t.Fatalf("exit %d, stdout %q, stderr %s", code, stdout, stderr)
	}
	_, shown, _ := try(t, work, "", false, nil, "session", "show", "weather", "demo")
	if !strings.Contains(shown, "get_weather used") || !strings.Contains(shown, "get_weather rejected") {
		t.Errorf("the answers were not taken:\n%s", shown)
	}
}
