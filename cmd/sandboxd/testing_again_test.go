package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/clitest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A watcher is a command with --watch that a test drives: it looks for changes when the
// test says so, and does nothing meanwhile.
type watcher struct {
	t      *testing.T
	dir    string
	cancel context.CancelFunc
	pauses chan struct{} // gets one when the command has nothing to do
	looks  chan struct{} // has it look for changes
	ended  chan int      // gets the exit code

	out, errs bytes.Buffer // read while the command pauses
}

// start starts a command, whose first round is over when it returns.
func (w *watcher) start(args ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	w.cancel, w.pauses, w.looks, w.ended = cancel, make(chan struct{}), make(chan struct{}), make(chan int, 1)
	e := &env{args: args, stdin: typed("", false), stdout: stream{&w.out, false}, stderr: stream{&w.errs, false},
		getenv: func(string) string { return "" }, dir: w.dir, cache: func() (string, error) { return clitest.Cache(), nil }, now: time.Now,
		user: func() (string, error) { return "ada", nil },
		pause: func(ctx context.Context) {
			select {
			case w.pauses <- struct{}{}:
			case <-ctx.Done():
				return
			}
			select {
			case <-w.looks:
			case <-ctx.Done():
			}
		}}
	go func() { w.ended <- run(ctx, e) }()
	w.t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	w.paused()
}

// paused waits until the command has nothing to do.
func (w *watcher) paused() {
	w.t.Helper()
	select {
	case <-w.pauses:
	case code := <-w.ended:
		w.ended <- code
		w.t.Fatalf("the loop ended with %d: %s%s", code, &w.out, &w.errs)
	}
}

// rounds has the command look for changes, and returns what it said. The first look finds what
// the test changed, the second what a round wrote itself, and the third is to find nothing.
func (w *watcher) rounds() (stdout, stderr string) {
	w.t.Helper()
	for range 3 {
		select {
		case w.looks <- struct{}{}:
			w.paused()
		case code := <-w.ended:
			w.ended <- code
			w.t.Fatalf("the loop ended with %d", code)
		}
	}
	stdout, stderr = w.out.String(), w.errs.String()
	w.out.Reset()
	w.errs.Reset()
	return stdout, stderr
}

// write writes a file below the folder.
func (w *watcher) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watcher) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// edit replaces text in a file, which has to be there.
func (w *watcher) edit(name, old, text string) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil || !strings.Contains(string(data), old) {
		w.t.Fatalf("%s: %q is not there; error %v", name, old, err)
	}
	w.write(name, strings.ReplaceAll(string(data), old, text))
}

// append writes text at the end of a file.
func (w *watcher) append(name, text string) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(name, string(data)+text)
}

// interrupt ends the command, and checks that it ends as one that was to end.
func (w *watcher) interrupt() {
	w.t.Helper()
	w.cancel()
	code := <-w.ended
	w.ended <- code
	if code != exitDone || w.errs.Len() > 0 {
		w.t.Errorf("interrupted: exit %d, errors %q", code, &w.errs)
	}
}

// ran returns in one line what documents of --json say: modules that are new, tests that were
// run, those that failed with a !, and the counts at the end.
func ran(t *testing.T, stdout string) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(stdout) {
		var doc struct {
			Kind, File, Name string
			OK               bool
			Passed, Failed   int
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch doc.Kind {
		case "start", "fail-closed", "mutant":
		case "module":
			all = append(all, "module "+filepath.ToSlash(doc.File))
		case "end":
			all = append(all, fmt.Sprintf("%d of %d", doc.Passed, doc.Passed+doc.Failed))
		case "cover", "mutate", "no-grant twin":
			all = append(all, doc.Kind)
		default:
			if !doc.OK {
				doc.Name += "!"
			}
			all = append(all, doc.Name)
		}
	}
	return strings.Join(all, ", ")
}

// calc is a module with the tool answer, which answers with data.
func calc(t *testing.T, data string) string {
	t.Helper()
	m := abi.Manifest{ABI: abi.Version, Name: "calc", Version: "1.0.0", Tools: []abi.Tool{{Name: "answer", Export: "answer", Raw: true, Effects: abi.None}}}
	section, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := wasmbin.SetCustom(module{export: "answer", data: data}.bytes(), abi.ManifestSection, section)
	if err != nil {
		t.Fatal(err)
	}
	return string(packed)
}

