package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/app"
	"github.com/sandboxd/sandboxd/internal/authortest"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// testFlags are what plugin test and policy test have in common.
type testFlags struct {
	run    string
	junit  string
	json   bool
	watch  bool
	full   bool
	update bool   // plugin test only
	cover  string // "": off; else the least percentage
	mutate string // likewise; policy test only
}

func (f *testFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.run, "run", "", "only tests whose name matches the regular expression `RE`")
	c.Flags().StringVar(&f.junit, "junit", "", "write a report in JUnit's form to `FILE`, too")
	c.Flags().BoolVar(&f.watch, "watch", false, "stay, and test again what depends on a file when it changes")
	c.Flags().BoolVar(&f.full, "full", false, "do not shorten values")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document a line")
	c.Flags().StringVar(&f.cover, "cover", "", "say which branches of the author's code the tests take; less than `PERCENT` of them is a failure")
	c.Flags().Lookup("cover").NoOptDefVal = "0"
	groupFlags(c, "input", "run", "watch")
	groupFlags(c, "output", "junit", "full", "json", "cover")
}

// A testRun runs the tests below one folder.
type testRun struct {
	*env
	flags   *testFlags
	command string // such as "policy test"
	under   string // the folder, as the user named it
	match   func(string) bool
	engine  *host.Engine
	modules app.Modules
	past    past

	guests  map[string]*tested
	order   []*tested // guests as they came
	running *kept     // what the file that is run has said so far
	began   bool      // a line of --json was printed
	bench   bool      // what passed was only measured
	ran     bool      // a file was
	passed  int
	failed  int
	suites  []junitSuite
}

// tests runs a command of tests once or, with --watch, until it is interrupted.
func (e *env) tests(ctx context.Context, command, dir string, f *testFlags, round func(context.Context, *testRun) error) error {
	r := &testRun{env: e, flags: f, command: command, under: dir, past: newPast()}
	if f.run != "" {
		re, err := regexp.Compile(f.run)
		if err != nil {
			return misuse("", "--run: %v", err)
		}
		r.match = re.MatchString
	}
	for flag, text := range map[string]string{"cover": f.cover, "mutate": f.mutate} {
		if _, err := percent(text); err != nil {
			return misuse("such as --"+flag+"=80", "--%s: %q is no percentage", flag, text)
		}
	}
	if info, err := os.Stat(e.path(dir)); err != nil {
		return &fileError{dir, err}
	} else if !info.IsDir() {
		return misuse("", "%s: not a folder", dir)
	}
	var err error
	log := slog.New(unplanned{e.logger(false).Handler()})
	if r.engine, r.modules, err = e.modulesWithLog(ctx, log); err != nil {
		return err
	}
	defer r.engine.Close()
	r.watch(dir)
	for {
		err := r.round(ctx, round)
		if !f.watch {
			return err
		}
		if ctx.Err() != nil {
			return nil // interrupted while it ran, which is no failure
		}
		e.report(err)
		if !e.changed(ctx, r.moved) {
			return nil
		}
		r.look()
	}
}

// unplanned is a log without the failures that tests ask for.
type unplanned struct{ slog.Handler }

func (u unplanned) Handle(ctx context.Context, r slog.Record) error {
	planned := false
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		planned = planned || errors.Is(err, authortest.ErrDown)
		return !planned
	})
	if planned {
		return nil
	}
	return u.Handler.Handle(ctx, r)
}

func (r *testRun) round(ctx context.Context, round func(context.Context, *testRun) error) error {
	r.guests, r.order, r.began, r.ran, r.passed, r.failed, r.suites = map[string]*tested{}, nil, false, false, 0, 0, nil
	err := round(ctx, r)
	if r.nothingNew(err) {
		return nil
	}
	r.begin()
	if err != nil {
		return err
	}
	if r.passed+r.failed == 0 {
		if r.flags.run != "" {
			return misuse("the names are those of cases and rows", "tests: no test under %s matches %q", r.under, r.flags.run)
		}
		return misuse(r.where(), "tests: no test found under %s", r.under)
	}
	if r.flags.junit != "" {
		if err := r.writeJUnit(); err != nil {
			return err
		}
	}
	if r.bench {
		return nil
	}
	var short []string
	for _, t := range r.order {
		if err := r.watched(ctx, t); err != nil {
			return err
		}
		short = append(short, t.short...)
	}
	r.line(map[string]any{"kind": "end", "passed": r.passed, "failed": r.failed})
	r.say("%d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 {
		return &commandError{What: fmt.Sprintf("%s: %d of %d failed", r.command, r.failed, r.passed+r.failed), Exit: exitNotDone}
	}
	if len(short) > 0 {
		return &commandError{What: fmt.Sprintf("%s: %s", r.command, strings.Join(short, "; ")), Exit: exitNotDone}
	}
	return nil
}

// How the names of files end that hold cases for plugin test, and tables for policy test.
var (
	caseFiles  = []string{".test.yaml", ".test.json"}
	tableFiles = []string{".table.yaml", ".table.json"}
)

