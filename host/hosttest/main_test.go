package hosttest_test

import (
	"os"
	"testing"

	"github.com/sandboxd/sandboxd/host"
)

func TestMain(m *testing.M) {
	host.Main()
	os.Exit(m.Run())
}
