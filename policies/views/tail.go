package views

import (
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// A Beginning finds where at the end of a text a match of an expression may have
// begun that is not complete yet.
type Beginning struct {
	prog   *syntax.Prog
	firsts []*syntax.Inst // what may read the first character
}

// NewBeginning compiles an expression, which must be a valid one.
func NewBeginning(expr string) (*Beginning, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	b := &Beginning{prog: prog}
	reached := make(map[uint32]int)
	b.follow(uint32(prog.Start), 0, 0, reached, true)
	for pc := range reached {
		if inst := &prog.Inst[pc]; consumes(inst) {
			b.firsts = append(b.firsts, inst)
		}
	}
	return b, nil
}

// At returns the first byte of text, of its last most characters, from which on it
// may be the beginning of a match that goes on behind its end; len(text) if there is
// none.
func (b *Beginning) At(text string, most int) int {
	start := len(text)
	for n := 0; n < most && start > 0; n++ {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
	}
	// The threads of a Thompson simulation, and where each began. Of two in one
	// place the one that began first says all.
	now := make(map[uint32]int)
	before := rune(-1)
	if start > 0 {
		before, _ = utf8.DecodeLastRuneInString(text[:start])
	}
	for i := start; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if len(now) == 0 && !slices.ContainsFunc(b.firsts, func(inst *syntax.Inst) bool { return inst.MatchRune(r) }) {
			before = r
			i += size
			continue
		}
		cond := syntax.EmptyOpContext(before, r)
		next := make(map[uint32]int)
		reached := make(map[uint32]int)
		for pc, began := range now {
			b.follow(pc, began, cond, reached, false)
		}
		if _, running := reached[uint32(b.prog.Start)]; !running {
			b.follow(uint32(b.prog.Start), i, cond, reached, false)
		}
		for pc, began := range reached {
			inst := &b.prog.Inst[pc]
			if consumes(inst) && inst.MatchRune(r) {
				if old, there := next[inst.Out]; !there || began < old {
					next[inst.Out] = began
				}
			}
		}
		now, before = next, r
		i += size
	}
	first := len(text)
	reached := make(map[uint32]int)
	for pc, began := range now {
		b.follow(pc, began, 0, reached, true)
	}
	for pc, began := range reached {
		if consumes(&b.prog.Inst[pc]) {
			first = min(first, began)
		}
	}
	return first
}

func consumes(i *syntax.Inst) bool {
	switch i.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// follow adds to reached what can be reached from pc without reading. At the end of
// the text what comes next is not known, so every condition may hold.
func (b *Beginning) follow(pc uint32, began int, cond syntax.EmptyOp, reached map[uint32]int, end bool) {
	if old, there := reached[pc]; there && old <= began {
		return
	}
	reached[pc] = began
	switch i := &b.prog.Inst[pc]; i.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		b.follow(i.Out, began, cond, reached, end)
		b.follow(i.Arg, began, cond, reached, end)
	case syntax.InstCapture, syntax.InstNop:
		b.follow(i.Out, began, cond, reached, end)
	case syntax.InstEmptyWidth:
		if end || syntax.EmptyOp(i.Arg)&^cond == 0 {
			b.follow(i.Out, began, cond, reached, end)
		}
	}
}
