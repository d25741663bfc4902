package conformance

import (
	"os"
	"strings"
	"testing"
)

const vectorDir = "../../testdata/conformance/vectors"

// passing reads the names of the vectors that must pass.
func passing(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("../../testdata/conformance/passing.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			if names[line] {
				t.Errorf("passing.txt: %s is there twice", line)
			}
			names[line] = true
		}
	}
	return names
}

func TestVectorsNative(t *testing.T) {
	vectors, err := Load(vectorDir)
	if err != nil {
		t.Fatal(err)
	}
	must := passing(t)
	for _, v := range vectors {
		r := Check(t.Context(), v, Native)
		switch {
		case r.Verdict == Deviates && must[v.Name]:
			t.Errorf("%s deviates, so it does not belong in passing.txt", v.Name)
		case deviations[v.Name] != nil && r.Verdict != Deviates:
			t.Errorf("%s shows neither the recorded behaviour nor ours: %s", v.Name, r.Difference)
		case r.Verdict == Passed && !must[v.Name]:
			t.Errorf("%s passes: add it to passing.txt", v.Name)
		case r.Verdict == Failed && must[v.Name]:
			t.Errorf("%s: %s", v.Name, r.Difference)
		}
		delete(must, v.Name)
	}
	for name := range must {
		t.Errorf("passing.txt: %s is no vector", name)
	}
}
