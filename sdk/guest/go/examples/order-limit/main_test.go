package main_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/policies"
	"github.com/sandboxd/sandboxd/sdk/abi"
	_ "github.com/sandboxd/sandboxd/sdk/guest/go/examples/order-limit" // is what is tested
	"github.com/sandboxd/sandboxd/sdk/guest/go/guesttest"
)

// A native is the guard on the fake host, as a flow sees it.
type native struct {
	t        *testing.T
	settings string
}

func (native) Name() string        { return "order-limit" }
func (native) Version() string     { return "native" }
func (native) Phases() []abi.Phase { return []abi.Phase{abi.PhaseCall, abi.PhaseResult} }
func (native) Mutates() []abi.Phase {
	return []abi.Phase{abi.PhaseResult}
}

func (n native) Judge(_ context.Context, q *abi.Question) (abi.Verdict, error) {
	var h guesttest.Host
	j := h.Judge(n.t, "order-limit", n.settings, *q)
	return j.Verdict, j.Err
}

// TestTableAgrees holds the guard on the fake host to the table to which the guards of
// every language are held in the sandbox.
func TestTableAgrees(t *testing.T) {
	const file = "order-limit.table.yaml"
	data, err := os.ReadFile(filepath.Join("../../../../../internal/guestlang/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	table, err := authortest.ParseTable(file, data)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	_, err = table.Run(t.Context(), func(_ context.Context, settings json.RawMessage, _ host.KVStore, _ func(host.Receipt)) (flow.Guard, error) {
		var h guesttest.Host
		if err := h.Settings(t, "order-limit", string(settings)); err != nil {
			return nil, &policies.SettingsError{Err: err}
		}
		return native{t, string(settings)}, nil
	}, nil, func(r authortest.Result) {
		ran++
		for _, p := range r.Problems {
			t.Errorf("row %q (line %d): %s: want %s, got %s", r.Name, r.Line, p.What, p.Want, p.Got)
		}
	})
	if err != nil || ran != table.Rows() || ran < 30 {
		t.Errorf("%d of %d rows ran, error %v", ran, table.Rows(), err)
	}
}
