package session_test

import (
	"testing"

	"github.com/sandboxd/sandboxd/session"
	"github.com/sandboxd/sandboxd/session/sessiontest"
)

func TestMemory(t *testing.T) {
	sessiontest.TestStore(t, func(*testing.T) session.Store { return session.NewMemory() })
}
