package wasmbin

import "fmt"

// Caps on what one module may declare. They are far above what compilers write
// and far below what an engine chokes on.
const (
	MaxModuleBytes  = 8 << 20   // the whole module
	MaxTypes        = 10_000    // function types
	MaxParams       = 64        // parameters of one type
	MaxResults      = 8         // results of one type
	MaxImports      = 256       // imports
	MaxFunctions    = 20_000    // functions with a body
	MaxTableEntries = 100_000   // entries of all tables, by minimum and by declared maximum
	MaxTables       = 16        // tables
	MaxMemories     = 1         // memories
	MaxGlobals      = 4_000     // globals
	MaxExports      = 1_000     // exports
	MaxElements     = 10_000    // element segments
	MaxElementItems = 128 << 10 // items of all element segments
	MaxData         = 128 << 10 // data segments: a Go guest has 10,000 per megabyte
	MaxBodyBytes    = 128 << 10 // one function body
	MaxLocals       = 1_000     // locals of one function, without parameters
	MaxLocalsTotal  = 200_000   // locals of all functions
	MaxNameBytes    = 1 << 10   // a name in an import, export or custom section
	MaxCustom       = 64        // custom sections
)

// Caps on what compiling the code may cost, see [Module.CheckCode].
const (
	MaxBranches    = 4_000   // blocks, loops, ifs and branches of one function
	MaxNesting     = 1_000   // blocks inside each other: a Go guest has 549
	MaxLabels      = 4_096   // labels of one br_table
	MaxLabelsTotal = 200_000 // labels of all of them
	MaxLoopVars    = 4_000   // of one function, the depth of its loops times the locals that it writes
	MaxLoopVarsSum = 100_000 // of all functions
)

const maxTold = 16 // functions, or other things, that are named for one cap; the others are counted

// An Error says why bytes are refused as a module.
type Error struct {
	Limit  bool // past a cap; otherwise the bytes are not a module
	Offset int  // where, in bytes from the start
	Text   string
}

func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.Text, e.Offset) }

// Errors are all reasons for which one module is refused, in the order in which
// they were met. A malformed module is read no further, so at most the last one
// is not a limit.
type Errors []*Error

func (e Errors) Error() string {
	if len(e) == 1 {
		return "module: " + e[0].Error()
	}
	return fmt.Sprintf("module: %s, and %d more", e[0].Error(), len(e)-1)
}
