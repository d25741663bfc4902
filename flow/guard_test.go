package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

var bothPhases = []abi.Phase{abi.PhaseCall, abi.PhaseResult}

func contains(s, part string) bool { return strings.Contains(s, part) }

const unavailable = "policy_unavailable: a policy could not decide, so the call was refused"

type judge = func(ctx context.Context, q *abi.Question) (abi.Verdict, error)

// told returns a judgement that edits an echoed verdict.
func told(edit func(q *abi.Question, v *abi.Verdict)) judge {
	return func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		v := flowtest.Echo(q, abi.Allow())
		edit(q, &v)
		return v, nil
	}
}

// A guard that gives anything but a well-formed verdict denies, whatever the
// others say.
func TestGuardFails(t *testing.T) {
	release := make(chan struct{})
	for _, c := range []struct {
		name    string
		judge   judge
		mutates bool
		only    abi.Phase // empty: both
		cause   string
	}{
		{name: "panics", judge: func(context.Context, *abi.Question) (abi.Verdict, error) { panic("lost it") }, cause: "panic: lost it"},
		{name: "panics with an error", judge: func(context.Context, *abi.Question) (abi.Verdict, error) { panic(errors.New("lost it")) }, cause: "panic: lost it"},
		{name: "dereferences nil", judge: func(context.Context, *abi.Question) (abi.Verdict, error) {
			var q *abi.Question
			return abi.Verdict{Nonce: q.Nonce}, nil
		}, cause: "nil pointer"},
		{name: "ends its goroutine", judge: func(context.Context, *abi.Question) (abi.Verdict, error) {
			runtime.Goexit()
			return abi.Verdict{}, nil
		}, cause: "nonce"},
		{name: "errs", judge: func(context.Context, *abi.Question) (abi.Verdict, error) {
			return abi.Verdict{}, errors.New("database is down")
		}, cause: "database is down"},
		{name: "errs and allows", judge: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			return flowtest.Echo(q, abi.Allow()), errors.New("database is down")
		}, cause: "database is down"},
		{name: "zero verdict", judge: func(context.Context, *abi.Question) (abi.Verdict, error) { return abi.Verdict{}, nil }, cause: "nonce"},
		{name: "echo only", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Ruling = "" }), cause: `"" is no verdict`},
		{name: "no nonce", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Nonce = "" }), cause: "nonce"},
		{name: "wrong nonce", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Nonce = strings.Repeat("0", 32) }), cause: "nonce"},
		{name: "no digest", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.DocumentSHA256 = "" }), cause: "document_sha256"},
		{name: "wrong digest", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.DocumentSHA256 = abi.Digest([]byte("other")) }), cause: "document_sha256"},
		{name: "digest in capitals", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.DocumentSHA256 = strings.ToUpper(v.DocumentSHA256) }), cause: "document_sha256"},
		{name: "unknown ruling", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Ruling = "maybe" }), cause: `"maybe" is no verdict`},
		{name: "ruling in capitals", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Ruling = "ALLOW" }), cause: `"ALLOW" is no verdict`},
		{name: "another format", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Format = 2 }), cause: "format 2"},
		{name: "allow with grants", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Grants = []string{"log"} }), cause: "grants has no place"},
		{name: "allow with a document", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Document = json.RawMessage(`{}`) }), cause: "document has no place"},
		{name: "allow with a reason", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Reason = "because" }), cause: "reason has no place"},
		{name: "allow with a hint", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Hint = "psst" }), cause: "hint has no place"},
		{name: "bad code", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Code = "Not OK" }), cause: "code"},
		{name: "too many whys", judge: told(func(_ *abi.Question, v *abi.Verdict) { v.Why = make([]abi.Why, abi.MaxWhy+1) }), cause: "why"},
		{name: "long reason", judge: told(func(_ *abi.Question, v *abi.Verdict) {
			v.Ruling, v.Reason = abi.RulingDeny, strings.Repeat("x", abi.MaxReasonChars+1)
		}), cause: "exceeds"},
		{name: "late", judge: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
			<-ctx.Done()
			return flowtest.Echo(q, abi.Allow()), nil
		}, cause: "no verdict: 2s passed"},
		{name: "never answers", judge: func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
			<-release
			return flowtest.Echo(q, abi.Allow()), nil
		}, cause: "no verdict: 2s passed"},
		{name: "gives up in time", judge: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
			<-ctx.Done()
			return abi.Verdict{}, ctx.Err()
		}, cause: "no verdict: 2s passed"},
		{name: "rewrites and may not", judge: told(func(_ *abi.Question, v *abi.Verdict) { *v = verdict(v, abi.Rewrite(json.RawMessage(`{}`))) }),
			cause: "which its manifest does not list"},
		{name: "rewrites to nothing", mutates: true, judge: told(func(_ *abi.Question, v *abi.Verdict) { *v = verdict(v, abi.Rewrite(nil)) }), cause: "rewrite without a document"},
		{name: "rewrites to null", mutates: true, judge: rewrite(`null`), cause: "want an object"},
		{name: "rewrites to a list", mutates: true, judge: rewrite(`[]`), cause: "want an object"},
		{name: "rewrites to two documents", mutates: true, judge: rewrite(`{}{}`), cause: "bytes after the value"},
		{name: "rewrites to no JSON", mutates: true, judge: rewrite(`{`), cause: "document"},
		{name: "rewrites with a name twice", mutates: true, judge: rewrite(`{"n":1,"n":2}`), cause: "duplicate member name"},
		{name: "rewrites against the schema", mutates: true, only: abi.PhaseCall, judge: rewrite(`{"n":"text"}`), cause: "integer"},
		{name: "narrows to no capability", only: abi.PhaseCall, judge: told(func(_ *abi.Question, v *abi.Verdict) { *v = verdict(v, abi.Narrow("everything")) }), cause: "everything"},
		{name: "narrows and allows in one line", judge: told(func(_ *abi.Question, v *abi.Verdict) { *v = verdict(v, abi.Narrow("log\nhttp GET **")) }), cause: "verdict"},
		{name: "narrows a result", only: abi.PhaseResult, judge: flowtest.Always(abi.Narrow("log")), cause: "no place in phase result"},
		{name: "confirms a result", only: abi.PhaseResult, judge: flowtest.Always(abi.Confirm("", "sure?")), cause: "no place in phase result"},
	} {
		for _, phase := range bothPhases {
			if c.only != "" && c.only != phase {
				continue
			}
			t.Run(c.name+" in "+string(phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release = make(chan struct{})
					defer close(release)
					guardFails(t, phase, c.mutates, c.judge, c.cause)
				})
			})
		}
	}
}

