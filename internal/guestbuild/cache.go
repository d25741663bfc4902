package guestbuild

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A cache keeps modules by fingerprint, one file each: the SHA-256 of the module,
// then the module. A file that is damaged counts as absent.
type cache struct {
	dir string
}

// unusedFor is how long a module stays without being asked for.
const unusedFor = 30 * 24 * time.Hour

func openCache(dir string) (cache, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return cache{}, fmt.Errorf("build cache: %w", err)
		}
		dir = filepath.Join(user, "sandboxd", "guestbuild")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cache{}, fmt.Errorf("build cache: %w", err)
	}
	return cache{dir}, nil
}

func (c cache) get(key string) ([]byte, bool) {
	name := filepath.Join(c.dir, key)
	data, err := os.ReadFile(name)
	if err != nil || len(data) < sha256.Size {
		return nil, false
	}
	wasm := data[sha256.Size:]
	if sha256.Sum256(wasm) != [sha256.Size]byte(data[:sha256.Size]) {
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // at worst it is compiled again some day
	return wasm, true
}

func (c cache) put(key string, wasm []byte) error {
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return fmt.Errorf("build cache: %w", err)
	}
	defer os.Remove(f.Name()) // in vain once it is renamed
	sum := sha256.Sum256(wasm)
	_, err = f.Write(sum[:])
	if err == nil {
		_, err = f.Write(wasm)
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
func (c cache) trim(then time.Time) {
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
