//go:build !unix

package host

import "io/fs"

// private has nothing to look at: modes mean little here.
func private(string, fs.FileInfo, bool) error { return nil }
