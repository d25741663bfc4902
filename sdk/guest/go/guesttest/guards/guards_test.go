// Package guards_test compares judgements of the fake host with those of the real one.
// It is apart from package guesttest because a test binary has one plugin, and a module
// with guards may ask for nothing that a guard may not have.
package guards_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest/testdata/judge"
)

// The judge, natively.
func init() { guest.Serve(judge.Plugin) }

// module is the judge in the sandbox.
var module *host.Module

func TestMain(m *testing.M) {
	ctx := context.Background()
	engine, err := host.Open(ctx, host.Config{InProcess: true}) // tests run on loaded machines, where a child's time may be up
	if err != nil {
		panic(err)
	}
	wasm, _, err := app.Modules{Engine: engine}.Build(ctx, filepath.Join("..", "testdata", "judgemodule"), nil)
	if err == nil {
		module, err = engine.Load(ctx, wasm)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if err := engine.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// patient is time enough on a loaded machine; fuel is not counted by the fake.
var patient = host.Limits{Wall: time.Minute, Fuel: 1e12}

// TestJudgementsAgree asks both the same questions, several times each, by a clock that
// goes on.
func TestJudgementsAgree(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 123456789, time.UTC)
	for _, phase := range []abi.Phase{abi.PhaseCall, abi.PhaseResult, abi.PhaseMessage} {
		for _, say := range []string{"", "deny", "deny with a bad code", "deny at length", "confirm", "narrow", "narrow to what is no capability", "rewrite", "rewrite to what is no JSON",
			"rewrite to a list", "hold", "hold too much", "nothing", "another ruling", "panic", "time", "who", "count", "keep"} {
			t.Run(fmt.Sprintf("%s/%s", phase, say), func(t *testing.T) {
				clock := now
				store := host.NewMemoryKV(func() time.Time { return clock })
				const settings = `{"word":"a"}`
				real, err := policies.New(t.Context(), module, policies.Config{Settings: json.RawMessage(settings), Limits: patient, KV: store, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				h := guesttest.Host{}
				for _, later := range []time.Duration{0, 0, 0, 2 * time.Minute} {
					clock = clock.Add(later)
					q := question(t, phase, say, clock)
					want := flow.Ask(t.Context(), real, q, time.Minute)
					got := h.Judge(t, "judge", settings, q)
					got.Verdict.Nonce, want.Verdict.Nonce = "", "" // each question has its own
					if a, b := text(t, got.Verdict), text(t, want.Verdict); a != b || (got.Err == nil) != (want.Err == nil) {
						t.Errorf("fake %s, error %v\nreal %s, error %v", a, got.Err, b, want.Err)
					}
				}
				if value, found, _ := store.Scope(host.KVScope{Owner: "guard judge"}).Get(t.Context(), "n"); found != (h.KV["n"] != "") || found && string(value) != h.KV["n"] {
					t.Errorf("kv: fake %q, real %q", h.KV["n"], value)
				}
			})
		}
	}
}

func question(t *testing.T, phase abi.Phase, say string, now time.Time) abi.Question {
	t.Helper()
	q := abi.Question{Format: abi.Version, Kind: abi.KindGuard, Guard: "judge", Phase: phase, Now: now.Format(time.RFC3339Nano), Agent: "agent", User: abi.User{ID: "u-1"}, Session: "s-1", Run: "r-1", Step: 1}
	if phase != abi.PhaseMessage {
		q.Call = &abi.CallFacts{ID: "call-1", Tool: "tool", Known: true, Effects: abi.Once, Args: json.RawMessage("{}")}
		q.Grants = []string{"log"}
	}
	document, err := abi.Marshal(map[string]string{"say": say})
	if err != nil {
		t.Fatal(err)
	}
	q.SetDocument(document)
	return q
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := abi.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSettingsAgree has both take or refuse the same settings.
func TestSettingsAgree(t *testing.T) {
	for _, settings := range []string{``, `{}`, `{"most":1}`, `{"most":0}`, `{"most":10}`, `{"most":1.5}`, `{"most":"2"}`, `{"word":"c"}`, `{"word":"b"}`, `{"word":"b","most":5}`, `{"more":1}`, `{"most":1,"most":2}`, `[]`, `{`, `null`} {
		_, err := policies.New(t.Context(), module, policies.Config{Settings: json.RawMessage(settings), Limits: patient})
		var h guesttest.Host
		got := h.Settings(t, "judge", settings)
		want := ""
		if err != nil {
			want = err.Error()
		}
		if got != nil {
			got = fmt.Errorf("guard judge: settings: %w", got)
		}
		if text := fmt.Sprint(got); (got != nil || want != "") && bySchema(text) != bySchema(want) {
			t.Errorf("settings %s: fake %v, real %s", settings, got, want)
		}
	}
}

// bySchema takes a schema's reason out of a refusal: of a value of a wrong type, or an unknown one, the real
// host says for people what the fake one says in the validator's words.
func bySchema(text string) string {
	before, why, _ := strings.Cut(text, "settings: ")
	for _, begins := range []string{"validating root: validating /", "validating root: type: ", "validating root: unexpected additional properties ", "/", "want "} {
		if strings.HasPrefix(why, begins) {
			return before + "settings: by their schema"
		}
	}
	return text
}

// A broken store fails, which a guard has to take as a denial.
type broken struct{ host.KV }

func (b broken) Scope(host.KVScope) host.KV { return b }

func (broken) Add(context.Context, string, int64, int64, time.Duration) (int64, bool, error) {
	return 0, false, errors.New("the disk is gone")
}

// TestKVStore has both ask a store of the test's own, one that fails and one that keeps.
func TestKVStore(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	memory := host.NewMemoryKV(func() time.Time { return now })
	for name, store := range map[string]host.KVStore{"broken": broken{}, "memory": memory} {
		real, err := policies.New(t.Context(), module, policies.Config{Limits: patient, KV: store})
		if err != nil {
			t.Fatal(err)
		}
		h := guesttest.Host{KVStore: store}
		q := question(t, abi.PhaseCall, "count", now)
		want := flow.Ask(t.Context(), real, q, time.Minute)
		got := h.Judge(t, "judge", "", q)
		got.Verdict.Nonce, want.Verdict.Nonce = "", ""
		if a, b := text(t, got.Verdict), text(t, want.Verdict); a != b || got.Err != nil || want.Err != nil || h.KV != nil {
			t.Errorf("%s: fake %s, error %v\nreal %s, error %v; kv %v", name, a, got.Err, b, want.Err, h.KV)
		}
		if denies := got.Verdict.Code == "no_count"; denies != (name == "broken") {
			t.Errorf("%s: got %s %s", name, got.Verdict.Ruling, got.Verdict.Code)
		}
	}
	if value, found, err := memory.Scope(host.KVScope{App: "guesttest", Owner: "guard judge"}).Get(t.Context(), "n"); !found || string(value) != "1" || err != nil {
		t.Errorf("the store has %s, found %v, error %v", value, found, err)
	}
}

// TestGuardThatWaits shows that a guard that waits past its time denies, without a test
// that takes so long.
func TestGuardThatWaits(t *testing.T) {
	var h guesttest.Host
	q := question(t, abi.PhaseCall, "wait", time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	if got := h.Judge(t, "judge", "", q); got.Err == nil || got.Verdict.Ruling != abi.RulingDeny {
		t.Errorf("got %+v", got)
	}
}
