//go:build unix

package host

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// private refuses a file or directory that others own, or may write; for a secret,
// also one that they may read.
func private(name string, info fs.FileInfo, secret bool) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to user %d, not %d", name, stat.Uid, os.Getuid())
	}
	others := fs.FileMode(0o022)
	if secret {
		others = 0o077
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		return fmt.Errorf("%s has mode %#o, which lets others in", name, mode)
	}
	return nil
}
