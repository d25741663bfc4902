//go:build unix

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory that others could fill is no place for native code.
func TestCodeCacheRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(dir string) error
		want string // empty if it is taken
	}{
		{"others may read", func(dir string) error { return os.Chmod(dir, 0o755) }, ""},
		{"group may write", func(dir string) error { return os.Chmod(dir, 0o770) }, "has mode 0770"},
		{"all may write", func(dir string) error { return os.Chmod(dir, 0o702) }, "has mode 0702"},
		{"group may write entries", func(dir string) error { return os.Chmod(filepath.Join(dir, "native"), 0o720) }, "native has mode 0720"},
		{"link", func(dir string) error { return swapForLink(dir) }, "is a link"},
		{"link to entries", func(dir string) error { return swapForLink(filepath.Join(dir, "native")) }, "native is a link"},
		{"a file", func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		}, "not a directory"},
		{"others may read the key", func(dir string) error { return os.Chmod(filepath.Join(dir, "key"), 0o640) }, "key has mode 0640"},
		{"link to a key", func(dir string) error { return swapForLink(filepath.Join(dir, "key")) }, "key is not a regular file"},
		{"short key", func(dir string) error { return os.Truncate(filepath.Join(dir, "key"), 31) }, "key has 31 bytes, want 32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			c, log := openTestCache(t, dir, "engine 1")
			if err := test.do(dir); err != nil {
				t.Fatal(err)
			}
			again, err := openCodeCache(dir, contextHere("engine 1"), log.report)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				if e, err := Open(t.Context(), Config{Cache: dir}); err == nil || !strings.HasPrefix(err.Error(), "compilation cache: ") {
					t.Errorf("an engine opens it: %v, error %v", e, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer again.close()
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("mode %v, error %v", info.Mode(), err)
			}
			_ = c
		})
	}
}

// swapForLink puts a link in the place of what it links to.
func swapForLink(name string) error {
	if err := os.Rename(name, name+".moved"); err != nil {
		return err
	}
	return os.Symlink(name+".moved", name)
}

// Where others may replace directories for temporary files, code does not go
// there.
func TestTemporaryDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	if _, err := Open(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "others could replace what lies there") {
		t.Errorf("error %v", err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(dir))
	t.Setenv("TMPDIR", filepath.Base(dir)) // a relative name is as good
	e, err := Open(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load(t.Context(), packed(t, plain().bytes())); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
