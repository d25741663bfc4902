package conformance

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// passing reads the names of the vectors that must pass.
func passing(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(dataDir + "/passing.txt")
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

// The vectors that pass are those of passing.txt, whatever handlers are made of.
func TestVectors(t *testing.T) {
	all := run(t)
	both := make([]Result, len(all.vectors))
	for i := range both {
		both[i] = join(all.native[i], all.wasm[i])
	}
	for _, c := range []struct {
		mode    Mode
		results []Result
	}{{ModeNative, all.native}, {ModeWasm, all.wasm}, {ModeBoth, both}} {
		t.Run(string(c.mode), func(t *testing.T) {
			must := passing(t)
			for _, r := range c.results {
				switch {
				case r.Verdict == Deviates && must[r.Name]:
					t.Errorf("%s deviates, so it does not belong in passing.txt", r.Name)
				case deviations[r.Name] != nil && r.Verdict != Deviates:
					t.Errorf("%s shows neither the recorded behaviour nor ours: %s", r.Name, r.Difference)
				case r.Verdict == Passed && !must[r.Name]:
					t.Errorf("%s passes: add it to passing.txt", r.Name)
				case r.Verdict == Failed && must[r.Name]:
					t.Errorf("%s: %s", r.Name, r.Difference)
				}
				delete(must, r.Name)
			}
			for name := range must {
				t.Errorf("passing.txt: %s is no vector", name)
			}
		})
	}
}

// The groups of vectors about tools and the loop are complete.
func TestGroupsThatMustPass(t *testing.T) {
	group := regexp.MustCompile(`^(loop_|tool_|cb_.*tool|identity_|toolset_)`)
	must := passing(t)
	n := 0
	for _, v := range run(t).vectors {
		if !group.MatchString(v.Name) {
			continue
		}
		n++
		if !must[v.Name] && deviations[v.Name] == nil {
			t.Errorf("%s is not in passing.txt", v.Name)
		}
	}
	if n < 60 {
		t.Errorf("%d vectors in these groups", n)
	}
}

// The copy in testdata is the one beside the repository, if there is one: the same
// vectors, and the same documents about them.
func TestCopyOfVectors(t *testing.T) {
	const shared = "../../../shared/conformance"
	if _, err := os.Stat(shared); errors.Is(err, fs.ErrNotExist) {
		t.Logf("no %s to compare with", shared)
		return
	}
	files := func(dir string) map[string]bool {
		names := map[string]bool{"README.md": true, "DEVIATIONS.md": true}
		found, err := filepath.Glob(dir + "/vectors/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			names["vectors/"+filepath.Base(f)] = true
		}
		return names
	}
	theirs, ours := files(shared), files(dataDir)
	for name := range theirs {
		if !ours[name] {
			t.Errorf("%s is not in the copy", name)
			continue
		}
		a, err := os.ReadFile(filepath.Join(shared, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dataDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from the copy", name)
		}
	}
	for name := range ours {
		if !theirs[name] {
			t.Errorf("the copy has %s besides", name)
		}
	}
}
