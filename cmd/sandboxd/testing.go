package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
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
	"github.com/sandboxd/sandboxd/internal/guestlang"
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
	c.Flags().BoolVar(&f.watch, "watch", false, "stay, and test again whenever a file changes")
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
	match   func(string) bool
	engine  *host.Engine
	modules app.Modules
	guests  map[string]*tested
	order   []*tested       // guests as they came
	before  map[string]bool // how tests ended in the round before; nil in the first

	ended  map[string]bool // by file and name
	bench  bool            // what passed was only measured
	passed int
	failed int
	suites []junitSuite
	short  []string // what coverage and changed guards lack
}

// A tested is a module that tests name.
type tested struct {
	file   string // as shown
	module *host.Module
	wasm   []byte
	source string // the folder that it was built from; empty if it was not

	cover  *authortest.Cover   // nil without --cover and --mutate; module is its then
	tables []*authortest.Table // that were run
}

// tests runs a command of tests once or, with --watch, until it is interrupted.
func (e *env) tests(ctx context.Context, command, dir string, f *testFlags, round func(context.Context, *testRun) error) error {
	r := &testRun{env: e, flags: f, command: command}
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
	for {
		seen := e.stamp(dir)
		err := r.round(ctx, round)
		if !f.watch {
			return err
		}
		e.report(err)
		if !e.changed(ctx, dir, seen) {
			return nil
		}
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
	r.before, r.ended = r.ended, map[string]bool{}
	r.guests, r.order, r.passed, r.failed, r.suites, r.short = map[string]*tested{}, nil, 0, 0, nil, nil
	r.line(map[string]any{"format": 1, "kind": "start"})
	if err := round(ctx, r); err != nil {
		return err
	}
	if r.passed+r.failed == 0 {
		if r.flags.run != "" {
			return misuse("the names are those of cases and rows", "%s: no test matches %q", r.command, r.flags.run)
		}
		return misuse("tests live in tests/, files end in .test.json or .table.yaml", "%s: no test found", r.command)
	}
	if r.flags.junit != "" {
		if err := r.writeJUnit(); err != nil {
			return err
		}
	}
	if r.bench {
		return nil
	}
	for _, t := range r.order {
		if err := r.watched(ctx, t); err != nil {
			return err
		}
	}
	r.line(map[string]any{"kind": "end", "passed": r.passed, "failed": r.failed})
	r.say("%d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 {
		return &commandError{What: fmt.Sprintf("%s: %d of %d failed", r.command, r.failed, r.passed+r.failed), Exit: exitNotDone}
	}
	if len(r.short) > 0 {
		return &commandError{What: fmt.Sprintf("%s: %s", r.command, strings.Join(r.short, "; ")), Exit: exitNotDone}
	}
	return nil
}

// line prints a document of --json.
func (r *testRun) line(v any) {
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

// guest returns the module that a file of tests names, relative to its own folder:
// a folder of source, or a file. A file beside the source that makes it is made
// anew: what is tested is never older than what is written. The empty name is the
// folder above the one of the tests.
func (r *testRun) guest(ctx context.Context, file, name string) (*tested, error) {
	path := filepath.Join(filepath.Dir(file), filepath.FromSlash(name))
	if name == "" {
		path = filepath.Dir(filepath.Dir(r.path(file)))
		if rel, err := filepath.Rel(r.dir, path); err == nil {
			path = rel
		}
	}
	if filepath.IsAbs(name) {
		path = name
	}
	if t := r.guests[path]; t != nil {
		return t, nil
	}
	t, err := r.open(ctx, path)
	if err != nil {
		return nil, err
	}
	r.guests[path] = t
	r.order = append(r.order, t)
	digest := t.module.Digest().String()
	r.line(map[string]any{"kind": "module", "file": t.file, "digest": digest, "source": t.source})
	if r.before == nil {
		r.say("%s %s", foreign(t.file, true), shortDigest(digest))
		if t.source != "" {
			r.say(" (built from %s)", foreign(t.source, true))
		}
		r.say("\n")
	}
	return t, nil
}

func (r *testRun) open(ctx context.Context, path string) (*tested, error) {
	dir := filepath.Dir(path)
	if filepath.Ext(path) == ".wasm" && r.isSource(dir) {
		t, err := r.openAs(ctx, dir)
		if err != nil || filepath.Base(path) == filepath.Base(t.file) {
			return t, err
		}
	}
	return r.openAs(ctx, path)
}

func (r *testRun) openAs(ctx context.Context, path string) (*tested, error) {
	g, err := r.openGuest(ctx, r.modules, path, "")
	if err != nil {
		return nil, err
	}
	t := &tested{file: path, wasm: g.wasm}
	if r.flags.cover != "" || r.flags.mutate != "" {
		if t.cover, err = r.openCover(ctx, r.engine, g); err != nil {
			return nil, err
		}
		t.module = t.cover.Module()
	} else if t.module, err = g.load(ctx, r.modules); err != nil {
		return nil, err
	}
	if g.made {
		t.source, t.file = path, filepath.Join(path, t.module.Manifest().Name+".wasm")
	}
	return t, nil
}

// isSource reports whether a folder holds source that plugin build or policy build
// takes.
func (e *env) isSource(dir string) bool {
	_, ok := guestlang.Find(e.path(dir))
	return ok
}

// result takes the end of one test: kind is what it is, such as "row".
func (r *testRun) result(kind string, res authortest.Result) {
	key := res.File + "\x00" + kind + "\x00" + res.Name
	was, again := r.before[key]
	r.ended[key] = res.OK
	if res.OK {
		r.passed++
	} else {
		r.failed++
	}
	r.junit(kind, res)
	r.line(struct {
		Kind string `json:"kind"`
		authortest.Result
	}{kind, res})
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

// quick returns a short time for people: "19 µs", or as took.
func quick(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
	return took(d)
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"` // seconds
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (r *testRun) junit(kind string, res authortest.Result) {
	if n := len(r.suites); n == 0 || r.suites[n-1].Name != res.File {
		r.suites = append(r.suites, junitSuite{Name: res.File})
	}
	s := &r.suites[len(r.suites)-1]
	c := junitCase{Class: kind, Name: foreign(res.Name, true), Time: fmt.Sprintf("%.6f", float64(res.WallUS)/1e6)}
	s.Tests++
	if !res.OK {
		s.Failures++
		var text strings.Builder
		fmt.Fprintf(&text, "%s:%d\n", res.File, res.Line)
		for _, p := range res.Problems {
			fmt.Fprintf(&text, "%s: want %s, got %s\n", p.What, foreign(p.Want, true), foreign(p.Got, true))
		}
		c.Failure = &junitFailure{Message: foreign(res.Problems[0].What+": "+res.Problems[0].Got, false), Text: text.String()}
	}
	s.Cases = append(s.Cases, c)
}

func (r *testRun) writeJUnit() error {
	data, err := xml.MarshalIndent(struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []junitSuite
	}{Suites: r.suites}, "", "  ")
	if err != nil {
		return err
	}
	return r.writeFile(r.flags.junit, append([]byte(xml.Header), append(data, '\n')...))
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
