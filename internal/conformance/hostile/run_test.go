package hostile

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/host"
)

// childVar says what this test binary does when it is a child.
const childVar = "HOSTILE_TEST_CHILD"

func TestMain(m *testing.M) {
	host.Main()
	args := os.Args[1:]
	switch os.Getenv(childVar) {
	case "":
		goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // of a dependency of genai; it never ends
	case "case": // DIR MODULES ID RESULT
		difference, err := RunCase(context.Background(), Corpus{Dir: args[0], Modules: args[1]}, args[2])
		if err := WriteResult(args[3], difference, err); err != nil {
			panic(err)
		}
	case "crash":
		panic("out of luck")
	case "talks":
		fmt.Println("hello")
		finish(args[3])
	case "silent":
	case "proxied":
		u, err := url.Parse(os.Getenv("HTTP_PROXY"))
		if err != nil {
			panic(err)
		}
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			panic(err)
		}
		var b [1]byte
		_, _ = conn.Read(b[:]) // ends when the proxy has counted it
		finish(args[3])
	case "hangs":
		_, _ = os.Stdin.Read(make([]byte, 1)) // which never answers
	case "hoards":
		hoard := make([]byte, 1<<30)
		for i := range hoard {
			hoard[i] = 1
		}
		_, _ = os.Stdin.Read(hoard)
	case "passes":
		finish(args[3])
	}
}

func finish(result string) {
	if err := WriteResult(result, "", nil); err != nil {
		panic(err)
	}
}

// child returns the command that is this binary in a role.
func child(c Corpus, role string) func(context.Context, string, string) *exec.Cmd {
	return func(ctx context.Context, id, result string) *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		cmd := exec.CommandContext(ctx, self, c.Dir, c.Modules, id, result)
		cmd.Env = append(os.Environ(), childVar+"="+role)
		return cmd
	}
}

// Each case is one thing that must be seen, once as it is and once as it is not.
var cases = map[string]struct{ doc, want string }{
	"answer":         {`{"of":"one","expect":{"output":{"n":1.0},"output_text":"{\"n\":1}","no_actions":true}}`, ""},
	"answer-other":   {`{"of":"one","expect":{"output":{"n":2}}}`, `output {"n":1}, want {"n":2}`},
	"answer-text":    {`{"of":"one","expect":{"output_text_any":["{}","[]"]}}`, `output text {"n":1}, want {} or []`},
	"answer-wrapped": {`{"of":"list","expect":{"output":{"result":[1]}}}`, ""},
	"trap":           {`{"of":"trap","expect":{"outcome":["guest_trap","guest_fuel"]}}`, ""},
	"trap-not-ok":    {`{"of":"trap","expect":{}}`, "outcome guest_trap, want ok"},
	"short-error":    {`{"of":"trap","expect":{"outcome":"guest_trap","error_chars_max":3}}`, "characters, at most 3"},
	"spin":           {`{"of":"spin","limits":{"wall_ms":50},"expect":{"outcome":["guest_timeout","guest_fuel"]}}`, ""},
	"spin-slow":      {`{"of":"spin","limits":{"wall_ms":50},"expect":{"outcome":["guest_timeout","guest_fuel"],"max_wall_ms":5}}`, "at most 5"},
	"elf":            {`{"of":"elf","stage":"upload","expect":{"outcome":"module_malformed","audit":["module.reject"]}}`, ""},
	"elf-accepted":   {`{"of":"elf","stage":"upload","expect":{}}`, "outcome module_malformed, want ok"},
	"audit-unknown":  {`{"of":"elf","stage":"upload","expect":{"outcome":"module_malformed","audit":["moon.rise"]}}`, "audit record moon.rise has no name here"},
	"accepted":       {`{"of":"one","stage":"upload","expect":{}}`, ""},
	"call-refused":   {`{"of":"old","expect":{"outcome":"guest_trap"}}`, "outcome module_import_denied, want guest_trap"},
	"refusal-lawful": {`{"of":"old","expect":{"outcome":["guest_trap","module_import_denied"]}}`, ""},
	"log":            {`{"of":"witness","grants":["log"],"expect":{"log_records":1,"log_bytes_max":100}}`, ""},
	"log-none":       {`{"of":"witness","expect":{"log_records":1}}`, "0 log records, want 1"},
	"log-long":       {`{"of":"witness","grants":["log"],"expect":{"log_bytes_max":3}}`, "bytes of log, at most 3"},
	"denied-audited": {`{"of":"witness","expect":{"audit":["capability_denied"]}}`, ""},
	"parallel": {`{"of":"echo","parallel":8,"call":{"export":"run","input":{"i":"$i","pad":{"$repeat":["ab",3]}}},
		"expect":{"output":{"i":"$i","pad":"ababab"},"gc_pause_ms":5000}}`, ""},
	"parallel-wrong": {`{"of":"echo","parallel":2,"call":{"export":"run","input":{"i":"$i"}},"expect":{"output":{"i":0}}}`, `call 2: output {"i":1}`},
	"calls": {`{"of":"echo","calls":[{"export":"run","input":{"a":1},"output":{"a":1}},
		{"export":"run","input_text":"{\"b\":1E2}","output":{"b":100}}],"expect":{}}`, ""},
	"tenants":    {`{"of":"echo","tenants":["a","b"],"repeat":2,"call":{"export":"run","input":{"i":"$i"}},"expect":{"output":{"i":"$i"}}}`, ""},
	"fuel":       {`{"of":"spin","limits":{"fuel":1000},"expect":{"outcome":"guest_fuel"}}`, ""},
	"fuel-equal": {`{"of":"one","repeat":3,"expect":{"fuel_equal":true}}`, ""},
	"fuel-other": {`{"of":"varies","calls":[{"export":"run","input":{}},{"export":"run","input":{"pad":"a longer text"}}],
		"expect":{"fuel_equal":true}}`, " fuel, the first "},
	"bad-guard": {`{"of":"silly","stage":"guard","manifest":{"guard":{"export":"run","phases":["call"]}},
		"expect":{"outcome":"policy_unavailable","handler_started":false,"audit":["guard.deny"]}}`, ""},
	"bad-guard-lets-through": {`{"of":"silly","stage":"guard","manifest":{"guard":{"export":"run","phases":["call"]}},
		"expect":{"outcome":"policy_unavailable","handler_started":true}}`, "guard first, handler native, entrance run: the handler was started 0 times"},
	"good-guard": {`{"of":"silly","stage":"guard","manifest":{"guard":{"export":"run","phases":["call"]}},
		"expect":{"outcome":"ok"}}`, "not let in: "},
}

