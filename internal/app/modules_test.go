package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/host"
)

// TestDescribedOnce: what a built guest says of itself is remembered with it, and asked
// again if the answer is damaged.
func TestDescribedOnce(t *testing.T) {
	engine, err := host.Open(t.Context(), host.Config{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	const source = "../../cmd/sandboxd/testdata/words"
	builds := t.TempDir()
	asked, _, err := Modules{Engine: engine, Builds: builds}.Build(t.Context(), source, nil)
	if err != nil {
		t.Fatal(err)
	}
	remembered, built, err := Modules{Builds: builds}.Build(t.Context(), source, nil) // there is nobody to ask
	if err != nil || !built.Cached || !bytes.Equal(remembered, asked) {
		t.Fatalf("error %v, cached %v, the same %v", err, built.Cached, bytes.Equal(remembered, asked))
	}
	kept, err := filepath.Glob(filepath.Join(builds, "*-manifest-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d answers are kept, error %v", len(kept), err)
	}
	data, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := []byte(strings.Replace(string(data), `"name":"words"`, `"name":"woods"`, 1))
	if bytes.Equal(damaged, data) {
		t.Fatalf("kept %q", data)
	}
	if err := os.WriteFile(kept[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	again, _, err := Modules{Engine: engine, Builds: builds}.Build(t.Context(), source, nil)
	if err != nil || !bytes.Equal(again, asked) {
		t.Errorf("error %v, the same %v", err, bytes.Equal(again, asked))
	}
}
