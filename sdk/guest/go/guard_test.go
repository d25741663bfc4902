package guest

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

type limits struct {
	Tool  string  `json:"tool" default:"pay_invoice"`
	Ask   Decimal `json:"ask_from"`
	Never Decimal `json:"deny_from"`
}

var paymentLimit = Guard[limits]{Name: "limit", Phases: []Phase{PhaseCall, PhaseResult}, Mutates: []Phase{PhaseResult},
	Check: func(s limits) error {
		if s.Ask.Cmp(s.Never) > 0 {
			return errors.New("ask_from is above deny_from, so nothing would ever be asked")
		}
		return nil
	},
	Judge: func(q *Question, s limits) Verdict {
		if q.Tool.Name != s.Tool {
			return Allow()
		}
		if q.Phase == PhaseResult {
			q.Result.Set("/secret", "[gone]")
			return Rewrite(q.Result)
		}
		amount, err := q.Args.Decimal("/amount")
		switch {
		case err != nil || amount.Sign() <= 0:
			return Deny("bad_amount", "the amount is not a positive decimal", Why{At: "/amount"})
		case amount.Cmp(s.Never) >= 0:
			return Deny("over_limit", "payments of "+s.Never.String()+" and more are not made here")
		case amount.Cmp(s.Ask) >= 0:
			return Confirm("Pay " + amount.String() + "?")
		}
		return Narrow("log")
	}}

func question(phase Phase, tool, args, result string) abi.Question {
	return abi.Question{Format: abi.Version, Kind: abi.KindGuard, Guard: "limit", Phase: phase, Nonce: "n1", DocumentSHA256: "d1", Now: "2026-03-01T09:00:00Z",
		Call: &abi.CallFacts{ID: "c1", Tool: tool, Known: true, Effects: Once, Module: "m", Args: json.RawMessage(args)}, Result: json.RawMessage(result),
		Settings: json.RawMessage(`{"ask_from":"1000","deny_from":5000.00}`)}
}

func judge(t *testing.T, s *server, q abi.Question) (string, error) {
	t.Helper()
	in, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.serve(&fakeWall{}, in)
	return string(out), err
}

