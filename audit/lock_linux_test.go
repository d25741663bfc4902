package audit

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpenRefusesWhatOthersMayWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	mustWrite(t, path, "")
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "mode 0620 lets others write") {
		t.Errorf("Open: %v", err)
	}
}

// A disk that is full in the middle of a line: the rest of the line is taken
// back, and the log goes on once there is space.
func TestAppendToAFullDisk(t *testing.T) {
	const rlimitFsize = 1 // RLIMIT_FSIZE, which package syscall lacks
	path := filepath.Join(t.TempDir(), "audit.log")
	l := mustOpen(t, path)
	defer l.Close()
	mustAppend(t, l, sample(0))
	before := mustRead(t, path)

	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(rlimitFsize, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(rlimitFsize, &syscall.Rlimit{Cur: uint64(len(before)) + 10, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := l.Append(t.Context(), sample(1))
	if other := syscall.Setrlimit(rlimitFsize, &was); other != nil {
		t.Fatal(other)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("Append beyond the limit: %v", err)
	}
	if got := mustRead(t, path); got != before {
		t.Errorf("the file ends in %q", got[len(before):])
	}
	mustAppend(t, l, sample(1))
	if s := mustVerify(t, path); s.Records != 2 {
		t.Errorf("%d records, want 2", s.Records)
	}
}
