//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// claim does nothing: each append locks the file.
func claim(string) (release func() error, err error) { return func() error { return nil }, nil }

// lock takes the exclusive lock of f. It belongs to the open file, so two Logs in
// one process exclude each other too, and the kernel frees it when a process
// ends. Others hold it for one write and sync; a blocking flock could not heed
// ctx, so lock asks again until ctx ends.
func lock(ctx context.Context, f *os.File) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EWOULDBLOCK {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("locked by another process: %w", context.Cause(ctx))
		}
	}
}

func unlock(f *os.File) { _ = flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for {
			if result = syscall.Flock(int(fd), how); result != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return result
}

// checkMode refuses a file that its owner is not alone in writing.
func checkMode(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return fmt.Errorf("mode %04o lets others write: want 0600", perm)
	}
	return nil
}

// syncDir makes a new file's name durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = d.Sync()
	if other := d.Close(); err == nil {
		err = other
	}
	return err
}
