package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxd/sandboxd/internal/clitest"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

// A till is an app whose only tool, about which a person is asked, is that of an MCP
// server in this process, so that its effects can be counted. All that is done with
// the app is done by processes.
type till struct {
	t    *testing.T
	work string
	q    session.Question // that it has asked
	paid atomic.Int64

	stop  atomic.Pointer[func(method string) bool] // whether the server is to hang in a call of a method; nil: never
	hangs chan struct{}                            // it does
}

func newTill(t *testing.T) *till {
	a := &till{t: t, work: t.TempDir(), hangs: make(chan struct{}, 1)}
	over := make(chan struct{})
	hang := func(method string) {
		if stop := a.stop.Load(); stop != nil && (*stop)(method) {
			a.hangs <- struct{}{}
			<-over
		}
	}
	server := sdk.NewServer(&sdk.Implementation{Name: "bank", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "pay", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		a.paid.Add(1)
		hang("the effect")
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "ok"}}}, nil
	})
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			hang(method)
			return next(ctx, method, req)
		}
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(func() { close(over); web.CloseClientConnections(); web.Close() })
	for name, text := range map[string]string{
		"agent.yaml": fmt.Sprintf("format: 1\nname: till\nmodel: {use: script, script: replies.yaml}\nagent: {name: clerk, toolsets: [bank]}\n"+
			"mcp:\n  - {name: bank, url: %q, tools: [pay], confirm: [pay]}\nstore: {sessions: sqlite}\ndev:\n  now: \"2026-03-01T09:00:00Z\"\n", web.URL),
		"replies.yaml": "format: 1\nrules:\n  - reply:\n      - call: [{tool: pay, id: it, args: {to: eve}}]\n      - either:\n" +
			"          - if_error: it\n            say: \"not told: {{it.error}}\"\n          - say: it is paid\n",
	} {
		if err := os.WriteFile(filepath.Join(a.work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if p := a.sandboxd("run", "--session", "demo", ".", "pay eve"); p.code != exitNotDone || !strings.Contains(p.stderr, "[confirmation_pending]") {
		t.Fatalf("asked: %+v", p)
	}
	a.q = a.question()
	return a
}

// A process is one that has ended.
type process struct {
	code           int
	stdout, stderr string
}

// command is the command as a process that has not begun.
func (a *till) command(args ...string) (cmd *exec.Cmd, ended func(error) process) {
	cmd = exec.CommandContext(a.t.Context(), "sandboxd", args...)
	cmd.Dir = a.work
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+clitest.Cache(), "HOME="+clitest.Cache())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, func(err error) process {
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			a.t.Errorf("%v: %v", args, err)
		}
		return process{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
}

func (a *till) sandboxd(args ...string) process {
	cmd, ended := a.command(args...)
	return ended(cmd.Run())
}

// question is the only one there is.
func (a *till) question() session.Question {
	store, err := sqlite.Open(filepath.Join(a.work, ".sandboxd", "sessions.db"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer store.Close()
	all, err := store.AppQuestions(a.t.Context(), "", "till")
	if err != nil || len(all) != 1 {
		a.t.Fatalf("questions %+v, %v", all, err)
	}
	return all[0]
}

// records counts the lines of a search in the audit log.
func (a *till) records(args ...string) int {
	return strings.Count(a.sandboxd(append([]string{"audit", "search", "."}, args...)...).stdout, "\n")
}

// TestDecidedByProcesses: of processes that decide about one question at the same
// time one wins, and goes on; the others say who has decided, and run nothing.
func TestDecidedByProcesses(t *testing.T) {
	a := newTill(t)
	const deciders = 10
	var wg sync.WaitGroup
	ended := make([]process, deciders)
	for i := range ended {
		args := []string{"confirm", "approve", ".", a.q.ID, "--as", fmt.Sprint("person", i), "--args-sha256", a.q.ArgsSHA256}
		if i%3 == 2 {
			args = []string{"confirm", "reject", ".", a.q.ID, "--as", fmt.Sprint("person", i)}
		}
		wg.Go(func() { ended[i] = a.sandboxd(args...) })
	}
	wg.Wait()
	winner := -1
	q := a.question()
	for i, p := range ended {
		if p.code == exitDone {
			if winner >= 0 {
				t.Errorf("persons %d and %d have both decided", winner, i)
			}
			winner = i
			continue
		}
		if says := "by " + q.By + " "; p.code != exitNotDone || p.stdout != "" || !strings.Contains(p.stderr, says) || !strings.Contains(p.stderr, "[confirmation_decided]\n") {
			t.Errorf("person %d: %+v, want exit %d and %q", i, p, exitNotDone, says)
		}
	}
	if winner < 0 || q.By != fmt.Sprint("person", winner) {
		t.Fatalf("person %d has won, and the question says %s: %+v", winner, q.By, ended)
	}
	want, state, answer := int64(1), "approved", "it is paid\n"
	if winner%3 == 2 {
		want, state, answer = 0, "rejected", "not told: error tool \"pay\" call is rejected\n"
	}
	if paid := a.paid.Load(); paid != want || ended[winner].stdout != answer {
		t.Errorf("%s: paid %d times, and told %q", state, paid, ended[winner].stdout)
	}
	if won, lost := a.records("--action", "confirmation."+state), a.records("--action", "confirmation.refused", "--code", "confirmation_decided"); won != 1 || lost != deciders-1 {
		t.Errorf("audited: %d decisions, %d refused ones", won, lost)
	}
	if p := a.sandboxd("audit", "verify", "."); p.code != exitDone {
		t.Errorf("audit log: %+v", p)
	}
}

// TestKilledProcess: after a process that approves was killed, the next one makes
// the call if it was not begun, and else says that its outcome is unknown. There is
// never a second effect.
func TestKilledProcess(t *testing.T) {
	for _, c := range []struct {
		name  string
		where func(a *till) func(method string) bool
		then  string // what the next process says
	}{
		{"between approval and call", func(a *till) func(string) bool {
			return func(string) bool { return a.question().State == session.Approved }
		}, "it is paid\n"},
		{"between effect and result", func(*till) func(string) bool {
			return func(method string) bool { return method == "the effect" }
		}, "not told: outcome_unknown: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTill(t)
			stop := c.where(a)
			a.stop.Store(&stop)
			cmd, ended := a.command("confirm", "approve", ".", a.q.ID, "--args-sha256", a.q.ArgsSHA256)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			dead := make(chan process)
			go func() { dead <- ended(cmd.Wait()) }()
			select {
			case <-a.hangs:
			case p := <-dead:
				t.Fatalf("it did not come that far: %+v", p)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if p := <-dead; p.code >= 0 || p.stdout != "" {
				t.Fatalf("it was not killed: %+v", p)
			}
			a.stop.Store(nil)
			replace(t, filepath.Join(a.work, "agent.yaml"), "09:00:00Z", "10:00:00Z") // nobody can still be making the call
			for i := range 2 {
				p := a.sandboxd("run", "--session", "demo", ".")
				if paid := a.paid.Load(); paid != 1 || i == 0 && !strings.HasPrefix(p.stdout, c.then) || i == 1 && p.stdout != "" {
					t.Errorf("process %d: paid %d times, %+v; want %q once", i+1, paid, p, c.then)
				}
			}
			if p := a.sandboxd("audit", "verify", "."); p.code != exitDone {
				t.Errorf("audit log: %+v", p)
			}
		})
	}
}