func TestGuard(t *testing.T) {
	s := mustServer(t, paymentLimit)
	for _, c := range []struct {
		name string
		q    abi.Question
		want string
	}{
		{"another tool", question(PhaseCall, "other", `{}`, ""), `"verdict":"allow"}`},
		{"small", question(PhaseCall, "pay_invoice", `{"amount":"999.99"}`, ""), `"grants":["log"],"nonce":"n1","verdict":"narrow"}`},
		{"ask", question(PhaseCall, "pay_invoice", `{"amount":"1000.00"}`, ""), `"hint":"Pay 1000.00?"`},
		{"ask, as a number", question(PhaseCall, "pay_invoice", `{"amount":4999.999999999999999999}`, ""), `"hint":"Pay 4999.999999999999999999?"`},
		{"never", question(PhaseCall, "pay_invoice", `{"amount":5e3}`, ""), `"code":"over_limit"`},
		{"negative", question(PhaseCall, "pay_invoice", `{"amount":"-1"}`, ""), `"code":"bad_amount"`},
		{"absent", question(PhaseCall, "pay_invoice", `{}`, ""), `"why":[{"at":"/amount"}]`},
		{"rewrite", question(PhaseResult, "pay_invoice", `{}`, `{"n":1.0,"secret":"x"}`), `"document":{"n":1.0,"secret":"[gone]"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := judge(t, s, c.q)
			if err != nil || !strings.Contains(out, c.want) {
				t.Fatalf("got %s, error %v, want %s in it", out, err, c.want)
			}
			if _, err := abi.ParseVerdict([]byte(out), &c.q); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
		})
	}
}

func TestGuardKnowsTheQuestion(t *testing.T) {
	var got Question
	s := mustServer(t, Guard[struct{}]{Name: "limit", Phases: []Phase{PhaseCall}, Judge: func(q *Question, _ struct{}) Verdict { got = *q; return Allow() }})
	q := question(PhaseCall, "pay_invoice", `{"a":1}`, "")
	q.Tenant, q.App, q.Agent, q.User, q.Session, q.Run, q.Step = "acme", "desk", "clerk", User{ID: "u", Roles: []string{"r"}}, "s", "r", 2
	q.Call.DefinitionSHA256 = "d"
	q.Grants, q.Facts = []string{"log"}, Facts{Approved: &abi.Approval{By: "u2"}}
	if _, err := judge(t, s, q); err != nil {
		t.Fatal(err)
	}
	want := Question{Phase: PhaseCall, Now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), Tenant: "acme", App: "desk", Agent: "clerk",
		User: User{ID: "u", Roles: []string{"r"}}, Session: "s", Run: "r", Step: 2,
		Tool: CalledTool{ID: "c1", Name: "pay_invoice", Known: true, Effects: Once, Module: "m", Definition: "d"}, Args: Document{raw: json.RawMessage(`{"a":1}`)},
		Grants: []string{"log"}, Facts: Facts{Approved: &abi.Approval{By: "u2"}}, wall: got.wall}
	if got.wall == nil {
		t.Error("a question without a host")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	q.Call = nil
	if _, err := judge(t, s, q); err != nil || got.Args.Has("") || got.Tool.Name != "" {
		t.Errorf("no call: got %+v, error %v", got, err)
	}
}

// TestNoVerdictDenies checks that nothing a guard fails to say turns into a verdict
// that a host would accept.
func TestNoVerdictDenies(t *testing.T) {
	q := question(PhaseResult, "pay_invoice", `{}`, `{}`)
	for name, verdict := range map[string]func(q *Question) Verdict{
		"zero":                         func(*Question) Verdict { return Verdict{} },
		"zero with a reason":           func(*Question) Verdict { return Verdict{Reason: "r"} },
		"rewrite JSON cannot say":      func(*Question) Verdict { return Rewrite(math.NaN()) },
		"rewrite with a broken change": func(q *Question) Verdict { q.Result.Set("/no/such/place", 1); return Rewrite(q.Result) },
		"stray member":                 func(*Question) Verdict { v := Allow(); v.Reason = "r"; return v },
		"bad code":                     func(*Question) Verdict { return Deny("Bad Code", "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := mustServer(t, Guard[struct{}]{Name: "limit", Phases: []Phase{PhaseResult}, Judge: func(q *Question, _ struct{}) Verdict { return verdict(q) }})
			out, err := judge(t, s, q)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := abi.ParseVerdict([]byte(out), &q); err == nil {
				t.Fatalf("%s is the verdict %+v", out, v)
			}
		})
	}
	s := mustServer(t, paymentLimit)
	q.Settings = json.RawMessage(`{"ask_from":"a lot","deny_from":"1"}`)
	if out, err := judge(t, s, q); out != "" || err == nil || !strings.Contains(err.Error(), "guard limit: settings") {
		t.Errorf("settings that cannot be read: got %s, error %v", out, err)
	}
}

func TestSettings(t *testing.T) {
	s := mustServer(t, paymentLimit, Guard[struct{ N int }]{Name: "unchecked", Phases: []Phase{PhaseCall}, Judge: func(*Question, struct{ N int }) Verdict { return Allow() }})
	for _, c := range []struct{ guard, settings, want string }{
		{"limit", `{"ask_from":1,"deny_from":"2"}`, `{"format":1}`},
		{"limit", `{"ask_from":3,"deny_from":"2"}`, `{"error":"ask_from is above deny_from, so nothing would ever be asked","format":1}`},
		{"limit", `{"ask_from":"x","deny_from":"2"}`, `{"error":"settings: decimal \"x\": not a number as JSON writes it","format":1}`},
		{"unchecked", `{"N":1}`, `{"format":1}`},
		{"unchecked", `{"N":"1"}`, "cannot unmarshal string"},
	} {
		in, err := json.Marshal(abi.SettingsCall{Format: abi.Version, Kind: abi.KindSettings, Guard: c.guard, Settings: json.RawMessage(c.settings)})
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.serve(&fakeWall{}, in)
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: got %s, error %v, want %s", c.guard, c.settings, out, err, c.want)
		}
	}
	for _, g := range s.manifest.Guards {
		if !g.Check || g.Settings == nil {
			t.Errorf("guard %s does not say that it answers for its settings", g.Name)
		}
	}
}
