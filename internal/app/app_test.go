package app

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sqlite"
)

var update = flag.Bool("update", false, "rewrite docs/agent.schema.json")

const least = "format: 1\nname: x\nmodel: {use: script, script: r.yaml}\nagent: {name: a}\n"

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoadMistakes(t *testing.T) {
	for _, c := range []struct{ name, text, want, hint string }{
		{"empty", "", "agent.yaml: empty", ""},
		{"not YAML", "a: [", "agent.yaml: line 1", ""},
		{"a list", "- a", "agent.yaml:1: want an object, have a list", ""},
		{"second document", least + "---\na: 1", "a second document", ""},
		{"unknown key", least + "plugin: []\n", "agent.yaml:5: plugin: unknown key", "did you mean plugins?"},
		{"unknown key far from all", least + "zzzzzzzz: 1\n", "zzzzzzzz: unknown key", "known keys: format"},
		{"key twice", least + "hooks: []\nhooks: []\n", "already defined|hooks: there twice", ""},
		{"missing", "format: 1\nname: x\nagent: {name: a}\n", "agent.yaml:1: model: missing", ""},
		{"number for text", "format: 1\nname: 7\nmodel: {use: script, script: r.yaml}\nagent: {name: a}\n", "name: want text, have number 7", `quote it: "7"`},
		{"choice", strings.Replace(least, "use: script", "use: gpt", 1), `model.use: "gpt": want one of script, gemini`, ""},
		{"no script", strings.Replace(least, ", script: r.yaml", "", 1), "model: script is missing", "add script: replies.yaml"},
		{"script for gemini", strings.Replace(least, "use: script", "use: gemini, name: g", 1), "model.script: has no meaning for use: gemini", ""},
		{"format", strings.Replace(least, "format: 1", "format: 3", 1), "format: 3: want 1", "write format: 1"},
		{"name", strings.Replace(least, "name: x", "name: X", 1), `name: name "X": want a lower-case letter`, ""},
		{"reserved name", strings.Replace(least, "name: x", "name: adk_x", 1), `"adk_x": reserved`, ""},
		{"steps", least + "confirm: {expires: soon}\n", `confirm.expires: want a time span such as 2s, have text "soon"`, ""},
		{"decider of no kind", least + "confirm:\n  deciders:\n    - role:a\n    - approver\n", `agent.yaml:8: confirm.deciders[1]: "approver": want role:NAME or user:NAME`, ""},
		{"decider of another kind", least + "confirm: {deciders: ['group:a']}\n", `agent.yaml:5: confirm.deciders[0]: "group:a": want role:NAME or user:NAME`, ""},
		{"decider without a name", least + "confirm: {deciders: ['role:']}\n", `confirm.deciders[0]: "role:": name of 0 bytes: want 1 to 128`, ""},
		{"decider with a space", least + "confirm: {deciders: [role: a]}\n", "confirm.deciders[0]: want role:NAME or user:NAME, have an object", ""},
		{"nobody decides", least + "confirm:\n  deciders: []\n", "agent.yaml:6: confirm.deciders: an empty list: nobody could decide", "leave it out for anybody"},
		{"a decider, not a list", least + "confirm: {deciders: role:a}\n", "confirm.deciders: want a list, have text", ""},
		{"deciders of nothing", least + "confirm: {deciders: }\n", "confirm.deciders: want a list, have nothing", ""},
		{"negative span", least + "confirm: {expires: -2s}\n", "want a time span", ""},
		{"memory", least + "plugins: [{name: p, module: m, limits: {memory: much}}]\n", "plugins[0].limits.memory: want a size such as 32MiB", ""},
		{"no module", least + "plugins: [{name: p}]\n", "plugins[0]: want one of module and source", ""},
		{"module and source", least + "plugins: [{name: p, module: m, source: s}]\n", "plugins[0]: want one of module and source", ""},
		{"guard of a builtin policy", least + "guards: [{name: g, policy: builtin/read-only, guard: x}]\n", "guards[0].guard: policy names the guard", "leave it out"},
		{"digest of a source", least + "guards: [{name: g, source: s, digest: 'sha256:00'}]\n", "guards[0].digest: a source has no digest", ""},
		{"two plugins of one name", least + "plugins: [{name: p, module: m}, {name: p, module: n}]\n", `plugins[1].name: "p" is the name of two plugins`, ""},
		{"hook of nobody", least + "hooks: [p]\n", `hooks[0]: "p" is no plugin of this app`, ""},
		{"path of nothing", least + "store: {path: s.db}\n", "agent.yaml:5: store.path: has no meaning for sessions: memory", "add sessions: sqlite"},
		{"store", least + "store: {sessions: postgres}\n", `store.sessions: "postgres": want one of memory, sqlite`, ""},
		{"time", least + "dev: {now: yesterday}\n", `dev.now: "yesterday": want RFC 3339`, ""},
		{"secret from nowhere", least + "secrets: {A: {}}\n", "agent.yaml:5: secrets.A: want one of env and file", "write {env: A}"},
		{"secret from two places", least + "secrets: {A: {env: A, file: a}}\n", "secrets.A: want one of env and file", ""},
		{"secret in the file", least + "secrets: {A: hunter2hunter2}\n", "secrets.A: want an object", ""},
		{"fail open", least + "guards: [{name: g, policy: p, on_failure: allow}]\n", "guards[0].on_failure: unknown key", ""},
		{"alias", least + "plugins: [&p {name: p, module: m}, *p]\n", "want an object, have an alias", ""},
		{"settings with a number that is none in JSON", least + "guards: [{name: g, policy: p, settings: {a: 0x10}}]\n", `number "0x10" is not written as in JSON`, ""},
		{"agent below without a name", strings.Replace(least, "{name: a}", "{name: a, agents: [{type: loop}]}", 1), "agent.agents[0].name: missing", ""},
		{"agent of no type", strings.Replace(least, "{name: a}", "{name: a, type: graph}", 1), `agent.type: "graph": want one of sequential, parallel, loop`, ""},
		{"limits below", strings.Replace(least, "{name: a}", "{name: a, agents: [{name: b, limits: {steps: 1}}]}", 1),
			"agent.agents[0].limits: limits are those of the run", "move them to agent.limits"},
		{"model below", strings.Replace(least, "{name: a}", "{name: a, agents: [{name: b, model: {use: gemini}}]}", 1), "agent.agents[0].model: name is missing", ""},
		{"output schema", strings.Replace(least, "{name: a}", "{name: a, output_schema: {pattern: '('}}", 1), "agent.output_schema: ", ""},
		{"output schema of a number", strings.Replace(least, "{name: a}", "{name: a, output_schema: 3}", 1), "agent.output_schema: want a JSON Schema or the name of a file with one, have number 3", ""},
		{"output schema of no name", strings.Replace(least, "{name: a}", "{name: a, output_schema: ''}", 1), "agent.output_schema: want a JSON Schema or the name of a file with one, have text", ""},
		{"schema of a task", strings.Replace(least, "{name: a}", "{name: a, input_schema: {type: 3}}", 1), "agent.input_schema: ", ""},
		{"instruction for all below", strings.Replace(least, "{name: a}", "{name: a, agents: [{name: b, global_instruction: x}]}", 1),
			"agent.agents[0].global_instruction: is of the first agent", "move it to agent.global_instruction"},
		{"limits of an agent that is a tool", strings.Replace(least, "{name: a}", "{name: a, agent_tools: [{agent: {name: b, limits: {steps: 1}}}]}", 1),
			"agent.agent_tools[0].agent.limits: limits are those of the run", ""},
		{"mode", strings.Replace(least, "{name: a}", "{name: a, mode: talk}", 1), `agent.mode: "talk": want one of chat, task, single_turn`, ""},
		{"yes", strings.Replace(least, "{name: a}", "{name: a, disallow_transfer_to_parent: 1}", 1), "want true or false, have number 1", ""},
		{"temperature", strings.Replace(least, "{name: a}", "{name: a, generate: {temperature: -1}}", 1), "agent.generate: temperature: -1: want a number from 0", ""},
		{"temperature of a word", strings.Replace(least, "{name: a}", "{name: a, generate: {temperature: hot}}", 1), `agent.generate.temperature: want a number, written as in JSON, have text "hot"`, ""},
		{"seed", strings.Replace(least, "{name: a}", "{name: a, generate: {seed: 1.5}}", 1), "agent.generate: seed: 1.5: want a whole number", ""},
		{"example of nothing", strings.Replace(least, "{name: a}", "{name: a, examples: [{input: hi, output: []}]}", 1), "agent.examples[0]: output: empty", ""},
		{"example of two things", strings.Replace(least, "{name: a}", "{name: a, examples: [{input: hi, output: [{say: a, call: b}]}]}", 1), "agent.examples[0]: output[0]: want one of say and call", ""},
		{"example with arguments of nothing", strings.Replace(least, "{name: a}", "{name: a, examples: [{input: hi, output: [{say: a, args: {}}]}]}", 1), "output[0].args: there is no call", ""},
		{"example with a list of arguments", strings.Replace(least, "{name: a}", "{name: a, examples: [{input: hi, output: [{call: a, args: [1]}]}]}", 1), "output[0].args: want an object", ""},
		{"hook of an agent", strings.Replace(least, "{name: a}", "{name: a, agents: [{name: b, hooks: [p]}]}", 1), `agent.agents[0].hooks[0]: "p" is no plugin of this app`, ""},
		{"toolset of nobody", strings.Replace(least, "{name: a}", "{name: a, toolsets: [s]}", 1), `agent.toolsets[0]: "s" is no MCP server of this app`, "name one of mcp"},
		{"server without tools", least + "mcp: [{name: s, command: [c]}]\n", "mcp[0].tools: missing", ""},
		{"server of nothing", least + "mcp: [{name: s, tools: []}]\n", "mcp[0]: want one of command and url", ""},
		{"server of both", least + "mcp: [{name: s, command: [c], url: 'http://h', tools: []}]\n", "mcp[0]: want one of command and url", ""},
		{"server without a program", least + "mcp: [{name: s, command: [''], tools: []}]\n", "mcp[0].command[0]: empty", ""},
		{"variables of a url", least + "mcp: [{name: s, url: 'http://h', inherit: [PATH], tools: []}]\n", "env and inherit have no meaning for a url", ""},
		{"headers of a command", least + "mcp: [{name: s, command: [c], headers: {A: b}, tools: []}]\n", "mcp[0].headers: has no meaning for a command", ""},
		{"url with a password", least + "mcp: [{name: s, url: 'http://u:p@h', tools: []}]\n", "mcp[0].url: want an http or https address without a user", "headers"},
		{"url of a file", least + "mcp: [{name: s, url: 'file:///h', tools: []}]\n", "mcp[0].url: want an http or https address", ""},
		{"two servers of one name", least + "mcp: [{name: s, command: [c], tools: []}, {name: s, command: [c], tools: []}]\n", `mcp[1].name: "s" is the name of two servers`, ""},
		{"question about what is not offered", least + "mcp: [{name: s, command: [c], tools: [a], confirm: [b]}]\n", `mcp[0].confirm[0]: "b" is not offered`, "add it to tools"},
		{"value", least + "mcp: [{name: s, command: [c], env: {A: {var: B}}, tools: []}]\n", "mcp[0].env.A: want a text, {env: VARIABLE} or {file: NAME}, have an object", ""},
		{"memory of nothing", least + "memory: words\n", "memory: there are no stored sessions to search", "add store: {sessions: sqlite}"},
		{"compaction of nothing", least + "compaction: {overlap: 1}\n", "compaction: want an interval, a token_threshold or both", ""},
		{"compaction without an interval", least + "compaction: {overlap: 1, token_threshold: 9, retention: 1}\n", "compaction: overlap without an interval", ""},
		{"compaction that keeps nothing", least + "compaction: {token_threshold: 1}\n", "compaction: want token_threshold and retention", ""},
		{"instruction", strings.Replace(least, "{name: a}", "{name: a, instruction: [b]}", 1), "want a text or {file: NAME}, have a list", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(write(t, c.text))
			if err == nil {
				t.Fatalf("%s: no error", c.text)
			}
			found := false
			for part := range strings.SplitSeq(c.want, "|") {
				found = found || strings.Contains(err.Error(), part)
			}
			if !found {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Code != abi.ConfigInvalid && e.Code != abi.Usage {
				t.Fatalf("%v is no *Error with a code of a mistake", err)
			}
			if !strings.Contains(e.Hint, c.hint) {
				t.Fatalf("hint %q, want %q", e.Hint, c.hint)
			}
		})
	}
}

