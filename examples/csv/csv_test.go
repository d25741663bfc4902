// Package csv_test holds the figures of the csv app against a plain computation.
package csv_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestFileIsGenerated: the committed file is what the generator writes.
func TestFileIsGenerated(t *testing.T) {
	want, err := exec.CommandContext(t.Context(), "go", "run", "./gen").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("files/river.csv")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("files/river.csv is not what ./gen writes: run go run ./examples/csv/gen > examples/csv/files/river.csv")
	}
}

type stats struct {
	Rows    int     `json:"rows"`
	Skipped int     `json:"skipped"`
	Mean    float64 `json:"mean"`
	StdDev  float64 `json:"std_dev"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
}

// plain computes over the whole file in memory, in two passes.
func plain(t *testing.T, column, by, group string) stats {
	t.Helper()
	data, err := os.ReadFile("files/river.csv")
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(bytes.NewReader(data))
	head, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	var s stats
	var values []float64
	for {
		row, err := r.Read()
		if err == io.EOF {
			break
		}
		if _, broken := errors.AsType[*csv.ParseError](err); broken {
			if by == "" {
				s.Skipped++
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if by != "" && row[at[by]] != group {
			continue
		}
		v, err := strconv.ParseFloat(row[at[column]], 64)
		if err != nil || math.IsNaN(v) {
			s.Skipped++
			continue
		}
		values = append(values, v)
	}
	s.Rows, s.Min, s.Max = len(values), math.Inf(1), math.Inf(-1)
	for _, v := range values {
		s.Mean += v / float64(len(values))
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	for _, v := range values {
		s.StdDev += (v - s.Mean) * (v - s.Mean) / float64(len(values))
	}
	s.StdDev = math.Sqrt(s.StdDev)
	return s
}

func TestMain(m *testing.M) {
	host.Main() // the engine compiles in a child, which is this program
	os.Exit(m.Run())
}

func TestFigures(t *testing.T) {
	file, err := app.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	file.Store.Audit = t.TempDir() + "/audit.log"
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	var mu sync.Mutex
	results := map[string]json.RawMessage{}
	rt, err := app.Open(t.Context(), file, app.Options{Modules: app.Modules{Engine: engine},
		Observer: flow.Observer{Finished: func(c flow.CallInfo, r flow.CallResult) {
			mu.Lock()
			defer mu.Unlock()
			if r.Err != nil {
				t.Errorf("%s: %v", c.Tool, r.Err)
			}
			results[c.Tool], _ = abi.Marshal(r.Response)
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	key, err := rt.Session(t.Context(), "u", "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range rt.Runner.Run(t.Context(), key, flow.Text("How high was the water?")) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var all stats
	if err := json.Unmarshal(results["column_stats"], &all); err != nil {
		t.Fatal(err)
	}
	same(t, "all", all, plain(t, "level_cm", "", ""))
	if all.Rows+all.Skipped != 20000 {
		t.Errorf("%d rows and %d skipped: want 20000 together", all.Rows, all.Skipped)
	}
	var grouped struct {
		Count  int `json:"count"`
		Groups []struct {
			Key string `json:"key"`
			stats
		} `json:"groups"`
		Highest struct {
			Key   string  `json:"key"`
			Value float64 `json:"value"`
		} `json:"highest"`
	}
	if err := json.Unmarshal(results["group_by"], &grouped); err != nil {
		t.Fatal(err)
	}
	if grouped.Count != 4 || len(grouped.Groups) != 4 {
		t.Fatalf("%d groups: want 4", grouped.Count)
	}
	for _, g := range grouped.Groups {
		same(t, g.Key, g.stats, plain(t, "level_cm", "station", g.Key))
	}
	if grouped.Highest.Value != all.Max {
		t.Errorf("highest %v, but the column's maximum is %v", grouped.Highest.Value, all.Max)
	}
}

func same(t *testing.T, what string, got, want stats) {
	t.Helper()
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }
	if got.Rows != want.Rows || got.Skipped != want.Skipped || got.Min != want.Min || got.Max != want.Max ||
		!near(got.Mean, want.Mean) || !near(got.StdDev, want.StdDev) {
		t.Errorf("%s: the guest says %+v, a plain computation %+v", what, got, want)
	}
}
