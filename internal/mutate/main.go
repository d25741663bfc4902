package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("mutate", flag.ExitOnError)
	list := flags.String("equivalent", "", "`file` that lists the mutants that change nothing")
	only := flags.String("only", "", "try no mutants but those whose place or change has this `text`")
	workers := flags.Int("workers", 2, "`mutants` that are tried at the same time")
	_ = flags.Parse(os.Args[1:]) // it exits
	if err := mutate(ctx, os.Stdout, ".", *list, *only, *workers, flags.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// What is asked of the tests, in percent.
const (
	leastKilled    = 90
	mostEquivalent = 3
)

// mutate tries the mutants of files, which are paths from root, and writes a line
// for each that no test notices, and the figures.
func mutate(ctx context.Context, out io.Writer, root, list, only string, workers int, files []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	listed, err := readEquivalent(list)
	if err != nil {
		return err
	}
	packages := map[string][]string{}
	for _, f := range files {
		f = filepath.ToSlash(filepath.Clean(f))
		packages[path.Dir(f)] = append(packages[path.Dir(f)], f)
	}
	temp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	wanted := func(m *mutant) bool {
		return only == "" || strings.Contains(m.place(), only) || strings.Contains(m.change(), only)
	}
	var total, dead, late, same int
	var wrong []string
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		s, err := build(ctx, root, dir, temp, workers, packages[dir])
		if err != nil {
			return err
		}
		outcomes := s.judge(ctx, workers, wanted, func(m *mutant, o outcome) {
			_, equivalent := listed[m.key()]
			var word string
			switch {
			case o == survived && !equivalent:
				word = "survives"
			case o == unreached && !equivalent:
				word = "unreached"
			case o == timedOut:
				word = "time-out"
			default:
				return
			}
			fmt.Fprintf(out, "%-9s %s\n  line %d: %s\n", word, m.place(), m.line, m.change())
		})
		if err := context.Cause(ctx); err != nil {
			return err
		}
		for i, m := range s.mutants {
			key := m.key()
			_, equivalent := listed[key]
			delete(listed, key)
			if !wanted(m) {
				continue
			}
			total++
			switch {
			case equivalent && (outcomes[i] == survived || outcomes[i] == unreached):
				same++
			case equivalent:
				wrong = append(wrong, fmt.Sprintf("a test notices it: %s: %s", m.place(), m.change()))
			}
			switch outcomes[i] {
			case killed:
				dead++
			case timedOut:
				late++
			}
		}
	}
	for key := range listed {
		wrong = append(wrong, "no such mutant: "+strings.ReplaceAll(key, "\n", ": "))
	}
	fmt.Fprintf(out, "%d mutants: %d killed (%.1f %%), %d timed out, %d equivalent (%.1f %%), %d survived\n",
		total, dead, percent(dead, total-late), late, same, percent(same, total), total-dead-late-same)
	switch {
	case len(wrong) > 0:
		return fmt.Errorf("%s: %s", list, strings.Join(wrong, "; "))
	case total == 0:
		return fmt.Errorf("no mutants")
	case percent(dead, total-late) < leastKilled:
		return fmt.Errorf("%.1f %% of the mutants are killed: want %d %%", percent(dead, total-late), leastKilled)
	case percent(same, total) > mostEquivalent:
		return fmt.Errorf("%.1f %% of the mutants are listed as equivalent: at most %d %%", percent(same, total), mostEquivalent)
	}
	return nil
}

func percent(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return 100 * float64(n) / float64(of)
}

// readEquivalent reads the list of mutants that change nothing: the reasons by
// place and change.
func readEquivalent(file string) (map[string]string, error) {
	listed := map[string]string{}
	if file == "" {
		return listed, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(strings.TrimSpace(entry), "\n")
		if len(lines) != 3 {
			return nil, fmt.Errorf("%s: entry %q has %d lines: want place, change and reason", file, lines[0], len(lines))
		}
		listed[strings.TrimSpace(lines[0])+"\n"+strings.TrimSpace(lines[1])] = strings.TrimSpace(lines[2])
	}
	return listed, nil
}
