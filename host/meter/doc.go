// Package meter rewrites a WebAssembly module so that its work is counted and can
// be stopped, whatever its instructions are: an engine alone can neither interrupt
// calls without loops nor one long instruction, and a guest that computes without
// a break keeps the garbage collector of the whole process waiting.
//
// # Fuel
//
// Fuel is a count of guest work. Every run of instructions that are executed
// together is charged when it begins: an instruction costs 1, one that only
// structures code nothing, a call of a guest function 5, a call of a host
// function or a growth [HostCall], and a byte or eight in a window 10. Instructions that work on a length are charged
// for it before they run, on top: memory.fill, memory.copy and memory.init 1 for
// each 8 bytes, memory.grow the same for what it asks for, and table.fill,
// table.copy, table.init and table.grow 1 for each entry. What is charged for one
// of them ends at 64 MiB or the entries that a table can have; a longer one fails.
//
// The count depends on the instructions that ran and on nothing else, so it is the
// same in every run that computes the same.
//
// # Slices
//
// An instance begins with no fuel. When the fuel of a function is below zero, at
// its entry, at the head of a loop and at an instruction with a length, it calls
// the one function that the rewritten module imports beside its own, [Refill]. That
// finds what is left, negative, in [Fuel] and puts the fuel of the next slice there,
// or ends the call by a panic. So between two calls of it lies at most a slice, one
// function without loops, or one instruction. memory.fill and memory.copy are calls of functions that
// are added, which work on a mebibyte after the other and call Refill in between.
//
// # Depth
//
// Calls of guest functions within each other are counted as well. A frame counts 1, and 1 more for
// each 32 values that an engine may have to keep on the native stack, and for each 4 KiB of code. Such values are
// parameters and locals, operands below a call or below more than 8 others, and what a local holds when it
// is read after a call. Where they may be vectors each counts as two. A function whose frame does not fit
// calls Refill with [Depth] negative. Functions that call no guest function are not
// counted.
//
// # State
//
// Both counts are globals behind all globals of the module. Fuel is what is left of the slice whenever no guest function
// runs and whenever one has called the host; within a function it is a local, so
// after a trap it may lack what the last function did since its last call. Depth
// has to be set before every call of an export. The start function is not run at
// instantiation but exported as [Start]. The guest's own globals that can change and
// hold a number are exported as [Global] says, so that they can be set back.
//
// # Windows
//
// Extism's imports that read or write a byte or eight of a block leave compiled code for
// each of them. A module that imports one gets another function in its place, of a second module
// that [BlocksModule] returns: an instance of it belongs to an instance of the guest, and holds the
// blocks in a memory of its own, which the guest cannot name. The host opens windows by setting
// their globals: [Load] on the block that was read last, [Store] on the one that was written
// last, and [Input] on the input. The functions read and write what lies in a window
// and call the host for all else, which checks it and moves the window.
//
// # Probes
//
// For tests of a guest, [RewriteProbed] adds to the same output globals that say which blocks began, and other
// ways for instructions to work, one of which can be turned on. They cost no fuel. All changes are in one
// module because compiling each would take a second or more for a guest in Go.
//
// # What the guest can name
//
// Rewrite checks every index in the module against what the module itself declares
// before it adds anything, and what it adds to code takes from the stack only what
// it has put there. So code that names or touches what was added does not exist in
// its output, and the engine's validation of the output judges the original as well.
package meter
