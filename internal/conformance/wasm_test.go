package conformance

import (
	"cmp"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// shown reports whether a vector showed the behaviour it should.
func shown(r Result) bool { return r.Verdict == Passed || r.Verdict == Deviates }

func sorted(effects []Effect) []Effect {
	return slices.SortedFunc(slices.Values(effects), func(a, b Effect) int {
		return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Code, b.Code))
	})
}

// The trace of a vector's host calls lists every effect that its operations have
// when they run in this process, and nothing else.
func TestTraceListsEveryEffect(t *testing.T) {
	all := run(t)
	calls := map[string]int{}
	with, total := 0, 0
	for i, wasm := range all.wasm {
		native := all.native[i]
		want, got := sorted(native.Effects), sorted(wasm.Effects)
		if !slices.Equal(want, got) {
			t.Errorf("%s: trace %v, want %v", wasm.Name, got, want)
		}
		if wasm.Ran != native.Ran || wasm.Served != native.Served {
			t.Errorf("%s: %d calls ran and %d were served, want %d and %d", wasm.Name, wasm.Ran, wasm.Served, native.Ran, native.Served)
		}
		if len(got) > 0 {
			with++
		}
		for _, e := range got {
			calls[e.Call]++
			total++
		}
	}
	for _, call := range []string{"state_get", "state_set", "artifact_save", "emit", "confirm", "skip_summary"} {
		if calls[call] == 0 {
			t.Errorf("no vector with effect %s", call)
		}
	}
	t.Logf("%d vectors with %d effects: %v", with, total, calls)
}

// Without its grants a vector with effects fails. The grant for the log stays, so
// that what fails it is the effect and not the evidence; what has no effects is not
// disturbed.
func TestWithoutGrants(t *testing.T) {
	log, err := capability.ParseSet([]string{"log"})
	if err != nil {
		t.Fatal(err)
	}
	poor := &Guests{guests(t).modules, func(asked capability.Set) capability.Set { return asked.Intersect(log) }}
	all := run(t)
	failed := 0
	for i, r := range checkAll(t.Context(), all.vectors, poor) {
		was := all.wasm[i]
		switch {
		case !shown(was): // not built yet
		case len(was.Effects) == 0 && !shown(r):
			t.Errorf("%s has no effects and fails without grants: %s", r.Name, r.Difference)
		case len(was.Effects) > 0 && shown(r):
			t.Errorf("%s %s without the grants for %v", r.Name, r.Verdict, was.Effects)
		case len(was.Effects) > 0:
			failed++
			if !slices.ContainsFunc(r.Effects, func(e Effect) bool { return e.Code == abi.CapabilityDenied }) {
				t.Errorf("%s: no host call was denied: %v", r.Name, r.Effects)
			}
		}
	}
	if failed == 0 {
		t.Error("no vector with effects")
	}
	t.Logf("%d vectors with effects, all fail without grants", failed)
}

// A guest that answers {} to everything passes no vector that reaches a handler or
// hook.
func TestEmptyGuest(t *testing.T) {
	hollow := &Guests{newModules(guests(t).modules.engine, emptyGuest()), grantAll}
	all := run(t)
	failed := 0
	for i, r := range checkAll(t.Context(), all.vectors, hollow) {
		was := all.wasm[i]
		if !shown(was) { // not built yet
			continue
		}
		calls, _ := all.vectors[i].Expect["tool_calls"].([]any)
		hooks, _ := all.vectors[i].Expect["hook_log"].([]any)
		switch reached := was.Ran > 0; {
		case !reached && len(calls)+len(hooks) > was.Served:
			t.Errorf("%s expects %d tool calls and %d hooks, and nothing ran", r.Name, len(calls), len(hooks))
		case reached && shown(r):
			t.Errorf("%s %s with a guest that does nothing", r.Name, r.Verdict)
		case reached:
			failed++
		case !shown(r):
			t.Errorf("%s reaches no handler or hook and fails with another guest: %s", r.Name, r.Difference)
		}
	}
	if failed == 0 {
		t.Error("no vector reaches a handler or hook")
	}
	t.Logf("%d vectors reach a handler or hook, all fail with a guest that returns {}", failed)
}

// emptyGuest returns a module whose export call sets the output "{}".
func emptyGuest() []byte {
	text := func(s string) string { return string(rune(len(s))) + s }
	section := func(id byte, body string) string {
		return string(append(binary.AppendUvarint([]byte{id}, uint64(len(body))), body...))
	}
	return []byte("\x00asm\x01\x00\x00\x00" +
		section(1, "\x02\x60\x02\x7f\x7f\x00\x60\x00\x00") + // (i32 i32) -> (), () -> ()
		section(2, "\x01"+text(abi.ImportHost)+text("output_set")+"\x00\x00") +
		section(3, "\x01\x01") +
		section(5, "\x01\x00\x01") + // one page
		section(7, "\x01"+text(abi.ExportCall)+"\x00\x01") +
		section(10, "\x01\x08\x00\x41\x00\x41\x02\x10\x00\x0b") + // output_set(0, 2)
		section(11, "\x01\x00\x41\x00\x0b"+text("{}")))
}

// Every operation does the same in a guest as in this process: what Native does is
// what a guest is held to. The vectors of testdata leave some of them out.
func TestEveryOperation(t *testing.T) {
	vectors, err := Load("testdata/operations.json")
	if err != nil {
		t.Fatal(err)
	}
	v, rec := vectors[0], &recorder{}
	got, err := observe(t.Context(), v, Native, rec)
	if err != nil {
		t.Fatal(err)
	}
	v.Expect = generic(got).(map[string]any) // as if it had been read
	r := Check(t.Context(), v, guests(t))
	if r.Verdict != Passed {
		t.Errorf("%s", r.Difference)
	}
	if want, got := sorted(rec.effects), sorted(r.Effects); !slices.Equal(want, got) {
		t.Errorf("trace %v, want %v", got, want)
	}
}

// Only lines that say what was received are evidence, and evidence that cannot be
// read fails the vector.
func TestEvidence(t *testing.T) {
	g := guests(t)
	r := &recorder{}
	e := &hookEntry{rec: r, scope: "plugin:p", hook: "after_tool"}
	said := func(data []byte) error {
		x, err := received(data)
		if err == nil {
			e.log(t.Context(), x)
		}
		return err
	}
	if _, err := g.hook(t.Context(), hookSpec{Hook: "after_lunch"}, &hookEntry{rec: r, hook: "after_lunch"}); err == nil {
		t.Error("a hook that does not exist was made")
	}
	r.heard(`panic: out of ideas`, said)
	r.heard(`received {"format":1,"kind":"hook","hook":"after_tool","tool":"t","args":{},"error":"no"}`, said)
	if r.bad != nil || r.ran() != 1 {
		t.Errorf("%d calls, error %v, want 1 call", r.ran(), r.bad)
	}
	r.heard(`received {"format":1,"kind":"hook","hook":"after_tool","args":[]}`, said)
	if r.bad == nil || r.ran() != 1 {
		t.Errorf("%d calls, error %v, want an error and 1 call", r.ran(), r.bad)
	}
}
