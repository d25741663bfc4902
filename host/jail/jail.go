package jail

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits bounds one child. A zero field takes the default named beside it; there
// is no spelling for "unlimited".
type Limits struct {
	CPU       time.Duration // of all threads, in whole seconds, rounded up; default 10s
	Wall      time.Duration // from start to exit; default 60s
	Resident  int64         // bytes of resident memory; default 1 GiB
	FileBytes int64         // size of one file that the child writes; default 256 MiB
}

var defaults = Limits{CPU: 10 * time.Second, Wall: 60 * time.Second, Resident: 1 << 30, FileBytes: 256 << 20}

// DefaultLimits returns the limits that zero fields stand for.
func DefaultLimits() Limits { return defaults }

// or returns l with the defaults where it has zero or less.
func (l Limits) or(d Limits) Limits {
	for _, f := range []struct{ v, def *time.Duration }{{&l.CPU, &d.CPU}, {&l.Wall, &d.Wall}} {
		if *f.v <= 0 {
			*f.v = *f.def
		}
	}
	for _, f := range []struct{ v, def *int64 }{{&l.Resident, &d.Resident}, {&l.FileBytes, &d.FileBytes}} {
		if *f.v <= 0 {
			*f.v = *f.def
		}
	}
	l.CPU = (l.CPU + time.Second - 1).Truncate(time.Second)
	return l
}

// Errors of [Run] that are not the input's fault.
var (
	// ErrNotCalled reports that this program has not called [Main].
	ErrNotCalled = errors.New("jail: Main was not called, and must be the first thing in main")
	// ErrNoAnswer reports a child that does not behave as Main would.
	ErrNoAnswer = errors.New("jail: the child does not answer; Main must be the first thing in main")
	// ErrUnsupported reports a system without a jail.
	ErrUnsupported = errors.New("jail: not on this system")
)

// A LimitError reports a child that was killed at a limit.
type LimitError struct {
	What string // "processor time", "time" or "resident memory"
	Text string // what was exceeded, and the bound
}

func (e *LimitError) Error() string { return "jail: " + e.Text }

// A CrashError reports a child that ended before it answered, or answered
// nonsense. Another process that kills the child looks the same.
type CrashError struct {
	State  string // such as "signal: killed"
	Stderr string // the beginning of what the child said; for the operator
}

func (e *CrashError) Error() string { return fmt.Sprintf("jail: the child failed: %s", e.State) }

// Work is what a child does: it reads input, writes files into dir, and returns
// what it holds against the input, or else "". An error means that it could not
// work.
type Work func(input []byte, dir string) (refusal string, err error)

// The child is known by its name and a variable, both of which its parent sets.
const (
	childName = "sandboxd-jail"
	childVar  = "SANDBOXD_JAIL"
	greeting  = "sandboxd-jail 1\n"
)

var called atomic.Bool

// Main must be the first thing in the main function of a program that calls
// [Run], and in TestMain of its tests. In a child of Run it does the work and
// exits; elsewhere it notes that children would work, and returns. The program's
// init functions run in the child before it.
func Main(work Work) {
	if len(os.Args) > 0 && os.Args[0] == childName && os.Getenv(childVar) != "" {
		// Not os.Exit, which in a race build waits a second, and writes coverage.
		syscall.Exit(serve(work))
	}
	called.Store(true)
}

// Called reports whether this program has called [Main], so that [Run] can work.
func Called() bool { return called.Load() }

// reply is what a child says last.
type reply struct {
	Refusal string `json:"refusal"`
	Error   string `json:"error"`
}
