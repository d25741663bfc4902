package authortest

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/sandboxd/sandboxd/flow"
	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
	"github.com/sandboxd/sandboxd/internal/guestcode"
)

// A Cover is a module whose tests are watched: which blocks of its author's code they
// reach, and how the calls ended that did. Tests at the same time may use it, but for
// [Cover.Row].
type Cover struct {
	code   *guestcode.Code
	probed *host.Probed

	mu         sync.Mutex
	installing int      // guards that are being made
	row        []uint64 // blocks that were reached since the last call of Row
	blocks     []reached
}

// reached is what is known of one block.
type reached struct {
	denied int // calls that reached it and denied, or gave no answer
	passed int // all others
	rows   []TestRow
}

// A TestRow names a row of a table, or a case.
type TestRow struct {
	File string
	Name string
}

// OpenCover loads a module whose tests are to be watched. The listing is that of the source
// it was built from, or nil, as in [guestcode.Read].
func OpenCover(ctx context.Context, engine *host.Engine, wasm []byte, listing *guestbuild.Listing) (*Cover, error) {
	code, err := guestcode.Read(wasm, listing)
	if err != nil {
		return nil, err
	}
	c := &Cover{code: code}
	p := host.Probe{Watch: code.Watch}
	for _, f := range code.Functions {
		for _, change := range f.Changes {
			p.Changes = append(p.Changes, change.Change)
		}
	}
	if c.probed, err = engine.LoadProbed(ctx, wasm, p); err != nil {
		return nil, err
	}
	c.blocks = make([]reached, len(c.probed.Blocks()))
	return c, nil
}

// Again returns a cover of the same module whose tests have reached nothing yet. It watches
// other tests than the receiver, at no cost of compiling.
func (c *Cover) Again() *Cover {
	return &Cover{code: c.code, probed: c.probed, blocks: make([]reached, len(c.blocks))}
}

// Module returns the module, whose calls are not watched: its digest and what it does and uses
// are those of the module that was loaded.
func (c *Cover) Module() *host.Module { return c.probed.Module(0, nil) }

// Watched returns the module, whose calls are.
func (c *Cover) Watched() *host.Module { return c.probed.Module(0, c.seen) }

// Guard is [ModuleGuard] for the module that is watched, with what a guard is asked before it is trusted
// left out of what is watched: no row says what it answers to that.
func (c *Cover) Guard(name string) Maker {
	make := ModuleGuard(c.Watched(), name, host.Limits{})
	return func(ctx context.Context, settings json.RawMessage, kv host.KVStore, spent func(host.Receipt)) (guard flow.Guard, err error) {
		c.Installing(func() { guard, err = make(ctx, settings, kv, spent) })
		return guard, err
	}
}

// Installing calls f, which makes a guard of the module that is watched: what that is asked
// before it is trusted is left out.
func (c *Cover) Installing(f func()) {
	c.install(1)
	defer c.install(-1)
	f()
}

func (c *Cover) install(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.installing += n
}

// seen notes one call.
func (c *Cover) seen(s host.Seen) {
	var answer struct {
		Verdict string `json:"verdict"`
		Error   string `json:"error"`
	}
	denied := json.Unmarshal(s.Output, &answer) != nil || answer.Verdict == "deny" || answer.Error != ""
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.installing > 0 && answer.Verdict != "" {
		return
	}
	if c.row == nil {
		c.row = make([]uint64, len(s.Blocks))
	}
	for i, word := range s.Blocks {
		c.row[i] |= word
	}
	for i := range c.blocks {
		if s.Blocks[i/64]>>(i%64)&1 == 0 {
			continue
		}
		if denied {
			c.blocks[i].denied++
		} else {
			c.blocks[i].passed++
		}
	}
}

// Row says that what was reached since the last call of it was reached by a row.
func (c *Cover) Row(r TestRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.blocks {
		if c.row != nil && c.row[i/64]>>(i%64)&1 != 0 {
			c.blocks[i].rows = append(c.blocks[i].rows, r)
		}
	}
	c.row = nil
}

