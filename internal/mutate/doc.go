// Mutate changes the code of this module in small ways, one at a time, and
// reports the changes that no test notices.
//
//	go run ./internal/mutate [-equivalent FILE] [-only TEXT] FILE.go ...
//
// All mutants of a package are compiled into one test binary, in which a variable
// of the environment switches one of them on. Each test is first run alone, without a
// mutant, to see how long it takes and which mutants it comes by; so a mutant costs the
// tests that come by it, quickest first, up to the first that fails, and nothing if
// there are none. The mutants are
//
//   - a comparison turned: == and !=, < and <=, > and >=
//   - && for ||, and || for &&
//   - a condition, or a side of && or ||, negated
//   - a statement left out: a call, an assignment to what exists, defer, go, send,
//     break, continue, a return without results
//   - an error or a pointer that is returned replaced by nil, a bool negated
//
// Statements that do nothing but log are not changed. A mutant that makes its
// tests run twenty times as long, and five seconds, is a time-out, which is counted
// apart.
//
// FILE lists the mutants that are the same program to every caller: three lines
// each, which are where it is as the report prints it, the change, and the reason.
// An entry that is no mutant, or that the tests notice, is an error, and so are
// fewer than 90 % of the mutants killed or more than 3 % listed.
package main
