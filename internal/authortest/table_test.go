package authortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A native guard is a Go function that may ask kv, rewrite and refuse settings.
type native struct {
	settings string
	phases   []abi.Phase
	mutates  []abi.Phase
	kv       host.KVStore
	judge    func(n *native, q *abi.Question) (abi.Verdict, error)
}

func (n *native) Name() string         { return "native" }
func (n *native) Version() string      { return "native" }
func (n *native) Phases() []abi.Phase  { return n.phases }
func (n *native) Mutates() []abi.Phase { return n.mutates }
func (n *native) scope(q *abi.Question) host.KV {
	return n.kv.Scope(host.KVScope{Tenant: q.Tenant, App: q.App, Owner: "guard native"})
}

func (n *native) Judge(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	v, err := n.judge(n, q)
	v.Nonce, v.DocumentSHA256 = q.Nonce, q.DocumentSHA256
	return v, err
}

// natively returns a Maker of native guards in two phases; settings that hold the
// key "bad" are refused.
func natively(judge func(n *native, q *abi.Question) (abi.Verdict, error)) Maker {
	return func(_ context.Context, settings json.RawMessage, kv host.KVStore, spent func(host.Receipt)) (flow.Guard, error) {
		if strings.Contains(string(settings), "bad") {
			return nil, fmt.Errorf("guard: %w", &policies.SettingsError{Err: errors.New("bad is above good")})
		}
		return &native{settings: string(settings), kv: kv, phases: []abi.Phase{abi.PhaseCall, abi.PhaseResponse, abi.PhaseMessage}, mutates: []abi.Phase{abi.PhaseResponse, abi.PhaseMessage},
			judge: func(n *native, q *abi.Question) (abi.Verdict, error) {
				spent(host.Receipt{Fuel: 10, WallUS: 2})
				return judge(n, q)
			}}, nil
	}
}

