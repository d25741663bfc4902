package host_test

import (
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/hosttest"
)

func TestMemoryKV(t *testing.T) {
	hosttest.TestKV(t, func(_ *testing.T, now func() time.Time) []host.KVStore {
		return []host.KVStore{host.NewMemoryKV(now)}
	})
}
