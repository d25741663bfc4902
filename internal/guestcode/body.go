package guestcode

import (
	"strings"

	"github.com/sandboxd/sandboxd/host/wasmbin"
	"github.com/sandboxd/sandboxd/internal/guestbuild"
)

// An inst is one instruction of a body.
type inst struct {
	wasmbin.Instruction
	value  int64 // of a constant
	labels []uint32
	end    int   // index of the end of a block, loop or if; of an else, that of its if
	other  int   // index of the else of an if; 0: none
	open   []int // blocks around a branch, the outermost first; of branches only
}

// A reader finds what is in one body.
type reader struct {
	code *Code
	all  []inst

	// Of code by Go: where the blocks are that a jump, by the number of its block, leads to.
	resume []int // index behind the end of the block; nil if the function has none
	back   map[int]bool
}

func (c *Code) reader(body wasmbin.Body) *reader {
	r := &reader{code: c}
	var open []int
	for s := body.Instructions(); s.Next(); {
		in := inst{Instruction: *s.Instruction()}
		i := len(r.all)
		switch in.Op {
		case wasmbin.OpI32Const, wasmbin.OpI64Const:
			in.value = signed(c.bin.Bytes()[in.Operands:in.End])
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			open = append(open, i)
		case wasmbin.OpElse:
			r.all[open[len(open)-1]].other = i
		case wasmbin.OpEnd:
			if len(open) > 0 {
				of := open[len(open)-1]
				open = open[:len(open)-1]
				r.all[of].end = i
				if other := r.all[of].other; other > 0 {
					r.all[other].end = i
				}
			}
		case wasmbin.OpBr, wasmbin.OpBrIf, wasmbin.OpBrTable:
			in.open = append([]int(nil), open...)
			for l := range in.Labels() {
				in.labels = append(in.labels, l)
			}
		}
		if len(r.all) == cap(r.all) {
			r.all = append(make([]inst, 0, 2*len(r.all)+64), r.all...)
		}
		r.all = append(r.all, in)
	}
	if c.golang {
		r.findResume()
	}
	return r
}

// signed reads a signed LEB128.
func signed(b []byte) int64 {
	var v int64
	shift := 0
	for _, c := range b {
		v |= int64(c&0x7f) << shift
		if shift += 7; c&0x80 == 0 {
			if c&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			break
		}
	}
	return v
}

// target returns the index that a branch of a label leads to; len(r.all) is out of the function.
func (r *reader) target(i int, label uint32) int {
	open := r.all[i].open
	if int(label) >= len(open) {
		return len(r.all)
	}
	of := open[len(open)-1-int(label)]
	if r.all[of].Op == wasmbin.OpLoop {
		return of + 1
	}
	return r.all[of].end + 1
}

// findResume finds the blocks of a function by Go: it begins with blocks in blocks and a
// branch to the one whose number is its parameter, and jumps by setting that and going back
// there.
func (r *reader) findResume() {
	for i, in := range r.all[:min(len(r.all), 1<<12)] {
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpGlobalGet, wasmbin.OpLocalSet, wasmbin.OpLocalGet:
			continue
		case wasmbin.OpBrTable:
			if i == 0 || r.all[i-1].Op != wasmbin.OpLocalGet || r.all[i-1].Index != 0 {
				return
			}
			for _, l := range append(in.labels, in.Index) {
				r.resume = append(r.resume, r.target(i, l))
			}
			r.back = map[int]bool{}
			for j := range r.all {
				if to, ok := r.jump(j); ok && to <= j {
					r.back[to] = true
				}
			}
		}
		return
	}
}

// jump returns where the code at i jumps, if that is what it does.
func (r *reader) jump(i int) (to int, ok bool) {
	if r.resume == nil || i+2 >= len(r.all) {
		return 0, false
	}
	a, b, c := &r.all[i], &r.all[i+1], &r.all[i+2]
	if a.Op != wasmbin.OpI32Const || b.Op != wasmbin.OpLocalSet || b.Index != 0 || c.Op != wasmbin.OpBr || a.value < 0 || a.value >= int64(len(r.resume)) {
		return 0, false
	}
	return r.resume[a.value], true
}

// land returns the index of the first instruction that does something, after jumps.
func (r *reader) land(i int) int {
	for range 100 {
		if i >= len(r.all) {
			return i
		}
		if to, ok := r.jump(i); ok {
			i = to
			continue
		}
		switch in := &r.all[i]; in.Op {
		case wasmbin.OpEnd, wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpNop:
			i++
		case wasmbin.OpElse:
			i = in.end + 1
		case wasmbin.OpBr:
			i = r.target(i, in.Index)
		default:
			return i
		}
	}
	return i
}

