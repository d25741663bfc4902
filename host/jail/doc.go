// Package jail does work on hostile input in a child process, so that work that
// takes for ever, takes all memory or crashes costs the child only.
//
// The child is this program, run again: its main function calls [Main] before
// anything else, which in the child does the work and never returns. [Run] starts
// one child for one input. The child gets the input and a directory to write to;
// it inherits no descriptor, argument or environment variable of its parent.
//
// Two limits are the kernel's, processor time and the size of a file; the parent
// looks at resident memory and at the wall clock, and kills. Address space is
// limited too, but only as a backstop, 4 GiB above what the runtime maps at its
// start: a Go program maps far more than it uses, so a tight limit would hit
// lawful work.
//
// What this is not: a sandbox. The child runs as the same user with the same
// rights, and work that is taken over by its input has these. Where the jail is
// not [Supported], that is on systems other than Linux, Run always fails.
package jail
