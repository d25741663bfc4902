// Package session keeps what a conversation leaves behind: its events, its
// state in four scopes, and beside the events two kinds of record that no event
// can forge: calls (what was about to run, and how it ended) and confirmations
// (what a person was asked, and what they said).
//
// [Store] is the contract of a place that keeps them; [NewMemory] is the one
// that forgets when the process ends. Package sessiontest holds the tests that
// every Store must pass.
package session
