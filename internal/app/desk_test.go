package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// desk is a whole app as its author would write it: every part of the file at once,
// what is not needed written as nothing.
const desk = `# Books trips, and asks before it pays for them.
format: 1
name: travel-desk
model:
  use: script
  script: r.yaml
agent:
  name: booker
  instruction: Find trips, book them when asked.
  tools: [find_trip, book_trip]
  output_schema: null
  agents: []
  limits: {steps: 12, parallel_calls: 4, wall: 120s}
plugins:
  - name: trips
    module: plugins/trips.wasm
    digest: sha256:00
    grants:
      - artifact read trips/*.json
      - http GET,POST rail.tickets.example/v1/*
      - secret use RAIL_TOKEN at rail.tickets.example
      - state read,write session:last_trip
    tools:
      book_trip: {confirm: always}
      find_trip: {grants: [artifact read trips/*.json], confirm: guards, as: find}
    limits: {wall: 2s, memory: 32MiB, fuel: 500M}
    config: {currency: EUR}
hooks: []
guards:
  - name: roles
    policy: builtin/role-access
    settings: {roles: {booker: ["*_trip"]}}
  - name: prices
    policy: builtin/amount-limit
    mode: monitor
    settings: {tool: book_trip, amount: /price, ask_from: "100", deny_from: "900"}
  - name: by-day-or-senior
    any_of:
      - {policy: builtin/change-window, settings: {zone: Europe/Oslo, tools: [book_trip], open: [{days: [mon, fri], from: "08:00", to: "16:00"}]}}
      - {policy: policies/senior.wasm, digest: "sha256:01"}
artifacts: {dir: files}
secrets: {RAIL_TOKEN: {env: RAIL_TOKEN}, OTHER: {file: other.txt}}
confirm: {expires: 24h, deciders: [role:approver], four_eyes: false}
store: {sessions: sqlite, path: data/desk.db, audit: data/audit.log}
ceiling: ["http GET,POST **.tickets.example", artifact read *, secret use * at **.tickets.example, "state read,write session:*"]
dev:
  replay: fixtures/http
  now: "2026-03-02T09:00:00Z"
`

// TestWholeApp: all that an app can say at once is read with its meaning.
func TestWholeApp(t *testing.T) {
	f, err := Load(write(t, desk))
	if err != nil {
		t.Fatal(err)
	}
	if l := f.limits(); l.Steps != 12 || l.Parallel != 4 || l.Wall != 2*time.Minute {
		t.Errorf("limits %+v", l)
	}
	if !f.Agent.OutputSchema.IsZero() || len(f.Agent.Agents) != 0 || len(f.Hooks) != 0 {
		t.Errorf("what is nothing is %+v, %v, %v", f.Agent.OutputSchema, f.Agent.Agents, f.Hooks)
	}
	p := f.Plugins[0]
	if p.Limits.Wall != Duration(2*time.Second) || p.Limits.Memory != 32<<20 || p.Limits.Fuel != 500e6 || p.Config["currency"] != "EUR" ||
		p.Tools["book_trip"].Confirm != "always" || p.Tools["find_trip"].As != "find" || len(p.Tools["find_trip"].Grants) != 1 {
		t.Errorf("plugin %+v", p)
	}
	granted, err := f.grants("plugins[0].grants", p.Grants)
	if err != nil {
		t.Fatal(err)
	}
	most, err := f.ceiling()
	if err != nil || len(f.Ceiling) != 4 {
		t.Fatalf("ceiling %v: %v", f.Ceiling, err)
	}
	for _, c := range granted.Capabilities() {
		if !most.Covers(c) {
			t.Errorf("%s is above the ceiling", c)
		}
	}
	if f.Guards[1].Mode != "monitor" || len(f.Guards[2].AnyOf) != 2 || f.Guards[2].AnyOf[1].Digest != "sha256:01" || !strings.Contains(string(f.Guards[1].Settings), `"ask_from":"100"`) {
		t.Errorf("guards %+v", f.Guards)
	}
	if f.Secrets["RAIL_TOKEN"].Env != "RAIL_TOKEN" || f.Secrets["OTHER"].File != "other.txt" || f.Artifacts.Dir != "files" {
		t.Errorf("secrets %v, artifacts %v", f.Secrets, f.Artifacts)
	}
	if f.SessionsPath() != f.path("data/desk.db") || f.AuditPath() != f.path("data/audit.log") || !f.KeepsSessions() {
		t.Errorf("kept in %s and %s", f.SessionsPath(), f.AuditPath())
	}
	if now, err := f.Now(); err != nil || now.Before(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)) || f.Dev.Replay != "fixtures/http" {
		t.Errorf("now %v, %v; replay %q", now, err, f.Dev.Replay)
	}
}

