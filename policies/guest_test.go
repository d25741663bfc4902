package policies_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

const (
	okResponse  = `{"ok":true}`
	unavailable = `{"error":"policy_unavailable: a policy could not decide, so the call was refused"}`
)

// What guests may say as guards, in each phase.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		name  string
		phase abi.Phase
		says  string // the members of the verdict
		args  string // of the handler; "": it did not run
		want  string
	}{
		{"allows", abi.PhaseCall, `"verdict":"allow"`, `{"n":1}`, okResponse},
		{"allows with why", abi.PhaseCall, `"verdict":"allow","format":1,"code":"fine","why":[{"rule":"r","at":"/n","saw":"1"}]`, `{"n":1}`, okResponse},
		{"allows a result", abi.PhaseResult, `"verdict":"allow"`, `{"n":1}`, okResponse},
		{"denies", abi.PhaseCall, `"verdict":"deny","code":"too_much","reason":"too much"`, "", `{"error":"policy_denied: too much"}`},
		{"denies a result", abi.PhaseResult, `"verdict":"deny","code":"secret"`, `{"n":1}`, `{"error":"policy_denied: a policy refused this call"}`},
		{"asks a person", abi.PhaseCall, `"verdict":"confirm","hint":"sure?"`, "", `{"error":"error tool \"tool\" requires confirmation, please approve or reject"}`},
		{"narrows", abi.PhaseCall, `"verdict":"narrow","grants":["log"]`, `{"n":1}`, okResponse},
		{"narrows to nothing", abi.PhaseCall, `"verdict":"narrow"`, `{"n":1}`, okResponse},
		{"rewrites", abi.PhaseCall, `"verdict":"rewrite","document":{"z":1.0,"a":2}`, `{"a":2,"z":1.0}`, okResponse},
		{"rewrites a result", abi.PhaseResult, `"verdict":"rewrite","document":{"z":1.0}`, `{"n":1}`, `{"z":1.0}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := abi.Guard{Phases: []abi.Phase{c.phase}}
			if strings.Contains(c.says, "rewrite") {
				g.Mutates = g.Phases
			}
			made := guard(t, g, hosttest.Guest{Good: allow(), Says: hosttest.Verdict(c.says)}, patient)
			d := run(t, flow.Spec{}, onlyTool{made})
			if got := strings.Join(d.witness.Calls(), " "); got != c.args {
				t.Errorf("the handler got %q, want %q", got, c.args)
			}
			if got := d.response("c1"); got != c.want {
				t.Errorf("the model reads %s, want %s", got, c.want)
			}
			if d.response("c2") != okResponse {
				t.Errorf("sibling: %s", d.response("c2"))
			}
			if r := d.judged("guard"); len(r) != 1 || !strings.Contains(r[0].Module, made.Module().Digest().String()) {
				t.Errorf("audited %+v", r)
			}
		})
	}
}

// A guard that fails in any way denies: the handler never starts, or its result is
// withheld, and the others are asked all the same.
func TestGuardFails(t *testing.T) {
	tight := patient
	tight.OutputBytes, tight.HostCalls = 512, 10
	for _, c := range []struct {
		name    string
		guest   hosttest.Guest
		limits  host.Limits
		mutates bool
		cause   string
	}{
		{"traps", hosttest.Guest{Ends: hosttest.Trap()}, patient, false, "guest_trap"},
		{"traps after it allowed", hosttest.Guest{Says: allow(), Ends: hosttest.Trap()}, patient, false, "guest_trap"},
		{"loops", hosttest.Guest{Ends: hosttest.Spin()}, patient, false, "guest_fuel"},
		{"loops after it allowed", hosttest.Guest{Says: allow(), Ends: hosttest.Spin()}, patient, false, "guest_fuel"},
		{"exits with 0", hosttest.Guest{Ends: hosttest.Exit(0)}, patient, false, "guest_trap"},
		{"exits with 0 after it allowed", hosttest.Guest{Says: allow(), Ends: hosttest.Exit(0)}, patient, false, "guest_trap"},
		{"returns 1 after it allowed", hosttest.Guest{Says: allow(), Ends: hosttest.Return(1)}, patient, false, "return code 1"},
		{"returns -1 after it allowed", hosttest.Guest{Says: allow(), Ends: hosttest.Return(-1)}, patient, false, "return code -1"},
		{"sets an error after it allowed", hosttest.Guest{Says: allow(), Ends: hosttest.Fail("unsure")}, patient, false, "unsure"},
		{"recurses", hosttest.Guest{Ends: hosttest.Recurse()}, patient, false, "guest_stack"},
		{"takes all memory", hosttest.Guest{Ends: hosttest.Hoard()}, patient, false, "guest_memory"},
		{"floods the host", hosttest.Guest{Ends: hosttest.Flood("log", `{"message":"x"}`)}, tight, false, "hostcall_limit"},
		{"says nothing", hosttest.Guest{Ends: hosttest.Return(0)}, patient, false, "guest_output_invalid"},
		{"says a blank", hosttest.Guest{Says: says(" ")}, patient, false, "no value"},
		{"says null", hosttest.Guest{Says: says(`null`)}, patient, false, "null is no object"},
		{"says {}", hosttest.Guest{Says: says(`{}`)}, patient, false, "nonce"},
		{"says true", hosttest.Guest{Says: says(`true`)}, patient, false, "document"},
		{"says allow", hosttest.Guest{Says: says(`"allow"`)}, patient, false, "document"},
		{"says 0", hosttest.Guest{Says: says(`0`)}, patient, false, "document"},
		{"says garbage", hosttest.Guest{Says: says("\xff\xfe")}, patient, false, "not JSON"},
		{"says a list of verdicts", hosttest.Guest{Says: join(says("["), allow(), says("]"))}, patient, false, "document"},
		{"says two verdicts", hosttest.Guest{Says: join(allow(), allow())}, patient, false, "bytes after the value"},
		{"says something behind it", hosttest.Guest{Says: join(allow(), says("x"))}, patient, false, "bytes after the value"},
		{"says NUL behind it", hosttest.Guest{Says: join(allow(), says("\x00"))}, patient, false, "bytes after the value"},
		{"says a byte order mark", hosttest.Guest{Says: join(says("\ufeff"), allow())}, patient, false, "not JSON"},
		{"says too much", hosttest.Guest{Says: join(allow(), []hosttest.Piece{hosttest.Blanks(512)})}, tight, false, "guest_output_too_large"},
		{"no ruling", hosttest.Guest{Says: hosttest.Verdict(`"code":"x"`)}, patient, false, "is no verdict"},
		{"ruling in capitals", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"ALLOW"`)}, patient, false, `"ALLOW" is no verdict`},
		{"unknown ruling", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"permit"`)}, patient, false, "is no verdict"},
		{"ruling true", hosttest.Guest{Says: hosttest.Verdict(`"verdict":true`)}, patient, false, "document"},
		{"ruling null", hosttest.Guest{Says: hosttest.Verdict(`"verdict":null`)}, patient, false, "verdict"},
		{"member in another case", hosttest.Guest{Says: hosttest.Verdict(`"Verdict":"allow"`)}, patient, false, `unknown member "Verdict"`},
		{"another name for it", hosttest.Guest{Says: hosttest.Verdict(`"allow":true`)}, patient, false, `unknown member "allow"`},
		{"one member more", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","actions":{}`)}, patient, false, `unknown member "actions"`},
		{"ruling twice", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"deny","verdict":"allow"`)}, patient, false, "duplicate member name"},
		{"allow twice", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","verdict":"allow"`)}, patient, false, "duplicate member name"},
		{"another format", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","format":2`)}, patient, false, "format 2"},
		{"no nonce", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text(`{"document_sha256":"`), hosttest.SHA256(), hosttest.Text(`","verdict":"allow"}`)}}, patient, false, "nonce"},
		{"another nonce", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text(`{"nonce":"00000000000000000000000000000000","document_sha256":"`), hosttest.SHA256(), hosttest.Text(`","verdict":"allow"}`)}},
			patient, false, "nonce"},
		{"no digest", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Nonce(), hosttest.Text(`","verdict":"allow"}`)}}, patient, false, "document_sha256"},
		{"another digest", hosttest.Guest{Says: []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Nonce(),
			hosttest.Text(`","document_sha256":"` + strings.Repeat("0", 64) + `","verdict":"allow"}`)}}, patient, false, "document_sha256"},
		{"rewrites and may not", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"rewrite","document":{}`)}, patient, false, "which its manifest does not list"},
		{"rewrites to a list", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"rewrite","document":[]`)}, patient, true, "want an object"},
		{"rewrites without a document", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"rewrite"`)}, patient, true, "without a document"},
		{"allows with a document", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","document":{}`)}, patient, true, "document has no place"},
		{"narrows to no capability", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"narrow","grants":["all"]`)}, patient, false, "all"},
		{"allows with grants", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","grants":["log"]`)}, patient, false, "grants has no place"},
	} {
		for _, phase := range both {
			t.Run(c.name+" in "+string(phase), func(t *testing.T) {
				g := abi.Guard{Phases: []abi.Phase{phase}}
				if c.mutates {
					g.Mutates = g.Phases
				}
				c.guest.Good = allow()
				bad := guard(t, g, c.guest, c.limits)
				good := policies.Func("good", allowAll, both...)
				d := run(t, flow.Spec{}, onlyTool{bad}, good)
				ran := 0
				if phase == abi.PhaseResult {
					ran = 1
				}
				if got := len(d.witness.Calls()); got != ran {
					t.Errorf("the handler ran %d times, want %d", got, ran)
				}
				if got := d.response("c1"); got != unavailable {
					t.Errorf("the model reads %s, want %s", got, unavailable)
				}
				if got := d.response("c2"); got != okResponse {
					t.Errorf("sibling: %s", got)
				}
				r := d.judged("guard")
				if len(r) != 1 || r[0].Action != "guard.deny" || r[0].Code != string(abi.PolicyUnavailable) || !strings.Contains(r[0].Why, c.cause) {
					t.Errorf("audited %+v, want one denial because of %q", r, c.cause)
				}
				if got := len(d.judged("good")); got != 1+ran {
					t.Errorf("the other guard was asked %d times, want %d", got, 1+ran)
				}
			})
		}
	}
}

