package guestlang_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
)

// engine runs the examples of all tests, and loaded are those that it has compiled, by
// name and language.
var (
	engine *host.Engine
	loaded = map[string]*host.Module{}
)

func TestMain(m *testing.M) {
	host.Main()
	var err error
	if engine, err = host.Open(context.Background(), host.Config{}); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := engine.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// languages are those with an example of that name. The modules of Go are built here;
// the others are fixtures, so that this needs no other compiler.
func languages(name string) []string {
	if name == "order-limit" {
		return []string{"go", "c", "rust", "assemblyscript", "rego"}
	}
	return []string{"go", "c", "rust", "assemblyscript"}
}

// examples opens the example of that name in every language.
func examples(t *testing.T, name string) map[string]*host.Module {
	t.Helper()
	all := map[string]*host.Module{}
	for _, lang := range languages(name) {
		if all[lang] = loaded[name+" "+lang]; all[lang] != nil {
			continue
		}
		var wasm []byte
		var err error
		if lang == "go" {
			wasm, _, err = app.Modules{Engine: engine}.Build(t.Context(), source("go", name), nil)
		} else {
			wasm, err = os.ReadFile(filepath.Join("../../testdata/wasm", name+"-"+lang+".wasm"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[lang], err = engine.Load(t.Context(), wasm); err != nil {
			t.Fatalf("%s: %v", lang, err)
		}
		loaded[name+" "+lang] = all[lang]
	}
	return all
}

// source is the folder of a guest that the tables call.
func source(lang, name string) string {
	folder := "examples"
	if name == "calls" {
		folder = "testdata"
	}
	return filepath.Join("../../sdk/guest", lang, folder, name)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// failed reports a result that is not as it should be.
func failed(t *testing.T, what string, r authortest.Result) {
	t.Helper()
	for _, p := range r.Problems {
		t.Errorf("%s %q (line %d): %s: want %s, got %s", what, r.Name, r.Line, p.What, p.Want, p.Got)
	}
}

// TestToolsAgree calls the example tool of every language with the same cases. Large
// ones are made here.
func TestToolsAgree(t *testing.T) {
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, `{"name":"line %d","price":%d.5},`, i, i)
	}
	lines.WriteString(`{"name":"` + strings.Repeat("ä", 100_000) + `","price":0}`)
	long := fmt.Sprintf(`
  - {name: big, tool: price_order, args_text: %q,
     want: {result: {count: 2001, currency: EUR, highest: 1999.5, longest: %q}, logs: ["^2001 lines$"]}}
  - {name: deep, tool: price_order, args_text: '{"currency":"EUR","lines":[{"name":"a","price":%s}]}', want: {fail: bad_price}}
`, `{"currency":"EUR","lines":[`+lines.String()+`]}`, strings.Repeat("ä", 100_000), strings.Repeat("[", 60)+strings.Repeat("]", 60))
	cases, err := authortest.ParseCases("order.test.yaml", append(read(t, "testdata/order.test.yaml"), long...))
	if err != nil {
		t.Fatal(err)
	}
	for lang, module := range examples(t, "order") {
		t.Run(lang, func(t *testing.T) {
			ran, twins := 0, 0
			err := cases.Run(t.Context(), module, authortest.Bench{Dir: "testdata", Missing: true}, nil,
				func(r authortest.Result) { ran++; failed(t, "case", r) }, func(r authortest.Result) { twins++; failed(t, "twin", r) })
			if err != nil || ran != cases.Len() || twins != 1 {
				t.Errorf("%d cases and %d twins ran, error %v", ran, twins, err)
			}
		})
	}
}

// TestCallsAgree calls a tool of every SDK that uses what the examples do not: every
// host call, granted and refused, and what reads and changes documents.
func TestCallsAgree(t *testing.T) {
	const file = "calls.test.yaml"
	cases, err := authortest.ParseCases(file, read(t, filepath.Join("testdata", file)))
	if err != nil {
		t.Fatal(err)
	}
	for lang, module := range examples(t, "calls") {
		t.Run(lang, func(t *testing.T) {
			ran := 0
			err := cases.Run(t.Context(), module, authortest.Bench{Dir: "testdata", Missing: true}, nil,
				func(r authortest.Result) { ran++; failed(t, "case", r) }, func(r authortest.Result) { failed(t, "twin", r) })
			if err != nil || ran != cases.Len() {
				t.Errorf("%d cases ran, error %v", ran, err)
			}
		})
	}
}

// TestHooksAgree lets the example hook of every language loose on calls of its tool.
func TestHooksAgree(t *testing.T) {
	for lang, module := range examples(t, "order") {
		for _, c := range []struct{ name, config, args, want string }{
			{"changes", "CHF", `{"lines":[{"name":"a","price":9007199254740993}]}`, `{"count":1,"currency":"CHF","highest":9007199254740993,"longest":"a"}`},
			{"changes and keeps the rest", "größer \"€\" 🎉", `{"lines":[{"name":"\u0000","price":1.50},{"name":"","price":"2e0"}],"rate":false}`,
				`{"count":2,"currency":"größer \"€\" 🎉","highest":2e0,"longest":"\u0000"}`},
			{"leaves what is there", "CHF", `{"currency":"EUR","lines":[{"name":"a","price":1}]}`, `{"count":1,"currency":"EUR","highest":1,"longest":"a"}`},
			{"leaves an empty text", "CHF", `{"currency":"","lines":[{"name":"a","price":1}]}`, `{"count":1,"currency":"","highest":1,"longest":"a"}`},
			{"answers", "CHF", `{"currency":"none","lines":[]}`, `{"count":0}`},
			{"fails", "CHF", `{"currency":"???","lines":[]}`, `the currency "???" is not known`},
			{"has nothing to add", "", `{"lines":[]}`, `state_get: capability_denied: needs state read user:currency`},
		} {
			t.Run(lang+"/"+c.name, func(t *testing.T) {
				if got := hooked(t, module, c.config, c.args); got != c.want {
					t.Errorf("%s: got %s, want %s", c.args, got, c.want)
				}
			})
		}
	}
}

// hooked calls price_order with the hook of the same module before it, and returns its
// result or what the model reads of its failure.
func hooked(t *testing.T, module *host.Module, currency, args string) string {
	t.Helper()
	var values map[string]string
	if currency != "" {
		values = map[string]string{"currency": currency}
	}
	grants, err := capability.ParseSet([]string{"log"})
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := plugins.New(module, plugins.Config{Grants: grants, Ceiling: grants, Values: values,
		Hooks: plugins.HookConfig{Limits: host.Limits{Wall: time.Minute}}, Limits: host.Limits{Wall: time.Minute}}) // tests run on loaded machines
	if err != nil {
		t.Fatal(err)
	}
	key := session.Key{App: "a", User: "u", ID: "s"}
	store := session.NewMemory()
	if _, err := store.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	var ended flow.CallResult
	runner, err := flow.NewRunner(&flow.Agent{Name: "clerk", Tools: plugin.Tools()}, store, flow.Config{Hooks: []flow.Hooks{plugin.Hooks()},
		Observer: flow.Observer{Finished: func(_ flow.CallInfo, r flow.CallResult) { ended = r }}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := abi.Unmarshal([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range runner.Call(t.Context(), key, flow.DirectCall{Tool: "price_order", Args: v.(map[string]any)}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if ended.Err != nil {
		return ended.Response["error"].(string)
	}
	got, err := abi.Marshal(ended.Response)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// TestGuardsAgree asks the example guard of every language the same questions, and
// puts each through the fail-closed suite.
func TestGuardsAgree(t *testing.T) {
	const file = "order-limit.table.yaml"
	digits := "1" + strings.Repeat("0", 400)
	long := fmt.Sprintf(`
  - {name: a reason that is cut, settings: {ask_from: "1", deny_from: %q}, question: {args: {rate: true, lines: [{name: a, price: %s}]}}, want: {verdict: deny, reason: "^prices of 10{245}$", at: /lines/0/price}}
  - {name: big, question: {args_text: %q}, want: {verdict: confirm, hint: '^Order at 4000\.5\?$'}}
`, digits, "2"+digits, `{"rate":true,"lines":[`+strings.Repeat(`{"name":"größer","price":12.50},`, 600)+`{"name":"a","price":4000.5}]}`)
	table, err := authortest.ParseTable(file, append(read(t, filepath.Join("testdata", file)), long...))
	if err != nil {
		t.Fatal(err)
	}
	for lang, module := range examples(t, "order-limit") {
		t.Run(lang, func(t *testing.T) {
			var match func(string) bool
			left := 0
			if lang == "rego" {
				match = func(row string) bool {
					offered := !slices.ContainsFunc(beyondRego, func(begins string) bool { return strings.HasPrefix(row, begins) })
					if !offered {
						left++
					}
					return offered
				}
			}
			ran, checks := 0, 0
			answers, err := table.Run(t.Context(), authortest.ModuleGuard(module, table.Name, host.Limits{}), match, func(r authortest.Result) {
				ran++
				failed(t, "row", r)
			})
			if err != nil || ran+left != table.Rows() || left > 8 {
				t.Fatalf("%d rows ran and %d were left out, error %v", ran, left, err)
			}
			if err := authortest.FailClosed(t.Context(), module, table.Name, answers, func(r authortest.Result) {
				checks++
				failed(t, "fail-closed", r)
			}); err != nil || checks < 14 {
				t.Errorf("%d checks of the fail-closed suite, error %v", checks, err)
			}
		})
	}
}

// beyondRego is how the names of rows begin that ask for what the rule for Rego does
// not offer, or print a number, of which Rego keeps the value and not the text.
var beyondRego = []string{"narrow ", "rewrite ", "settings that would", "settings that are no", "text of a number"}

// TestFixturesAreTheExamples compares what fixtures say of themselves with the
// manifests beside the sources: one that was not built anew after a change shows here.
func TestFixturesAreTheExamples(t *testing.T) {
	if a, b := read(t, "../../sdk/guest/rego/examples/order-limit/sandboxd.rego"), read(t, "../../sdk/guest/rego/sandboxd.rego"); string(a) != string(b) {
		t.Error("the example in Rego has another sandboxd.rego than the SDK")
	}
	for name, file := range map[string]string{"order": "plugin.yaml", "calls": "plugin.yaml", "order-limit": "policy.yaml"} {
		for lang, module := range examples(t, name) {
			if lang == "go" {
				continue
			}
			want, err := app.ParseManifest(read(t, filepath.Join(source(lang, name), file)), source(lang, name))
			if err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(module.Manifest())
			if string(a) != string(b) {
				t.Errorf("%s-%s.wasm has the manifest %s, its source %s", name, lang, b, a)
			}
		}
	}
}

// TestParsersAgree has the example tool read answers of a service that are JSON, or
// nearly: what package abi refuses, no SDK may read, and the other way round.
func TestParsersAgree(t *testing.T) {
	bodies := []string{
		`{"rate":1}`, ` { "rate" : 1 , "a" : [ ] } `, "\t{\"rate\":-0.5e+3}\r\n", `{"rate":1,"":""}`, `{"r\u0061te":2}`, `{"a":{"rate":1},"rate":3}`, `{"rate":1,"x":"\ud83c\udf89"}`,
		`{"z":1,"y":2,"rate":1,"a":3}`, `{"rate":1,"a":[1,[2,{"b":[]}],"]"],"c":"}"}`, `{"rate":0}`, `{"rate":-0}`, `{"rate":1E5}`, "{\"rate\":1,\"x\":\"\u007f\u2028ä日🎉\"}",
		``, ` `, `{`, `}`, `[]`, `1`, `"rate"`, `null`, `{"rate":1`, `{"rate":1}}`, `{"rate":1},`, `{"rate":1} 1`, `{"rate":1,}`, `{,"rate":1}`, `{"rate" 1}`, `{"rate"::1}`, `{rate:1}`, `{'rate':1}`,
		`{"rate":01}`, `{"rate":1.}`, `{"rate":.5}`, `{"rate":+1}`, `{"rate":1e}`, `{"rate":1e+}`, `{"rate":--1}`, `{"rate":-}`, `{"rate":1_0}`, `{"rate":0x1}`, `{"rate":NaN}`, `{"rate":Infinity}`, `{"rate":1f}`,
		`{"rate":1,"x":tru}`, `{"rate":1,"x":nul}`, `{"rate":1,"x":truex}`, `{"rate":1,"x":TRUE}`, `{"rate":1,"x":[1,]}`, `{"rate":1,"x":[,1]}`, `{"rate":1,"x":[1 2]}`, `{"rate":1,"x":[1}`, `{"rate":1,"x":{]}`,
		`{"rate":1,"x":"\x"}`, `{"rate":1,"x":"\u12g4"}`, `{"rate":1,"x":"\u123"}`, `{"rate":1,"x":"\ud800"}`, `{"rate":1,"x":"\udc00"}`, `{"rate":1,"x":"\ud800\u0041"}`, `{"rate":1,"x":"\ud800x"}`,
		"{\"rate\":1,\"x\":\"\n\"}", "{\"rate\":1,\"x\":\"\x00\"}", "{\"rate\":1,\"x\":\"\xff\"}", "{\"rate\":1,\"x\":\"\xc0\x80\"}", "{\"rate\":1,\"x\":\"\xed\xa0\x80\"}", "{\"rate\":1,\"x\":\"\xf4\x90\x80\x80\"}",
		"{\"rate\":1,\"x\":\"\xe2\x82\"}", "\ufeff{\"rate\":1}", "{\"rate\":1}\x00", "{\"rate\":1}\v", "/**/{\"rate\":1}", `{"rate":1,"x":1,"x":2}`, `{"x":1,"rate":1,"x":2}`, `{"b":1,"a":1,"rate":1,"b":2}`,
		`{"rate":1,"a":{"x":1,"\u0078":2}}`, `{"rate":1,"\"":1,"\u0022":2}`, `{"rate":1,"a":[{"x":1,"x":1}]}`, `{"rate":1,"\ud83c\udf89":1,"🎉":2}`,
	}
	for _, deep := range []int{79, 80, 200_000} {
		bodies = append(bodies, `{"rate":1,"x":`+strings.Repeat("[", deep)+strings.Repeat("]", deep)+`}`)
	}
	const good = `{"b":[1,-2.5e3,{"x":"\u00e4\n\ud83c\udf89\\"},true,false,null],"a":"日本","rate":12.50,"":{}}`
	random := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		b := []byte(good)
		i := random.IntN(len(b))
		switch random.IntN(3) {
		case 0:
			b[i] = b[random.IntN(len(b))]
		case 1:
			b = slices.Delete(b, i, i+1)
		default:
			b = slices.Insert(b, i, b[random.IntN(len(b))])
		}
		bodies = append(bodies, string(b))
	}
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("format: 1\ndefaults: {grants: [log, \"http GET rates.example/v1/*\"], now: \"2026-03-01T09:00:00Z\", seed: 1}\ncases:\n")
	read := 0
	for i, body := range bodies {
		v, err := abi.Unmarshal([]byte(body))
		object, _ := v.(map[string]any)
		rate, number := object["rate"].(json.Number)
		want := `{error: guest_error, message: "^the rate service answered 200$"}`
		if err == nil && number {
			want = fmt.Sprintf(`{contains: {rate: %s}}`, rate)
			read++
		}
		cassette := fmt.Sprintf(`{"format":1,"exchanges":[{"request":{"method":"GET","url":"https://rates.example/v1/EUR","address":"93.184.216.34"},"response":{"status":200,"base64":%q}}]}`,
			base64.StdEncoding.EncodeToString([]byte(body)))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(cassette), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "  - {name: %q, tool: price_order, http: %d.json, args: {currency: EUR, rate: true, lines: [{name: a, price: 1}]}, want: %s}\n", fmt.Sprintf("%d %.80q", i, body), i, want)
	}
	if read < 60 || len(bodies)-read < 200 {
		t.Fatalf("%d of %d bodies can be read: the table says too little", read, len(bodies))
	}
	cases, err := authortest.ParseCases("bodies", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	for lang, module := range examples(t, "order") {
		t.Run(lang, func(t *testing.T) {
			err := cases.Run(t.Context(), module, authortest.Bench{Dir: dir, Missing: true}, nil,
				func(r authortest.Result) { failed(t, "body", r) }, func(authortest.Result) {})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