// problems runs a table and returns what went wrong, by row.
func problems(t *testing.T, make Maker, table string) map[string]string {
	t.Helper()
	parsed, err := ParseTable("t.table.yaml", []byte(table))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	_, err = parsed.Run(t.Context(), make, nil, func(r Result) {
		var list []string
		for _, p := range r.Problems {
			list = append(list, fmt.Sprintf("%s want %s got %s", p.What, p.Want, p.Got))
		}
		if r.OK != (len(list) == 0) {
			t.Errorf("row %s: OK %v with problems %q", r.Name, r.OK, list)
		}
		got[r.Name] = strings.Join(list, " | ")
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// judgeAmounts denies an amount of 100, asks from 10, and counts in kv.
func judgeAmounts(n *native, q *abi.Question) (abi.Verdict, error) {
	var args struct{ Amount, Boom, Count any }
	if q.Phase == abi.PhaseCall {
		if err := json.Unmarshal(q.Call.Args, &args); err != nil {
			return abi.Verdict{}, err
		}
	}
	switch {
	case args.Boom != nil:
		panic("boom")
	case args.Count != nil:
		_, added, err := n.scope(q).Add(context.Background(), q.User.ID, 1, 2, time.Hour)
		if err != nil {
			return abi.Deny("store", "the store is down"), nil
		}
		if !added {
			return abi.Deny("quota", "no more"), nil
		}
		return abi.Allow(), nil
	case args.Amount == "100":
		return abi.Deny("too_much", "100 is too much", abi.Why{At: "/amount", Saw: "100"}), nil
	case args.Amount == "10":
		return abi.Confirm("ask", "Pay 10?"), nil
	case len(q.Grants) > 0:
		return abi.Narrow("http GET a.example/*"), nil
	}
	return abi.Allow(), nil
}

// TestRows: each kind of row passes when the guard does what it wants, and says
// what came instead when it does not.
func TestRows(t *testing.T) {
	table := `
settings: {limit: 1}
base: {phase: call, call: {tool: pay}, user: {id: u-1}, now: "2026-01-01T00:00:00Z"}
rows:
  - [allowed, {args: {amount: "1"}}, allow]
  - [denied, {args: {amount: "100"}}, deny too_much]
  - [denied at, {args: {amount: "100"}}, {verdict: deny, reason: "^100 is", at: /amount}]
  - [asks, {args: {amount: "10"}}, {verdict: confirm, code: ask, hint: "^Pay 10"}]
  - [narrowed, {grants: ["http GET a.example/x", "http GET b.example/*"]}, {verdict: narrow, grants: ["http GET a.example/x"]}]
  - [no arguments at all, {args_text: '{"a":1,"a":2}'}, deny args_invalid]
  - [broken, {args: {boom: 1}}, deny policy_unavailable]
  - {name: refused, settings: {bad: 1}, refused: "above good$"}
  - {name: counted, steps: [[a, {args: {count: 1}}, allow], [b, {args: {count: 1}}, {verdict: allow, kv: {u-1: 2}}], [c, {args: {count: 1}}, deny quota], [d, {args: {count: 1}, user: {id: u-2}}, allow]]}
  - {name: counted again, question: {args: {count: 1}}, want: {verdict: allow, kv: {u-1: 1, u-2: null}}}
  - {name: at once, question: {args: {count: 1}}, parallel: 5, want: {allow: 2, deny: 3}}
  - {name: full, kv: {u-1: 2}, question: {args: {count: 1}}, want: deny quota}
  - [store down, {args: {count: 1}, kv: unavailable}, deny store]
  - {name: an hour later, steps: [[a, {args: {count: 1}}, allow], [b, {args: {count: 1}, now: "2026-01-01T01:00:00Z"}, {verdict: allow, kv: {u-1: 1}}]]}
`
	for name, got := range problems(t, natively(judgeAmounts), table) {
		if got != "" {
			t.Errorf("row %s: %s", name, got)
		}
	}
	wrong := `
base: {phase: call, args: {amount: "1"}}
rows:
  - [allowed, {}, deny too_much]
  - [another code, {args: {amount: "100"}}, deny other]
  - [a crash is no denial, {args: {boom: 1}}, deny]
  - [reason, {args: {amount: "100"}}, {verdict: deny, reason: "^no"}]
  - [hint, {args: {amount: "10"}}, {verdict: confirm, hint: "^no"}]
  - [at, {args: {amount: "100"}}, {verdict: deny, at: /sum}]
  - [grants, {grants: ["http GET a.example/x"]}, {verdict: narrow, grants: []}]
  - {name: accepted, settings: {good: 1}, refused: "above"}
  - {name: other words, settings: {bad: 1}, refused: "below"}
  - {name: not installed, settings: {bad: 1}, question: {}, want: allow}
  - {name: second step, steps: [[a, {}, allow], [b, {}, deny], [c, {}, deny]]}
  - {name: counts, question: {args: {count: 1}}, parallel: 3, want: {allow: 3}}
  - {name: stored, question: {args: {count: 1}}, want: {verdict: allow, kv: {u-1: 7}}}
  - {name: not stored, question: {}, want: {verdict: allow, kv: {u-1: 7}}}
  - [no such member, {call: {toool: x}}, allow]
  - [no such phase, {phase: lunch}, allow]
`
	want := map[string]string{
		"allowed":              "verdict want deny too_much got allow",
		"another code":         "verdict want deny other got deny too_much",
		"a crash is no denial": "verdict want deny got deny policy_unavailable (panic: boom)",
		"reason":               "reason want ^no got 100 is too much",
		"hint":                 "hint want ^no got Pay 10?",
		"at":                   "at want /sum got /amount",
		"grants":               "grants want  got http GET a.example/x",
		"accepted":             "settings want refused got accepted",
		"other words":          "refused want below got bad is above good",
		"not installed":        "guard want  got guard: settings: bad is above good",
		"second step":          "b: verdict want deny got allow",
		"counts":               "verdicts want allow 3 got allow 2, deny 1",
		"stored":               "kv u-1 want 7 got 1",
		"not stored":           "kv u-1 want 7 got nothing",
		"no such phase":        `question want  got phase "lunch": want one of call, response, message`,
	}
	got := problems(t, natively(judgeAmounts), wrong)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("row %s: got %q, want %q", name, got[name], text)
		}
	}
	if text := got["no such member"]; !strings.Contains(text, "toool") {
		t.Errorf("row no such member: got %q", text)
	}
}

// judgeText hides the word secret and keeps back what may be its beginning.
func judgeText(_ *native, q *abi.Question) (abi.Verdict, error) {
	text := textOf(judged(q))
	if strings.Contains(text, "bomb") {
		return abi.Deny("bomb", "no bombs"), nil
	}
	hold := 0
	for n := 1; n < len("secret") && q.Partial; n++ {
		if strings.HasSuffix(text, "secret"[:n]) {
			hold = n
		}
	}
	if !strings.Contains(text, "secret") {
		return abi.AllowBut(hold), nil
	}
	return abi.Rewrite(json.RawMessage(strings.ReplaceAll(string(judged(q)), "secret", "[hidden]"))), nil
}

// TestTexts: texts are judged as messages and responses, and streams as a run shows
// them.
func TestTexts(t *testing.T) {
	table := `
base: {phase: response}
rows:
  - [plain, {text: hello}, {verdict: allow, hold: 0}]
  - [partial, {text: hello s, partial: true}, {verdict: allow, hold: 1}]
  - [rewritten, {text: a secret}, {verdict: rewrite, text: "a [hidden]"}]
  - [message, {phase: message, text: a secret}, {verdict: rewrite, rewrite: {role: user, parts: [{text: "a [hidden]"}]}}]
  - [split, {chunks: [the se, cret is, " out"]}, {verdict: rewrite, chunks: ["the ", "[hidden] is", " out"]}]
  - [flows, {chunks: [the s, un]}, {verdict: allow, chunks: ["the ", sun]}]
  - [refused, {chunks: ["a ", bomb, now]}, {verdict: deny, code: bomb, chunks: ["a ", "", ""]}]
`
	for name, got := range problems(t, natively(judgeText), table) {
		if got != "" {
			t.Errorf("row %s: %s", name, got)
		}
	}
	wrong := `
base: {phase: response}
rows:
  - [hold, {text: hello s, partial: true}, {verdict: allow, hold: 0}]
  - [text, {text: a secret}, {verdict: rewrite, text: "a secret"}]
  - [split, {chunks: [the se, cret]}, {verdict: rewrite, chunks: ["the se", cret]}]
  - [call, {phase: call, text: hello}, allow]
  - [chunks of a message, {phase: message, chunks: [a]}, allow]
`
	want := map[string]string{
		"hold":                "hold want 0 got 1",
		"text":                "text want a secret got a [hidden]",
		"split":               `chunks want ["the se" "cret"] got ["the " "[hidden]"]`,
		"call":                "question want  got text: has no place in phase call",
		"chunks of a message": "question want  got 1 chunks in phase message: want one or more in phase response",
	}
	got := problems(t, natively(judgeText), wrong)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("row %s: got %q, want %q", name, got[name], text)
		}
	}
}

