package policies_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/audit"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// counting is a guard whose verdict holds what kv answered. It does so at the
// gates, too.
func counting(asks ...hosttest.Piece) hosttest.Guest {
	pieces := []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Nonce(), hosttest.Text(`","document_sha256":"`), hosttest.SHA256(),
		hosttest.Text(`","verdict":"rewrite","document":{"kv":[0`)}
	return hosttest.Guest{Says: join(pieces, asks, says(`]}}`))}
}

var (
	comma  = hosttest.Text(",")
	addOne = hosttest.Ask("kv_add", `{"key":"n","n":1,"most":2,"ttl_ms":60000}`)
)

func kvGuard(t testing.TB, guest hosttest.Guest, cfg policies.Config, requests ...string) *policies.Guard {
	t.Helper()
	m := manifest(abi.Guard{Phases: both, Mutates: both})
	m.Requests = requests
	cfg.Limits = patient
	g, err := policies.New(t.Context(), load(t, m, guest), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func question(tenant string) *abi.Question {
	return &abi.Question{Format: 1, Kind: abi.KindGuard, Phase: abi.PhaseCall, Nonce: strings.Repeat("a", 32), DocumentSHA256: abi.Digest([]byte("{}")),
		Now: "2026-03-02T09:00:00Z", Tenant: tenant, App: "desk", Session: "s1", Run: "r1", Call: &abi.CallFacts{ID: "c1", Tool: "tool", Args: []byte("{}")}}
}

func answer(t testing.TB, v abi.Verdict, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(v.Document)
}

// A guard counts with one step that has a ceiling. What kv answered is recorded, and
// with the record the question is judged again: the same verdict, and nothing
// counted.
func TestGuardCounts(t *testing.T) {
	log, kv := audit.NewMemory(), host.NewMemoryKV(nil)
	g := kvGuard(t, counting(comma, addOne), policies.Config{KV: kv, Audit: log}, "kv write")
	var verdicts []string
	for range 3 {
		v, err := g.Judge(t.Context(), question("acme"))
		verdicts = append(verdicts, answer(t, v, err))
	}
	want := []string{`{"kv":[0,{"added":true,"count":1}]}`, `{"kv":[0,{"added":true,"count":2}]}`, `{"kv":[0,{"added":false,"count":2}]}`}
	if got := strings.Join(verdicts, " "); got != strings.Join(want, " ") {
		t.Errorf("verdicts %s", got) // and the gates counted nothing
	}
	records := log.Records()
	if len(records) != 3 {
		t.Fatalf("records %+v", records)
	}
	for i, r := range records {
		if r.Action != "guard.kv" || r.Target != "guard" || r.Tenant != "acme" || r.Session != "s1" || r.Run != "r1" || r.Call != "c1" || r.ArgsSHA256 != abi.Digest([]byte("{}")) || r.Module != g.Version() {
			t.Errorf("record %+v", r)
		}
		v, err := g.JudgeAgain(t.Context(), question("acme"), []byte(r.Why))
		if got := answer(t, v, err); got != want[i] {
			t.Errorf("judged again: %s, want %s", got, want[i])
		}
	}
	for _, why := range []string{"", `[]`, `[{"call":"kv_get","key":"n"}]`, `[{"call":"kv_add","key":"m","count":{"added":true,"count":1}}]`, `[{}]`, `{}`} {
		if v, err := g.JudgeAgain(t.Context(), question("acme"), []byte(why)); err == nil || v.Ruling != "" {
			t.Errorf("judged again with %q: %+v", why, v)
		}
	}
	if len(log.Records()) != 3 {
		t.Error("judging again was recorded")
	}
	v, err := g.Judge(t.Context(), question("other"))
	if got := answer(t, v, err); got != want[0] {
		t.Errorf("another tenant's counter: %s", got)
	}
	other := kvGuard(t, counting(comma, addOne), policies.Config{Name: "twin", KV: kv, Audit: log}, "kv write")
	v, err = other.Judge(t.Context(), question("acme"))
	if got := answer(t, v, err); got != want[0] {
		t.Errorf("another guard's counter: %s", got)
	}
}

// Failures of kv are answers, too, and come again.
func TestGuardIsAnswered(t *testing.T) {
	log, kv := audit.NewMemory(), host.NewMemoryKV(nil)
	g := kvGuard(t, counting(hosttest.Ask("kv_set", `{"key":"n","value":"x"}`), comma, addOne, comma, hosttest.Ask("kv_get", `{"key":"n"}`),
		hosttest.Ask("kv_delete", `{"key":"n"}`), comma, hosttest.Ask("kv_get", `{"key":"n"}`)),
		policies.Config{KV: kv, Audit: log}, "kv read,write")
	v, err := g.Judge(t.Context(), question("acme"))
	first := answer(t, v, err)
	if !strings.Contains(first, "is no counter") || !strings.Contains(first, `{"found":true,"value":"x"}`) || !strings.Contains(first, `{"found":false}`) {
		t.Errorf("verdict %s", first)
	}
	v, err = g.JudgeAgain(t.Context(), question("acme"), []byte(log.Records()[0].Why))
	if again := answer(t, v, err); again != first {
		t.Errorf("judged again: %s, want %s", again, first)
	}
}

type brokenLog struct{}

func (brokenLog) Append(context.Context, audit.Record) error { return errors.New("disk is full") }

type downKV struct{}

func (downKV) Scope(host.KVScope) host.KV { return downKV{} }
func (downKV) Get(context.Context, string) (json.RawMessage, bool, error) {
	return nil, false, errors.New("down")
}
func (downKV) Set(context.Context, string, json.RawMessage, time.Duration) error {
	return errors.New("down")
}
func (downKV) Delete(context.Context, string) error { return errors.New("down") }
func (downKV) Add(context.Context, string, int64, int64, time.Duration) (int64, bool, error) {
	return 0, false, errors.New("down")
}

// Without the grant, without a store, or with one that is down, a guard reads so
// and the run goes on; what cannot be recorded is no verdict.
func TestGuardWithoutKV(t *testing.T) {
	kv := host.NewMemoryKV(nil)
	for name, c := range map[string]struct {
		cfg     policies.Config
		request string
		want    string
	}{
		"no grant":       {policies.Config{KV: kv}, "log", "needs kv write"},
		"the other verb": {policies.Config{KV: kv}, "kv read", "needs kv write"},
		"no store":       {policies.Config{}, "kv write", "needs kv write"},
		"a store down":   {policies.Config{KV: downKV{}}, "kv write", "storage_unavailable"},
		"no log":         {policies.Config{KV: kv}, "kv write", `"added":true`},
	} {
		g := kvGuard(t, counting(comma, addOne), c.cfg, c.request)
		d := run(t, flow.Spec{}, onlyTool{g})
		if got := strings.Join(d.witness.Calls(), " "); !strings.Contains(got, c.want) {
			t.Errorf("%s: the handler got %s, want %s", name, got, c.want)
		}
	}
	g := kvGuard(t, counting(comma, addOne), policies.Config{KV: kv, Audit: brokenLog{}}, "kv write")
	d := run(t, flow.Spec{}, onlyTool{g})
	if len(d.witness.Calls()) != 0 || d.response("c1") != unavailable || d.response("c2") != okResponse {
		t.Errorf("no record: the handler got %q, the model reads %s", d.witness.Calls(), d.response("c1"))
	}
	big := json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)
	get := hosttest.Ask("kv_get", `{"key":"big"}`)
	g = kvGuard(t, counting(comma, get, comma, get), policies.Config{KV: kv, Audit: audit.NewMemory()}, "kv read")
	if err := kv.Scope(host.KVScope{Tenant: "acme", App: "desk", Owner: "guard guard"}).Set(t.Context(), "big", big, 0); err != nil {
		t.Fatal(err)
	}
	if v, err := g.Judge(t.Context(), question("acme")); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") || v.Ruling != "" {
		t.Errorf("more than is recorded: %v %v", v.Ruling, err)
	}
}

type brokenKV struct{ downKV }

func (k brokenKV) Scope(host.KVScope) host.KV { return k }
func (brokenKV) Add(context.Context, string, int64, int64, time.Duration) (int64, bool, error) {
	panic("a bug of the store")
}

// A guard in whose question the host broke denies, and the record says that the host failed and not the guard.
func TestGuardOfBrokenHost(t *testing.T) {
	g := kvGuard(t, counting(comma, addOne), policies.Config{KV: brokenKV{}}, "kv write")
	d := run(t, flow.Spec{}, onlyTool{g})
	if n := len(d.witness.Calls()); n != 0 || d.response("c1") != unavailable {
		t.Errorf("the handler was started %d times, the model reads %s", n, d.response("c1"))
	}
	if r := d.judged("guard"); len(r) == 0 || r[0].Decision != "deny" || r[0].Code != string(abi.PolicyUnavailable) ||
		!strings.Contains(r[0].Why, string(abi.OutcomeUnknown)) || !strings.Contains(r[0].Why, "host function kv_add failed, and no guest: a bug of the store") {
		t.Errorf("audited %+v", r)
	}
}
