//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// claim creates PATH.lock, so that one Log at a time has the file. A crash leaves
// it behind; someone who knows that no process has the log removes it.
func claim(path string) (release func() error, err error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists: another process has the log, or one that had it crashed", name)
	}
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return func() error { return os.Remove(name) }, nil
}

func lock(context.Context, *os.File) error { return nil }

func unlock(*os.File) {}

func checkMode(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return nil
}

func syncDir(string) error { return nil }
