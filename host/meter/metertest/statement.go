package metertest

import "slices"

func (g *generator) statements(most int) {
	for range g.pick(most + 1) {
		g.statement()
	}
}

// statement does something and leaves the stack as it was.
func (g *generator) statement() {
	if g.left--; g.over() {
		g.emit(0x01)
		return
	}
	g.depth++
	defer func() { g.depth-- }()
	some := valueTypes[g.pick(len(valueTypes))]
	switch g.pick(18) {
	case 0:
		g.expr(some)
		g.emit(0x1a)
	case 1:
		g.expr(some)
		g.keep(some)
	case 2:
		i := g.pick(len(g.globals))
		if !g.globals[i].mutable || i == work {
			g.emit(0x01)
			return
		}
		g.expr(g.globals[i].t)
		g.index(0x24, i)
	case 3, 4:
		if stores[some] == nil {
			some = i32
		}
		g.address()
		g.expr(some)
		g.access(stores[some][g.pick(len(stores[some]))])
	case 5:
		g.expr(i32)
		g.open(0x04, nil, nil)
		g.statements(3)
		if g.pick(2) == 0 {
			g.emit(0x05)
			g.statements(2)
		}
		g.close()
	case 6:
		g.expr(i32)
		g.open(0x04, nil, nil)
		g.leave()
		g.close()
	case 7:
		results := g.someTypes(2)
		g.loop(results)
		g.take(results)
	case 8:
		results := g.someTypes(3)
		g.block(results)
		g.take(results)
	case 9: // br_if
		to := g.pick(len(g.f.labels))
		types := g.f.labels[len(g.f.labels)-1-to]
		g.exprs(types)
		g.expr(i32)
		g.index(0x0d, to)
		for range types {
			g.emit(0x1a)
		}
	case 10:
		g.open(0x02, nil, nil)
		g.table()
		g.close()
	case 11:
		for range g.invoke(g.pick(len(g.funcs))) {
			g.emit(0x1a)
		}
	case 12:
		g.expr(i32)
		g.expr(i32)
		g.emit(0x10, 0) // the host
	case 13, 14:
		g.bulkMemory()
	case 15, 16:
		g.bulkTable()
	default:
		if g.rarely() {
			g.leave()
			return
		}
		g.emit(0x01)
	}
}

func (g *generator) bulkMemory() {
	kind := g.pick(4)
	if kind >= 2 && !g.bulk {
		kind -= 2
	}
	length := func() {
		if g.big && g.pick(2) == 0 {
			g.number([]int{1<<20 + 12345, 2 << 20, 33<<16 - 1, 33<<16 - 0x2000}[g.pick(4)]) // more than what is done at once, and perhaps past the end
			return
		}
		g.small(1 << 11)
	}
	switch kind {
	case 0:
		g.address()
		g.expr(i32)
		length()
		g.emit(0xfc, 11, 0)
	case 1:
		g.address()
		g.address()
		length()
		g.emit(0xfc, 10, 0, 0)
	case 2:
		g.address()
		g.small(4)
		g.small(4)
		g.emit(0xfc, 8, byte(2+g.pick(2)), 0)
	default:
		if !g.lasting || g.pick(3) > 0 { // what is dropped cannot be used
			g.emit(0x01)
			return
		}
		g.emit(0xfc, 9, byte(2+g.pick(2)))
	}
}

func (g *generator) bulkTable() {
	if !g.lasting {
		g.emit(0x01)
		return
	}
	table := g.pick(3)
	t := g.tables[table].t
	switch g.pick(5) {
	case 0:
		g.small(4)
		g.expr(t)
		g.index(0x26, table)
	case 1:
		g.small(2)
		g.expr(t)
		g.small(2)
		g.indexFC(17, table) // fill
	case 2:
		from := table
		if t == funcref {
			from = 2 - table*g.pick(2)
		}
		g.small(2)
		g.small(2)
		g.small(2)
		g.indexFC(14, table, from) // copy
	case 3:
		if t == externref {
			g.emit(0x01)
			return
		}
		g.small(2)
		g.small(2)
		g.small(2)
		g.indexFC(12, []int{1, 3}[g.pick(2)], table) // init
	default:
		if g.pick(3) > 0 {
			g.emit(0x01)
			return
		}
		g.indexFC(13, []int{1, 3}[g.pick(2)]) // elem.drop
	}
}

// leave goes elsewhere, so that no value has to be given.
func (g *generator) leave() {
	labels := g.f.labels
	switch g.pick(5) {
	case 0:
		g.exprs(labels[0])
		g.emit(0x0f)
	case 1:
		if !g.rarely() {
			g.exprs(labels[0])
			g.emit(0x0f)
			return
		}
		g.emit(0x00)
	case 2, 3:
		to := g.pick(len(labels))
		g.exprs(labels[len(labels)-1-to])
		g.index(0x0c, to)
	default:
		g.table()
	}
}

// table branches to one of several labels that take the same.
func (g *generator) table() {
	labels := g.f.labels
	last := g.pick(len(labels))
	types := labels[len(labels)-1-last]
	var same []int
	for i := range labels {
		if slices.Equal(labels[len(labels)-1-i], types) {
			same = append(same, i)
		}
	}
	g.exprs(types)
	g.small(4)
	n := g.pick(5)
	g.index(0x0e, n)
	for range n {
		g.code = u32(g.code, same[g.pick(len(same))])
	}
	g.code = u32(g.code, last)
}