// A failure neither spoils what is asked next nor is spoiled by what was asked before:
// a guard that fails about one thing denies that as often as it is asked, and judges
// the rest.
func TestFailureStaysOne(t *testing.T) {
	fine := question("acme")
	fine.Call.Tool = "dry_run" // a guest of these tests is good about it
	for name, ends := range map[string]hosttest.Ending{"traps": hosttest.Trap(), "recurses": hosttest.Recurse(), "exits": hosttest.Exit(0), "hoards": hosttest.Hoard(), "says nothing": hosttest.Return(0)} {
		g := guard(t, abi.Guard{}, hosttest.Guest{Good: allow(), Ends: ends}, patient)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 3 {
					if v, err := g.Judge(t.Context(), question("acme")); err == nil {
						t.Errorf("%s: said %+v", name, v)
					}
					if v, err := g.Judge(t.Context(), fine); err != nil || v.Ruling != abi.RulingAllow {
						t.Errorf("%s: about something else it said %+v, %v", name, v, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// Guards cannot add to what a call is granted, only take away.
func TestNarrowingGuards(t *testing.T) {
	grants := func(lines ...string) capability.Set {
		s, err := capability.ParseSet(lines)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for says, want := range map[string]string{
		`"verdict":"narrow","grants":["state read session:*"]`:                                   "state read session:*",
		`"verdict":"narrow","grants":["http GET,POST **","state read,write app:*","log"]`:        "log",
		`"verdict":"narrow","grants":[]`:                                                         "",
		`"verdict":"narrow"`:                                                                     "",
		`"verdict":"narrow","grants":["state read,write session:*","log","escalate","transfer"]`: "log; state read session:*",
	} {
		made := guard(t, abi.Guard{Phases: []abi.Phase{abi.PhaseCall}}, hosttest.Guest{Good: allow(), Says: hosttest.Verdict(says)}, patient)
		var got []string
		witness := flow.Spec{Grants: grants("state read session:*", "log")}
		d := run(t, witness, onlyTool{made}, sees{&got})
		if len(d.witness.Calls()) != 1 {
			t.Errorf("%s: the handler ran %d times: %s", says, len(d.witness.Calls()), d.response("c1"))
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: the result guard sees grants %q, want %q", says, got, want)
		}
	}
}

// The gates: what is found out before a guard is trusted.
func TestGates(t *testing.T) {
	withSettings := func(check bool) abi.Guard {
		return abi.Guard{Check: check, Settings: []byte(`{"type":"object","properties":{"max":{"type":"integer","minimum":1},"ask":{"type":"string"}},"additionalProperties":false}`)}
	}
	settingsOK := hosttest.Guest{Good: allow(), Says: says(`{"format":1}`)}
	for _, c := range []struct {
		name     string
		manifest *abi.Manifest
		guest    hosttest.Guest
		cfg      policies.Config
		want     string // of the error; "": it is taken
		settings bool   // a SettingsError
	}{
		{"good", manifest(abi.Guard{}), hosttest.Guest{Says: allow()}, policies.Config{}, "", false},
		{"good with settings", manifest(withSettings(true)), settingsOK, policies.Config{Settings: []byte(`{"max":5.0}`)}, "", false},
		{"good without settings", manifest(withSettings(true)), settingsOK, policies.Config{}, "", false},
		{"good without check", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{"max":5}`)}, "", false},
		{"no such guard", manifest(abi.Guard{}), hosttest.Guest{Says: allow()}, policies.Config{Name: "mine", Guard: "other"}, `guard mine: module policy`, false},
		{"asks for http", func() *abi.Manifest { m := manifest(abi.Guard{}); m.Requests = []string{"http GET **"}; return m }(), hosttest.Guest{Says: allow()}, policies.Config{},
			"guard guard: asks http GET **/*, which a guard may not have", false},
		{"asks for state", func() *abi.Manifest {
			m := manifest(abi.Guard{})
			m.Requests = []string{"log", "state read app:*"}
			return m
		}(), hosttest.Guest{Says: allow()}, policies.Config{},
			"guard guard: asks state read app:*, which a guard may not have", false},
		{"asks for the log", func() *abi.Manifest { m := manifest(abi.Guard{}); m.Requests = []string{"log"}; return m }(), hosttest.Guest{Says: allow()}, policies.Config{}, "", false},
		{"settings for a guard without", manifest(abi.Guard{}), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{}`)}, "settings: it takes none", true},
		{"settings of another type", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{"max":"5"}`)}, `/max: want a whole number, have text "5"`, true},
		{"settings out of bounds", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{"max":0}`)}, "minimum", true},
		{"a number for a text", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{"ask":1000}`)}, `/ask: want text, have number 1000`, true},
		{"unknown settings", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{"maximum":5}`)}, "settings: /maximum: not known", true},
		{"settings twice", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{"max":1,"max":2}`)}, "duplicate member name", true},
		{"settings that are no JSON", manifest(withSettings(false)), hosttest.Guest{Says: allow()}, policies.Config{Settings: []byte(`{`)}, "settings: document", true},
		{"its check refuses", manifest(withSettings(true)), hosttest.Guest{Good: allow(), Says: says(`{"format":1,"error":"max is odd"}`)}, policies.Config{}, "settings: max is odd", true},
		{"its check traps", manifest(withSettings(true)), hosttest.Guest{Good: allow(), Ends: hosttest.Trap()}, policies.Config{}, "guest_trap", false},
		{"its check says garbage", manifest(withSettings(true)), hosttest.Guest{Good: allow(), Says: says(`ok`)}, policies.Config{}, "check of its settings", false},
		{"its check says nothing of a format", manifest(withSettings(true)), hosttest.Guest{Good: allow(), Says: says(`{}`)}, policies.Config{}, "format 0", false},
		{"traps", manifest(abi.Guard{}), hosttest.Guest{Ends: hosttest.Trap()}, policies.Config{}, "guard guard: dry verdict in phase call: guest_trap", false},
		{"recurses", manifest(abi.Guard{}), hosttest.Guest{Ends: hosttest.Recurse()}, policies.Config{Limits: patient}, "guest_stack", false},
		{"loops", manifest(abi.Guard{}), hosttest.Guest{Ends: hosttest.Spin()}, policies.Config{Limits: patient}, "guest_fuel", false},
		{"says no verdict", manifest(abi.Guard{}), hosttest.Guest{Says: says(`{}`)}, policies.Config{}, "nonce", false},
		{"has no such export", manifest(abi.Guard{Export: "judge"}), hosttest.Guest{Says: allow()}, policies.Config{}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "has no such export" {
				engine, err := host.Open(t.Context(), host.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer engine.Close()
				if _, err := engine.Load(t.Context(), hosttest.Build(t, c.manifest, map[string]hosttest.Guest{"call": c.guest})); err == nil {
					t.Error("a guard without its export was loaded")
				}
				return
			}
			_, err := policies.New(t.Context(), load(t, c.manifest, c.guest), c.cfg)
			_, isSettings := errors.AsType[*policies.SettingsError](err)
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)), isSettings != c.settings:
				t.Errorf("error %v (about settings: %t), want %q (%t)", err, isSettings, c.want, c.settings)
			}
		})
	}
}

// What a manifest bounds is bounded, also for a guard, and no app gets more for it
// than the defaults.
func TestManifestLimits(t *testing.T) {
	talks := hosttest.Guest{Says: append([]hosttest.Piece{hosttest.Ask("log", `{"message":"a"}`), hosttest.Ask("log", `{"message":"b"}`)}, allow()...)}
	for _, c := range []struct {
		name  string
		asks  abi.Limits
		cfg   host.Limits
		guest hosttest.Guest
		want  string // "": within its limits
	}{
		{"none", abi.Limits{}, host.Limits{}, hosttest.Guest{Says: allow(), Ends: hosttest.Work(10_000)}, ""},
		{"fuel", abi.Limits{Fuel: 5_000}, host.Limits{}, hosttest.Guest{Says: allow(), Ends: hosttest.Work(10_000)}, "guest_fuel"},
		{"fuel that the app sets", abi.Limits{Fuel: 5_000}, host.Limits{Fuel: 1e6}, hosttest.Guest{Says: allow(), Ends: hosttest.Work(10_000)}, ""},
		{"more fuel than anybody gets", abi.Limits{Fuel: 1e12}, host.Limits{Wall: time.Minute}, hosttest.Guest{Says: allow(), Ends: hosttest.Spin()}, "guest_fuel"},
		{"memory", abi.Limits{MemoryBytes: 64 << 10}, host.Limits{}, hosttest.Guest{Says: allow()}, "guest_memory"},
		{"output", abi.Limits{OutputBytes: 100}, host.Limits{}, hosttest.Guest{Says: allow()}, "guest_output_too_large"},
		{"host calls", abi.Limits{HostCalls: 1}, host.Limits{}, talks, "host calls"},
		{"time", abi.Limits{WallMS: 1}, host.Limits{Fuel: 1e15}, hosttest.Guest{Says: allow(), Ends: hosttest.Spin()}, "dry verdict in phase call: no verdict: 1ms passed: guest_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := manifest(abi.Guard{})
			m.Limits, m.Requests = c.asks, []string{"log"}
			_, err := policies.New(t.Context(), load(t, m, c.guest), policies.Config{Limits: c.cfg})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// A guard's version changes with its code and its settings, so that an approval
// under others is none.
func TestVersion(t *testing.T) {
	g := abi.Guard{Settings: []byte(`{"type":"object"}`)}
	module := load(t, manifest(g), hosttest.Guest{Says: allow()})
	other := load(t, manifest(g), hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","code":"x"`)})
	seen := map[string]string{}
	for name, c := range map[string]struct {
		module   *host.Module
		settings string
	}{"plain": {module, `{}`}, "settings": {module, `{"a":1}`}, "settings with another number": {module, `{"a":1.0}`}, "code": {other, `{}`}} {
		made, err := policies.New(t.Context(), c.module, policies.Config{Settings: []byte(c.settings)})
		if err != nil {
			t.Fatal(err)
		}
		if before, there := seen[made.Version()]; there {
			t.Errorf("%s and %s have one version", name, before)
		}
		seen[made.Version()] = name
	}
	same, err := policies.New(t.Context(), module, policies.Config{Settings: []byte(" { } ")})
	if err != nil || seen[same.Version()] != "plain" {
		t.Errorf("blanks in settings change the version: %v", err)
	}
}

