package conformance

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// compare returns the first difference between what was expected and what was
// observed, or "".
func compare(v *Vector, want, got map[string]any) string {
	c := &comparison{v: v}
	keys := map[string]bool{}
	for k := range want {
		keys[k] = true
	}
	for k := range got {
		keys[k] = true
	}
	order := []string{"turns", "responses", "tool_calls", "hook_log", "model_requests", "state", "session_events"}
	sorted := slices.SortedFunc(mapKeysOf(keys), func(a, b string) int {
		return cmpIndex(order, a) - cmpIndex(order, b)
	})
	for _, k := range sorted {
		w, there := want[k]
		g, have := got[k]
		if !there || !have {
			if empty(w) && empty(g) {
				continue
			}
			return fmt.Sprintf("%s: want %s, got %s", k, text(w), text(g))
		}
		if d := c.value("/"+k, w, g); d != "" {
			return d
		}
	}
	return ""
}

func mapKeysOf(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func cmpIndex(order []string, k string) int {
	if i := slices.Index(order, k); i >= 0 {
		return i
	}
	return len(order)
}

type comparison struct {
	v *Vector
}

func (c *comparison) loose(what string) bool     { return slices.Contains(c.v.Loose, what) }
func (c *comparison) unordered(what string) bool { return slices.Contains(c.v.Unordered, what) }

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func (c *comparison) value(at string, want, got any) string {
	diff := func() string { return fmt.Sprintf("%s: want %s, got %s", at, text(want), text(got)) }
	if empty(want) && empty(got) && canBeAbsent(at) {
		return ""
	}
	if c.loose("load_memory_result") && strings.HasSuffix(at, "/memories") {
		want, got = memoryTexts(want), memoryTexts(got)
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return diff()
		}
		return c.object(at, w, g)
	case []any:
		g, ok := got.([]any)
		if !ok {
			return diff()
		}
		return c.list(at, w, g)
	case json.Number:
		if !sameNumber(w, got) {
			return diff()
		}
		return ""
	case string:
		g, ok := got.(string)
		if !ok {
			return diff()
		}
		if w == g || c.sameText(at, w, g) {
			return ""
		}
		return diff()
	}
	if want != got {
		return diff()
	}
	return ""
}

// memoryTexts returns the contents of what load_memory found, whatever the host
// calls the member.
func memoryTexts(v any) any {
	found, ok := v.([]any)
	if !ok {
		return v
	}
	var texts []any
	for _, e := range found {
		entry, _ := e.(map[string]any)
		for name, value := range entry {
			if strings.EqualFold(name, "content") {
				texts = append(texts, value)
			}
		}
	}
	return texts
}

func canBeAbsent(at string) bool {
	name := at[strings.LastIndex(at, "/")+1:]
	return name == "args" || name == "response" || name == "parts" || strings.Count(at, "/") == 1
}

func (c *comparison) object(at string, want, got map[string]any) string {
	var names []string
	for k := range want {
		names = append(names, k)
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range names {
		w, there := want[k]
		g, have := got[k]
		if there && have {
			if d := c.value(at+"/"+k, w, g); d != "" {
				return d
			}
			continue
		}
		if empty(w) && empty(g) && canBeAbsent(at+"/"+k) || c.outputKey(at, k, want, got) {
			continue
		}
		return fmt.Sprintf("%s/%s: want %s, got %s", at, k, text(w), text(g))
	}
	return ""
}

// outputKey allows the state delta of an output key on events that are not final.
func (c *comparison) outputKey(at, k string, want, got map[string]any) bool {
	if !c.loose("output_key_on_non_final") {
		return false
	}
	if at == "/state" {
		return k == c.v.Agent.OutputKey && (want[k] == "" || got[k] == "")
	}
	return (k == "state_delta" || k == "actions") && strings.Contains(at, "/events/")
}

func (c *comparison) list(at string, want, got []any) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%s: want %d, got %d: want %s, got %s", at, len(want), len(got), text(want), text(got))
	}
	name := at[strings.LastIndex(at, "/")+1:]
	if strings.HasSuffix(at, "/errors") && strings.HasPrefix(at, "/turns/") {
		for i := range want {
			if d := c.terminal(want[i], got[i]); d != "" {
				return at + ": " + d
			}
		}
		return ""
	}
	if c.unordered(name) && (strings.Count(at, "/") == 1 || name == "events") {
		left := slices.Clone(got)
		for i, w := range want {
			j := slices.IndexFunc(left, func(g any) bool { return c.value(at+"/0", w, g) == "" })
			if j < 0 {
				return fmt.Sprintf("%s/%d: %s is missing", at, i, text(w))
			}
			left = slices.Delete(left, j, j+1)
		}
		return ""
	}
	for i := range want {
		if d := c.value(fmt.Sprintf("%s/%d", at, i), want[i], got[i]); d != "" {
			return d
		}
	}
	return ""
}

