package regobuild

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestFailsClosed checks that a policy that gives no answer gives none whatever was
// asked before, and that the operator reads why.
func TestFailsClosed(t *testing.T) {
	m := probe(t)
	good := func(after string) {
		t.Helper()
		reply, err := ask(t, m, `{"do":"sprintf","args":["%d of %v",[1,{"a":[2]}]]}`, patient)
		if want := `{"value":"1 of {\"a\": [2]}"}`; err != nil || string(reply.Output) != want {
			t.Errorf("after %s: %v, %v, want %s", after, reply, err, want)
		}
	}
	good("nothing")
	tight := patient
	tight.HostCalls = 5
	small := patient
	small.MemoryBytes, small.Fuel = 1<<20, 1e9
	bomb := `{"do":"sprintf","args":["` + strings.Repeat("%999999d", 2) + `",[1,2]]}`
	for _, c := range []struct {
		name, input string
		limits      host.Limits
		code        abi.Code
		detail      string
	}{
		{"undefined", `{"do":"nothing"}`, patient, abi.GuestOutputInvalid, "the rule guard/verdict is undefined for this question"},
		{"no question", ``, patient, abi.GuestOutputInvalid, "undefined"},
		{"half a question", `{"do":"data","args":["10.0.0.1"`, patient, abi.GuestOutputInvalid, "undefined"},
		{"no object", `[]`, patient, abi.GuestOutputInvalid, "undefined"},
		{"two values", `{"do":"two values"}`, patient, abi.GuestTrap, "probe.rego:68:1: var assignment conflict"},
		{"endless", `{"do":"spin"}`, patient, abi.GuestFuel, ""},
		{"all memory", `{"do":"hoard"}`, small, abi.GuestMemory, ""},
		{"many host calls", `{"do":"many calls","args":[10]}`, tight, abi.HostcallLimit, ""},
		{"a zone of this machine", `{"do":"time.clock","args":[[0,"Local"]]}`, patient, abi.GuestTrap, "only UTC is known"},
		{"another zone", `{"do":"time.format","args":[[0,"Europe/Oslo"]]}`, patient, abi.GuestTrap, `time zone "Europe/Oslo": only UTC is known`},
		{"a format that writes too much", bomb, patient, abi.GuestTrap, "the format may write"},
		{"bytes that are no text", `{"do":"hex.decode","args":["ff"]}`, patient, abi.GuestTrap, "the result is not UTF-8"},
		{"not, of what cannot be computed", strings.Replace(bomb, "sprintf", "not", 1), patient, abi.GuestTrap, "the format may write"},
		{"deep nesting", `{"do":"json","args":["` + strings.Repeat("[", 100_000) + `"]}`, patient, abi.GuestStack, ""},
	} {
		reply, err := ask(t, m, c.input, c.limits)
		var code abi.Code
		var detail string
		if failure, ok := errors.AsType[*host.GuestError](err); ok {
			code, detail = failure.Code, failure.Detail
		}
		if code != c.code || !strings.Contains(detail, c.detail) {
			t.Errorf("%s: %v, %v: %s, want %s %q", c.name, reply, err, detail, c.code, c.detail)
		}
		good(c.name)
	}
	reply, err := ask(t, m, `{"do":"time.now_ns","args":[]}`, patient)
	if err != nil || string(reply.Output) != `{"value":1000000002}` {
		t.Errorf("now: %v, %v, want the time of the question", reply, err)
	}
}

// TestSameEveryTime checks that a question costs and says the same in every instance.
func TestSameEveryTime(t *testing.T) {
	m := probe(t)
	seen := map[string]bool{}
	for range 5 {
		for _, input := range []string{`{"do":"sets","args":[1,"a",[2]]}`, `{"do":"data","args":["10.1.2.3"]}`} {
			reply, err := ask(t, m, input, patient)
			if err != nil {
				t.Fatal(err)
			}
			seen[fmt.Sprintf("%s %d", reply.Output, reply.Receipt.Fuel)] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("two questions have the answers %v", seen)
	}
}
