package authortest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/sandboxd/sandboxd/host"
	"github.com/sandboxd/sandboxd/internal/guestcode"
	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Mutant is a guard that was changed in one place, and whether its tables notice.
type Mutant struct {
	ID       string `json:"id"`
	Function string `json:"function"`
	File     string `json:"file,omitempty"` // without the path of its package; empty: not known
	Line     int    `json:"line,omitempty"`
	At       int    `json:"at"` // offset in the module
	Change   string `json:"change"`
	Noticed  bool   `json:"noticed"`
	Deny     bool   `json:"deny"` // only denials went one way from there
	Row      string `json:"row"`  // that noticed, or the first that comes by
}

// Mutate changes the module in one place after the other and asks the tables whether they
// notice: each of their rows that reaches the place, until one fails. Then it leaves out what is in the
// settings of a table, one entry after the other. Places that no row
// reached are left out, as coverage tells of them; so are changes that let a condition never
// or always hold, unless only that led to denials: those turn a denial into what comes
// without it. It reports the changed guards in the order of the module, when all were tried.
//
// Only those are tried that only reports true for; nil for all.
//
// Run the tables before, with [Cover.Guard] and [Cover.Row]; all rows must pass.
func (c *Cover) Mutate(ctx context.Context, tables []*Table, only func(Mutant) bool) ([]Mutant, error) {
	var all []Mutant
	var rows [][]TestRow
	var turn []int
	n := 0
	for _, f := range c.code.Functions {
		for _, change := range f.Changes {
			n++
			if rs, deny, ok := c.worth(f, change); ok {
				m := Mutant{ID: change.ID, Function: f.Name, At: change.At, Change: change.Text, Deny: deny}
				if change.Site.Line > 0 {
					m.File, m.Line = change.Site.Name(), change.Site.Line
				}
				if only == nil || only(m) {
					all, rows, turn = append(all, m), append(rows, rs), append(turn, n)
				}
			}
		}
	}
	settings, tabled := unset(tables)
	var without []*Table
	for i, m := range settings {
		if only == nil || only(m) {
			all, without = append(all, m), append(without, tabled[i])
		}
	}
	next := make(chan int)
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				if j := i - len(turn); j >= 0 {
					all[i].Row, all[i].Noticed, errs[i] = try(ctx, c.Module(), without[j:j+1], nil)
					continue
				}
				all[i].Row, all[i].Noticed, errs[i] = try(ctx, c.probed.Module(turn[i], nil), tables, rows[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// worth returns the rows that reach a change, if it is one to try, and whether only denials
// went one of the ways that it is about.
func (c *Cover) worth(f *guestcode.Function, change guestcode.Change) (rows []TestRow, deny, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.block(f.Index, change.At)
	if at < 0 || len(c.blocks[at].rows) == 0 {
		return nil, false, false
	}
	var denies [2]bool
	if change.Branch >= 0 && c.blocks[at].passed > 0 {
		for i, w := range f.Branches[change.Branch].Ways {
			to := c.block(f.Index, w.To)
			denies[i] = to >= 0 && c.blocks[to].denied > 0 && c.blocks[to].passed == 0
		}
	}
	if change.Skips >= 0 && !denies[change.Skips] {
		return nil, false, false
	}
	return c.blocks[at].rows, denies[0] || denies[1], true
}

// unset returns the tables without one entry of their settings each.
func unset(tables []*Table) (all []Mutant, without []*Table) {
	for _, t := range tables {
		v, err := abi.Unmarshal(t.settings)
		if t.settings == nil || err != nil {
			continue // ParseTable has read it
		}
		leave(v, "", func(pointer string) {
			doc, err := abi.Marshal(v)
			if err != nil {
				return
			}
			changed := *t
			changed.settings = doc
			changed.rows = slices.DeleteFunc(slices.Clone(t.rows), func(r row) bool { return r.settings != nil })
			all = append(all, Mutant{ID: fmt.Sprintf("%s settings %s", cmp.Or(t.Name, "guard"), pointer), Change: "the entry is removed"})
			without = append(without, &changed)
		})
	}
	return all, without
}

// leave removes one member or element of a value after the other, and calls f while it is not
// there.
func leave(v any, at string, f func(pointer string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			here, kept := at+"/"+key, v[key]
			delete(v, key)
			f(here)
			v[key] = kept
			leaveIn(kept, here, f, func(changed any) { v[key] = changed })
		}
	case []any:
		leaveIn(v, at, f, func(any) {})
	}
}

// leaveIn is leave for a value that lies in another: set puts it there.
func leaveIn(v any, at string, f func(pointer string), set func(any)) {
	list, ok := v.([]any)
	if !ok {
		leave(v, at, f)
		return
	}
	for i, e := range list {
		here := fmt.Sprintf("%s/%d", at, i)
		set(slices.Delete(slices.Clone(list), i, i+1))
		f(here)
		set(list)
		leaveIn(e, here, f, func(changed any) { list[i] = changed })
		list[i] = e
	}
}

// try runs rows of tables, nil for all, until one fails, and returns that one, or the first.
func try(ctx context.Context, module *host.Module, tables []*Table, rows []TestRow) (row string, noticed bool, err error) {
	for _, t := range tables {
		mine := func(name string) bool { return rows == nil || slices.Contains(rows, TestRow{t.File, name}) }
		until, cancel := context.WithCancel(ctx)
		_, err := t.Run(until, ModuleGuard(module, t.Name, host.Limits{}), mine, func(r Result) {
			if row == "" {
				row = r.Name
			}
			if !r.OK && !noticed {
				row, noticed = r.Name, true
				cancel()
			}
		})
		cancel()
		if noticed {
			return row, true, nil
		}
		if err != nil {
			return row, false, err
		}
	}
	return row, false, nil
}
