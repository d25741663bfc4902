package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// watchEvery is how often --watch looks for changes. Looking works on every file
// system and for every editor, and a folder of source is small.
const watchEvery = 300 * time.Millisecond

// stamp returns what changes when a file below dir does, or dir itself if it is a file.
// Below a folder built modules, hidden files, what npm installed, and files whose paths
// begin as one of kept do not count.
func (e *env) stamp(dir string, kept ...string) string {
	var b strings.Builder
	_ = filepath.WalkDir(e.path(dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it was there a moment ago
		case path == e.path(dir) && !d.IsDir(): // it was named
		case (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") && path != e.path(dir):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir() || filepath.Ext(path) == ".wasm":
			return nil
		case slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(path, k) }):
			return nil
		}
		if info, err := d.Info(); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return b.String()
}

// changed waits until look says that something is not as it was; false if ctx ends first.
func (e *env) changed(ctx context.Context, look func() bool) bool {
	pause := e.pause
	if pause == nil {
		pause = waitToLook
	}
	for {
		pause(ctx)
		if ctx.Err() != nil {
			return false
		}
		if look() {
			return true
		}
	}
}

// waitToLook waits for watchEvery, or until ctx ends.
func waitToLook(ctx context.Context) {
	t := time.NewTimer(watchEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
