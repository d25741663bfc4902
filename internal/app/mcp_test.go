package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// asServer makes the test binary an MCP server on its standard streams.
const asServer = "APP_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		fmt.Fprintln(os.Stderr, "serving")
		_ = newServer().Run(context.Background(), &sdk.StdioTransport{}) // ends with its input
		return
	}
	os.Exit(m.Run())
}

// newServer has the tools "where", which tells its variables and its folder, and
// "other".
func newServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	for _, name := range []string{"where", "other"} {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			vars := os.Environ()
			slices.Sort(vars)
			dir, err := os.Getwd()
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.Join(vars, " ") + " in " + filepath.Base(dir)}}}, err
		})
	}
	return s
}

// asks is an app whose model calls a tool and says what came of it.
const asks = `format: 1
name: x
model: {use: script, script: r.yaml}
agent: {name: a, toolsets: [s]}
`

const replies = `format: 1
rules:
  - when: {matches: 'call (\w+)'}
    reply:
      - call: [{tool: "where", id: it}]
      - either:
          - if_error: it
            say: "{{it.error}}"
          - say: "{{it.output}}"
`

// opened opens an app, and returns it with its folder.
func opened(t *testing.T, text, script string, o Options) (*Runtime, error) {
	t.Helper()
	dir := write(t, text)
	if err := os.WriteFile(filepath.Join(dir, "r.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.txt"), []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := Open(t.Context(), f, o)
	if err == nil {
		t.Cleanup(func() {
			if err := rt.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return rt, err
}

// said runs an app on a message and returns its texts and whether it asked.
func said(t *testing.T, rt *Runtime, session, text string) (string, bool) {
	t.Helper()
	key, err := rt.Session(t.Context(), "u", session)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for ev, err := range rt.Runner.Run(t.Context(), key, flow.Text(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Text() != "" {
			texts = append(texts, ev.Text())
		}
	}
	questions, err := rt.Store.Questions(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(texts, " / "), len(questions) > 0
}

// A server that is a process gets the variables it is given, in the app's folder.
func TestCommandServer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"TOKEN": "t0k", "SEEN": "yes", "UNSEEN": "no"}
	var log bytes.Buffer
	t.Cleanup(func() { // after the app is closed: the process has ended, and its log is whole
		if !strings.Contains(log.String(), "server=s line=serving") {
			t.Errorf("logged %q, want what the server wrote", log.String())
		}
	})
	rt, err := opened(t, asks+fmt.Sprintf(`mcp:
  - name: s
    command: [%q]
    env: {%s: "1", A: {env: TOKEN}, B: {file: c.txt}}
    inherit: [SEEN, NOT_SET]
    tools: [where]
`, self, asServer), replies, Options{Getenv: func(name string) string { return vars[name] }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := said(t, rt, "s-1", "call where")
	if want := "A=t0k APP_TEST_SERVER=1 B=from a file SEEN=yes in " + filepath.Base(rt.File.Dir()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A server at an address gets the headers; only tools of the list are offered, and
// a person is asked about those that are to be confirmed.
func TestAddressedServer(t *testing.T) {
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return newServer() }, nil)
	var refused int
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0k" || r.Header.Get("X-Plain") != "p" {
			refused++
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	o := Options{Getenv: func(name string) string { return map[string]string{"AUTH": "Bearer t0k"}[name] }}
	server := func(tools, more string) string {
		return asks + fmt.Sprintf("mcp:\n  - {name: s, url: %q, headers: {authorization: {env: AUTH}, X-Plain: p}, tools: %s%s}\n", web.URL, tools, more)
	}
	for _, c := range []struct {
		name, tools, more string
		want              string // in what is said
		asked             bool
	}{
		{"listed", "[where]", "", " in ", false},
		{"all", `["*"]`, "", " in ", false},
		{"not listed", "[other]", "", "tool 'where' not found", false},
		{"none", "[]", "", "tool 'where' not found", false},
		{"confirmed", "[where]", ", confirm: [where]", "", true},
		{"all confirmed", "[where]", `, confirm: ["*"]`, "", true},
		{"another confirmed", "[where, other]", ", confirm: [other]", " in ", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt, err := opened(t, server(c.tools, c.more), replies, o)
			if err != nil {
				t.Fatal(err)
			}
			got, asked := said(t, rt, "s-1", "call where")
			if !strings.Contains(got, c.want) || asked != c.asked {
				t.Errorf("said %q, asked %v; want %q in it, %v", got, asked, c.want, c.asked)
			}
		})
	}
	if refused > 0 {
		t.Errorf("%d requests came without their headers", refused)
	}
}

func TestServersThatCannotBe(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"variable", "{env: NOT_SET}", "mcp[0].env.A: variable NOT_SET is not set"},
		{"file", "{file: none.txt}", "mcp[0].env.A: open "},
		{"large file", "{file: big.txt}", "mcp[0].env.A: big.txt: 65537 bytes exceed 65536"},
	} {
		dir := write(t, asks+"mcp: [{name: s, command: [c], env: {A: "+c.value+"}, tools: []}]\n")
		for name, size := range map[string]int{"big.txt": 1<<16 + 1, "r.yaml": 0} {
			data := []byte(replies)
			if size > 0 {
				data = bytes.Repeat([]byte("x"), size)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), f, Options{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != abi.ConfigInvalid || !strings.Contains(e.Text, c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A long line of a server does not grow without bound.
func TestServerLog(t *testing.T) {
	var out bytes.Buffer
	l := &serverLog{name: "s", logger: slog.New(slog.NewTextHandler(&out, nil))}
	for _, part := range []string{"a", "b\n\nc\n", strings.Repeat("x", 4<<10+1), "\n"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "line=")
		lines = append(lines, text)
	}
	if want := []string{"ab", `""`, "c", strings.Repeat("x", 4<<10), "x"}; !slices.Equal(lines, want) {
		t.Errorf("logged %q", lines)
	}
}

// TestAgents: what the file says of an agent is what the flow gets.
func TestAgents(t *testing.T) {
	rt, err := opened(t, `format: 1
name: x
model: {use: script, script: r.yaml}
agent:
  name: a
  global_instruction: Be brief.
  instruction: {file: c.txt}
  generate: {temperature: 0.5, top_k: 3, seed: 0, max_output_tokens: 7, stop_sequences: [END]}
  include_contents: none
  tools: [exit_loop]
  toolsets: [s]
  agent_tools: [{agent: {name: expert, description: Knows., input_schema: {type: object}}, show_result: true}]
  examples: [{input: hello, output: [{say: hi}, {call: exit_loop, args: {}}]}]
  agents:
    - {name: b, mode: single_turn, include_contents: default, disallow_transfer_to_parent: true}
    - {name: c, mode: task, output_schema: {type: string}, disallow_transfer_to_peers: true}
mcp: [{name: s, command: [c], tools: []}]
compaction: {interval: 2}
`, replies, Options{})
	if err != nil {
		t.Fatal(err)
	}
	model, err := rt.model(t.Context(), "model", rt.File.Model, Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := rt.agent(t.Context(), "agent", &rt.File.Agent, model, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a.GlobalInstruction != "Be brief." || a.Instruction != "from a file\n" || a.IncludeContents != flow.IncludeNone {
		t.Errorf("got %+v", a)
	}
	g := a.GenerateConfig
	if *g.Temperature != 0.5 || *g.TopK != 3 || g.TopP != nil || *g.Seed != 0 || g.MaxOutputTokens != 7 || g.StopSequences[0] != "END" {
		t.Errorf("config %+v", g)
	}
	var tools []string
	for _, t := range a.Tools {
		tools = append(tools, t.Spec().Name)
	}
	if want := []string{"exit_loop", "expert", "example_tool"}; !slices.Equal(tools, want) || !a.Tools[1].Spec().ShowResult || a.Tools[1].Spec().Input == nil {
		t.Errorf("tools %v, want %v, the second with its schema and shown", tools, want)
	}
	if len(a.Toolsets) != 1 || a.Toolsets[0].Name() != "s" {
		t.Errorf("toolsets %v", a.Toolsets)
	}
	if b, c := a.Agents[0], a.Agents[1]; b.Mode != flow.SingleTurn || b.IncludeContents != flow.IncludeAll || !b.NoTransferToParent || b.NoTransferToPeers ||
		c.Mode != flow.Task || c.OutputSchema == nil || c.NoTransferToParent || !c.NoTransferToPeers {
		t.Errorf("agents %+v, %+v", b, c)
	}
}

// Gemini can be offered its own search, other models cannot.
func TestGoogleSearchIsGeminis(t *testing.T) {
	text := strings.Replace(least, "{name: a}", "{name: a, tools: [google_search]}", 1)
	if _, err := opened(t, text, replies, Options{}); err == nil || !strings.Contains(err.Error(), "google_search: only Gemini searches by itself") {
		t.Errorf("got %v", err)
	}
	rt, err := opened(t, strings.Replace(text, "{use: script, script: r.yaml}", "{use: gemini, name: gemini-x}", 1), replies,
		Options{Getenv: func(string) string { return "key" }})
	if err != nil || rt == nil {
		t.Errorf("got %v", err)
	}
}

// A memory tells what was said in the user's other sessions, and in no others.
func TestMemory(t *testing.T) {
	const text = `format: 1
name: x
model: {use: script, script: r.yaml}
agent: {name: a, tools: [load_memory]}
store: {sessions: sqlite}
memory: words
`
	rt, err := opened(t, text, "format: 1\nrules:\n  - when: {contains: which}\n    reply:\n      - call: [{tool: load_memory, id: it, args: {query: train}}]\n      - say: \"{{it}}\"\n  - reply: [{say: noted}]\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	said(t, rt, "s-1", "my train is the red one")
	said(t, rt, "s-2", "my train is late, but that is here")
	other := session.Key{App: "x", User: "v", ID: "s-1"}
	if _, err := rt.Store.Create(t.Context(), other, nil); err != nil {
		t.Fatal(err)
	}
	for _, err := range rt.Runner.Run(t.Context(), other, flow.Text("my train is secret")) {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, _ := said(t, rt, "s-2", "which?")
	if !strings.Contains(got, "red one") || strings.Contains(got, "late") || strings.Contains(got, "secret") {
		t.Errorf("remembered %s", got)
	}
	if _, err := opened(t, strings.Replace(text, "memory: words\n", "", 1), replies, Options{}); err == nil || !strings.Contains(err.Error(), "load_memory: the app has no memory") {
		t.Errorf("got %v", err)
	}
}

// Names that two offer to one agent are found before anything runs, with both who
// offer them.
func TestOffersOfOneName(t *testing.T) {
	for _, c := range []struct{ name, agent, want string }{
		{"an agent below and a server", "{name: a, toolsets: [s], agents: [{name: find, mode: task}]}", "agent.toolsets[0]: tool find: offered by agent find and MCP server s"},
		{"two servers", "{name: a, toolsets: [s, t]}", "agent.toolsets[1]: tool find: offered by MCP server s and MCP server t"},
		{"a server and an agent as a tool", "{name: a, toolsets: [s], agent_tools: [{agent: {name: find}}]}", "agent.toolsets[0]: tool find: offered by agent find and MCP server s"},
		{"a tool of sandboxd and a server", "{name: a, tools: [exit_loop], toolsets: [t]}", "agent.toolsets[0]: tool exit_loop: offered by sandboxd itself and MCP server t"},
		{"a tool of sandboxd and an agent", "{name: a, tools: [exit_loop], agents: [{name: exit_loop, mode: single_turn}]}",
			"agent.agents[0]: tool exit_loop: offered by sandboxd itself and agent exit_loop"},
		{"two agents as tools", "{name: a, agent_tools: [{agent: {name: b}}, {agent: {name: b}}]}", "agent.agent_tools[1]: tool b: offered by agent b and agent b"},
		{"further below", "{name: a, agents: [{name: b, toolsets: [s, t]}]}", "agent.agents[0].toolsets[1]: tool find: offered by MCP server s and MCP server t"},
		{"an agent that is no tool", "{name: a, toolsets: [s], agents: [{name: find}]}", ""},
		{"different agents", "{name: a, toolsets: [s], agents: [{name: b, toolsets: [t]}]}", ""},
		{"what is not known yet", "{name: a, toolsets: [s, all]}", ""},
	} {
		text := strings.Replace(least, "{name: a}", c.agent, 1) +
			"mcp: [{name: s, command: [c], tools: [find]}, {name: t, command: [c], tools: [find, exit_loop]}, {name: all, command: [c], tools: ['*']}]\n"
		_, err := opened(t, text, replies, Options{})
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != abi.VersionConflict || !strings.Contains(e.Text, c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
