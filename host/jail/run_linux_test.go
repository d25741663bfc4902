package jail

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main(testWork)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// testWork does what its input says.
func testWork(input []byte, dir string) (string, error) {
	command, rest, _ := bytes.Cut(input, []byte(" "))
	switch string(command) {
	case "write":
		return "", os.WriteFile(filepath.Join(dir, "out"), rest, 0o600)
	case "refuse":
		return string(rest), nil
	case "err":
		return "", errors.New(string(rest))
	case "confinement":
		c, err := look()
		if err != nil {
			return "", err
		}
		out, err := json.Marshal(c)
		if err != nil {
			return "", err
		}
		return "", os.WriteFile(filepath.Join(dir, "out"), out, 0o600)
	case "large":
		return "", os.WriteFile(filepath.Join(dir, "out"), make([]byte, 2<<20), 0o600)
	case "spin":
		for i := 0; ; i++ {
			sink = i
		}
	case "hoard":
		for {
			kept = append(kept, bytes.Repeat([]byte{1}, 4<<20))
		}
	case "map": // address space that is never touched
		for i := range 64 {
			if _, err := unix.Mmap(-1, 0, 256<<20, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE); err != nil {
				return fmt.Sprintf("%d: %v", i, err), nil
			}
		}
		return "no limit", nil
	case "wait":
		r, _, err := os.Pipe()
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, "waiting"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return "", err
		}
		_, err = io.ReadAll(r)
		return "", err
	case "panic":
		panic("something went wrong")
	case "exit":
		os.Exit(0)
	case "die":
		return "", unix.Kill(os.Getpid(), unix.SIGKILL)
	case "garbage":
		os.Stdout.WriteString("\x00\xffgarbage")
	case "second":
		os.Stdout.WriteString(`{"refusal":"","error":""}`)
	case "chatter":
		for {
			if _, err := os.Stdout.Write(make([]byte, 1<<20)); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

var (
	sink int
	kept [][]byte
)

// confinement is what a child sees of its limits and of its parent.
type confinement struct {
	Env, Args, Open []string
	Limits          map[string]uint64
	Nice            int
}

func look() (c confinement, err error) {
	c.Env, c.Args, c.Limits = os.Environ(), os.Args, map[string]uint64{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return c, err
	}
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			c.Open = append(c.Open, target)
		}
	}
	for name, which := range map[string]int{"cpu": unix.RLIMIT_CPU, "file": unix.RLIMIT_FSIZE, "core": unix.RLIMIT_CORE, "address": unix.RLIMIT_AS} {
		var l unix.Rlimit
		if err := unix.Getrlimit(which, &l); err != nil {
			return c, err
		}
		c.Limits[name] = l.Cur
	}
	p, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	c.Nice = 20 - p
	return c, err
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	input := append([]byte("write "), bytes.Repeat([]byte("0123456789"), 1<<20)...)
	refusal, err := Run(t.Context(), Limits{}, dir, input)
	if refusal != "" || err != nil {
		t.Fatalf("refusal %q, error %v", refusal, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || !bytes.Equal(got, input[6:]) {
		t.Errorf("the child wrote %d bytes, want %d; error %v", len(got), len(input)-6, err)
	}
	if refusal, err := Run(t.Context(), Limits{}, dir, []byte("refuse not good")); refusal != "not good" || err != nil {
		t.Errorf("refusal %q, error %v", refusal, err)
	}
	if refusal, err := Run(t.Context(), Limits{}, dir, []byte("refuse "+strings.Repeat("\xff\x01", 1<<20))); !strings.HasPrefix(refusal, "\uFFFD\x01") || err != nil {
		t.Errorf("long refusal of %d bytes, error %v", len(refusal), err)
	}
	if _, err := Run(t.Context(), Limits{}, dir, []byte("err no space")); err == nil || err.Error() != "jail: no space" {
		t.Errorf("error %v", err)
	}
}

func TestConfinement(t *testing.T) {
	t.Setenv("TOKEN", "secret")
	// A descriptor that is not close-on-exec, as code outside Go may leave.
	leaked, err := os.Create(filepath.Join(t.TempDir(), "leaked"))
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	if _, err := unix.FcntlInt(leaked.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if refusal, err := Run(t.Context(), Limits{CPU: 1500 * time.Millisecond, FileBytes: 1 << 20}, dir, []byte("confinement")); refusal != "" || err != nil {
		t.Fatalf("refusal %q, error %v", refusal, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	var c confinement
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	if want := []string{childVar + "=1", "GOMAXPROCS=1"}; !slices.Equal(c.Env, want) {
		t.Errorf("environment %q, want %q", c.Env, want)
	}
	if len(c.Args) != 4 || slices.Contains(c.Args, "-test.v") {
		t.Errorf("arguments %q", c.Args)
	}
	if slices.Contains(c.Open, leaked.Name()) {
		t.Errorf("the child has the parent's descriptor: %q", c.Open)
	}
	if c.Limits["cpu"] != 2 || c.Limits["file"] != 1<<20 || c.Limits["core"] != 0 || c.Limits["address"] < 4<<30 || c.Limits["address"] == unix.RLIM_INFINITY&(1<<64-1) {
		t.Errorf("limits %v", c.Limits)
	}
	if c.Nice < niceness {
		t.Errorf("niceness %d, want %d", c.Nice, niceness)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		input  string
		limits Limits
		what   string
	}{
		{"spin", Limits{CPU: time.Second}, "processor time"},
		{"hoard", Limits{Resident: 128 << 20}, "resident memory"},
		{"wait", Limits{Wall: 300 * time.Millisecond}, "time"},
	} {
		t.Run(c.input, func(t *testing.T) {
			_, err := Run(t.Context(), c.limits, t.TempDir(), []byte(c.input))
			limit, ok := errors.AsType[*LimitError](err)
			if !ok || limit.What != c.what {
				t.Errorf("error %v, want a limit of %s", err, c.what)
			}
		})
	}
	t.Run("file", func(t *testing.T) {
		if _, err := Run(t.Context(), Limits{FileBytes: 1 << 20}, t.TempDir(), []byte("large")); err == nil || !strings.Contains(err.Error(), "file too large") {
			t.Errorf("error %v, want the file to be too large", err)
		}
	})
	t.Run("address space", func(t *testing.T) {
		refusal, err := Run(t.Context(), Limits{}, t.TempDir(), []byte("map"))
		if err != nil || !strings.HasSuffix(refusal, "cannot allocate memory") {
			t.Errorf("refusal %q, error %v", refusal, err)
		}
		// 4 GiB are 16 of these mappings, of which the runtime has used some.
		if n, _, _ := strings.Cut(refusal, ":"); n != "15" && n != "16" {
			t.Errorf("%s mappings of 256 MiB fit, want 15 or 16", n)
		}
	})
}

func TestCrash(t *testing.T) {
	for _, c := range []struct{ input, state, stderr string }{
		{"panic", "exit status 2", "something went wrong"},
		{"die", "signal: killed", ""},
		{"exit", "its answer is none", ""},
		{"garbage", "its answer is none", ""},
		{"second", "its answer is none", ""},
		{"chatter", "its answer is too long", ""},
	} {
		t.Run(c.input, func(t *testing.T) {
			_, err := Run(t.Context(), Limits{}, t.TempDir(), []byte(c.input))
			crash, ok := errors.AsType[*CrashError](err)
			if !ok || crash.State != c.state || !strings.Contains(crash.Stderr, c.stderr) {
				t.Errorf("error %v (%+v), want %q with %q", err, crash, c.state, c.stderr)
			}
		})
	}
}

// A child that others kill, or whose caller has had enough, is gone.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	if err := unix.Mkfifo(filepath.Join(dir, "waiting"), 0o600); err != nil {
		t.Fatal(err)
	}
	pid := make(chan int, 1)
	go func() {
		data, err := os.ReadFile(filepath.Join(dir, "waiting"))
		n, bad := strconv.Atoi(string(data))
		if err != nil || bad != nil {
			t.Errorf("the child says %q, error %v", data, err)
		}
		pid <- n
		cancel(enough)
	}()
	if _, err := Run(ctx, Limits{}, dir, []byte("wait")); err != enough {
		t.Errorf("error %v, want %v", err, enough)
	}
	if err := unix.Kill(<-pid, 0); err != unix.ESRCH {
		t.Errorf("the child is still there: %v", err)
	}
}

func TestStart(t *testing.T) {
	called.Store(false)
	_, err := Run(t.Context(), Limits{}, t.TempDir(), nil)
	Main(testWork)
	if err != ErrNotCalled || !Called() {
		t.Errorf("error %v, want %v", err, ErrNotCalled)
	}
	self := executable
	defer func() { executable = self }()
	executable = "/bin/cat" // another program
	if _, err := Run(t.Context(), Limits{}, t.TempDir(), nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("error %v, want %v", err, ErrNoAnswer)
	}
	executable = "/nonexistent"
	if _, err := Run(t.Context(), Limits{}, t.TempDir(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want %v", err, os.ErrNotExist)
	}
}
