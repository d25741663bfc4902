// Package guestlang is the one place that knows the languages that guests are written
// in: how a folder of source is recognised, how it is built, what a new plugin or
// policy begins with, and what of the SDK lies beside it. Go and Rego are compiled by
// packages guestbuild and regobuild; the other recipes are here.
package guestlang