// TestParseTable: every mistake of a table is found, with its line.
func TestParseTable(t *testing.T) {
	for _, c := range []struct{ table, want string }{
		{"", "t.table.yaml:1: empty"},
		{"rows: 1", "t.table.yaml:1: rows: want a list"},
		{"base: {}", "t.table.yaml:1: table: rows missing"},
		{"rows: []\nrowz: []", "t.table.yaml:2: table: rowz: unknown key"},
		{"rows:\n- [a, {}]", "t.table.yaml:2: rows[0]: want [name, question, want]"},
		{"rows:\n- [a, {}, alow]", `t.table.yaml:2: row "a": want: "alow" is no verdict`},
		{"rows:\n- [a, {}, {code: x}]", `t.table.yaml:2: row "a": want: verdict missing`},
		{"rows:\n- [a, {fase: call}, allow]", `t.table.yaml:2: row "a": fase: unknown key`},
		{"rows:\n- [a, {args: {x: 1, x: 2}}, allow]", `row "a": args: line 2: key "x" is there twice`},
		{"rows:\n- [a, {args: {x: 0x10}}, allow]", `is not written as in JSON`},
		{"rows:\n- [a, {}, allow]\n- [a, {}, allow]", `t.table.yaml:3: row "a": there are two of that name`},
		{"rows:\n- {name: a, steps: [], question: {}}", "t.table.yaml:2: rows[0]: steps and question exclude each other"},
		{"rows:\n- {name: a, question: {}}", "t.table.yaml:2: rows[0]: want missing"},
		{"rows:\n- {question: {}, want: allow}", "t.table.yaml:2: rows[0]: name missing"},
		{"rows:\n- {name: a, parallel: 1, question: {}, want: {allow: 1}}", "t.table.yaml:2: rows[0].parallel: want a whole number from 2"},
		{"rows:\n- {name: a, parallel: 2, question: {}, want: {alow: 1}}", "t.table.yaml:2: rows[0].want: alow: unknown key"},
		{"rows:\n- [a, {kv: down}, allow]", "t.table.yaml:2: rows[0].kv: want unavailable, or an object of values"},
		{"base: {text: x}\nrows:\n- [a, {text: y}, allow]\n- [b, {message: {parts: []}}, allow]", `t.table.yaml:4: row "b": message.parts: the base has text, which stands for it`},
		{"base: {text: x}\nrows:\n- {name: a, steps: [[b, {request: {contents: []}}, allow]]}", `t.table.yaml:3: row "b": request.contents: the base has text, which stands for it`},
		{"base: {text: x}\nrows:\n- {name: a, question: {response: {content: {}}}, want: allow}", `t.table.yaml:3: row "a": response.content: the base has text, which stands for it`},
		{"base: {args_text: x}\nrows:\n- [a, {args: {}}, allow]", `t.table.yaml:3: row "a": call.args: the base has args_text, which stands for it`},
		{"base: {args_text: x}\nrows:\n- [a, {call: {args: {}}}, allow]", `t.table.yaml:3: row "a": call.args: the base has args_text, which stands for it`},
		{"base: {chunks: [x]}\nrows:\n- [a, {text: y}, allow]", `t.table.yaml:3: row "a": text: the base has chunks, which stands for it`},
		{"base: {chunks: [x]}\nrows:\n- [a, {response: {}}, allow]", `t.table.yaml:3: row "a": response: the base has chunks, which stands for it`},
		{"rows:\n- [a, {text: x, message: {parts: []}}, allow]", `t.table.yaml:2: row "a": text and message.parts exclude each other`},
		{"rows:\n- [a, {args: {}, args_text: x}, allow]", `t.table.yaml:2: row "a": args_text and call.args exclude each other`},
		{"rows:\n- [a, {}, {verdict: deny, reason: '('}]", `row "a": want.reason: error parsing regexp`},
		{"rows:\n- [a, {}, {verdict: narrow, grants: [nonsense]}]", `row "a": want.grants: `},
	} {
		_, err := ParseTable("t.table.yaml", []byte(c.table))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.table, err, c.want)
		}
	}
	for _, fits := range []string{ // each of these is of effect
		"base: {text: x}\nrows:\n- [a, {text: y, request: {config: {}}}, allow]\n- [b, {request: {config: {}}}, allow]\n- [c, {chunks: [x]}, allow]",
		"base: {args: {}, message: {parts: []}}\nrows:\n- [a, {args_text: x}, allow]\n- [b, {text: x}, allow]",
	} {
		if _, err := ParseTable("t.table.yaml", []byte(fits)); err != nil {
			t.Errorf("%q: %v", fits, err)
		}
	}
	table, err := ParseTable("t.table.json", []byte("{\n\"rows\": [\n[\"a\", {\"args\": {\"x\": 1e9}}, \"allow\"]]}"))
	if err != nil || table.Rows() != 1 || table.rows[0].line != 3 {
		t.Errorf("table in JSON: %+v, %v", table, err)
	}
	if _, err := ParseTable("t.table.json", []byte(`{"rows":[],"rows":[]}`)); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("key twice in JSON: %v", err)
	}
}
