package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An outcome is what the tests made of a mutant.
type outcome int

const (
	killed outcome = iota
	survived
	unreached // no test comes by it, so it survives
	timedOut
)

// A suite is the test binary of a package, with the mutants of some of its files.
type suite struct {
	dir     string // of the package, absolute
	binary  string
	mutants []*mutant
	reached map[int][]test // by mutant, the tests that come by it, quickest first
}

// A test is one of a suite's.
type test struct {
	name string
	took time.Duration // alone and without a mutant
}

// Variables of the environment of a test binary: the mutant that is on, and a file
// that is told which mutants are come by.
const (
	switchEnv = "MUTANT"
	reachEnv  = "MUTANTS_REACHED"
)

// toggle is the file that a package gets. What is reached is written at once, since
// tests start processes, and kill them.
const toggle = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantSwitchedOn = func() int { n, _ := strconv.Atoi(os.Getenv("` + switchEnv + `")); return n }()

var mutantsReached = func() *os.File {
	name := os.Getenv("` + reachEnv + `")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	return f
}()

var mutantsSeen [%d]atomic.Bool

func ` + switchName + `(id int) bool {
	if mutantsReached != nil && !mutantsSeen[id].Swap(true) {
		if _, err := mutantsReached.WriteString(strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
	}
	return id == mutantSwitchedOn
}
`

// build compiles the tests of the package in dir, a path from root, with the
// mutants of files in them, and measures them.
func build(ctx context.Context, root, dir, temp string, workers int, files []string) (*suite, error) {
	s := &suite{dir: filepath.Join(root, dir), binary: filepath.Join(temp, strings.ReplaceAll(dir, "/", "_")+".test")}
	overlay := map[string]string{}
	name, next := "", 1
	write := func(file, text string) error {
		place := filepath.Join(temp, strings.ReplaceAll(file, "/", "_"))
		overlay[filepath.Join(root, file)] = place
		return os.WriteFile(place, []byte(text), 0o600)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		src, err := mutants(file, text, next)
		if err != nil {
			return nil, err
		}
		if err := write(file, src.schema()); err != nil {
			return nil, err
		}
		s.mutants = append(s.mutants, src.all()...)
		next = src.next
		name = packageName(text)
	}
	if err := write(filepath.Join(dir, "mutant_switch.go"), fmt.Sprintf(toggle, name, next)); err != nil {
		return nil, err
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	replaced := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(replaced, list, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", replaced, "-o", s.binary, "./"+dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("tests of %s with mutants: %w\n%s", dir, err, out)
	}
	if err := s.measure(ctx, workers, filepath.Join(temp, "reached")); err != nil {
		return nil, fmt.Errorf("tests of %s without a mutant: %w", dir, err)
	}
	return s, nil
}

// packageName returns the name in a package clause.
func packageName(text []byte) string {
	for line := range bytes.Lines(text) {
		if name, ok := bytes.CutPrefix(line, []byte("package ")); ok {
			return string(bytes.Fields(name)[0])
		}
	}
	return ""
}

// longest is the most time that a test may take without a mutant.
const longest = 5 * time.Minute

// measure runs each test alone, some at a time, to see how long it takes and which
// mutants it comes by. It writes files whose names begin with list.
func (s *suite) measure(ctx context.Context, workers int, list string) error {
	cmd := exec.CommandContext(ctx, s.binary, "-test.list=.")
	cmd.Dir = s.dir
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var tests []test
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Benchmark") {
			tests = append(tests, test{name: name})
		}
	}
	reached := map[string][]int{}
	failed := make([]error, len(tests))
	var mu sync.Mutex
	atOnce(workers, len(tests), func(i int) {
		t := &tests[i]
		file := list + strconv.Itoa(i)
		if failed[i] = os.WriteFile(file, nil, 0o600); failed[i] != nil {
			return
		}
		began := time.Now()
		o, out := s.run(ctx, longest, []test{*t}, reachEnv+"="+file)
		t.took = time.Since(began)
		if o != survived {
			failed[i] = fmt.Errorf("%s fails:\n%s", t.name, out)
			return
		}
		var ids []int
		ids, failed[i] = readReached(file)
		mu.Lock()
		defer mu.Unlock()
		reached[t.name] = ids
	})
	if err := cmp.Or(context.Cause(ctx), errors.Join(failed...)); err != nil {
		return err
	}
	slices.SortStableFunc(tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	s.reached = map[int][]test{}
	for _, t := range tests {
		for _, id := range reached[t.name] {
			s.reached[id] = append(s.reached[id], t)
		}
	}
	return nil
}

// readReached reads which mutants the processes of a test came by.
func readReached(file string) ([]int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var ids []int
	for line := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// portion is how much time the tests of one process take together, or else it is one.
const portion = 200 * time.Millisecond

// try runs the tests that come by a mutant with it switched on, until one fails.
func (s *suite) try(ctx context.Context, m *mutant) outcome {
	tests := s.reached[m.id]
	if len(tests) == 0 {
		return unreached
	}
	for len(tests) > 0 {
		n, took := 0, time.Duration(0)
		for n == 0 || n < len(tests) && took+tests[n].took <= portion {
			took += tests[n].took
			n++
		}
		// The machine may be far busier than it was.
		if o, _ := s.run(ctx, 5*time.Second+20*took, tests[:n], fmt.Sprintf("%s=%d", switchEnv, m.id)); o != survived {
			return o
		}
		tests = tests[n:]
	}
	return survived
}

// run runs tests with a variable added to the environment, and returns what they print.
func (s *suite) run(ctx context.Context, limit time.Duration, tests []test, variable string) (outcome, []byte) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	cmd := exec.CommandContext(ctx, s.binary, "-test.failfast", "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), variable)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return survived, out
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timedOut, out
	}
	return killed, out
}

// judge tries every mutant that wanted accepts, some at a time, and reports each
// as it is done. outcomes are in the order of the suite's mutants; those that were
// not wanted are killed.
func (s *suite) judge(ctx context.Context, workers int, wanted func(*mutant) bool, report func(*mutant, outcome)) []outcome {
	outcomes := make([]outcome, len(s.mutants))
	var mu sync.Mutex
	atOnce(workers, len(s.mutants), func(i int) {
		m := s.mutants[i]
		if !wanted(m) {
			return
		}
		o := s.try(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		outcomes[i] = o
		report(m, o)
	})
	return outcomes
}

// atOnce calls f with 0 to n-1, so many at a time.
func atOnce(workers, n int, f func(int)) {
	slots := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}
