package host

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// TestNoMemoryForInstance: that the host has no memory for an instance is no failure of the guest's, which is not made to wait
// for it, and the operator reads what it was.
func TestNoMemoryForInstance(t *testing.T) {
	// failing has the n-th region from now on fail, until again.
	failing := func(n int) func(t *testing.T, e *Engine, m *Module) (again func()) {
		return func(t *testing.T, e *Engine, _ *Module) func() {
			left := n
			e.reserve = func(size int64) (*region, error) {
				if left--; left == 0 {
					return nil, unix.ENOMEM
				}
				return reserve(size)
			}
			return func() { e.reserve = reserve }
		}
	}
	withBlocks := func() *builder {
		b := &builder{}
		fn := extismFuncs(b, "alloc", "load_u8", "output_set")
		b.pages(1)
		b.fn("call", ":", 1, i64(2), callFn(fn["alloc"]), setLocal(0), get(0), callFn(fn["load_u8"]), drop, get(0), i64(2), callFn(fn["output_set"]))
		return b
	}
	for _, c := range []struct {
		name  string
		guest *builder
		first bool // there is an image
		spoil func(t *testing.T, e *Engine, m *Module) (again func())
		why   string
	}{
		{"memory", counter(), false, failing(1), "cannot allocate memory"},
		{"memory with an image", counter(), true, failing(1), "cannot allocate memory"},
		{"memory of blocks", withBlocks(), false, failing(2), "cannot allocate memory"},
		{"module of blocks", withBlocks(), false, func(t *testing.T, e *Engine, _ *Module) func() {
			b, blocks := &builder{}, e.blocks
			b.importFunc("nobody", "has", ":")
			broken, err := e.runtime.CompileModule(t.Context(), b.bytes())
			if err != nil {
				t.Fatal(err)
			}
			e.blocks = broken
			return func() { e.blocks = blocks }
		}, "module of blocks: "},
		{"image", counter(), true, func(t *testing.T, _ *Engine, m *Module) func() {
			images := m.images()
			if len(images) != 1 {
				t.Fatalf("%d images, want 1", len(images))
			}
			fd := images[0].memory.fd
			images[0].memory.fd = -1
			return func() { images[0].memory.fd = fd }
		}, "bad file descriptor"},
	} {
		for _, kind := range []abi.Kind{abi.KindTool, abi.KindGuard} {
			t.Run(c.name+" for a "+string(kind), func(t *testing.T) {
				e, log := openEngine(t)
				m := loadIn(t, e, c.guest.bytes())
				call := &Call{Kind: kind, Export: "call"}
				answers := func() {
					t.Helper()
					if _, err := m.Call(t.Context(), call); err != nil {
						t.Fatal(err)
					}
				}
				if c.first {
					answers()
					noIdle(m)
				}
				again := c.spoil(t, e, m)
				failure := fails(t, m, call, abi.StorageUnavailable)
				again()
				if !strings.Contains(failure.Detail, c.why) || failure.Message != abi.StorageUnavailable.Sentence() || failure.Receipt.In != "" {
					t.Errorf("failure %+v, want %q in the detail", failure, c.why)
				}
				reported(t, log, noMemory, m, c.why)
				if m.code.calls != 0 {
					t.Errorf("%d calls are left", m.code.calls)
				}
				for _, img := range m.code.images {
					if img.users != 0 || len(img.making) != 0 {
						t.Errorf("an image has %d users", img.users)
					}
				}
				answers()
			})
		}
	}
}

// TestEngineBug: a panic in the engine that is none of the guest's is a bug of the host's.
func TestEngineBug(t *testing.T) {
	e, log := openEngine(t)
	b := &builder{}
	set := b.use(abi.ImportHost, "output_set")
	b.pages(1)
	b.put(0, "{}")
	b.fn("call", ":", 0, grow(1), drop, i32(0), i32(2), callFn(set))
	m := loadIn(t, e, b.bytes())
	for range 2 { // the second instance is set back
		succeeds(t, m, &Call{Export: "call"}, new(struct{}))
	}
	m.images()[0].idle[0].linear.arena = &arena{} // without a region
	failure := fails(t, m, &Call{Export: "call"}, abi.OutcomeUnknown)
	if !strings.HasPrefix(failure.Detail, "the engine failed, and no guest: ") || failure.Receipt.In != "" {
		t.Errorf("failure %+v", failure)
	}
	reported(t, log, "panic in a guest call", m, "nil pointer")
	succeeds(t, m, &Call{Export: "call"}, new(struct{}))
}

// noIdle closes the instances that wait for a call of a module.
func noIdle(m *Module) {
	var d dropped
	for _, img := range m.images() {
		p := &m.engine.pool
		p.mu.Lock()
		for len(img.idle) > 0 {
			d.instances = append(d.instances, img.idle[0])
			p.unlink(img.idle[0])
		}
		p.mu.Unlock()
	}
	d.close()
}
