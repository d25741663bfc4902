// Package hostile runs a corpus of hostile modules against this implementation.
//
// A corpus is a directory with a document per case in cases/, and modules/ with
// the modules that the runner itself needs, in hexadecimal. The modules of the
// cases are built by the corpus's own generator into another directory, one
// ID.wasm each. A case says what is done with its module and what must come of it;
// see [Case].
//
// Nothing of a module runs or is compiled in the process that calls [Run]: each
// case is a child process of its own, which the parent watches for memory and time
// and ends when it exceeds them by far. The child calls [RunCase], which gives the
// bytes to the product as an upload and to nothing else.
//
// What the product does not have counts as a failed case, under its name.
package hostile
