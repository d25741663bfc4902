package authortest

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestMain(m *testing.M) {
	host.Main() // first, as in main: the engine compiles in a child, which is this program
	os.Exit(m.Run())
}

// load loads a module with one guard, named guard.
func load(t *testing.T, g abi.Guard, guest hosttest.Guest, requests ...string) *host.Module {
	t.Helper()
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	g.Name, g.Phases = "guard", []abi.Phase{abi.PhaseCall}
	manifest := &abi.Manifest{ABI: abi.Version, Name: "policy", Version: "1", Guards: []abi.Guard{g}, Requests: requests}
	module, err := engine.Load(t.Context(), hosttest.Build(t, manifest, map[string]hosttest.Guest{"call": guest}))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// TestFailClosed: the suite finds a guard that lets pass what it has not judged,
// and finds nothing in a denial.
func TestFailClosed(t *testing.T) {
	allow := hosttest.Guest{Says: hosttest.Verdict(`"verdict":"allow"`)}
	for _, c := range []struct {
		name  string
		guard abi.Guard
		guest hosttest.Guest
		want  []string // checks that fail
	}{
		{"allows", abi.Guard{}, allow, nil},
		{"takes any settings", abi.Guard{Settings: json.RawMessage(`{"type":"object"}`)}, allow, []string{"settings that it does not know"}},
		{"answers another question", abi.Guard{}, hosttest.Guest{Good: hosttest.Verdict(`"verdict":"allow"`), Says: []hosttest.Piece{hosttest.Text(`{"nonce":"` + strings.Repeat("2", 32) + `","document_sha256":"`),
			hosttest.SHA256(), hosttest.Text(`","verdict":"allow"}`)}}, []string{"an answer to another question"}},
		{"answers about another document", abi.Guard{}, hosttest.Guest{Good: hosttest.Verdict(`"verdict":"allow"`), Says: []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Nonce(),
			hosttest.Text(`","document_sha256":"` + strings.Repeat("3", 64) + `","verdict":"allow"}`)}}, []string{"an answer about another document"}},
		{"has the answer before the question", abi.Guard{}, hosttest.Guest{Good: hosttest.Verdict(`"verdict":"allow"`), Says: []hosttest.Piece{hosttest.Text(`{"nonce":"` + strings.Repeat("1", 32) +
			`","document_sha256":"` + abi.Digest([]byte("{}")) + `","verdict":"allow"}`)}}, []string{"no input", "a question that ends early"}},
		{"denies", abi.Guard{}, hosttest.Guest{Says: hosttest.Verdict(`"verdict":"deny"`)}, nil},
	} {
		module := load(t, c.guard, c.guest)
		table, err := ParseTable("t.table.yaml", []byte("rows: [[a, {args: {}}, allow]]"))
		if err != nil {
			t.Fatal(err)
		}
		answers, err := table.Run(t.Context(), ModuleGuard(module, "", host.Limits{}), nil, func(Result) {})
		if err != nil || len(answers) != 1 {
			t.Fatalf("%s: %d answers, %v", c.name, len(answers), err)
		}
		var failed, passed []string
		err = FailClosed(t.Context(), module, "", answers, func(r Result) {
			if r.OK {
				passed = append(passed, r.Name)
			} else {
				failed = append(failed, r.Name)
			}
		})
		if err != nil || !slices.Equal(failed, c.want) || len(passed)+len(failed) < 14 {
			t.Errorf("%s: %v, failed %q, want %q, passed %q", c.name, err, failed, c.want, passed)
		}
	}
}

// TestFailClosedKV: a guard that lets pass when its store is down is found. This
// one hands on whatever kv says.
func TestFailClosedKV(t *testing.T) {
	says := []hosttest.Piece{hosttest.Text(`{"nonce":"`), hosttest.Nonce(), hosttest.Text(`","document_sha256":"`), hosttest.SHA256(), hosttest.Text(`","verdict":"rewrite","document":`),
		hosttest.Ask("kv_get", `{"key":"k"}`), hosttest.Text("}")}
	module := load(t, abi.Guard{Mutates: []abi.Phase{abi.PhaseCall}}, hosttest.Guest{Good: hosttest.Verdict(`"verdict":"allow"`), Says: says}, "kv read")
	table, err := ParseTable("t.table.yaml", []byte("rows: [[a, {args: {}}, rewrite]]"))
	if err != nil {
		t.Fatal(err)
	}
	answers, err := table.Run(t.Context(), ModuleGuard(module, "", host.Limits{}), nil, func(r Result) {
		if !r.OK {
			t.Errorf("%+v", r.Problems)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	err = FailClosed(t.Context(), module, "", answers, func(r Result) {
		if !r.OK {
			failed = append(failed, r.Name)
		}
	})
	if want := []string{"kv unavailable"}; err != nil || !slices.Equal(failed, want) {
		t.Errorf("%v, failed %q, want %q", err, failed, want)
	}
}
