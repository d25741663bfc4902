package regobuild_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/regobuild"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

const (
	example  = "../../examples/payments/policies/amounts"
	module   = example + "/amounts.wasm"
	settings = `{"ask_from":1000,"currencies":["EUR"],"deny_from":5000,"free_tools":["read_invoice"]}`
)

// A row of a decision table: a call, and the verdict of OPA's own evaluator.
type row struct {
	Name   string          `json:"name"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Ruling abi.Ruling      `json:"ruling,omitempty"` // what the author of the row says
	Want   json.RawMessage `json:"want"`
}

func (r row) question(t testing.TB, settings string) *abi.Question {
	args, err := abi.Canonical(r.Args)
	if err != nil {
		t.Fatal(err)
	}
	return &abi.Question{Format: abi.Version, Kind: abi.KindGuard, Guard: "amounts", Phase: abi.PhaseCall, Nonce: strings.Repeat("a", 32),
		DocumentSHA256: abi.Digest(args), Now: "2026-03-01T09:00:00Z", Agent: "clerk", User: abi.User{ID: "ada"}, Session: "s", Run: "r", Step: 1,
		Call: &abi.CallFacts{ID: "c", Tool: r.Tool, Known: true, Effects: abi.Once, Args: args}, Settings: json.RawMessage(settings)}
}

// TestVerdicts asks guards, as an app does, and compares their verdicts with those of
// OPA's own evaluator: the guard of the example, and one that puts every kind of
// answer into the rule that authors are given.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		table, dir, module, settings string
		least                        map[abi.Ruling]int
	}{
		{"testdata/amounts.json", example, module, settings, map[abi.Ruling]int{abi.RulingAllow: 5, abi.RulingConfirm: 3, abi.RulingDeny: 20}},
		{"testdata/answers.json", "testdata/answers", "testdata/answers/answers.wasm", "", map[abi.Ruling]int{abi.RulingAllow: 1, abi.RulingConfirm: 7, abi.RulingDeny: 17}},
	} {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			var rows []row
			if err := json.Unmarshal(read(t, c.table), &rows); err != nil {
				t.Fatal(err)
			}
			if regobuild.Updating() {
				rebuild(t, c.dir, c.module)
				for i, r := range rows {
					question, err := abi.Marshal(r.question(t, c.settings))
					if err != nil {
						t.Fatal(err)
					}
					rows[i].Want = regobuild.Evaluate(t, c.dir, question)
				}
				regobuild.Record(t, c.table, rows)
			}
			guard := open(t, c.module, c.settings, host.Limits{Wall: time.Minute, Startup: time.Minute})
			rulings := map[abi.Ruling]int{}
			for _, r := range rows {
				verdict, err := guard.Judge(t.Context(), r.question(t, c.settings))
				if err != nil {
					t.Errorf("%s: %v", r.Name, err)
					continue
				}
				got, err := abi.Marshal(verdict)
				if err != nil {
					t.Fatal(err)
				}
				if !regobuild.Same(t, got, r.Want) || r.Ruling != "" && verdict.Ruling != r.Ruling {
					t.Errorf("%s: %s %s: verdict %s, want %s %s", r.Name, r.Tool, r.Args, got, r.Ruling, r.Want)
				}
				rulings[verdict.Ruling]++
			}
			for ruling, n := range c.least {
				if rulings[ruling] < n {
					t.Errorf("%d rows are %s, want %d: the table says too little", rulings[ruling], ruling, n)
				}
			}
		})
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// open makes a guard of a module.
func open(t testing.TB, module, settings string, limits host.Limits) *policies.Guard {
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
	m, err := engine.Load(t.Context(), read(t, module))
	if err != nil {
		t.Fatal(err)
	}
	guard, err := policies.New(t.Context(), m, policies.Config{Settings: json.RawMessage(settings), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// rebuild builds a module. The version of OPA must be the pinned one.
func rebuild(t *testing.T, dir, module string) {
	wasm, built, err := app.Modules{}.Build(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "opa " + strings.TrimPrefix(regobuild.OPA, "v"); built.Toolchain != want {
		t.Fatalf("%s built the fixtures, want %s", built.Toolchain, want)
	}
	if err := os.WriteFile(module, wasm, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSums checks that what is committed was built of the sources that are committed.
func TestSums(t *testing.T) {
	const file = "testdata/SHA256SUMS"
	var sums strings.Builder
	for _, pattern := range []string{"testdata/answers/*", "testdata/probe/*", "testdata/*.gz", example + "/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			rel, err := filepath.Rel("testdata", name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(read(t, name)), filepath.ToSlash(rel))
		}
	}
	if regobuild.Updating() {
		if err := os.WriteFile(file, []byte(sums.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(read(t, file)); got != sums.String() {
		t.Errorf("%s is not of these files: go test ./internal/regobuild -update builds them with OPA\n%s", file, sums.String())
	}
	for _, dir := range []string{example, "testdata/answers"} {
		if string(read(t, dir+"/sandboxd.rego")) != string(sdk.Rego) {
			t.Errorf("%s has another sandboxd.rego than the SDK", dir)
		}
	}
}
