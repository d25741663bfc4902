// Package authortest runs the tests that authors of plugins and policies write as
// data: cases of tool calls, and decision tables. Everything runs on the production
// host and goes through the dispatcher and the guards' own door; only the network
// and the clock are replaced, and how long a guard may take, so that a loaded
// machine fails no test: fuel bounds it as in production.
package authortest
