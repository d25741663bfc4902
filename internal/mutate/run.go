package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// An outcome is what the tests made of a mutant.
type outcome int

const (
	killed outcome = iota
	survived
	timedOut
)

// A suite is the test binary of a package, with the mutants of some of its files.
type suite struct {
	dir     string // of the package, absolute
	binary  string
	mutants []*mutant
	near    map[string]string // by file, a pattern of the tests in the file beside it, which are run first
	limit   time.Duration     // of one run of the tests
}

// switchEnv is the variable of the environment that says which mutant is on.
const switchEnv = "MUTANT"

// build compiles the tests of the package in dir, a path from root, with the
// mutants of files in them, and runs them once without a mutant.
func build(ctx context.Context, root, dir, temp string, files []string) (*suite, error) {
	s := &suite{dir: filepath.Join(root, dir), binary: filepath.Join(temp, strings.ReplaceAll(dir, "/", "_")+".test"), near: map[string]string{}}
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
		if s.near[file], err = testsBeside(filepath.Join(root, file)); err != nil {
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
	toggle := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar %s = func() int { n, _ := strconv.Atoi(os.Getenv(%q)); return n }()\n", name, switchName, switchEnv)
	if err := write(filepath.Join(dir, "mutant_switch.go"), toggle); err != nil {
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
	s.limit = 5 * time.Minute
	began := time.Now()
	if o, out := s.run(ctx, 0, "."); o != survived {
		return nil, fmt.Errorf("tests of %s fail without a mutant:\n%s", dir, out)
	}
	s.limit = 10*time.Since(began) + 20*time.Second // the machine may be busier later
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

// testsBeside returns a pattern of the tests in the test file of a file: "" if it
// has none.
func testsBeside(file string) (string, error) {
	text, err := os.ReadFile(strings.TrimSuffix(file, ".go") + "_test.go")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var names []string
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("func Test")); ok {
			name, _, _ := bytes.Cut(rest, []byte("("))
			names = append(names, "Test"+string(name))
		}
	}
	if err != nil || len(names) == 0 {
		return "", err
	}
	return "^(" + strings.Join(names, "|") + ")$", nil
}

// try runs the tests with a mutant switched on: those beside it, and if they do not
// notice it, all.
func (s *suite) try(ctx context.Context, m *mutant) outcome {
	if near := s.near[m.file]; near != "" {
		if o, _ := s.run(ctx, m.id, near); o != survived {
			return o
		}
	}
	o, _ := s.run(ctx, m.id, ".")
	return o
}

// run runs the tests that a pattern fits with a mutant switched on, and returns
// what they print.
func (s *suite) run(ctx context.Context, id int, tests string) (outcome, []byte) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, "-test.failfast", "-test.run="+tests)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", switchEnv, id))
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
	slots := make(chan struct{}, workers)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, m := range s.mutants {
		if !wanted(m) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			o := s.try(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			outcomes[i] = o
			report(m, o)
		})
	}
	wg.Wait()
	return outcomes
}
