package guestbuild

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Cache keeps modules, and what is known of them, by key, one file each: the SHA-256 of
// what is kept, then that. A file that is damaged counts as absent. A Cache is safe for
// concurrent use, by several processes too.
type Cache struct {
	dir string
}

// unusedFor is how long a file stays without being asked for.
const unusedFor = 30 * 24 * time.Hour

// OpenCache returns the cache in dir, which is made if it is not there; empty:
// "sandboxd/guestbuild" below [os.UserCacheDir].
func OpenCache(dir string) (Cache, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return Cache{}, fmt.Errorf("build cache: %w", err)
		}
		dir = filepath.Join(user, "sandboxd", "guestbuild")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Cache{}, fmt.Errorf("build cache: %w", err)
	}
	return Cache{dir}, nil
}

// Get returns what is kept under a key, which is a name of a file. It is the caller's.
func (c Cache) Get(key string) ([]byte, bool) {
	name := filepath.Join(c.dir, key)
	data, err := os.ReadFile(name)
	if err != nil || len(data) < sha256.Size {
		return nil, false
	}
	kept := data[sha256.Size:]
	if sha256.Sum256(kept) != [sha256.Size]byte(data[:sha256.Size]) {
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // at worst it is compiled again some day
	return kept, true
}

// Put keeps data under a key, in place of what was there, and drops what nobody has asked
// for in thirty days.
func (c Cache) Put(key string, data []byte) error {
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return fmt.Errorf("build cache: %w", err)
	}
	defer os.Remove(f.Name()) // in vain once it is renamed
	sum := sha256.Sum256(data)
	_, err = f.Write(sum[:])
	if err == nil {
		_, err = f.Write(data)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.dir, key))
	}
	if err != nil {
		return fmt.Errorf("build cache: %w", err)
	}
	c.trim(time.Now().Add(-unusedFor))
	return nil
}

// trim removes what was last asked for before then, as far as it can.
func (c Cache) trim(then time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(then) {
			_ = os.Remove(filepath.Join(c.dir, e.Name()))
		}
	}
}