// block returns the index of the block that an offset in a function lies in, or else of the
// next one; -1 if there is none.
func (c *Cover) block(function, at int) int {
	all := c.probed.Blocks()
	i := sort.Search(len(all), func(i int) bool { return all[i].Start > at })
	if i > 0 && at < all[i-1].End {
		i--
	}
	if i == len(all) || all[i].Function != function {
		return -1
	}
	return i
}

// A Covered is how much of a function its tests have reached. Ways are the beginning of the
// function, and two for each place where it branches.
type Covered struct {
	Function string `json:"function"`
	Ways     int    `json:"ways"`
	Taken    int    `json:"taken"`
	Never    []Way  `json:"never,omitempty"` // those that were not taken; only the beginning where lines are not known
}

// A Way is a way through a function.
type Way struct {
	File string `json:"file,omitempty"` // without the path of its package; empty: not known
	Line int    `json:"line,omitempty"`
	At   int    `json:"at"` // offset in the module
}

// Functions returns how much of each function was reached, in the order of the module.
func (c *Cover) Functions() []Covered {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Covered
	for _, f := range c.code.Functions {
		entry := c.entry(f)
		if entry < 0 {
			continue
		}
		sum := Covered{Function: f.Name}
		count := func(block int, site guestcode.Site, at int) {
			sum.Ways++
			if block >= 0 && c.blocks[block].denied+c.blocks[block].passed > 0 {
				sum.Taken++
				return
			}
			w := Way{Line: site.Line, At: at}
			if site.Line > 0 {
				w.File = site.Name()
			}
			sum.Never = append(sum.Never, w)
		}
		count(entry, f.Site, c.probed.Blocks()[entry].Start)
		for _, b := range f.Branches {
			for _, w := range b.Ways {
				count(c.block(f.Index, w.To), w.Site, w.To)
			}
		}
		switch {
		case sum.Taken == 0: // one line says it
			sum.Never = sum.Never[:1]
		case f.Site.Line == 0: // places that nobody can find
			sum.Never = nil
		}
		all = append(all, sum)
	}
	return all
}

// Missed returns the lines of the author's source whose code nothing came to, in the order
// of files and lines; none where lines are not known.
func (c *Cover) Missed() []guestcode.Site {
	c.mu.Lock()
	defer c.mu.Unlock()
	came := map[guestcode.Site]bool{} // by line that has code: whether any of it was reached
	for _, f := range c.code.Functions {
		for at, site := range c.code.Places(f) {
			b := c.block(f.Index, at)
			came[site] = came[site] || b >= 0 && c.blocks[b].denied+c.blocks[b].passed > 0
		}
	}
	maps.DeleteFunc(came, func(_ guestcode.Site, reached bool) bool { return reached })
	return slices.SortedFunc(maps.Keys(came), func(a, b guestcode.Site) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}

// A Step is a way that was taken where a function branches.
type Step struct {
	Function string `json:"function"`
	From     Way    `json:"from"`
	To       Way    `json:"to"`
}

// Path returns the ways that were taken since the last call of [Cover.Row], in the order of
// the code.
func (c *Cover) Path() []Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(site guestcode.Site, at int) Way {
		w := Way{Line: site.Line, At: at}
		if site.Line > 0 {
			w.File = site.Name()
		}
		return w
	}
	var path []Step
	taken := func(block int) bool { return block >= 0 && c.row != nil && c.row[block/64]>>(block%64)&1 != 0 }
	for _, f := range c.code.Functions {
		for _, b := range f.Branches {
			if !taken(c.block(f.Index, b.At)) {
				continue
			}
			for _, w := range b.Ways {
				if taken(c.block(f.Index, w.To)) {
					path = append(path, Step{Function: f.Name, From: at(b.Site, b.At), To: at(w.Site, w.To)})
				}
			}
		}
	}
	return path
}

// entry returns the block that a function begins with.
func (c *Cover) entry(f *guestcode.Function) int {
	return slices.IndexFunc(c.probed.Blocks(), func(b meter.Block) bool { return b.Function == f.Index })
}