func TestCases(t *testing.T) {
	docs := map[string]string{}
	for id, k := range cases {
		docs[id] = k.doc
	}
	c := writeCorpus(t, docs)
	report, err := Run(t.Context(), c, Options{Child: child(c, "case")})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != len(cases) {
		t.Fatalf("%d results of %d cases", len(report.Results), len(cases))
	}
	for _, r := range report.Results {
		want := cases[r.ID].want
		if r.ID == "bad-guard" {
			want = "a lawful guard does not pass: good-guard"
		}
		if r.Passed != (want == "") || !strings.Contains(r.Difference, want) {
			t.Errorf("%s: passed %v with difference %q, want %q", r.ID, r.Passed, r.Difference, want)
		}
	}
}

// A bad guard counts where lawful ones pass, which are tried before, and where none is tried.
func TestBadGuardCounts(t *testing.T) {
	good := goodGuards["guard-good-allow"]
	c := writeCorpusOf(t, map[string]string{"a-bad-guard": cases["bad-guard"].doc, "guard-good-allow": good.doc},
		map[string][]byte{"guard-good-allow": goodGuard(t, good.says)})
	for _, only := range [][]string{nil, {"a-bad-guard"}} {
		report, err := Run(t.Context(), c, Options{Child: child(c, "case"), Only: only})
		if err != nil {
			t.Fatal(err)
		}
		if only == nil && len(report.Results) != 2 {
			t.Errorf("%d results, want 2", len(report.Results))
		}
		for _, r := range report.Results {
			if !r.Passed {
				t.Errorf("%s of %q: %s", r.ID, only, r.Difference)
			}
		}
	}
}

func TestChildren(t *testing.T) {
	doc := `{"of":"one","expect":{"stdout_bytes_max":0}}`
	tests := []struct{ role, want string }{
		{"passes", ""},
		{"crash", "the process died: exit status 2: panic: out of luck"},
		{"talks", "6 bytes reached the process's own output, at most 0"},
		{"silent", "the process left no result"},
		{"proxied", "1 connections to the proxy of the environment"},
	}
	for _, test := range tests {
		t.Run(test.role, func(t *testing.T) {
			c := writeCorpus(t, map[string]string{"a": doc})
			report, err := Run(t.Context(), c, Options{Child: child(c, test.role)})
			if err != nil {
				t.Fatal(err)
			}
			if got := report.Results[0].Difference; (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("difference %q, want %q", got, test.want)
			}
		})
	}
}

// A child that takes far too much is ended.
func TestChildrenAreEnded(t *testing.T) {
	c := writeCorpus(t, map[string]string{"a": `{"of":"one","expect":{"max_wall_ms":1,"max_rss_mb":1}}`})
	all, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[string]string{"hangs": "ended after", "hoards": "MiB resident, at most 1 for the case"} {
		t.Run(role, func(t *testing.T) {
			p := &parent{dir: t.TempDir(), child: child(c, role), grace: time.Minute, memory: 512 << 20}
			if role == "hangs" {
				p.grace = 50 * time.Millisecond
			}
			if got := p.run(t.Context(), all[0]); !strings.Contains(got, want) {
				t.Errorf("difference %q, want %q", got, want)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	c := writeCorpus(t, map[string]string{"a": `{"of":"one","expect":{}}`})
	if _, err := Run(t.Context(), c, Options{Child: child(c, "passes"), Only: []string{"b"}}); err == nil || !strings.Contains(err.Error(), `case "b": not in the corpus`) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, c, Options{Child: child(c, "passes")}); err == nil {
		t.Error("a cancelled run has a report")
	}
}
