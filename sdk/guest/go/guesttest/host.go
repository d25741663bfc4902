package guesttest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
	"github.com/sandboxd/sandboxd/sdk/guest/go/internal/native"
)

// A Host is what calls may do and what they find. The zero value grants nothing and
// has nothing. What a call keeps is there for the next call of the same Host, and in
// its fields to be looked at. A Host is for the tools and hooks of the plugin, or for one
// of its guards, because these do not share their kv. It is not safe for concurrent use.
//
// A mistake in the fields, such as a grant that the plugin does not ask for, fails the
// test at once.
type Host struct {
	Grants []string     // capabilities, each covered by what the plugin asks for; those of a hook of a kind that hooks may have. A guard has what it asks for, whatever stands here
	Limits guest.Limits // lower those of the plugin; zero: as there

	Now    time.Time         // the time of the call, in milliseconds, from the year 2000 on; zero: 2026-01-01T12:00:00Z
	Seed   int               // of [guest.Call.Random], whose bytes are those that the same seed gives in "sandboxd plugin test"
	Config map[string]string // what the operator configured, over what the manifest says

	// Confirmation is a person's answer about the call; nil: nobody was asked.
	Confirmation *guest.Confirmation

	State     map[string]string // JSON, by key with its scope, such as "user:unit"
	KV        map[string]string // JSON, by key; what has ended or was deleted is not there
	Artifacts map[string]string // the newest version of each, by name
	Memory    func(query string) []guest.MemoryEntry

	// KVStore keeps kv in place of KV, by a clock of its own: such as a store that fails.
	KVStore host.KVStore

	// Cassette is a file of recorded exchanges, or a folder of such, that answers in
	// place of the network. Each call plays it from its beginning, and what it does
	// not play fails the test.
	Cassette string
	// HTTP answers in place of a cassette. It gets requests as they would be sent;
	// every name has a public address. A nil response is no answer.
	HTTP func(*http.Request) (*http.Response, error)
	// Secrets are values by name, as package host bounds them: 8 bytes to 8 KiB.
	Secrets map[string]string

	owner    string              // whose kv it is; empty until there is one
	clock    time.Time           // of kv
	kv       *host.MemoryKV      // nil until it is needed
	shown    map[string]string   // what KV was made to show
	versions map[string][]string // of artifacts
}

// A Result is how a call of a tool or hook ended.
type Result struct {
	Code    abi.Code // abi.OK, or why there is no result
	Fail    string   // the guest's own code, as [guest.Fail] was given it
	Message string   // what the model reads of a failure; hidden characters are not yet escaped
	Detail  string   // what the operator reads besides: of a panic its stack

	Value   []byte   // canonical JSON: the result of a tool, the answer of a hook; nil: none, or null
	Changed []byte   // canonical JSON: the document as a hook changed it; nil: it did not
	Chunks  []string // of a streaming tool, as the model reads them

	HostCalls int
	Used      []string // capabilities, each once
	Denied    []string // what host calls were refused, in their order: the capability that was missing, or the code and the request
	Logs      []string

	Asked       *guest.Confirmation // what a person is to be asked
	Transfer    string              // the agent that goes on
	Escalate    bool
	SkipSummary bool
}

// defaultNow is the time of a Host that has none.
var defaultNow = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// earliest is when the clock of a bubble begins.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (h *Host) now() time.Time {
	if h.Now.IsZero() {
		return defaultNow
	}
	return h.Now
}

// served returns the plugin of the package that is tested.
func served(t *testing.T) (*native.Module, *abi.Manifest) {
	t.Helper()
	if native.Served == nil {
		t.Fatal("guesttest: no plugin: call guest.Serve in an init function of the package that is tested")
	}
	m, err := abi.ParseManifest(native.Served.Described)
	if err != nil {
		t.Fatalf("guesttest: %v", err)
	}
	return native.Served, m
}

// granted returns the grants of a call, which the plugin must have asked for.
func (h *Host) granted(t *testing.T, m *abi.Manifest) capability.Set {
	t.Helper()
	requests, err := capability.ParseSet(m.Requests)
	if err != nil {
		t.Fatalf("guesttest: plugin %s: %v", m.Name, err)
	}
	grants, err := capability.ParseSet(h.Grants)
	if err != nil {
		t.Fatalf("guesttest: grants: %v", err)
	}
	for _, c := range grants.Capabilities() {
		if !requests.Covers(c) {
			t.Fatalf("guesttest: grant %s was not requested: plugin %s asks %s", c, m.Name, cmp.Or(strings.Join(requests.Lines(), ", "), "nothing"))
		}
	}
	return grants
}

// limits returns the limits of a call.
func (h *Host) limits(m *abi.Manifest, kind abi.Kind) host.Limits {
	return host.DefaultLimits(kind).Narrow(host.Asked(m.Limits)).Narrow(host.Asked(h.Limits))
}

// config returns what the guest may read of the configuration.
func (h *Host) config(m *abi.Manifest) map[string]string {
	values := maps.Clone(m.Config)
	if values == nil {
		values = map[string]string{}
	}
	maps.Copy(values, h.Config)
	return values
}

// egress returns the way to what answers in place of the network, and its cassettes.
func (h *Host) egress(t *testing.T) (*host.Egress, *host.Cassettes) {
	t.Helper()
	switch {
	case h.HTTP != nil && h.Cassette != "":
		t.Fatal("guesttest: Cassette and HTTP exclude each other")
	case h.HTTP != nil:
		return host.NewEgressTo(h.HTTP), &host.Cassettes{}
	}
	cassettes := &host.Cassettes{} // nothing is recorded
	if h.Cassette != "" {
		var err error
		if cassettes, err = host.OpenCassettes(h.Cassette); err != nil {
			t.Fatalf("guesttest: %v", err)
		}
	}
	return host.NewEgress(cassettes), cassettes
}

// call runs the guest, at the time of the call, and returns its output.
func call(t *testing.T, module *native.Module, c *host.Call) (reply *host.Reply, err error) {
	t.Helper()
	if c.Now.Before(earliest) {
		t.Fatalf("guesttest: now %s: want the year 2000 or later", c.Now.Format(time.RFC3339))
	}
	synctest.Test(t, func(*testing.T) {
		time.Sleep(time.Until(c.Now.Truncate(time.Millisecond)))
		reply, err = host.CallNative(context.Background(), c, func(n *host.Native, input []byte) []byte {
			output, err := module.Call(n, input)
			if err != nil {
				panic("guest: " + err.Error())
			}
			return output
		})
	})
	return reply, err
}

// witness puts into a call what tells res of it.
func (res *Result) witness(c *host.Call) {
	c.Access.Log = func(_, message string) { res.Logs = append(res.Logs, message) }
	c.Trace = func(hc host.HostCall) {
		switch hc.Code {
		case abi.CapabilityDenied:
			res.Denied = append(res.Denied, hc.Need)
		case abi.EgressDenied, abi.NoRecordedAnswer:
			res.Denied = append(res.Denied, fmt.Sprintf("%s %s", hc.Code, hc.Detail))
		}
	}
}

// receipt puts into res what a receipt says.
func (res *Result) receipt(r host.Receipt) {
	res.HostCalls, res.Used = r.HostCalls, r.Used
}

// fail makes res the end of a call that failed.
func (res *Result) fail(code abi.Code, message, detail string) {
	res.Code, res.Detail = code, detail
	res.Message = cmp.Or(message, fmt.Sprintf("%s: %s", code, cmp.Or(code.Sentence(), "the call failed")))
}

// sortedKeys returns the keys of m in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
