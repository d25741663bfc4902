package jail

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// addressSpace is what a child may map beyond what is mapped when it starts.
	addressSpace = 4 << 30
	descriptors  = 64
	// niceness puts children behind their parent, without starving them on a
	// machine that is busy.
	niceness = 5
	exitCPU  = 42 // the status of a child that used up its processor time
)

// serve is the child.
func serve(work Work) int {
	if err := child(work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func child(work Work) error {
	if len(os.Args) != 4 {
		return fmt.Errorf("jail: %d arguments, want 4", len(os.Args))
	}
	dir := os.Args[1]
	cpu, err := strconv.ParseUint(os.Args[2], 10, 32)
	if err != nil {
		return fmt.Errorf("jail: processor time: %w", err)
	}
	file, err := strconv.ParseUint(os.Args[3], 10, 63)
	if err != nil {
		return fmt.Errorf("jail: file size: %w", err)
	}
	if err := confine(cpu, file); err != nil {
		return fmt.Errorf("jail: %w", err)
	}
	if _, err := os.Stdout.WriteString(greeting); err != nil {
		return err
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var r reply
	if r.Refusal, err = work(input, dir); err != nil {
		r.Error = err.Error()
	}
	r.Refusal, r.Error = cut(r.Refusal), cut(r.Error)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// cut bounds a text, so that the answer stays within maxReply where all of it is
// escaped.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), 4<<10)], "\uFFFD") }

// confine sets the limits of this process.
func confine(cpu, file uint64) error {
	if err := closeInherited(); err != nil {
		return err
	}
	if err := lowerPriority(); err != nil {
		return err
	}
	mapped, err := mappedBytes()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name  string
		which int
		most  uint64
	}{
		{"processor time", unix.RLIMIT_CPU, cpu + 1},
		{"file size", unix.RLIMIT_FSIZE, file},
		{"core dump", unix.RLIMIT_CORE, 0},
		{"descriptors", unix.RLIMIT_NOFILE, descriptors},
		{"address space", unix.RLIMIT_AS, min(mapped, math.MaxUint64-addressSpace) + addressSpace},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.which, &now); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
		most := min(l.most, now.Max)
		if err := unix.Setrlimit(l.which, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit of %s to %d: %w", l.name, most, err)
		}
	}
	return limitCPU(cpu)
}

// limitCPU makes the process exit at its soft limit of processor time, with a
// status that says so. At the hard limit, a second later, the kernel kills it.
func limitCPU(seconds uint64) error {
	exceeded := make(chan os.Signal, 1)
	signal.Notify(exceeded, unix.SIGXCPU)
	go func() {
		<-exceeded
		unix.Exit(exitCPU)
	}()
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &now); err != nil {
		return fmt.Errorf("limit of processor time: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: min(seconds, now.Max), Max: now.Max}); err != nil {
		return fmt.Errorf("limit of processor time to %d: %w", seconds, err)
	}
	return nil
}

// closeInherited closes the descriptors that came from the parent: they have
// survived exec, so unlike those that the runtime opens they are not
// close-on-exec.
func closeInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// lowerPriority lowers the priority of every thread; later ones inherit it. A
// thread may start meanwhile, so it looks again until there is none.
func lowerPriority() error {
	for seen := map[int]bool{}; ; {
		tasks, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			return err
		}
		found := false
		for _, t := range tasks {
			id, err := strconv.Atoi(filepath.Base(t))
			if err != nil || seen[id] {
				continue
			}
			seen[id], found = true, true
			// The kernel counts down from 20 where it says a priority.
			now, err := unix.Getpriority(unix.PRIO_PROCESS, id)
			if err != nil || 20-now >= niceness {
				continue
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, id, niceness); err != nil && err != unix.ESRCH {
				return fmt.Errorf("priority: %w", err)
			}
		}
		if !found {
			return nil
		}
	}
}

// mappedBytes returns the size of the address space in use.
func mappedBytes() (uint64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	size, _, _ := strings.Cut(string(data), " ")
	pages, err := strconv.ParseUint(size, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("statm: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
