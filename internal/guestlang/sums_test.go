package guestlang_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the sums of committed guests and their sources")

// TestSums holds committed guests to their sources, and to the SDKs, on a machine without
// their compilers: whoever changes one of these writes all sums anew, and those of the guests
// that were built of it change with them. The guests are those that .gitignore excepts; those
// in Rego have their own sums, in internal/regobuild.
func TestSums(t *testing.T) {
	const file = "../../testdata/wasm/SHA256SUMS"
	patterns := []string{"../../testdata/wasm/*", "../../testdata/wasm/peer/*"}
	for _, lang := range []string{"c", "rust", "assemblyscript", "rego"} {
		sdk := "../../sdk/guest/" + lang
		patterns = append(patterns, sdk+"/sandboxd.*", sdk+"/examples/*/*")
		if lang != "rego" {
			patterns = append(patterns, sdk+"/testdata/*/*")
		}
	}
	rego := string(read(t, "../regobuild/testdata/SHA256SUMS"))
	for line := range strings.Lines(string(read(t, "../../.gitignore"))) {
		guest, committed := strings.CutPrefix(strings.TrimSpace(line), "!/")
		if committed && !strings.HasPrefix(guest, "testdata/wasm/") && !strings.Contains(rego, filepath.Base(guest)) {
			patterns = append(patterns, "../../"+filepath.Dir(guest)+"/*")
		}
	}
	var own, others []string
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(filepath.Dir(file), name)
			if err != nil {
				t.Fatal(err)
			}
			built := strings.HasPrefix(name, "../../sdk/") && filepath.Ext(name) == ".wasm" // by somebody who tries an example
			if info.IsDir() || built || rel == filepath.Base(file) {
				continue
			}
			sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(read(t, name)), filepath.ToSlash(rel))
			if strings.HasPrefix(rel, "..") {
				others = append(others, sum)
			} else {
				own = append(own, sum)
			}
		}
	}
	want := strings.Join(slices.Concat(own, others), "")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := string(read(t, file))
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			t.Errorf("not in %s: %s", file, line)
		}
	}
	if t.Failed() || got != want {
		t.Errorf("%s is not of the files that are here: build the guests that are made of what has changed, then go test ./internal/guestlang -run Sums -update", file)
	}
}
