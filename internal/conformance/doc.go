// Package conformance runs the recorded behaviour vectors against this
// implementation and compares, event for event.
//
// A vector is a scenario as data: a scripted model, declarative tools and hooks,
// user turns, and what was recorded when they ran. The format is described in
// testdata/conformance/README.md. Handlers and hooks run in this process, or as
// guests: one generic guest interprets the vector's operations.
package conformance