// What the file says of questions is what the runner goes by.
func TestConfirmIsWired(t *testing.T) {
	q := session.Question{ID: "q", Session: session.Key{User: "ada"}, AskedBy: "cid"}
	for _, c := range []struct {
		text, who string
		roles     []string
		may       bool
	}{
		{"", "cid", nil, true},
		{"confirm: {deciders: [role:a]}\n", "cid", nil, false},
		{"confirm: {deciders: [role:a]}\n", "cid", []string{"a"}, true},
		{"confirm: {deciders: ['user:cid']}\n", "cid", nil, true},
		{"confirm: {deciders: ['user:cid'], four_eyes: true}\n", "cid", nil, false},
	} {
		rt, err := opened(t, least+c.text, replies, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := rt.Runner.MayDecide(q, c.who, c.roles); got != c.may {
			t.Errorf("%q: %s with roles %v may decide: %t", c.text, c.who, c.roles, got)
		}
	}
}

// A schema stands in the file or in one beside it, and nothing is none.
func TestSchemaOfAnAnswer(t *testing.T) {
	for schema, want := range map[string]string{
		"null":            "none",
		"{required: [n]}": "n",
		"good.json":       "n",
		"false":           "",
		"none.json":       "agent.yaml:4: agent.output_schema: none.json: open ",
		"twice.json":      "agent.output_schema: twice.json: ",
		"bad.json":        "agent.output_schema: ",
		"'{\"type\": 1}'": "no such file",
	} {
		dir := write(t, strings.Replace(least, "{name: a}", "{name: a, output_schema: "+schema+"}", 1))
		for name, text := range map[string]string{"good.json": `{"required":["n"]}`, "twice.json": `{"type":"object","type":"array"}`, "bad.json": `{"pattern":"("}`} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.schema("agent.output_schema", f.Agent.OutputSchema)
		switch {
		case err != nil:
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != abi.ConfigInvalid || !strings.Contains(e.Text, want) || want == "" {
				t.Errorf("%s: %v, want %q", schema, err, want)
			}
		case s == nil:
			if want != "none" {
				t.Errorf("%s: none", schema)
			}
		case strings.Join(s.Required, ",") != want:
			t.Errorf("%s: requires %q, want %q", schema, s.Required, want)
		}
	}
}

// A line of a list in brackets that YAML cut at its comma is put together in the hint.
func TestCutAtCommas(t *testing.T) {
	_, err := opened(t, least+"ceiling: [artifact read *, http GET,POST,PUT **.tickets.example]\n", replies, Options{})
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != abi.CapabilityInvalid || !strings.HasSuffix(e.Hint, `quote it, "http GET,POST,PUT **.tickets.example"`) {
		t.Errorf("%v, %+v", err, e)
	}
	f, err := Load(write(t, least+"plugins: [{name: p, module: m, grants: [log, state read,write session:a]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.grants("plugins[0].grants", f.Plugins[0].Grants)
	if e, ok := errors.AsType[*Error](err); !ok || !strings.HasSuffix(e.Hint, `quote it, "state read,write session:a"`) {
		t.Errorf("%v, %+v", err, e)
	}
	_, err = f.grants("plugins[0].grants", []string{"log", "fetch", "log"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Hint != "sandboxd help grants" {
		t.Errorf("%v, %+v", err, e)
	}
	for _, lines := range [][]string{nil, {"http GET"}, {"http GET", "fetch"}, {"artifact read *", "state read session:a"}} {
		if whole := cutAtCommas(lines); whole != "" {
			t.Errorf("%q: put together as %q", lines, whole)
		}
	}
}