// A step is what a user does while a command watches, and what that says then.
type watchStep struct {
	name   string
	change func()
	ran    string // see ran; empty: nothing is printed
	stderr string // a part of it; empty: nothing is
	builds int    // how many modules are built
}

// steps takes each step, and checks what the command said.
func (w *watcher) steps(steps []watchStep) {
	w.t.Helper()
	built := func() int {
		all, err := filepath.Glob(filepath.Join(clitest.Cache(), "sandboxd", "guestbuild", strings.Repeat("?", 64)))
		if err != nil || len(all) == 0 {
			w.t.Fatalf("%d builds are kept, error %v", len(all), err)
		}
		return len(all)
	}
	before := 0
	for i, step := range steps {
		step.change()
		stdout, stderr := w.rounds()
		if got := ran(w.t, stdout); got != step.ran || !strings.Contains(stderr, step.stderr) || step.stderr == "" && stderr != "" {
			w.t.Errorf("%s:\n got %s\nwant %s\nerrors %q, want %q", step.name, got, step.ran, stderr, step.stderr)
		}
		now := built()
		if i > 0 && now-before != step.builds { // at first another test may have built the same
			w.t.Errorf("%s: %d modules were built, want %d", step.name, now-before, step.builds)
		}
		before = now
	}
}

// TestPluginTestWatch: of what is written, what depends on it is built and run again, and
// nothing else; mistakes are told, and the loop goes on until it is interrupted.
func TestPluginTestWatch(t *testing.T) {
	w := &watcher{t: t, dir: t.TempDir()}
	if code, _, stderr := try(t, w.dir, "", false, nil, "plugin", "new", "--lang", "go", "src/hello"); code != exitDone {
		t.Fatal(stderr)
	}
	w.write("calc.wasm", calc(t, `{"answer":42}`)) // beside the folder that is tested, as is the next
	w.write("files/f", "one")
	const a, b, hello = "src/calc/a.test.json", "src/calc/b.test.json", "src/hello/main.go"
	w.write(a, `{"format":1,"module":"../../calc.wasm","cases":[{"name":"a","tool":"answer","args":{},"want":{"result":{"answer":42}}}]}`)
	w.write(b, `{"format":1,"module":"../../calc.wasm","cases":[{"name":"b","tool":"answer","args":{},"artifacts":{"f":"../../files/f"},"want":{"snapshot":"b.json"}}]}`)
	const all = "three days, unknown place, no grant, no-grant twin"
	w.start("plugin", "test", "--watch", "--json", "--junit", "src/report.xml", "src")
	w.steps([]watchStep{
		{"at first", func() {}, "module calc.wasm, a, b, module src/hello/hello.wasm, " + all + ", 6 of 6", "", 0},
		{"nothing", func() {}, "", "", 0},
		{"what no test depends on", func() { w.write("src/README.md", "x") }, "", "", 0},
		{"a file of tests", func() { w.edit(a, "42", "41") }, "a!, 5 of 6", "1 of 6 failed", 0},
		{"a file of tests that cannot be read", func() { w.edit(a, "cases", "case") }, "", `unknown`, 0},
		{"and is as it was", func() { w.edit(a, `"case"`, `"cases"`) }, "5 of 6", "1 of 6 failed", 0},
		{"and is right", func() { w.edit(a, "41", "42") }, "a, 6 of 6", "", 0},
		{"what one case reads", func() { w.write("files/f", "two") }, "b, 6 of 6", "", 0},
		{"which is not there", func() { w.remove("files/f") }, "", "files/f", 0},
		{"and is again", func() { w.write("files/f", "two") }, "6 of 6", "", 0},
		{"a module that is built elsewhere", func() { w.write("calc.wasm", calc(t, `{"answer":43}`)) }, "module calc.wasm, a!, b!, 4 of 6", "2 of 6 failed", 0},
		{"a snapshot", func() { w.edit("src/calc/b.json", "42", "43") }, "b, 5 of 6", "1 of 6 failed", 0},
		{"a snapshot that is gone", func() { w.remove("src/calc/b.json") }, "b, 5 of 6", "1 of 6 failed", 0},
		{"source that does not build", func() { w.edit(hello, "func main() {}", "func main() {") }, "", "does not build", 0},
		{"and another mistake meanwhile", func() { w.edit(a, "42", "43") }, "a", "does not build", 0},
		{"and is mended, and does something else", func() {
			w.edit(hello, "func main() {", "func main() {}")
			w.edit(hello, "no place called", "there is no")
		},
			"module src/hello/hello.wasm, three days, unknown place!, no grant, no-grant twin, 5 of 6", "1 of 6 failed", 1},
		{"source as it was", func() { w.edit(hello, "there is no", "no place called") }, "module src/hello/hello.wasm, " + all + ", 6 of 6", "", 0},
		{"a comment", func() { w.append(hello, "\n// Hello.\n") }, "", "", 1},
		{"a file of tests that goes", func() { w.remove(b) }, "5 of 5", "", 0},
		{"and one that comes", func() {
			w.write("src/c.test.json", `{"format":1,"module":"../calc.wasm","cases":[{"name":"c","tool":"answer","args":{},"want":{"result":{"answer":43}}}]}`)
		}, "c, 6 of 6", "", 0},
	})
	w.interrupt()
}

