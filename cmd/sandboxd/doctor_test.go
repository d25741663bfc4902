package main

import (
	"strings"
	"testing"
)

// TestNoCompilers: without a compiler of guests nothing is broken, as modules run all the same,
// and it is said where each is to be had.
func TestNoCompilers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	checks := languageChecks(t.TempDir())
	for _, c := range checks {
		if c.State != "none" || !strings.Contains(c.Found, "only to build") || c.Fix == "" {
			t.Errorf("%+v", c)
		}
	}
	if len(checks) != 5 {
		t.Errorf("%d languages", len(checks))
	}
	e := &env{cache: func() (string, error) { return t.TempDir(), nil }}
	if c := e.cacheCheck(); c.State != "ok" || !strings.Contains(c.Found, "0 files") { // it is made when it is needed
		t.Errorf("%+v", c)
	}
}
