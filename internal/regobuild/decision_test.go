package regobuild

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// patient limits are for a busy machine.
var patient = host.Limits{Wall: time.Minute, Startup: time.Minute}

// A decision is a question and what OPA's own evaluator says, null if that is
// undefined.
type decision struct {
	Input json.RawMessage `json:"input"`
	Want  json.RawMessage `json:"want,omitempty"`
}

// TestDecisions compares what a guest answers with what OPA's own evaluator does.
func TestDecisions(t *testing.T) {
	const file = "testdata/probe.json"
	var all []decision
	if err := json.Unmarshal(read(t, file), &all); err != nil {
		t.Fatal(err)
	}
	if *update {
		bundle, err := compile(t.Context(), "testdata/probe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/probe.tar.gz", bundle, 0o644); err != nil {
			t.Fatal(err)
		}
		for i, d := range all {
			all[i].Want = evaluate(t, "testdata/probe", d.Input)
		}
		record(t, file, all)
	}
	m := probe(t)
	limits := patient
	limits.Fuel = 1e9 // a pattern with a class of Unicode takes a lot
	for _, d := range all {
		reply, err := ask(t, m, string(d.Input), limits)
		failure, failed := errors.AsType[*host.GuestError](err)
		switch undefined := d.Want == nil; {
		case undefined && (!failed || failure.Code != abi.GuestOutputInvalid):
			t.Errorf("%s: %v, want no output: OPA says undefined", d.Input, err)
		case !undefined && err != nil:
			t.Errorf("%s: %v: %s, want %s", d.Input, err, failure.Detail, d.Want)
		case !undefined && !same(t, reply.Output, d.Want):
			t.Errorf("%s: %s, want %s", d.Input, reply.Output, d.Want)
		}
	}
}

// evaluate has OPA evaluate the rule.
func evaluate(t *testing.T, dir string, input []byte) json.RawMessage {
	t.Helper()
	file := filepath.Join(t.TempDir(), "input.json")
	if err := os.WriteFile(file, input, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := runOPA(t.Context(), dir, "eval", "--format", "json", "--bundle", ".", "--input", file, "data.guard.verdict")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Result []struct {
			Expressions []struct{ Value json.RawMessage }
		}
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	if len(said.Result) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, said.Result[0].Expressions[0].Value); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// record writes one element a line.
func record[T any](t *testing.T, file string, all []T) {
	t.Helper()
	var b bytes.Buffer
	for i, d := range all {
		line, err := abi.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString([]string{"[\n", ",\n"}[min(i, 1)])
		b.Write(line)
	}
	b.WriteString("\n]\n")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// same compares two documents. Numbers are compared by their text.
func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	decode := func(data []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}
