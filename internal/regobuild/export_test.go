package regobuild

import "testing"

// Updating reports whether the fixtures are rewritten.
func Updating() bool { return *update }

// Record writes rows to a file, one a line.
func Record[T any](t *testing.T, file string, all []T) { record(t, file, all) }

var (
	Evaluate = evaluate
	Same     = same
)