// terminal compares errors that end a turn: a text scripted in the scenario must
// be in it; the rest is for people.
func (c *comparison) terminal(want, got any) string {
	g, _ := got.(string)
	for _, scripted := range c.v.scriptedErrors() {
		if w, _ := want.(string); strings.Contains(w, scripted) && !strings.Contains(g, scripted) {
			return fmt.Sprintf("want %q in it, got %q", scripted, g)
		}
	}
	if g == "" {
		return "empty error"
	}
	return ""
}

func (v *Vector) scriptedErrors() []string {
	var out []string
	for _, steps := range v.Model {
		for _, s := range steps {
			for _, r := range s.Responses {
				if r.Error != nil {
					out = append(out, *r.Error)
				}
			}
		}
	}
	var hooks []hookSpec
	if v.Agent != nil {
		hooks = append(hooks, v.Agent.Callbacks...)
		if v.Agent.ProviderError != "" {
			out = append(out, v.Agent.ProviderError)
		}
	}
	for _, p := range v.Plugins {
		hooks = append(hooks, p.Hooks...)
	}
	for _, h := range hooks {
		for _, op := range h.Do {
			if s, ok := op["return_error"].(string); ok {
				out = append(out, s)
			}
		}
	}
	for _, t := range v.Toolsets {
		if t.ListError != "" {
			out = append(out, t.ListError)
		}
	}
	return out
}

// sameText allows what the vector's loose values allow.
func (c *comparison) sameText(at, want, got string) bool {
	name := at[strings.LastIndex(at, "/")+1:]
	if c.loose("error_text") && name == "error" && got != "" {
		return true
	}
	if c.loose("error_text") && strings.Contains(at, "/text") && strings.Contains(want, "error") && got != "" {
		return true
	}
	if c.loose("rewritten_args_in_history") && strings.HasPrefix(at, "/model_requests/") && strings.Contains(at, "/functionCall/args") {
		return true
	}
	if c.loose("output_key_on_non_final") && strings.Contains(at, "/state_delta/") {
		return true
	}
	return stackless(want) == stackless(got)
}

// stackless writes a stack trace in a text as the vectors do.
func stackless(s string) string {
	if i := strings.Index(s, "\nstack: "); i >= 0 {
		return s[:i] + "\nstack: <stack>"
	}
	return s
}

func sameNumber(want json.Number, got any) bool {
	w, ok := new(big.Rat).SetString(want.String())
	if !ok {
		return false
	}
	var g *big.Rat
	switch n := got.(type) {
	case json.Number:
		g, ok = new(big.Rat).SetString(n.String())
	case int:
		g, ok = big.NewRat(int64(n), 1), true
	case float64:
		g = new(big.Rat).SetFloat64(n)
		ok = g != nil
	default:
		return false
	}
	return ok && g.Cmp(w) == 0
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const most = 600
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}
