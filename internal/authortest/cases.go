package authortest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Cases are tests of a plugin: calls of its tools, and how each is to end. They are
// not changed by running, and safe for concurrent use.
type Cases struct {
	File   string // as named
	Module string // a file or a folder of source, relative to the folder of File; empty: the folder that is tested

	cases []toolCase
}

// Len returns how many cases there are.
func (c *Cases) Len() int { return len(c.cases) }

// Files returns the files that running the cases reads, other than that of the cases and
// the module, and those that it reads or writes, which are snapshots; each once, as named:
// relative to the folder of File.
func (c *Cases) Files() (reads, writes []string) {
	for _, t := range c.cases {
		if t.http != "" {
			reads = append(reads, t.http)
		}
		reads = slices.AppendSeq(reads, maps.Values(t.artifacts))
		reads = slices.AppendSeq(reads, maps.Values(t.want.artifacts))
		if t.want.snapshot != "" {
			writes = append(writes, t.want.snapshot)
		}
	}
	slices.Sort(reads)
	slices.Sort(writes)
	return slices.Compact(reads), slices.Compact(writes)
}

// A toolCase is one call.
type toolCase struct {
	name string
	line int
	tool string
	args map[string]any
	raw  *string // args_text

	http      string // a cassette, relative to the file; empty: there is no network
	grants    capability.Set
	now       time.Time
	seed      []byte
	state     map[string]json.RawMessage // keys as grants spell them
	kv        *storage
	artifacts map[string]string // name to file
	secrets   map[string]string
	config    map[string]string
	limits    host.Limits
	want      outcome
}

// An outcome is how a call is to end. What is not there is not compared, except for
// denied.
type outcome struct {
	result    any // generic JSON
	compared  bool
	contains  any
	subset    bool
	snapshot  string // a file that holds the result
	chunks    []any
	streams   bool
	fail      string // the guest's own code
	code      abi.Code
	message   *regexp.Regexp
	denied    []string
	ran       *bool
	state     map[string]json.RawMessage
	kv        map[string]json.RawMessage
	artifacts map[string]string // name to a file that holds the same
	actions   any
	acts      bool
	logs      []*regexp.Regexp
	fuelMax   int64
	peakMax   int64
	hostCalls *int64
}

var (
	setUp    = []string{"http", "grants", "now", "seed", "state", "kv", "artifacts", "secrets", "config", "limits"}
	outcomes = []string{"result", "contains", "snapshot", "chunks", "fail", "error", "message", "denied", "ran", "state", "kv", "artifacts", "actions", "logs", "usage"}
)

// ParseCases reads a file of tests of a plugin; name is its file's. The error joins
// every mistake, each with its line. docs/tests.md says what may be in it.
func ParseCases(name string, data []byte) (*Cases, error) {
	s := &source{name: name}
	c := &Cases{File: name}
	doc := s.read(data)
	if doc == nil {
		return nil, s.err()
	}
	top := s.object(doc, "tests", "format", "module", "defaults", "cases")
	if n := top["format"]; top != nil && (n == nil || n.Value != "1") {
		s.fail(doc, "", "format: want 1")
	}
	c.Module = s.text(top["module"], "module")
	var defaults map[string]*yaml.Node
	if n := top["defaults"]; n != nil {
		defaults = s.object(n, "defaults", setUp...)
	}
	list := top["cases"]
	if top != nil && (list == nil || list.Kind != yaml.SequenceNode) {
		s.fail(doc, "", "cases: want a list")
		return nil, s.err()
	}
	if list == nil {
		return nil, s.err()
	}
	seen := map[string]bool{}
	for i, n := range list.Content {
		t := s.toolCase(n, defaults, fmt.Sprintf("cases[%d]", i))
		if seen[t.name] {
			s.fail(n, "", "case %q: there are two of that name", t.name)
		}
		seen[t.name] = true
		c.cases = append(c.cases, t)
	}
	return c, s.err()
}

func (s *source) toolCase(n *yaml.Node, defaults map[string]*yaml.Node, what string) toolCase {
	t := toolCase{line: n.Line}
	m := s.object(n, what, append([]string{"name", "tool", "args", "args_text", "want"}, setUp...)...)
	if m == nil {
		return t
	}
	if t.name = s.text(m["name"], what+".name"); t.name == "" {
		s.fail(n, "", "%s: name missing", what)
	} else {
		what = fmt.Sprintf("case %q", t.name)
	}
	for key, d := range defaults {
		if m[key] == nil {
			m[key] = d
		}
	}
	if t.tool = s.text(m["tool"], what+": tool"); t.tool == "" {
		s.fail(n, "", "%s: tool missing", what)
	}
	t.args = map[string]any{}
	if m["args"] != nil {
		args, ok := s.value(m["args"], what+": args").(map[string]any)
		if !ok {
			s.fail(m["args"], "args_text gives any bytes", "%s: args: want an object", what)
		}
		t.args = args
	}
	if m["args_text"] != nil {
		if m["args"] != nil {
			s.fail(m["args_text"], "", "%s: args and args_text exclude each other", what)
		}
		raw := s.text(m["args_text"], what+": args_text")
		t.raw = &raw
	}
	s.setUp(&t, m, what)
	if m["want"] == nil {
		s.fail(n, "", "%s: want missing", what)
	} else {
		t.want = s.outcome(m["want"], what+": want")
	}
	return t
}