// where says where tests live, or which command runs those that there are.
func (r *testRun) where() string {
	other, files := "sandboxd policy test", tableFiles
	if strings.HasPrefix(r.command, "policy ") {
		other, files = "sandboxd plugin test", caseFiles
	}
	if found, err := r.find(r.under, files...); err == nil && len(found) > 0 {
		return other + " runs " + found[0]
	}
	return "tests live in tests/, files end in .test.json or .table.yaml"
}

// begin prints the first document of a round of --json.
func (r *testRun) begin() {
	if !r.began {
		r.began = true
		r.line(map[string]any{"format": 1, "kind": "start"})
	}
}

// line prints a document of --json.
func (r *testRun) line(v any) {
	r.begin()
	if r.flags.json {
		_ = json.NewEncoder(r.stdout).Encode(v) // a pipe that nobody reads ends the process
	}
}

// say prints for people.
func (r *testRun) say(format string, args ...any) {
	if !r.flags.json {
		fmt.Fprintf(r.stdout, format, args...)
	}
}

// find returns the files below dir that have one of the suffixes, as named from
// where the user is. Hidden folders, copies of the SDK and what npm installed are left out.
func (e *env) find(dir string, suffixes ...string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(e.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != e.path(dir) && (strings.HasPrefix(d.Name(), ".") || d.Name() == "sdk" || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(d.Name(), s) }) {
			rel, err := filepath.Rel(e.path(dir), path)
			if err != nil {
				return err
			}
			found = append(found, filepath.Join(dir, rel))
		}
		return nil
	})
	if err != nil {
		return nil, &fileError{dir, err}
	}
	return found, nil
}

// result takes the end of one test: kind is what it is, such as "row".
func (r *testRun) result(kind string, res authortest.Result) {
	key := res.File + "\x00" + kind + "\x00" + res.Name
	was, again := r.past.ended[key]
	r.past.ended[key] = res.OK
	said := keptResult{kind, res}
	r.running.results = append(r.running.results, said)
	r.count(said)
	r.line(said)
	if again && was == res.OK {
		return // with --watch, only what changed
	}
	p := r.palette(r.stdout)
	if res.OK {
		if kind == "case" || again {
			r.say("%s    %-28s %s   fuel %s\n", p.green("ok"), foreign(res.Name, r.flags.full), quick(time.Duration(res.WallUS)*time.Microsecond), fuel(res.Fuel))
		}
		return
	}
	name := foreign(res.Name, r.flags.full)
	if kind != "case" && kind != "row" {
		name = kind + ": " + name
	}
	problems := res.Problems
	r.say("%s  %s", p.red("FAIL"), name)
	first := problems[0]
	if step, ok := strings.CutSuffix(first.What, ": verdict"); ok {
		first.What = "verdict"
		r.say(": %s", foreign(step, r.flags.full))
	}
	if first.What == "verdict" {
		r.say("   want %s   got %s", foreign(first.Want, r.flags.full), foreign(first.Got, r.flags.full))
		problems = problems[1:]
	}
	r.say("\n")
	if res.File != "" {
		r.say("      %s:%d\n", foreign(res.File, true), res.Line)
	}
	for _, problem := range problems {
		if problem.Want == "" {
			r.say("      %s: %s\n", problem.What, foreign(problem.Got, r.flags.full))
			continue
		}
		r.say("      want %s  %s\n      got  %s  %s\n", problem.What, foreign(problem.Want, r.flags.full), strings.Repeat(" ", len(problem.What)), foreign(problem.Got, r.flags.full))
	}
}

// count counts a result, of this round or of one before.
func (r *testRun) count(said keptResult) {
	if said.OK {
		r.passed++
	} else {
		r.failed++
	}
	r.junit(said.Kind, said.Result)
}

// quick returns a short time for people: "19 µs", or as took.
func quick(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
	return took(d)
}

// readTests reads a file of tests.
func (r *testRun) readTests(name string) ([]byte, error) {
	info, err := os.Stat(r.path(name))
	if err == nil && info.Size() > maxTests {
		err = fmt.Errorf("%s exceed %s", size(info.Size()), size(maxTests))
	}
	if err != nil {
		return nil, &fileError{name, err}
	}
	return r.readFile(name)
}

// maxTests is the most bytes that one file of tests may have.
const maxTests = 4 << 20

// guardNames returns the names of a module's guards.
func guardNames(m *abi.Manifest) []string {
	var names []string
	for _, g := range m.Guards {
		names = append(names, g.Name)
	}
	return names
}

// errNoGuard says that a module has no such guard, or several; what begins the text.
func errNoGuard(what, name string, m *abi.Manifest) error {
	names := guardNames(m)
	hint := "it has " + strings.Join(names, ", ")
	if len(names) == 0 {
		hint = "a guard is an export of kind Guard"
	}
	if name == "" && len(names) > 1 {
		return misuse(hint, "%s: name one guard: module %s has several", what, m.Name)
	}
	if name == "" {
		return misuse(hint, "%s: module %s has no guard", what, m.Name)
	}
	if near := app.Nearest(name, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return misuse(hint, "%s: module %s has no guard %q", what, m.Name, name)
}
