package policies_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// badGuards are the ways to be no guard, and what the record says of each.
var badGuards = []kind{
	{"traps", "guest_trap", hosttest.Guest{Says: allow(), Ends: hosttest.Trap()}},
	{"loops", "guest_fuel", hosttest.Guest{Says: allow(), Ends: hosttest.Spin()}},
	{"allows too late", "guest_fuel", hosttest.Guest{Says: allow(), Ends: hosttest.Work(400e6)}},
	{"no memory", "guest_memory", hosttest.Guest{Says: allow(), Ends: hosttest.Hoard()}},
	{"recurses", "guest_stack", hosttest.Guest{Says: allow(), Ends: hosttest.Recurse()}},
	{"exits 0", "guest_trap", hosttest.Guest{Ends: hosttest.Exit(0)}},
	{"allows and exits 0", "guest_trap", hosttest.Guest{Says: allow(), Ends: hosttest.Exit(0)}},
	{"returns 1", "return code 1", hosttest.Guest{Says: allow(), Ends: hosttest.Return(1)}},
	{"error set", "unsure", hosttest.Guest{Says: allow(), Ends: hosttest.Fail("unsure")}},
	{"silent", "guest_output_invalid", hosttest.Guest{Ends: hosttest.Return(0)}},
	{"null", "null is no object", hosttest.Guest{Says: says(`null`)}},
	{"true", "document", hosttest.Guest{Says: says(`true`)}},
	{"{}", "nonce is not the question's", hosttest.Guest{Says: says(`{}`)}},
	{"garbage", "not JSON", hosttest.Guest{Says: says("not a verdict")}},
	{"bad UTF-8", "not JSON", hosttest.Guest{Says: says("\xff\xfe")}},
	{"allow: \"true\"", `unknown member "allow"`, hosttest.Guest{Says: says(`{"allow":"true"}`)}},
	{"verdict: true", "document", hosttest.Guest{Says: hosttest.Verdict(`"verdict":true`)}},
	{"ALLOW", `"ALLOW" is no verdict`, hosttest.Guest{Says: hosttest.Verdict(`"verdict":"ALLOW"`)}},
	{"extra key", `unknown member "override"`, hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow","override":true`)}},
	{"key twice", "duplicate member name", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"deny","verdict":"allow"`)}},
	{"two verdicts", "bytes after the value", hosttest.Guest{Says: join(hosttest.Verdict(`"verdict":"deny"`), allow())}},
	{"a word behind it", "bytes after the value", hosttest.Guest{Says: join(allow(), says(" ok"))}},
	{"too long", "guest_output_too_large", hosttest.Guest{Says: join(allow(), []hosttest.Piece{hosttest.Blanks(1 << 20)})}},
	{"wrong nonce", "nonce is not the question's", hosttest.Guest{Says: echo(zeros[:32], "")}},
	{"empty nonce", "nonce is not the question's", hosttest.Guest{Says: join(says(`{"nonce":"","document_sha256":"`), []hosttest.Piece{hosttest.SHA256()}, says(`","verdict":"allow"}`))}},
	{"no nonce", "nonce is not the question's", hosttest.Guest{Says: join(says(`{"document_sha256":"`), []hosttest.Piece{hosttest.SHA256()}, says(`","verdict":"allow"}`))}},
	{"wrong digest", "document_sha256 is not the question's", hosttest.Guest{Says: echo("", zeros)}},
	{"rewrites", "which its manifest does not list", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"rewrite","document":{}`)}},
	{"widens", "", hosttest.Guest{Says: hosttest.Verdict(`"verdict":"narrow","grants":["http GET *"]`)}},
}

// lateGuards wait for what does not come before their time is over.
var lateGuards = []struct {
	kind
	wall time.Duration // of the guest; the run waits for a minute
}{
	{kind{"allows past its deadline", "guest_timeout: the tool did not finish in time: returned past the deadline", hosttest.Guest{Says: allow(), Ends: hosttest.Await("kv_get", `{"key":"a"}`)}}, 50 * time.Millisecond},
	{kind{"computes past its deadline", "guest_timeout: the tool did not finish in time: limit 50ms", hosttest.Guest{Says: []hosttest.Piece{hosttest.Ask("kv_get", `{"key":"a"}`)}, Ends: hosttest.Spin()}}, 50 * time.Millisecond},
	{kind{"allows past the run's deadline", "no verdict: 1m0s passed", hosttest.Guest{Says: allow(), Ends: hosttest.Await("kv_get", `{"key":"a"}`)}}, time.Hour},
}

// A kind is a way to be a guard.
type kind struct {
	name, cause string // a part of why a denial is recorded
	guest       hosttest.Guest
}

// deafKV is a store that answers when nobody waits any more.
type deafKV struct{ host.KV }

func (d deafKV) Scope(host.KVScope) host.KV { return d }

func (deafKV) Get(ctx context.Context, _ string) (json.RawMessage, bool, error) {
	<-ctx.Done()
	return nil, false, nil
}

var zeros = strings.Repeat("0", 64)

// echo is a verdict that allows; empty arguments are those of the question.
func echo(nonce, digest string) []hosttest.Piece {
	pieces := []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Text(nonce), hosttest.Text(`","document_sha256":"`), hosttest.Text(digest), hosttest.Text(`","verdict":"allow"}`)}
	if nonce == "" {
		pieces[1] = hosttest.Nonce()
	}
	if digest == "" {
		pieces[3] = hosttest.SHA256()
	}
	return pieces
}

// asBad is a guard that is as it is about what passes an entrance, once it is
// armed, and else allows.
type asBad struct {
	flow.Guard
	e     *entrance
	armed *atomic.Bool
}

func (asBad) Name() string { return "bad" }

func (g asBad) Judge(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
	if !g.armed.Load() || !g.e.meets(q) {
		return flowtest.Echo(q, abi.Allow()), nil
	}
	return g.Guard.Judge(ctx, q)
}

// meets reports whether a question is about what passes the entrance.
func (e *entrance) meets(q *abi.Question) bool {
	switch {
	case q.Call != nil:
		return q.Call.Tool == e.tool
	case q.Phase == abi.PhaseMessage && e.name == "task's message":
		return q.Agent == ofTheOuter // who has given the task
	}
	return q.Agent == e.agent
}

// chain is three guards with one of a kind among them.
func chain(e *entrance, phase abi.Phase, position int, g flow.Guard, armed *atomic.Bool) []flow.Guard {
	guards := []flow.Guard{policies.Func("good1", allowAll, phase), policies.Func("good2", allowAll, phase)}
	return slices.Insert(guards, position, flow.Guard(asBad{g, e, armed}))
}

// ofAKind makes guards of each phase that are of a kind, but not at the gates.
func ofAKind(t *testing.T, k kind, limits host.Limits) map[abi.Phase]flow.Guard {
	m := &abi.Manifest{ABI: abi.Version, Name: "policy", Version: "1", Requests: []string{"kv read"}}
	for _, p := range allPhases {
		m.Guards = append(m.Guards, abi.Guard{Name: string(p), Phases: []abi.Phase{p}})
	}
	k.guest.Good = allow()
	loaded := load(t, m, k.guest)
	guards := map[abi.Phase]flow.Guard{}
	for _, p := range allPhases {
		g, err := policies.New(t.Context(), loaded, policies.Config{Guard: string(p), Limits: limits, KV: deafKV{}})
		if err != nil {
			t.Fatal(err)
		}
		guards[p] = g
	}
	return guards
}