func (s *source) setUp(t *toolCase, m map[string]*yaml.Node, what string) {
	t.http = s.text(m["http"], what+": http")
	var err error
	if t.grants, err = capability.ParseSet(s.texts(m["grants"], what+": grants")); err != nil {
		s.fail(m["grants"], "", "%s: grants: %v", what, err)
	}
	t.now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if now := m["now"]; now != nil {
		if t.now, err = time.Parse(time.RFC3339Nano, now.Value); err != nil {
			s.fail(now, "such as 2026-03-01T09:00:00Z", "%s: now: %q is not a time in RFC 3339", what, now.Value)
		}
	}
	t.seed = []byte(fmt.Sprint(s.whole(m["seed"], what+": seed", 0)))
	if m["state"] != nil {
		t.state = s.documents(m["state"], what+": state")
		for key := range t.state {
			if _, err := stateKey(key); err != nil {
				s.fail(m["state"], "", "%s: state: %v", what, err)
			}
		}
	}
	if n := m["kv"]; n != nil {
		t.kv = &storage{}
		if n.Kind == yaml.ScalarNode && n.Value == "unavailable" {
			t.kv.down = true
		} else {
			t.kv.values = s.documents(n, what+": kv")
		}
	}
	t.artifacts, t.secrets, t.config = s.strings(m["artifacts"], what+": artifacts"), s.strings(m["secrets"], what+": secrets"), s.strings(m["config"], what+": config")
	if n := m["limits"]; n != nil {
		var l abi.Limits
		if err := abi.Decode(s.json(n, what+": limits"), &l); err != nil {
			s.fail(n, "limits are those of a manifest, such as fuel, wall_ms and memory_bytes", "%s: limits: %v", what, err)
		}
		t.limits = host.Asked(l)
	}
}

// strings returns an object of texts; nil for no node.
func (s *source) strings(n *yaml.Node, what string) map[string]string {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		s.fail(n, "", "%s: want an object", what)
		return nil
	}
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = s.text(n.Content[i+1], what+"."+n.Content[i].Value)
	}
	return out
}

func (s *source) outcome(n *yaml.Node, what string) outcome {
	var w outcome
	m := s.object(n, what, outcomes...)
	value := func(key string, into *any, there *bool) {
		if m[key] == nil {
			return
		}
		*into, *there = s.value(m[key], what+"."+key), true
	}
	value("result", &w.result, &w.compared)
	value("contains", &w.contains, &w.subset)
	value("actions", &w.actions, &w.acts)
	for key, v := range map[string]any{"contains": w.contains, "actions": w.actions} {
		if err := operators(v); err != nil {
			s.fail(m[key], "", "%s.%s: %v", what, key, err)
		}
	}
	w.snapshot = s.text(m["snapshot"], what+".snapshot")
	if m["chunks"] != nil {
		w.chunks, w.streams = s.value(m["chunks"], what+".chunks").([]any)
		if !w.streams {
			s.fail(m["chunks"], "", "%s.chunks: want a list", what)
		}
	}
	w.fail, w.code = s.text(m["fail"], what+".fail"), abi.Code(s.text(m["error"], what+".error"))
	if w.fail != "" {
		w.code = abi.GuestError
		if m["error"] != nil {
			s.fail(n, "", "%s: fail and error exclude each other", what)
		}
	}
	if m["error"] != nil && w.code != abi.GuestError && w.code != abi.ToolError && w.code.Sentence() == "" { // a model reads of no other
		s.fail(m["error"], "sandboxd help errors", "%s.error: %q is no code", what, w.code)
	}
	w.message, w.denied, w.ran = s.pattern(m["message"], what+".message"), s.texts(m["denied"], what+".denied"), s.yes(m["ran"], what+".ran")
	if m["state"] != nil {
		w.state = s.documents(m["state"], what+".state")
		for key := range w.state {
			if _, err := stateKey(key); err != nil {
				s.fail(m["state"], "", "%s.state: %v", what, err)
			}
		}
	}
	if m["kv"] != nil {
		w.kv = s.documents(m["kv"], what+".kv")
	}
	w.artifacts = s.strings(m["artifacts"], what+".artifacts")
	for _, line := range s.texts(m["logs"], what+".logs") {
		re, err := regexp.Compile(line)
		if err != nil {
			s.fail(m["logs"], "", "%s.logs: %v", what, err)
			continue
		}
		w.logs = append(w.logs, re)
	}
	if n := m["usage"]; n != nil {
		u := s.object(n, what+".usage", "fuel_max", "peak_bytes_max", "host_calls")
		w.fuelMax, w.peakMax = s.whole(u["fuel_max"], what+".usage.fuel_max", 1), s.whole(u["peak_bytes_max"], what+".usage.peak_bytes_max", 1)
		if u["host_calls"] != nil {
			calls := s.whole(u["host_calls"], what+".usage.host_calls", 0)
			w.hostCalls = &calls
		}
	}
	return w
}
