package wasmbin

import "fmt"

// CheckCode reads the code of a module once, in time that grows with its bytes,
// and compares it with the caps on what compiling it would cost: an engine's
// compiler takes more than linear time for code that no compiler writes. It also
// finds what is no instruction of WebAssembly 2.0, and sets [Module.Lasting]. The error is of type [Errors]
// and lists every reason: a function that cannot be read is read no further, and
// the next one is. Functions are numbered as the module numbers them, imports
// first.
func (m *Module) CheckCode() error {
	c := &cost{told: map[string]int{}}
	c.imported = m.Imported(Func)
	at, labels, vars := 0, 0, 0
	for i, body := range m.Bodies() {
		if i >= len(m.Functions) { // past the cap
			break
		}
		t, ok := m.typeAt(m.Functions[i])
		if !ok && !m.partial {
			c.add("types", &Error{Offset: body.Locals, Text: fmt.Sprintf("function %d: type %d does not exist", c.imported+i, m.Functions[i])})
			continue
		}
		at = body.End
		l, v := c.body(c.imported+i, body, len(t.Params)+body.Count)
		labels += l
		vars += v
	}
	m.Lasting = c.lasting
	if labels > MaxLabelsTotal {
		c.limit("all labels", at, "labels of br_table in all functions: %d exceed %d", labels, MaxLabelsTotal)
	}
	if vars > MaxLoopVarsSum {
		c.limit("all loops", at, "depth of loops times locals written, over all functions: %d exceed %d", vars, MaxLoopVarsSum)
	}
	for _, cap := range []string{"types", "instructions", "branches", "nesting", "labels", "loops"} {
		if n := c.told[cap] - maxTold; n > 0 {
			c.errs = append(c.errs, &Error{Limit: cap != "types" && cap != "instructions", Offset: at,
				Text: fmt.Sprintf("the same of %s in %d more functions", cap, n)})
		}
	}
	if len(c.errs) == 0 {
		return nil
	}
	return c.errs
}

// cost collects what is wrong with the code of a module.
type cost struct {
	imported int
	lasting  Op // see [Module.Lasting]
	errs     Errors
	told     map[string]int // functions past each cap
	written  []int          // by local, the last function that writes it, plus 1
	isLoop   []bool         // of the blocks around an instruction, those that loop
}

// add takes an error, unless there are enough of the kind.
func (c *cost) add(kind string, err *Error) {
	if c.told[kind]++; c.told[kind] <= maxTold {
		c.errs = append(c.errs, err)
	}
}

func (c *cost) limit(kind string, at int, format string, args ...any) {
	c.add(kind, &Error{Limit: true, Offset: at, Text: fmt.Sprintf(format, args...)})
}

// body reads the code of one function. It returns the number of its labels of
// br_table, and the depth of its loops times the locals that it writes.
func (c *cost) body(index int, b Body, locals int) (labels, vars int) {
	var (
		branches, nesting, table int // the most of each
		loops, deepest           int // loops around the instruction, and the most
		written                  int // distinct locals
	)
	locals = min(locals, MaxParams+MaxLocals) // those of a body past the cap are not all looked at
	isLoop := c.isLoop[:0]
	for len(c.written) < locals {
		c.written = append(c.written, 0)
	}
	s := b.Instructions()
	for s.Next() {
		switch in := s.Instruction(); in.Op {
		case OpBlock, OpLoop, OpIf:
			branches++
			isLoop = append(isLoop, in.Op == OpLoop)
			nesting = max(nesting, len(isLoop))
			if in.Op == OpLoop {
				loops++
				deepest = max(deepest, loops)
			}
		case OpEnd:
			if last := len(isLoop) - 1; last >= 0 {
				if isLoop[last] {
					loops--
				}
				isLoop = isLoop[:last]
			}
		case OpBr, OpBrIf:
			branches++
		case OpBrTable:
			branches++
			labels += int(in.Index2)
			table = max(table, int(in.Index2))
		case OpLocalSet, OpLocalTee:
			if int64(in.Index) < int64(locals) && c.written[in.Index] != index+1 {
				c.written[in.Index] = index + 1
				written++
			}
		case OpTableSet, OpTableInit, OpTableCopy, OpTableGrow, OpTableFill, OpElemDrop, OpDataDrop:
			c.lasting = in.Op
		}
	}
	c.isLoop = isLoop
	if s.r.err != nil {
		err := *s.r.err
		err.Text = fmt.Sprintf("function %d: %s", index, err.Text)
		c.add("instructions", &err)
	}
	if branches > MaxBranches {
		c.limit("branches", b.Code, "function %d: %d blocks and branches exceed %d", index, branches, MaxBranches)
	}
	if nesting > MaxNesting {
		c.limit("nesting", b.Code, "function %d: %d blocks inside each other exceed %d", index, nesting, MaxNesting)
	}
	if table > MaxLabels {
		c.limit("labels", b.Code, "function %d: br_table of %d labels exceeds %d", index, table, MaxLabels)
	}
	if vars = deepest * written; vars > MaxLoopVars {
		c.limit("loops", b.Code, "function %d: %d loops inside each other times %d locals written exceed %d", index, deepest, written, MaxLoopVars)
	}
	return labels, vars
}
