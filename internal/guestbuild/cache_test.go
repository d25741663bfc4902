package guestbuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCacheEntries(t *testing.T) {
	c, err := OpenCache(filepath.Join(t.TempDir(), "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if wasm, ok := c.Get("k"); ok {
		t.Errorf("an empty cache has %q", wasm)
	}
	if err := c.Put("k", []byte("module")); err != nil {
		t.Fatal(err)
	}
	if wasm, ok := c.Get("k"); !ok || string(wasm) != "module" {
		t.Errorf("got %q, %v", wasm, ok)
	}
	file := filepath.Join(c.dir, "k")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{"cut": good[:len(good)-1], "empty": nil, "short": good[:10], "flipped": append([]byte{good[0] ^ 1}, good[1:]...)} {
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if wasm, ok := c.Get("k"); ok {
			t.Errorf("%s: got %q", name, wasm)
		}
	}
	if err := c.Put("k", []byte("module")); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Get("k"); !ok {
		t.Error("a damaged entry is not replaced")
	}
}

func TestCacheTrims(t *testing.T) {
	c, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-unusedFor - time.Hour)
	for _, key := range []string{"used", "unused"} {
		if err := c.Put(key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"used", "unused"} {
		if err := os.Chtimes(filepath.Join(c.dir, key), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := c.Get("used"); !ok {
		t.Fatal("an old entry is gone before it was trimmed")
	}
	if err := c.Put("new", []byte("new")); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"used": true, "unused": false, "new": true} {
		if _, ok := c.Get(key); ok != want {
			t.Errorf("%s is there: %v, want %v", key, ok, want)
		}
	}
}

func TestCacheDirectory(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	c, err := OpenCache("")
	if err != nil || c.dir != filepath.Join(home, "cache", "sandboxd", "guestbuild") {
		t.Errorf("default %s, error %v", c.dir, err)
	}
	if info, err := os.Stat(c.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, error %v, want 0700", info.Mode(), err)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if _, err := OpenCache(""); err == nil || !strings.Contains(err.Error(), "build cache") {
		t.Errorf("no home: error %v", err)
	}
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCache(file); err == nil {
		t.Error("a file is no cache")
	}
}
