package host

import (
	"bytes"
	"context"
	"crypto/sha256"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// A Probe is what tests of a guest want to see of it, and to change in it.
type Probe = meter.Probe

// A Probed is a module for tests of the guest: it runs as the module does, with the same
// fuel, and says which blocks of its code a call has reached. One change of it can be turned
// on. It is safe for concurrent use.
type Probed struct {
	module *Module
	blocks []meter.Block
}

// LoadProbed loads a module for tests. It is checked and compiled as Load does it, in a
// version of its own that no other load gets and that stays until the engine is closed.
// Errors are those of Load.
func (e *Engine) LoadProbed(ctx context.Context, wasm []byte, p Probe) (*Probed, error) {
	wasm = bytes.Clone(wasm)
	digest := Digest(sha256.Sum256(wasm))
	m, bin, why := e.check(digest, wasm)
	if m != nil {
		why = append(why, m.readManifest(bin)...)
	}
	if len(why) > 0 {
		return nil, &RejectError{digest, why}
	}
	m.probe = &probe{Probe: p}
	if err := e.compileAlone(ctx, "", m, bin); err != nil {
		return nil, err
	}
	m.code.whole = isWhole(bin)
	return &Probed{module: m, blocks: m.probe.blocks}, nil
}

// Blocks returns the blocks that are watched. They are shared and must not be changed.
func (p *Probed) Blocks() []meter.Block { return p.blocks }

// Module returns the module with a change turned on: the first of its probe is 1, and so on,
// and 0 is the module as it is. A change works in calls, not in what runs before them. seen
// is told of every call, by who made it, when it is over; it may be nil. All modules have the
// digest of the module.
func (p *Probed) Module(change int, seen func(Seen)) *Module {
	m := *p.module
	m.probe = &probe{Probe: m.probe.Probe, blocks: p.blocks, change: change, seen: seen}
	return &m
}

// Seen is what a call has reached.
type Seen struct {
	Blocks []uint64 // bit i%64 of word i/64 is block i of Blocks; the receiver's
	Output []byte   // what the guest answered, if anything; not to be changed
}

// A probe is a probe of a module with the change that is on.
type probe struct {
	meter.Probe
	blocks []meter.Block
	change int
	seen   func(Seen)
}

// rewrite meters the module's code.
func (m *Module) rewrite(bin *wasmbin.Module) (code []byte, err error) {
	if m.probe == nil {
		return meter.Rewrite(bin)
	}
	code, m.probe.blocks, err = meter.RewriteProbed(bin, m.probe.Probe)
	return code, err
}

func (p *probe) words() int { return (len(p.blocks) + 63) / 64 }

// arm makes the frame's instance ready for a call.
func (p *probe) arm(f *frame) {
	f.instance.global(meter.Changed).Set(uint64(p.change))
	for i := range p.words() {
		f.instance.global(meter.Seen(i)).Set(0)
	}
}

// tell reports what the call has reached.
func (p *probe) tell(f *frame) {
	if p.seen == nil {
		return
	}
	s := Seen{Blocks: make([]uint64, p.words()), Output: f.output}
	for i := range s.Blocks {
		s.Blocks[i] = f.instance.global(meter.Seen(i)).Get()
	}
	p.seen(s)
}