// A judgement can be made again: the same question, the same answer, down to time
// and randomness.
func TestJudgedAgain(t *testing.T) {
	made := guard(t, abi.Guard{}, hosttest.Guest{Good: allow(), Says: hosttest.Verdict(`"verdict":"deny","code":"no"`)}, patient)
	q := &abi.Question{Format: 1, Kind: abi.KindGuard, Phase: abi.PhaseCall, Nonce: strings.Repeat("a", 32), DocumentSHA256: abi.Digest([]byte("{}")), Now: "2026-03-02T09:00:00Z",
		Call: &abi.CallFacts{Tool: "tool", Args: []byte("{}")}}
	first, err := made.Judge(t.Context(), q)
	if err != nil || first.Ruling != abi.RulingDeny || first.Nonce != q.Nonce {
		t.Fatalf("verdict %+v, %v", first, err)
	}
	again, err := made.Judge(t.Context(), q)
	if err != nil || again.Ruling != first.Ruling || again.Code != first.Code {
		t.Errorf("verdict %+v, %v", again, err)
	}
	q.Now = "yesterday"
	if v, err := made.Judge(t.Context(), q); err == nil || v.Ruling != "" {
		t.Errorf("a question without time: %+v, %v", v, err)
	}
}

// A document that is longer than a guest may read is one that no guard in a guest can
// judge: it denies, in every phase, and the operator reads why. The host does not even
// begin the guest. What just fits is judged.
func TestDocumentTooLongForAGuest(t *testing.T) {
	const most = 4 << 20 // bytes of a question
	phases := []abi.Phase{abi.PhaseMessage, abi.PhaseRequest, abi.PhaseResponse, abi.PhaseCall, abi.PhaseResult}
	limits := patient
	limits.Fuel = 2_000_000_000 // to copy what fits
	made := guard(t, abi.Guard{Phases: phases}, hosttest.Guest{Good: allow(), Says: allow()}, limits)
	document := func(n int) json.RawMessage {
		return json.RawMessage(`{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}`)
	}
	for _, phase := range phases {
		q := abi.Question{Phase: phase, Now: "2026-03-02T10:00:00Z"}
		if phase == abi.PhaseCall || phase == abi.PhaseResult {
			q.Call = &abi.CallFacts{Tool: "tool", Args: json.RawMessage("{}")}
		}
		q.SetDocument(document(most + 1))
		if j := flow.Ask(t.Context(), made, q, time.Minute); j.Verdict.Ruling != abi.RulingDeny || j.Err == nil ||
			!strings.Contains(j.Err.Error(), "guest_memory") || !strings.Contains(j.Err.Error(), fmt.Sprintf("exceeds limit %d", most)) {
			t.Errorf("%s: %s, %v", phase, j.Verdict.Ruling, j.Err)
		}
		fits := most - 2048 // beside it stand its digest and who asks
		if phase == abi.PhaseMessage || phase == abi.PhaseCall {
			fits = 2 << 20 // its nonce comes behind it, and this guest looks no further
		}
		q.SetDocument(document(fits))
		if j := flow.Ask(t.Context(), made, q, time.Minute); j.Verdict.Ruling != abi.RulingAllow {
			t.Errorf("%s, of what fits: %s, %v", phase, j.Verdict.Ruling, j.Err)
		}
	}

	// In a run: the handler is not started, or its result is kept and not shown.
	made = guard(t, abi.Guard{}, hosttest.Guest{Good: allow(), Says: allow()}, patient)
	long := string(document(most))
	for name, c := range map[string]struct {
		args, result string
		ran          int
	}{"arguments": {long, okResponse, 0}, "a result": {`{"n":1}`, long, 1}} {
		witness := &flowtest.Tool{Do: func(*flow.ToolContext, flow.Permit) (flow.Outcome, error) {
			return flow.Outcome{Result: json.RawMessage(c.result)}, nil
		}}
		d := runCall(t, witness, c.args, made)
		if got := d.response("c1"); got != unavailable || len(witness.Calls()) != c.ran {
			t.Errorf("%s: the model reads %.100s, and the handler ran %d times", name, got, len(witness.Calls()))
		}
		denials := 0
		for _, r := range d.judged("guard") {
			if r.Action == "guard.deny" && r.Code == string(abi.PolicyUnavailable) && strings.Contains(r.Why, "guest_memory") {
				denials++
			}
		}
		if denials != 1 || d.response("c2") != okResponse {
			t.Errorf("%s: %d denials that say why in %+v; the sibling got %s", name, denials, d.judged("guard"), d.response("c2"))
		}
		calls, err := d.store.Calls(t.Context(), home)
		if err != nil {
			t.Fatal(err)
		}
		for _, stored := range calls {
			if stored.Tool == "tool" && (c.ran == 0 || len(stored.Result) != len(long)) {
				t.Errorf("%s: a call is stored with a result of %d bytes", name, len(stored.Result))
			}
		}
		if c.ran > 0 && len(calls) != 2 {
			t.Errorf("%s: %d calls are stored", name, len(calls))
		}
	}
}
