package conformance

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

const dataDir = "../../testdata/conformance"

// caches keep the guest that was built and its compiled code for one run of the
// tests.
var caches struct {
	build  guestbuild.Options
	engine host.Config
}

func TestMain(m *testing.M) {
	host.Main()
	os.Exit(func() int {
		scratch, err := os.MkdirTemp("", "conformance-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(scratch)
		caches.build.CacheDir = filepath.Join(scratch, "built")
		caches.engine.Cache = filepath.Join(scratch, "compiled")
		code := m.Run()
		if g, err := openedGuests(); err != nil || g.Close() != nil {
			return max(code, 1)
		}
		if code == 0 {
			// genai's dependencies start a goroutine that never ends.
			if err := goleak.Find(goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")); err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
				return 1
			}
		}
		return code
	}())
}

// openedGuests opens the guests that all tests of this package share.
var openedGuests = sync.OnceValues(func() (*Guests, error) {
	return OpenGuests(context.Background(), caches.build, caches.engine)
})

func guests(t *testing.T) *Guests {
	t.Helper()
	g, err := openedGuests()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// runs holds the vectors of testdata, each run once in this process and once in
// guests; the results are in the order of the vectors.
type runs struct {
	vectors      []*Vector
	native, wasm []Result
}

var allRuns = sync.OnceValues(func() (r runs, err error) {
	if r.vectors, err = Load(dataDir + "/vectors"); err != nil {
		return r, err
	}
	g, err := openedGuests()
	if err != nil {
		return r, err
	}
	ctx := context.Background()
	r.native, r.wasm = checkAll(ctx, r.vectors, Native), checkAll(ctx, r.vectors, g)
	return r, nil
})

func run(t *testing.T) runs {
	t.Helper()
	r, err := allRuns()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
