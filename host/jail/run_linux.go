package jail

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Supported says whether this system has a jail.
const Supported = true

const (
	watchEvery   = 5 * time.Millisecond
	answerWithin = 20 * time.Second // the child's greeting; much, for a loaded machine
	maxReply     = 64 << 10
	maxStderr    = 4 << 10
)

// executable is this very program, also where its file was replaced since.
var executable = "/proc/self/exe"

// Run starts a child, lets it work on input, and waits for its end. The child
// writes to dir, which is the caller's to make, read and remove. Run returns what
// the work holds against the input. It kills the child at a limit, which is a
// [*LimitError], and when ctx ends, whose cause it then returns; a child that
// crashes, that others kill, or that answers nonsense is a [*CrashError]. It is
// safe for concurrent use.
func Run(ctx context.Context, limits Limits, dir string, input []byte) (refusal string, err error) {
	if !called.Load() {
		return "", ErrNotCalled
	}
	limits = limits.or(defaults)
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stderr := &head{most: maxStderr}
	cmd := &exec.Cmd{
		Path: executable,
		Args: []string{childName, dir, strconv.FormatInt(int64(limits.CPU/time.Second), 10), strconv.FormatInt(limits.FileBytes, 10)},
		// One thread for Go code: the other processors are for the parent.
		Env:         []string{childVar + "=1", "GOMAXPROCS=1"},
		Dir:         dir,
		Stderr:      stderr,
		WaitDelay:   time.Second,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", fmt.Errorf("jail: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("jail: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("jail: %w", err)
	}
	w, err := watch(ctx, cmd.Process, limits)
	if err != nil {
		w = &watcher{process: cmd.Process}
		w.kill(fmt.Errorf("jail: %w", err))
	}
	said := w.converse(stdin, stdout, input)
	waited := cmd.Wait()
	w.end()
	return judge(w.why, said, waited, cmd.ProcessState, limits, stderr)
}

// converse sends the input once the child has greeted, and returns what the
// child then says.
func (w *watcher) converse(stdin io.WriteCloser, stdout io.Reader, input []byte) []byte {
	defer stdin.Close()
	hello := make([]byte, len(greeting))
	if _, err := io.ReadFull(stdout, hello); err != nil || string(hello) != greeting {
		w.kill(ErrNoAnswer)
		return nil
	}
	if w.greeted != nil {
		close(w.greeted)
	}
	stdin.Write(input) // a child that is gone does not read it
	stdin.Close()
	said, err := io.ReadAll(io.LimitReader(stdout, maxReply+1))
	if err != nil || len(said) > maxReply {
		w.kill(&CrashError{State: "its answer is too long"})
	}
	return said
}

// judge says how a child ended, from why it was killed, what it said, and how
// the kernel saw its end.
func judge(why error, said []byte, waited error, state *os.ProcessState, limits Limits, stderr *head) (string, error) {
	if state == nil {
		return "", fmt.Errorf("jail: %w", waited)
	}
	if crash, ok := errors.AsType[*CrashError](why); ok {
		crash.Stderr = stderr.String()
	}
	if why == ErrNoAnswer {
		return "", fmt.Errorf("%w: %v: %.500q", ErrNoAnswer, state, stderr)
	}
	if why != nil {
		return "", why
	}
	if !state.Success() {
		status, _ := state.Sys().(syscall.WaitStatus)
		// The kernel compares the limit with a count of ticks, which is rough.
		used := state.UserTime() + state.SystemTime()
		if state.ExitCode() == exitCPU || status.Signal() == syscall.SIGKILL && used > limits.CPU/2 {
			return "", &LimitError{"processor time", fmt.Sprintf("processor time reached the limit of %v", limits.CPU)}
		}
		return "", &CrashError{State: state.String(), Stderr: stderr.String()}
	}
	var r reply
	dec := json.NewDecoder(bytes.NewReader(said))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil || dec.More() {
		return "", &CrashError{State: "its answer is none", Stderr: stderr.String()}
	}
	if r.Error != "" {
		return "", fmt.Errorf("jail: %s", r.Error)
	}
	return r.Refusal, nil
}

// A watcher kills a child when there is a reason to.
type watcher struct {
	process *os.Process
	greeted chan struct{} // closed by converse
	stop    chan struct{}
	stopped sync.WaitGroup

	mu  sync.Mutex
	why error // the first reason
}

// watch begins to watch a child, until end.
func watch(ctx context.Context, p *os.Process, limits Limits) (*watcher, error) {
	// The file stays that of this process, should the number be used again.
	statm, err := os.Open(fmt.Sprintf("/proc/%d/statm", p.Pid))
	if err != nil {
		return nil, err
	}
	w := &watcher{process: p, greeted: make(chan struct{}), stop: make(chan struct{})}
	w.stopped.Go(func() {
		defer statm.Close()
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		wall, answer := time.NewTimer(limits.Wall), time.NewTimer(answerWithin)
		defer wall.Stop()
		defer answer.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-ctx.Done():
				w.kill(context.Cause(ctx))
				return
			case <-wall.C:
				w.kill(&LimitError{"time", fmt.Sprintf("time reached the limit of %v", limits.Wall)})
				return
			case <-answer.C:
				select {
				case <-w.greeted:
				default:
					w.kill(ErrNoAnswer)
					return
				}
			case <-tick.C:
				if n := resident(statm); n > limits.Resident {
					w.kill(&LimitError{"resident memory", fmt.Sprintf("resident memory of %d bytes exceeds limit %d", n, limits.Resident)})
					return
				}
			}
		}
	})
	return w, nil
}

// kill kills the child for a reason, unless it has ended.
func (w *watcher) kill(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.process.Kill(); w.why == nil && err == nil {
		w.why = why
	}
}

// end waits for the watcher.
func (w *watcher) end() {
	if w.stop != nil {
		close(w.stop)
		w.stopped.Wait()
	}
}

// resident returns the bytes of resident memory that a statm file says, and 0
// where it says nothing because the process has ended.
func resident(statm *os.File) int64 {
	var buf [128]byte
	n, err := statm.ReadAt(buf[:], 0)
	if n == 0 && err != nil {
		return 0
	}
	fields := bytes.Fields(buf[:n])
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// A head keeps the beginning of what is written to it.
type head struct {
	most int
	text []byte
}

// Write keeps what fits and accepts all of it.
func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), h.most-len(h.text))]...)
	return len(p), nil
}

// String returns what was kept.
func (h *head) String() string { return string(h.text) }