// TestPolicyTestWatch: what is said of all tests of a module together, such as what they
// reach, is said anew when one of them changes, and not of other modules.
func TestPolicyTestWatch(t *testing.T) {
	w := &watcher{t: t, dir: t.TempDir()}
	for _, name := range []string{"night", "office"} {
		if code, _, stderr := try(t, w.dir, "", false, nil, "policy", "new", "--lang", "go", name); code != exitDone {
			t.Fatal(stderr)
		}
		w.remove(name + "/tests/" + name + ".table.yaml")
	}
	table := func(path, want string) {
		w.write(path+".table.yaml", "settings: {tools: [deploy], from: 8, until: 16}\nbase: {phase: call, call: {tool: deploy, effects: once}, now: '2026-03-02T10:00:00Z'}\n"+
			"rows:\n  - ["+filepath.Base(path)+", {}, "+want+"]\n")
	}
	table("night/tests/a", "allow")
	table("office/tests/b", "allow")
	table("office/tests/c", "allow")
	w.start("policy", "test", "--watch", "--json", "--cover", "--mutate=0")
	w.steps([]watchStep{
		{"at first", func() {}, "module night/night.wasm, a, module office/office.wasm, b, c, cover, mutate, cover, mutate, 48 of 48", "", 0},
		{"one of two tables of a module", func() { table("office/tests/b", "deny") }, "b!, c, cover, 47 of 48", "1 of 48 failed", 0},
		{"the other module's", func() { table("night/tests/a", "deny") }, "a!, b!, c, cover, cover, 46 of 48", "2 of 48 failed", 0},
		{"a table that cannot be read", func() { table("night/tests/a", "perhaps") }, "", "perhaps", 0},
		{"and is mended", func() { table("night/tests/a", "allow") }, "a, b!, c, cover, cover, 47 of 48", "1 of 48 failed", 0},
		{"no row fails any more", func() { table("office/tests/b", "allow") }, "a, b, c, cover, mutate, cover, mutate, 48 of 48", "", 0},
	})
	w.interrupt()
}

// TestWatchInterruptedInARound: an interrupt is no failure of what it interrupts.
func TestWatchInterruptedInARound(t *testing.T) {
	w := &watcher{t: t, dir: t.TempDir()}
	w.write("calc.wasm", calc(t, `{"answer":42}`))
	w.write("tests/a.test.json", `{"format":1,"module":"../calc.wasm","cases":[{"name":"a","tool":"answer","args":{},"want":{"ran":true}},{"name":"b","tool":"answer","args":{},"want":{"ran":true}}]}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &answers{next: []func(){func() {}, func() {}, cancel}} // start, module, a
	e := &env{args: []string{"plugin", "test", "--watch", "--json"}, stdin: typed("", false), stdout: stream{out, false}, stderr: stream{&w.errs, false},
		getenv: func(string) string { return "" }, dir: w.dir, cache: func() (string, error) { return clitest.Cache(), nil }, now: time.Now}
	if code := run(ctx, e); code != exitDone || w.errs.Len() > 0 || len(out.all) != 3 || !strings.Contains(out.all[2], `"name":"a"`) {
		t.Errorf("exit %d, printed %q, errors %q", code, out.all, &w.errs)
	}
}
