package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// Guards that come with the program are named like files, and the module of all of
// them is loaded once.
func TestBuiltinGuards(t *testing.T) {
	engine, err := host.Open(t.Context(), host.Config{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	o := Options{Modules: Modules{Engine: engine}}
	const script = "format: 1\nrules: [{reply: [{say: done}]}]\n"
	slow := "dev: {guard_wall: 50s}\n"
	rt, err := opened(t, least+slow+`guards:
  - {name: look, policy: builtin/read-only}
  - {name: any, any_of: [{policy: builtin/amount-limit, settings: {tool: pay, amount: /a, deny_from: "1"}}, {policy: builtin/call-quota, settings: {limits: []}}]}
`, script, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(rt.Guards) != 2 || rt.Guards[0].Name() != "look" || !strings.Contains(rt.Guards[0].Version(), " read-only ") {
		t.Errorf("guards %v, version %s", rt.Guards, rt.Guards[0].Version())
	}
	for _, c := range []struct{ guard, want, hint string }{
		{"policy: builtin/read-onyl", "there is no such guard", "did you mean builtin/read-only?"},
		{"policy: builtin/x", "there is no such guard", "role-access"},
		{"policy: builtin/read-only, digest: 'sha256:00'", "digest mismatch", "new digest"},
		{"policy: builtin/read-only, settings: {fail_open: true}", "fail_open", ""},
		{"policy: builtin/read-only.wasm", "no such file", "no setting that skips a guard"},
		{"policy: c.txt", "guard g: not a WebAssembly module", ""},
	} {
		_, err := opened(t, least+slow+"guards: [{name: g, "+c.guard+"}]\n", script, o)
		e, ok := errors.AsType[*Error](err)
		if !ok || !strings.Contains(e.Text, c.want) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: error %v", c.guard, err)
		}
	}
	_, err = opened(t, least+"dev: {guard_wall: 1ns}\nguards: [{name: g, policy: builtin/read-only}]\n", script, o)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != abi.PolicyUnavailable || !strings.Contains(e.Text, "limit 1ns") {
		t.Errorf("a guard has 1 ns: error %v", err)
	}
}
