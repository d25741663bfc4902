package guestcode

import (
	"fmt"

	"github.com/sandboxd/sandboxd/host/meter"
	"github.com/sandboxd/sandboxd/host/wasmbin"
)

// A Change is one way in which an instruction could work differently.
type Change struct {
	meter.Change
	ID   string // stands for it as long as the function is not changed: "judge turned 2"
	Site Site
	Text string // what it does in the compiled code, such as "< becomes <=" or "never goes to line 47"
	// Skips is the way that a change of a condition closes, 0 or 1, or -1.
	Skips int
	// Branch is the index of the branch whose condition is changed, or part of it; or -1.
	Branch int
}

// find finds the branches and changes of a function.
func (r *reader) find(f *Function) {
	counts := map[string]int{}
	add := func(i int, to meter.Turn, kind, text string, branch, skips int) {
		counts[kind]++
		f.Changes = append(f.Changes, Change{Change: meter.Change{At: r.all[i].Start, To: to}, ID: fmt.Sprintf("%s %s %d", f.Name, kind, counts[kind]),
			Site: f.sites[r.all[i].Start], Text: text, Branch: branch, Skips: skips})
	}
	for i := range r.all {
		if !r.mine(f, i) {
			continue
		}
		switch op := r.all[i].Op; op {
		case wasmbin.OpIf, wasmbin.OpBrIf:
			b, ok := r.branch(f, i)
			if !ok {
				continue
			}
			n := len(f.Branches)
			f.Branches = append(f.Branches, b)
			add(i, meter.Invert, "inverted", "goes the other way", n, -1)
			add(i, meter.Never, "never", "never goes "+b.Ways[0].Site.to(), n, 0)
			add(i, meter.Always, "always", "never goes "+b.Ways[1].Site.to(), n, 1)
		case wasmbin.OpSelect, wasmbin.OpSelectType:
			if !r.code.golang { // whose compiler makes it of what is no branch
				add(i, meter.Invert, "inverted", "chooses the other", -1, -1)
			}
		default:
			if !meter.Swap.Turns(op) {
				continue
			}
			of := -1
			at, feeds := r.feeds(i)
			if feeds {
				if _, ok := r.branch(f, at); !ok {
					continue
				}
				of = len(f.Branches) // it is the next
			}
			equal := equals[op]
			if equal && !feeds || !equal && !(feeds && r.loops(i)) {
				add(i, meter.Swap, "turned", turns[op], of, -1)
			}
			if !equal || op == 0x45 || op == 0x50 {
				continue
			}
			for _, j := range []int{i - 1, i - 2} { // what it is compared with, one more and one less
				if j >= 0 && meter.More.Turns(r.all[j].Op) && (j == i-1 || r.all[i-1].Op == wasmbin.OpLocalGet) {
					add(j, meter.More, "more", fmt.Sprintf("%d becomes %d", r.all[j].value, r.all[j].value+1), of, -1)
					add(j, meter.Less, "less", fmt.Sprintf("%d becomes %d", r.all[j].value, r.all[j].value-1), of, -1)
					break
				}
			}
		}
	}
}

// equals are comparisons for equality.
var equals = map[wasmbin.Op]bool{0x45: true, 0x50: true, 0x46: true, 0x47: true, 0x51: true, 0x52: true, 0x5b: true, 0x5c: true, 0x61: true, 0x62: true}

var turns = map[wasmbin.Op]string{0x45: "not becomes not not", 0x50: "== 0 becomes != 0"}

func init() {
	for _, first := range []wasmbin.Op{0x46, 0x51} {
		for i, text := range []string{"== becomes !=", "!= becomes ==", "< becomes <=", "< becomes <=", "> becomes >=", "> becomes >=", "<= becomes <", "<= becomes <", ">= becomes >", ">= becomes >"} {
			turns[first+wasmbin.Op(i)] = text
		}
	}
	for _, first := range []wasmbin.Op{0x5b, 0x61} {
		for i, text := range []string{"== becomes !=", "!= becomes ==", "< becomes <=", "> becomes >=", "<= becomes <", ">= becomes >"} {
			turns[first+wasmbin.Op(i)] = text
		}
	}
}

// mine reports whether an instruction comes from the author's own source.
func (r *reader) mine(f *Function, i int) bool {
	return f.sites == nil || r.code.wrote(f.sites[r.all[i].Start])
}

// branch returns the branch at i, unless the compiler added it.
func (r *reader) branch(f *Function, i int) (Branch, bool) {
	in := &r.all[i]
	taken, not := i+1, i+1
	if in.Op == wasmbin.OpIf {
		if not = in.end + 1; in.other > 0 {
			not = in.other + 1
		}
	} else {
		taken = r.target(i, in.Index)
	}
	if r.code.golang && (r.afterCall(i) || r.adds(taken) || r.adds(not)) {
		return Branch{}, false
	}
	return Branch{At: in.Start, Site: f.sites[in.Start], Ways: [2]Way{r.way(f, i, taken), r.way(f, i, not)}}, true
}

func (r *reader) way(f *Function, branch, to int) Way {
	w := Way{To: r.all[len(r.all)-1].End, Site: f.sites[r.all[branch].Start]}
	if to < len(r.all) {
		w.To = r.all[to].Start
	}
	if f.sites == nil {
		return w
	}
	// What prepares the way may still be in the line that branches.
	seen := 0 // code may go around in a loop
	for at := r.land(to); at < len(r.all) && seen < len(r.all); at, seen = r.land(at+1), seen+1 {
		if site := f.sites[r.all[at].Start]; r.mine(f, at) && site != w.Site {
			w.Site = site
			return w
		}
		switch r.all[at].Op {
		case wasmbin.OpIf, wasmbin.OpBrTable, wasmbin.OpReturn, wasmbin.OpUnreachable:
			return w
		}
	}
	return w
}

// feeds returns the branch whose condition the comparison at i is.
func (r *reader) feeds(i int) (branch int, ok bool) {
	for i++; i < len(r.all); i++ {
		switch r.all[i].Op {
		case 0x45, 0x50, 0xa7, 0xad, wasmbin.OpLocalTee: // not, in 32 bits and 64, and from one to the other
			continue
		case wasmbin.OpIf, wasmbin.OpBrIf:
			return i, true
		}
		break
	}
	return 0, false
}

// loops reports whether the comparison at i is what ends a loop of Go: nothing branches
// between the place that the loop goes back to and i. One round more than there is leaves
// the slice that it is over, and nothing checks that.
func (r *reader) loops(i int) bool {
	for ; i >= 0; i-- {
		if r.back[i] {
			return true
		}
		switch r.all[i].Op {
		case wasmbin.OpIf, wasmbin.OpBrIf, wasmbin.OpBr, wasmbin.OpCall, wasmbin.OpCallIndirect:
			return false
		}
	}
	return false
}
