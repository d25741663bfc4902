package main

import (
	"testing"

	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// Unit tests run the guard natively, on a fake host that is as strict as the real one:
// go test. What is shipped is the module, which sandboxd policy test runs.

const settings = `{"tools":["deploy"],"from":8,"until":16}`

func TestOffice(t *testing.T) {
	for _, c := range []struct {
		tool, now string
		want      abi.Ruling
	}{
		{"deploy", "2026-03-02T10:00:00Z", abi.RulingAllow},
		{"deploy", "2026-03-02T07:59:59Z", abi.RulingDeny},
		{"deploy", "2026-03-02T18:30:00+02:00", abi.RulingDeny}, // 16:30 in UTC
		{"status", "2026-03-02T20:00:00Z", abi.RulingAllow},
	} {
		var host guesttest.Host
		got := host.Judge(t, "office", settings, abi.Question{Now: c.now, Call: &abi.CallFacts{Tool: c.tool}})
		if got.Err != nil || got.Verdict.Ruling != c.want {
			t.Errorf("%s at %s: got %s %s, error %v, want %s", c.tool, c.now, got.Verdict.Ruling, got.Verdict.Code, got.Err, c.want)
		}
	}
}

func TestSettings(t *testing.T) {
	var host guesttest.Host
	for _, bad := range []string{`{"tools":["deploy"],"from":16,"until":8}`, `{"tools":["deploy"],"from":8}`, `{"tools":"deploy","from":8,"until":16}`} {
		if err := host.Settings(t, "office", bad); err == nil {
			t.Errorf("settings %s: accepted", bad)
		}
	}
	if err := host.Settings(t, "office", settings); err != nil {
		t.Errorf("settings %s: %v", settings, err)
	}
}