// verdict returns v with the echo of echoed.
func verdict(echoed *abi.Verdict, v abi.Verdict) abi.Verdict {
	v.Nonce, v.DocumentSHA256 = echoed.Nonce, echoed.DocumentSHA256
	return v
}

func rewrite(doc string) judge {
	return func(_ context.Context, q *abi.Question) (abi.Verdict, error) {
		return flowtest.Echo(q, abi.Rewrite(json.RawMessage(doc))), nil
	}
}

func guardFails(t *testing.T, phase abi.Phase, mutates bool, fails judge, cause string) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`), call("c2", "sibling", `{"n":1}`)))
	witness, sibling := tool("tool"), tool("sibling")
	witness.Describe.Input = schemaOf(t, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
	w.agent.Tools = []flow.Tool{witness, sibling}
	bad := &flowtest.Guard{Label: "bad", In: []abi.Phase{phase}, Answer: func(ctx context.Context, q *abi.Question) (abi.Verdict, error) {
		if q.Call.Tool == "sibling" {
			return flowtest.Echo(q, abi.Allow()), nil
		}
		return fails(ctx, q)
	}}
	if mutates {
		bad.Rewrite = bad.In
	}
	w.cfg.Limits.Guard = 2 * time.Second
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "good1", In: bothPhases}, bad, &flowtest.Guard{Label: "good2", In: bothPhases},
		&flowtest.Guard{Label: "good3", In: bothPhases, Rewrite: bothPhases}}
	var decided []*flow.Decision
	w.cfg.Observer.Decided = func(info flow.CallInfo, d *flow.Decision) {
		if info.ID == "c1" && d.Phase == phase {
			decided = append(decided, d)
		}
	}
	o := w.say("go")
	if got := o.errorOf("c1"); got != unavailable {
		t.Errorf("the model reads %q, want %q", got, unavailable)
	}
	ran := map[abi.Phase]int{abi.PhaseCall: 0, abi.PhaseResult: 1}[phase]
	if got := len(witness.Calls()); got != ran {
		t.Errorf("the handler ran %d times, want %d", got, ran)
	}
	if o.response("c2") != okResponse || o.final() != "done" {
		t.Errorf("sibling: %s, end: %q", o.response("c2"), o.final())
	}
	var records []string
	for _, r := range w.records("guard.") {
		if r.Call != "c1" {
			continue
		}
		records = append(records, r.Target+" "+r.Action)
		if r.Target == "bad" && (r.Code != string(abi.PolicyUnavailable) || !contains(r.Why, cause) || r.Why == "" || r.Module != "1") {
			t.Errorf("record %+v, want code %s, the guard's version, and why with %q", r, abi.PolicyUnavailable, cause)
		}
	}
	slices.Sort(records)
	want := []string{"bad guard.deny", "good1 guard.allow", "good2 guard.allow", "good3 guard.allow"}
	if phase == abi.PhaseResult { // the good ones had been asked about the call
		want = []string{"bad guard.deny", "good1 guard.allow", "good1 guard.allow", "good2 guard.allow", "good2 guard.allow", "good3 guard.allow", "good3 guard.allow"}
	}
	if !slices.Equal(records, want) {
		t.Errorf("records %q, want %q", records, want)
	}
	if len(decided) != 1 || decided[0].Ruling != abi.RulingDeny || len(decided[0].Judgements) != 4 {
		t.Errorf("observed %+v", decided)
	}
	if end := w.records("call.end"); len(end) != 2 || end[0].Code != string(abi.PolicyUnavailable) && end[1].Code != string(abi.PolicyUnavailable) {
		t.Errorf("ends %+v", end)
	}
}

// What a guard may say, in each phase, and what comes of it.
func TestGuardRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		phase   abi.Phase
		mutates bool
		judge   judge
		ran     string // arguments of the handler, "" if it did not run
		want    string
	}{
		{"allow", abi.PhaseCall, false, flowtest.Always(abi.Allow()), `{"n":1}`, okResponse},
		{"allow with a code and whys", abi.PhaseCall, false, flowtest.Always(abi.Verdict{Format: 1, Ruling: abi.RulingAllow, Code: "fine", Why: []abi.Why{{Rule: "r"}}}), `{"n":1}`, okResponse},
		{"allow a result", abi.PhaseResult, false, flowtest.Always(abi.Allow()), `{"n":1}`, okResponse},
		{"deny", abi.PhaseCall, false, flowtest.Always(abi.Deny("no", "")), "", `{"error":"policy_denied: a policy refused this call"}`},
		{"deny with a reason", abi.PhaseCall, false, flowtest.Always(abi.Deny("no", "not\u202e on Sunday")), "", `{"error":"policy_denied: not\\u202e on Sunday"}`},
		{"deny a result", abi.PhaseResult, false, flowtest.Always(abi.Deny("no", "secret")), `{"n":1}`, `{"error":"policy_denied: secret"}`},
		{"rewrite", abi.PhaseCall, true, rewrite(` {"n" : 2} `), `{"n":2}`, okResponse},
		{"rewrite to nothing at all", abi.PhaseCall, true, rewrite(`{}`), `{}`, okResponse},
		{"rewrite a result", abi.PhaseResult, true, rewrite(`{"n":1.0}`), `{"n":1}`, `{"n":1.0}`},
		{"narrow", abi.PhaseCall, false, flowtest.Always(abi.Narrow()), `{"n":1}`, okResponse},
		{"confirm", abi.PhaseCall, false, flowtest.Always(abi.Confirm("big", "sure?")), "", `{"error":"error tool \"tool\" requires confirmation, please approve or reject"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{"n":1}`)))
			witness := tool("tool")
			w.agent.Tools = []flow.Tool{witness}
			g := &flowtest.Guard{Label: "guard", In: []abi.Phase{c.phase}, Answer: c.judge}
			if c.mutates {
				g.Rewrite = g.In
			}
			w.cfg.Guards = []flow.Guard{g}
			o := w.say("go")
			if got := strings.Join(witness.Calls(), " "); got != c.ran {
				t.Errorf("the handler got %q, want %q", got, c.ran)
			}
			if got := o.response("c1"); got != c.want {
				t.Errorf("the model reads %s, want %s", got, c.want)
			}
		})
	}
}

func TestWorstVerdictWins(t *testing.T) {
	all := map[string]judge{
		"allow": flowtest.Always(abi.Allow()), "narrow": flowtest.Always(abi.Narrow()), "confirm": flowtest.Always(abi.Confirm("", "sure?")),
		"deny": flowtest.Always(abi.Deny("no", "no")), "fail": func(context.Context, *abi.Question) (abi.Verdict, error) { panic("x") },
	}
	for _, c := range []struct{ verdicts, want string }{
		{"allow allow", okResponse},
		{"allow narrow", okResponse},
		{"narrow confirm", "requires confirmation"},
		{"confirm allow narrow", "requires confirmation"},
		{"confirm deny", "policy_denied: no"},
		{"deny confirm allow", "policy_denied: no"},
		{"narrow fail", "policy_unavailable"},
		{"confirm fail", "policy_unavailable"},
		{"fail deny", "policy_denied: no"},
		{"deny fail", "policy_denied: no"},
	} {
		t.Run(c.verdicts, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			w.agent.Tools = []flow.Tool{tool("tool")}
			for i, v := range strings.Fields(c.verdicts) {
				w.cfg.Guards = append(w.cfg.Guards, &flowtest.Guard{Label: fmt.Sprint("guard", i), Answer: all[v]})
			}
			o := w.say("go")
			if got := o.response("c1"); !contains(got, c.want) {
				t.Errorf("the model reads %s, want %s", got, c.want)
			}
			if got, want := len(w.records("guard.")), len(w.cfg.Guards); got != want {
				t.Errorf("%d judgements were recorded, want %d: every guard is asked", got, want)
			}
		})
	}
}

func TestHintsOfAllGuards(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "a", Answer: flowtest.Always(abi.Confirm("", "Over 100."))},
		&flowtest.Guard{Label: "b", Answer: flowtest.Always(abi.Confirm("", "On a Sunday."))}}
	q := w.say("go").questions()[0]
	if got := toJSON(t, q.Args["toolConfirmation"]); got != `{"confirmed":false,"hint":"Over 100. On a Sunday.","payload":null}` {
		t.Errorf("asked %s", got)
	}
}

func TestQuestionToGuards(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 5, time.UTC)
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"b":1,"a":2}`), call("c2", "unknown", ``)))
	witness := tool("tool")
	witness.Describe.Effects, witness.Describe.Module = abi.Idempotent, "sha256:1234"
	w.agent.Tools = []flow.Tool{witness}
	w.cfg.Now = func() time.Time { return now }
	g := &flowtest.Guard{Label: "guard", In: bothPhases}
	w.cfg.Guards = []flow.Guard{g}
	w.cfg.Limits.Parallel = 1
	in := flow.Text("go")
	in.Roles = []string{"clerk"}
	w.run(in)
	asked := g.Asked()
	if len(asked) != 4 {
		t.Fatalf("%d questions", len(asked))
	}
	nonces := map[string]bool{}
	for i, q := range asked {
		if len(q.Nonce) != 32 || nonces[q.Nonce] {
			t.Errorf("question %d has nonce %q", i, q.Nonce)
		}
		nonces[q.Nonce] = true
		if q.Format != abi.Version || q.Kind != abi.KindGuard || q.Guard != "guard" || q.Now != "2026-03-02T09:00:00.000000005Z" || q.Tenant != "acme" ||
			q.App != "shop" || q.Agent != "agent" || q.Session != "s1" || q.Step != 1 || q.User.ID != "ada" || !slices.Equal(q.User.Roles, in.Roles) {
			t.Errorf("question %d: %+v", i, q)
		}
	}
	for i, want := range []abi.CallFacts{
		{ID: "c1", Tool: "tool", Known: true, Effects: abi.Idempotent, Module: "sha256:1234", Args: json.RawMessage(`{"a":2,"b":1}`)},
		{ID: "c1", Tool: "tool", Known: true, Effects: abi.Idempotent, Module: "sha256:1234", Args: json.RawMessage(`{"a":2,"b":1}`)},
		{ID: "c2", Tool: "unknown", Effects: abi.Once, Args: json.RawMessage(`{}`)},
		{ID: "c2", Tool: "unknown", Effects: abi.Once, Args: json.RawMessage(`{}`)},
	} {
		if want.Known { // what the model is told of it: its name and that it takes any object
			var err error
			if want.DefinitionSHA256, err = abi.Definition("tool", "", json.RawMessage(`{"type":"object"}`), nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := toJSON(t, asked[i].Call); got != toJSON(t, want) {
			t.Errorf("question %d: call %s, want %s", i, got, toJSON(t, want))
		}
	}
	if string(asked[1].Result) != okResponse || asked[1].DocumentSHA256 != abi.Digest([]byte(okResponse)) || asked[0].Result != nil {
		t.Errorf("result %s, digest %s", asked[1].Result, asked[1].DocumentSHA256)
	}
}

// A result that a hook made is judged like any other, and a guard always sees
// what the call was.
func TestResultOfHooksIsJudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		hooks flow.Hooks
		args  string
		want  string
	}{
		{"answered", flow.Hooks{BeforeTool: func(*flow.ToolContext, *flow.ToolCall) (map[string]any, error) {
			return map[string]any{"by": []string{"hook"}}, nil
		}}, `{"n":1}`, `{"by":["hook"]}`},
		{"mended", flow.Hooks{OnToolError: func(*flow.ToolContext, *flow.ToolCall, error) (map[string]any, error) {
			return map[string]any{"by": "hook"}, nil
		}}, `{"n":"bad"}`, `{"by":"hook"}`},
		{"replaced", flow.Hooks{AfterTool: func(*flow.ToolContext, *flow.ToolCall, map[string]any, error) (map[string]any, error) {
			return map[string]any{"by": "hook"}, nil
		}}, `{"n":1}`, `{"by":"hook"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, flowtest.Call(call("c1", "tool", c.args)))
			witness := tool("tool")
			witness.Describe.Input = schemaOf(t, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
			w.agent.Tools = []flow.Tool{witness}
			g := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseResult}}
			w.cfg.Guards = []flow.Guard{g}
			w.cfg.Hooks = []flow.Hooks{c.hooks}
			o := w.say("go")
			q := g.Asked()[0]
			if o.response("c1") != c.want || string(q.Result) != c.want || string(q.Call.Args) != c.args {
				t.Errorf("response %s, guard saw %s of %s; want %s of %s", o.response("c1"), q.Result, q.Call.Args, c.want, c.args)
			}
		})
	}
}

// What a handler or a hook says is judged, also if it says what the gate for people
// does.
func TestErrorsAreJudged(t *testing.T) {
	for _, code := range []abi.Code{abi.ToolError, abi.ConfirmationPending, abi.ConfirmationRejected} {
		for _, hooked := range []bool{false, true} {
			fails := &flow.CallError{Code: code, Text: "the secret"}
			w := newWorld(t, flowtest.Call(call("c1", "tool", `{}`)))
			w.agent.Tools = []flow.Tool{handler("tool", func(*flow.ToolContext, json.RawMessage) (string, error) { return "", fails })}
			if hooked {
				w.cfg.Hooks = []flow.Hooks{{BeforeTool: func(*flow.ToolContext, *flow.ToolCall) (map[string]any, error) { return nil, fails }}}
			}
			w.cfg.Guards = []flow.Guard{&flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseResult}, Answer: noSecret}}
			if got := w.say("go").response("c1"); got != `{"error":"policy_denied: say no secrets"}` {
				t.Errorf("%s, by a hook: %t: the model reads %s", code, hooked, got)
			}
		}
	}
}

// A guard that would never be asked is no guard.
func TestGuardsThatCannotBe(t *testing.T) {
	nothing := &flowtest.Guard{Label: "g"}
	for _, c := range []struct {
		name   string
		guards []flow.Guard
		want   string
	}{
		{"twice", []flow.Guard{nothing, &flowtest.Guard{Label: "g"}}, "guard g: there are two of that name"},
		{"no phases", []flow.Guard{phaseless{nothing}}, "guard g: no phases"},
		{"unknown phase", []flow.Guard{&flowtest.Guard{Label: "g", In: []abi.Phase{abi.PhaseCall, "cal"}}}, `guard g: phase "cal": unknown`},
		{"mutates elsewhere", []flow.Guard{&flowtest.Guard{Label: "g", Rewrite: []abi.Phase{abi.PhaseResult}}}, `guard g: mutates "result", which is not one of its phases`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := flow.NewRunner(&flow.Agent{Name: "a"}, session.NewMemory(), flow.Config{Guards: c.guards})
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	t.Run("nil", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("a nil guard was taken")
			}
		}()
		_, _ = flow.NewRunner(&flow.Agent{Name: "a"}, session.NewMemory(), flow.Config{Guards: []flow.Guard{nil}})
	})
}

type phaseless struct{ *flowtest.Guard }

func (phaseless) Phases() []abi.Phase { return nil }

// What the host finds of its secrets is a fact of each question about what it
// found it in.
func TestSecretHitsAreFacts(t *testing.T) {
	w := newWorld(t, flowtest.Call(call("c1", "tool", `{"q":"hush"}`), call("c2", "tool", `{"q":"well"}`)))
	w.agent.Tools = []flow.Tool{tool("tool")}
	g := &flowtest.Guard{Label: "guard", In: []abi.Phase{abi.PhaseCall}}
	w.cfg.Guards = []flow.Guard{g}
	w.cfg.Limits.Parallel = 1
	w.cfg.SecretHits = func(document json.RawMessage) []abi.SecretHit {
		if string(document) == `{"q":"hush"}` {
			return slices.Repeat([]abi.SecretHit{{Name: "BANK", At: "/q"}}, abi.MaxSecretHits+1)
		}
		return nil
	}
	w.run(flow.Text("go"))
	asked := g.Asked()
	if len(asked) != 2 || len(asked[0].Facts.SecretHits) != abi.MaxSecretHits || asked[0].Facts.SecretHits[0] != (abi.SecretHit{Name: "BANK", At: "/q"}) ||
		asked[1].Facts.SecretHits != nil {
		t.Fatalf("%+v", asked)
	}
}
