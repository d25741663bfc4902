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
	"time"

	"google.golang.org/genai"

	"github.com/sandboxd/sandboxd/capability"
	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/flow/flowtest"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/plugins"
	"github.com/sandboxd/sandboxd/sdk/abi"
	"github.com/sandboxd/sandboxd/session"
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

// TestStreams: a file of 40 MB takes hardly more memory than one of 0.8 MB, a quarter of
// what a tool has at most, and each of its rows costs about as much. A program that
// embeds the runtime may give a tool more fuel and time than the default.
func TestStreams(t *testing.T) {
	river, err := os.ReadFile("files/river.csv")
	if err != nil {
		t.Fatal(err)
	}
	head, rows, _ := bytes.Cut(river, []byte("\n"))
	large := append(append(bytes.Clone(head), '\n'), bytes.Repeat(rows, 50)...)
	if len(large) < 40e6 {
		t.Fatalf("%d bytes: want 40 MB", len(large))
	}
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	wasm, _, err := app.Modules{Engine: engine}.Build(t.Context(), "plugins/csvstats", nil)
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	grants, err := capability.ParseSet([]string{"artifact read *.csv"})
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := plugins.New(module, plugins.Config{Grants: grants, Ceiling: grants,
		Limits: host.Limits{MemoryBytes: 16 << 20, Fuel: 100e9, Wall: 5 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var used []host.Receipt
	files, store := flow.NewMemoryArtifacts(), session.NewMemory()
	key := session.Key{App: "csv", User: "u", ID: "s"}
	runner, err := flow.NewRunner(&flow.Agent{Name: "a", Model: &flowtest.Model{}, Tools: plugin.Tools()}, store, flow.Config{Artifacts: files, Observer: flow.Observer{Finished: func(c flow.CallInfo, r flow.CallResult) {
		if r.Err != nil {
			t.Errorf("%s: %v", c.Tool, r.Err)
		}
		used = append(used, r.Receipt.(host.Receipt))
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"small.csv": river, "large.csv": large} {
		if _, err := files.Save(t.Context(), key, name, genai.NewPartFromText(string(data))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"small.csv", "large.csv"} {
		for _, err := range runner.Call(t.Context(), key, flow.DirectCall{Tool: "column_stats", Args: map[string]any{"file": name, "column": "level_cm"}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if t.Failed() {
		return
	}
	small, more := used[0], used[1]
	perRow := [2]int64{small.Fuel / 20000, more.Fuel / (50 * 20000)}
	t.Logf("%d MB: %d fuel a row, %d KiB; 0.8 MB: %d fuel a row, %d KiB", len(large)/1e6, perRow[1], more.PeakBytes>>10, perRow[0], small.PeakBytes>>10)
	if more.PeakBytes > 2*small.PeakBytes || perRow[1] > perRow[0]*5/4 {
		t.Errorf("50 times the rows: %d bytes instead of %d, %d fuel a row instead of %d", more.PeakBytes, small.PeakBytes, perRow[1], perRow[0])
	}
}