func TestLoadFindsAllMistakes(t *testing.T) {
	_, err := Load(write(t, "format: 1\nnme: x\nmodel: {use: x}\nagent: {name: 1}\n"))
	for _, want := range []string{"nme: unknown key", "model.use", "agent.name: want text", "name: missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestLoadNoApp(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "nowhere"), filepath.Join(write(t, least), FileName)} {
		_, err := Load(dir)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != abi.Usage || e.Hint == "" {
			t.Errorf("%s: got %v, want a usage error with a hint", dir, err)
		}
	}
}

const full = `format: 1
name: desk
model: {use: gemini, name: m, base_url: "http://127.0.0.1:1"}
agent:
  name: clerk
  description: A clerk.
  generate: {temperature: 0.20, top_p: 1, top_k: 40, max_output_tokens: 100, seed: 0, stop_sequences: [END]}
  instruction: {file: clerk.md}
  global_instruction: Be brief.
  include_contents: none
  tools: [a, b]
  toolsets: [notes, wiki]
  agent_tools:
    - agent: {name: expert, model: {use: script, script: expert.yaml}}
      skip_summarization: true
      show_result: true
  examples:
    - input: hello
      output: [{say: "3"}, {call: a, args: {n: 1}}]
  hooks: [p]
  output_key: out
  input_schema: task.json
  output_schema: {type: object, required: [n], properties: {n: {type: integer, maximum: 10}}}
  limits: {steps: 3, depth: 2, calls_per_step: 4, parallel_calls: 2, wall: 90s}
  agents:
    - name: line
      type: loop
      max_iterations: 2
      description: Works on it.
      agents:
        - name: worker
          mode: task
          disallow_transfer_to_parent: true
          disallow_transfer_to_peers: true
          model: {use: script, script: worker.yaml}
          tools: [exit_loop]
plugins:
  - name: p
    module: p.wasm
    digest: sha256:00
    grants: [log]
    tools: {a: {as: aa, grants: [], confirm: always, show_result: true}}
    limits: {wall: 2s, memory: 32MiB, host_calls: 5, output: 1KiB}
    config: {k: "1"}
mcp:
  - name: notes
    command: [go, run, ./server]
    env: {A: plain, B: {env: B}, C: {file: c.txt}}
    inherit: [PATH]
    tools: [add, list]
    confirm: [add]
  - name: wiki
    url: https://mcp.example/mcp
    headers: {Authorization: {env: WIKI}}
    tools: ["*"]
hooks: [p]
guards:
  - name: g
    policy: g.wasm
    guard: inner
    settings: {from: "1000", n: 1.50, l: [true, null]}
artifacts: {dir: files}
confirm: {expires: 1h, deciders: [role:approver, user:eva], four_eyes: true}
store: {sessions: sqlite, path: s.db, audit: a.log}
memory: words
compaction: {interval: 3, overlap: 1, token_threshold: 1000, retention: 5}
ceiling: [log]
dev: {replay: r, guard_wall: 1s, now: "2026-03-01T09:00:00Z"}
`

