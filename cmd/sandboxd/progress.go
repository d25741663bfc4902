package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// Progress shows nothing of what is over before progressAfter, and then at most a line
// in progressEvery.
const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

// A progress is standard error with a last line that says what takes long, such as
// "compiling weather 5d0c8e77  1.1s", and rewrites itself. What is written meanwhile
// stands above it. It is for terminals; elsewhere it is silent, but says with each step that
// ends, if verbose is set, how long it took. It is safe for concurrent use.
type progress struct {
	out      io.Writer
	terminal bool

	mu      sync.Mutex
	verbose bool
	steps   []*step // that have begun; the last is shown
	shown   bool    // a line is
	broken  bool    // the last text written is no whole line: what is shown would stand behind it
}

type step struct {
	text  string
	began time.Time
}

// clearLine goes to the beginning of a line at a terminal and empties it.
const clearLine = "\r\x1b[K"

// Write implements [io.Writer].
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if len(b) > 0 {
		p.broken = b[len(b)-1] != '\n'
	}
	return p.out.Write(b)
}

// answered says that the person at the terminal ended the line that a question began: the
// terminal shows what they type.
func (p *progress) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = false
}

// clear takes away the line, which is written again when its time comes.
func (p *progress) clear() {
	if p.shown {
		io.WriteString(p.out, clearLine)
		p.shown = false
	}
}

// begin says that a step begins, and returns what says that it has ended, which has to be called
// once.
func (p *progress) begin(text string) (end func()) {
	s := &step{foreign(text, false), time.Now()}
	p.mu.Lock()
	p.steps = append(p.steps, s)
	p.mu.Unlock()
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if p.terminal {
			p.show(s, over)
		}
	}()
	return func() {
		close(over)
		<-ended
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clear()
		p.steps = slices.DeleteFunc(p.steps, func(o *step) bool { return o == s })
		if p.verbose {
			if p.broken {
				io.WriteString(p.out, "\n")
			}
			fmt.Fprintln(p.out, s.line())
			p.broken = false
		}
	}
}

// show writes the line of a step until it is over.
func (p *progress) show(s *step, over <-chan struct{}) {
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	for {
		select {
		case <-over:
			return
		case <-wait.C:
		}
		p.mu.Lock()
		if p.steps[len(p.steps)-1] == s && !p.broken {
			io.WriteString(p.out, clearLine+s.line())
			p.shown = true
		}
		p.mu.Unlock()
		wait.Reset(progressEvery)
	}
}

func (s *step) line() string {
	return fmt.Sprintf("%s  %.1fs", s.text, time.Since(s.began).Seconds())
}

// verboseFlag adds the flag of commands that build and compile.
func (e *env) verboseFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&e.progress.verbose, "verbose", "v", false, "say of every build and compilation how long it took")
	groupFlags(c, "output", "verbose")
}
