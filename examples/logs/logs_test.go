// Package logs_test holds the figures of the logs app against a plain computation.
package logs_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

func TestMain(m *testing.M) {
	host.Main() // the engine compiles in a child, which is this program
	os.Exit(m.Run())
}

// TestFilesAreGenerated: the committed files are what the generator writes.
func TestFilesAreGenerated(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./gen", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	names, err := filepath.Glob("files/logs/*")
	if err != nil || len(names) != 12 {
		t.Fatalf("%d logs, error %v: want 12", len(names), err)
	}
	for _, name := range names {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what ./gen writes: run go run ./examples/logs/gen examples/logs/files/logs", name)
		}
	}
}

// plain counts errors by service and kind.
func plain(t *testing.T) (counts map[string]map[string]int, total int) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\S+ ERROR (\w+) request=\w+ kind=(\w+) `)
	counts = map[string]map[string]int{}
	names, err := filepath.Glob("files/logs/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		service := strings.TrimSuffix(filepath.Base(name), ".log")
		counts[service] = map[string]int{}
		for _, m := range line.FindAllSubmatch(data, -1) {
			counts[string(m[1])][string(m[2])]++
			total++
		}
	}
	return counts, total
}

// TestFigures: the guest counts what a plain computation counts, whatever the logs say
// in their messages.
func TestFigures(t *testing.T) {
	file, err := app.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	file.Store, file.Guards, file.Plugins = app.Store{Audit: t.TempDir() + "/audit.log"}, nil, file.Plugins[:1]
	file.Agent.Tools = file.Agent.Tools[:1]
	engine, err := host.Open(t.Context(), host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	var response []byte
	rt, err := app.Open(t.Context(), file, app.Options{Modules: app.Modules{Engine: engine},
		Observer: flow.Observer{Finished: func(c flow.CallInfo, r flow.CallResult) {
			if r.Err != nil {
				t.Errorf("%s: %v", c.Tool, r.Err)
			}
			response, _ = abi.Marshal(r.Response)
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	key, err := rt.Session(t.Context(), "u", "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range rt.Runner.Run(t.Context(), key, flow.Text("What went wrong?")) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got struct {
		Counts   map[string]map[string]int `json:"counts"`
		Services int                       `json:"services"`
		Total    int                       `json:"total"`
	}
	if err := json.Unmarshal(response, &got); err != nil {
		t.Fatal(err)
	}
	counts, total := plain(t)
	if !reflect.DeepEqual(got.Counts, counts) || got.Total != total || got.Services != 12 || total < 100 {
		t.Errorf("the guest says %+v, a plain computation %v and %d", got, counts, total)
	}
}
