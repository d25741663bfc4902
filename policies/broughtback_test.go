package policies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A guard whose code the host had and cannot get back denies, and the record says that the host failed
// and not the guard.
func TestGuardIsNotBroughtBack(t *testing.T) {
	temp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP"} {
		t.Setenv(name, temp)
	}
	engine, err := host.Open(t.Context(), host.Config{CodeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	load := func(guest hosttest.Guest) *host.Module {
		m, err := engine.Load(t.Context(), hosttest.Build(t, manifest(abi.Guard{Phases: []abi.Phase{abi.PhaseCall}}), map[string]hosttest.Guest{"call": guest}))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	made, err := policies.New(t.Context(), load(hosttest.Guest{Says: allow()}), policies.Config{Limits: patient})
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(temp, "sandboxd-*", "source-*"))
	if err != nil || len(sources) != 1 {
		t.Fatalf("sources %q, error %v; want the guard's", sources, err)
	}
	load(hosttest.Guest{Says: hosttest.Verdict(`"verdict":"deny"`)}) // takes the place of the guard's code
	if err := os.Remove(sources[0]); err != nil {
		t.Fatal(err)
	}
	d := run(t, flow.Spec{}, made)
	if n := len(d.witness.Calls()); n != 0 || d.response("c1") != unavailable {
		t.Errorf("the handler was started %d times, the model reads %s", n, d.response("c1"))
	}
	if r := d.judged("guard"); len(r) != 1 || r[0].Decision != "deny" || r[0].Code != string(abi.PolicyUnavailable) ||
		!strings.Contains(r[0].Why, string(abi.StorageUnavailable)) || !strings.Contains(r[0].Why, "bringing code back") {
		t.Errorf("audited %+v", r)
	}
}
