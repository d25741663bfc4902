package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genai"
)

// Artifacts are kept as long as sessions are: what one process saved, the next one
// loads. Files of the app are saved again only when they have changed.
func TestArtifactsAreKept(t *testing.T) {
	for store, kept := range map[string]bool{"memory": false, "sqlite": true} {
		t.Run(store, func(t *testing.T) {
			dir := write(t, least+"store: {sessions: "+store+"}\nartifacts: {dir: files}\n")
			put := func(name, text string) {
				if err := os.MkdirAll(filepath.Join(dir, "files"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put("r.yaml", replies)
			put("files/a.txt", "one")
			put("files/b.bin", "\xff\x00")
			long := strings.Repeat("x", 17<<20)
			process := func(body func(rt *Runtime, versions func(name string) int64)) {
				t.Helper()
				f, err := Load(dir)
				if err != nil {
					t.Fatal(err)
				}
				rt, err := Open(t.Context(), f, Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer rt.Close()
				key, err := rt.Session(t.Context(), "u", "s-1")
				if err != nil {
					t.Fatal(err)
				}
				body(rt, func(name string) (n int64) {
					for {
						if _, err := rt.artifacts.Load(t.Context(), key, name, n+1); err != nil {
							return n
						}
						n++
					}
				})
			}
			process(func(rt *Runtime, versions func(string) int64) {
				key, err := rt.Session(t.Context(), "u", "s-1") // the second time in one process
				if err != nil {
					t.Fatal(err)
				}
				if a, b := versions("a.txt"), versions("b.bin"); a != 1 || b != 1 {
					t.Errorf("%d and %d versions of files that did not change", a, b)
				}
				if _, err := rt.artifacts.Save(t.Context(), key, "results/long.json", genai.NewPartFromBytes([]byte(long), "application/json")); err != nil {
					t.Fatal(err)
				}
			})
			put("files/a.txt", "two")
			process(func(rt *Runtime, versions func(string) int64) {
				key, err := rt.Session(t.Context(), "u", "s-1")
				if err != nil {
					t.Fatal(err)
				}
				a, b, results := versions("a.txt"), versions("b.bin"), versions("results/long.json")
				if want := map[bool][3]int64{true: {2, 1, 1}, false: {1, 1, 0}}[kept]; [3]int64{a, b, results} != want {
					t.Errorf("versions %d, %d and %d, want %d", a, b, results, want)
				}
				if part, err := rt.artifacts.Load(t.Context(), key, "a.txt", 0); err != nil || part.Text != "two" {
					t.Errorf("the file is %+v, %v", part, err)
				}
				if part, err := rt.artifacts.Load(t.Context(), key, "results/long.json", 0); kept && (err != nil || string(part.InlineData.Data) != long) {
					t.Errorf("the result: %v", err)
				}
			})
		})
	}
}