// added are the beginnings of names of functions that code calls which Go's compiler adds.
var added = []string{"runtime.panic", "runtime.goPanic", "runtime.sigpanic", "runtime.morestack", "runtime.growslice", "runtime.moveSlice", "runtime.gcWriteBarrier", "gcWriteBarrier",
	"runtime.wb"}

// adds reports whether the code at i goes straight to something that only code calls which
// the compiler added.
func (r *reader) adds(i int) bool {
	for range 200 {
		if i = r.land(i); i >= len(r.all) {
			return false
		}
		switch in := &r.all[i]; in.Op {
		case wasmbin.OpCall:
			name := r.code.names[in.Index]
			for _, a := range added {
				if strings.HasPrefix(name, a) {
					return true
				}
			}
			return false
		case wasmbin.OpUnreachable:
			return true
		case wasmbin.OpCallIndirect, wasmbin.OpReturn, wasmbin.OpIf, wasmbin.OpBrIf, wasmbin.OpBrTable:
			return false
		}
		i++
	}
	return false
}

// afterCall reports whether the condition at i is what a call left behind. In code by Go that
// says whether the stack is unwound, and nothing of the author's.
func (r *reader) afterCall(i int) bool {
	i--
	if i >= 2 && r.all[i].Op == wasmbin.OpLocalSet && r.all[i-1].Op == wasmbin.OpGlobalGet { // the stack may have moved
		i -= 2
	}
	return i >= 0 && (r.all[i].Op == wasmbin.OpCall || r.all[i].Op == wasmbin.OpCallIndirect)
}

// align finds the site of every instruction, or returns nil if the listing is not of this
// code. What is no instruction, and what is more than one, is as the assembler does it.
func (r *reader) align(of *guestbuild.Function) map[int]Site {
	sites := map[int]Site{}
	i := 0
	take := func(n int, s guestbuild.Step) {
		for ; n > 0 && i < len(r.all); n-- {
			sites[r.all[i].Start] = Site{s.File, s.Line}
			i++
		}
	}
	local := func(reg string) bool {
		return reg == "PC_B" || len(reg) > 1 && (reg[0] == 'R' || reg[0] == 'F') && reg[1] >= '0' && reg[1] <= '9'
	}
	// All but exported functions keep the stack pointer in a local.
	stack := len(r.all) > 1 && r.all[0].Op == wasmbin.OpGlobalGet && r.all[0].Index == 0 && r.all[1].Op == wasmbin.OpLocalSet
	if stack {
		i = 2
	}
	for n := 0; n < len(of.Steps); n++ {
		s := of.Steps[n]
		switch s.Op {
		case "TEXT", "FUNCDATA", "PCDATA", "NOP":
			continue
		case "Set":
			switch {
			case s.Arg == "SP" && stack:
				take(2, s)
			case local(s.Arg) && n+1 < len(of.Steps) && of.Steps[n+1].Op == "Get" && of.Steps[n+1].Arg == s.Arg:
				take(1, s)
				n++
			default:
				take(1, s)
			}
			continue
		case "Call", "CallIndirect":
			take(1, s)
			if stack {
				take(2, s)
			}
			continue
		}
		if i >= len(r.all) {
			return nil
		}
		if want, ok := checked[s.Op]; ok && r.all[i].Op != want || !ok && r.all[i].Op <= wasmbin.OpCallIndirect && s.Op != "UNDEF" && s.Op != "Nop" {
			return nil
		}
		take(1, s)
	}
	if i != len(r.all)-1 { // but for the last end
		return nil
	}
	return sites
}

// checked are steps whose instruction is looked at, to see that code and listing agree.
var checked = map[string]wasmbin.Op{"Block": wasmbin.OpBlock, "Loop": wasmbin.OpLoop, "If": wasmbin.OpIf, "Else": wasmbin.OpElse, "End": wasmbin.OpEnd,
	"Br": wasmbin.OpBr, "BrIf": wasmbin.OpBrIf, "BrTable": wasmbin.OpBrTable, "Return": wasmbin.OpReturn, "I32Const": wasmbin.OpI32Const,
	"I64Const": wasmbin.OpI64Const, "I64Eqz": 0x50, "I64LtS": 0x53, "I64LeS": 0x57}