// TestFullFile: every key there is can be read, printed and read again.
func TestFullFile(t *testing.T) {
	f, err := Load(write(t, full))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Guards[0].Settings); got != `{"from":"1000","l":[true,null],"n":1.50}` {
		t.Errorf("settings %s: want the text of numbers kept", got)
	}
	if f.Plugins[0].Limits.Memory != 32<<20 || f.Agent.Instruction.File != "clerk.md" || f.Plugins[0].Tools["a"].Grants == nil ||
		!slices.Equal(f.Confirm.Deciders, []Decider{{Role: "approver"}, {User: "eva"}}) {
		t.Errorf("read %+v", f)
	}
	for _, g := range []*File{f, f.WithDefaults()} {
		out, err := yaml.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load(write(t, string(out)))
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		twice, err := yaml.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if string(twice) != string(out) {
			t.Errorf("printed\n%s\nread and printed again\n%s", out, twice)
		}
	}
}

func TestWithDefaults(t *testing.T) {
	f, err := Load(write(t, least+"plugins: [{name: p, module: m, grants: [log]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := f.WithDefaults()
	most := host.DefaultLimits(abi.KindTool)
	if d.Agent.Limits.Steps != 50 || Duration(most.Wall) != d.Plugins[0].Limits.Wall || d.Store.Audit != defaultAudit || d.Store.Sessions != "memory" || d.Store.Path != "" || len(d.Ceiling) != 1 {
		t.Errorf("got %+v", d)
	}
	if f.Plugins[0].Limits.Wall != 0 || f.Ceiling != nil {
		t.Error("the file itself was changed")
	}
}

// TestSchema: docs/agent.schema.json is the published copy, and it accepts what
// Load accepts.
func TestSchema(t *testing.T) {
	const path = "../../docs/agent.schema.json"
	if *update {
		if err := os.WriteFile(path, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(published) != string(Schema()) {
		t.Fatal("docs/agent.schema.json is not the schema of this code: go test ./internal/app -update")
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(published, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		var generic any
		if err := json.Unmarshal(data, &generic); err != nil {
			return err
		}
		return resolved.Validate(generic)
	}
	for _, good := range []string{least, full, desk} {
		if err := check(good); err != nil {
			t.Errorf("the schema refuses\n%s%v", good, err)
		}
	}
	for _, bad := range []string{least + "plugin: []\n", strings.Replace(least, "use: script", "use: gpt", 1), "format: 1\n",
		least + "guards: [{name: g, policy: p, on_failure: allow}]\n", least + "confirm: {deciders: []}\n", least + "confirm: {deciders: [approver]}\n", least + "confirm: {deciders: ['role:']}\n"} {
		if check(bad) == nil {
			t.Errorf("the schema accepts\n%s", bad)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"plugins", "hooks", "guards", "grants"}
	for word, want := range map[string]string{"plugin": "plugins", "grant": "grants", "gaurds": "guards", "hook": "hooks", "xyz": "", "": ""} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for word, want := range map[string]string{"gp": "go", "rs": "rust", "py": "", "x": "", "foo": "", "o": "go", "c++": "c", "": ""} { // short names are not near everything
		if got := Nearest(word, []string{"go", "c", "rust"}); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := write(t, least+"secrets: {A: {env: VAR}, B: {file: b.txt}}\n")
	getenv := func(name string) string { return map[string]string{"VAR": "first value", "SHORT": "1234567"}[name] }
	if err := os.WriteFile(filepath.Join(dir, "b.txt"), []byte("second value\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := f.secrets(getenv)
	if want, _ := host.NewSecrets(map[string]string{"A": "first value", "B": "second value"}); err != nil || !reflect.DeepEqual(made, want) {
		t.Errorf("made %v, %v", made, err)
	}
	for name, c := range map[string]struct {
		secret Secret
		getenv func(string) string
		want   string
	}{
		"no variable":       {Secret{Env: "NONE"}, getenv, "secret C: variable not set"},
		"no environment":    {Secret{Env: "VAR"}, nil, "secret C: variable not set"},
		"a value too short": {Secret{Env: "SHORT"}, getenv, "agent.yaml:5: secrets: secret C: value of 7 bytes"},
		"no file":           {Secret{File: "c.txt"}, getenv, "secret C: open "},
	} {
		f.Secrets = map[string]Secret{"C": c.secret}
		_, err := f.secrets(c.getenv)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != abi.ConfigInvalid || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	f.Secrets = map[string]Secret{"BANK_TOKEN": {Env: "VAR"}}
	if err := f.grantedSecrets("plugins[0].grants", []string{"log", "secret use BANK_TOKEN at a.example", "secret use * at a.example", "nonsense"}); err != nil {
		t.Error(err)
	}
	if err := f.grantedSecrets("plugins[0].grants", []string{"log", "secret  use TOKEN at a.example"}); err == nil || !strings.Contains(err.Error(), "plugins[0].grants[1]: the app has no secret TOKEN") {
		t.Errorf("a grant of a secret that is not there: %v", err)
	}
}

// A search reads the user's other sessions, those updated last, whatever their ids
// and in whatever zone their times are.
func TestSessionMemory(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	said := func(user, id, text string, minute int) session.Key {
		key := session.Key{App: "x", User: user, ID: id}
		if _, err := store.Create(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
		zone := time.FixedZone("", (minute%25-12)*3600)
		ev := &session.Event{ID: "e", Author: "user", Time: began.Add(time.Duration(minute) * time.Minute).In(zone),
			Response: session.Response{Content: genai.NewContentFromText(text, genai.RoleUser)}}
		if err := store.Append(t.Context(), key, ev); err != nil {
			t.Fatal(err)
		}
		return key
	}
	said("ada", "s999", "the oldest word", 0)
	for i := range maxRemembered - 1 {
		said("ada", fmt.Sprintf("s%03d", maxRemembered-i), fmt.Sprint("word ", i), i+1)
	}
	said("bob", "s000", "word of bob", 500)
	here := said("ada", "s000", "this word", 600)
	found, err := (&memory{store}).Search(t.Context(), here, "WORD")
	if err != nil || len(found) != maxRemembered-1 || found[0].Text() != "word 0" || found[len(found)-1].Text() != "word 98" {
		t.Errorf("found %d, first %+v, %v", len(found), found[0], err)
	}
	if found, err = (&memory{store}).Search(t.Context(), here, "nothing"); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
