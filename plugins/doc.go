// Package plugins shows a guest to the flow: its tools as [flow.Tool], its hooks
// as [flow.Hooks]. It is the place where the two halves meet for plugins: it
// computes what a call may do, writes the document the guest reads, gives it the
// state, artifacts and actions of this one call, and reads what it answered as
// data. Nothing in an answer can set an action, an id or a name.
package plugins
